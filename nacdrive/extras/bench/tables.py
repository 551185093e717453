"""Results -> tables: Markdown for people, CSV for programs, LaTeX for papers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev, variance
from typing import NamedTuple

from nacdrive.common import table
from nacdrive.common.files import write_text
from nacdrive.extras.bench import paper
from nacdrive.extras.bench.cell import REFERENCES, Result
from nacdrive.extras.bench.config import TableConfig
from nacdrive.layers.registry import row_note
from nacdrive.tasks import load_task
from nacdrive.tasks.base import Metric


class Stat(NamedTuple):
    """A metric over the trainings of one model on one task."""

    mean: float  # over folds, of the mean over seeds
    over_folds: float | None  # sample standard deviation over folds; None with one
    over_seeds: float | None  # sample standard deviation over seeds within a fold; None with one


@dataclass(frozen=True)
class Entry:
    """What one model, or a reference that is none, reached on one task."""

    task: str
    model: str
    done: int  # trainings that were finished
    folds: int  # folds with one at least
    failed: tuple[str, ...]  # kinds of failure of the others
    values: dict[str, Stat]  # of each metric
    parameters: int | None
    train_s: float | None  # seconds of training, mean over the trainings
    made_up: bool  # whether the data were
    reference: bool = False  # whether it is no model


def entries(results: Sequence[Result], config: TableConfig) -> list[Entry]:
    """One entry per task and model, in the paper's order; references behind."""
    result = []
    for task in dict.fromkeys(task for row in results for task in row["asked"]):
        metrics = load_task(task, config.protocol).metrics_of(task)
        if not metrics or (config.tasks and task not in config.tasks):
            continue
        asked = [row for row in results if task in row["asked"]]
        trained = [row for row in asked if row["model"] != REFERENCES]
        for model in paper.in_order(list({row["model"] for row in trained})):
            rows = [row for row in trained if row["model"] == model]
            result.append(entry(task, model, [(row, row.get("scores", {})) for row in rows], metrics))
        references = [row for row in asked if row["model"] == REFERENCES and row["status"] == "done"]
        for name in dict.fromkeys(name for row in references for name in row["references"]):
            rows = [row for row in references if task in row["references"].get(name, {})]
            made = entry(task, name, [(row, row["references"][name]) for row in rows], metrics)
            result.append(dataclasses.replace(made, reference=True, parameters=0, train_s=0.0))
    return result


Scored = tuple[Result, Mapping[str, Mapping[str, float]]]
"""A row, and the scores in it that count, by task."""


def entry(task: str, model: str, scored: Sequence[Scored], metrics: Sequence[Metric]) -> Entry:
    """The folds and seeds of one model on one task, together."""
    done = [(row, scores[task]) for row, scores in scored if row["status"] == "done" and task in scores]
    values = {}
    for metric in metrics:
        by_fold: dict[int, list[float]] = {}
        for row, scores in done:
            if metric.key in scores:
                by_fold.setdefault(row["fold"], []).append(scores[metric.key])
        if by_fold:
            values[metric.key] = statistics_of(list(by_fold.values()))
    return Entry(
        task=task,
        model=model,
        done=len(done),
        folds=len({row["fold"] for row, _ in done}),
        failed=tuple(row["kind"] for row, _ in scored if row["status"] == "failed"),
        values=values,
        parameters=done[0][0].get("parameters") if done else None,
        train_s=fmean(row.get("train_s", 0.0) for row, _ in done) if done else None,
        made_up=any(task in row["made_up"] for row, _ in scored),
    )


def statistics_of(by_fold: Sequence[Sequence[float]]) -> Stat:
    """Mean and deviations of numbers per fold and seed."""
    means = [fmean(numbers) for numbers in by_fold]
    within = [variance(numbers) for numbers in by_fold if len(numbers) > 1]
    return Stat(fmean(means), stdev(means) if len(means) > 1 else None, math.sqrt(fmean(within)) if within else None)


def number(metric: Metric, values: Mapping[str, Stat]) -> str:
    """``mean ± over folds (± over seeds)``, without what there is one of; a dash where there is nothing."""
    if metric.key not in values:
        return "-"
    stat, digits = values[metric.key], metric.digits
    text = f"{stat.mean:.{digits}f}"
    text += "" if stat.over_folds is None else f" ± {stat.over_folds:.{digits}f}"
    return text + ("" if stat.over_seeds is None else f" (± {stat.over_seeds:.{digits}f})")


def printed_number(metric: Metric, task: str, model: str) -> str:
    """The paper's number for its own metric."""
    printed = paper.printed(task, model) if metric.paper else None
    return " ± ".join(f"{value:.{metric.digits}f}" for value in printed) if printed else "-"


def failures(entry: Entry) -> str:
    """How many folds failed, and how."""
    kinds = ", ".join(sorted(set(entry.failed)))
    return f"{len(entry.failed)} of {entry.done + len(entry.failed)} trainings failed: {kinds}" if entry.failed else ""


