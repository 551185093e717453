"""Keeps a car at a speed: a PI controller on throttle and brake, beside whoever steers."""

from __future__ import annotations

import math
from dataclasses import replace

from nacdrive.common.action import Action
from nacdrive.common.units import MPS_PER_MPH
from nacdrive.drivers.base import Driver, DriverLike, DriverWrapper
from nacdrive.envs.base import DrivingEnv, Frame, Info

KP = 0.35
"""Throttle per m/s of missing speed: 3 m/s below the target is full throttle."""
KI = 0.1
"""Throttle per m/s and second."""
BRAKE = 0.08
"""Brake per m/s of excess beyond the margin; the Udacity car's brakes lock the wheels from about 0.05 on."""
MARGIN_MPS = 0.7
"""Excess that coasting takes care of."""
LONGEST_STEP_S = 0.2
BLIND_M = 4.0
"""Metres that a car may go between two decisions: a policy that takes long is driven slowly."""


class SpeedController:
    """Throttle and brake that keep a speed, uphill and downhill, less the share ``bend`` of it at full steering."""

    def __init__(self, target_mps: float, bend: float = 0.5) -> None:
        self.target_mps, self.bend = target_mps, bend
        self.reset()

    def reset(self) -> None:
        self._integral = 0.0
        self._t_s: float | None = None

    def pedals(
        self, speed_mps: float, t_s: float, steering: float = 0.0, limit_mps: float = float("inf")
    ) -> tuple[float, float]:
        """Throttle and brake, each 0 .. 1, at ``t_s``; slower where ``steering`` turns, never above ``limit_mps``."""
        error = min(self.target_mps * (1 - self.bend * min(1.0, abs(steering))), limit_mps) - speed_mps
        step_s = 0.0 if self._t_s is None else min(max(t_s - self._t_s, 0.0), LONGEST_STEP_S)
        self._t_s = t_s
        wanted = KP * error + self._integral
        # Anti-windup: what cannot be carried out is not added up, so that the integral stays within 0 .. 1 too.
        if 0.0 < wanted < 1.0:
            self._integral += KI * error * step_s
        excess = -error - MARGIN_MPS
        return min(1.0, max(0.0, wanted)), min(1.0, max(0.0, BRAKE * excess)) if wanted <= 0 else 0.0


def at_speed(driver: Driver, speed_mph: float | None) -> Driver:
    """``driver`` with a speed kept for it, in miles per hour; None leaves the pedals to it."""
    return driver if speed_mph is None else SpeedControl(driver, SpeedController(speed_mph * MPS_PER_MPH))


class SpeedControl(DriverWrapper):
    """Lets another driver steer and holds the speed; a speed that is unknown counts as 0."""

    def __init__(self, driver: Driver | DriverLike, controller: SpeedController) -> None:
        super().__init__(driver)
        self.controller = controller
        self._realtime, self._decision_s, self._last_s = False, 0.0, math.inf

    def reset(self, env: DrivingEnv) -> None:
        super().reset(env)
        self.controller.reset()
        # Amid a drive too, the first decision comes after none: the time until then is no gap.
        self._realtime, self._decision_s, self._last_s = env.realtime, 0.0, math.inf

    def act(self, frame: Frame, info: Info) -> Action:
        action = self.driver.act(frame, info)
        t_s = float(info["t_s"])
        speed_mps, limit_mps = info.get("speed_mps") or 0.0, self._speed_limit(t_s)
        throttle, brake = self.controller.pedals(speed_mps, t_s, action.steering, limit_mps)
        return replace(action, throttle=throttle, brake=brake)

    def _speed_limit(self, t_s: float) -> float:
        """Where time passes by itself, a driver that decides rarely goes slowly: ``BLIND_M`` between two decisions."""
        gap_s, self._last_s = max(0.0, t_s - self._last_s), t_s
        if not self._realtime:
            return float("inf")
        self._decision_s += 0.2 * (min(gap_s, 5.0) - self._decision_s)
        return BLIND_M / max(self._decision_s, 1e-3)
