"""Udacity: windows of frames of the centre camera, with their times -> steering."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.manifest import MANIFEST
from nacdrive.datasets.recording import Recording
from nacdrive.datasets.udacity_log import is_log, read_log
from nacdrive.datasets.udacity_log_convert import SOURCE, episodes_of
from nacdrive.models import PolicyConfig
from nacdrive.tasks.base import Batch, LossOptions, Sample
from nacdrive.tasks.udacity_augment import Augmentation, augmented
from nacdrive.tasks.udacity_blocks import blocks_of, hold_out
from nacdrive.tasks.udacity_frames import CROP, HEIGHT, SEEN, WIDTH, prepared

SIDE_STEERING = {"left": 0.2, "right": -0.2}
"""What a side camera's picture asks for beside the centre one's steering: it sees the car a stride off the line."""
BINS = 21
"""Of the steering, by which its distribution is balanced."""


class Udacity:
    """The task as it is learnt from recordings, the simulator's own or nacdrive's."""

    name = SOURCE
    inputs: tuple[str, ...] = ("frames", "t", "padding")
    measure_name = "mae"
    augmentation = Augmentation()

    def load(self, folders: Sequence[Path]) -> list[Sample]:
        """One sample per drive: ``frames`` uint8 [N, 66, 200, 3] (YUV), ``t`` [N] s, ``target`` [N] steering.

        Where there are side cameras, also ``left`` and ``right``, like ``frames``.

        Raises:
            UserError: if a folder holds neither a log of the simulator nor a recording of it.
        """
        if not folders:
            raise UserError("there is nothing to learn from: give --data the folder of a log or of a recording.")
        samples = []
        for folder in folders:
            samples += [drive_sample(episode, f"{folder.name} drive {episode.seed}") for episode in episodes(folder)]
        return samples

    def split(self, samples: Sequence[Sample], valid_share: float, seed: int) -> tuple[list[Sample], list[Sample]]:
        """Contiguous blocks to validate on, chosen at random, and the rest to learn from, with the side cameras.

        Raises:
            UserError: if the data are too short to be split.
        """
        blocks = blocks_of(samples)
        wanted = max(1, round(valid_share * len(blocks))) if valid_share > 0 else 0
        if wanted >= len(blocks):
            raise UserError(
                "the data are too short to be split into training and validation: give more, or longer drives."
            )
        order = torch.randperm(len(blocks), generator=torch.Generator().manual_seed(seed)).tolist()
        train, valid = hold_out(samples, blocks, order[:wanted])
        return with_sides(train), center_alone(valid)

    def policy_config(self, model: str, window: int, samples: Sequence[Sample], **more: Any) -> PolicyConfig:
        """The network of the paper's Table 4, for the frame rate of ``samples``."""
        more.pop("instruments", None)
        gap_s = float(torch.cat([sample.fields["t"].diff() for sample in samples]).median())
        return PolicyConfig(
            task=self.name,
            model=model,
            actions=(),
            window=window,
            repeat=1,
            gap_s=round(gap_s, 6),
            height=HEIGHT,
            width=WIDTH,
            crop=CROP,
            resize=SEEN,
            yuv=True,
            activation="elu",
            channels=(24, 36, 48, 64, 64),
            kernels=(5, 5, 5, 3, 3),
            strides=(2, 2, 2, 1, 1),
            dropout=0.5,
            d_model=100,
            num_heads=20,
            dense=64,
            **more,
        )

    def class_weights(self, samples: Sequence[Sample], power: float) -> Tensor:
        """[bins] weights of steering angles, such that their mean over the frames is 1: most roads are straight."""
        counts = torch.bincount(bin_of(torch.cat([s.fields["target"] for s in samples])), minlength=BINS).double()
        share = (counts / counts.sum()).clamp(min=0.01)
        weights = share**-power
        return (weights / (weights * counts).sum() * counts.sum()).float()

    def augment(self, batch: Batch, generator: torch.Generator) -> Batch:
        """See ``udacity_augment``."""
        return augmented(batch, self.augmentation, generator)

    def loss(self, outputs: Tensor, batch: Batch, weights: Tensor, options: LossOptions) -> tuple[Tensor, Tensor]:
        """Squared error of the steering, weighted; outputs [B, T, 1]."""
        present = ~batch["padding"]
        target = batch["target"][present]
        weight = weights[bin_of(target)]
        return (weight * (outputs[..., 0][present].float() - target).square()).sum(), weight.sum()

    def measure(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sum of the absolute errors of the steering, clamped as it is when driving, and number of frames."""
        present = ~batch["padding"]
        steering = outputs[..., 0][present].float().clamp(-1, 1)
        return (steering - batch["target"][present]).abs().sum(), present.sum()


def episodes(folder: Path) -> list[Episode]:
    """The drives in a folder, whichever kind it is of.

    Raises:
        UserError: if it is of neither.
    """
    if is_log(folder):
        return list(episodes_of(read_log(folder)))
    if not (folder / MANIFEST).is_file():
        raise UserError(
            f"{folder} holds neither a log of the simulator (driving_log.csv) nor a recording ({MANIFEST}): "
            "check --data."
        )
    recording = Recording.open(folder, source=SOURCE)
    return [recording.load(index) for index in range(len(recording))]


def drive_sample(episode: Episode, name: str) -> Sample:
    """A drive in memory."""
    fields = {
        "frames": torch.from_numpy(prepared(episode.frames, name)),
        "t": torch.tensor(episode.t_s),
        "target": torch.tensor(episode.label),
        **{side: torch.from_numpy(prepared(frames, name)) for side, frames in episode.side_frames.items()},
    }
    return Sample(name, fields)


def with_sides(samples: Sequence[Sample]) -> list[Sample]:
    """The centre camera of every sample, and each side camera as a drive of its own that steers back to the line."""
    sides = [
        Sample(
            f"{sample.name}, {side} camera",
            {
                "frames": sample.fields[side],
                "t": sample.fields["t"],
                "target": (sample.fields["target"] + correction).clamp(-1, 1),
            },
        )
        for sample in samples
        for side, correction in SIDE_STEERING.items()
        if side in sample.fields
    ]
    return center_alone(samples) + sides


def center_alone(samples: Sequence[Sample]) -> list[Sample]:
    """The centre camera of every sample."""
    kept = ("frames", "t", "target")
    return [Sample(s.name, {name: s.fields[name] for name in kept}) for s in samples]


def bin_of(steering: Tensor) -> Tensor:
    """Index of each steering's bin."""
    return ((steering.clamp(-1, 1) + 1) * (BINS / 2)).long().clamp(0, BINS - 1)


TASK = Udacity()
