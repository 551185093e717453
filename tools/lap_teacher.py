"""A teacher of CarRacing that is a policy: what ``lap-2.pt`` decides where nothing is wrong with its camera, for pupils
whose camera is bad.

    nacdrive train --first three-2.pt --expert tools.lap_teacher:LapTeacher --dagger 3 --brightness 0.4 ...

What came of it: docs/results/carracing.md.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from nacdrive.common.action import Action
from nacdrive.drivers.base import Needs
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.drivers.racing_line import AtFrameRate, RacingLine, RacingLineParameters
from nacdrive.envs.base import Frame, Info
from nacdrive.models import load_policy

POLICY = Path(__file__).resolve().parents[1] / "docs" / "results" / "carracing_seeds" / "lap-2.pt"
BACK_S = 2.0
"""For so long after the car has left the road it is led by who knows the way back."""
GRIP, TOO_FAST = 204.0, 12.0
"""And where it is so much faster than a plan with that grip allows, m/s: so in 7 of 1,000 decisions the policy is."""


class Plan(RacingLine):
    def excess(self) -> float:
        """How much faster than planned the car is, m/s."""
        hull = self.world.car.hull
        speed = float(hull.linearVelocity.length)
        return speed - self._at_s(self.limits, self._locate(*hull.position) + self.parameters.reaction_s * speed)


class LapTeacher(AtFrameRate):
    """``lap-2.pt``; where the car has left the road or is about to, ``AtFrameRate``, which reads the track."""

    name = "lap-teacher"
    needs = Needs(continuous=True, colours=True, instruments=True, repeat=2)

    def __init__(self) -> None:
        super().__init__()
        self.policy, self.fast = PolicyDriver(load_policy(POLICY)), Plan(RacingLineParameters(grip=GRIP))

    def reset(self, env: Any) -> None:
        super().reset(env)
        self.policy.reset(env)
        self.fast.reset(env)
        self._off_s = -math.inf

    def act(self, frame: Frame | None = None, info: Info | None = None) -> Action:
        assert frame is not None and info is not None
        back, now_s = super().act(frame, info), float(info["t_s"])
        # Its picture is the newest, however late those of the pupil are.
        decided = self.policy.act(frame, {"t_s": now_s})
        if not any(wheel.tiles for wheel in self.world.car.wheels):
            self._off_s = now_s
        is_led = now_s - self._off_s < BACK_S or self.fast.excess() > TOO_FAST
        return back if is_led else decided
