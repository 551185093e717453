"""The simulator's tracks as the paper learnt them, by one camera or three: network, settings and folds of its own."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nacdrive.common.camera_mount import SCENE, STRAIGHT
from nacdrive.common.compat import camera_mount
from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.manifest import MANIFEST
from nacdrive.datasets.recording import Recording, duplicates_sentence
from nacdrive.datasets.udacity_log import is_log, read_log
from nacdrive.datasets.udacity_log_convert import SOURCE, episodes_of
from nacdrive.layers import build
from nacdrive.models import PolicyConfig
from nacdrive.models.driving import DrivingNetwork
from nacdrive.tasks.base import EVERYTHING, Fold, Metric, ProtocolName, Size, shuffled_folds
from nacdrive.tasks.driving import NO_TEST, DrivingTask, decided_on, frames_of, inverse_frequency, truncate
from nacdrive.tasks.images import CAMERA, CROP, SEEN, Augmentation, augmented, prepared
from nacdrive.tasks.sample import Batch, Sample
from nacdrive.tasks.splits import block_folds, blocks_of, hold_out, rotate

SIDE_STEERING = {"left": 0.2, "right": -0.2}
"""What a side camera's picture asks for beside the centre one's steering: it sees the car a stride off the line."""
BINS = 21
"""Of the steering, by which its distribution is balanced."""
AUGMENTED = 0.6
"""Probability with which the authors' script changes a frame."""
STEERING_METRICS = (
    Metric("mse", "steering MSE", higher=False, digits=4, paper=True),
    Metric("mae", "steering MAE", higher=False, digits=4),
    Metric("autonomy", "autonomy in closed loop, %", higher=True, digits=1),
    Metric("off_road_per_lap", "off road, per lap", higher=False),
    Metric("offset_mean_m", "mean distance from the lane's middle, m", higher=False),
)
# The convolutions and sizes of the paper's Table 4 for the Udacity simulator.
UDACITY_NETWORK: dict[str, Any] = {
    "height": CAMERA[0], "width": CAMERA[1], "upright": True, "crop": CROP, "resize": SEEN, "yuv": True,
    "activation": "elu", "channels": (24, 36, 48, 64, 64), "kernels": (5, 5, 5, 3, 3), "strides": (2, 2, 2, 1, 1),
    "dropout": 0.5, "d_model": 100, "num_heads": 20, "dense": 64,
}  # fmt: skip


