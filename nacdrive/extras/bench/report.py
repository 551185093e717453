"""Results of one or many runs together: paired differences, cost against quality, learning curves.

Runs of several machines are merged cell by cell. What is compared was trained on the same folds with the same budget:
a section of the report is one task under one protocol and one size.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nacdrive.common import table
from nacdrive.common.errors import UserError
from nacdrive.common.files import write_text
from nacdrive.common.plugins import check_trusted
from nacdrive.common.statistics import paired_difference
from nacdrive.extras.bench import paper
from nacdrive.extras.bench.cell import REFERENCES, Result, cell_folder
from nacdrive.extras.bench.grid import RESULTS, read_cells
from nacdrive.extras.bench.tables import parameters_text, row_notes
from nacdrive.tasks import load_task
from nacdrive.tasks.base import Metric
from nacdrive.training.log import read_rows
from nacdrive.viz.figures import save

NOT_SHOWN = "not shown"
Block = tuple[int, ...]
"""Fold, repeat, how many sequences were learnt from and judged by: what two models compared have in common."""
WITHOUT = {"nac-key": "nac-key-plain", "nac-exact": "nac-constant"}
"""Layer -> the same without what its circuit says."""


@dataclass(frozen=True)
class Section:
    """Cells that may stand in one table."""

    task: str  # tested task
    trained: str  # task that trained the models
    settings: Mapping[str, Any]  # see ``settings_of``
    rows: tuple[Result, ...]

    @property
    def title(self) -> str:
        limits = limits_of(self.settings)
        return f"{self.task}, protocol {self.settings['protocol']}" + (f" ({', '.join(limits)})" if limits else "")


@dataclass(frozen=True)
class Line:
    """One model in a section."""

    model: str
    best: bool
    trainings: int
    mean: float
    spread: float | None
    """Sample standard deviation over folds and seeds."""
    behind: dict[str, Any] | None
    """``paired_difference`` to the best model, positive where the best is better; None for the best itself, or where
    they have no fold and seed in common."""
    parameters: int | None
    train_s: float | None
    """Mean seconds of a training."""
    cheapest: bool
    """Whether no model is both better and quicker to train."""

    @property
    def verdict(self) -> str:
        """What the difference to the best says, in words."""
        if self.best:
            return ""
        low, high = (self.behind or {}).get("interval95") or (-math.inf, math.inf)
        return NOT_SHOWN if low <= 0 <= high else "worse than the best" if low > 0 else "better than the best"


@dataclass(frozen=True)
class Comparison:
    """The models of a section by one metric, best first."""

    section: Section
    metric: Metric
    lines: tuple[Line, ...]
    references: Mapping[str, float]
    """Means of what is no model."""
    circuits: Mapping[str, dict[str, Any]]
    """What a model's circuit is worth: ``paired_difference`` to the same without it, above 0 where it helps."""


def read_results(places: Sequence[Path]) -> list[Result]:
    """Finished cells of runs, folders of ``bench table`` or JSON-lines files, merged; of a cell twice the later."""
    merged: dict[str, Result] = {}
    for place in places:
        path = place / RESULTS if place.is_dir() else place
        if not path.is_file():
            raise UserError(f"{place} holds no {RESULTS}: name folders of 'nacdrive bench table', or such files.")
        for row in read_cells(path):
            # A failed cell has no scores, and one whose process died has no record either.
            if row["status"] == "done":
                key = json.dumps([row["key"], row["made_up"], settings_of(row)], sort_keys=True)
                merged[key] = {**row, "place": path.parent}
    return list(merged.values())


def settings_of(row: Result) -> dict[str, Any]:
    """What two cells must share to be compared: protocol, size, folds, seed of the split, how rate and width came."""
    config = row["record"]["config"]
    chosen = {name: config[name] for name in ("learning_rates", "parameters") if config.get(name)}
    return {name: config[name] for name in ("protocol", "size", "folds", "seed")} | chosen


