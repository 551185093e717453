"""Charts of ``report.html`` as SVG text: returns track by track, return over time, the line of a drive."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.datasets.episode import Episode

Row = Mapping[str, Any]
"""Result of an episode, as in ``metrics.json``."""

WIDTH = 760
LEFT, RIGHT = 96, 16


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round numbers that span ``low`` .. ``high``, at least two."""
    span = high - low if high > low else max(abs(low), 1.0)
    raw = span / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
    first = math.floor(low / step)
    return [k * step for k in range(first, max(math.ceil(high / step), first + 1) + 1)]


class Scale:
    """Maps values to pixels."""

    def __init__(self, marks: Sequence[float], start: float, end: float) -> None:
        self.marks = list(marks)
        self._start, self._per = start, (end - start) / (marks[-1] - marks[0])

    def __call__(self, value: float) -> float:
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


def track_of(row: Row) -> tuple[str, int]:
    """What a drive of the policy and one of the expert have in common: the track's name and the seed."""
    return str(row.get("track", "")), int(row["seed"])


def name_of(row: Row) -> str:
    """A track for people."""
    return f"{row.get('track', '')} {row['seed']}".lstrip()


def by_track(rows: Sequence[Row], expert_rows: Sequence[Row]) -> str:
    """One line per track: the policy's return as a dot, the expert's as a ring, sorted by the policy's.

    The axis spans what there is, so that differences are seen; the report says where it begins.
    """
    experts = {track_of(row): row["episode_return"] for row in expert_rows}
    ranked = sorted(rows, key=lambda row: row["episode_return"], reverse=True)
    pitch = min(20.0, max(5.0, 900 / len(ranked)))
    top, bottom = 8.0, 8.0 + pitch * len(ranked)
    x = Scale(return_marks(rows, expert_rows), LEFT, WIDTH - RIGHT - 12)
    body = [
        f'<path class="grid" d="M{x(m):g} {top:g}V{bottom:g}"/>{text(x(m), bottom + 18, f"{m:g}")}' for m in x.marks
    ]
    for k, row in enumerate(ranked):
        y, own = top + pitch * (k + 0.5), row["episode_return"]
        expert = experts.get(track_of(row))
        caption = f"track {name_of(row)}: return {own:.1f}, {row['ending']}"
        marks = ""
        if expert is not None:
            caption += f"; expert {expert:.1f}"
            marks += f'<path class="gap" d="M{x(own):g} {y:g}H{x(expert):g}"/>'
            marks += f'<circle class="ring" cx="{x(expert):g}" cy="{y:g}" r="4"/>'
        marks += f'<circle class="dot" cx="{x(own):g}" cy="{y:g}" r="4"/>'
        if pitch >= 12:
            marks += text(LEFT - 10, y + 4, name_of(row), "end")
        body.append(f"<g><title>{escape(caption)}</title>{marks}</g>")
    return frame(bottom + 28, "Return on every track", body)


def return_marks(rows: Sequence[Row], expert_rows: Sequence[Row]) -> list[float]:
    """Marks of the axis of ``by_track``."""
    returns = [row["episode_return"] for row in (*rows, *expert_rows)]
    middle, half = (min(returns) + max(returns)) / 2, max((max(returns) - min(returns)) / 2, 0.5)
    return ticks(middle - half, middle + half)


def over_time(rows: Sequence[Row], expert_rows: Sequence[Row]) -> str:
    """Return against simulated seconds, less the expert's on the same track at the same time where one drove there.

    A thin line per episode, a thick one for their mean; an episode that has ended keeps its return.
    """
    experts = {track_of(row): row["curve"] for row in expert_rows if row["curve"]}
    driven = [row for row in rows if row["curve"] and (not experts or track_of(row) in experts)]
    if not driven:
        return ""
    end = max(curve[-1][0] for curve in [*(row["curve"] for row in driven), *experts.values()])
    times = np.linspace(0, end, 160)
    lines = np.stack([held(row["curve"], times) for row in driven])
    if experts:
        lines = lines - np.stack([held(experts[track_of(row)], times) for row in driven])
    top, bottom = 8.0, 268.0
    x = Scale(ticks(0, float(end)), LEFT, WIDTH - RIGHT - 12)
    y = Scale(ticks(min(0.0, float(lines.min())), max(0.0, float(lines.max())), 5), bottom, top)
    body = [f'<path class="grid" d="M{LEFT} {y(m):g}H{WIDTH - RIGHT}"/>' for m in y.marks]
    body += [text(LEFT - 10, y(m) + 4, f"{m:+g}" if experts and m else f"{m:g}", "end") for m in y.marks]
    body += [text(x(m), bottom + 18, f"{m:g} s") for m in x.marks]
    for row, line in zip(driven, lines, strict=True):
        points = path(zip(times, line, strict=True), x, y)
        body.append(f'<path class="thin" d="{points}"><title>track {escape(name_of(row))}</title></path>')
    if experts:
        body.append(f'<path class="mean-expert" d="M{LEFT} {y(0.0):g}H{WIDTH - RIGHT}"/>')
    body.append(f'<path class="mean" d="{path(zip(times, lines.mean(axis=0), strict=True), x, y)}"/>')
    return frame(bottom + 28, "Return over time" + (", less the expert's" if experts else ""), body)


