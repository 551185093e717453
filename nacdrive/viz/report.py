"""``report.html``: one page about an evaluation, readable from a disk, without anything from elsewhere."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from html import escape, unescape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from nacdrive.common.errors import UserError
from nacdrive.common.files import file_checksum, write_text
from nacdrive.common.paths import find_model
from nacdrive.datasets.manifest import DRIVES
from nacdrive.datasets.recording import Recording
from nacdrive.drivers.exported import AnyPolicy, load_any_policy
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.registry import env_spec, spec_of_source
from nacdrive.viz.recorded import recorded_ticks
from nacdrive.viz.report_charts import (
    by_track,
    differs,
    drive_map,
    name_of,
    over_time,
    return_marks,
    track_of,
    worst_moment,
)
from nacdrive.viz.trace import why_of

REPLAY = "http://127.0.0.1:8090/"
"""Where ``nacdrive replay`` serves its page if nobody says otherwise."""

EXPERT = "the expert on the same track"
BARS = 6
"""Of what muting each part of a decision alone changes, the longest."""
LEAST_REACH = 0.1
"""The longest bar stands for no less than this change of the wheel."""

PAGE = Path(__file__).with_suffix(".html")


def write_report(folder: Path, metrics: dict[str, Any]) -> None:
    """Write the page of the evaluation in ``folder``; ``metrics`` is the content of its ``metrics.json``."""
    write_text(folder / "report.html", page(metrics, folder))


def page(metrics: dict[str, Any], folder: Path | None = None) -> str:
    """The page as HTML; ``folder`` is that of the evaluation, whose kept drives give the maps."""
    rows, experts = metrics["episodes"], metrics["expert_episodes"]
    disturbance = CameraNoise(**metrics["model"]["disturbance"])
    through = f" Disturbance of its camera: {disturbance}." if disturbance.active else ""
    first, last = rows[0]["seed"], rows[-1]["seed"]
    about = {key: metrics["run"][key] for key in ("config", "versions", "machine")} | {"model": metrics["model"]}
    return Template(PAGE.read_text(encoding="utf-8")).substitute(
        title=escape(f"{metrics['model']['file']} on {len(rows)} track{'s' if len(rows) > 1 else ''}"),
        style=PAGE.with_suffix(".css").read_text(encoding="utf-8"),
        lead=lead(metrics),
        where=escape(f"{where(metrics)}, seeds {first} to {last}.{through}"),
        tiles=tiles(metrics) + failures(rows) + films(metrics, folder) + tracks(metrics),
        track_keys=keys(bool(experts), "the policy", EXPERT) + axis_note(rows, experts),
        by_track=by_track(rows, experts),
        less=", less the expert’s" if experts else "",
        time_keys=keys(bool(experts), "every episode of the policy, and their mean", EXPERT, dashed=True),
        over_time=over_time(rows, experts),
        table=table(rows, experts),
        command=escape(metrics["run"]["command"]),
        about=escape(json.dumps(about, indent=2)),
    )


def lead(metrics: dict[str, Any]) -> str:
    """What came of it in a sentence, and the best drive, moving."""
    share, films = metrics["expert_fraction"], list(metrics["films"].values())
    compared = "" if share is None else f", with {share['value']:.1%} of the return of its expert"
    done = f"a lap in {metrics['finished_laps']} of {len(metrics['episodes'])} drives"
    film = escape(films[-1]["file"], quote=True) if films else ""
    shown = f'<video class="lead" autoplay loop muted playsinline controls src="{film}"></video>' if film else ""
    return f'<p class="lead">{escape(metrics["model"]["file"])} finishes {done}{compared}.</p>{shown}'


def where(metrics: dict[str, Any]) -> str:
    """What was driven."""
    tracks = ", ".join(metrics.get("tracks", {}))
    return str(metrics["env"]) + (f" ({tracks})" if tracks else "")


def tracks(metrics: dict[str, Any]) -> str:
    """The environment's own numbers of each track, of the policy and of the expert."""
    columns = {f"{track}": numbers for track, numbers in metrics.get("tracks", {}).items()}
    columns |= {f"{track}, expert": numbers for track, numbers in metrics.get("expert_tracks", {}).items()}
    if not columns:
        return ""
    names = next(iter(columns.values()))
    rows = [[name.replace("_", " "), *(track_number(of[name]) for of in columns.values())] for name in names]
    return f"<h2>On each track</h2>{wide_table(['', *columns], rows, word=0)}"


