"""What is learnt from drives, for a policy: choices among actions, steering and pedal, or steering alone.

``Imitation`` learns from recordings of any environment; ``carracing.py`` and ``udacity.py`` are what the paper learnt.
A policy decides what was recorded. Both kinds are one task, because a policy is known and driven by its task.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.manifest import MANIFEST, read_manifest
from nacdrive.datasets.recording import Recording, unique_episodes
from nacdrive.models import Policy, PolicyConfig, save_policy
from nacdrive.models.driving import DrivingNetwork
from nacdrive.models.series import layer_options
from nacdrive.tasks.base import Metric, Task
from nacdrive.tasks.images import relight
from nacdrive.tasks.sample import Batch, Sample
from nacdrive.tasks.splits import evenly

SIDE = (48, 128)
"""Least and most rows or columns that the convolutions are given; pictures of other sizes are resized."""
NO_TEST = "neighbouring frames are nearly alike, so this is no test on unseen road."


class DrivingTask(Task):
    """A task that is learnt from drives, for a policy.

    Samples are episodes with the fields ``frames`` uint8 [N, height, width, 3], ``t`` [N] in seconds, ``speed`` [N] m/s
    (NaN where unknown), and labels.
    """

    inputs = ("frames", "t", "padding")
    source: ClassVar[str | None] = None
    """Of the recordings that it is made for; None for any, of one environment."""
    first: PolicyConfig | None = None
    """Of the policy that learns on, as whose pictures are cut; None: as a new one's."""
    window = 4
    """Frames that a decision of the bench's policies may depend on; under ``paper`` it is one."""

    @abstractmethod
    def load(self, folders: Sequence[Path]) -> list[Sample]:
        """One sample per episode; see ``Task.load``."""

    def knows(self, folder: Path) -> bool:
        """Whether a folder holds drives that this task is made for; here recordings of its source."""
        return (folder / MANIFEST).is_file() and self.source in (None, read_manifest(folder)[0]["source"])

    @abstractmethod
    def architecture(self, samples: Sequence[Sample], gap_s: float, instruments: bool) -> dict[str, Any]:
        """Fields of ``PolicyConfig`` that the task decides, for frames ``gap_s`` apart; see ``policy_config``."""

    def policy_config(
        self, model: str, window: int, samples: Sequence[Sample], instruments: bool = True, **more: Any
    ) -> PolicyConfig:
        """Architecture of the task's network around the sequence layer ``model``, for the frame rate of ``samples``.

        ``instruments=False`` hides the rows with speed, wheel and gyro, where frames have them; ``more`` are fields of
        the config that count before the task's.
        """
        gap_s = float(torch.cat([sample.fields["t"].diff() for sample in samples]).median())
        fixed: dict[str, Any] = {"task": self.name, "model": model, "window": window, "gap_s": round(gap_s, 6)}
        return PolicyConfig(**{**fixed, **self.architecture(samples, gap_s, instruments), **more})

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


