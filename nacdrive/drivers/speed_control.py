"""Keeps a car at a speed: a PI controller on throttle and brake."""

from __future__ import annotations

KP = 0.35
"""Throttle per m/s of missing speed: 3 m/s below the target is full throttle."""
KI = 0.1
"""Throttle per m/s and second."""
BRAKE = 0.08
"""Brake per m/s of excess beyond the margin; the Udacity car's brakes lock the wheels from about 0.05 on."""
MARGIN_MPS = 0.7
"""Excess that coasting takes care of."""
LONGEST_STEP_S = 0.2


class SpeedController:
    """Throttle and brake that keep a speed, uphill and downhill.

    Args:
        target_mps: Speed to keep, metres per second.
        bend: Share of the target that is taken off at full steering; 0 keeps it in bends too.
    """

    def __init__(self, target_mps: float, bend: float = 0.5) -> None:
        self.target_mps, self.bend = target_mps, bend
        self.reset()

    def reset(self) -> None:
        """Forget what was driven before."""
        self._integral = 0.0
        self._t_s: float | None = None

    def pedals(self, speed_mps: float, t_s: float, steering: float = 0.0) -> tuple[float, float]:
        """Throttle and brake, each 0 .. 1, at the time ``t_s``; ``steering`` (-1 .. 1) tells of a bend."""
        error = self.target_mps * (1 - self.bend * min(1.0, abs(steering))) - speed_mps
        step_s = 0.0 if self._t_s is None else min(max(t_s - self._t_s, 0.0), LONGEST_STEP_S)
        self._t_s = t_s
        wanted = KP * error + self._integral
        # Anti-windup: what cannot be carried out is not added up.
        if 0.0 < wanted < 1.0 or (wanted >= 1.0) == (error < 0):
            self._integral = min(1.0, max(-1.0, self._integral + KI * error * step_s))
        excess = -error - MARGIN_MPS
        return min(1.0, max(0.0, wanted)), min(1.0, max(0.0, BRAKE * excess)) if wanted <= 0 else 0.0
