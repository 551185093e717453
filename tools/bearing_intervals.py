"""How often the remaining life of ``nacdrive predict`` holds what it promises, on bearings a model never saw.

    python tools/bearing_intervals.py --data DIR [--model FILE] [--learnt Bearing1_1 ...]

DIR holds PRONOSTIA and XJTU-SY (see docs/data.md). Each bearing that the model did not learn from is asked at a hundred
moments that are spread evenly over its life; every bearing counts alike, and none is compared with its own life.
Printed are the share of true remaining lives in the 80 % interval, of all moments and of those with wear; the share
below it (a life told too long) and below half of its lower end (a look that comes too late); the factor by which half
of the medians miss; how wide the interval is, as a factor; and how long before the failure the vibration first was that
of a bearing close to the end. Intervals are 95 %, by bootstrap over bearings.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nacdrive.extras.bearings.challenge import QUESTIONS
from nacdrive.extras.bearings.life import predict_lives
from nacdrive.extras.bearings.wear import NEAR_END, phm2012_score
from nacdrive.training.predict import TrainedSeries

MOMENTS = (np.arange(100) + 0.5) / 100
DRAWS = 2000
TITLES = (
    "in the interval, %",
    "with wear, %",
    "below it, %",
    "look too late, %",
    "off by",
    "wide",
    "first close to the end, minutes before",
)
Columns = NDArray[np.float64]


def main() -> None:
    """Print a Markdown table for each data set, and the bounds of the challenge's score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="nac_exact.pt")
    parser.add_argument("--learnt", nargs="*", default=["Bearing1_1"])
    given = parser.parse_args()
    model = TrainedSeries.load(given.model, "pronostia", "cpu")
    for task, names in {"pronostia": ("pronostia",), "xjtu-sy": ("xjtu-sy", "xjtu_sy", "xjtu_features")}.items():
        places = [given.data / f"{name}{ending}" for name in names for ending in ("", ".tar.xz")]
        folder = next((place for place in places if place.exists()), None)
        if folder is None:
            continue
        print(f"| {task} | {' | '.join(TITLES)} |")
        print("|" + "---|" * (1 + len(TITLES)))
        asked = {}
        for name, bearing in predict_lives(model, folder).items():
            if task == "pronostia" and name in given.learnt:
                continue
            life, t_s = bearing.life, bearing.curve.t_s
            at = np.minimum(np.searchsorted(t_s, MOMENTS * t_s[-1], side="right") - 1, len(t_s) - 2)
            asked[name] = np.stack([t_s[-1] - t_s, life.low_s, life.median_s, life.high_s, life.worn])[:, at]
            near = np.flatnonzero(bearing.curve.level > NEAR_END)
            before = f" {(t_s[-1] - t_s[near[0]]) / 60:.1f} |" if len(near) else " never |"
            print(line(name, measures([asked[name]])) + before)
        bearings = list(asked.values())
        print(line(f"all {len(bearings)}", measures(bearings)))
        random = np.random.default_rng(0)
        drawn = [
            measures([bearings[i] for i in random.integers(0, len(bearings), len(bearings))]) for _ in range(DRAWS)
        ]
        for word, share in (("from", 2.5), ("to", 97.5)):
            print(line(word, np.nanpercentile(drawn, share, axis=0)))
        apart = np.concatenate(bearings, axis=1)
        for word, chosen in (("with", apart[4] == 1), ("without", apart[4] == 0)):
            print(f"{word} wear: {chosen.mean():.0%} of the moments, off by {measures([apart[:, chosen]])[4]:.1f}")
    left = np.array([question.remaining_s for question in QUESTIONS.values()])
    age = np.array([10.0 * question.files for question in QUESTIONS.values()])
    for word, answers in {
        "constant": {f"{s} s": np.full(len(left), float(s)) for s in range(10, 8000, 10)},
        "share of age": {f"{p} %": age * p / 100 for p in range(1, 100)},
    }.items():
        scores = {name: phm2012_score(left, answer) for name, answer in answers.items()}
        best = max(scores, key=scores.__getitem__)
        print(f"bound, fitted on the eleven test bearings: best {word}, {best}: official score {scores[best]:.3f}")


def measures(bearings: list[Columns]) -> Columns:
    """The table's columns, from [5, moments] of each bearing: actual, low, median and high seconds, whether worn."""
    actual, low, median, high, worn = np.concatenate(bearings, axis=1)
    inside = (low <= actual) & (actual <= high)
    shown = worn == 1
    return np.array(
        [
            100 * inside.mean(),
            100 * inside[shown].mean() if shown.any() else np.nan,
            100 * (actual < low).mean(),
            100 * (actual < low / 2).mean(),
            np.exp(np.median(np.abs(np.log(median / actual)))),
            np.exp(np.median(np.log(high / low))),
        ]
    )


def line(name: str, row: Columns) -> str:
    """A row of the table."""
    digits = (0, 0, 0, 0, 1, 0)
    cells = ["-" if np.isnan(value) else f"{value:.{d}f}" for value, d in zip(row, digits, strict=True)]
    return "| " + " | ".join([name, *cells]) + " |"


if __name__ == "__main__":
    main()
