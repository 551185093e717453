"""PhysioNet 2012: two days of readings in intensive care, as irregular as they were taken -> death in hospital."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nacdrive.common.errors import UserError
from nacdrive.common.statistics import auc
from nacdrive.datasets.physionet2012 import MEASURED, Stay, read_stays
from nacdrive.tasks.base import EVERYTHING, Fold, Metric, Size
from nacdrive.tasks.sample import Sample
from nacdrive.tasks.series import Classification
from nacdrive.tasks.splits import evenly, stratified

STEP_S, STEPS = 3600.0, 48
"""A step holds the last reading of each parameter in an hour, at the time of the hour's last reading."""
AUROC = Metric("auroc", "AUROC", higher=True, digits=3)
AUPRC = Metric("auprc", "AUPRC", higher=True, digits=3)


class PhysioNet2012(Classification):
    """Whether the patient dies in hospital, after the first 48 hours in intensive care.

    What was not read in an hour is missing there: its value is the training part's mean, and a feature beside it says
    so. Hours without any reading are no steps. Nothing is filled in, from before or from after.
    """

    name = "physionet2012"
    metrics = (AUROC, AUPRC)
    criterion, measure_name = AUROC, AUROC.key
    sizes = {"smoke": Size(1, 64, 64), "cpu": Size(4), "full": Size()}
    data_folders = ("physionet2012", "physionet2012_set_a")
    outputs, read, window = 2, "last", STEPS
    channels, kernels, strides, d_model, num_heads, dense = (32,), (1,), (1,), 32, 4, (32,)
    settings = {"batch_size": 32, "valid_batch": 256, "learning_rate": 3e-3, "epochs": 20}
    meta = {"classes": ["survives", "dies"]}
    note = (
        "Set a alone, a fifth of its stays held out, with as many deaths in each fifth; a fifth of the others chooses "
        "the epoch by AUROC. A step is an hour with readings."
    )

    def folds(self, data_dirs: Mapping[str, Path], count: int, seed: int, size: Size = EVERYTHING) -> list[Fold]:
        """See ``Task.folds``; a stay, which is all that the set tells of a patient, is in one part alone."""
        stays = read_stays(data_dirs[self.name])
        died = np.array([stay.died for stay in stays])
        if min(died.sum(), (~died).sum()) < 10:
            raise UserError(f"{data_dirs[self.name]} has {died.sum()} deaths in {len(died)} stays: give all of set a.")
        folds = []
        for k, (learn, keep) in enumerate(stratified(died, 5, seed)[:count]):
            inner, chosen = stratified(died[learn], 5, seed)[0]
            indices = [learn[i] for i in inner], [learn[i] for i in chosen], keep
            limits = size.max_samples, size.max_tests, size.max_tests
            parts = [[stays[i] for i in evenly(part, most)] for part, most in zip(indices, limits, strict=True)]
            mean, std = observed_scale(parts[0])
            train, valid, test = ([sample(stay, mean, std) for stay in part] for part in parts)
            folds.append(Fold(f"part {k + 1} of 5", train, valid, {self.name: test}))
        return folds

    def score(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, float]:
        """Areas under the two curves; 0.5 and the share of deaths for a constant, and where one class is absent."""
        y, truth = self.answers(outputs, samples)
        risk, died = (y[:, 1] - y[:, 0]).double().numpy(), truth.bool().numpy()
        return {"auroc": auroc(risk, died), "auprc": auprc(risk, died)}


def auroc(risk: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Share of pairs of a positive and a negative in which the positive has more ``risk``; ties count half."""
    return auc(risk[~positive], risk[positive]) if 0 < positive.sum() < len(positive) else 0.5


def auprc(risk: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Average precision: precision at each distinct ``risk``, weighted with the recall that it adds."""
    order = np.argsort(-risk, kind="stable")
    right = positive[order].cumsum()
    ends = np.append(np.flatnonzero(np.diff(risk[order])), len(risk) - 1)
    return float((np.diff(right[ends], prepend=0) * right[ends] / (ends + 1)).sum() / max(right[-1], 1))


def observed_scale(stays: Sequence[Stay]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and deviation [37 + 5] of what was read: parameters, then what is written down at admission."""
    what, value = (np.concatenate([getattr(stay, name) for stay in stays]) for name in ("what", "value"))
    columns = [value[what == place] for place in range(len(MEASURED))]
    columns += [column[~np.isnan(column)] for column in np.stack([stay.static for stay in stays]).T]
    mean = np.array([column.mean(dtype=np.float64) if len(column) else 0.0 for column in columns])
    std = np.array([column.std(dtype=np.float64) if len(column) else 1.0 for column in columns])
    return mean, np.where(std > 1e-9, std, 1.0)


def sample(stay: Stay, mean: NDArray[np.float64], std: NDArray[np.float64]) -> Sample:
    """``x`` [T, 79]: parameters, whether each was read, what is known from admission; ``t`` [T] in seconds."""
    P = len(MEASURED)
    steps, step = np.unique(np.minimum(stay.t_s // STEP_S, STEPS - 1).astype(int), return_inverse=True)
    x = np.zeros((max(len(steps), 1), 2 * P + stay.static.size), np.float32)
    t = np.zeros(len(x))
    # Readings stand in order, so the last of an hour is the one that stays.
    x[step, stay.what] = (stay.value - mean[stay.what]) / std[stay.what]
    x[step, P + stay.what] = 1.0
    x[:, 2 * P :] = np.nan_to_num((stay.static - mean[P:]) / std[P:])
    t[step] = stay.t_s
    fields = {"x": torch.from_numpy(x), "t": torch.from_numpy(t)}
    return Sample(f"stay {stay.name}", fields, {"target": torch.tensor(int(stay.died))})
