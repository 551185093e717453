"""E-MNIST: the run-length events of a binarised digit -> which digit it is (Lechner & Hasani, 2020; paper, D.3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nacdrive.datasets.mnist import Events, Mnist, events, load_mnist
from nacdrive.models.series import SeriesConfig, SeriesNetwork, layer_options, mean_gap, scale_of
from nacdrive.tasks.base import Sample
from nacdrive.tasks.problem import Fold, Measure, ProtocolName
from nacdrive.tasks.series_task import Classification
from nacdrive.tasks.splits import rotate, stratified
from nacdrive.tasks.synthetic_marker import is_made_up

LENGTH = 256
CLASSES = tuple(str(digit) for digit in range(10))


class EMNIST(Classification):
    """The task under one protocol."""

    name = "emnist"
    measures = {"emnist": (Measure("accuracy", "accuracy, %", higher=True, paper=True),)}

    def __init__(self, protocol: ProtocolName) -> None:
        self.protocol = protocol
        self.settings: dict[str, Any] = {"batch": 32, "learning_rate": 1e-3, "epochs": 150, "valid_batch": 256}
        if protocol == "paper":
            self.settings |= {"schedule": "constant", "average": 0.0, "patience": 0}
        self.notes = {
            "emnist": "MNIST's own test part; the epoch is chosen on a part of its training part."
            if protocol == "sequence"
            else "Training and test part merged, five stratified folds; the epoch is chosen on the fold that is "
            "reported, as in the authors' script."
        }

    def folds(self, places: Mapping[str, Path], count: int, seed: int, most: int | None) -> list[Fold]:
        """See ``Problem.folds``; ``most`` images to learn from, and a fifth as many to test on."""
        mnist = read_digits(places["emnist"])
        few = None if most is None else max(10, most // 5)
        if self.protocol == "sequence":
            train = self.samples("train", mnist.train_images[:most], mnist.train_labels[:most])
            test = self.samples("test", mnist.test_images[:few], mnist.test_labels[:few])
            parts = rotate(len(train), max(count, 10), seed)[:count]
            return [
                Fold(
                    f"validation part {k + 1}",
                    [train[i] for i in learn],
                    [train[i] for i in keep],
                    {"emnist": test},
                )
                for k, (learn, keep) in enumerate(parts)
            ]
        images = np.concatenate([mnist.train_images, mnist.test_images])[:most]
        labels = np.concatenate([mnist.train_labels, mnist.test_labels])[:most]
        rows = self.samples("row", images, labels)
        folds = []
        for k, (learn, keep) in enumerate(stratified(labels, 5, seed)[:count]):
            test = [rows[i] for i in keep]
            folds.append(Fold(f"fold {k + 1} of 5", [rows[i] for i in learn], test, {"emnist": test}))
        return folds

    def samples(self, part: str, images: Any, labels: Any) -> list[Sample]:
        """One sample per image: ``x`` [T, 3] or, for the paper, [256, 2]; ``t`` [T] in pixels scanned."""
        found = events(images, length=LENGTH)
        made = sequences(found) if self.protocol == "sequence" else padded(found)
        return [
            Sample(f"{part} image {i}", fields, {"target": torch.tensor(int(label))})
            for i, (fields, label) in enumerate(zip(made, labels, strict=True))
        ]

    def network(self, model: str, train: Sequence[Sample], **options: Any) -> SeriesNetwork:
        """See ``Problem.network``."""
        paper = self.protocol == "paper"
        mean, std = ((0.0, 0.0), (1.0, 1.0)) if paper else scale_of(train)
        config = SeriesConfig(
            task=self.name, protocol=self.protocol, model=model, channels_in=len(mean), outputs=len(CLASSES),
            read="last", window=LENGTH, channels=(64, 64), kernels=(5, 5), strides=(5, 5) if paper else (1, 1),
            d_model=64, num_heads=8, dense=(32,), mean=mean, std=std, gap_s=None if paper else mean_gap(train),
            options={**layer_options(model, self.protocol), **options}, about={"classes": list(CLASSES)},
        )  # fmt: skip
        return SeriesNetwork(config)

    def score(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, float]:
        """See ``Problem.score``."""
        right = [int(y.argmax()) == int(sample.labels["target"]) for y, sample in zip(outputs, samples, strict=True)]
        return {"accuracy": 100 * float(np.mean(right))}


def read_digits(folder: Path) -> Mnist:
    """MNIST, or what stands for it in a made-up folder (MNIST's own files are checked, so they cannot be made up)."""
    if not is_made_up(folder):
        return load_mnist(folder)
    with np.load(folder / "digits.npz") as file:
        images, labels = file["images"], file["labels"]
    return Mnist(images[:1000], labels[:1000], images[1000:], labels[1000:])


def sequences(found: Events) -> list[dict[str, Tensor]]:
    """Each image's events alone: ``x`` holds value, duration, and the time at which the event ends.

    The time is a feature too, so that layers that feel no time are not blind to where on the page an event lies.
    """
    x = torch.from_numpy(np.stack([found.value, found.duration, found.t_s], axis=-1))
    lengths = (~found.padding).sum(axis=1)
    return [{"x": row[:n], "t": row[:n, 2]} for row, n in zip(x, lengths.tolist(), strict=True)]


def padded(found: Events) -> list[dict[str, Tensor]]:
    """As the authors' script: 256 rows of value and duration, the durations scaled to sum to 256, zeros behind."""
    scaled = found.duration * (LENGTH / found.duration.sum(axis=1, keepdims=True))
    x = torch.from_numpy(np.stack([found.value, scaled], axis=-1).astype(np.float32))
    nothing = torch.zeros(LENGTH)
    return [{"x": row, "t": nothing} for row in x]


def problem(protocol: ProtocolName) -> EMNIST:
    """The task under ``protocol``."""
    return EMNIST(protocol)