def limits_of(settings: Mapping[str, Any]) -> list[str]:
    """What a training was given, in words: its budget, and how its rate and width came."""
    limits = [f"{name} {value}" for name, value in sorted(settings["size"].items()) if value]
    if rates := settings.get("learning_rates"):
        limits.append(f"learning rate chosen among {', '.join(f'{rate:g}' for rate in rates)}")
    if parameters := settings.get("parameters"):
        limits.append(f"about {parameters:,} parameters")
    return limits


def sections(results: Iterable[Result]) -> list[Section]:
    """Results by what may be compared; made-up data are left out."""
    groups: dict[str, list[Result]] = {}
    for row in results:
        for task in row["asked"]:
            if task not in row["made_up"]:
                groups.setdefault(json.dumps([task, row["task"], settings_of(row)], sort_keys=True), []).append(row)
    return [Section(*[*json.loads(key), tuple(rows)]) for key, rows in groups.items()]


def compare(section: Section, metric: Metric) -> Comparison | None:
    """The models of ``section`` by ``metric``; None where no model has it."""
    numbers: dict[str, dict[Block, float]] = {}
    costs: dict[str, list[Result]] = {}
    references: dict[str, list[float]] = {}
    for row in section.rows:
        for name, scores in row.get("references", {}).items():
            if metric.key in scores.get(section.task, {}):
                references.setdefault(name, []).append(scores[section.task][metric.key])
        if row["model"] != REFERENCES and metric.key in row["scores"].get(section.task, {}):
            # What learnt from other data, or is judged by other, is in no pair with it.
            judged_by = row.get("test_sequences", {}).get(section.task, 0)
            block = row["fold"], row.get("repeat", 0), row["train_sequences"], judged_by
            numbers.setdefault(row["model"], {})[block] = row["scores"][section.task][metric.key]
            costs.setdefault(row["model"], []).append(row)
    if not numbers:
        return None
    sign = 1 if metric.higher else -1
    means = {model: fmean(values.values()) for model, values in numbers.items()}
    seconds = {model: fmean(row["train_s"] for row in rows) for model, rows in costs.items()}
    # Of those with the most folds and seeds: a mean over easier ones alone says nothing.
    best = max(means, key=lambda model: (len(numbers[model]), sign * means[model]))

    def difference(better: str, worse: str) -> dict[str, Any] | None:
        """Of two models over the folds and seeds that they have in common, None where there are none."""
        shared = sorted(set(numbers.get(better, ())) & set(numbers.get(worse, ())))
        ours, theirs = ([sign * numbers[name][block] for block in shared] for name in (better, worse))
        return paired_difference(ours, theirs) if shared else None

    lines = [
        Line(
            model=model,
            best=model == best,
            trainings=len(numbers[model]),
            mean=means[model],
            spread=stdev(numbers[model].values()) if len(numbers[model]) > 1 else None,
            behind=None if model == best else difference(best, model),
            parameters=costs[model][0].get("parameters"),
            train_s=seconds[model],
            cheapest=not any(
                sign * means[other] > sign * means[model] and seconds[other] <= seconds[model] for other in means
            ),
        )
        for model in sorted(means, key=lambda model: -sign * means[model])
    ]
    about = {name: fmean(values) for name, values in references.items()}
    circuits = {model: worth for model, plain in WITHOUT.items() if (worth := difference(model, plain)) is not None}
    return Comparison(section, metric, tuple(lines), about, circuits)


HEADER = (
    "model", "mean", "spread", "behind the best", "95 % interval", "verdict", "trainings", "parameters", "training, s",
    "cheapest",
)  # fmt: skip


def cells(line: Line, digits: int, wanted: int = 0) -> list[str]:
    """A line as texts, in the order of ``HEADER``; so many parameters were ``wanted`` (0: any number)."""

    def number(value: float | None, places: int = digits) -> str:
        return "-" if value is None else f"{value:.{places}f}"

    behind, interval = line.behind, (line.behind or {}).get("interval95")
    return [
        line.model,
        number(line.mean),
        number(line.spread),
        "best" if line.best else number(behind["value"] if behind else None),
        f"{interval[0]:.{digits}f} to {interval[1]:.{digits}f}" if interval else "-",
        line.verdict,
        str(line.trainings),
        parameters_text(line.parameters, wanted),
        number(line.train_s, 0),
        "yes" if line.cheapest else "",
    ]


