"""Predictions for the user's own data: wear of bearings, digits in pictures, activities in recordings."""

from __future__ import annotations

import struct
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from nacdrive.common.errors import UserError
from nacdrive.datasets.images import eight_bits
from nacdrive.datasets.mnist import load_mnist, part_file
from nacdrive.datasets.par import ACTIVITIES, read_par
from nacdrive.tasks.emnist import EMNIST
from nacdrive.tasks.par import PAR
from nacdrive.tasks.splits import field_of, joined
from nacdrive.training.predict import TrainedSeries

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif")


@dataclass(frozen=True)
class Prediction:
    """What one picture or one recording was taken for."""

    name: str
    label: str
    """The class; of a recording, the most frequent one."""
    share: float
    """Probability of the class; of a recording, the share of its readings."""
    truth: str | None
    """What it is, where the data say so; of a recording, its most frequent label."""
    right: float | None
    """Share of right answers, where the data say so."""


def predict_digits(model: TrainedSeries, place: Path, max_samples: int | None) -> list[Prediction]:
    """Digits in a folder of pictures, in one picture, or in MNIST's own files (its test part)."""
    names, images, labels = read_digits(place)
    names, images = names[:max_samples], images[:max_samples]
    truth = None if labels is None else labels[:max_samples]
    samples = EMNIST().samples("image", images, np.zeros(len(images)) if truth is None else truth)
    answers = []
    for k, y in enumerate(model.predict(samples)):
        p = y.softmax(dim=-1)
        label = int(p.argmax())
        known = None if truth is None else str(int(truth[k]))
        right = None if known is None else float(known == str(label))
        answers.append(Prediction(names[k], str(label), float(p[label]), known, right))
    return answers


def read_digits(place: Path) -> tuple[list[str], NDArray[np.uint8], NDArray[np.uint8] | None]:
    """Names, images uint8 [N, 28, 28] (ink is bright), and labels where they are known."""
    if place.is_dir() and part_file(place, "t10k-images"):
        mnist = load_mnist(place)
        return [f"test image {i}" for i in range(len(mnist.test_images))], mnist.test_images, mnist.test_labels
    files = [place] if place.is_file() else sorted(p for p in place.glob("*") if p.suffix.lower() in PICTURES)
    if not files:
        raise UserError(f"{place} holds no pictures ({', '.join(PICTURES)}) and no files of MNIST: check the path.")
    return [file.name for file in files], np.stack([read_picture(file) for file in files]), None


def read_picture(path: Path) -> NDArray[np.uint8]:
    """A picture as MNIST would have it: 28 x 28, bright ink on dark paper."""
    if not path.is_file():
        raise UserError(f"{path} is no regular file, so no picture: remove it.")
    try:
        strict = warnings.catch_warnings(action="error", category=Image.DecompressionBombWarning)
        with strict, Image.open(path) as opened:
            image = eight_bits(opened)
            paper = Image.new("RGBA", image.size, "white")
            flat = Image.alpha_composite(paper, image.convert("RGBA")) if image.has_transparency_data else image
            grey = np.asarray(flat.convert("L").resize((28, 28), Image.Resampling.BILINEAR), np.uint8)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UserError(f"{path} has too many pixels to be decoded ({error}): make it smaller.") from error
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error) as error:
        raise UserError(f"{path} is no picture that can be read: check or remove it.") from error
    edge = np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])
    return 255 - grey if edge.mean() > 127 else grey


def predict_activities(
    model: TrainedSeries, place: Path
) -> tuple[list[Prediction], dict[str, tuple[Tensor, Tensor, Tensor]]]:
    """Activities in a PAR file: one answer per recording, and times [N], answers [N] and labels [N] of its readings."""
    samples = PAR().cut(read_par(place))
    predicted = joined(samples, [y.argmax(dim=-1) for y in model.predict(samples)])
    times, truth = field_of(samples, "t"), field_of(samples, "target")
    answers = []
    for name, y in predicted.items():
        label, count = Counter(y.tolist()).most_common(1)[0]
        usual = Counter(truth[name].tolist()).most_common(1)[0][0]
        right = float((y == truth[name]).float().mean())
        answers.append(Prediction(name, ACTIVITIES[label], count / len(y), ACTIVITIES[usual], right))
    return answers, {name: (times[name], y, truth[name]) for name, y in predicted.items()}
