"""CarRacing: windows of frames with their times -> which of five actions the expert would take, or how it would steer
and hold the pedal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nacdrive.common.errors import UserError
from nacdrive.datasets.manifest import MANIFEST, read_manifest
from nacdrive.datasets.recording import Recording, unique_episodes
from nacdrive.envs.carracing.env import ACTIONS, to_action
from nacdrive.envs.carracing.lazy import FPS
from nacdrive.models import PolicyConfig
from nacdrive.tasks.base import EVERYTHING, Fold, LossOptions, Metric, ProtocolName, Size
from nacdrive.tasks.images import (
    DrivingTask,
    agreement,
    choice_loss,
    chooses,
    control_of,
    frames_of,
    inverse_frequency,
    median_gap,
    refuse_mixed,
    relight,
    truncate,
)
from nacdrive.tasks.sample import Batch, Sample
from nacdrive.tasks.splits import rotate, stratified

INSTRUMENTS = (84, 96)
"""Rows of a frame that show speed, wheel angle and gyro instead of the track."""
MAX_SHIFT = 3
"""Random shift of the scene in pixels: what half a metre off, or a slightly turned car, would look like."""
MOST_STEERING = 0.5
"""Labels of steering are clipped to this: the front wheels stop at 0.4 radians, and turn there no faster for more."""
SHARPNESS = (5.0, 1.0)
"""Factors on the errors of steering and pedal before the Huber loss: a racing line is steered by small numbers."""
HUBER = 0.1
"""Sharpened error from which on the loss grows in proportion."""
CLOSE = (0.05, 0.1)
"""Errors of steering and pedal up to which a continuous decision counts as the expert's."""
NOISY = 0.5
"""Share of the sequences with continuous labels that are seen through a noisy camera, ..."""
MOST_NOISE = 0.1
"""... and its largest standard deviation, as a share of full scale."""
NOISE_PLACES = 2**16

ACCURACY = Metric("accuracy", "actions as the expert, %", higher=True, paper=True)
RETURN = Metric("return", "return in closed loop", higher=True, digits=0)
FRACTION = Metric("expert_fraction", "share of the expert's return", higher=True, digits=3)