class MapRows(DrivingNetwork):
    """The authors' form: the last convolution's 64 maps of 1 x 18 are the steps of the sequence; it has no time in it.

    The sequence layer runs over the maps of one frame and is read at the last of them.
    """

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(config)
        maps, columns = config.channels[-1], self.sequence.in_features // config.channels[-1]
        self.maps = maps
        self.sequence = build(
            config.model, config.d_model, config.num_heads, maps, in_features=columns, **config.options
        )

    def forward(self, frames: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        """Steering [B, T, 1] of each frame by itself; see ``DrivingNetwork.forward``."""
        B, T = frames.shape[:2]
        x = self.features(frames.flatten(0, 1)).view(B * T, self.maps, -1)
        steering: Tensor = self.head(self.sequence.last(x))
        return steering.view(B, T, 1)


class Udacity(DrivingTask):
    """How a person or an expert steered by one camera, or by three, on the simulator's tracks, under one protocol."""

    name = source = SOURCE
    protocols = ("sequence", "paper")
    measure_name = "mae"
    sizes: Mapping[str, Size] = {"smoke": Size(1, 120, 120), "cpu": Size(4), "full": Size(drive=5)}
    data_folders = ("udacity", "udacity_track")
    closed_loop = True
    augmentation = Augmentation()

    metrics: tuple[Metric, ...] = STEERING_METRICS
    settings: Mapping[str, Any] = {"batch_size": 8, "chunk": 16, "epochs": 10, "class_weights": 0.0}
    note = "Blocks of the drive are held out with a gap beside them; other blocks choose the epoch."

    def __init__(self, protocol: ProtocolName = "sequence") -> None:
        super().__init__(protocol)
        if protocol == "paper":
            self.settings = {
                **self.settings, "batch_size": 40, "chunk": 1, "valid_batch": 256, "schedule": "constant",
                "patience": 0, "average": 0.0,
            }  # fmt: skip
            # The authors' form is no policy: it cannot drive.
            self.metrics, self.closed_loop = STEERING_METRICS[:2], False
            self.note = f"Single frames in shuffled folds of which the reported one chooses the epoch: {NO_TEST}"

    def knows(self, folder: Path) -> bool:
        return is_log(folder) or super().knows(folder)

    def load(self, folders: Sequence[Path]) -> list[Sample]:
        """One sample per drive: ``frames`` uint8 [N, 66, 200, 3] (YUV), ``t`` [N] s, ``target`` [N] steering.

        Where there are side cameras, also ``left`` and ``right``, like ``frames``.
        """
        if not folders:
            raise UserError("there is nothing to learn from: give --data the folder of a log or of a recording.")
        samples: dict[str, Sample] = {}
        twice = 0
        for folder in folders:
            for episode in drives_in(folder):
                if (key := episode.fingerprint) in samples:
                    twice += 1
                else:
                    samples[key] = drive_sample(episode, f"{folder.name} drive {episode.seed}", self.first)
        if twice:
            warnings.warn(duplicates_sentence(twice), stacklevel=2)
        return list(samples.values())

    def split(self, samples: Sequence[Sample], valid_share: float, seed: int) -> tuple[list[Sample], list[Sample]]:
        """Contiguous blocks to validate on, chosen at random, and the rest to learn from, with the side cameras."""
        blocks = blocks_of(samples)
        wanted = max(1, round(valid_share * len(blocks))) if valid_share > 0 else 0
        if wanted >= len(blocks):
            what = f"the data are too short for --valid-share {valid_share:g}"
            raise UserError(f"{what}: give a smaller one, or more or longer drives.")
        order = torch.randperm(len(blocks), generator=torch.Generator().manual_seed(seed)).tolist()
        train, valid = hold_out(samples, blocks, order[:wanted])
        return with_sides(train), center_alone(valid)

    def architecture(self, samples: Sequence[Sample], gap_s: float, instruments: bool) -> dict[str, Any]:
        return {"actions": (), "repeat": 1, **UDACITY_NETWORK}

    def folds(self, data_dirs: Mapping[str, Path], count: int, seed: int, size: Size = EVERYTHING) -> list[Fold]:
        """See ``Task.folds``; sizes count frames of the centre camera."""
        samples = self.load([data_dirs[self.name]])
        if self.protocol == "paper":
            # A row bears its side cameras, see ``augment``.
            rows = frames_of(samples, size.max_samples)
            return shuffled_folds(self.name, rows, rotate(len(rows), 5, seed)[:count], center_alone)
        parts = []
        for k, (learn, test) in enumerate(block_folds(samples, 5)[:count]):
            train, valid = self.split(truncate(learn, size.max_samples), 0.15, seed + k)
            tests = truncate(center_alone(test), size.max_tests)
            parts.append(Fold(f"blocks {k + 1} of 5", train, valid, {self.name: tests}))
        return parts

    def network(self, model: str, train: Sequence[Sample], **options: Any) -> DrivingNetwork:
        if self.protocol == "sequence":
            return super().network(model, train, **options)
        return MapRows(self.config(model, 1, train, **options))

    def save(self, network: DrivingNetwork, path: Path, meta: dict[str, Any]) -> None:
        """A policy's file; the authors' form is no policy, and is not kept."""
        if self.protocol == "sequence":
            super().save(network, path, meta)

    def class_weights(self, samples: Sequence[Sample], power: float) -> Tensor:
        """[bins] weights of steering angles, such that their mean over the frames is 1: most roads are straight."""
        return inverse_frequency(bin_of(torch.cat([s.fields["target"] for s in samples])), BINS, power)

    def augment(self, batch: Batch, generator: torch.Generator) -> Batch:
        """See ``augmented``; under ``paper`` a frame is changed with probability 0.6, then of any of its cameras."""
        if self.protocol == "sequence":
            return augmented(batch, self.augmentation, generator)
        count, mixed = len(batch["target"]), {**batch, **{name: batch[name].clone() for name in ("frames", "target")}}
        is_changed = torch.rand(count, generator=generator) < AUGMENTED
        camera = torch.randint(1 + len(SIDE_STEERING), (count,), generator=generator)
        for number, (side, correction) in enumerate(SIDE_STEERING.items(), start=1):
            if side in batch:
                rows = is_changed & (camera == number)
                mixed["frames"][rows] = batch[side][rows]
                mixed["target"][rows] = (batch["target"][rows] + correction).clamp(-1, 1)
        changed = augmented(mixed, self.augmentation, generator)
        for name in ("frames", "t", "target"):
            changed[name][~is_changed] = batch[name][~is_changed]
        return changed

    def loss(self, outputs: Tensor, batch: Batch, weights: Tensor, soft: float) -> tuple[Tensor, Tensor]:
        """Squared error of the steering, weighted; outputs [B, T, 1]."""
        present = ~batch["padding"]
        target = batch["target"][present]
        weight = weights[bin_of(target)]
        return (weight * (outputs[..., 0][present].float() - target).square()).sum(), weight.sum()

    def measure(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sum of the absolute errors of the steering, clamped as it is when driving, and number of frames."""
        present = ~batch["padding"]
        return (outputs[..., 0][present].float().clamp(-1, 1) - batch["target"][present]).abs().sum(), present.sum()

    def score(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, float]:
        steering = torch.cat([y[..., 0] for y in outputs]).clamp(-1, 1)
        error = steering - torch.cat([sample.fields["target"] for sample in samples])
        return {"mse": float(error.square().mean()), "mae": float(error.abs().mean())}

    def references(self, task: str, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, list[Tensor]]:
        """Straight on, and always the mean steering of the training part."""
        mean = torch.cat([sample.fields["target"] for sample in train]).mean()
        constants = {"always 0": torch.zeros(1), "mean of the training part": mean.reshape(1)}
        return {name: [value.expand(len(s), 1) for s in samples] for name, value in constants.items()}


def drives_in(folder: Path) -> list[Episode]:
    """The drives in a folder, whichever kind it is of."""
    if is_log(folder):
        return list(episodes_of(read_log(folder)))
    if not (folder / MANIFEST).is_file():
        what = f"{folder} holds neither a log of the simulator (driving_log.csv) nor a recording ({MANIFEST})"
        raise UserError(f"{what}: check --data.")
    recording = Recording.open(folder, source=SOURCE)
    return [recording.load(index) for index in range(len(recording))]


def drive_sample(episode: Episode, name: str, policy: PolicyConfig | None = None) -> Sample:
    """A drive in memory, its pictures cut and, of a crooked camera, turned upright as ``policy`` does, or a new one."""
    rows = (policy and policy.crop) or CROP
    crooked = (policy is None or policy.upright) and camera_mount(episode.meta, STRAIGHT, SCENE) == SCENE
    pictures = {"frames": episode.frames, **episode.side_frames}
    fields = {key: torch.from_numpy(prepared(images, name, crooked, rows)) for key, images in pictures.items()}
    fields |= {
        "t": torch.tensor(episode.taken_s),
        "speed": torch.tensor(episode.speed_mps),
        "target": torch.tensor(episode.label),
        "right_hand": torch.full((len(episode),), bool(episode.meta.get("slow_cars"))),
    }
    return Sample(name, decided_on(episode, fields))


def with_sides(samples: Sequence[Sample]) -> list[Sample]:
    """The centre camera of every sample, and each side camera as a drive of its own that steers back to the line."""
    sides = []
    for sample in samples:
        for side, correction in SIDE_STEERING.items():
            if side in sample.fields:
                target = (sample.fields["target"] + correction).clamp(-1, 1)
                fields = {**sample.fields, "frames": sample.fields[side], "target": target}
                sides.append(Sample(f"{sample.name}, {side} camera", fields, sample.labels))
    return center_alone([*samples, *sides])


def center_alone(samples: Sequence[Sample]) -> list[Sample]:
    """The centre camera of every sample."""
    return [Sample(s.name, {k: v for k, v in s.fields.items() if k not in SIDE_STEERING}, s.labels) for s in samples]


def bin_of(steering: Tensor) -> Tensor:
    """Index of each steering's bin."""
    return ((steering.clamp(-1, 1) + 1) * (BINS / 2)).long().clamp(0, BINS - 1)
