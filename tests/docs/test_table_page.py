"""The sentences at the top of the page of all layers are true of its tables."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from nacdrive.common.statistics import paired_difference
from nacdrive.extras.bench.report import read_results
from nacdrive.layers.registry import names

RESULTS = Path(__file__).resolve().parents[2] / "docs/results"
PAGE = (RESULTS / "table.md").read_text(encoding="utf-8")
FIVE = PAGE.split("## In five sentences")[1].split("\n## ")[0]
NUMBERS = {3: "three", 4: "four", 5: "five"}
README = (RESULTS.parents[1] / "README.md").read_text(encoding="utf-8")
# File, task, metric, whether more is better, decimals.
TASKS = (
    *(("rivals", f"synthetic-{name}", "r2", True, 3) for name in ("recall-decay", "decay", "since", "recall")),
    ("physionet2012", "physionet2012", "auroc", True, 3),
    ("uea", "uea", "accuracy", True, 1),
    ("real", "emnist", "accuracy", True, 1),
    ("real", "par", "accuracy", True, 1),
    ("real", "carracing", "accuracy", True, 1),
    ("real", "udacity", "mse", False, 4),
    ("real", "pronostia", "rmse", False, 3),
)


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
    rivals = scores("rivals", "synthetic-recall-decay", "r2")
    for number, one, other in ((1, "nac-key", "nac-key-plain"), (2, "nac-key-plain", "nac-exact")):
        text, verdict, count = difference(rivals, one, other)
        assert count >= 5 and f"`{one}`" in sentence(number) and f"`{other}`" in sentence(number)
        assert re.search(rf"{re.escape(text)} R2 .*\({count} seeds; {verdict}\)", sentence(number)), (text, verdict)
        assert number == 2 or (f"{text} R2" in README and f"over {NUMBERS[count]} seeds: {verdict}" in README)
    text, verdict, count = difference(scores("physionet2012", "physionet2012", "auroc"), "nac-key", "nac-key-plain")
    assert f"{text} AUROC" in sentence(1) and f"{count} folds; {verdict}" in sentence(1)


@pytest.mark.parametrize(("file", "task", "metric", "higher", "digits"), TASKS, ids=lambda value: str(value))
def test_where_a_nac_has_the_best_mean_and_where_it_has_not(
    file: str, task: str, metric: str, higher: bool, digits: int
) -> None:
    means = {model: fmean(values.values()) for model, values in scores(file, task, metric).items()}
    best = (max if higher else min)(means, key=means.__getitem__)
    ours, others = sentence(3), sentence(4)
    name, number = task.removeprefix("synthetic-"), f"{means[best]:.{digits}f}"
    where, elsewhere = (ours, others) if best.startswith("nac") else (others, ours)
    assert re.search(rf"`{best}`[^;]*`{name}`[^;]*\b{number}\b", where), (task, best, number)
    assert f"`{name}`" not in elsewhere


def test_what_was_not_measured() -> None:
    rows = {row["model"] for row in read_results([RESULTS / "table/synthetic.jsonl"])}
    absent = [name for name in names(ablations=True) if name not in rows]
    assert ", ".join(f"`{name}`" for name in absent) in sentence(5), absent
    assert "GPU" in sentence(5)


def test_every_table_is_as_its_trainings_make_it() -> None:
    spec = importlib.util.spec_from_file_location("layer_tables", RESULTS.parents[1] / "tools/layer_tables.py")
    assert spec is not None and spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    filled = list(tables.FILLED.finditer(PAGE))
    assert {match[2] for match in filled} == {path.stem for path in (RESULTS / "table").glob("*.jsonl")} & {
        "rivals", "physionet2012", "uea", "real", "synthetic"
    }  # fmt: skip
    for match in filled:
        assert match[0] == f"{match[1]}{tables.table(*match.groups()[1:4])}{match[5]}", match[1]


def test_the_real_cells_are_at_least_150_and_each_row_has_three() -> None:
    rows = [row for row in read_results([RESULTS / "table/real.jsonl"]) if row["model"] != "references"]
    counts = Counter((row["task"], row["model"]) for row in rows if row["status"] == "done")
    assert sum(counts.values()) >= 150 and min(counts.values()) >= 3


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
