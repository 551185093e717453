from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.box2d import car_racing

from nacdrive.common.errors import UserError
from nacdrive.drivers.racing_line import RacingLine
from nacdrive.envs.carracing.fast_renderer import FastCarRacing
from nacdrive.envs.carracing.lazy import LazyCarRacing
from nacdrive.envs.registry import env_spec
from nacdrive.envs.start import LAP_RULES


class AskedAtEveryContact(car_racing.FrictionDetector):
    """Gymnasium's listener with its question moved out of the branch, as pull request 1670 describes it."""

    def _contact(self, contact: Any, begin: bool) -> None:
        tile = obj = None
        u1, u2 = contact.fixtureA.body.userData, contact.fixtureB.body.userData
        if u1 and "road_friction" in u1.__dict__:
            tile, obj = u1, u2
        if u2 and "road_friction" in u2.__dict__:
            tile, obj = u2, u1
        if not tile:
            return
        tile.color[:] = self.env.road_color
        if not obj or "tiles" not in obj.__dict__:
            return
        if begin:
            obj.tiles.add(tile)
            if not tile.road_visited:
                tile.road_visited = True
                self.env.reward += 1000.0 / len(self.env.track)
                self.env.tile_visited_count += 1
            if tile.idx == 0 and self.env.tile_visited_count / len(self.env.track) > self.lap_complete_percent:
                self.env.new_lap = True
        else:
            obj.tiles.remove(tile)


def lap(world: Any, seed: int, lost: int, frames: int = 1000) -> tuple[list[float], bool]:
    """Rewards of a lap on which ``lost`` tiles count as missed, and whether it was finished."""
    world.reset(seed=seed)
    for tile in world.road[100 : 100 + lost]:
        tile.road_visited = True  # and not counted
    driver = RacingLine()
    driver.reset(world)
    rewards: list[float] = []
    while len(rewards) < frames:
        action = driver.act()
        native = np.array([action.steering, action.throttle, action.brake], dtype=np.float32)
        for _ in range(2):
            _, reward, ended, _, info = world.step(native)
            rewards.append(float(reward))
            if ended:
                return rewards, info["lap_finished"]
    return rewards, False


def world(rule: Any, kind: type[LazyCarRacing] = FastCarRacing) -> LazyCarRacing:
    made = kind(continuous=True, rule=rule)
    made.drawing = False
    return made


def test_a_missed_tile_keeps_the_lap_from_ending_under_gymnasiums_rule_alone() -> None:
    old, new = (lap(world(rule), 1_000_003, lost=1) for rule in LAP_RULES)
    assert not old[1] and len(old[0]) == 1000
    assert new[1] and len(new[0]) < 900
    assert new[0] == old[0][: len(new[0])]  # up to there nothing differs


def test_too_many_missed_tiles_keep_it_from_ending_under_both() -> None:
    assert not lap(world("all-tiles-95"), 1_000_003, lost=20)[1]


def test_a_lap_with_every_tile_is_the_same_under_both() -> None:
    old, new = (lap(world(rule), 1_000_003, lost=0) for rule in LAP_RULES)
    assert old == new and old[1]


@pytest.mark.parametrize("rule", LAP_RULES)
def test_each_rule_ends_the_lap_where_the_reference_does(rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = lap(world(rule), 1_000_007, lost=3)
    if rule == "all-tiles-95":
        monkeypatch.setattr(car_racing, "FrictionDetector", AskedAtEveryContact)
    theirs: Any = gymnasium.make("CarRacing-v3").unwrapped
    theirs._render = lambda mode: None  # drawing has no part in it and takes 98 % of the time
    rewards, finished = lap(theirs, 1_000_007, lost=3)
    assert finished == ours[1] and rewards == pytest.approx(ours[0], abs=1e-9)


def test_an_environment_says_its_rule_where_it_is_not_gymnasiums() -> None:
    for rule, said in zip(LAP_RULES, ({}, {"rule": "all-tiles-95"}), strict=True):
        env = env_spec("carracing").make({"rule": rule, "renderer": "fast"})
        env.reset(seed=1)
        assert {name: value for name, value in env.episode_meta().items() if name == "rule"} == said


def test_an_unknown_rule_is_told_with_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown rule of the lap 'all-tiles': did you mean 'all-tiles-95'"):
        FastCarRacing(rule="all-tiles")  # type: ignore[arg-type]
