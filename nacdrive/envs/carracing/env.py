"""CarRacing-v3 as nacdrive drives it: five actions held for several frames, the last of them drawn."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.envs.box2d.car_racing import TRACK_WIDTH
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError, check_known, unknown_name
from nacdrive.envs.base import DrivingEnv, Frame, Keys
from nacdrive.envs.carracing.fast_renderer import FastCarRacing
from nacdrive.envs.carracing.lazy import FPS, LazyCarRacing
from nacdrive.envs.carracing.tyres import FULL_LOCK, GAS_AT_LIMIT, GAS_FROM, WHEEL_RADIUS, WHEELBASE
from nacdrive.envs.start import LAP_RULES, MIDDLE, LapRule, Start

ACTIONS = ("nothing", "right", "left", "gas", "brake")
RENDERERS: dict[str, type[LazyCarRacing]] = {"official": LazyCarRacing, "fast": FastCarRacing}
OBSERVATIONS: dict[str, Literal["rgb", "grey"]] = {
    "rgb": "rgb", "color": "rgb", "colour": "rgb", "grey": "grey", "gray": "grey",
}  # fmt: skip
# The five choices in nacdrive's units (right is positive). The environment itself steers at 0.6 and gives a fifth of
# the gas, which is the most that a driver with five actions can ask for: hence 1.
STEERING, THROTTLE, BRAKE = (0.0, 1.0, -1.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 0.0, 0.8)

KEY_TURN = 3.0
"""Radians a second that a held key turns the car by, at most."""
KEY_GRIP = 0.3
"""Share of the driven wheels' friction that a held key uses for gas."""
KEY_BRAKE, KEY_RATE = 0.15, 5.0
REACH = 20
"""Tiles to each side of the last one among which the nearest is looked for: some 70 m, ten times what a car goes
between two decisions, and less than lies between two stretches of road that pass each other."""


def to_action(choice: int, logits: NDArray[np.float32] | None = None) -> Action:
    """The environment's discrete ``choice`` in nacdrive's units: steering right is positive, gas 1.0, brake 0.8."""
    choice = int(choice)
    if not 0 <= choice < len(ACTIONS):
        raise UserError(f"{choice} is no action of CarRacing: give 0 to {len(ACTIONS) - 1}.")
    return Action(STEERING[choice], THROTTLE[choice], BRAKE[choice], choice, logits)


class Station:
    """Follows a car along a closed ``line``, [N, 2] places in the order in which they are driven, and counts metres."""

    def __init__(self, line: NDArray[np.float64]) -> None:
        self._line = line
        self._along = np.roll(line, -1, axis=0) - line
        self._lengths = np.hypot(*self._along.T)
        self._starts = np.concatenate(([0.0], np.cumsum(self._lengths)))
        self.length_m = float(self._starts[-1])
        self._index: int | None = None
        self._place = self._driven = 0.0

    def follow(self, x: float, y: float) -> float:
        """The car is at (``x``, ``y``): metres along the line since the first call; the first looks everywhere."""
        count = len(self._line)
        near = np.arange(count) if self._index is None else (self._index + np.arange(-REACH, REACH + 1)) % count
        away = np.array((x, y)) - self._line[near]
        # The nearest point of each piece of the line, not its nearest corner: else the count would go in steps.
        share = np.clip((away * self._along[near]).sum(axis=1) / self._lengths[near] ** 2, 0.0, 1.0)
        best = int(((away - share[:, None] * self._along[near]) ** 2).sum(axis=1).argmin())
        first, self._index = self._index is None, int(near[best])
        place = float(self._starts[self._index] + share[best] * self._lengths[self._index])
        if not first:
            half = self.length_m / 2
            self._driven += (place - self._place + half) % self.length_m - half
        self._place = place
        return self._driven


