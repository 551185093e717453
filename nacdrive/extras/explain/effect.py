"""Which part decides how often: effects of muting each part alone, over a recording."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from nacdrive.common.paths import shipped
from nacdrive.common.statistics import proportion
from nacdrive.common.table import markdown
from nacdrive.datasets.recording import Recording
from nacdrive.models.effects import Effects
from nacdrive.models.policy import Policy

COLOURS = {"head": "#0064b0", "frame": "#b96a00", "region": "#2e7d4f", "time": "#566473"}
SAMPLED_EVERY = 10


@dataclass(frozen=True)
class PartCount:
    """What muting one part alone did over many decisions."""

    kind: str
    name: str
    measured: int
    """Decisions in which the part was there."""
    decides: int
    """Of those, how many it changes."""
    first: int
    """Of those, in how many no other part changes more."""
    mean: float
    """Mean change of the probability of what was chosen, or of wheel and pedal."""


def measure_recording(policy: Policy, recording: Recording, every: int = 1) -> Iterable[Effects]:
    """The effects of every ``every``-th decision on a recording's frames."""
    meter = policy.meter()
    for number in range(len(recording)):
        episode = recording.load(number)
        policy.reset()
        new = episode.is_new
        for i, (frame, t_s) in enumerate(zip(episode.decoded()[new], episode.taken_s[new], strict=True)):
            policy.step(frame, float(t_s))
            if i % every == 0:
                yield meter.measure(policy.last_decision())


def count_parts(measured: Sequence[Effects]) -> list[PartCount]:
    """Every part, those that decide most often first."""
    seen: dict[tuple[str, str], list[tuple[bool, bool, float]]] = {}
    for one in measured:
        order, changes, deciding = one.order(), one.changes(), one.decides()
        for i, part in enumerate(one.parts):
            name = f"frame {part.index} back" if part.kind == "frame" else part.name
            seen.setdefault((part.kind, name), []).append((bool(deciding[i]), i == order[0], float(changes[i])))
    counts = []
    for (kind, name), rows in seen.items():
        decides, first, change = zip(*rows, strict=True)
        counts.append(PartCount(kind, name, len(rows), sum(decides), sum(first), float(np.mean(change))))
    return sorted(counts, key=lambda one: (-one.decides / one.measured, -one.mean))


def strongest_head(policy: Policy) -> int:
    """The head, from 0, whose muting changes most on the recorded laps of its task; the first where there are none."""
    folder = shipped("recordings") / f"{policy.task}-sample"
    if not folder.is_dir():
        return 0
    counts = count_parts(list(measure_recording(policy, Recording.open(folder), SAMPLED_EVERY)))
    heads = [one for one in counts if one.kind == "head"]
    return int(max(heads, key=lambda one: one.mean).name.split()[1]) - 1 if heads else 0


def report(measured: Sequence[Effects]) -> str:
    """A table for people."""
    counts = count_parts(measured)
    some = sum(bool(one.decides().any()) for one in measured)
    header = ["muted alone", "changes the decision", "95 %", "changes most", "mean change"]
    rows = []
    for one in counts:
        low, high = proportion(one.decides, one.measured)
        share = f"{one.decides / one.measured:.1%}"
        rows.append([one.name, share, f"{low:.1%} to {high:.1%}", f"{one.first / one.measured:.1%}", f"{one.mean:.3f}"])
    lines = markdown(header, rows, ["---", *["---:"] * 4])
    lines += ["", f"In {some} of {len(measured)} decisions some part alone changes the decision."]
    return "\n".join([*lines, measured[0].missing] if measured[0].missing else lines)


def effect_figure(measured: Sequence[Effects], title: str, shown: int = 24) -> Figure:
    """Bars: how often muting each part alone changes the decision, with 95 % intervals."""
    counts = count_parts(measured)[:shown]
    figure = Figure(figsize=(8, 0.26 * len(counts) + 1.4), layout="constrained")
    axis = figure.subplots()
    places = np.arange(len(counts))
    shares = np.array([one.decides / one.measured for one in counts])
    spread = np.clip(np.abs(np.array([proportion(one.decides, one.measured) for one in counts]).T - shares), 0, None)
    axis.barh(places, 100 * shares, xerr=100 * spread, color=[COLOURS[one.kind] for one in counts], ecolor="#566473")
    axis.set_yticks(places, [one.name for one in counts], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel(f"% of {len(measured)} decisions that are others when the part alone is muted")
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_title(title, fontsize=11)
    return figure
