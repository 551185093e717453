from __future__ import annotations

from typing import Any

import cv2
import gymnasium
import numpy as np
import pygame
import pytest
from gymnasium.envs.box2d import car_racing

from nacdrive.drivers.pure_pursuit import PurePursuit
from nacdrive.envs.carracing.env import make_carracing
from nacdrive.envs.carracing.fast_renderer import FastCarRacing
from nacdrive.envs.carracing.sprites import score_picture
from nacdrive.models.agents.view import View


@pytest.fixture(scope="module")
def pairs() -> list[tuple[float, np.ndarray, np.ndarray]]:
    """(time, official, fast) frames of the same two laps, driven well; the second is left in its zoom."""
    found = []
    for seed, steps in ((1_000_001, 80), (1_000_002, 24)):
        official, fast = make_carracing(), make_carracing(renderer="fast")
        frame, info = official.reset(seed=seed)
        other, _ = fast.reset(seed=seed)
        driver = PurePursuit()
        driver.reset(official)
        for step in range(steps):
            if step % 4 == 0:
                found.append((info["t_s"], frame, other))
            choice = driver.act(frame, info).choice
            official.world.drawing = step % 4 == 3
            frame, _, _, _, info = official.step(choice)
            other = fast.step(choice)[0]
    return found


def difference(official: np.ndarray, fast: np.ndarray) -> float:
    small = View().small
    return float(np.abs(small(official)[0].astype(int) - small(fast)[0]).mean())


def test_frames_differ_by_less_than_half_a_grey_level_on_average(pairs: list) -> None:
    late = [difference(official, fast) for t_s, official, fast in pairs if t_s > 1]
    assert np.mean(late) < 0.5 and np.max(late) < 1.0


def test_the_zoom_of_the_first_second_is_drawn(pairs: list) -> None:
    early = [difference(official, fast) for t_s, official, fast in pairs if t_s <= 1]
    assert np.mean(early) < 1.0


def test_a_shifted_picture_would_be_noticed(pairs: list) -> None:
    late = [(official, np.roll(fast, 1, axis=1)) for t_s, official, fast in pairs if t_s > 1]
    assert np.mean([difference(*pair) for pair in late]) > 0.8


def test_instruments_are_black(pairs: list) -> None:
    assert all(not fast[84:].any() for _, _, fast in pairs)


@pytest.fixture(scope="module")
def triples() -> list[tuple[float, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """(time, official, fast in colour, fast in grey, by polygons in grey) frames of one lap, with instruments."""
    colour, grey = (FastCarRacing(observation=kind, instruments=True) for kind in ("rgb", "grey"))
    for world in (colour, grey):
        world.drawing = False
        world.reset(seed=1_000_004)
    driver, found, choice = PurePursuit(), [], 0
    driver.reset(colour)
    for frame in range(160):
        if frame % 4 == 0:
            choice = driver.act().choice or 0
        for world in (colour, grey):
            world.step(choice)
        if frame % 16 == 0:
            official: Any = car_racing.CarRacing._render(colour, "state_pixels")
            twin = grey.view_by_polygons()
            found.append((colour.t, np.ascontiguousarray(official), colour.picture(), grey.picture(), twin))
    return found


def apart(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one.astype(int) - other).mean())


def test_colours_differ_by_less_than_a_level_in_every_channel(triples: list) -> None:
    for channel in range(3):
        found = [apart(official[:84, :, channel], rgb[:84, :, channel]) for _, official, rgb, *_ in triples]
        assert np.mean(found) < 0.7 and np.max(found) < 1.5


def test_grey_at_full_size_differs_by_less_than_a_level(triples: list) -> None:
    found = [apart(cv2.cvtColor(official, cv2.COLOR_RGB2GRAY), grey[:, :, 0]) for _, official, _, grey, _ in triples]
    assert np.mean(found) < 0.6 and np.max(found) < 1.0


def test_instruments_show_what_the_official_ones_do(triples: list) -> None:
    found = [apart(official[84:], rgb[84:]) for _, official, rgb, *_ in triples]
    assert np.mean(found) < 0.2 and np.max(found) < 0.4
    without = [apart(official[84:], 0 * rgb[84:]) for _, official, rgb, *_ in triples]
    assert np.mean(without) > 3
    shifted = [apart(official[84:], np.roll(rgb[84:], 1, axis=1)) for _, official, rgb, *_ in triples]
    assert np.mean(shifted) > 1


def test_the_car_looks_alike_in_colour(triples: list) -> None:
    late = [(official, rgb) for t, official, rgb, *_ in triples if t > 1]
    assert np.mean([apart(official[65:80, 43:53], rgb[65:80, 43:53]) for official, rgb in late]) < 6
    assert np.mean([apart(official[65:80, 43:53], np.full((15, 10, 3), 100)) for official, _ in late]) > 12


def test_one_warp_and_a_picture_of_the_car_show_what_polygons_at_twice_the_size_do(triples: list) -> None:
    found = [apart(grey[:84], twin) for t, _, _, grey, twin in triples if t > 1]
    assert np.mean(found) < 0.6 and np.max(found) < 1.0


@pytest.mark.parametrize("renderer", ["official", "fast"])
def test_observations_have_the_channels_that_were_asked_for(renderer: Any) -> None:
    shapes = {None: 3, "rgb": 3, "grey": 1}
    for observation, channels in shapes.items():
        env = gymnasium.make("nacdrive/CarRacing-v0", renderer=renderer, observation=observation, instruments=False)
        frame, _ = env.reset(seed=1)
        assert frame.shape == (96, 96, channels) and frame in env.observation_space
        assert not frame[84:].any() and frame[:84].any()
        assert env.render().shape == (96, 96, 3)
        env.close()


@pytest.mark.parametrize(("observation", "instruments"), [("rgb", True), ("grey", False)])
def test_what_is_drawn_changes_no_reward(observation: Any, instruments: bool) -> None:
    ours = make_carracing(renderer="fast", repeat=2, observation=observation, instruments=instruments)
    plain = make_carracing(renderer="fast", repeat=2)
    for env in (ours, plain):
        env.reset(seed=6)
    for choice in np.random.default_rng(6).integers(0, 5, 60).tolist():
        one, other = ours.step(choice), plain.step(choice)
        assert one[1:4] == other[1:4] and one[4] == other[4]


def test_an_action_that_there_is_not_is_refused_as_gymnasium_does() -> None:
    world = FastCarRacing()
    world.reset(seed=1)
    with pytest.raises(gymnasium.error.InvalidAction):
        world.step(5)


def test_the_score_is_drawn_whether_or_not_another_has_quit_pygame() -> None:
    score_picture.cache_clear()
    before = [score_picture(text, rgb=True) for text in ("-001", "0023")]
    # As gymnasium's own environment does when its window is closed.
    pygame.quit()
    score_picture.cache_clear()
    assert np.array_equal(before, [score_picture(text, rgb=True) for text in ("-001", "0023")])
