"""The sentences at the top of the page of all layers are true of its tables."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean
from typing import Any

from nacdrive.common.statistics import paired_difference
from nacdrive.extras.bench.report import read_results

RESULTS = Path(__file__).resolve().parents[2] / "docs/results"
PAGE = (RESULTS / "table.md").read_text(encoding="utf-8")
FIVE = PAGE.split("## In five sentences")[1].split("\n## ")[0]
METRICS = {"rivals": ("synthetic-recall-decay", "r2"), "physionet2012": ("physionet2012", "auroc")}


def scores(name: str, task: str, metric: str) -> dict[str, dict[tuple[int, int], float]]:
    """Model -> fold and seed -> score."""
    by_model: dict[str, dict[tuple[int, int], float]] = {}
    for row in read_results([RESULTS / f"table/{name}.jsonl"]):
        if metric in row["scores"].get(task, {}):
            by_model.setdefault(row["model"], {})[row["fold"], row["repeat"]] = row["scores"][task][metric]
    return by_model


def difference(of: dict[str, dict[tuple[int, int], float]], one: str, other: str) -> tuple[str, str, int]:
    """A paired difference as the page writes it, whether it is shown, and over how many trainings."""
    shared = sorted(set(of[one]) & set(of[other]))
    result: dict[str, Any] = paired_difference([of[one][b] for b in shared], [of[other][b] for b in shared])
    low, high = result["interval95"]
    verdict = "shown" if low > 0 or high < 0 else "not shown"
    return f"{result['value']:+.3f} [{low:.3f}, {high:.3f}]", verdict, len(shared)


def sentence(number: int) -> str:
    return FIVE.split(f"\n{number}. ")[1].split("\n")[0]


def test_what_the_circuit_and_the_options_add() -> None:
    rivals = scores("rivals", *METRICS["rivals"])
    for number, one, other in ((1, "nac-key", "nac-key-plain"), (2, "nac-key-plain", "nac-exact")):
        text, verdict, count = difference(rivals, one, other)
        assert f"`{one}`" in sentence(number) and f"`{other}`" in sentence(number)
        assert re.search(rf"{re.escape(text)} R2 .*\({count} seeds; {verdict}\)", sentence(number)), (text, verdict)
    # Of a single training nothing is said.
    if len((hospital := scores("physionet2012", *METRICS["physionet2012"]))["nac-key"]) > 1:
        text, verdict, count = difference(hospital, "nac-key", "nac-key-plain")
        assert f"{text} AUROC" in sentence(1) and f"{count} folds; {verdict}" in sentence(1)


def test_where_a_nac_is_the_best_and_where_it_is_not() -> None:
    for name in METRICS:
        means = {model: fmean(values.values()) for model, values in scores(name, *METRICS[name]).items()}
        best = max(means, key=means.__getitem__)
        assert f"`{best}`" in sentence(3) and f"{means[best]:.3f}" in sentence(3), (name, best)
    for task, layer, value in (
        ("synthetic-decay", "contiformer-linear", "0.998"),
        ("synthetic-since", "contiformer-linear", "0.996"),
        ("synthetic-recall", "rela", "0.993"),
    ):
        means = {model: fmean(values.values()) for model, values in scores("synthetic", task, "r2").items()}
        assert max(means, key=means.__getitem__) == layer and f"{means[layer]:.3f}" == value
        assert layer in sentence(4) and value in sentence(4)


def test_every_row_of_the_rivals_stands_in_their_table() -> None:
    for name, digits in (("rivals", 4), ("physionet2012", 3)):
        for model, values in scores(name, *METRICS[name]).items():
            assert f"| {model} | {fmean(values.values()):.{digits}f} |" in PAGE, (name, model)


def test_the_claims_that_are_contradicted_have_the_numbers_of_the_tables() -> None:
    claims = PAGE.split("## Claims of the paper that these tables contradict")[1].split("\n## ")[0]
    for task, models in (
        ("synthetic-recall-decay", ("nac-02s", "nac-exact", "nac-09s")),
        ("synthetic-recall", ("nac-02s", "nac-exact", "nac-09s")),
        ("synthetic-recall-decay", ("nac-2k", "nac-exact", "nac-32k")),
    ):
        means = scores("synthetic", task, "r2")
        assert ", ".join(f"{fmean(means[model].values()):.2f}" for model in models) in claims
    for task in ("synthetic-decay", "synthetic-since"):
        means = scores("synthetic", task, "r2")
        assert " and ".join(f"{fmean(means[f'nac-{mode}'].values()):.3f}" for mode in ("exact", "steady")) in claims
