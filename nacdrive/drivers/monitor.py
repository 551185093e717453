"""A warning before it fails: says of each decision of a policy how likely it is to leave the road soon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.drivers.base import DriverWrapper
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.drivers.tick import WARN
from nacdrive.envs.base import DrivingEnv, Frame, Info

if TYPE_CHECKING:
    from nacdrive.models.failure import FailurePredictor
    from nacdrive.models.policy import Policy

MonitorUse = Literal["off", "show", "slow"]
"""Whether there is a monitor, and whether it may slow the car."""
WARNING = "may leave the road"
"""How the event of a warning begins."""
QUIET_S = 1.0
"""An event is over when the risk has been below the threshold for so long: then there may be another warning."""


class Monitor(DriverWrapper):
    """Tells the risk of each decision, and says once per event that the car may leave the road.

    It changes no decision. The risk is in 0 .. 1, and 0.5 is where it warns: see ``FailurePredictor``.

    Args:
        driver: The policy at work.
        predictor: Fitted to that policy.
    """

    def __init__(self, driver: PolicyDriver, predictor: FailurePredictor) -> None:
        from nacdrive.models.failure import RiskMeter

        super().__init__(driver)
        self._policy: Policy = driver.policy  # type: ignore[assignment]
        self._meter = RiskMeter(predictor)
        self._risk: float | None = None
        self._risky_s: float | None = None
        self._events: list[str] = []

    def reset(self, env: DrivingEnv) -> None:
        """Forget the episode before."""
        super().reset(env)
        self._meter.reset()
        self._risk = self._risky_s = None
        self._events.clear()

    def act(self, frame: Frame, info: Info) -> Action:
        """The policy's decision; its risk is in ``risk``. A decision that is held keeps the risk that it had."""
        action = self.driver.act(frame, info)
        if not self.held:
            t_s, taken_s = float(info["t_s"]), float(info.get("frame_t_s", info["t_s"]))
            risk = self._meter(self._policy, action.steering, t_s, info.get("speed_mps") or 0.0, t_s - taken_s)
            self._risk = risk
            self._warn(risk, t_s)
        return action

    @property
    def risk(self) -> float | None:
        """Of the last decision, 0 .. 1; None before the first."""
        return self._risk

    def take_events(self) -> tuple[str, ...]:
        """What there is to say since the last decision."""
        events = (*self._events, *super().take_events())
        self._events.clear()
        return events

    def _warn(self, risk: float, t_s: float) -> None:
        if risk < WARN:
            return
        if self._risky_s is None or t_s - self._risky_s > QUIET_S:
            self._events.append(f"{WARNING} (risk {risk:.2f})")
        self._risky_s = t_s


def monitor_file(model: Path) -> Path:
    """Where the monitor of a model file is kept: beside it."""
    return model.with_suffix(".monitor")


def is_warning(event: str) -> bool:
    """Whether an event of a Tick is a monitor's warning."""
    return event.startswith(WARNING)


def with_monitor(driver: PolicyDriver, model: Path, use: MonitorUse | None) -> PolicyDriver | Monitor:
    """``driver`` with the monitor of its model file; itself where none is wanted.

    Args:
        driver: The policy at work.
        model: Its file.
        use: What is asked for; None is off.

    Raises:
        UserError: if a monitor is asked for and there is none for this policy.
    """
    if use in (None, "off"):
        return driver
    from nacdrive.drivers.exported import ExportedPolicy

    policy = driver.policy
    if isinstance(policy, ExportedPolicy):
        raise UserError(f"{model} is an exported policy, whose inside no monitor sees: give the .pt.")
    from nacdrive.models.failure import load_monitor

    path = monitor_file(model)
    if not path.is_file():
        raise UserError(
            f"{model.name} has no monitor ({path.name} beside it): fit one with 'nacdrive monitor', or leave "
            "--monitor out."
        )
    return Monitor(driver, load_monitor(path, policy))
