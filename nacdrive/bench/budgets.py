"""How much work a cell of the table may cost. Every number made under a budget is told with its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BudgetName = Literal["smoke", "cpu", "full"]


@dataclass(frozen=True)
class Size:
    """Of one training."""

    epochs: int | None = None
    """Most epochs; None: what the task asks for (paper, Table 4)."""
    most: int | None = None
    """About how many sequences to learn from; None: all."""
    drive: int = 0
    """Tracks driven afterwards in closed loop, for the tasks that have one."""


FOLDS: dict[BudgetName, int] = {"smoke": 1, "cpu": 1, "full": 5}
"""Folds where none are asked for."""

SIZES: dict[BudgetName, dict[str, Size]] = {
    # Only shows that everything runs: numbers made with it say nothing about a layer.
    "smoke": {
        "emnist": Size(1, 320),
        "par": Size(1, 40),
        "carracing": Size(1, 120),
        "udacity": Size(1, 120),
        "pronostia": Size(1, 400),
    },
    # Minutes per cell on one core.
    "cpu": {
        "emnist": Size(8, 8_000),
        "par": Size(10),
        "carracing": Size(4),
        "udacity": Size(4),
        "pronostia": Size(60),
    },
    "full": {
        "emnist": Size(),
        "par": Size(),
        "carracing": Size(drive=20),
        "udacity": Size(drive=5),
        "pronostia": Size(),
    },
}
