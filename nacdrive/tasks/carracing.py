"""CarRacing as the paper learnt it: network, settings and folds of its own; choices, or steering and pedals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.recording import Recording
from nacdrive.envs.carracing.env import ACTIONS, to_action
from nacdrive.envs.carracing.lazy import FPS
from nacdrive.tasks.base import EVERYTHING, Fold, Metric, ProtocolName, Size, shuffled_folds
from nacdrive.tasks.driving import NO_TEST, Imitation, agreement, frames_of, is_continuous, truncate
from nacdrive.tasks.images import move, noisy, relight
from nacdrive.tasks.sample import Batch, Sample
from nacdrive.tasks.splits import rotate, stratified

CHOICES = tuple((a.steering, a.throttle, a.brake) for a in map(to_action, range(len(ACTIONS))))
"""Steering, throttle and brake of each action."""
INSTRUMENTS = (84, 96)
"""Rows of CarRacing's frames that show speed, wheel angle and gyro instead of the track."""
MAX_SHIFT = 3
"""Random shift of the scene in pixels: what half a metre off, or a slightly turned car, would look like."""
MOST_STEERING = 0.5
"""CarRacing's labels of steering are clipped to this: the front wheels stop at 0.4 radians, and turn no faster."""
SHARPNESS = (5.0, 1.0)
"""Factors on the errors of steering and pedal before the Huber loss: a racing line is steered by small numbers."""
HUBER = 0.1
"""Sharpened error from which on the loss grows in proportion."""
DUSK = 0.4
"""Least brightness of pictures that are steered by: where the camera is dark, bends were braked for too late."""
CLOSE = (0.05, 0.1)
"""Errors of steering and pedal up to which a continuous decision counts as the expert's."""


