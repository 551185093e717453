"""What ``memory_table.py`` compares: pairs of arms over their training seeds, the registered ones corrected after Holm.

Nothing is driven here; all is of the rows, a line for each agent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from memory_experiments import CARRACING, EVENTS, Experiment

from nacdrive.common.statistics import LEVEL, summary

OURS, RIVALS = "nac-key", ("lstm", "gru", "cfc", "stack", "hold", "nac-key-no-circuit")
PRIMARY = (("laps", "all"), ("events", "unequal gaps"))
"""Registered: nac-key minus each of its rivals, on these."""


def score(row: dict[str, Any], what: str, name: str) -> float:
    """An agent's mean return of laps, or its mean metres of an event, the lower the better."""
    return float(np.mean(row[what][name]))


def arms_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Names of the arms, in the order of the rows."""
    return list(dict.fromkeys(row["memory"] for row in rows))


def by_seed(rows: Sequence[dict[str, Any]], memory: str, what: str, name: str) -> dict[int, float]:
    """Training seed -> score."""
    return {row["seed"]: score(row, what, name) for row in rows if row["memory"] == memory}


def compare(rows: Sequence[dict[str, Any]], ours: str, theirs: str, what: str, name: str) -> dict[str, Any]:
    """Mean difference over the training seeds that both have, Student's 95 % interval and p; None for one seed."""
    from scipy.stats import t

    a, b = by_seed(rows, ours, what, name), by_seed(rows, theirs, what, name)
    seeds = sorted(a.keys() & b.keys())
    differences = np.array([a[seed] - b[seed] for seed in seeds])
    result: dict[str, Any] = {"value": float(differences.mean()), "seeds": len(seeds), "interval95": None, "p": None}
    if len(seeds) > 1:
        error = max(float(differences.std(ddof=1)) / math.sqrt(len(seeds)), 1e-12)
        half = float(t.ppf(1 - (1 - LEVEL) / 2, len(seeds) - 1)) * error
        result["interval95"] = [result["value"] - half, result["value"] + half]
        result["p"] = float(2 * t.sf(abs(result["value"]) / error, len(seeds) - 1))
    return result


def holm(values: Sequence[float]) -> list[float]:
    """p values after Holm (1979)."""
    adjusted, largest = [0.0] * len(values), 0.0
    for rank, k in enumerate(np.argsort(values)):
        largest = max(largest, min(1.0, (len(values) - rank) * values[k]))
        adjusted[k] = largest
    return adjusted


def primary(rows: Sequence[dict[str, Any]], experiment: Experiment = CARRACING) -> Iterator[str]:
    """The registered comparisons, as Markdown."""
    there = {*arms_of(rows)}
    pairs = [(*where, rival) for where in PRIMARY for rival in RIVALS if {OURS, rival} <= there]
    results = [compare(rows, OURS, rival, what, name) for what, name, rival in pairs]
    known = [result["p"] for result in results]
    adjusted = holm(known) if known and None not in known else [None] * len(known)
    yield from ("| on | difference | mean [95 % over training seeds] | seeds | p | p after Holm |", "|---" * 6 + "|")
    for (what, name, rival), result, p in zip(pairs, results, adjusted, strict=True):
        shown = "| - | - |" if p is None else f"| {result['p']:.3g} | {p:.3g} |"
        yield f"| {what}, {name} | {OURS} - {rival} | {between(result, what, experiment)} | {result['seeds']} {shown}"


def between(result: dict[str, Any], what: str, experiment: Experiment) -> str:
    """A difference with its interval."""
    places = experiment.decimals(what)
    if result["interval95"] is None:
        return f"{result['value']:+{places}}"
    low, high = result["interval95"]
    return f"{result['value']:+{places}} [{low:+{places}}, {high:+{places}}]"


def tables(rows: Sequence[dict[str, Any]], experiment: Experiment = CARRACING) -> list[str]:
    """Markdown: the registered comparisons, then every arm's score: mean and standard deviation over seeds."""
    names = arms_of(rows)
    lines = [*primary(rows, experiment), ""]
    for what, columns in (("laps", list(experiment.laps)), ("events", list(EVENTS))):
        lines += [
            f"| {what} | {' | '.join(columns)} | seeds | parameters | seconds |",
            "|---" * (len(columns) + 4) + "|",
        ]
        for name in names:
            of = [row for row in rows if row["memory"] == name]
            cells = []
            for column in columns:
                values = summary([score(row, what, column) for row in of])
                places = experiment.decimals(what)
                spread = "" if values["std"] is None else f" +- {values['std']:{places}}"
                cells.append(f"{values['mean']:{places}}{spread}")
            seconds = np.mean([row["seconds"] for row in of])
            lines += [f"| {name} | {' | '.join(cells)} | {len(of)} | {of[0]['parameters']:,} | {seconds:.0f} |"]
        lines += [""]
    return lines


def less(rows: Sequence[dict[str, Any]], theirs: str, experiment: Experiment = CARRACING) -> Iterator[str]:
    """Markdown: each arm less ``theirs`` on everything that is judged, bold where the interval leaves out zero; as many
    comparisons as cells, without a correction for that.
    """
    columns = [("laps", name) for name in experiment.laps] + [("events", name) for name in EVENTS]
    heads = [f"{what}, {name}" if what == "laps" else name for what, name in columns]
    yield from (f"| less `{theirs}` | {' | '.join(heads)} | seeds |", "|---" * (len(columns) + 2) + "|")
    for ours in [name for name in arms_of(rows) if name != theirs]:
        results = [compare(rows, ours, theirs, what, name) for what, name in columns]
        cells = [cell(result, what, experiment) for (what, _), result in zip(columns, results, strict=True)]
        yield f"| {ours} | {' | '.join(cells)} | {results[0]['seeds']} |"


def cell(result: dict[str, Any], what: str, experiment: Experiment) -> str:
    """A difference with its interval, bold where that leaves out zero."""
    places, interval = experiment.decimals(what), result["interval95"]
    mean = f"{result['value']:+{places}}"
    if interval is None:
        return mean
    low, high = interval
    return f"{mean if low <= 0 <= high else f'**{mean}**'} [{low:{places}}, {high:{places}}]"