class CarRacingEnv(DrivingEnv):
    """CarRacing-v3 that draws only what is looked at; cheap to build, without global state, needs no display.

    Returns are those of ``gymnasium.make("CarRacing-v3", continuous=False)`` with the same actions (tested).
    Observations: uint8 [96, 96, 3], or [96, 96, 1] in grey; the official pixels, or those of the fast renderer, which
    differ from them by less than a level in 255 on average. Metres are the simulator's units of length.

    Args:
        renderer: ``official`` pixels (about 5 ms a frame) or ``fast`` grey ones (0.1 ms, see ``FastCarRacing``).
        repeat: Frames of 0.02 s for which an action is held; only the last one is drawn.
        max_frames: Frames after which the episode is truncated; 1000 is the official limit.
        continuous: The official continuous actions (steering, gas, brake) instead of the five choices.
        rule: When a lap is finished: ``gymnasium-1.4``, or ``all-tiles-95``; see ``nacdrive.envs.carracing.lazy``.
        observation: ``rgb``; ``grey`` [96, 96, 1]; or other spellings of them; if not given, colours with the official
            renderer, and grey in three equal channels with the fast one.
        instruments: Whether rows 84 to 95 show them; if not given, with the official renderer alone.
        render_mode: None or ``rgb_array``; ``render`` gives the last frame with either.
        start: Where and how fast the car begins; ``options`` of ``reset`` may say so too.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": FPS}
    name = "carracing"

    def __init__(
        self,
        *,
        renderer: Literal["official", "fast"] = "official",
        repeat: int = 4,
        max_frames: int = 1000,
        continuous: bool = False,
        rule: LapRule = LAP_RULES[0],
        observation: Literal["rgb", "color", "colour", "grey", "gray"] | None = None,
        instruments: bool | None = None,
        render_mode: str | None = "rgb_array",
        start: Start = MIDDLE,
    ) -> None:
        check_known("renderer", renderer, RENDERERS)
        if repeat < 1 or max_frames < 1:
            raise UserError(f"repeat ({repeat}) and max_frames ({max_frames}) must be at least 1.")
        if observation is not None and observation not in OBSERVATIONS:
            raise unknown_name("observation", observation, OBSERVATIONS)
        seen = None if observation is None else OBSERVATIONS[observation]
        if render_mode not in (None, "rgb_array"):
            raise unknown_name("render mode", render_mode, ("rgb_array",))
        self.world = RENDERERS[renderer](continuous=continuous, rule=rule, observation=seen, instruments=instruments)
        self.repeat, self.max_frames, self.render_mode = repeat, max_frames, render_mode
        self.start = start.place
        self.actions = () if continuous else ACTIONS
        self.step_s = repeat / FPS
        self.metadata = {**self.metadata, "render_fps": 1 / self.step_s}
        self.action_space: spaces.Space[Any] = self.world.action_space
        self.observation_space = spaces.Box(0, 255, (96, 96, 1 if seen == "grey" else 3), np.uint8)
        self.frame = 0
        self._picture: Frame | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, dict[str, Any]]:
        """Start the lap of ``seed``; ``options`` may hold arguments of ``LazyCarRacing.place`` for another start."""
        super(DrivingEnv, self).reset(seed=seed)
        self.frame = 0
        self.world.drawing = True
        self._picture, _ = self.world.reset(seed=seed, options={**self.start, **(options or {})})
        # The middle of the road: the tiles' places in the order in which they are driven.
        self._line = np.array([tile[2:4] for tile in self.world.track])
        self._station = Station(self._line)
        self._off_road = False
        return self._picture, self._info(self.world.grass_share(), finished=False)

    def _step(self, action: Any) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        if self._picture is None:
            raise UserError("the lap has not begun: call reset() before step().")
        given = np.asarray(action) if self.world.continuous else int(action)
        rewards: list[float] = []
        grass = 0.0
        terminated = truncated = finished = False
        while len(rewards) < self.repeat and not terminated and not truncated:
            self.frame += 1
            truncated = self.frame >= self.max_frames
            self.world.drawing = truncated or len(rewards) == self.repeat - 1
            drawn, reward, terminated, _, details = self.world.step(given)
            finished = details.get("lap_finished", False)
            grass += self.world.grass_share()
            rewards.append(float(reward))
        self._picture = drawn if self.world.drawing else self.world.picture()
        info = self._info(grass / len(rewards), finished)
        if terminated or truncated:
            info["ended"] = "lap finished" if finished else "left the field" if terminated else "time is up"
        return self._picture, sum(rewards), terminated, truncated, info

    def native_action(self, action: Action) -> Any:
        """The choice, or float32 [steering, gas, brake]."""
        if self.actions:
            return super().native_action(action)
        return np.array([action.steering, action.throttle, action.brake], dtype=np.float32)

    def action_of(self, choice: int, logits: NDArray[np.float32] | None = None) -> Action:
        return to_action(choice, logits)

    def metrics(self) -> dict[str, float]:
        """``finished_lap``: 0 or 1."""
        return {"finished_lap": float(self._finished)}

    def episode_meta(self) -> dict[str, Any]:
        rule = {"rule": self.world.rule} if self.world.rule != LAP_RULES[0] else {}
        return {"finished_lap": self._finished, "tiles_visited": self._tiles_visited(), **rule}

    def road_features(self) -> dict[str, float | str]:
        directions = np.array([tile[1] for tile in self.world.track])
        turns = (np.diff(directions, append=directions[0]) + np.pi) % (2 * np.pi) - np.pi
        lap_m = self._station.length_m
        # Radii are nearly the same on all tracks; how long such a bend goes on is not.
        tiles = round(50 * len(turns) / lap_m)
        turned = np.convolve(np.r_[turns, turns[: tiles - 1]], np.ones(tiles), "valid")
        return {
            "most turning within 50 m, degrees": round(math.degrees(np.abs(turned).max())),
            "length of the lap, m": round(lap_m),
        }

    def road_edges(self) -> NDArray[np.float64]:
        across = np.array([(math.cos(tile[1]), math.sin(tile[1])) for tile in self.world.track])
        return np.stack([self._line - TRACK_WIDTH * across, self._line + TRACK_WIDTH * across])

    def render(self) -> Frame:
        if self._picture is None:
            raise UserError("there is nothing to render: call reset() first.")
        return self._picture if self._picture.shape[2] == 3 else np.repeat(self._picture, 3, axis=2)

    def close(self) -> None:
        self.world.close()  # type: ignore[no-untyped-call]

    @property
    def keys(self) -> Keys:
        """Within what the tyres hold: with more of it the car turns round before a person has seen that it does."""
        speed = max(self.world.speed(), 1.0)
        throttle = KEY_GRIP * GAS_AT_LIMIT * (speed / WHEEL_RADIUS + GAS_FROM)
        return Keys(min(FULL_LOCK, KEY_TURN * WHEELBASE / speed), min(1.0, throttle), KEY_BRAKE, KEY_RATE)

    def _tiles_visited(self) -> float:
        return float(self.world.tile_visited_count / len(self.world.track))

    def _info(self, grass: float, finished: bool) -> dict[str, Any]:
        hull, tiles = self.world.car.hull, self._tiles_visited()
        left_road = grass >= 1 and not self._off_road
        self._off_road, self._finished = grass >= 1, bool(finished)
        x, y = hull.position
        return {
            "t_s": self.frame / FPS,
            "speed_mps": self.world.speed(),
            "progress": tiles,
            "laps": int(finished),
            "wheels_off": grass,
            "off_road": self._off_road,
            "lane_offset_m": self._lane_offset(x, y),
            "station_m": self._station.follow(x, y),
            "x_m": float(x),
            "y_m": float(y),
            # The car points along its own +y axis.
            "heading_rad": float(hull.angle) + math.pi / 2,
            "events": ("off road",) if left_road and self.frame else (),
        }

    def _lane_offset(self, x: float, y: float) -> float:
        away = np.array((x, y)) - self._line
        index = int((away**2).sum(axis=1).argmin())
        east, north = self._line[(index + 1) % len(self._line)] - self._line[index - 1]
        return float((away[index, 0] * north - away[index, 1] * east) / math.hypot(east, north))


make_carracing = CarRacingEnv
"""The environment, under the name that says so beside ``make_udacity_track``."""