def rows_of(comparison: Comparison) -> list[list[str]]:
    """Its lines as texts."""
    wanted = comparison.section.settings.get("parameters", 0)
    return [cells(line, comparison.metric.digits, wanted) for line in comparison.lines]


def sentences(comparison: Comparison) -> list[str]:
    """What a reader of the table must know."""
    texts = [
        f"{comparison.metric.title}, {'higher' if comparison.metric.higher else 'lower'} is better. Differences are "
        "paired over folds and seeds that both models have (Student's t below ten pairs, else the bootstrap); an "
        f"interval that spans zero, or none, is '{NOT_SHOWN}'. *cheapest*: no model is better and trains as quickly."
    ]
    digits = comparison.metric.digits
    for model, worth in comparison.circuits.items():
        low, high = worth["interval95"] or (-math.inf, math.inf)
        shown = "" if low > 0 or high < 0 else f" ({NOT_SHOWN})"
        texts.append(
            f"What the circuit of {model} is worth: {worth['value']:+.{digits}f} [{low:.{digits}f}, {high:.{digits}f}] "
            f"over {WITHOUT[model]}, the same without it{shown}."
        )
    if comparison.references:
        known = ", ".join(f"{n} {v:.{comparison.metric.digits}f}" for n, v in comparison.references.items())
        texts.append(f"No models: {known}.")
    return texts


def notes_of(comparisons: Sequence[Comparison]) -> list[str]:
    """What a reader must know of models, wherever they stand."""
    return row_notes(line.model for comparison in comparisons for line in comparison.lines)


def markdown(comparisons: Sequence[Comparison], command: str) -> str:
    """A section per task and metric."""
    lines = ["# Layers compared", "", f"Command: `{command}`."]
    for comparison in comparisons:
        lines += ["", f"## {comparison.section.title}: {comparison.metric.title}", "", *sentences(comparison), ""]
        lines += table.markdown(HEADER, rows_of(comparison))
    lines += [line for note in notes_of(comparisons) for line in ("", note)]
    return "\n".join(lines) + "\n"


def csv_text(comparisons: Sequence[Comparison]) -> str:
    """One row per task, metric and model."""
    header = ("task", "protocol", "size", "metric", "model", "trainings", "mean", "std", "behind", "low", "high",
              "verdict", "parameters", "train_s")  # fmt: skip
    rows: list[list[object]] = []
    for comparison in comparisons:
        section, settings = comparison.section, comparison.section.settings
        for line in comparison.lines:
            behind = line.behind or {"value": None, "interval95": None}
            low, high = behind["interval95"] or (None, None)
            rows.append([section.task, settings["protocol"], json.dumps(settings["size"]), comparison.metric.key,
                         line.model, line.trainings, line.mean, line.spread, behind["value"], low, high, line.verdict,
                         line.parameters, line.train_s])  # fmt: skip
    return table.csv_text(header, rows)


def latex(comparisons: Sequence[Comparison]) -> str:
    """A table per task and metric: mean, spread, difference to the best with its interval."""
    lines = ["% needs \\usepackage{booktabs}"]
    names = paper.names()
    for comparison in comparisons:
        digits = comparison.metric.digits
        header = ("Model", "Mean", "Std", "Behind the best", r"95\% interval")
        rows = [[names.get(line.model, line.model), *cells(line, digits)[1:5]] for line in comparison.lines]
        lines += [*table.latex(header, rows), f"% {comparison.section.title}: {comparison.metric.title}", ""]
    return "\n".join(lines)


STYLE = Path(__file__).with_name("report.css").read_text(encoding="utf-8").replace("\n", "")


