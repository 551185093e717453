"""CarRacing: windows of frames with their times -> which of five actions the expert would take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import torch
from torch import Tensor
from torch.nn import functional as F

from nacdrive.common.errors import UserError
from nacdrive.datasets.recording import Recording
from nacdrive.envs.carracing.env import ACTIONS, to_action
from nacdrive.envs.carracing.lazy import FPS
from nacdrive.models import PolicyConfig
from nacdrive.tasks.base import Batch, LossOptions, Sample
from nacdrive.tasks.splits import split_samples

INSTRUMENTS = (84, 96)
"""Rows of a frame that show speed, wheel angle and gyro instead of the track."""
MAX_SHIFT = 3
"""Random shift of the scene in pixels: what half a metre off, or a slightly turned car, would look like."""


class CarRacing:
    """The task as it is learnt from recordings."""

    name = "carracing"
    inputs = ("frames", "t", "padding")
    measure_name = "accuracy"

    def load(self, folders: Sequence[Path]) -> list[Sample]:
        """One sample per episode: ``frames`` uint8 [N, 96, 96, 3], ``t`` [N] s, ``target`` [N], ``teacher`` [N, 5].

        ``target`` is -1 where the expert's choice is unknown; ``teacher`` holds its scores, NaN where unknown.

        Raises:
            UserError: if a folder holds no recording of CarRacing, or two were recorded at different rates.
        """
        if not folders:
            raise UserError("there is nothing to learn from: give --data the folder of a recording.")
        samples: list[Sample] = []
        rates: dict[float, Path] = {}
        for folder in folders:
            recording = Recording.open(folder, source=self.name)
            rates.setdefault(float(recording.meta["fps"]), folder)
            samples += [self.sample(recording, index) for index in range(len(recording))]
        if len(rates) > 1:
            told = ", ".join(f"{path} at {rate:g}/s" for rate, path in rates.items())
            raise UserError(f"the recordings have different frame rates ({told}): train on those of one rate.")
        return samples

    def sample(self, recording: Recording, index: int) -> Sample:
        """Episode ``index`` of a recording, in memory."""
        episode = recording.load(index)
        N = len(episode)
        logits = episode.expert_logits
        teacher = torch.full((N, len(ACTIONS)), torch.nan) if logits is None else torch.tensor(logits)
        if teacher.shape[1] != len(ACTIONS) or int(episode.expert_choice.max()) >= len(ACTIONS):
            raise UserError(
                f"{recording.episodes[index].path} was driven with other actions than the five of CarRacing."
            )
        fields = {
            "frames": torch.from_numpy(episode.decoded()),
            "t": torch.tensor(episode.t_s),
            "target": torch.tensor(episode.expert_choice),
            "teacher": teacher,
        }
        return Sample(recording.episodes[index].path.name, fields)

    def split(self, samples: Sequence[Sample], valid_share: float, seed: int) -> tuple[list[Sample], list[Sample]]:
        """Whole episodes to learn from and to validate on."""
        return split_samples(samples, valid_share, seed)

    def policy_config(self, model: str, window: int, samples: Sequence[Sample], **more: Any) -> PolicyConfig:
        """The network of the paper's Table 4 (strides are ours), for the frame rate of ``samples``.

        ``instruments=False`` hides the rows with speed, wheel and gyro.
        """
        gap_s = float(torch.cat([sample.fields["t"].diff() for sample in samples]).median())
        actions = [to_action(choice) for choice in range(len(ACTIONS))]
        hidden = None if more.pop("instruments", True) else INSTRUMENTS
        return PolicyConfig(
            task=self.name,
            model=model,
            actions=tuple((a.steering, a.throttle, a.brake) for a in actions),
            window=window,
            repeat=round(gap_s * FPS),
            gap_s=round(gap_s, 6),
            masked_rows=hidden,
            strides=(3, 2, 2),
            **more,
        )

    def class_weights(self, samples: Sequence[Sample], power: float) -> Tensor:
        """[5] weights, such that their mean over the frames is 1."""
        targets = torch.cat([sample.fields["target"] for sample in samples])
        counts = torch.bincount(targets[targets >= 0], minlength=len(ACTIONS)).double()
        # An action that the expert hardly ever takes must not outweigh all others: at least 1 % is assumed.
        share = (counts / counts.sum()).clamp(min=0.01)
        weights = share**-power
        return (weights / (weights * counts).sum() * counts.sum()).float()

    def augment(self, batch: Batch, generator: torch.Generator) -> Batch:
        """Each sequence shifted by a few pixels and lit a little differently, the same for all of its frames."""
        frames = batch["frames"]
        B, T, H, W, C = frames.shape
        shifts = torch.randint(-MAX_SHIFT, MAX_SHIFT + 1, (B, 2), generator=generator).tolist()
        gain = torch.empty(B, 1).uniform_(0.8, 1.2, generator=generator)
        offset = torch.empty(B, 1).uniform_(-15, 15, generator=generator)
        tables = (gain * torch.arange(256) + offset).clamp(0, 255).to(torch.uint8).numpy()
        lit = torch.empty_like(frames)
        for new, old, table, shift in zip(lit, frames, tables, shifts, strict=True):
            cv2.LUT(old.view(T * H, W * C).numpy(), table, dst=new.view(T * H, W * C).numpy())
            move(new[:, : INSTRUMENTS[0]], *shift)
        return {**batch, "frames": lit}

    def loss(self, outputs: Tensor, batch: Batch, weights: Tensor, options: LossOptions) -> tuple[Tensor, Tensor]:
        """Cross-entropy with the expert's choice, mixed with that against its whole distribution; scores [B, T, 5]."""
        known = ~batch["padding"] & (batch["target"] >= 0)
        scores, target, teacher = outputs[known].float(), batch["target"][known], batch["teacher"][known]
        log_p = scores.log_softmax(dim=-1)
        hard = F.nll_loss(log_p, target, reduction="none")
        soft = -(teacher.nan_to_num(0.0).softmax(dim=-1) * log_p).sum(dim=-1)
        share = torch.where(teacher.isnan().any(dim=-1), 0.0, options.soft)
        weight = weights[target]
        return (weight * torch.lerp(hard, soft, share)).sum(), weight.sum()

    def measure(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Number of frames whose best score is the expert's choice, and of all frames."""
        present = ~batch["padding"]
        return ((outputs.argmax(dim=-1) == batch["target"]) & present).sum(), present.sum()


def move(frames: Tensor, down: int, right: int) -> None:
    """Move [T, H, W, 3] by whole pixels, in place; the strip that is left free keeps what it showed."""
    H, W = frames.shape[1:3]
    source = frames[:, max(0, -down) : H - max(0, down), max(0, -right) : W - max(0, right)].clone()
    frames[:, max(0, down) : H - max(0, -down), max(0, right) : W - max(0, -right)] = source


TASK = CarRacing()
