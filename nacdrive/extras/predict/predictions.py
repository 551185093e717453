"""Predictions for the user's own data: wear of bearings, digits in pictures, activities in recordings."""

from __future__ import annotations

import struct
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from nacdrive.common.errors import UserError
from nacdrive.common.paths import find_model
from nacdrive.datasets.bearings.challenge import learning_lives_s
from nacdrive.datasets.mnist import load_mnist, part_file
from nacdrive.datasets.par import ACTIVITIES, read_par
from nacdrive.models.files import wrong_content
from nacdrive.models.series import SeriesNetwork
from nacdrive.models.series_files import load_series
from nacdrive.tasks import load_task
from nacdrive.tasks.bearings.bearings import Bearings
from nacdrive.tasks.bearings.runs import read_own
from nacdrive.tasks.bearings.wear import WEAR_ERROR, RemainingLife, SurvivalPrior, WearCurve, wear_curves
from nacdrive.tasks.emnist import EMNIST
from nacdrive.tasks.par import PAR
from nacdrive.tasks.sample import Sample
from nacdrive.tasks.splits import field_of, joined
from nacdrive.training.predict import outputs

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif")


@dataclass(frozen=True)
class Model:
    """A network and what it was trained for."""

    path: Path
    network: SeriesNetwork
    meta: dict[str, Any]
    device: str

    @staticmethod
    def load(name: str, task: str, device: str) -> Model:
        """A model file, or the name of a shipped one.

        Raises:
            UserError: if there is none, or it was made for another task.
        """
        path = find_model(name, task)
        network, meta = load_series(path, task=task, device=device)
        return Model(path, network, meta, device)

    def predict(self, samples: list[Sample]) -> list[Tensor]:
        """Its answers to samples.

        Raises:
            UserError: if the data have other channels than it was trained on.
        """
        wanted, there = self.network.config.channels_in, samples[0].fields["x"].shape[1]
        if there != wanted:
            raise UserError(
                f"{self.path} was trained on {wanted} channels, these data have {there}: give another --model."
            )
        task = load_task(self.network.config.task)
        return outputs(self.network, task, samples, device=self.device)


@dataclass(frozen=True)
class BearingLife:
    """What a model says of one bearing."""

    curve: WearCurve
    """Wear at every snapshot; its truth means nothing while the bearing runs."""
    life: RemainingLife
    """Remaining life at every snapshot, from what was known then."""
    basis: str
    """Whose lives stand behind it."""


def predict_lives(model: Model, folder: Path, lives_s: Sequence[float] = ()) -> dict[str, BearingLife]:
    """Wear and remaining life of each bearing in ``folder``.

    Args:
        model: of wear.
        folder: see ``read_own``.
        lives_s: lives of bearings of the same kind in seconds; if none are given, those that the model learnt from
            stand for them, or those of the PHM 2012 challenge where its file does not tell. A bearing of PRONOSTIA is
            never compared with its own life.

    Raises:
        UserError: if there are no bearings, a life is not above 0, or the model file holds something else.
    """
    runs = read_own(folder)
    samples = Bearings().cut(runs)
    curves = wear_curves(model.predict(samples), samples)
    try:
        learnt = {str(name): float(life) for name, life in model.network.config.about.get("lives_s", {}).items()}
        error = float(model.meta.get("scores", {}).get("pronostia", {}).get("rmse_worn", WEAR_ERROR))
    except (AttributeError, TypeError, ValueError) as wrong:
        raise wrong_content(model.path, wrong) from wrong
    if not 0 < error <= 1:
        error = WEAR_ERROR
    found = {}
    for run in runs:
        own = run.name if run.dataset == "pronostia" else None
        prior, basis = prior_of(lives_s, learnt, own)
        found[run.name] = BearingLife(curves[run.name], curves[run.name].remaining_life(prior, error), basis)
    return found


def prior_of(given: Sequence[float], learnt: Mapping[str, float], own: str | None) -> tuple[SurvivalPrior, str]:
    """The lives that a bearing named ``own`` is compared with, and what they are, in words."""
    if given:
        return SurvivalPrior(tuple(given)), f"the {len(given)} lives that were given"
    others = tuple(life for name, life in learnt.items() if name != own)
    if others:
        noun = "life" if len(others) == 1 else "lives"
        return SurvivalPrior(others), f"the {len(others)} {noun} that the model learnt from"
    others = tuple(life for name, life in learning_lives_s().items() if name != own)
    return SurvivalPrior(others), f"{len(others)} lives of PRONOSTIA, for the model file tells none"


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


def predict_digits(model: Model, place: Path, max_samples: int | None) -> list[Prediction]:
    """Digits in a folder of pictures, in one picture, or in MNIST's own files (its test part).

    Raises:
        UserError: if there are none, or one is no picture.
    """
    names, images, labels = read_digits(place)
    names, images = names[:max_samples], images[:max_samples]
    truth = None if labels is None else labels[:max_samples]
    samples = EMNIST().samples("image", images, np.zeros(len(images)) if truth is None else truth)
    answers = []
    for k, y in enumerate(model.predict(samples)):
        p = y.softmax(dim=-1)
        label = int(p.argmax())
        known = None if truth is None else str(int(truth[k]))
        answers.append(
            Prediction(
                names[k], str(label), float(p[label]), known, None if known is None else float(known == str(label))
            )
        )
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
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                grey = np.asarray(image.convert("L").resize((28, 28), Image.Resampling.BILINEAR), np.uint8)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UserError(f"{path} has too many pixels to be decoded ({error}): make it smaller.") from error
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error) as error:
        raise UserError(f"{path} is no picture that can be read: check or remove it.") from error
    edge = np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])
    return 255 - grey if edge.mean() > 127 else grey


def predict_activities(model: Model, place: Path) -> tuple[list[Prediction], dict[str, tuple[Tensor, Tensor, Tensor]]]:
    """Activities in a PAR file: one answer per recording, and times [N], answers [N] and labels [N] of its readings."""
    recordings = read_par(place)
    samples = PAR().cut(recordings)
    classes = ACTIVITIES
    predicted = joined(samples, [y.argmax(dim=-1) for y in model.predict(samples)])
    times, truth = field_of(samples, "t"), field_of(samples, "target")
    answers = []
    for name, y in predicted.items():
        label, count = Counter(y.tolist()).most_common(1)[0]
        usual = Counter(truth[name].tolist()).most_common(1)[0][0]
        right = float((y == truth[name]).float().mean())
        answers.append(Prediction(name, classes[label], count / len(y), classes[usual], right))
    return answers, {name: (times[name], y, truth[name]) for name, y in predicted.items()}