class CarRacing(Imitation):
    """Which of five actions the expert would take, or how it would steer and hold the pedal, under one protocol."""

    name = source = "carracing"
    protocols = ("sequence", "paper")
    measure_name = "accuracy"
    metrics = (
        Metric("accuracy", "actions as the expert, %", higher=True, paper=True),
        Metric("return", "return in closed loop", higher=True, digits=0),
        Metric("expert_fraction", "share of the expert's return", higher=True, digits=3),
    )
    sizes: Mapping[str, Size] = {"smoke": Size(1, 120, 120), "cpu": Size(4), "full": Size(drive=20)}
    data_folders = ("carracing", "carracing-expert")
    sample_recording = "carracing-sample"
    closed_loop = True
    settings: Mapping[str, Any] = {**Imitation.settings, "epochs": 100}
    note = (
        "Whole episodes are held out; the epoch is chosen on episodes of the training part. "
        "The return is that of tracks no training touched, where the budget has time to drive."
    )

    def __init__(self, protocol: ProtocolName = "sequence") -> None:
        super().__init__(protocol)
        if protocol == "paper":
            self.settings = {
                **self.settings, "batch_size": 32, "chunk": 1, "valid_batch": 256, "learning_rate": 1e-4,
                "optimizer": "adam", "schedule": "plateau", "patience": 0, "average": 0.0, "soft": 0.0,
                "class_weights": 0.0, "augment": False,
            }  # fmt: skip
            self.note = (
                f"Single frames in shuffled, stratified folds, of which the reported one chooses the epoch: {NO_TEST}"
            )

    def refuse_unlike(self, recordings: Sequence[Recording]) -> None:
        rates: dict[float, Path] = {}
        for recording in recordings:
            rates.setdefault(float(recording.meta["fps"]), recording.folder)
        if len(rates) > 1:
            listed = ", ".join(f"{path} at {rate:g}/s" for rate, path in rates.items())
            raise UserError(f"the recordings have different frame rates ({listed}): train on those of one rate.")

    def actions_of(self, episodes: Sequence[tuple[Path, Episode]]) -> Tensor:
        return torch.tensor(CHOICES)

    def sample(self, path: Path, episode: Episode, actions: Tensor | None) -> Sample:
        """See ``Imitation.sample``; steering is clipped to ``MOST_STEERING``."""
        logits = episode.expert_logits
        strange = logits is not None and logits.shape[1] != len(ACTIONS)
        most = max(episode.expert_choice.max(), episode.choice.max())
        if actions is not None and (strange or most >= len(ACTIONS)):
            raise UserError(f"{path} was driven with other actions than the five of CarRacing.")
        sample = super().sample(path, episode, actions)
        if actions is None:
            sample.fields["target"][:, 0].clamp_(-MOST_STEERING, MOST_STEERING)
        return sample

    def architecture(self, samples: Sequence[Sample], gap_s: float, instruments: bool) -> dict[str, Any]:
        """The network of the paper's Table 4; under ``paper`` kernels and strides are its scripts', otherwise ours."""
        steers = is_continuous(samples)
        return {
            "actions": () if steers else CHOICES,
            "repeat": round(gap_s * FPS),
            "masked_rows": None if instruments else INSTRUMENTS,
            **({"kernels": (3, 5, 5), "strides": (2, 2, 2)} if self.protocol == "paper" else {"strides": (3, 2, 2)}),
            "pedal": steers,
        }

    def folds(self, data_dirs: Mapping[str, Path], count: int, seed: int, size: Size = EVERYTHING) -> list[Fold]:
        """See ``Task.folds``; sizes count frames."""
        samples = self.load([data_dirs[self.name]])
        if self.protocol == "paper":
            if is_continuous(samples):
                what = f"{data_dirs[self.name]} holds steering and pedals, and the paper shuffles choices among five"
                raise UserError(f"{what}: record them with nacdrive record --env carracing --expert ppo.")
            rows = frames_of(samples, size.max_samples)
            labels = torch.cat([row.fields["target"] for row in rows]).numpy()
            return shuffled_folds(self.name, rows, stratified(labels, 5, seed)[:count])
        if len(samples) < 3:
            problem = f"{data_dirs[self.name]} holds {len(samples)} episodes"
            raise UserError(f"{problem}: three are the least, to learn from, to choose the epoch by, and to test on.")
        few = truncate(samples, size.max_samples)
        parts = []
        for k, (learn, keep) in enumerate(rotate(len(samples), min(5, len(samples)), seed)[:count]):
            train, valid = self.split([few[i] for i in learn], 0.15, seed)
            tests = truncate([samples[i] for i in keep], size.max_tests)
            parts.append(Fold(f"episodes {k + 1} of {min(5, len(samples))}", train, valid, {self.name: tests}))
        return parts

    def augment(self, batch: Batch, generator: torch.Generator) -> Batch:
        """Each sequence shifted by a few pixels and lit a little differently, the same for all of its frames.

        By degrees, steering would not be the same half a metre away: there, some are dark, and some noisy.
        """
        if "teacher" not in batch:
            return {**batch, "frames": noisy(relight(batch["frames"], generator, DUSK), generator)}
        shifts = torch.randint(-MAX_SHIFT, MAX_SHIFT + 1, (len(batch["frames"]), 2), generator=generator).tolist()
        lit = relight(batch["frames"], generator)
        for new, shift in zip(lit, shifts, strict=True):
            move(new[:, : INSTRUMENTS[0]], *shift)
        return {**batch, "frames": lit}

    def control_loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Huber's loss of steering and pedal [B, T, 2], and number of errors."""
        present, sharp = ~batch["padding"], torch.tensor(SHARPNESS, device=outputs.device)
        given, target = outputs[present].float() * sharp, batch["target"][present] * sharp
        return F.huber_loss(given, target, delta=HUBER, reduction="sum"), torch.tensor(float(target.numel()))

    def measure(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        if "teacher" in batch:
            return agreement(outputs, batch)
        present = ~batch["padding"]
        return close(outputs[present], batch["target"][present]).sum(), present.sum()

    def score(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, float]:
        truth = torch.cat([sample.fields["target"] for sample in samples])
        if is_continuous(samples):
            return {"accuracy": 100 * float(close(torch.cat(list(outputs)), truth).float().mean())}
        answer = torch.cat([y.argmax(dim=-1) for y in outputs])
        return {"accuracy": 100 * float((answer == truth)[truth >= 0].float().mean())}

    def references(self, task: str, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, list[Tensor]]:
        """The action that the expert takes most often; of a continuous one the middle of steering and pedal."""
        targets = torch.cat([sample.fields["target"] for sample in train])
        if is_continuous(train):
            middle = targets.median(dim=0).values
            return {"median action": [middle.expand(len(sample), -1) for sample in samples]}
        scores = torch.bincount(targets[targets >= 0], minlength=len(ACTIONS)).float()
        return {"most frequent action": [scores.expand(len(sample), -1) for sample in samples]}


def close(outputs: Tensor, target: Tensor) -> Tensor:
    """[N] whether steering and pedal [N, 2] are the expert's, within ``CLOSE``."""
    return ((outputs.float().clamp(-1, 1) - target).abs() <= torch.tensor(CLOSE, device=outputs.device)).all(dim=-1)
