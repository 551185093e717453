"""Tasks learnt from drives: a policy's network, losses and weights, and pictures changed as a camera might see them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from nacdrive.common.camera_mount import upright
from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import Episode
from nacdrive.models import Policy, PolicyConfig, save_policy
from nacdrive.models.driving import DrivingNetwork
from nacdrive.models.series import layer_options
from nacdrive.tasks.base import LossOptions, Task
from nacdrive.tasks.sample import Batch, Sample
from nacdrive.tasks.splits import evenly


class DrivingTask(Task):
    """A task that is learnt from drives, for a policy.

    Samples are episodes with the fields ``frames`` uint8 [N, height, width, 3], ``t`` [N] in seconds, and labels.
    """

    inputs = ("frames", "t", "padding")
    window = 4
    """Frames that a decision of the bench's policies may depend on; under ``paper`` it is one."""

    @abstractmethod
    def load(self, folders: Sequence[Path]) -> list[Sample]:
        """One sample per episode; see ``Task.load``."""

    @abstractmethod
    def knows(self, folder: Path) -> bool:
        """Whether a folder holds drives that this task is made for."""

    @abstractmethod
    def policy_config(self, model: str, window: int, samples: Sequence[Sample], **more: Any) -> PolicyConfig:
        """Architecture of the task's network around the sequence layer ``model``; what it does not know it ignores."""

    def network(self, model: str, train: Sequence[Sample], **options: Any) -> DrivingNetwork:
        return DrivingNetwork(self.config(model, 1 if self.protocol == "paper" else self.window, train, **options))

    def config(self, model: str, window: int, train: Sequence[Sample], **options: Any) -> PolicyConfig:
        """The policy's config, with what the protocol pins."""
        given = {**layer_options(model, self.protocol), **options}
        if self.protocol == "paper":
            # A frame alone has no gap to the next; the drive that it came from had.
            one = train[0]
            train = [Sample("", {**one.fields, "t": torch.stack([torch.zeros(()), one.labels["gap_s"]])})]
        return self.policy_config(model, window, train, options=given)

    def save(self, network: DrivingNetwork, path: Path, meta: dict[str, Any]) -> None:
        """A policy's file: ``nacdrive drive`` takes it."""
        save_policy(Policy(network, network.config.model), path, meta)


