"""Imitation of whoever drove in recordings of any environment: pictures of any size, discrete or continuous actions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.manifest import MANIFEST
from nacdrive.datasets.recording import Recording, unique_episodes
from nacdrive.models import PolicyConfig
from nacdrive.tasks.base import LossOptions, Metric, ProtocolName
from nacdrive.tasks.images import (
    DrivingTask,
    agreement,
    choice_loss,
    chooses,
    control_of,
    inverse_frequency,
    median_gap,
    refuse_mixed,
    relight,
)
from nacdrive.tasks.sample import Batch, Sample

SIDE = (48, 128)
"""Least and most rows or columns that the convolutions are given; pictures of other sizes are resized."""


class Imitation(DrivingTask):
    """What ``nacdrive train`` takes for recordings of an environment that no other task is made for.

    Samples have the labels ``target`` [N] (choices; -1 where unknown) and ``teacher`` [N, choices] (its scores, NaN
    where unknown) of a driver that chooses, or ``target`` [N, 2] (steering, throttle minus brake) of one that does
    not; ``actions`` [choices, 3] holds steering, throttle and brake of each choice, the same in every sample.
    """

    name = "imitation"
    measure_name = "error"
    metrics = (Metric("error", "share of other choices, or mean error of steering and pedal", higher=False, digits=4),)
    note = "Whole episodes are held out; the epoch is chosen on episodes of the training part."

    def __init__(self, protocol: ProtocolName = "sequence") -> None:
        super().__init__(protocol)
        self.settings = {"batch": 8, "chunk": 16}

    def knows(self, folder: Path) -> bool:
        """Whether it is a recording of anything."""
        return (folder / MANIFEST).is_file()

    def load(self, folders: Sequence[Path]) -> list[Sample]:
        """One sample per episode; see the class.

        Raises:
            UserError: if a folder holds no recording, or the recordings are of different environments, pictures or
                kinds of actions.
        """
        if not folders:
            raise UserError("there is nothing to learn from: give --data the folder of a recording.")
        recordings = [Recording.open(folder) for folder in folders]
        sources = {recording.meta["source"]: recording.folder for recording in recordings}
        if len(sources) > 1:
            found = ", ".join(f"{folder} of '{source}'" for source, folder in sources.items())
            raise UserError(f"the recordings are of different environments ({found}): train on those of one.")
        episodes = [(r.episodes[i].path.name, r.load(i)) for r, i in unique_episodes(recordings)]
        discrete = {chooses(episode) for _, episode in episodes}
        refuse_mixed(discrete, folders)
        actions = actions_of([episode for _, episode in episodes]) if discrete == {True} else None
        samples = [sample_of(name, episode, actions) for name, episode in episodes]
        shapes = {tuple(sample.fields["frames"].shape[1:]) for sample in samples}
        if len(shapes) > 1:
            raise UserError(f"the pictures in {folders[0]} have different sizes ({sorted(shapes)}): record them anew.")
        return samples

    def policy_config(self, model: str, window: int, samples: Sequence[Sample], **more: Any) -> PolicyConfig:
        """CarRacing's network of the paper's Table 4, for pictures, rate and actions of ``samples``."""
        more.pop("instruments", None)
        first = samples[0].fields
        height, width = first["frames"].shape[1:3]
        actions = first["actions"][0].tolist() if "actions" in first else []
        pedal = not actions and any(bool((s.fields["target"][:, 1] != 0).any()) for s in samples)
        return PolicyConfig(
            task=self.name,
            model=model,
            actions=tuple((a, b, c) for a, b, c in actions),
            window=window,
            repeat=1,
            gap_s=round(median_gap(samples), 6),
            height=height,
            width=width,
            resize=seen_size(height, width),
            strides=(3, 2, 2),
            pedal=pedal,
            **more,
        )

    def class_weights(self, samples: Sequence[Sample], power: float) -> Tensor:
        """[choices] weights, such that their mean over the frames is 1; all alike where control is continuous."""
        if "actions" not in samples[0].fields:
            return torch.ones(1)
        targets = torch.cat([sample.fields["target"] for sample in samples])
        return inverse_frequency(targets[targets >= 0], samples[0].fields["actions"].shape[1], power)

    def augment(self, batch: Batch, generator: torch.Generator) -> Batch:
        """Each sequence lit a little differently: nothing else is known to leave the right action as it is."""
        return {**batch, "frames": relight(batch["frames"], generator)}

    def loss(self, outputs: Tensor, batch: Batch, weights: Tensor, options: LossOptions) -> tuple[Tensor, Tensor]:
        """``choice_loss``, or the squared error of steering and pedal."""
        if "actions" in batch:
            return choice_loss(outputs, batch, weights, options)
        error = self.errors(outputs, batch)
        return error.square().sum(), torch.tensor(float(error.numel()))

    def measure(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Other choices than the expert's and number of frames; or absolute errors and their number."""
        if "actions" in batch:
            right, count = agreement(outputs, batch)
            return count - right, count
        error = self.errors(outputs.clamp(-1, 1), batch)
        return error.abs().sum(), torch.tensor(float(error.numel()))

    def errors(self, outputs: Tensor, batch: Batch) -> Tensor:
        """[frames, 1 or 2] errors of what the network gives, where there is no padding."""
        present = ~batch["padding"]
        return outputs[present].float() - batch["target"][present][:, : outputs.shape[-1]]

    def score(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, float]:
        y = torch.cat(list(outputs))
        target = torch.cat([sample.fields["target"] for sample in samples])
        if "actions" in samples[0].fields:
            return {"error": float((y.argmax(dim=-1) != target)[target >= 0].float().mean())}
        return {"error": float((y.clamp(-1, 1) - target[:, : y.shape[-1]]).abs().mean())}


def labels_of(episode: Episode) -> NDArray[np.int64]:
    """[N] the expert's choices, or what was driven where no expert is known at all."""
    return episode.expert_choice if (episode.expert_choice >= 0).any() else episode.choice


def actions_of(episodes: Sequence[Episode]) -> Tensor:
    """[choices, 3] steering, throttle and brake of every choice, as they were driven; 0 of one that never was."""
    widths = [0 if e.expert_logits is None else e.expert_logits.shape[1] for e in episodes]
    count = max(*widths, *(1 + int(max(labels_of(e).max(), e.choice.max())) for e in episodes))
    table = torch.zeros(count, 3)
    for episode in episodes:
        for choice, *units in zip(episode.choice, episode.steering, episode.throttle, episode.brake, strict=True):
            if choice >= 0:
                table[choice] = torch.tensor([float(unit) for unit in units])
    return table


def sample_of(name: str, episode: Episode, actions: Tensor | None) -> Sample:
    """An episode in memory, with the labels of the class ``Imitation``."""
    N = len(episode)
    fields = {"frames": torch.from_numpy(episode.decoded()), "t": torch.tensor(episode.t_s)}
    if actions is None:
        return Sample(name, {**fields, "target": control_of(episode)})
    logits = episode.expert_logits
    known = logits is not None and logits.shape[1] == len(actions)
    fields["teacher"] = torch.tensor(logits) if known else torch.full((N, len(actions)), torch.nan)
    return Sample(name, {**fields, "target": torch.tensor(labels_of(episode)), "actions": actions.expand(N, -1, -1)})


def seen_size(height: int, width: int) -> tuple[int, int] | None:
    """Rows and columns that a picture is resized to for the convolutions; None to leave it as it is."""
    least, most = SIDE
    scale = min(1.0, most / max(height, width))
    size = (max(least, round(height * scale)), max(least, round(width * scale)))
    return None if size == (height, width) else size
