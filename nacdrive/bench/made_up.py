"""Small files in the published formats, so that every task can be run without its data. Not data: made up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from nacdrive.base.files import write_text
from nacdrive.tasks.made_up import MARKER, SENTENCE, is_made_up


def make_up(task: str, folder: Path) -> None:
    """Write a small made-up data set for ``task`` into ``folder``, unless it is there."""
    if not is_made_up(folder):
        folder.mkdir(parents=True, exist_ok=True)
        MAKERS[task](folder)
        write_text(folder / MARKER, SENTENCE)


def emnist(folder: Path) -> None:
    """Crude digits: a bar whose place and length tell the class. MNIST's own files are checked, so not its format."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 10, 1200).astype(np.uint8)
    images = np.zeros((len(labels), 28, 28), np.uint8)
    for image, label in zip(images, labels, strict=True):
        row, column = 4 + 2 * int(label) + random.integers(0, 2), random.integers(2, 8)
        image[row : row + 3, column : column + 6 + int(label)] = 255
    np.savez_compressed(folder / "digits.npz", images=images, labels=labels)


MAKERS: dict[str, Callable[[Path], None]] = {"emnist": emnist}
