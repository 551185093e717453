"""Tasks on series ``x`` with times ``t``: the network of the paper's Table 4, and losses, metrics and scales for it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from nacdrive.common.errors import UserError
from nacdrive.models.series import SeriesConfig, SeriesNetwork, layer_options, save_series
from nacdrive.tasks.base import Metric, Task
from nacdrive.tasks.sample import Batch, Sample
from nacdrive.tasks.splits import field_of, joined

UNKNOWN = -1
"""Class of a step that has no label."""


class SeriesTask(Task):
    """A task on samples with the fields ``x`` [T, channels] and ``t`` [T] in seconds.

    Its ``target`` is a label of the whole sequence, or a field with one value per step; steps with a field ``scored``
    that is False are seen, and count neither in the loss nor in a score. Its network, from ``outputs`` to ``dense``, is
    described as in ``SeriesConfig``.
    """

    inputs = ("x", "t", "padding")
    outputs: int = 1
    read: Literal["last", "steps"] = "steps"
    window: int = 32
    channels: tuple[int, ...] = (32, 32)
    kernels: tuple[int, ...] = (5, 3)
    strides: tuple[int, ...] = (1, 1)
    d_model: int = 32
    num_heads: int = 4
    dense: tuple[int, ...] = (32,)
    time_columns: tuple[int, ...] = ()
    """Features ``x`` that hold the time ``t`` as well."""
    meta: Mapping[str, Any] = {}
    """What a model file must tell for the network to be used again, such as the names of its classes."""

    @property
    def context(self) -> int:
        """Steps before the first scored one of a segment, as many as its answer depends on."""
        return self.window - 1 + sum(kernel - 1 for kernel in self.kernels)

    def network(self, model: str, train: Sequence[Sample], **options: Any) -> SeriesNetwork:
        """See ``Task.network``; under ``paper`` the data are scaled already, and the layer is given no time."""
        paper = self.protocol == "paper"
        if (x := train[0].fields["x"]).ndim != 2:
            raise UserError(f"x of {train[0].name} has the shape {tuple(x.shape)}: give [steps, features].")
        width = x.shape[1]
        mean, std = ((0.0,) * width, (1.0,) * width) if paper else scale_of(train)
        config = SeriesConfig(
            task=self.name, protocol=self.protocol, model=model, channels_in=width, outputs=self.outputs,
            read=self.read, window=self.window, channels=self.channels, kernels=self.kernels, strides=self.strides,
            d_model=self.d_model, num_heads=self.num_heads, dense=self.dense, mean=mean, std=std,
            gap_s=None if paper else mean_gap(train), options={**layer_options(model, self.protocol), **options},
            about=self.about(train),
        )  # fmt: skip
        return SeriesNetwork(config)

    def spare(self, sample: Sample) -> Tensor | None:
        """[T] steps that hold nothing: without them the true answer is the same. None where a task has none such."""
        return None

    def about(self, train: Sequence[Sample]) -> dict[str, Any]:
        """What a model file must tell for the network to be used again."""
        return dict(self.meta)

    def save(self, network: SeriesNetwork, path: Path, meta: dict[str, Any]) -> None:
        save_series(network, path, meta)

    def counted(self, batch: Batch) -> Tensor:
        """Where there is something to learn: a known target that is scored and no padding; like ``target``."""
        known = self.known(batch["target"])
        return known if known.ndim == 1 else known & ~batch["padding"] & batch.get("scored", known)

    @abstractmethod
    def known(self, target: Tensor) -> Tensor:
        """Where a target is known."""

    def answers(self, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
        """Outputs [N, ...] and targets [N] of everything that is scored, in order."""
        if self.read == "last":
            y, target = torch.stack(list(outputs)), torch.stack([sample.labels["target"] for sample in samples])
        elif "scored" in samples[0].fields:
            y = torch.cat(list(joined(samples, outputs).values()))
            target = torch.cat(list(field_of(samples, "target").values()))
        else:
            y, target = torch.cat(list(outputs)), torch.cat([sample.fields["target"] for sample in samples])
        known = self.known(target)
        return y[known], target[known]

    def constant(self, answer: Tensor, samples: Sequence[Sample]) -> list[Tensor]:
        """The outputs of something that always answers ``answer`` [outputs]."""
        return [answer if self.read == "last" else answer.expand(len(sample), -1) for sample in samples]

    def learnt_targets(self, train: Sequence[Sample]) -> Tensor:
        """[N] all targets of the training part."""
        return self.answers(self.constant(torch.zeros(self.outputs), train), train)[1]


class Classification(SeriesTask):
    """One of several classes, per sequence or per step."""

    measure_name = "accuracy"
    metrics: tuple[Metric, ...] = (Metric("accuracy", "accuracy, %", higher=True),)

    def loss(self, outputs: Tensor, batch: Batch, weights: Tensor, soft: float) -> tuple[Tensor, Tensor]:
        """Cross-entropy where a class is known; outputs [..., classes], ``target`` [...]."""
        counted = self.counted(batch)
        return F.cross_entropy(outputs[counted].float(), batch["target"][counted], reduction="sum"), counted.sum()

    def measure(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        counted = self.counted(batch)
        return (outputs.argmax(dim=-1) == batch["target"])[counted].sum(), counted.sum()

    def known(self, target: Tensor) -> Tensor:
        return target != UNKNOWN

    def score(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, float]:
        y, truth = self.answers(outputs, samples)
        return {"accuracy": 100 * float((y.argmax(dim=-1) == truth).double().mean())}

    def references(self, task: str, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, list[Tensor]]:
        frequent = torch.bincount(self.learnt_targets(train), minlength=self.outputs).argmax()
        return {"most frequent class": self.constant(F.one_hot(frequent, self.outputs).float(), samples)}


class Regression(SeriesTask):
    """One number, per sequence or per step."""

    measure_name = "mae"
    metrics: tuple[Metric, ...] = (
        Metric("rmse", "RMSE", higher=False, digits=4),
        Metric("mae", "MAE", higher=False, digits=4),
    )

    def loss(self, outputs: Tensor, batch: Batch, weights: Tensor, soft: float) -> tuple[Tensor, Tensor]:
        """Squared error where the truth is known; outputs [..., 1], ``target`` [...], NaN where unknown."""
        counted, error = self.error(outputs, batch)
        return error.square().sum(), counted.sum()

    def measure(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        counted, error = self.error(outputs, batch)
        return error.abs().sum(), counted.sum()

    def error(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Where the truth is known, and the errors there."""
        counted = self.counted(batch)
        return counted, (outputs[..., 0].float() - batch["target"])[counted]

    def known(self, target: Tensor) -> Tensor:
        return ~target.isnan()

    def score(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, float]:
        y, truth = self.answers(outputs, samples)
        error = y[:, 0].double() - truth
        return {"rmse": float(error.square().mean().sqrt()), "mae": float(error.abs().mean())}

    def references(self, task: str, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, list[Tensor]]:
        """Always 0, and always the mean of the training part."""
        mean = self.learnt_targets(train).double().mean().float()
        return {
            "always 0": self.constant(torch.zeros(1), samples),
            "mean of the training part": self.constant(mean.reshape(1), samples),
        }


def scale_of(samples: Sequence[Sample]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each feature ``x`` over all steps; 1 where a feature never changes."""
    x = torch.cat([sample.fields["x"] for sample in samples]).double()
    for name, sample in product(("x", "t"), samples):
        if len(wrong := (~sample.fields[name].isfinite()).nonzero()):
            problem = f"{name} of {sample.name} is no finite number at step {int(wrong[0, 0])}"
            raise UserError(f"{problem}: mend it, or leave it out.")
    std = x.std(dim=0, unbiased=False)
    # By rounding, a feature that never changes differs from its mean, too.
    return tuple(x.mean(dim=0).tolist()), tuple(torch.where(std > 1e-9 * x.abs().amax(dim=0), std, 1.0).tolist())


def mean_gap(samples: Sequence[Sample]) -> float:
    """Mean time between two steps ``t`` within the samples, in seconds."""
    return float(torch.cat([sample.fields["t"].double().diff() for sample in samples]).mean().nan_to_num()) or 1.0
