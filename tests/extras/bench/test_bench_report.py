"""What tables say of layers: differences, cost; and runs that stop and go on."""

from __future__ import annotations

import csv
import dataclasses
import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from nacdrive.common.errors import UserError
from nacdrive.common.runs import plain
from nacdrive.extras.bench import cost
from nacdrive.extras.bench.cell import run_cell
from nacdrive.extras.bench.config import PlanConfig, ReportConfig, RobustnessConfig, RunConfig, TableConfig
from nacdrive.extras.bench.cost import costs, text
from nacdrive.extras.bench.grid import compute, finished, plan
from nacdrive.extras.bench.report import NOT_SHOWN, cells, compare, read_results, sections, sentences, write_report
from nacdrive.extras.bench.robustness import find_jobs
from nacdrive.extras.bench.verb import one_table
from nacdrive.tasks import TASKS, load_task
from nacdrive.tasks.base import Size
from nacdrive.tasks.emnist import EMNIST

SIZE = {"epochs": 8, "max_samples": 8000, "max_tests": None, "drive": 0}
ACCURACY = load_task("emnist").metrics_of("emnist")[0]


def row(model: str, score: float, *, fold: int = 0, repeat: int = 0, train_s: float = 10.0, **more: Any) -> Any:
    key = f"emnist/{model}/{fold}" + (f"/{repeat}" if repeat else "")
    return {
        "key": key, "task": "emnist", "model": model, "fold": fold, "repeat": repeat, "asked": ["emnist"],
        "made_up": [], "status": "done", "scores": {"emnist": {ACCURACY.key: score}}, "parameters": 1000,
        "train_s": train_s, "wall_s": train_s + 1, "epochs": 8, "train_sequences": 7000, "peak_mib": 300.0,
        "fit": {"epochs": 8}, "record": {"config": {"protocol": "sequence", "size": SIZE, "folds": 1, "seed": 0}},
    } | more  # fmt: skip


def rows() -> list[Any]:
    """s4 is best by far, mha and lstm cannot be told apart, rnn is slow and bad."""
    found = []
    for repeat, luck in enumerate((-1.0, 0.0, 1.0)):
        found += [
            row("s4", 89 + luck / 10, repeat=repeat, train_s=30.0),
            row("mha", 80 + luck, repeat=repeat, train_s=10.0),
            row("lstm", 80.2 - luck, repeat=repeat, train_s=20.0),
            row("rnn", 50 + luck, repeat=repeat, train_s=40.0),
        ]
    return found


def written(folder: Path, found: list[Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in found))
    return folder


def test_layers_are_compared_in_pairs_with_the_best() -> None:
    (section,) = sections(rows())
    comparison = compare(section, ACCURACY)
    assert comparison is not None
    by = {line.model: line for line in comparison.lines}
    assert [line.model for line in comparison.lines] == ["s4", "lstm", "mha", "rnn"]
    assert by["s4"].behind is None and by["s4"].verdict == ""
    assert by["mha"].behind["value"] == pytest.approx(9) and by["mha"].verdict == "worse than the best"
    assert by["s4"].cheapest and by["mha"].cheapest and not by["rnn"].cheapest
    assert comparison.circuits == {}


def test_the_best_is_one_of_those_that_were_trained_most_often() -> None:
    lucky = [row("mha", 95, repeat=0), *(row("s4", score, repeat=k) for k, score in enumerate((96, 60, 61)))]
    (section,) = sections(lucky)
    comparison = compare(section, ACCURACY)
    assert comparison is not None and [line.model for line in comparison.lines if line.best] == ["s4"]


@pytest.mark.parametrize("other", [{"train_sequences": 50}, {"test_sequences": {"emnist": 7}}])
def test_what_learnt_from_other_data_or_is_judged_by_other_is_in_no_pair(other: dict[str, Any]) -> None:
    (section,) = sections([line | (other if line["model"] == "mha" else {}) for line in rows()])
    comparison = compare(section, ACCURACY)
    assert comparison is not None
    by = {line.model: line for line in comparison.lines}
    assert by["mha"].behind is None and by["lstm"].behind is not None


def test_a_difference_that_may_be_chance_is_not_shown() -> None:
    (section,) = sections([line for line in rows() if line["model"] in ("mha", "lstm")])
    comparison = compare(section, ACCURACY)
    assert comparison is not None and comparison.lines[1].verdict == NOT_SHOWN
    (section,) = sections([row("mha", 80.0), row("lstm", 70.0)])
    comparison = compare(section, ACCURACY)
    assert comparison is not None and comparison.lines[1].verdict == NOT_SHOWN, "one training is an anecdote"


