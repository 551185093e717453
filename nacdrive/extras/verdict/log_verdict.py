"""A guess from a recorded drive whether a policy that never saw it will drive there; no drive has checked it.

A person's steering is a poor measure: keyboards write pulses, and most rows are 0. So errors are set beside those of
always steering 0 and of always steering the mean, curves are told apart, and above all it is looked at whether the side
cameras' pictures, which stand 0.8 m beside the middle, make the policy steer back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nacdrive.common.errors import UserError
from nacdrive.common.statistics import paired_difference, summary
from nacdrive.datasets.udacity_log import LOG
from nacdrive.models import Policy
from nacdrive.tasks.sample import Sample
from nacdrive.tasks.splits import blocks_of, slice_sample
from nacdrive.tasks.udacity import drive_sample, drives_in

Errors = dict[str, float]
"""``mse`` and ``mae`` of one block, and the same of predicting zero or a mean."""
CURVE = 0.1
"""Steering from which on a row counts as in a curve."""
LONGEST_LAG_S = 1.0
SIDES = ("left", "right")
LEAST_FOR_LIKELY, LEAST_FOR_UNCLEAR = 0.99, 0.95
"""Share of the moments in which the policy steers further to the right for the left camera's picture than for the right
one's. The real lake track, where policies lap, gave 0.99 to 1.00 in four people's drives."""
MOST_BIAS_FOR_LIKELY, MOST_BIAS_FOR_UNCLEAR = 0.10, 0.15
"""Mean steering error, to either side."""
LEAST_CORRELATION = 0.1
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Drive:
    """One drive, as a person and as the policy steered it; all arrays have an entry per picture."""

    t: Array
    """Seconds."""
    target: Array
    """The person's steering."""
    steering: Array
    """The policy's."""
    sides: Mapping[str, Array]
    """The policy's on the side cameras' pictures; without side cameras empty."""
    blocks: Sequence[slice]
    """Its blocks of about 8 s."""


def judge_logs(policy: Policy, folders: Sequence[Path]) -> dict[str, Any]:
    """Errors over everything, with 95 % intervals over blocks of 8 s, and a verdict for each track, by name."""
    drives = drives_by_track(policy, folders)
    every = [drive for group in drives.values() for drive in group]
    rows = [error_row(drive, block, None) for drive in every for block in drive.blocks]
    return {
        "frames": sum(len(drive.t) for drive in every),
        "blocks": len(rows),
        **summarise(rows),
        "verdicts": {track: verdict(group) for track, group in drives.items()},
    }


def drives_by_track(policy: Policy, folders: Sequence[Path]) -> dict[str, list[Drive]]:
    """The policy's steering on every drive, under its track's name (where none is noted its folder's, or path)."""
    drives: dict[str, list[Drive]] = {}
    seen = set()
    places = {folder: folder.parent if folder.name == LOG else folder for folder in folders}
    alike = Counter(place.name for place in {place.absolute() for place in places.values()})
    for folder, place in places.items():
        name = place.name if alike[place.name] == 1 else str(place)
        for episode in drives_in(folder):
            if episode.fingerprint in seen:
                continue
            seen.add(episode.fingerprint)
            # Random roads belong together: each is too short for a verdict of its own.
            track = str(episode.meta["track"]).partition(":")[0] if "track" in episode.meta else name
            drives.setdefault(track, []).append(drive_of(policy, drive_sample(episode, folder.name, policy.config)))
    if not drives:
        raise UserError(f"there is no drive in {', '.join(map(str, folders))}: check --data.")
    return drives


def drive_of(policy: Policy, sample: Sample) -> Drive:
    """One drive, steered by ``policy``."""
    fields = sample.fields

    def steered(camera: str) -> Array:
        seen = Sample(sample.name, {"frames": fields[camera], "t": fields["t"], "target": fields["target"]})
        return predict(policy, seen).numpy().astype(np.float64)

    return Drive(
        t=fields["t"].numpy().astype(np.float64),
        target=fields["target"].numpy().astype(np.float64),
        steering=steered("frames"),
        sides={side: steered(side) for side in SIDES} if all(side in fields for side in SIDES) else {},
        blocks=[slice(block.start, block.stop) for block in blocks_of([sample])],
    )


