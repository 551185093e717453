"""How often the remaining life of ``nacdrive predict`` holds what it promises, on bearings a model never saw.

    python tools/bearing_intervals.py --data DIR [--model FILE] [--learnt Bearing1_1 ...]

DIR holds PRONOSTIA and XJTU-SY (see docs/data.md). For each bearing that the model did not learn from: the error of the
onset and the RMSE of wear after it, the share of snapshots whose true remaining life lies in the 80 % interval, and
the factor by which the median misses it (median over the snapshots with wear), beside that of the bare ramp.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean, geometric_mean

import numpy as np
from numpy.typing import NDArray

from nacdrive.extras.bearings.life import predict_lives
from nacdrive.extras.bearings.runs import read_runs
from nacdrive.extras.bearings.task import Bearings
from nacdrive.extras.bearings.wear import SHORTEST_S, wear_curves
from nacdrive.training.predict import TrainedSeries


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="nac_exact.pt")
    parser.add_argument("--learnt", nargs="*", default=["Bearing1_1"])
    given = parser.parse_args()
    model = TrainedSeries.load(given.model, "pronostia", "cpu")
    print("| bearing | onset error, min | RMSE after onset | in the interval, % | with wear, % | off by | ramp alone |")
    print("|" + "---|" * 7)
    rows = []
    for task, names in {"pronostia": ("pronostia",), "xjtu-sy": ("xjtu-sy", "xjtu_sy", "xjtu_features")}.items():
        places = [given.data / f"{name}{ending}" for name in names for ending in ("", ".tar.xz")]
        folder = next((place for place in places if place.exists()), None)
        if folder is None:
            continue
        samples = Bearings().cut(read_runs(task, folder))
        curves = wear_curves(model.predict(samples), samples)
        for name, bearing in predict_lives(model, folder).items():
            if task == "pronostia" and name in given.learnt:
                continue
            # The truth of one's own bearings is not known; here it is.
            curve, life = curves[name], bearing.life
            actual = curve.t_s[-1] - curve.t_s
            asked = actual > 0
            worn = asked & life.worn
            inside = (life.low_s <= actual) & (actual <= life.high_s)
            row = [
                curve.onset_error_s / 60,
                curve.rmse_worn,
                100 * inside[asked].mean(),
                100 * inside[worn].mean() if worn.any() else np.nan,
                factor(life.median_s, actual, worn),
                factor(curve.ramp_s(), actual, worn),
            ]
            rows.append(row)
            print(line(f"{task} {name}", row))
    known = [[value for value in column if not np.isnan(value)] for column in zip(*rows, strict=True)]
    print(line("mean; of factors geometric", [*map(fmean, known[:-2]), *map(geometric_mean, known[-2:])]))


def factor(predicted: NDArray[np.float64], actual: NDArray[np.float64], where: NDArray[np.bool_]) -> float:
    """Factor by which a remaining life is wrong, either way; median over snapshots, NaN where there are none."""
    if not where.any():
        return float("nan")
    logs = np.log(np.maximum(predicted[where], SHORTEST_S) / actual[where])
    return float(np.exp(np.median(np.abs(logs))))


def line(name: str, row: list[float]) -> str:
    """A row of the table."""
    digits = (0, 2, 0, 0, 1, 1)
    cells = ["-" if np.isnan(value) else f"{value:.{d}f}" for value, d in zip(row, digits, strict=True)]
    return "| " + " | ".join([name, *cells]) + " |"


if __name__ == "__main__":
    main()
