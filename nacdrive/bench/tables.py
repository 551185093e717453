"""Results -> tables: Markdown for people, CSV for programs, LaTeX for papers."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev

from nacdrive.bench import paper
from nacdrive.bench.cell import Result
from nacdrive.bench.config import TableConfig
from nacdrive.common.files import write_text
from nacdrive.tasks.problem import Measure, load_problem


@dataclass(frozen=True)
class Entry:
    """What one model reached on one task."""

    task: str
    model: str
    done: int
    """Folds that were finished."""
    failed: tuple[str, ...]
    """Kinds of failure of the others."""
    values: dict[str, tuple[float, float]]
    """Mean and standard deviation over the folds of each measure."""
    parameters: int | None
    train_s: float | None
    """Seconds of training, mean over the folds."""
    made_up: bool
    """Whether the data were."""


def entries(results: Sequence[Result], config: TableConfig) -> list[Entry]:
    """One entry per task and model, in the paper's order."""
    found = []
    for task in dict.fromkeys(task for row in results for task in row["asked"]):
        measures = load_problem(task, config.protocol).measures.get(task)
        if measures is None or (config.tasks and task not in config.tasks):
            continue
        for model in paper.in_order(list({row["model"] for row in results if task in row["asked"]})):
            rows = [row for row in results if row["model"] == model and task in row["asked"]]
            found.append(entry(task, model, rows, measures))
    return found


def entry(task: str, model: str, rows: Sequence[Result], measures: Sequence[Measure]) -> Entry:
    """The folds of one model on one task, together."""
    done = [row for row in rows if row["status"] == "done" and task in row["scores"]]
    values = {}
    for measure in measures:
        numbers = [row["scores"][task][measure.key] for row in done if measure.key in row["scores"][task]]
        if numbers:
            values[measure.key] = fmean(numbers), pstdev(numbers)
    return Entry(
        task=task,
        model=model,
        done=len(done),
        failed=tuple(row["kind"] for row in rows if row["status"] == "failed"),
        values=values,
        parameters=done[0]["parameters"] if done else None,
        train_s=fmean(row["train_s"] for row in done) if done else None,
        made_up=any(task in row["made_up"] for row in rows),
    )


def number(measure: Measure, values: dict[str, tuple[float, float]], folds: int) -> str:
    """``mean ± std``; the mean alone where there is one fold; a dash where there is nothing."""
    if measure.key not in values:
        return "-"
    mean, std = values[measure.key]
    return f"{mean:.{measure.digits}f}" + (f" ± {std:.{measure.digits}f}" if folds > 1 else "")


def printed_number(measure: Measure, task: str, model: str) -> str:
    """The paper's number for its own measure."""
    printed = paper.printed(task, model) if measure.paper else None
    return f"{printed.mean:.{measure.digits}f} ± {printed.std:.{measure.digits}f}" if printed else "-"


def failures(entry: Entry) -> str:
    """How many folds failed, and how."""
    kinds = ", ".join(sorted(set(entry.failed)))
    return f"{len(entry.failed)} of {entry.done + len(entry.failed)} folds failed: {kinds}" if entry.failed else ""


def markdown(found: Sequence[Entry], config: TableConfig, command: str) -> str:
    """A section per task."""
    lines = [
        f"Protocol `{config.protocol}`, budget `{config.budget}`. Command: `{command}`.",
        "",
        "mean ± standard deviation over folds (one fold: no deviation). *Paper*: its Table 1, five folds of its own "
        "protocol" + ("." if config.protocol == "paper" else ", which is another question: compare within a column."),
    ]
    for task in dict.fromkeys(entry.task for entry in found):
        problem = load_problem(task, config.protocol)
        measures, rows = problem.measures[task], [entry for entry in found if entry.task == task]
        made_up = " - MADE-UP DATA, not a result" if any(entry.made_up for entry in rows) else ""
        lines += ["", f"### {task}{made_up}", "", problem.notes.get(task, "")]
        lines += [paper.CONTRADICTIONS[task]] if task in paper.CONTRADICTIONS else []
        arrows = [f"{m.title} {'↑' if m.higher else '↓'}" for m in measures]
        header = ["model", *arrows, "paper", "folds", "parameters", "training, s"]
        lines += ["", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
        for entry in rows:
            cells = [entry.model, *(number(m, entry.values, entry.done) for m in measures)]
            cells.append(next((printed_number(m, task, entry.model) for m in measures if m.paper), "-"))
            cells.append(str(entry.done) + (f" ({failures(entry)})" if entry.failed else ""))
            cells.append("-" if entry.parameters is None else f"{entry.parameters:,}")
            cells.append("-" if entry.train_s is None else f"{entry.train_s:.0f}")
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


COLUMNS = (
    "protocol", "budget", "task", "model", "measure", "mean", "std", "paper_mean", "paper_std", "folds", "failed",
    "parameters", "train_s", "made_up",
)  # fmt: skip


def csv_text(found: Sequence[Entry], config: TableConfig) -> str:
    """One row per task, model and measure."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for entry in found:
        measures = load_problem(entry.task, config.protocol).measures[entry.task]
        for measure in measures:
            printed = paper.printed(entry.task, entry.model) if measure.paper else None
            theirs = (printed.mean, printed.std) if printed else ("", "")
            row: list[object] = [config.protocol, config.budget, entry.task, entry.model, measure.key]
            row += [*entry.values.get(measure.key, ("", "")), *theirs]
            row += [entry.done, "; ".join(entry.failed), entry.parameters, entry.train_s, entry.made_up]
            writer.writerow(row)
    return text.getvalue()


def latex(found: Sequence[Entry], config: TableConfig) -> str:
    """The layout of the paper's Table 1: a row per model, a column per task, the paper's number below in grey."""
    tasks = list(dict.fromkeys(entry.task for entry in found))
    by = {(entry.task, entry.model): entry for entry in found}
    first = {task: load_problem(task, config.protocol).measures[task][0] for task in tasks}
    titles = []
    for task in tasks:
        made_up = any(entry.made_up for entry in found if entry.task == task)
        arrow = r"$\uparrow$" if first[task].higher else r"$\downarrow$"
        titles.append(f"{task}{' (made up)' if made_up else ''} {arrow}")
    lines = [
        "% needs \\usepackage{booktabs,xcolor}",
        r"\begin{tabular}{l" + "r" * len(tasks) + "}",
        r"\toprule",
        " & ".join(["Model", *titles]) + r" \\",
        r"\midrule",
    ]
    names = paper.names()
    for model in paper.in_order(list({entry.model for entry in found})):
        cells = [names.get(model, model)]
        for task in tasks:
            entry = by.get((task, model))
            ours = number(first[task], entry.values, entry.done) if entry else "-"
            cells.append(f"{ours} \\textcolor{{gray}}{{({printed_number(first[task], task, model)})}}")
        lines.append(" & ".join(cells).replace("_", r"\_").replace("±", r"$\pm$") + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def write_tables(folder: Path, results: Sequence[Result], config: TableConfig, command: str) -> list[Entry]:
    """``table.md``, ``table.csv`` and ``table.tex`` into ``folder``."""
    found = entries(results, config)
    write_text(folder / "table.md", markdown(found, config, command))
    write_text(folder / "table.csv", csv_text(found, config))
    write_text(folder / "table.tex", latex(found, config))
    return found