def error_row(drive: Drive, block: slice, mean: float | None, curves: bool = False) -> dict[str, float]:
    """Errors in one block, of its curves alone if asked; empty where there are none."""
    target, steering = drive.target[block], drive.steering[block]
    if curves:
        bend = np.abs(target) > CURVE
        target, steering = target[bend], steering[bend]
    return errors(torch.from_numpy(steering), torch.from_numpy(target), mean) if len(target) else {}


def verdict(drives: Sequence[Drive]) -> dict[str, Any]:
    """All numbers of one track's drives, and what they mean."""
    target = np.concatenate([drive.target for drive in drives])
    steering, mean = np.concatenate([drive.steering for drive in drives]), float(target.mean())
    pairs = [(drive, block) for drive in drives for block in drive.blocks]
    rows = [error_row(drive, block, mean) for drive, block in pairs]
    bends = [row for drive, block in pairs if (row := error_row(drive, block, mean, curves=True))]
    numbers: dict[str, Any] = {
        "frames": len(target),
        "blocks": len(rows),
        **against_constants(rows),
        "curves": {"frames": int((np.abs(target) > CURVE).sum()), **against_constants(bends)} if bends else None,
        "bias": summary([float((drive.steering[b] - drive.target[b]).mean()) for drive, b in pairs]),
        "correlation": correlation(steering, target),
        "lag_s": lag(drives),
        "sides": sides(drives),
    }
    judged, reasons = judgement(numbers)
    return {**numbers, "transfer": judged, "reasons": reasons}