def track_number(value: Any) -> str:
    """A count, or a mean or share with its interval."""
    if not isinstance(value, dict):
        return f"{value:.6g}"
    middle = f"{value['count']}" if "count" in value else f"{value['mean']:.3g}"
    interval = value["interval95"]
    return middle if interval is None else f"{middle} ({interval[0]:.3g} to {interval[1]:.3g})"


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
        (f"{metrics['finished_laps']} of {len(metrics['episodes'])}", "drives with a finished lap", ""),
        (f"{metrics['progress']:.1%}", "of a lap driven, on average", ""),
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


def axis_note(rows: Sequence[dict[str, Any]], expert_rows: Sequence[dict[str, Any]]) -> str:
    """Says so where the axis of returns does not begin at nothing."""
    first = return_marks(rows, expert_rows)[0]
    return f'<p class="dim">The axis begins at {first:g}, so that differences are seen.</p>' if first > 0 else ""


def films(metrics: dict[str, Any], folder: Path | None) -> str:
    """The videos, side by side, each with the map of its drive and its worst moment where the drive was kept."""
    entries: dict[str, dict[str, Any]] = metrics["films"]
    if not entries:
        return ""
    kept = kept_drives(folder)
    figures, linked = "", False
    policy = driven_by(metrics) if kept else None
    for name, entry in entries.items():
        file = escape(entry["file"], quote=True)
        caption = f"{name}: return {entry['episode_return']:.0f} on track {entry['seed']}"
        index = kept.index(entry["drive"]) if entry.get("drive") in kept else None
        moment = "" if index is None or folder is None else worst(folder, index, caption, file, policy)
        linked = linked or bool(moment)
        figures += (
            f'<figure><video controls muted preload="metadata" src="{file}#t=2"></video>'
            f'<figcaption>{escape(caption)} (<a href="{file}">mp4</a>)</figcaption>{moment}</figure>'
        )
    note = how_to_replay(metrics, folder) if linked and folder is not None else ""
    return f'<h2>Worst, median and best drive</h2><div class="films">{figures}</div>{note}'


def kept_drives(folder: Path | None) -> list[str]:
    """Names of the kept drives' files in the order in which ``nacdrive replay`` numbers them."""
    if folder is None or not (folder / DRIVES).is_dir():
        return []
    try:
        return [info.path.name for info in Recording.open(folder / DRIVES).episodes]
    except UserError:
        return []


def driven_by(metrics: dict[str, Any]) -> AnyPolicy | None:
    """The policy that was evaluated; None where it was none, or its file is not there or another by now."""
    config = metrics["run"].get("config")
    model = config.get("model") if isinstance(config, dict) else None
    try:
        path = find_model(model, env_spec(metrics["model"]["env"]).task) if model else None
        same = path is not None and file_checksum(path) == metrics["model"]["sha256"]
        return load_any_policy(path) if path is not None and same else None
    except (UserError, KeyError):
        return None


def worst(folder: Path, index: int, caption: str, film: str, policy: AnyPolicy | None = None) -> str:
    """Map of a kept drive, what was worst in it and why, and links to that moment: in the film, and in a replay."""
    episode = Recording.open(folder / DRIVES).load(index)
    at_s, lost = worst_moment(episode)
    ride = (episode.expert_choice >= 0).any() or episode.expert_steering is not None
    beside = f"; the expert would have done something else in {differs(episode).mean():.0%}" if ride else ""
    place = f"{REPLAY}#run=0&amp;ep={index + 1}&amp;t={at_s:.2f}"
    why, lap = "", film.removesuffix(".mp4") + ".html"
    there = (folder / unescape(lap)).is_file()
    sent = f', <a href="{lap}#ep=1&amp;t={at_s:.2f}">as a page to send</a>' if there else ""
    if policy is not None:
        ticks, spec = recorded_ticks(episode), spec_of_source(episode.source)
        step = int(np.searchsorted(episode.t_s, at_s))
        measured = why_of(policy, policy.meter(), ticks, step, spec.actions if spec is not None else ())
        why = f" {escape(measured['sentence'])}{bars(measured)}"
    return (
        drive_map(episode, at_s, f"Map of the drive: {caption}")
        + f"<figcaption>worst second: at {at_s:.1f} s (return {lost:+.1f}), in the "
        f'<a href="{film}#t={at_s:.1f}">film</a>, in the <a href="{place}">replay</a>{sent}{beside}.{why}</figcaption>'
    )


