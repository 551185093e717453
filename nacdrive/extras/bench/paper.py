"""The paper's numbers (its Table 1 and the runtime table of appendix D.4), as it prints them."""

from __future__ import annotations

import csv
import json
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent

_REMARKS = json.loads((HERE / "paper_remarks.json").read_text(encoding="utf-8"))
CONTRADICTIONS: dict[str, str] = _REMARKS["contradictions"]
"""Where the paper's prose disagrees with its table; the table is quoted."""
NOTEBOOK: dict[str, dict[str, float]] = _REMARKS["notebook"]
"""Six means of baselines that the authors' public notebook prints otherwise than the table, task -> model -> mean. The
deviations beside them are the same, and so are its 33 other numbers of baselines; the table is quoted."""


@cache
def rows(name: str) -> dict[str, dict[str, str]]:
    """Rows of a data file beside this one, by model."""
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        return {row["model"]: row for row in csv.DictReader(file)}


def names() -> dict[str, str]:
    """Registered name -> the paper's name, in the order of its table."""
    return {model: row["name"] for model, row in rows("paper_table1.csv").items()}


def printed(task: str, model: str) -> tuple[float, float] | None:
    """Mean and standard deviation of the paper's five folds; None where it has no number."""
    row = rows("paper_table1.csv").get(model, {})
    return (float(row[f"{task}_mean"]), float(row[f"{task}_std"])) if f"{task}_mean" in row else None


ONE_STEP = ("par", "carracing", "pronostia", "xjtu-sy", "hust")
"""Tasks that the paper poses with sequences of one step."""


def remarks(task: str, protocol: str = "sequence") -> list[str]:
    """What a reader must know of the paper's numbers for ``task``: where its prose or its notebook has others."""
    texts = [CONTRADICTIONS[task]] if task in CONTRADICTIONS else []
    if protocol in ("paper", "scripts") and task in ONE_STEP:
        texts.append(
            "At T = 1 a column compares heads, not attention: the softmax over one key is 1, so that NAC is an affine "
            "map of the features and the authors' Attention the identity."
        )
    if others := NOTEBOOK.get(task):
        pairs = ", ".join(
            f"{names()[model]} {mean:.2f} ({table[0]:.2f} in the table)"
            for model, mean in others.items()
            if (table := printed(task, model)) is not None
        )
        texts.append(
            f"The authors' public notebook has other means, with the same deviations: {pairs}. Its other numbers of "
            "baselines are the table's; why these are not is not known, and the table is quoted."
        )
    return texts


def runtime(model: str) -> tuple[float, float] | None:
    """Sequences per second and peak memory in MB on the paper's T4; None where it has no numbers."""
    row = rows("paper_runtime.csv").get(model)
    return (float(row["throughput_per_s"]), float(row["peak_mb"])) if row is not None else None


def in_order(models: list[str]) -> list[str]:
    """Models in the order of the paper's table, those that it does not know behind."""
    order = list(names())
    return sorted(models, key=lambda model: (order.index(model) if model in order else len(order), model))
