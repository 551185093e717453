"""The paper's numbers (its Table 1 and the runtime table of appendix D.4), as it prints them."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent

CONTRADICTIONS = {
    "carracing": "The paper's text calls NAC-PW (80.72) the best; its table has mTAN at 80.86. CTA and ODEFormer share "
    "one number, 80.54 ± 0.40.",
    "udacity": "The paper's Table 4 names the metric MAE, its text MSE.",
    "pronostia": "The paper's text calls NAC-Exact (37.75) the best and gives NAC-PW the same number; "
    "its table has NAC-PW at 37.50.",
    "xjtu-sy": "The paper's text calls NAC-phi (29.53) the third best; in its table CT-RNN (26.01), Attention (26.29), "
    "GRU (26.65), NAC-Steady (26.76), mmRNN (27.84), NAC-PW (28.01) and NAC-Euler (28.46) are better.",
}
"""Where the paper's prose disagrees with its table; the table is quoted."""
NOTEBOOK = {
    "pronostia": {"gru-ode": 39.11, "cta": 35.16},
    "xjtu-sy": {"gru": 23.65, "mmrnn": 27.14, "cta": 23.86},
    "hust": {"gru": 31.86},
}
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