def truncate(samples: Sequence[Sample], most: int | None) -> list[Sample]:
    """The first steps of every sample, about ``most`` in all."""
    if most is None:
        return list(samples)
    each = max(16, most // len(samples))
    return [Sample(s.name, {name: value[:each] for name, value in s.fields.items()}) for s in samples]


def frames_of(samples: Sequence[Sample], most: int | None) -> list[Sample]:
    """Every frame a sample of its own, ``gap_s`` of its drive as a label; at most ``most``, evenly spread."""
    gaps = {s.name: s.fields["t"].diff().median().float() for s in samples}
    return [
        Sample(
            f"{s.name} frame {i}",
            {name: value[i : i + 1] for name, value in s.fields.items()},
            {"gap_s": gaps[s.name]},
        )
        for s, i in evenly([(s, i) for s in samples for i in range(len(s))], most)
    ]


def median_gap(samples: Sequence[Sample]) -> float:
    """Typical time between two frames, in seconds."""
    return float(torch.cat([sample.fields["t"].diff() for sample in samples]).median())


def chooses(episode: Episode) -> bool:
    """Whether there is a choice to learn in every frame; if not, there are steering and pedal."""
    known = (episode.expert_choice >= 0).any() or (episode.choice >= 0).all()
    return episode.expert_steering is None and bool(known)


def control_of(episode: Episode) -> Tensor:
    """[N, 2] steering and pedal (throttle minus brake) to learn, -1 .. 1."""
    return torch.tensor(np.stack([episode.label, np.clip(episode.pedal_label, -1.0, 1.0)], axis=1))


def refuse_mixed(choosing: Iterable[bool], folders: Sequence[Path]) -> None:
    """Refuse episodes of which some hold choices and others steering and pedals.

    Raises:
        UserError: for such episodes.
    """
    if len(set(choosing)) > 1:
        raise UserError(
            f"some episodes in {', '.join(map(str, folders))} were driven by choices and others continuously: train on "
            "those of one kind."
        )


def inverse_frequency(classes: Tensor, count: int, power: float) -> Tensor:
    """[count] weights that fall with the frequency of each class to ``power``, mean 1 over ``classes``."""
    counts = torch.bincount(classes, minlength=count).double()
    # What hardly ever occurs must not outweigh all the rest: at least 1 % is assumed.
    share = (counts / counts.sum()).clamp(min=0.01)
    weights = share**-power
    return (weights / (weights * counts).sum() * counts.sum()).float()


def choice_loss(scores: Tensor, batch: Batch, weights: Tensor, options: LossOptions) -> tuple[Tensor, Tensor]:
    """Cross-entropy with the expert's choice, mixed with that against its whole distribution.

    Args:
        scores: [B, T, choices].
        batch: ``target`` [B, T], -1 where unknown; ``teacher`` [B, T, choices] its scores, NaN where unknown.
        weights: [choices].
        options: ``soft`` is the share of the distribution.

    Returns:
        Weighted sum of the losses, and sum of the weights.
    """
    known = ~batch["padding"] & (batch["target"] >= 0)
    outputs, target, teacher = scores[known].float(), batch["target"][known], batch["teacher"][known]
    log_p = outputs.log_softmax(dim=-1)
    hard = F.nll_loss(log_p, target, reduction="none")
    soft = -(teacher.nan_to_num(0.0).softmax(dim=-1) * log_p).sum(dim=-1)
    share = torch.where(teacher.isnan().any(dim=-1), 0.0, options.soft)
    weight = weights[target]
    return (weight * torch.lerp(hard, soft, share)).sum(), weight.sum()


def agreement(scores: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Number of frames whose best score [B, T, choices] is the expert's choice, and of all frames."""
    present = ~batch["padding"]
    return ((scores.argmax(dim=-1) == batch["target"]) & present).sum(), present.sum()


def relight(frames: Tensor, generator: torch.Generator) -> Tensor:
    """Each sequence of uint8 [B, T, H, W, 3] a little brighter or darker, the same for all of its frames."""
    B, T, H, W, C = frames.shape
    gain = torch.empty(B, 1).uniform_(0.8, 1.2, generator=generator)
    offset = torch.empty(B, 1).uniform_(-15, 15, generator=generator)
    tables = (gain * torch.arange(256) + offset).clamp(0, 255).to(torch.uint8).numpy()
    lit = torch.empty_like(frames)
    for new, old, table in zip(lit, frames, tables, strict=True):
        cv2.LUT(old.view(T * H, W * C).numpy(), table, dst=new.view(T * H, W * C).numpy())
    return lit


CAMERA = (160, 320)
"""Rows and columns of the Udacity simulator's pictures."""
CROP = (60, CAMERA[0] - 25)
"""Rows that are kept: neither sky nor hood."""
SEEN = (66, 200)
"""Rows and columns that the convolutions see."""


def prepare(frame: NDArray[np.uint8], crooked: bool = False) -> NDArray[np.uint8]:
    """[160, 320, 3] RGB -> [66, 200, 3] YUV: the quick twin of ``models.driving``, within one grey level.

    The picture of a ``crooked`` camera is turned upright first.
    """
    kept = upright(frame, *CROP) if crooked else frame[CROP[0] : CROP[1]]
    cut = cv2.resize(kept, SEEN[::-1], interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.cvtColor(cut, cv2.COLOR_RGB2YUV), dtype=np.uint8)


def prepared(images: Iterable[bytes], where: str, crooked: bool = False) -> NDArray[np.uint8]:
    """Encoded images of the Udacity simulator -> uint8 [N, 66, 200, 3] YUV; see ``prepare``.

    Raises:
        UserError: if one cannot be decoded or has another size than the simulator's; ``where`` it is from.
    """
    out = []
    for i, data in enumerate(images):
        frame = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
        if frame is None or frame.shape != (*CAMERA, 3):
            what = "cannot be decoded" if frame is None else f"is {frame.shape[1]}x{frame.shape[0]}"
            raise UserError(
                f"image {i} of {where} {what}: the simulator records {CAMERA[1]}x{CAMERA[0]} pixels; "
                "leave that drive out."
            )
        out.append(prepare(np.asarray(frame, dtype=np.uint8), crooked))
    return np.stack(out)


@dataclass(frozen=True)
class Augmentation:
    """How far each change of a picture of a road may go; frames are [66, 200] pixels in YUV."""

    sideways: int = 12
    """Pixels by which the road may move to either side: the car points elsewhere."""
    steering_per_pixel: float = 0.006
    """Steering that leads back from one such pixel."""
    upward: int = 5
    """Pixels up or down: a hill, a nodding car."""
    gain: tuple[float, float] = (0.55, 1.3)
    """Of the luminance."""
    offset: float = 20.0
    """Of the luminance, to either side."""
    saturation: tuple[float, float] = (0.5, 1.4)
    """Of the colours."""
    tint: float = 8.0
    """Offset of each colour channel, to either side."""
    shadow: float = 0.5
    """Share of the sequences with a shadow across the road."""
    pace: tuple[float, float] = (0.25, 1.5)
    """Of the time stamps: a simulator may run slower or faster than the recording did."""


def augmented(batch: Batch, how: Augmentation, generator: torch.Generator) -> Batch:
    """A batch as it might also have been; ``batch`` stays as it is.

    Its fields: ``frames`` uint8 [B, T, 66, 200, 3], ``t`` [B, T], ``target`` [B, T] steering.
    """
    frames, target = batch["frames"].clone(), batch["target"].clone()
    B = len(frames)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return torch.empty(B, *shape).uniform_(low, high, generator=generator)

    mirrored = uniform(0, 1) < 0.5
    frames[mirrored] = frames[mirrored].flip(3)
    target[mirrored] = -target[mirrored]

    down = uniform(-how.upward, how.upward + 1).floor().long().tolist()
    right = uniform(-how.sideways, how.sideways + 1).floor().long()
    for one, dy, dx in zip(frames, down, right.tolist(), strict=True):
        shift(one, dy, dx)
    target = (target + how.steering_per_pixel * right.unsqueeze(1)).clamp(-1, 1)

    gains = torch.cat([uniform(*how.gain, 1), uniform(*how.saturation, 1).expand(-1, 2)], dim=1)
    offsets = torch.cat([uniform(-how.offset, how.offset, 1), uniform(-how.tint, how.tint, 2)], dim=1)
    dark = uniform(0.4, 0.8)
    has_shadow = uniform(0, 1) < how.shadow
    lines = uniform(0, 1, 4)
    for i in range(B):
        light = gains[i].repeat(*frames.shape[2:4], 1)
        if has_shadow[i]:
            light[..., 0][shadow_mask(frames.shape[2], frames.shape[3], lines[i])] *= dark[i]
        # Colours turn about their neutral 128, the luminance about black.
        middle = torch.tensor([0.0, 128.0, 128.0])
        lit = (frames[i].float() - middle) * light + (middle + offsets[i])
        frames[i] = lit.clamp_(0, 255).to(torch.uint8)
    first = batch["t"][:, :1]
    t = first + (batch["t"] - first) * uniform(*how.pace, 1).to(batch["t"].dtype)
    return {**batch, "frames": frames, "target": target, "t": t}


def shift(frames: Tensor, down: int, right: int) -> None:
    """Move [T, H, W, 3] by whole pixels, in place; what comes in repeats the edge."""
    H, W = frames.shape[1:3]
    rows = (torch.arange(H) - down).clamp(0, H - 1)
    columns = (torch.arange(W) - right).clamp(0, W - 1)
    frames.copy_(frames[:, rows][:, :, columns])


def shadow_mask(height: int, width: int, numbers: Tensor) -> Tensor:
    """[height, width], True on one side of a line from the top edge to the bottom edge; ``numbers`` [4] in 0 .. 1."""
    top, bottom, side, _ = numbers.tolist()
    across = width * (top + (bottom - top) * torch.arange(height) / height)
    left: Tensor = torch.arange(width).unsqueeze(0) < across.unsqueeze(1)
    return ~left if side < 0.5 else left
