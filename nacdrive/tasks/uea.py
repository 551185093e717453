"""A data set of the UEA and UCR archives: a series, as long as it is -> its class."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from nacdrive.common.errors import UserError
from nacdrive.datasets.uea import LabelledSeries, read_series_set
from nacdrive.tasks.base import EVERYTHING, Fold, Size
from nacdrive.tasks.sample import Sample
from nacdrive.tasks.series import Classification
from nacdrive.tasks.splits import evenly, stratified

LONGEST = 512
"""Most steps that an answer depends on."""


class UEA(Classification):
    """Which class a series is of. Nothing is cut or filled to one length; a step is a second.

    A missing value is the training part's mean, and in sets that have any a feature beside each says so.
    """

    name = "uea"
    sizes = {"smoke": Size(1, 64, 64), "cpu": Size(40), "full": Size()}
    data_folders = ("uea", "JapaneseVowels")
    read = "last"
    channels, kernels, strides, d_model, num_heads, dense = (32,), (1,), (1,), 32, 4, (32,)
    settings = {"batch_size": 16, "valid_batch": 128, "learning_rate": 3e-3, "epochs": 100}
    note = "The archive's own test part; a fifth of its training part, another one in each fold, chooses the epoch."

    def folds(self, data_dirs: Mapping[str, Path], count: int, seed: int, size: Size = EVERYTHING) -> list[Fold]:
        """See ``Task.folds``; the number of classes and the window are those of the data."""
        data = read_series_set(data_dirs[self.name])
        if len(data.train) < 2 or not data.test:
            what = f"{data.name} has {len(data.train)} series to learn from and {len(data.test)} to test on"
            raise UserError(f"{what}: it needs 2 and 1 at least.")
        everything = [*data.train, *data.test]
        self.outputs, self.meta = len(data.classes), {"classes": list(data.classes), "data_set": data.name}
        self.window = min(LONGEST, max(len(series.x) for series in everything))
        is_flagged = any(not np.isfinite(series.x).all() for series in everything)
        folds = []
        for k, parts in enumerate(stratified(np.array([series.label for series in data.train]), 5, seed)[:count]):
            learn, keep = (evenly([data.train[i] for i in part], size.max_samples) for part in parts)
            mean = np.ma.masked_invalid(np.concatenate([series.x for series in learn])).mean(axis=0).filled(0.0)
            train, valid, test = (
                [sample(series, mean, is_flagged=is_flagged) for series in part]
                for part in (learn, keep, evenly(data.test, size.max_tests))
            )
            folds.append(Fold(f"part {k + 1} of 5 of {data.name}", train, valid, {self.name: test}))
        return folds


def sample(series: LabelledSeries, mean: NDArray[np.float32], *, is_flagged: bool) -> Sample:
    """``x`` [T, dimensions, or twice as many], ``t`` [T] in seconds."""
    missing = ~np.isfinite(series.x)
    x = np.where(missing, mean, series.x)
    x = np.concatenate([x, missing], axis=1, dtype=np.float32) if is_flagged else x
    fields = {"x": torch.from_numpy(x.astype(np.float32)), "t": torch.arange(len(x), dtype=torch.float64)}
    return Sample(series.place, fields, {"target": torch.tensor(series.label)})
