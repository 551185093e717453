"""The one place that checks numbers and texts of a config, whatever its class."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from nacdrive.common.errors import UserError

LARGEST = 2**31 - 1
"""No number may be larger: simulators and random generators take no larger seeds, and nothing else needs it."""
LIMITS: dict[str, tuple[float, float]] = {
    "port": (0, 65535),
    "page_port": (0, 65535),
    "simulator_port": (1, 65535),
    "workers": (0, 1024),
    "threads": (1, 1024),
    "episodes": (1, LARGEST),
    "frames": (1, 1000),
    "repeat": (1, 10**9),
    "rows": (1, LARGEST),
    "neurons_every": (0, LARGEST),
}
"""What an option of that name may be in every verb, where it is less than every number of its type."""


def check_config(config: Any) -> None:
    """Check every number and text of ``config``, a dataclass, and of the dataclasses in it.

    Numbers must be finite and not beyond ``LARGEST``, whole ones not negative; ``LIMITS`` says more by name. Texts and
    paths must be UTF-8, for they go into files that are. What depends on other options is the config's own matter.

    Raises:
        UserError: for the first value that may not be.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            check_config(value)
        for item in value if isinstance(value, (tuple, list)) else (value,):
            check_value(field.name, item)


def check_value(name: str, value: Any) -> None:
    """Check one value of the option ``name``.

    Raises:
        UserError: if it may not be.
    """
    flag = "--" + name.replace("_", "-")
    if isinstance(value, (str, Path)):
        try:
            str(value).encode()
        except UnicodeEncodeError as error:
            raise UserError(f"{flag} {str(value)!r} is not UTF-8: rename the file or folder.") from error
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{flag} is {value}: give a finite number.")
    lowest, highest = LIMITS.get(name, (0 if isinstance(value, int) else -LARGEST, LARGEST))
    if not lowest <= value <= highest:
        # Python refuses to print an integer of thousands of digits.
        shown = value if abs(value) < 10**30 else "too large"
        raise UserError(f"{flag} is {shown}: give {lowest} to {highest}.")
