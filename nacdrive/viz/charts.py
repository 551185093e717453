"""Charts of an evaluation as inline SVG: colours come from the page's style sheet, so they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

Row = Mapping[str, Any]
"""Result of an episode, as in ``metrics.json``."""

WIDTH = 760
LEFT, RIGHT = 84, 16


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round numbers that span ``low`` .. ``high``."""
    span = max(high - low, 1e-9)
    raw = span / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [k * step for k in range(first, last + 1)]


class Scale:
    """Maps values to pixels."""

    def __init__(self, marks: Sequence[float], start: float, end: float) -> None:
        self.marks = list(marks)
        self._start, self._per = start, (end - start) / (marks[-1] - marks[0])

    def __call__(self, value: float) -> float:
        """The pixel of ``value``."""
        return round(self._start + (value - self.marks[0]) * self._per, 1)


def frame(height: float, label: str, body: Sequence[str]) -> str:
    """An SVG that scales with the page."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(label)}" '
        f'preserveAspectRatio="xMinYMin meet">{"".join(body)}</svg>'
    )


def text(x: float, y: float, value: str, anchor: str = "middle") -> str:
    """A label."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(value)}</text>'


def by_track(rows: Sequence[Row], expert_rows: Sequence[Row]) -> str:
    """One line per track: the policy's return as a dot, the expert's as a ring, sorted by the policy's."""
    experts = {row["seed"]: row["episode_return"] for row in expert_rows}
    ranked = sorted(rows, key=lambda row: row["episode_return"], reverse=True)
    pitch = min(20.0, max(5.0, 900 / len(ranked)))
    top, bottom = 8.0, 8.0 + pitch * len(ranked)
    returns = [row["episode_return"] for row in ranked] + list(experts.values())
    x = Scale(ticks(min(0.0, *returns), max(returns)), LEFT, WIDTH - RIGHT - 12)
    body = [
        f'<path class="grid" d="M{x(m):g} {top:g}V{bottom:g}"/>{text(x(m), bottom + 18, f"{m:g}")}' for m in x.marks
    ]
    for k, row in enumerate(ranked):
        y, own = top + pitch * (k + 0.5), row["episode_return"]
        expert = experts.get(row["seed"])
        said = f"track {row['seed']}: return {own:.1f}, {row['ending']}"
        marks = ""
        if expert is not None:
            said += f"; expert {expert:.1f}"
            marks += f'<path class="gap" d="M{x(own):g} {y:g}H{x(expert):g}"/>'
            marks += f'<circle class="ring" cx="{x(expert):g}" cy="{y:g}" r="4"/>'
        marks += f'<circle class="dot" cx="{x(own):g}" cy="{y:g}" r="4"/>'
        if pitch >= 12:
            marks += text(LEFT - 10, y + 4, str(row["seed"]), "end")
        body.append(f"<g><title>{escape(said)}</title>{marks}</g>")
    return frame(bottom + 28, "Return on every track", body)


def over_time(rows: Sequence[Row], expert_rows: Sequence[Row]) -> str:
    """Return against simulated seconds: a thin line per episode, thick means."""
    curves = [row["curve"] for row in rows if row["curve"]]
    expert_curves = [row["curve"] for row in expert_rows if row["curve"]]
    points = [point for curve in curves + expert_curves for point in curve]
    if not points:
        return ""
    top, bottom = 8.0, 268.0
    x = Scale(ticks(0, max(p[0] for p in points)), LEFT, WIDTH - RIGHT - 12)
    y = Scale(ticks(min(0.0, *(p[1] for p in points)), max(p[1] for p in points), 5), bottom, top)
    body = [
        f'<path class="grid" d="M{LEFT} {y(m):g}H{WIDTH - RIGHT}"/>{text(LEFT - 10, y(m) + 4, f"{m:g}", "end")}'
        for m in y.marks
    ]
    body += [text(x(m), bottom + 18, f"{m:g} s") for m in x.marks]
    body += [f'<path class="thin" d="{path(curve, x, y)}"/>' for curve in curves]
    if expert_curves:
        body.append(f'<path class="mean-expert" d="{path(mean_curve(expert_curves), x, y)}"/>')
    body.append(f'<path class="mean" d="{path(mean_curve(curves), x, y)}"/>')
    return frame(bottom + 28, "Return over time", body)


def path(curve: Sequence[Sequence[float]], x: Scale, y: Scale) -> str:
    """The ``d`` of a polyline."""
    return "M" + "L".join(f"{x(t):g} {y(value):g}" for t, value in curve)


def mean_curve(curves: Sequence[Sequence[Sequence[float]]]) -> list[list[float]]:
    """Mean of curves that end at different times; an ended episode keeps its return."""
    end = max(curve[-1][0] for curve in curves)
    times = np.linspace(0, end, 120)
    lines = [np.interp(times, [p[0] for p in curve], [p[1] for p in curve]) for curve in curves]
    return [[float(t), float(v)] for t, v in zip(times, np.mean(lines, axis=0), strict=True)]
