"""CarRacing-v3 that draws a frame only when it is asked to: drawing is 98 % of the official environment's time.

When a lap is finished follows the rule of the installed Gymnasium, or the one that was meant:

``gymnasium-1.4``: the car stands on tile 0 when the episode begins, so that tile is visited already, and Gymnasium asks
whether enough of the road was covered only at a tile's first visit. ``lap_complete_percent`` therefore never ends a
lap: it takes every single tile (https://github.com/Farama-Foundation/Gymnasium/issues/1269).

``all-tiles-95``: every contact with tile 0 asks, so that a lap is finished when the car comes back to the start with
more than 95 % of all tiles visited. So does https://github.com/Farama-Foundation/Gymnasium/pull/1670, which was open
when this was written. Rewards of a frame are the same under both rules; only the end of the episode differs.
"""

from __future__ import annotations

import math
import os
from typing import Any, Literal

import Box2D
import cv2
import numpy as np
from numpy.typing import NDArray

# Not SDL_VIDEODRIVER: nothing is shown here, and an environment of a user's may draw nothing where it is "dummy".
os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

from gymnasium.envs.box2d.car_racing import CarRacing, FrictionDetector

from nacdrive.common.errors import check_known
from nacdrive.envs.start import LAP_RULES, LapRule

FPS = 50
PANEL_TOP = 84
"""First row of the instruments."""
BLANK = np.zeros((96, 96, 3), dtype=np.uint8)


class AllTilesDetector(FrictionDetector):
    """Gymnasium's contact listener that judges the lap at every contact with tile 0."""

    def _contact(self, contact: Any, begin: bool) -> None:
        super()._contact(contact, begin)  # type: ignore[no-untyped-call]
        if not begin:
            return
        bodies = contact.fixtureA.body.userData, contact.fixtureB.body.userData
        tile = next((body for body in bodies if body is not None and "road_friction" in body.__dict__), None)
        wheel = any(body is not None and "tiles" in body.__dict__ for body in bodies)
        if tile is None or not wheel or tile.idx != 0:
            return
        if self.env.tile_visited_count / len(self.env.track) > self.lap_complete_percent:
            self.env.new_lap = True


class LazyCarRacing(CarRacing):
    """CarRacing-v3 with five actions whose ``drawing`` can be switched off between the frames that are looked at.

    Every reset starts a fresh Box2D world, so that an episode depends on its seed and its actions and on nothing that
    was driven before it. Arguments are those of ``CarRacingEnv``.
    """

    car: Any
    """Gymnasium's; None before the first ``reset``."""

    def __init__(
        self,
        *,
        continuous: bool = False,
        rule: LapRule = LAP_RULES[0],
        observation: Literal["rgb", "grey"] | None = None,
        instruments: bool | None = None,
    ) -> None:
        check_known("rule of the lap", rule, LAP_RULES)
        super().__init__(continuous=continuous)
        self.drawing, self.rule, self.observation = True, rule, observation
        self.instruments = instruments is not False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start the lap of ``seed`` in a fresh world; ``options`` may hold arguments of ``place``."""
        if self.road:
            self.road = []
            self.car = None
            self.world = Box2D.b2World((0, 0), contactListener=FrictionDetector(self, self.lap_complete_percent))
        frame, info = super().reset(seed=seed, options=options)
        if self.rule == "all-tiles-95":
            # The official reset makes a listener of its own, and its first step visits no tile but the first few.
            detector = AllTilesDetector(self, self.lap_complete_percent)  # type: ignore[no-untyped-call]
            self.world.contactListener_bug_workaround = self.world.contactListener = detector
        place = {name: value for name, value in (options or {}).items() if name in ("offset", "heading", "speed")}
        return (self.place(**place), info) if place else (frame, info)

    def place(self, offset: float = 0.0, heading: float = 0.0, speed: float = 0.0) -> Any:
        """Move the car, which has just been reset, and look: the frame there. Tiles that it stood on count as visited.

        It stands ``offset`` metres to the right of the middle of the road, turned by ``heading`` radians to the right
        of the road's direction, and goes straight ahead at ``speed`` m/s.
        """
        _, along, x, y = self.track[0]
        side, angle = np.array((math.cos(along), math.sin(along))), along - heading
        ahead = np.array((-math.sin(angle), math.cos(angle)))
        turn = np.array(((math.cos(heading), math.sin(heading)), (-math.sin(heading), math.cos(heading))))
        middle = np.array(self.car.hull.position)
        for body in (self.car.hull, *self.car.wheels):
            body.position = (x, y) + offset * side + turn @ (np.array(body.position) - middle)
            body.angle = angle
            body.linearVelocity = speed * ahead
        for wheel in self.car.wheels:
            wheel.omega = speed / wheel.wheel_rad
        # A step without an action finds out on which tiles the wheels stand now; the clock stays as it is.
        frame, *_ = self.step(None)  # type: ignore[arg-type]
        self.t -= 1 / FPS
        return frame

    def grass_share(self) -> float:
        """Share of the four wheels that touch no tile of the road."""
        return sum(not wheel.tiles for wheel in self.car.wheels) / 4

    def speed(self) -> float:
        return float(self.car.hull.linearVelocity.length)

    def _render(self, mode: str) -> Any:
        if mode != "state_pixels":
            return super()._render(mode)
        return self.picture() if self.drawing else BLANK

    def picture(self) -> NDArray[np.uint8]:
        """The frame as it is now, uint8 [96, 96, 3], whether or not ``drawing`` is on."""
        frame = np.ascontiguousarray(super()._render("state_pixels"))
        if not self.instruments:
            frame[PANEL_TOP:] = 0
        if self.observation == "grey":
            frame = np.asarray(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY))[:, :, None]
        return frame