def test_a_layer_without_a_seed_in_common_with_the_best_is_not_called_the_best() -> None:
    (section,) = sections([row("mha", 80.0), row("lstm", 70.0, repeat=1)])
    comparison = compare(section, ACCURACY)
    assert comparison is not None
    first, second = (cells(line, 2) for line in comparison.lines)
    assert first[3] == "best" and second[3] == "-" and comparison.lines[1].verdict == NOT_SHOWN


def test_a_circuit_is_worth_what_the_same_layer_lacks_without_it() -> None:
    scores = {"nac-key": (80.0, 82.0, 84.0), "nac-key-plain": (79.0, 81.5, 82.5)}
    (section,) = sections([row(m, s, repeat=k) for m, values in scores.items() for k, s in enumerate(values)])
    comparison = compare(section, ACCURACY)
    assert comparison is not None and list(comparison.circuits) == ["nac-key"]
    # Student's 4.3027 with two degrees of freedom; the differences are 1, 0.5 and 1.5.
    assert comparison.circuits["nac-key"]["interval95"] == pytest.approx([1 - 4.3027 * 0.5 / 3**0.5, 2.2421], abs=1e-3)
    (text,) = [t for t in sentences(comparison) if "circuit" in t]
    assert text == (
        "What the circuit of nac-key is worth: +1.00 [-0.24, 2.24] over nac-key-plain, the same without it (not shown)."
    )


def test_runs_of_several_machines_are_one_report(tmp_path: Path) -> None:
    found = rows()
    # As bench writes it of a cell whose process was killed: no scores, no record.
    killed = {name: found[0][name] for name in ("key", "task", "model", "fold", "repeat", "asked", "made_up")}
    killed |= {"status": "failed", "kind": "memory", "reason": "its process was killed"}
    here = written(tmp_path / "here", [killed, *found[1:5]])
    there = written(tmp_path / "there", found[:1] + found[5:])
    merged = read_results([there, here])
    assert len(merged) == len(found) and all(line["status"] == "done" for line in merged)
    out = tmp_path / "new" / "out"
    (comparison,) = [c for c in write_report([here, there], out, "the command") if c.metric == ACCURACY]
    said = (out / "report.md").read_text()
    assert "| s4 | 89.00 |" in said and "the command" in said
    assert "<td>s4</td><td>89.00</td>" in (out / "report.html").read_text()
    assert r"S4 & 89.00" in (out / "report.tex").read_text()
    lines = list(csv.DictReader((out / "report.csv").open()))
    assert [line["model"] for line in lines] == [line.model for line in comparison.lines]
    assert (out / "cost-0.svg").read_text().startswith("<?xml")


def test_cells_of_another_budget_stand_in_another_table() -> None:
    small = {"protocol": "sequence", "size": SIZE | {"epochs": 1}, "folds": 1, "seed": 0}
    found = sections([row("mha", 80.0), row("lstm", 60.0, record={"config": small})])
    assert [len(section.rows) for section in found] == [1, 1]


@pytest.mark.parametrize(
    "damage",
    [
        {"status": "dkne"}, {"status": []}, {"model": None}, {"made_up": "x"}, {"model": "references"},
        {"references": 3}, {"references": {"mean": 3}}, {"status": "failed", "kind": None},
        {"scores": {"emnist": {"accuracy": "x"}}},
    ],
)  # fmt: skip
def test_a_damaged_result_is_one_sentence_in_every_verb_that_reads_it(damage: dict[str, Any], tmp_path: Path) -> None:
    run = written(tmp_path / "run", [row("mha", 80.0) | damage])
    for read in (finished, lambda run: read_results([run]), lambda run: find_jobs(RobustnessConfig(data=(run,)))):
        with pytest.raises(UserError, match="holds a damaged result"):
            read(run)


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no results\.jsonl"):
        read_results([tmp_path])
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(UserError, match="no results of 'nacdrive bench table'"):
        read_results([tmp_path / "other.jsonl"])
    made_up = written(tmp_path / "smoke", [row("mha", 80.0, made_up=["emnist"])])
    with pytest.raises(UserError, match="nothing to compare"):
        write_report([made_up], tmp_path / "out", "")
    with pytest.raises(UserError, match="name the results"):
        ReportConfig(data=())
    failed = row("mha", 80.0, status="failed", kind="memory")
    with pytest.raises(UserError, match="no cell is finished"):
        write_report([written(tmp_path / "failed", [failed])], tmp_path / "x", "")
    with pytest.raises(UserError, match="--overwrite means nothing to 'bench plan'"):
        PlanConfig(overwrite=True)
    with pytest.raises(UserError, match="--hours is -1"):
        RunConfig(hours=-1.0)