def against_constants(rows: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Errors with their intervals, and how far they are above those of two constants, in pairs of blocks."""
    over = {
        f"{measure}_over_{constant}": paired_difference(
            [row[measure] for row in rows], [row[f"{constant}_{measure}"] for row in rows]
        )
        for measure in ("mse", "mae")
        for constant in ("zero", "mean")
    }
    return {**summarise(rows), **over}


def correlation(a: Array, b: Array) -> float | None:
    """Of two series; None where one of them stands still."""
    return float(np.corrcoef(a, b)[0, 1]) if len(a) > 2 and a.std() > 1e-6 and b.std() > 1e-6 else None


def lag(drives: Sequence[Drive]) -> float | None:
    """Seconds by which the policy steers later than the person, where both are most alike.

    None where they are alike at no lag up to a second.
    """
    gap = float(np.median(np.concatenate([np.diff(drive.t) for drive in drives] or [np.zeros(1)])))
    if not gap > 0:
        return None
    most = round(LONGEST_LAG_S / gap)
    best, at = LEAST_CORRELATION, None
    even = []
    for drive in drives:
        t = np.arange(drive.t[0], drive.t[-1], gap)
        even.append((np.interp(t, drive.t, drive.steering), np.interp(t, drive.t, drive.target)))
    for shift in range(-most, most + 1):
        pieces = [
            (own[max(0, shift) : len(own) + min(0, shift)], other[max(0, -shift) : len(other) - max(0, shift)])
            for own, other in even
            if len(own) > most + 2
        ]
        if not pieces:
            return None
        value = correlation(*(np.concatenate(part) for part in zip(*pieces, strict=True)))
        if value is not None and value > best:
            best, at = value, shift * gap
    return at


def sides(drives: Sequence[Drive]) -> dict[str, Any] | None:
    """What the side cameras' pictures add to the steering, and how often the two are in the right order."""
    pairs = [(drive, block) for drive in drives if drive.sides for block in drive.blocks]
    if not pairs:
        return None
    added = {
        side: summary([float((drive.sides[side][b] - drive.steering[b]).mean()) for drive, b in pairs])
        for side in SIDES
    }
    ordered = [float((drive.sides["left"][b] > drive.sides["right"][b]).mean()) for drive, b in pairs]
    return {**added, "steered_back": summary(ordered)}


def judgement(numbers: Mapping[str, Any]) -> tuple[Literal["likely", "unlikely", "not clear"], list[str]]:
    """Whether the policy will drive there, and the reasons, each a part of a sentence."""
    bias, sides_, over = numbers["bias"]["mean"], numbers["sides"], numbers["mse_over_mean"]
    low, high = over["interval95"] or (over["value"],) * 2
    bad, good, fair = list[str](), list[str](), list[str]()
    if sides_ is not None:
        share = sides_["steered_back"]["mean"]
        reason = f"it steers back from the side cameras' pictures in {share:.1%} of the cases"
        (good if share >= LEAST_FOR_LIKELY else fair if share >= LEAST_FOR_UNCLEAR else bad).append(reason)
    else:
        fair.append("there are no side cameras, which would tell most")
        correlated = numbers["correlation"]
        if low > 0:
            bad.append("its error is above that of a constant")
        elif correlated is None or correlated < LEAST_CORRELATION:
            bad.append("its steering has nothing to do with the person's")
        elif high < 0:
            good.append("its error is below that of a constant, with certainty")
    reason = f"it steers {abs(bias):.2f} too far to the {'right' if bias > 0 else 'left'}"
    if abs(bias) > MOST_BIAS_FOR_UNCLEAR:
        bad.append(reason)
    elif abs(bias) > MOST_BIAS_FOR_LIKELY:
        fair.append(reason)
    if bad:
        return "unlikely", bad + fair
    return ("likely", good + fair) if good and abs(bias) <= MOST_BIAS_FOR_LIKELY else ("not clear", fair + good)


def in_words(judged: Mapping[str, Any]) -> list[str]:
    """The verdicts in lines for the terminal."""
    lines = []
    for track, v in judged["verdicts"].items():
        lines += [
            f"{track}: a guess, which no drive has checked: transfer {v['transfer']}, for {'; '.join(v['reasons'])}.",
            f"  {v['frames']} pictures: {compared(v)}; bias {v['bias']['mean']:+.3f}{bounds(v['bias'])} (right is +)",
        ]
        if (c := v["curves"]) is not None:
            lines.append(f"  curves (|steering| > {CURVE:g}, {c['frames']} pictures): {compared(c)}")
        if (s := v["sides"]) is not None:
            lines.append(
                f"  side cameras: the left one's pictures add {s['left']['mean']:+.3f}, the right one's "
                f"{s['right']['mean']:+.3f}; in order in {s['steered_back']['mean']:.1%}"
            )
        alike = "no correlation" if v["correlation"] is None else f"correlation {v['correlation']:.2f}"
        timing = "" if v["lag_s"] is None else ", and in time"
        if v["lag_s"]:
            timing = f", and most alike {abs(v['lag_s']):.2f} s {'later' if v['lag_s'] > 0 else 'earlier'}"
        lines.append(f"  {alike} with the person's steering{timing}")
    return lines


def compared(v: Mapping[str, Any]) -> str:
    """Errors beside those of the constants."""
    over = [
        f"{v[f'mse_over_{constant}']['value']:+.4f}{bounds(v[f'mse_over_{constant}'])} over {name}"
        for constant, name in (("zero", "always 0"), ("mean", "always the mean"))
    ]
    return (
        f"MSE {v['mse']['mean']:.4f} ({', '.join(over)}), MAE {v['mae']['mean']:.4f} (0: {v['zero_mae']['mean']:.4f})"
    )


def bounds(numbers: Mapping[str, Any]) -> str:
    """A 95 % interval in brackets; nothing where there is none."""
    if numbers["interval95"] is None:
        return ""
    low, high = numbers["interval95"]
    return f" [{low:+.4f} to {high:+.4f}]"


def predict(policy: Policy, sample: Sample, piece: int = 256) -> Tensor:
    """Steering of ``policy`` at every frame of a drive, [N], clamped as when driving."""
    network, before = policy.network.eval(), policy.config.window - 1
    out = []
    with torch.inference_mode():
        for start in range(0, len(sample), piece):
            first = max(0, start - before)
            stretch = slice_sample(sample, first, start + piece).fields
            frames, t = (stretch[name][None].to(policy.device) for name in ("frames", "t"))
            out.append(network(frames, t)[0, start - first :, 0].float().clamp(-1, 1).cpu())
    return torch.cat(out)


def errors(steering: Tensor, target: Tensor, mean: float | None = None) -> Errors:
    """Errors of a block; ``mean`` is the one that a constant prediction would have known."""
    guesses = {"": steering, "zero_": torch.zeros_like(target)}
    if mean is not None:
        guesses["mean_"] = torch.full_like(target, mean)
    rows: Errors = {}
    for name, guess in guesses.items():
        rows[f"{name}mse"] = float((guess - target).square().mean())
        rows[f"{name}mae"] = float((guess - target).abs().mean())
    return rows


def summarise(rows: Sequence[Errors]) -> dict[str, Any]:
    """Mean and 95 % interval of each error over blocks."""
    return {name: summary([row[name] for row in rows]) for name in rows[0]}