class Imitation(DrivingTask):
    """What ``nacdrive train`` takes for recordings of an environment that no other task is made for.

    Samples have the labels ``target`` [N] (choices; -1 where unknown) and ``teacher`` [N, choices] (its scores, NaN
    where unknown) of a driver that chooses, or ``target`` [N, 2] (steering, throttle minus brake) of one that does
    not; ``actions`` [choices, 3] holds steering, throttle and brake of each choice, the same in every sample.
    """

    name = "imitation"
    measure_name = "error"
    metrics: tuple[Metric, ...] = (
        Metric("error", "share of other choices, or mean error of steering and pedal", higher=False, digits=4),
    )
    note = "Whole episodes are held out; the epoch is chosen on episodes of the training part."
    settings: Mapping[str, Any] = {"batch_size": 8, "chunk": 16, "soft": 0.5, "class_weights": 0.5}

    def load(self, folders: Sequence[Path]) -> list[Sample]:
        if not folders:
            raise UserError("there is nothing to learn from: give --data the folder of a recording.")
        recordings = [Recording.open(folder, source=self.source) for folder in folders]
        self.refuse_unlike(recordings)
        episodes = [(r.episodes[i].path, r.load(i)) for r, i in unique_episodes(recordings)]
        discrete = {chooses(episode) for _, episode in episodes}
        if len(discrete) > 1:
            what = f"some episodes in {', '.join(map(str, folders))} were driven by choices and others continuously"
            raise UserError(f"{what}: train on those of one kind.")
        actions = self.actions_of(episodes) if discrete == {True} else None
        samples = [self.sample(path, episode, actions) for path, episode in episodes]
        shapes = {tuple(sample.fields["frames"].shape[1:]) for sample in samples}
        if len(shapes) > 1:
            where = ", ".join(map(str, folders))
            raise UserError(f"the pictures in {where} have different sizes ({sorted(shapes)}): record them anew.")
        return samples

    def refuse_unlike(self, recordings: Sequence[Recording]) -> None:
        """Refuse recordings that do not belong together, in one sentence."""
        sources = {recording.meta["source"]: recording.folder for recording in recordings}
        if len(sources) > 1:
            listed = ", ".join(f"{folder} of '{source}'" for source, folder in sources.items())
            raise UserError(f"the recordings are of different environments ({listed}): train on those of one.")

    def actions_of(self, episodes: Sequence[tuple[Path, Episode]]) -> Tensor:
        """[choices, 3] steering, throttle and brake of every choice, as they were driven; 0 of one that never was.
        ``UserError`` if a choice means one thing in one episode and another thing in another.
        """
        widths = [0 if e.expert_logits is None else e.expert_logits.shape[1] for _, e in episodes]
        widths += [len(names) for _, e in episodes if isinstance(names := e.meta.get("actions"), list)]
        count = max(*widths, *(1 + int(max(labels_of(e).max(), e.choice.max())) for _, e in episodes))
        table, seen = np.zeros((count, 3), np.float32), dict[int, tuple[Path, NDArray[np.float32]]]()
        for path, e in episodes:
            driven = e.choice >= 0
            choice, control = e.choice[driven], np.stack([e.steering, e.throttle, e.brake], axis=1)[driven]
            table[choice] = control
            if (table[choice] != control).any():
                continue  # What was measured rather than chosen says nothing of what a choice means.
            for one in set(choice.tolist()):
                where, before = seen.setdefault(one, (path, table[one].copy()))
                if np.abs(before - table[one]).max() > 1e-3:
                    raise UserError(
                        f"choice {one} is {before} (steering, throttle, brake) in {where} and {table[one]} in {path}: "
                        "train on recordings whose choices mean the same."
                    )
        for one, (_, meant) in seen.items():
            table[one] = meant  # Whatever was measured after it.
        return torch.from_numpy(table)

    def sample(self, path: Path, episode: Episode, actions: Tensor | None) -> Sample:
        fields = {"frames": torch.from_numpy(episode.decoded()), "t": torch.tensor(episode.taken_s)}
        fields["speed"] = torch.tensor(episode.speed_mps)
        if actions is None:
            control = np.stack([episode.label, np.clip(episode.pedal_label, -1.0, 1.0)], axis=1)
            return Sample(path.name, decided_on(episode, {**fields, "target": torch.tensor(control)}))
        logits = episode.expert_logits
        known = logits is not None and logits.shape[1] == len(actions)
        fields["teacher"] = torch.tensor(logits) if known else torch.full((len(episode), len(actions)), torch.nan)
        fields |= {"target": torch.tensor(labels_of(episode)), "actions": actions.expand(len(episode), -1, -1)}
        return Sample(path.name, decided_on(episode, fields))

    def architecture(self, samples: Sequence[Sample], gap_s: float, instruments: bool) -> dict[str, Any]:
        """CarRacing's network of the paper's Table 4, for pictures and actions of ``samples``."""
        first = samples[0].fields
        height, width = first["frames"].shape[1:3]
        actions = first["actions"][0].tolist() if "actions" in first else []
        return {
            "actions": tuple((a, b, c) for a, b, c in actions),
            "repeat": 1,
            "height": height,
            "width": width,
            "resize": seen_size(height, width),
            "strides": (3, 2, 2),
            "pedal": not actions and any(bool((s.fields["target"][:, 1] != 0).any()) for s in samples),
        }

    def balance(self, samples: Sequence[Sample]) -> float:
        """No balance where a teacher's scores are known: they say by themselves what a rare action is worth."""
        is_scored = any(not s.fields["teacher"].isnan().all() for s in samples if "teacher" in s.fields)
        return 0.0 if is_scored else super().balance(samples)

    def class_weights(self, samples: Sequence[Sample], power: float) -> Tensor:
        """[choices] weights, such that their mean over the frames is 1; all alike where control is continuous."""
        if is_continuous(samples):
            return torch.ones(1)
        targets = torch.cat([sample.fields["target"] for sample in samples])
        return inverse_frequency(targets[targets >= 0], samples[0].fields["teacher"].shape[1], power)

    def augment(self, batch: Batch, generator: torch.Generator) -> Batch:
        """Each sequence lit a little differently: nothing else is known to leave the right action as it is."""
        return {**batch, "frames": relight(batch["frames"], generator)}

    def loss(self, outputs: Tensor, batch: Batch, weights: Tensor, soft: float) -> tuple[Tensor, Tensor]:
        return choice_loss(outputs, batch, weights, soft) if "teacher" in batch else self.control_loss(outputs, batch)

    def control_loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Squared error of steering and pedal, and number of errors."""
        error = self.errors(outputs, batch)
        return error.square().sum(), torch.tensor(float(error.numel()))

    def measure(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Other choices than the expert's and number of frames; or absolute errors and their number."""
        if "teacher" in batch:
            right, count = agreement(outputs, batch)
            return count - right, count
        error = self.errors(outputs.clamp(-1, 1), batch)
        return error.abs().sum(), torch.tensor(float(error.numel()))

    def errors(self, outputs: Tensor, batch: Batch) -> Tensor:
        """[frames, 1 or 2] errors of what the network gives, where there is no padding."""
        present = ~batch["padding"]
        return outputs[present].float() - batch["target"][present][:, : outputs.shape[-1]]

    def score(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, float]:
        y, target = torch.cat(list(outputs)), torch.cat([sample.fields["target"] for sample in samples])
        if is_continuous(samples):
            return {"error": float((y.clamp(-1, 1) - target[:, : y.shape[-1]]).abs().mean())}
        return {"error": float((y.argmax(dim=-1) != target)[target >= 0].float().mean())}


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
            f"{s.name} frame {i}", {name: value[i : i + 1] for name, value in s.fields.items()}, {"gap_s": gaps[s.name]}
        )
        for s, i in evenly([(s, i) for s in samples for i in range(len(s))], most)
    ]