@pytest.fixture
def config(tmp_path: Path) -> TableConfig:
    return TableConfig(
        tasks=("emnist",), models=("lstm", "gru"), most=40, references=False, data=tmp_path, out=tmp_path / "out",
        workers=1,
    )  # fmt: skip


def test_a_plan_scales_what_was_measured(config: TableConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "steps_of", lambda size, *data: 30 * (size.max_samples or 8000))
    cells = [
        dataclasses.replace(cell, size=dataclasses.replace(cell.size, epochs=16, max_samples=16_000))
        for cell in plan(config).cells
    ]
    lstm, gru = costs(cells, [], [row("lstm", 70.0, train_s=10.0)])
    # Twice the epochs on twice the steps; a second beside the training.
    assert lstm.seconds == pytest.approx(41) and lstm.peak_mib == 300 and (lstm.cells, lstm.done) == (1, 0)
    assert gru.seconds is None
    # Waiting for a core is no cost; on a GPU the processor's time is none of it.
    waited = row("lstm", 70.0, train_s=20.0, wall_s=22.0, cpu_s=11.0)
    assert costs(cells, [], [waited])[0].seconds == pytest.approx(41)
    waited["record"] = {"config": waited["record"]["config"] | {"device": "cuda"}}
    assert costs(cells, [], [waited])[0].seconds == pytest.approx(82)
    # A budget without limits is that of the task: 150 epochs of all that there is.
    whole = [dataclasses.replace(cells[0], size=Size(), protocol="paper")]
    assert costs(whole, [], [row("lstm", 70.0)])[0].seconds == pytest.approx(10 * 150 / 8 + 1)
    # Rows of the protocol itself tell more than those of another, and only they can be of the same budget.
    other = row("lstm", 70.0, train_s=99.0)
    other["record"] = {"config": other["record"]["config"] | {"protocol": "paper", "size": plain(Size())}}
    assert costs(whole, [], [row("lstm", 70.0), other])[0].seconds == pytest.approx(100)
    # Made-up data tell where nothing else does, and only as what they are.
    invented = row("lstm", 70.0, train_s=99.0) | {"made_up": ["emnist"]}
    assert costs(cells, [], [invented, row("lstm", 70.0, train_s=10.0)])[0] == lstm and not lstm.made_up
    assert costs(cells, [], [invented])[0].made_up and not costs(cells, [cells[0].key], [invented])[0].made_up
    said = text([lstm, gru], 2)
    assert "2 cells to compute: 0.0 core-hours" in said and "and 1 cells of layers that no result tells of" in said
    assert costs(cells, [cells[0].key], [])[0].seconds == 0


def test_a_run_ends_when_its_time_is_over_and_goes_on(config: TableConfig, capsys: pytest.CaptureFixture[str]) -> None:
    grid = plan(config)
    told: list[str] = []

    def note(cell: Any, _: Any) -> None:
        told.append(cell.key)

    results = compute(grid, config, note, note, until=time.monotonic())
    assert len(results) < 2 and set(told) <= {grid.cells[0].key}
    again = RunConfig(**{f.name: getattr(config, f.name) for f in dataclasses.fields(config)}, hours=1.0)
    assert again.resume and one_table(again, again.hours)[0] == 0
    assert "go on" not in capsys.readouterr().out
    assert {line["status"] for line in read_results([config.folder])} == {"done"}


def test_a_full_disk_ends_the_run_and_is_no_result_of_a_cell(
    config: TableConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(EMNIST):
        def folds(self, *given: Any) -> Any:
            try:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError as error:
                raise UserError("no space left on the disk") from error

    cell = plan(config).cells[0]
    monkeypatch.setattr(TASKS, "_registered", {})
    TASKS.register("full-disk", Full)
    with pytest.raises(UserError, match="no space left"):
        run_cell(dataclasses.replace(cell, task="full-disk"))