def markdown(table_entries: Sequence[Entry], config: TableConfig, command: str) -> str:
    """A section per task."""
    lines = [
        f"Protocol `{config.protocol}`, budget `{config.budget}`. Command: `{command}`.",
        "",
        "mean ± sample standard deviation over folds, in parentheses over seeds within a fold; without where there is "
        f"one. {papers(config)} *In italics*: no model. What NAC selects by Top-K may differ in the last digit between "
        "processors, and its training with it: compare more than one seed.",
    ]
    for task in dict.fromkeys(entry.task for entry in table_entries):
        loaded = load_task(task, config.protocol)
        metrics, rows = loaded.metrics_of(task), [entry for entry in table_entries if entry.task == task]
        made_up = " - MADE-UP DATA, not a result" if any(entry.made_up for entry in rows) else ""
        lines += ["", f"### {task}{made_up}", "", loaded.note_of(task)]
        lines += [loaded.script_note] if loaded.script_note else []
        if config.protocol != "challenge":
            lines += paper.remarks(task, config.protocol)
        arrows = [f"{m.title} {'↑' if m.higher else '↓'}" for m in metrics]
        header = ["model", *arrows, "paper", "trainings", "parameters", "training, s"]
        lines += ["", *table.markdown(header, [markdown_cells(entry, metrics, config.parameters) for entry in rows])]
    notes = row_notes(entry.model for entry in table_entries if not entry.reference)
    lines += [line for note in notes for line in ("", note)]
    return "\n".join(lines) + "\n"


def row_notes(models: Iterable[str]) -> list[str]:
    """What a reader must know of the rows of ``models``."""
    return list(filter(None, map(row_note, dict.fromkeys(models))))


def parameters_text(count: int | None, wanted: int) -> str:
    """So many parameters, and whether that is far from those that were ``wanted`` (0: any number)."""
    far = wanted and count is not None and abs(count - wanted) > 0.1 * wanted
    return ("-" if count is None else f"{count:,}") + (" (no width within 10 %)" if far else "")


def markdown_cells(entry: Entry, metrics: Sequence[Metric], wanted: int = 0) -> list[str]:
    """A row of the table of its task."""
    return [
        f"*{entry.model}*" if entry.reference else entry.model,
        *(number(m, entry.values) for m in metrics),
        next((printed_number(m, entry.task, entry.model) for m in metrics if m.paper), "-"),
        str(entry.done) + (f" ({failures(entry)})" if entry.failed else ""),
        parameters_text(entry.parameters, wanted),
        "-" if entry.train_s is None else f"{entry.train_s:.0f}",
    ]


def papers(config: TableConfig) -> str:
    """What the paper's numbers beside ours are."""
    more = "" if config.protocol in ("paper", "scripts") else ", which is another question: compare within a column"
    return f"*Paper*: its Table 1, five folds of its own protocol{more}."


COLUMNS = (
    "protocol", "budget", "task", "model", "measure", "mean", "std", "seed_std", "paper_mean", "paper_std", "folds",
    "trainings", "failed", "parameters", "train_s", "made_up",
)  # fmt: skip


def csv_text(table_entries: Sequence[Entry], config: TableConfig) -> str:
    """One row per task, model and metric."""
    rows: list[list[object]] = []
    for entry in table_entries:
        for metric in load_task(entry.task, config.protocol).metrics_of(entry.task):
            theirs = (metric.paper and paper.printed(entry.task, entry.model)) or ("", "")
            ours = ["" if value is None else value for value in entry.values.get(metric.key, ("", "", ""))]
            row = [config.protocol, config.budget, entry.task, entry.model, metric.key, *ours, *theirs]
            row += [entry.folds, entry.done, "; ".join(entry.failed), entry.parameters, entry.train_s, entry.made_up]
            rows.append(row)
    return table.csv_text(COLUMNS, rows)


def latex(table_entries: Sequence[Entry], config: TableConfig) -> str:
    """The layout of the paper's Table 1: a row per model, a column per task, the paper's number below in grey."""
    tasks = list(dict.fromkeys(entry.task for entry in table_entries))
    by = {(entry.task, entry.model): entry for entry in table_entries}
    first = {task: load_task(task, config.protocol).metrics_of(task)[0] for task in tasks}
    titles = []
    for task in tasks:
        made_up = any(entry.made_up for entry in table_entries if entry.task == task)
        arrow = r"$\uparrow$" if first[task].higher else r"$\downarrow$"
        titles.append(f"{task}{' (made up)' if made_up else ''} {arrow}")
    names = paper.names()
    models = paper.in_order(list({entry.model for entry in table_entries if not entry.reference}))
    references = list(dict.fromkeys(entry.model for entry in table_entries if entry.reference))
    rows = []
    for model in [*models, *references]:
        cells = [rf"\emph{{{model}}}" if model in references else names.get(model, model)]
        for task in tasks:
            entry = by.get((task, model))
            ours = number(first[task], entry.values) if entry else "-"
            cells.append(f"{ours} \\textcolor{{gray}}{{({printed_number(first[task], task, model)})}}")
        rows.append(cells)
    sentence = f"Grey: the paper's Table 1. {papers(config)}".replace("*", "")
    return "\n".join(["% needs \\usepackage{booktabs,xcolor}", *table.latex(["Model", *titles], rows, sentence)]) + "\n"


def write_tables(folder: Path, results: Sequence[Result], config: TableConfig, command: str) -> list[Entry]:
    """``table.md``, ``table.csv`` and ``table.tex`` into ``folder``."""
    table_entries = entries(results, config)
    write_text(folder / "table.md", markdown(table_entries, config, command))
    write_text(folder / "table.csv", csv_text(table_entries, config))
    write_text(folder / "table.tex", latex(table_entries, config))
    return table_entries
