from __future__ import annotations

import numpy as np
import pytest

from nacdrive.drivers.ppo_network import downscale
from nacdrive.drivers.pure_pursuit import PurePursuit
from nacdrive.envs.carracing.env import make_carracing


@pytest.fixture(scope="module")
def pairs() -> list[tuple[float, np.ndarray, np.ndarray]]:
    """(time, official, fast) frames of the same two laps, driven well."""
    found = []
    for seed in (1_000_001, 1_000_002):
        official, fast = make_carracing(), make_carracing(renderer="fast")
        frame, info = official.reset(seed=seed)
        other, _ = fast.reset(seed=seed)
        driver = PurePursuit()
        driver.reset(official)
        for step in range(120):
            if step % 4 == 0:
                found.append((info["t_s"], frame, other))
            choice = driver.act(frame, info).choice
            official.world.drawing = step % 4 == 3
            frame, _, _, _, info = official.step(choice)
            other = fast.step(choice)[0]
    return found


def difference(official: np.ndarray, fast: np.ndarray) -> float:
    return float(np.abs(downscale(official).astype(int) - downscale(fast)).mean())


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