def decided_on(episode: Episode, fields: dict[str, Tensor]) -> dict[str, Tensor]:
    """``fields`` [N, ...] of an episode without rows whose frame is no newer: no policy is asked then."""
    new = torch.from_numpy(episode.is_new)
    return fields if new.all() else {name: values[new] for name, values in fields.items()}


def chooses(episode: Episode) -> bool:
    """Whether there is a choice to learn in every frame; if not, there are steering and pedal."""
    known = (episode.expert_choice >= 0).any() or (episode.choice >= 0).all()
    return episode.expert_steering is None and bool(known)


def inverse_frequency(classes: Tensor, count: int, power: float) -> Tensor:
    """[count] weights that fall with the frequency of each class to ``power``, mean 1 over ``classes``."""
    counts = torch.bincount(classes, minlength=count).double()
    # What hardly ever occurs must not outweigh all the rest: at least 1 % is assumed.
    weights = (counts / counts.sum()).clamp(min=0.01) ** -power
    return (weights / (weights * counts).sum() * counts.sum()).float()


def choice_loss(scores: Tensor, batch: Batch, weights: Tensor, soft: float) -> tuple[Tensor, Tensor]:
    """Cross-entropy of scores [B, T, choices] with the expert's choice, mixed (``soft``) with that of its distribution.

    The batch has ``target`` [B, T], -1 where unknown, and ``teacher`` [B, T, choices], its scores, NaN where unknown.
    Returns the sum of the losses, weighted with those of the choices, and the sum of the weights.
    """
    known = ~batch["padding"] & (batch["target"] >= 0)
    outputs, target, teacher = scores[known].float(), batch["target"][known], batch["teacher"][known]
    log_p = outputs.log_softmax(dim=-1)
    by_choice = F.nll_loss(log_p, target, reduction="none")
    by_scores = -(teacher.nan_to_num(0.0).softmax(dim=-1) * log_p).sum(dim=-1)
    share = torch.where(teacher.isnan().any(dim=-1), 0.0, soft)
    weight = weights[target]
    return (weight * torch.lerp(by_choice, by_scores, share)).sum(), weight.sum()


def agreement(scores: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Number of frames whose best score [B, T, choices] is the expert's choice, and of all whose choice is known."""
    known = ~batch["padding"] & (batch["target"] >= 0)
    return ((scores.argmax(dim=-1) == batch["target"]) & known).sum(), known.sum()


def labels_of(episode: Episode) -> NDArray[np.int64]:
    """[N] the expert's choices, or what was driven where no expert is known at all."""
    return episode.expert_choice if (episode.expert_choice >= 0).any() else episode.choice


def seen_size(height: int, width: int) -> tuple[int, int] | None:
    """Rows and columns that a picture is resized to for the convolutions; None to leave it as it is."""
    least, most = SIDE
    scale = min(1.0, most / max(height, width))
    size = (max(least, round(height * scale)), max(least, round(width * scale)))
    return None if size == (height, width) else size


def is_continuous(samples: Sequence[Sample]) -> bool:
    """Whether the labels of ``samples``, of one kind, are steering and pedal."""
    return "teacher" not in samples[0].fields
