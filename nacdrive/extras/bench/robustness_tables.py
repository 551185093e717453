"""Results of ``bench robustness`` -> a table of scores, one of paired differences to the intact sequences, a figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from matplotlib.figure import Figure

from nacdrive.common.files import write_text
from nacdrive.common.plugins import check_trusted
from nacdrive.common.statistics import paired_difference
from nacdrive.common.table import csv_text, markdown
from nacdrive.extras.bench.cell import Result
from nacdrive.extras.bench.conditions import CONDITIONS, HIDDEN, INTACT, MEANING, Condition
from nacdrive.extras.bench.report import NOT_SHOWN, Block, limits_of, settings_of
from nacdrive.tasks import load_task
from nacdrive.tasks.base import Metric
from nacdrive.viz.figures import save


@dataclass(frozen=True)
class Robustness:
    """All layers on one task by one metric, best on the intact sequences first."""

    task: str
    size: str  # of the trainings, in words
    metric: Metric
    conditions: tuple[Condition, ...]
    scores: Mapping[str, Mapping[str, Mapping[Block, float]]]  # model -> key of the condition -> training -> score
    senses: Mapping[str, str]  # model -> what of time reaches it: none, gaps or clock
    tests: int

    def change(self, model: str, condition: Condition) -> dict[str, Any]:
        """``paired_difference`` of ``condition`` to the intact sequences over the trainings; below 0 is worse."""
        sign = 1 if self.metric.higher else -1
        here, intact = self.scores[model][condition.key], self.scores[model][INTACT.key]
        return paired_difference([sign * v for v in here.values()], [sign * intact[block] for block in here])


def tables(results: Sequence[Result]) -> list[Robustness]:
    """One per task, settings of the training and compared metric."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for row in results:
        settings = settings_of({"record": row["trained"]})
        given = [*limits_of(settings), f"folds {settings['folds']}", f"split of seed {settings['seed']}"]
        groups.setdefault((row["task"], ", ".join(given)), []).append(row)
    parts: list[Robustness] = []
    for (task, size), rows in groups.items():
        check_trusted("the result", task)
        metrics = [metric for metric in load_task(task).metrics_of(task) if metric.compared]
        parts += [robustness_of(task, size, metric, rows) for metric in metrics]
    return parts


def robustness_of(task: str, size: str, metric: Metric, rows: Sequence[Result]) -> Robustness:
    """The rows of one task and budget by one metric."""
    scores: dict[str, dict[str, dict[Block, float]]] = {}
    for row in rows:
        for key, values in row["conditions"].items():
            scores.setdefault(row["model"], {}).setdefault(key, {})[row["fold"], row["repeat"]] = values[metric.key]
    sign = -1 if metric.higher else 1
    order = sorted(scores, key=lambda model: sign * fmean(scores[model][INTACT.key].values()))
    conditions = tuple(c for c in CONDITIONS if all(c.key in scores[model] for model in order))
    senses = {row["model"]: row["time_sense"] for row in rows}
    return Robustness(task, size, metric, conditions, {m: scores[m] for m in order}, senses, rows[0]["tests"])


def mean_text(values: Sequence[float], digits: int) -> str:
    """``mean ± sample standard deviation``."""
    return f"{fmean(values):.{digits}f}" + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else "")


def change_text(change: Mapping[str, Any], digits: int) -> str:
    """A paired difference with its interval, marked where it is not shown."""
    text, interval = f"{change['value']:+.{digits}f}", change["interval95"]
    if interval is None:
        return f"{text}, {NOT_SHOWN}"
    low, high = interval
    if low == high == 0:
        return "0, exactly"
    return f"{text} [{low:.{digits}f}, {high:.{digits}f}]" + (f", {NOT_SHOWN}" if low <= 0 <= high else "")


def verdict(part: Robustness, model: str) -> str:
    """Whether the trained layer is shown to use the time, from what it loses without it."""
    low, high = part.change(model, HIDDEN)["interval95"] or (-math.inf, math.inf)
    if low == high == 0:
        return "feels no time"
    return "uses time" if high < 0 else "better without" if low > 0 else NOT_SHOWN


def text_of(parts: Sequence[Robustness], command: str) -> str:
    """Two tables per task and metric: scores, and paired differences to the intact sequences."""
    lines = ["# Trained layers under other conditions", "", f"Command: `{command}`.", "", MEANING]
    for part in parts:
        metric, rest = part.metric, [c for c in part.conditions if c != INTACT]
        arrow = "higher" if metric.higher else "lower"
        lines += ["", f"## {part.task}: {metric.title}", ""]
        about = f"Trained with {part.size}; {part.tests} test sequences; {arrow} is better."
        lines.append(f"{about} Mean ± deviation over trainings.")
        means = [
            [model, part.senses[model], str(len(scores[INTACT.key]))]
            + [mean_text(list(scores[c.key].values()), metric.digits) for c in part.conditions]
            for model, scores in part.scores.items()
        ]
        lines += ["", *markdown(["model", "time", "trainings", *(c.title for c in part.conditions)], means)]
        lines += ["", "Change against the same model on the intact sequences, paired over trainings, 95 % interval; "
                  "below 0 is worse:", ""]  # fmt: skip
        changes = [
            [model, verdict(part, model), *(change_text(part.change(model, c), metric.digits) for c in rest)]
            for model in part.scores
        ]
        lines += markdown(["model", "uses time?", *(c.title for c in rest)], changes)
    return "\n".join(lines) + "\n"


COLUMNS = (
    "task", "trained", "metric", "model", "time_sense", "condition", "trainings", "mean", "std", "change", "low",
    "high",
)  # fmt: skip


def rows_of(parts: Sequence[Robustness]) -> Iterator[tuple[object, ...]]:
    """One row per task, metric, model and condition."""
    for part in parts:
        for model, scores in part.scores.items():
            for condition in part.conditions:
                values, change = list(scores[condition.key].values()), part.change(model, condition)
                low, high = change["interval95"] or (None, None)
                yield (part.task, part.size, part.metric.key, model, part.senses[model], condition.key, len(values),
                       fmean(values), stdev(values) if len(values) > 1 else None,
                       change["value"], low, high)  # fmt: skip


def drop_figure(part: Robustness) -> Figure:
    """Score over the share of steps that are dropped, a line per model."""
    shares = [c for c in part.conditions if c.kind in ("intact", "drop")]
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axis = figure.add_subplot()
    for number, (model, scores) in enumerate(part.scores.items()):
        means = [fmean(scores[c.key].values()) for c in shares]
        axis.plot([c.percent for c in shares], means, ("-", "--", ":")[number // 10 % 3], label=model)
    axis.set(xlabel="steps dropped (%)", ylabel=part.metric.title, title=part.task)
    axis.legend(fontsize=7, ncols=2)
    return figure


def write(results: Sequence[Result], out: Path, command: str) -> list[Robustness]:
    """``robustness.md``, ``.csv`` and a figure per task into ``out``."""
    parts = tables(results)
    write_text(out / "robustness.md", text_of(parts, command))
    write_text(out / "robustness.csv", csv_text(COLUMNS, rows_of(parts)))
    for number, part in enumerate(parts):
        save(drop_figure(part), out / f"drop-{number}-{part.task.replace(':', '-')}-{part.metric.key}.svg")
    return parts
