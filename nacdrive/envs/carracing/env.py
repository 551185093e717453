"""CarRacing-v3 as nacdrive drives it: five actions held for several frames, the last of them drawn."""

from __future__ import annotations

from typing import Any, Literal, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError, unknown_name
from nacdrive.envs.carracing.fast_renderer import FastCarRacing
from nacdrive.envs.carracing.lazy import FPS, LazyCarRacing

ACTIONS = ("nothing", "right", "left", "gas", "brake")
RENDERERS: dict[str, type[LazyCarRacing]] = {"official": LazyCarRacing, "fast": FastCarRacing}
Renderer = Literal["official", "fast"]
# The five choices in nacdrive's units (right is positive). The environment itself steers at 0.6 and gives a fifth of
# the gas, which is the most that a driver with five actions can ask for: hence 1.
STEERING, THROTTLE, BRAKE = (0.0, 1.0, -1.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 0.0, 0.8)


def to_action(choice: int, logits: NDArray[np.float32] | None = None) -> Action:
    """The environment's discrete ``choice`` in nacdrive's units: steering right is positive, gas 1.0, brake 0.8."""
    choice = int(choice)
    if not 0 <= choice < len(ACTIONS):
        raise UserError(f"{choice} is no action of CarRacing: give 0 to {len(ACTIONS) - 1}.")
    return Action(STEERING[choice], THROTTLE[choice], BRAKE[choice], choice, logits)


class CarRacingSteps(gymnasium.Env[NDArray[np.uint8], Any]):
    """CarRacing-v3 (five actions, every action held for ``repeat`` frames) that draws only what is looked at.

    Returns are those of ``gymnasium.make("CarRacing-v3", continuous=False)`` with the same actions (tested).
    Observations: uint8 [96, 96, 3]; the official pixels, or with the fast renderer a grey picture in three equal
    channels, whose instruments (rows 84 to 95) are black.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": FPS}
    render_mode = "rgb_array"

    def __init__(self, world: LazyCarRacing, *, repeat: int, max_frames: int, every_frame: bool) -> None:
        self.world, self.repeat, self.max_frames, self.every_frame = world, repeat, max_frames, every_frame
        self.action_space: spaces.Space[Any] = (
            spaces.Box(-1, 1, (3,), np.float32) if world.continuous else spaces.Discrete(len(ACTIONS))
        )
        self.observation_space = spaces.Box(0, 255, (96, 96, 3), np.uint8)
        self.frame = 0
        self._picture: NDArray[np.uint8] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start the lap of ``seed``; returns the first frame and the same keys of ``info`` as ``step``."""
        super().reset(seed=seed)
        self.frame = 0
        self.world.drawing = True
        self._picture, _ = self.world.reset(seed=seed, options=options)
        info = self._info(self.world.grass_share(), finished=False)
        if self.every_frame:
            info |= {"frames": [self._picture], "frame_times_s": [0.0], "frame_rewards": [0.0]}
        return self._picture, info

    def step(self, action: Any) -> tuple[NDArray[np.uint8], SupportsFloat, bool, bool, dict[str, Any]]:
        """Hold ``action`` for ``repeat`` frames, fewer where the episode ends.

        Returns the last frame, the sum of the rewards, and in ``info``: ``t_s``, ``speed_mps``, ``frame``,
        ``tiles_visited``, ``wheels_on_grass`` (mean over the frames), ``finished_lap``; with ``every_frame`` also
        ``frames``, ``frame_times_s`` and ``frame_rewards``.
        """
        if self._picture is None:
            raise UserError("the lap has not begun: call reset() before step().")
        given = np.asarray(action) if self.world.continuous else int(action)
        frames: list[NDArray[np.uint8]] = []
        times: list[float] = []
        rewards: list[float] = []
        grass = 0.0
        terminated = truncated = finished = False
        picture: NDArray[np.uint8] | None = None
        while len(rewards) < self.repeat and not terminated and not truncated:
            self.frame += 1
            truncated = self.frame >= self.max_frames
            self.world.drawing = self.every_frame or truncated or len(rewards) == self.repeat - 1
            drawn, reward, terminated, _, details = self.world.step(given)
            finished = details.get("lap_finished", False)
            grass += self.world.grass_share()
            rewards.append(float(reward))
            times.append(self.frame / FPS)
            if self.world.drawing:
                picture = drawn
                frames.append(drawn)
        if picture is None:
            picture = self.world.picture()
        self._picture = picture
        info = self._info(grass / len(rewards), finished)
        if self.every_frame:
            info |= {"frames": frames, "frame_times_s": times, "frame_rewards": rewards}
        return picture, sum(rewards), terminated, truncated, info

    def render(self) -> NDArray[np.uint8]:
        """The last frame, uint8 [96, 96, 3]."""
        if self._picture is None:
            raise UserError("there is nothing to render: call reset() first.")
        return self._picture

    def large_picture(self) -> NDArray[np.uint8]:
        """The scene in the official renderer's large size, uint8 [400, 600, 3], for videos (5 ms)."""
        picture: NDArray[np.uint8] = LazyCarRacing._render(self.world, "rgb_array")
        return np.ascontiguousarray(picture)

    def close(self) -> None:
        """Free the simulator."""
        self.world.close()  # type: ignore[no-untyped-call]

    def _info(self, grass: float, finished: bool) -> dict[str, Any]:
        return {
            "t_s": self.frame / FPS,
            "speed_mps": self.world.speed(),
            "frame": self.frame,
            "tiles_visited": self.world.tile_visited_count / len(self.world.track),
            "wheels_on_grass": grass,
            "finished_lap": finished,
        }


def make_carracing(
    *,
    renderer: Renderer = "official",
    repeat: int = 4,
    max_frames: int = 1000,
    every_frame: bool = False,
    continuous: bool = False,
) -> CarRacingSteps:
    """A CarRacing-v3 environment; cheap to build, without global state, needs no display.

    Args:
        renderer: ``official`` pixels (about 5 ms a frame) or ``fast`` grey ones (0.1 ms, see ``FastCarRacing``).
        repeat: Frames for which an action is held; only the last one is drawn.
        max_frames: Frames after which the episode is truncated; 1000 is the official limit.
        every_frame: Draw all frames and hand them out in ``info``.
        continuous: The official continuous actions (steering, gas, brake) instead of the five choices.
    """
    if renderer not in RENDERERS:
        raise unknown_name("renderer", renderer, RENDERERS)
    if repeat < 1 or max_frames < 1:
        raise UserError(f"repeat ({repeat}) and max_frames ({max_frames}) must be at least 1.")
    world = RENDERERS[renderer](continuous=continuous)
    return CarRacingSteps(world, repeat=repeat, max_frames=max_frames, every_frame=every_frame)