class CarRacing(DrivingTask):
    """The task as it is learnt from recordings, under one protocol."""

    name = "carracing"
    protocols = ("sequence", "paper")
    measure_name = "accuracy"
    metrics = (ACCURACY, RETURN, FRACTION)
    sizes = {"smoke": Size(1, 120, 120), "cpu": Size(4), "full": Size(drive=20)}
    data_folders = ("carracing", "carracing-expert")
    sample_recording = "carracing-sample"
    closed_loop = True

    def __init__(self, protocol: ProtocolName = "sequence") -> None:
        super().__init__(protocol)
        self.settings = {"batch": 8, "chunk": 16, "epochs": 100}
        self.note = (
            "Whole episodes are held out; the epoch is chosen on episodes of the training part. "
            "The return is that of tracks no training touched, where the budget has time to drive."
        )
        if protocol == "paper":
            self.settings |= {
                "batch": 32, "chunk": 1, "valid_batch": 256, "learning_rate": 1e-4, "optimizer": "adam",
                "schedule": "plateau", "patience": 0, "average": 0.0, "soft": 0.0, "class_weights": 0.0,
                "augment": False,
            }  # fmt: skip
            self.note = (
                "Single frames in shuffled, stratified folds, of which the reported one chooses the epoch: "
                "neighbouring frames are nearly alike, so this is no test on unseen road."
            )

    def knows(self, folder: Path) -> bool:
        """Whether it is a recording of CarRacing."""
        return (folder / MANIFEST).is_file() and read_manifest(folder)[0]["source"] == self.name

    def load(self, folders: Sequence[Path]) -> list[Sample]:
        """One sample per episode: ``frames`` uint8 [N, 96, 96, 3], ``t`` [N] s, ``target`` [N], ``teacher`` [N, 5].

        ``target`` is -1 where the expert's choice is unknown; ``teacher`` holds its scores, NaN where unknown. Of a
        continuous expert ``target`` is [N, 2], steering and pedal (throttle minus brake), and there is no ``teacher``.

        Raises:
            UserError: if a folder holds no recording of CarRacing, two were recorded at different rates, or some
                episodes hold choices and others steering and pedals.
        """
        if not folders:
            raise UserError("there is nothing to learn from: give --data the folder of a recording.")
        rates: dict[float, Path] = {}
        recordings = [Recording.open(folder, source=self.name) for folder in folders]
        for recording in recordings:
            rates.setdefault(float(recording.meta["fps"]), recording.folder)
        if len(rates) > 1:
            rates_found = ", ".join(f"{path} at {rate:g}/s" for rate, path in rates.items())
            raise UserError(f"the recordings have different frame rates ({rates_found}): train on those of one rate.")
        samples = [self.sample(recording, index) for recording, index in unique_episodes(recordings)]
        refuse_mixed((not continuous([sample]) for sample in samples), folders)
        return samples

    def sample(self, recording: Recording, index: int) -> Sample:
        """Episode ``index`` of a recording, in memory."""
        episode = recording.load(index)
        N = len(episode)
        fields = {"frames": torch.from_numpy(episode.decoded()), "t": torch.tensor(episode.t_s)}
        name = recording.episodes[index].path.name
        if not chooses(episode):
            target = control_of(episode)
            target[:, 0].clamp_(-MOST_STEERING, MOST_STEERING)
            return Sample(name, {**fields, "target": target})
        logits = episode.expert_logits
        teacher = torch.full((N, len(ACTIONS)), torch.nan) if logits is None else torch.tensor(logits)
        if teacher.shape[1] != len(ACTIONS) or int(episode.expert_choice.max()) >= len(ACTIONS):
            raise UserError(
                f"{recording.episodes[index].path} was driven with other actions than the five of CarRacing."
            )
        return Sample(name, {**fields, "target": torch.tensor(episode.expert_choice), "teacher": teacher})

    def policy_config(self, model: str, window: int, samples: Sequence[Sample], **more: Any) -> PolicyConfig:
        """The network of the paper's Table 4 (strides are ours), for the frame rate of ``samples``.

        ``instruments=False`` hides the rows with speed, wheel and gyro.
        """
        gap_s = median_gap(samples)
        steers = continuous(samples)
        actions = [to_action(choice) for choice in range(0 if steers else len(ACTIONS))]
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
            pedal=steers,
            **more,
        )

    def folds(self, data_dirs: Mapping[str, Path], count: int, seed: int, size: Size = EVERYTHING) -> list[Fold]:
        """See ``Task.folds``; sizes count frames."""
        samples = self.load([data_dirs[self.name]])
        if self.protocol == "paper":
            if continuous(samples):
                raise UserError(
                    f"{data_dirs[self.name]} holds steering and pedals, and the paper shuffles choices among five: "
                    "record them with nacdrive record --env carracing --expert ppo."
                )
            rows = frames_of(samples, size.max_samples)
            labels = torch.cat([row.fields["target"] for row in rows]).numpy()
            folds = []
            for k, (learn, keep) in enumerate(stratified(labels, 5, seed)[:count]):
                test = [rows[i] for i in keep]
                folds.append(Fold(f"fold {k + 1} of 5", [rows[i] for i in learn], test, {self.name: test}))
            return folds
        if len(samples) < 3:
            raise UserError(
                f"{data_dirs[self.name]} holds {len(samples)} episodes: three are the least, to learn from, to choose "
                "the epoch by, and to test on."
            )
        few = truncate(samples, size.max_samples)
        found = []
        for k, (learn, keep) in enumerate(rotate(len(samples), min(5, len(samples)), seed)[:count]):
            train, valid = self.split([few[i] for i in learn], 0.15, seed)
            tests = truncate([samples[i] for i in keep], size.max_tests)
            found.append(Fold(f"episodes {k + 1} of 5", train, valid, {self.name: tests}))
        return found

    def class_weights(self, samples: Sequence[Sample], power: float) -> Tensor:
        """[5] weights, such that their mean over the frames is 1; all alike where control is continuous."""
        if continuous(samples):
            return torch.ones(1)
        targets = torch.cat([sample.fields["target"] for sample in samples])
        return inverse_frequency(targets[targets >= 0], len(ACTIONS), power)

    def augment(self, batch: Batch, generator: torch.Generator) -> Batch:
        """Each sequence shifted by a few pixels and lit a little differently, the same for all of its frames.

        Steering by degrees would not be the same half a metre away: there, some are seen through a noisy camera.
        """
        if "teacher" not in batch:
            return {**batch, "frames": noisy(relight(batch["frames"], generator), generator)}
        shifts = torch.randint(-MAX_SHIFT, MAX_SHIFT + 1, (len(batch["frames"]), 2), generator=generator).tolist()
        lit = relight(batch["frames"], generator)
        for new, shift in zip(lit, shifts, strict=True):
            move(new[:, : INSTRUMENTS[0]], *shift)
        return {**batch, "frames": lit}

    def loss(self, outputs: Tensor, batch: Batch, weights: Tensor, options: LossOptions) -> tuple[Tensor, Tensor]:
        """See ``choice_loss``, scores [B, T, 5]; or Huber's loss of steering and pedal [B, T, 2]."""
        if "teacher" in batch:
            return choice_loss(outputs, batch, weights, options)
        present, sharp = ~batch["padding"], torch.tensor(SHARPNESS, device=outputs.device)
        found, target = outputs[present].float() * sharp, batch["target"][present] * sharp
        return F.huber_loss(found, target, delta=HUBER, reduction="sum"), torch.tensor(float(target.numel()))

    def measure(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """See ``agreement``, or ``close``."""
        if "teacher" in batch:
            return agreement(outputs, batch)
        present = ~batch["padding"]
        return close(outputs[present], batch["target"][present]).sum(), present.sum()

    def score(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, float]:
        """See ``Task.score``; driving is the bench's business."""
        truth = torch.cat([sample.fields["target"] for sample in samples])
        if continuous(samples):
            return {"accuracy": 100 * float(close(torch.cat(list(outputs)), truth).float().mean())}
        answer = torch.cat([y.argmax(dim=-1) for y in outputs])
        known = truth >= 0
        return {"accuracy": 100 * float((answer == truth)[known].float().mean())}

    def references(self, task: str, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, list[Tensor]]:
        """The action that the expert takes most often; of a continuous one the middle of steering and pedal."""
        targets = torch.cat([sample.fields["target"] for sample in train])
        if continuous(train):
            middle = targets.median(dim=0).values
            return {"median action": [middle.expand(len(sample), -1) for sample in samples]}
        scores = torch.bincount(targets[targets >= 0], minlength=len(ACTIONS)).float()
        return {"most frequent action": [scores.expand(len(sample), -1) for sample in samples]}


def continuous(samples: Sequence[Sample]) -> bool:
    """Whether the labels of ``samples``, of one kind, are steering and pedal."""
    return "teacher" not in samples[0].fields


def close(outputs: Tensor, target: Tensor) -> Tensor:
    """[N] whether steering and pedal [N, 2] are the expert's, within ``CLOSE``."""
    return ((outputs.float().clamp(-1, 1) - target).abs() <= torch.tensor(CLOSE, device=outputs.device)).all(dim=-1)


def noisy(frames: Tensor, generator: torch.Generator) -> Tensor:
    """Some sequences of uint8 [B, T, H, W, 3] with Gaussian noise on every pixel and channel, in place."""
    B, T, H, W, C = frames.shape
    strength = 255 * MOST_NOISE * torch.rand(B, generator=generator) * (torch.rand(B, generator=generator) < NOISY)
    rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
    size = T * H * W * C
    # One draw for the whole batch, from another place on for each sequence: a fifth of the time.
    drawn = rng.standard_normal(size + NOISE_PLACES, dtype=np.float32)
    for sequence, std in zip(frames.view(B, T * H, W * C).numpy(), strength.tolist(), strict=True):
        if std:
            first = int(rng.integers(NOISE_PLACES))
            noise = drawn[first : first + size].reshape(sequence.shape) * np.float32(std)
            cv2.add(sequence, noise, dst=sequence, dtype=cv2.CV_8U)
    return frames


def move(frames: Tensor, down: int, right: int) -> None:
    """Move [T, H, W, 3] by whole pixels, in place; the strip that is left free keeps what it showed."""
    H, W = frames.shape[1:3]
    source = frames[:, max(0, -down) : H - max(0, down), max(0, -right) : W - max(0, right)].clone()
    frames[:, max(0, down) : H - max(0, -down), max(0, right) : W - max(0, -right)] = source