def html_text(comparisons: Sequence[Comparison], command: str, figures: Mapping[int, Sequence[str]]) -> str:
    """The same as one page; ``figures`` are files beside it, by the number of the comparison."""
    parts = ["<!doctype html><html lang=en><meta charset=utf-8><title>Layers compared</title>",
             '<meta name=viewport content="width=device-width">', f"<style>{STYLE}</style><h1>Layers compared</h1>",
             f"<p>Command: <code>{html.escape(command)}</code></p>"]  # fmt: skip
    for k, comparison in enumerate(comparisons):
        parts.append(f"<h2>{html.escape(f'{comparison.section.title}: {comparison.metric.title}')}</h2>")
        parts += [
            f"<p>{html.escape(sentence).replace('*cheapest*', '<i>cheapest</i>')}</p>"
            for sentence in sentences(comparison)
        ]
        parts += table.html_rows(HEADER, rows_of(comparison))
        parts += [
            f'<img src="{name}" alt="{name.split("-")[0]} of {comparison.section.task}">' for name in figures.get(k, ())
        ]
    parts += [f"<p>{html.escape(note)}</p>" for note in notes_of(comparisons)]
    return "\n".join(parts) + "\n"


def cost_figure(comparison: Comparison) -> Figure:
    """Quality over seconds of training, a point per model; the line joins those that none beats in both."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axis = figure.add_subplot()
    for line in comparison.lines:
        seconds = max(line.train_s or 0.0, 0.01)
        axis.errorbar(seconds, line.mean, line.spread or 0.0, fmt="o", color="C0" if line.cheapest else "0.6")
        axis.annotate(line.model, (seconds, line.mean), xytext=(4, 4), textcoords="offset points", fontsize=7)
    front = sorted((max(line.train_s or 0.0, 0.01), line.mean) for line in comparison.lines if line.cheapest)
    axis.plot(*zip(*front, strict=True), color="C0", linewidth=1)
    axis.set(xscale="log", xlabel="training (s)", ylabel=comparison.metric.title, title=comparison.section.title)
    return figure


def curves_figure(section: Section) -> Figure | None:
    """Loss on the validation part by epoch, a line per model (mean over trainings); None where no log is at hand."""
    by_model: dict[str, list[list[float]]] = {}
    for row in section.rows:
        rows = read_rows(cell_folder(row["place"], row["key"]) / "metrics.jsonl")
        if losses := [line["valid_loss"] for line in rows if isinstance(line.get("valid_loss"), float)]:
            by_model.setdefault(row["model"], []).append(losses)
    if not by_model:
        return None
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axis = figure.add_subplot()
    for model, runs in by_model.items():
        length = min(map(len, runs))
        axis.plot(range(1, length + 1), np.mean([run[:length] for run in runs], axis=0), label=model)
    axis.set(xlabel="epoch", ylabel="loss on the validation part", title=section.title)
    axis.legend(fontsize=7, ncols=2)
    return figure


def write_report(places: Sequence[Path], out: Path, command: str) -> list[Comparison]:
    """``report.md``, ``.csv``, ``.tex``, ``.html`` and figures of ``places`` into the folder ``out``."""
    results = read_results(places)
    if not results:
        raise UserError(f"no cell is finished in {', '.join(map(str, places))}: run 'nacdrive bench table' first.")
    comparisons, figures = [], {}
    for section in sections(results):
        check_trusted(places[0], section.trained, section.task)
        for metric in load_task(section.trained, section.settings["protocol"]).metrics_of(section.task):
            if metric.compared and (comparison := compare(section, metric)) is not None:
                comparisons.append(comparison)
    if not comparisons:
        raise UserError("all of these results are of made-up data: there is nothing to compare.")
    out.mkdir(parents=True, exist_ok=True)
    for k, comparison in enumerate(comparisons):
        section = comparison.section
        drawn = {f"cost-{k}.svg": cost_figure(comparison)}
        first = not any(other.section is section for other in comparisons[:k])
        if first and (curves := curves_figure(section)) is not None:
            drawn[f"curves-{k}.svg"] = curves
        for name, figure in drawn.items():
            save(figure, out / name)
        figures[k] = list(drawn)
    write_text(out / "report.md", markdown(comparisons, command))
    write_text(out / "report.csv", csv_text(comparisons))
    write_text(out / "report.tex", latex(comparisons))
    write_text(out / "report.html", html_text(comparisons, command, figures))
    return comparisons