def bars(why: dict[str, Any]) -> str:
    """What muting each part alone changes, as of ``Effects.explain``."""
    rows = why["bars"][:BARS]
    reach = 1.0 if rows and rows[0]["text"].endswith("%") else max([LEAST_REACH, *(row["change"] for row in rows)])
    items = "".join(
        f"<li{' class=decides' if row['decides'] else ''}>{escape(row['name'])}<output>{escape(row['text'])}</output>"
        f'<i style="width:{100 * row["change"] / reach:.3g}%"></i></li>'
        for row in rows
    )
    return f'<ol class="parts" aria-label="What muting each part alone changes, the most first">{items}</ol>'


def how_to_replay(metrics: dict[str, Any], folder: Path) -> str:
    """What the marks on the maps are, and the command whose page the links lead to."""
    model = metrics["run"]["config"].get("model") if isinstance(metrics["run"].get("config"), dict) else None
    command = shlex.join(["nacdrive", "replay", str(folder), *(["--model", str(model)] if model else [])])
    return (
        '<p class="keys dim"><span><i class="key line"></i>driven</span><span><i class="key line other"></i>the expert '
        'would have done something else</span><span><i class="key bad"></i>the second that brought the least return '
        "(the first four aside)</span></p>"
        "<p>The links to a replay open while this runs:</p>"
        f'<pre tabindex="0">{escape(command)}</pre>'
    )


def keys(with_expert: bool, own: str, expert: str, *, dashed: bool = False) -> str:
    """The legend of a chart of dots and rings, or of lines where the expert's is ``dashed``."""
    line = " line" if dashed else ""
    made = f'<span><i class="key own{line}"></i>{escape(own)}</span>'
    if with_expert:
        made += f'<span><i class="key expert{line}"></i>{escape(expert)}</span>'
    return f'<p class="keys dim">{made}</p>'


def table(rows: Sequence[dict[str, Any]], expert_rows: Sequence[dict[str, Any]]) -> str:
    """Every episode."""
    experts = {track_of(row): row["episode_return"] for row in expert_rows}
    beside = ["expert"] if experts else []
    names = ["track", "return", *beside, "tiles", "seconds", "m/s", "wheels on grass", "decision ms", "end"]
    cells = [
        [
            name_of(row),
            f"{row['episode_return']:.1f}",
            *(f"{experts[track_of(row)]:.1f}" for _ in beside),
            f"{row['progress']:.1%}",
            f"{row['simulated_s']:.1f}",
            f"{row['mean_speed_mps']:.1f}",
            f"{row['wheels_off']:.1%}",
            f"{row['decision_ms_median']:.1f}",
            row["ending"],
        ]
        for row in rows
    ]
    return wide_table(names, cells, word=len(names) - 1)


def wide_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, word: int) -> str:
    """A table that scrolls where it is too wide; column ``word`` is of words."""

    def line(tag: str, texts: Sequence[str]) -> str:
        kinds = [' class="word"' if i == word else "" for i in range(len(texts))]
        return "".join(f"<{tag}{kind}>{escape(text)}</{tag}>" for kind, text in zip(kinds, texts, strict=True))

    body = "\n".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    made = f"<table><thead><tr>{line('th', head)}</tr></thead><tbody>\n{body}\n</tbody></table>"
    return f'<div class="wide" tabindex="0">{made}</div>'
