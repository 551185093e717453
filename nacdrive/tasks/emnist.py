"""E-MNIST: the run-length events of a binarised digit -> which digit it is (Lechner & Hasani, 2020; paper, D.3.1)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nacdrive.datasets.mnist import Events, Mnist, events, load_mnist
from nacdrive.datasets.synthetic import is_synthetic
from nacdrive.tasks.base import EVERYTHING, Fold, Metric, ProtocolName, Size, shuffled_folds
from nacdrive.tasks.sample import Sample
from nacdrive.tasks.series import Classification
from nacdrive.tasks.splits import evenly, rotate, stratified

LENGTH = 256
CLASSES = tuple(str(digit) for digit in range(10))


class EMNIST(Classification):
    """The task under one protocol."""

    name = "emnist"
    protocols = ("sequence", "paper")
    metrics = (Metric("accuracy", "accuracy, %", higher=True, paper=True),)
    sizes = {"smoke": Size(1, 320, 64), "cpu": Size(8, 8_000), "full": Size()}
    data_folders = ("mnist", "emnist")
    outputs, read, window = 10, "last", LENGTH
    channels, kernels, d_model, num_heads, dense = (64, 64), (5, 5), 64, 8, (32,)
    meta = {"classes": list(CLASSES)}

    def __init__(self, protocol: ProtocolName = "sequence") -> None:
        super().__init__(protocol)
        self.settings = {"batch_size": 32, "learning_rate": 1e-3, "epochs": 150, "valid_batch": 256}
        self.note = "MNIST's own test part, all of it; the epoch is chosen on a part of its training part."
        self.time_columns = (2,)
        if protocol == "paper":
            self.strides = (5, 5)
            self.time_columns = ()
            self.settings |= {"schedule": "steep-plateau", "average": 0.0, "patience": 0}
            self.criterion = self.metrics[0]
            self.note = (
                "Training and test part merged, five stratified folds; the epoch is chosen on the fold that is "
                "reported, as in the authors' script."
            )

    def folds(self, data_dirs: Mapping[str, Path], count: int, seed: int, size: Size = EVERYTHING) -> list[Fold]:
        """See ``Task.folds``; all test images are tested on, for MNIST's first ones are harder than its last."""
        mnist = read_digits(data_dirs[self.name])
        if self.protocol == "sequence":
            most = size.max_samples and max(2, size.max_samples)
            train = self.samples("train", mnist.train_images[:most], mnist.train_labels[:most])
            kept = evenly(range(len(mnist.test_images)), size.max_tests)
            test = self.samples("test", mnist.test_images[kept], mnist.test_labels[kept])
            return [
                Fold(f"validation part {k + 1}", [train[i] for i in learn], [train[i] for i in keep], {self.name: test})
                for k, (learn, keep) in enumerate(rotate(len(train), max(count, 10), seed)[:count])
            ]
        kept = evenly(range(len(mnist.train_images) + len(mnist.test_images)), size.max_samples)
        images = np.concatenate([mnist.train_images, mnist.test_images])[kept]
        labels = np.concatenate([mnist.train_labels, mnist.test_labels])[kept]
        return shuffled_folds(self.name, self.samples("row", images, labels), stratified(labels, 5, seed)[:count])

    def samples(self, part: str, images: Any, labels: Any) -> list[Sample]:
        """One sample per image: ``x`` [T, 3] or, for the paper, [256, 2]; ``t`` [T] in pixels scanned."""
        runs = events(images, length=LENGTH)
        made = sequences(runs) if self.protocol == "sequence" else padded(runs)
        return [
            Sample(f"{part} image {i}", fields, {"target": torch.tensor(int(label))})
            for i, (fields, label) in enumerate(zip(made, labels, strict=True))
        ]


def read_digits(folder: Path) -> Mnist:
    """MNIST, or what stands for it in a made-up folder (MNIST's own files are checked, so they cannot be made up)."""
    if not is_synthetic(folder):
        return load_mnist(folder)
    with np.load(folder / "digits.npz") as file:
        images, labels = file["images"], file["labels"]
    return Mnist(images[:1000], labels[:1000], images[1000:], labels[1000:])


def sequences(runs: Events) -> list[dict[str, Tensor]]:
    """Each image's events alone: ``x`` holds value, duration, and the time at which the event ends.

    The time is a feature too, so that layers that feel no time are not blind to where on the page an event lies.
    """
    x = torch.from_numpy(np.stack([runs.value, runs.duration, runs.t_s], axis=-1))
    return [{"x": row[:n], "t": row[:n, 2]} for row, n in zip(x, (~runs.padding).sum(axis=1).tolist(), strict=True)]


def padded(runs: Events) -> list[dict[str, Tensor]]:
    """As the authors' script: 256 rows of value and duration, the durations scaled to sum to 256, zeros behind."""
    scaled = runs.duration * (LENGTH / runs.duration.sum(axis=1, keepdims=True))
    x = torch.from_numpy(np.stack([runs.value, scaled], axis=-1).astype(np.float32))
    nothing = torch.zeros(LENGTH)
    return [{"x": row, "t": nothing} for row in x]
