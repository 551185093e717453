"""Who decides: policies, experts, pure pursuit, a person, and the wrappers around them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError, in_a_sentence, unknown_name
from nacdrive.common.files import file_checksum
from nacdrive.common.paths import expand_home, shipped
from nacdrive.common.plugins import Registry
from nacdrive.drivers.base import Driver, DriverWrapper, PolicyFailureError
from nacdrive.envs.base import DrivingEnv, Frame, Info

SHIPPED = {"ppo": "carracing/ppo/ppo.pt", "continuous": "carracing/continuous/continuous.pt"}
"""Trained experts of CarRacing by name: one that chooses among five actions, and one with steering and pedal."""
DRIVERS: Registry[Any] = Registry(
    "driver",
    "nacdrive.drivers",
    {
        "constant": "nacdrive.drivers.constant:Constant",
        "geometric": "nacdrive.drivers.pure_pursuit:PurePursuit",
        "ppo-rescued": "nacdrive.drivers.predictive:ppo_rescued",
        "predictive": "nacdrive.drivers.predictive:Predictive",
        "racing-line": "nacdrive.drivers.racing_line:RacingLine",
    },
)
"""Drivers by name: classes or functions that are called without arguments and give a ``Driver``."""
_STEERS = "{} has continuous actions, and a teacher chooses among the five: give another expert."


def load_driver(name: str) -> NamedDriver:
    """A driver of its own: a registered name, one of an installed package, or ``module:MyDriver``; ``UserError`` if it
    cannot be made without arguments, or lacks ``reset`` and ``act``.
    """
    factory = DRIVERS.load(name)
    with in_a_sentence(f"the driver '{name}' cannot be made (", ")."):
        driver = factory() if callable(factory) else factory
    for method, arguments in (("reset", ("env",)), ("act", ("frame", "info"))):
        function = getattr(driver, method, None)
        if not callable(function) or len(inspect.signature(function).parameters) < len(arguments):
            what = f"the driver '{name}' has no {method}({', '.join(arguments)})"
            raise UserError(f"{what}: see docs/extend.md for what a driver needs.")
    if not getattr(driver, "name", ""):
        driver.name = name.rpartition(":")[2]
    return NamedDriver(driver, name)


class NamedDriver(DriverWrapper):
    """A driver that was loaded by its ``reference``; whatever goes wrong in it becomes a sentence that has that."""

    def __init__(self, driver: Any, reference: str) -> None:
        super().__init__(driver)
        self.reference = reference
        self.module = type(driver).__module__

    def reset(self, env: DrivingEnv) -> None:
        self._call(self.driver.reset, env)

    def act(self, frame: Frame, info: Info) -> Action:
        action = self._call(self.driver.act, frame, info)
        if not isinstance(action, Action):
            gave = type(action).__name__
            raise PolicyFailureError(f"the driver '{self.reference}' gave {gave} instead of an Action")
        return action

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        with in_a_sentence(f"the driver '{self.reference}' failed: ", kind=PolicyFailureError):
            return method(*arguments)


def driver_checksum(driver: str) -> str | None:
    """SHA-256 of a trained driver's file, or of the module of a user's own; None for those of nacdrive itself."""
    path = expert_file(driver)
    if not path.is_file() and ":" in driver:
        path = Path(getattr(sys.modules.get(load_driver(driver).module), "__file__", None) or "")
    return file_checksum(path) if path.is_file() else None


def expert_file(path_or_name: str | Path) -> Path:
    """File of a trained expert: the shipped one for its name (``SHIPPED``), if no file has that name."""
    path = expand_home(path_or_name)
    if str(path_or_name) in SHIPPED and not path.is_file():
        return shipped("agents") / SHIPPED[str(path_or_name)]
    return path


def load_expert(path_or_name: str | Path = "ppo", *, device: str = "cpu", discrete_only: bool = True) -> Driver:
    """An expert: ``ppo`` or ``continuous`` (the shipped ones of CarRacing), ``geometric`` (pure pursuit on the known
    track), ``racing-line`` (the same with steering and pedals, CarRacing alone), ``predictive`` (along that line with
    five actions), ``ppo-rescued`` (``ppo``, and that one where it is lost), the file of an exported PPO policy, or any
    driver that ``load_driver`` knows; ``UserError`` for any other.

    With ``discrete_only`` a driver of CarRacing with continuous actions is refused: pupils choose among five.
    """
    name, path = str(path_or_name), expert_file(path_or_name)
    if name not in SHIPPED and not path.is_file():
        if ":" in name or name in DRIVERS:
            driver = load_driver(name)
            if discrete_only and driver.needs.continuous:
                raise UserError(_STEERS.format(name))
            return driver.driver if DRIVERS.is_builtin(name) else driver
        if path.suffix or len(path.parts) > 1:
            names = ", ".join((*SHIPPED, *DRIVERS.names()))
            raise UserError(f"there is no expert at {path}: check the path, or name one of {names}.")
        raise unknown_name("expert", name, (*SHIPPED, *DRIVERS.names()))
    from nacdrive.drivers.ppo import PpoExpert

    expert = PpoExpert.load(path, device)
    expert.name = name if name in SHIPPED else path.name
    if expert.continuous and discrete_only:
        raise UserError(_STEERS.format(path))
    return expert
