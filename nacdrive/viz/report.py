"""``report.html``: one page about an evaluation, readable from a disk, without anything from elsewhere."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from nacdrive.common.files import write_text
from nacdrive.envs.camera_noise import CameraNoise

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


STYLE = """
:root{color-scheme:light dark;--ground:#fff;--card:#f4f6f8;--text:#14181d;--dim:#59636e;--line:#d8dee4;
--own:#1f6fd0;--expert:#c46a00;--bad:#c4312b}
@media(prefers-color-scheme:dark){:root{--ground:#111418;--card:#1a1f25;--text:#e8ecf0;--dim:#949da8;--line:#2c323a;
--own:#5cc8ff;--expert:#ffb84d;--bad:#ff6b6b}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);font:16px/1.5 system-ui,sans-serif}
main{max-width:880px;margin:0 auto;padding:40px 24px 80px}
h1{font-size:28px;line-height:1.2;margin:0 0 4px}h2{font-size:18px;margin:44px 0 8px}
p{margin:8px 0;max-width:68ch}.dim,figcaption,th,dt{color:var(--dim)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:12px;margin:28px 0 0}
.tile{background:var(--card);border-radius:8px;padding:14px 16px}
.tile b{display:block;font-size:28px;line-height:1.2;font-weight:600}.tile span{color:var(--dim);font-size:14px}
svg{width:100%;height:auto;display:block;margin-top:12px}
svg text{fill:var(--dim);font:12px system-ui,sans-serif}
.grid{stroke:var(--line);fill:none}.gap{stroke:var(--line);stroke-width:2}.dot{fill:var(--own)}
.ring{fill:var(--ground);stroke:var(--expert);stroke-width:2}
.thin{fill:none;stroke:var(--own);opacity:.45}.mean{fill:none;stroke:var(--own);stroke-width:3}
.mean-expert{fill:none;stroke:var(--expert);stroke-width:2;stroke-dasharray:6 5}
.key{display:inline-block;width:10px;height:10px;border-radius:50%;margin:0 6px 0 0}
.key.own{background:var(--own)}.key.expert{border:2px solid var(--expert)}.keys span{margin-right:20px}
.films{display:grid;grid-template-columns:repeat(auto-fit,minmax(260px,1fr));gap:16px}
figure{margin:0}video{width:100%;border-radius:6px;background:#000;display:block}
figcaption{font-size:14px;margin-top:6px}a{color:var(--own)}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th,td{padding:5px 10px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{font-weight:500}td.word,th.word{text-align:left}.bad{color:var(--bad)}
details{margin-top:12px}summary{cursor:pointer}
pre{background:var(--card);padding:14px 16px;border-radius:8px;overflow-x:auto;font-size:13px}
"""


def write_report(path: Path, metrics: dict[str, Any]) -> None:
    """Write the page for ``metrics``, the content of ``metrics.json``."""
    write_text(path, page(metrics))


def page(metrics: dict[str, Any]) -> str:
    """The page as HTML."""
    rows, experts = metrics["episodes"], metrics["expert_episodes"]
    title = f"{metrics['model']['file']} on {len(rows)} track{'s' if len(rows) > 1 else ''}"
    disturbance = CameraNoise(**metrics["model"]["disturbance"])
    through = f" CameraNoise of its camera: {disturbance}." if disturbance.active else ""
    made = json.dumps(about(metrics), indent=2)
    first, last = rows[0]["seed"], rows[-1]["seed"]
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="dim">{escape(where(metrics))}, seeds {first} to {last}.{escape(through)}</p>',
        tiles(metrics),
        failures(rows),
        films(metrics["films"]),
        tracks(metrics),
        "<h2>Return on every track</h2>",
        keys(bool(experts), "the policy", "the expert on the same track"),
        by_track(rows, experts),
        "<h2>Return over time</h2>",
        keys(bool(experts), "the policy: every episode, and their mean", "the expert's mean"),
        over_time(rows, experts),
        "<h2>Episodes</h2>",
        table(rows, experts),
        "<h2>How this was made</h2>",
        f"<pre>{escape(metrics['run']['command'])}</pre>",
        "<p>The interval is a 95 % bootstrap interval of the mean over tracks; the share of the expert's return is the "
        "ratio of the two means over the same tracks, resampled in pairs. The numbers are in "
        '<a href="metrics.json">metrics.json</a>.</p>',
        f"<details><summary>Settings, versions, machine</summary><pre>{escape(made)}</pre></details>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><main>\n"
        + "\n".join(parts)
        + "\n</main></body></html>\n"
    )


def where(metrics: dict[str, Any]) -> str:
    """What was driven; results of older versions do not say it and are of CarRacing."""
    tracks = ", ".join(metrics.get("tracks", {}))
    return str(metrics.get("env", "CarRacing-v3")) + (f" ({tracks})" if tracks else "")


def tracks(metrics: dict[str, Any]) -> str:
    """The environment's own numbers of each track, of the policy and of the expert."""
    columns = {f"{track}": numbers for track, numbers in metrics.get("tracks", {}).items()}
    columns |= {f"{track}, expert": numbers for track, numbers in metrics.get("expert_tracks", {}).items()}
    if not columns:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = ""
    for name in next(iter(columns.values())):
        cells = "".join(f"<td>{escape(track_number(numbers[name]))}</td>" for numbers in columns.values())
        body += f'<tr><td class="word">{escape(name.replace("_", " "))}</td>{cells}</tr>\n'
    table = f'<table><thead><tr><th class="word"></th>{head}</tr></thead><tbody>\n{body}</tbody></table>'
    return f'<h2>On each track</h2><div class="wide">{table}</div>'


def track_number(value: Any) -> str:
    """A count, or a mean or share with its interval."""
    if not isinstance(value, dict):
        return f"{value:.6g}"
    middle = f"{value['count']}" if "count" in value else f"{value['mean']:.3g}"
    interval = value["interval95"]
    return middle if interval is None else f"{middle} ({interval[0]:.3g} to {interval[1]:.3g})"


def about(metrics: dict[str, Any]) -> dict[str, Any]:
    """What the page says about how it was made."""
    return {key: metrics["run"][key] for key in ("config", "versions", "machine")} | {"model": metrics["model"]}


def between(interval: Sequence[float] | None, form: str) -> str:
    """An interval in words."""
    return "" if interval is None else f"95 %: {interval[0]:{form}} to {interval[1]:{form}}"


def tiles(metrics: dict[str, Any]) -> str:
    """The numbers that are read first: value, name, and how sure or how far it goes."""
    own, expert, share = metrics["return"], metrics["expert_return"], metrics["expert_fraction"]
    cells = [(spread(own), "mean return", between(own["interval95"], ".0f"))]
    if share is not None:
        cells.append((f"{share['value']:.1%}", "of the expert's return", between(share["interval95"], ".1%")))
    if expert is not None:
        cells.append((spread(expert), "mean return of the expert", between(expert["interval95"], ".0f")))
    slowest = f"slowest 1 % of an episode: {metrics['decision_ms_p99']:.1f} ms"
    cells += [
        (f"{metrics['finished_laps']} of {len(metrics['episodes'])}", "laps finished", ""),
        (f"{metrics['tiles_visited']:.1%}", "of the road driven, on average", ""),
        (f"{metrics['decision_ms_median']:.1f} ms", "median decision", slowest),
    ]
    if metrics["expert_agreement"] is not None:
        cells.append((f"{metrics['expert_agreement']:.1%}", "same action as the expert riding along", ""))
    made = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}<br>{escape(more)}</span></div>'
        for value, name, more in cells
    )
    return f'<div class="tiles">{made}</div>'


def spread(numbers: dict[str, Any]) -> str:
    """Mean and standard deviation."""
    return f"{numbers['mean']:.0f}" + ("" if numbers["std"] is None else f" ± {numbers['std']:.0f}")


def failures(rows: Sequence[dict[str, Any]]) -> str:
    """What made the safety stop take over, if anything did."""
    failed = [row for row in rows if row["failure"]]
    if not failed:
        return ""
    items = "".join(f"<li>track {row['seed']}: {escape(row['failure'])}</li>" for row in failed)
    return f'<h2 class="bad">Safety stops: {len(failed)}</h2><ul>{items}</ul>'


def films(entries: dict[str, Any]) -> str:
    """The videos, side by side."""
    if not entries:
        return ""
    figures = ""
    for name, entry in entries.items():
        file = escape(entry["file"], quote=True)
        said = f"{name}: return {entry['episode_return']:.0f} on track {entry['seed']}"
        figures += (
            f'<figure><video controls muted preload="metadata" src="{file}"></video>'
            f'<figcaption>{escape(said)} (<a href="{file}">mp4</a>)</figcaption></figure>'
        )
    return f'<h2>Worst, median and best drive</h2><div class="films">{figures}</div>'


def keys(with_expert: bool, own: str, expert: str) -> str:
    """The legend of a chart."""
    made = f'<span><i class="key own"></i>{escape(own)}</span>'
    if with_expert:
        made += f'<span><i class="key expert"></i>{escape(expert)}</span>'
    return f'<p class="keys dim">{made}</p>'


def table(rows: Sequence[dict[str, Any]], expert_rows: Sequence[dict[str, Any]]) -> str:
    """Every episode."""
    experts = {row["seed"]: row["episode_return"] for row in expert_rows}
    names = [
        "track",
        "return",
        *(["expert"] if experts else []),
        "tiles",
        "seconds",
        "m/s",
        "wheels on grass",
        "decision ms",
        "end",
    ]
    head = "".join(f"<th{' class=word' if name == 'end' else ''}>{name}</th>" for name in names)
    body = ""
    for row in rows:
        cells = [str(row["seed"]), f"{row['episode_return']:.1f}"]
        cells += [f"{experts[row['seed']]:.1f}"] if experts else []
        cells += [f"{row['tiles_visited']:.1%}", f"{row['simulated_s']:.1f}", f"{row['mean_speed_mps']:.1f}"]
        cells += [f"{row['grass_share']:.1%}", f"{row['decision_ms_median']:.1f}"]
        made = "".join(f"<td>{cell}</td>" for cell in cells)
        body += f'<tr>{made}<td class="word">{escape(row["ending"])}</td></tr>\n'
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'
