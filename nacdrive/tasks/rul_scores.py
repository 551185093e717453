"""Scores of predicted remaining life: the one of the paper's table, and the PHM 2012 challenge's."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

BATCH = 64
"""Predictions that the paper's scripts sum over before they average."""


def paper_score(prediction: ArrayLike, truth: ArrayLike, batch: int = BATCH) -> float:
    """Score of the paper's table, in what its public scripts do: 0 is perfect, more is worse.

    For the error e = prediction - truth: exp(-e/13) - 1 where e < 0, else exp(e/10) - 1; summed over a batch, averaged
    over batches (the last may be smaller).

    Args:
        prediction: [N] predicted labels, in order.
        truth: [N] labels.
        batch: Predictions of a batch.
    """
    error = (np.asarray(prediction, np.float64) - np.asarray(truth, np.float64)).ravel()
    penalty = np.where(error < 0, np.expm1(-error / 13), np.expm1(error / 10))
    return float(penalty.sum() / -(-len(error) // batch))


def phm2012_score(actual_s: ArrayLike, predicted_s: ArrayLike) -> float:
    """Score of the IEEE PHM 2012 challenge: mean accuracy over test bearings, 1 is perfect, 0 is worst.

    Er = 100 (actual - predicted) / actual; the accuracy of a bearing is exp(-ln(0.5) Er / 5) where Er <= 0 (life was
    overestimated) and exp(ln(0.5) Er / 20) where Er > 0.

    Args:
        actual_s: [bearings] remaining life at the time of prediction, in seconds; each more than 0.
        predicted_s: [bearings] what was predicted.
    """
    actual = np.asarray(actual_s, np.float64)
    error = 100 * (actual - np.asarray(predicted_s, np.float64)) / actual
    exponent = np.where(error <= 0, -error / 5, error / 20)
    return float(np.exp(np.log(0.5) * exponent).mean())