def held(curve: Sequence[Sequence[float]], times: NDArray[np.float64]) -> NDArray[np.float64]:
    """A curve of [seconds, return] at other times; after its end its last value."""
    return np.interp(times, [p[0] for p in curve], [p[1] for p in curve])


def path(curve: Iterable[Sequence[float]], x: Scale, y: Scale) -> str:
    """The ``d`` of a polyline."""
    return "M" + "L".join(f"{x(t):g} {y(value):g}" for t, value in curve)


MAP_WIDTH, MAP_HEIGHT, MARGIN = 300.0, 190.0, 14.0
MOST_POINTS = 500
SECOND_S, STARTING_S = 1.0, 4.0
APART = 0.1
"""Of full lock: steering further apart is another decision, as on the page's map."""


def worst_moment(episode: Episode) -> tuple[float, float]:
    """Time in the middle of the second that brought least reward, and that reward; the start is left out."""
    t_s, reward = episode.t_s - episode.t_s[0], episode.reward.astype(np.float64)
    total = np.concatenate([[0.0], np.cumsum(reward)])
    sums = total[np.searchsorted(t_s, t_s + SECOND_S)] - total[:-1]
    # A last second that is cut short, or the start, from which a car must first get going, would always be the worst.
    judged = (t_s >= STARTING_S) & (t_s <= t_s[-1] - SECOND_S)
    # Where the field was left, all of the loss comes with the last frame.
    if reward[-1] < sums[judged].min(initial=0.0):
        return float(episode.t_s[-1]), float(reward[-1])
    if not judged.any():
        return float(episode.t_s[0]), float(sums[0])
    i = int(np.flatnonzero(judged)[np.argmin(sums[judged])])
    return float(episode.t_s[i]) + SECOND_S / 2, float(sums[i])


def drive_map(episode: Episode, at_s: float, label: str) -> str:
    """The driven line from above, wide where the expert would have done something else, a ring at ``at_s``; "" where
    the recording does not say where the car was."""
    if episode.x_m is None or episode.y_m is None:
        return ""
    x_m, y_m = episode.x_m.astype(float), episode.y_m.astype(float)
    there = np.flatnonzero(np.isfinite(x_m) & np.isfinite(y_m))
    if len(there) < 2:
        return ""
    kept = there[:: -(-len(there) // MOST_POINTS)]
    left, right, low, high = x_m[there].min(), x_m[there].max(), y_m[there].min(), y_m[there].max()
    scale = min((MAP_WIDTH - 2 * MARGIN) / max(right - left, 20.0), (MAP_HEIGHT - 2 * MARGIN) / max(high - low, 20.0))

    def place(i: int) -> str:
        x = MAP_WIDTH / 2 + (x_m[i] - (left + right) / 2) * scale
        return f"{x:.1f} {MAP_HEIGHT / 2 - (y_m[i] - (low + high) / 2) * scale:.1f}"

    other = differs(episode)
    parts = "".join(f"M{place(a)}L{place(b)}" for a, b in pairwise(kept) if bool(other[a : max(b, a + 1)].any()))
    worst = place(int(there[np.argmin(np.abs(episode.t_s[there] - at_s))])).split()
    start = place(int(there[0])).split()
    metres = next(m for m in (10, 20, 50, 100, 200, 500, 1000, 10**9) if m * scale > 30)
    body = [
        f'<path class="way" d="M{"L".join(place(i) for i in kept)}"/>',
        f'<path class="other" d="{parts}"/>' if parts else "",
        f'<circle class="start" cx="{start[0]}" cy="{start[1]}" r="3.5"><title>start</title></circle>',
        f'<circle class="worst" cx="{worst[0]}" cy="{worst[1]}" r="8"><title>{at_s:.1f} s</title></circle>',
        f'<path class="rule" d="M4 {MAP_HEIGHT - 4:g}h{metres * scale:.1f}"/>',
        text(4, MAP_HEIGHT - 8, f"{metres} m", "start"),
    ]
    return (
        f'<svg class="map" viewBox="0 0 {MAP_WIDTH:g} {MAP_HEIGHT:g}" role="img" aria-label="{escape(label)}">'
        f"{''.join(body)}</svg>"
    )


def differs(episode: Episode) -> NDArray[np.bool_]:
    """[N] whether the expert that rode along would have done something else."""
    if episode.expert_steering is not None:
        return np.asarray(np.abs(episode.expert_steering - episode.steering) >= APART)
    return np.asarray((episode.expert_choice >= 0) & (episode.choice >= 0) & (episode.expert_choice != episode.choice))
