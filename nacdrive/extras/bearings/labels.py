"""What a model of remaining life is taught: a ramp over the whole life, or one from the first sign of wear on.

The paper calls its labels "physically plausible" without a formula; its published files carry the ramp. The first
prediction time follows the 3-sigma rule of Li, Lei, Lin and Ding, "An improved exponential model for predicting
remaining useful life of rolling element bearings" (2015).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nacdrive.extras.bearings.features import FeatureTable

HEALTHY_SHARE = 0.25
"""Part of the life, from its begin, that counts as healthy for the rule."""
CONSECUTIVE = 5
"""Snapshots in a row that must be beyond the limit."""
SIGMAS = 3.0
MOMENT_S = 1e-9
"""Shortest span that is divided by."""


def first_prediction_time(table: FeatureTable) -> float:
    """Time in seconds at which wear first shows.

    It is the first of ``CONSECUTIVE`` snapshots in a row whose root mean square or kurtosis, of either axis, lies more
    than ``SIGMAS`` standard deviations above its mean over the healthy part; the last snapshot if there is none.
    """
    indicators = np.concatenate([table.rms, table.kurtosis], axis=1)
    healthy = min(max(2, round(HEALTHY_SHARE * len(indicators))), len(indicators))
    usual = indicators[:healthy]
    beyond = indicators > usual.mean(axis=0) + SIGMAS * usual.std(axis=0)
    beyond[:healthy] = False
    begins = [begin for column in beyond.T if (begin := first_run(column, CONSECUTIVE)) is not None]
    return float(table.t_s[min(begins, default=-1)])


def first_run(shown: NDArray[np.bool_], length: int) -> int | None:
    """Where ``length`` in a row of ``shown`` [N] begin for the first time; None if they never do."""
    run = 0
    for i, now in enumerate(shown):
        run = run + 1 if now else 0
        if run == length:
            return i - length + 1
    return None


def fpt_label(t_s: ArrayLike, first_s: float) -> NDArray[np.float32]:
    """Label [N] that is 0 up to the first prediction time and then grows linearly to 1 at the last snapshot."""
    t = np.asarray(t_s, np.float64)
    worn = max(t[-1] - first_s, MOMENT_S)
    label: NDArray[np.float32] = np.clip((t - first_s) / worn, 0, 1).astype(np.float32)
    # A bearing that showed nothing before its end is worn at its end all the same.
    label[-1] = 1
    return label


def remaining_s(label: ArrayLike, elapsed_s: ArrayLike) -> NDArray[np.float64]:
    """Remaining seconds that follow from a label (or a prediction of one).

    A share p of a span gone in ``elapsed_s``, [N] since the ramp began, leaves ``elapsed_s * (1 - p) / p``; infinite
    where p is 0.
    """
    share = np.clip(np.asarray(label, np.float64), 0, 1)
    elapsed = np.asarray(elapsed_s, np.float64)
    left = np.full(np.broadcast(share, elapsed).shape, np.inf)
    np.divide(elapsed * (1 - share), share, out=left, where=share > 0)
    return left
