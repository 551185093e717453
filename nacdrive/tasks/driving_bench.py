"""A driving task as a problem of the bench: its policy's network and losses, with folds and scores around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nacdrive.models import Policy, PolicyConfig, save_policy
from nacdrive.models.driving import DrivingNetwork
from nacdrive.models.series import layer_options
from nacdrive.tasks import load_task
from nacdrive.tasks.base import Batch, LossOptions, Sample
from nacdrive.tasks.problem import Measure, ProtocolName


class DrivingProblem:
    """What both driving tasks share; see ``Problem``."""

    measures: Mapping[str, tuple[Measure, ...]]
    window = 4
    """Frames that a decision may depend on; the paper's protocol sees one."""

    def __init__(self, task: str, protocol: ProtocolName) -> None:
        self.task, self.protocol = load_task(task), protocol
        self.name, self.inputs, self.measure_name = task, self.task.inputs, self.task.measure_name

    def class_weights(self, samples: Sequence[Sample], power: float) -> Tensor:
        """See ``Task.class_weights``."""
        return self.task.class_weights(samples, power)

    def augment(self, batch: Batch, generator: torch.Generator) -> Batch:
        """See ``Task.augment``."""
        return self.task.augment(batch, generator)

    def loss(self, outputs: Tensor, batch: Batch, weights: Tensor, options: LossOptions) -> tuple[Tensor, Tensor]:
        """See ``Task.loss``."""
        return self.task.loss(outputs, batch, weights, options)

    def measure(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """See ``Task.measure``."""
        return self.task.measure(outputs, batch)

    def network(self, model: str, train: Sequence[Sample], **options: Any) -> DrivingNetwork:
        """See ``Problem.network``."""
        window = 1 if self.protocol == "paper" else self.window
        return DrivingNetwork(self.config(model, window, train, **options))

    def config(self, model: str, window: int, train: Sequence[Sample], **options: Any) -> PolicyConfig:
        """The policy's config, with what the protocol pins."""
        given = {**layer_options(model, self.protocol), **options}
        if self.protocol == "paper":
            # A frame alone has no gap to the next; the drive that it came from had.
            train = [Sample("", {"t": torch.stack([torch.zeros(()), s.labels["gap_s"]])}) for s in train[:1]]
        return self.task.policy_config(model, window, train, options=given)

    def save(self, network: DrivingNetwork, path: Path, meta: dict[str, Any]) -> None:
        """A policy's file: ``nacdrive drive`` takes it."""
        save_policy(Policy(network, network.config.model), path, meta)


def beginnings(samples: Sequence[Sample], most: int | None) -> list[Sample]:
    """The first steps of every sample, ``most`` in all."""
    if most is None:
        return list(samples)
    each = max(16, most // len(samples))
    return [Sample(s.name, {name: value[:each] for name, value in s.fields.items()}) for s in samples]


def frames_of(samples: Sequence[Sample], most: int | None) -> list[Sample]:
    """Every frame a sample of its own, ``gap_s`` of its drive as a label; at most ``most``, evenly spread."""
    places = [(s, i) for s in samples for i in range(len(s))]
    if most is not None and most < len(places):
        places = [places[i] for i in np.linspace(0, len(places) - 1, most).round().astype(int)]
    gaps = {s.name: s.fields["t"].diff().median().float() for s in samples}
    return [
        Sample(
            f"{s.name} frame {i}",
            {name: value[i : i + 1] for name, value in s.fields.items()},
            {"gap_s": gaps[s.name]},
        )
        for s, i in places
    ]
