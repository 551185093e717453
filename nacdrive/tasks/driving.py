"""Imitation of whoever drove in recordings: choices among actions, steering and pedal, or steering alone.

``Imitation`` learns from recordings of any environment; ``CarRacing`` and ``Udacity`` are what the paper learnt, with
the networks, settings and folds of its own.

What a policy decides is what was recorded: choices, or steering and pedal. Both are one task, because a policy is found
and driven by its task; ``PolicyDriver.needs`` says what the environment must be like for it.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from nacdrive.common.camera_mount import SCENE, STRAIGHT
from nacdrive.common.compat import camera_mount
from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.manifest import MANIFEST, read_manifest
from nacdrive.datasets.recording import Recording, duplicates_sentence, unique_episodes
from nacdrive.datasets.udacity_log import is_log, read_log
from nacdrive.datasets.udacity_log_convert import SOURCE, episodes_of
from nacdrive.envs.carracing.env import ACTIONS, to_action
from nacdrive.envs.carracing.lazy import FPS
from nacdrive.layers import build
from nacdrive.models import Policy, PolicyConfig, save_policy
from nacdrive.models.driving import DrivingNetwork
from nacdrive.models.series import layer_options
from nacdrive.tasks.base import EVERYTHING, Fold, LossOptions, Metric, ProtocolName, Size, Task
from nacdrive.tasks.images import CAMERA, CROP, SEEN, Augmentation, augmented, move, noisy, prepared, relight
from nacdrive.tasks.sample import Batch, Sample
from nacdrive.tasks.splits import block_folds, blocks_of, evenly, hold_out, rotate, stratified

SIDE = (48, 128)
"""Least and most rows or columns that the convolutions are given; pictures of other sizes are resized."""
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
CLOSE = (0.05, 0.1)
"""Errors of steering and pedal up to which a continuous decision counts as the expert's."""
SIDE_STEERING = {"left": 0.2, "right": -0.2}
"""What a side camera's picture asks for beside the centre one's steering: it sees the car a stride off the line."""
BINS = 21
"""Of the steering, by which its distribution is balanced."""
AUGMENTED = 0.6
"""Probability with which the authors' script changes a frame."""
NO_TEST = "neighbouring frames are nearly alike, so this is no test on unseen road."
RETURN_METRICS = (
    Metric("accuracy", "actions as the expert, %", higher=True, paper=True),
    Metric("return", "return in closed loop", higher=True, digits=0),
    Metric("expert_fraction", "share of the expert's return", higher=True, digits=3),
)
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
    source: ClassVar[str | None] = None
    """Of the recordings that it is made for; None for any, of one environment."""
    measure_name = "error"
    metrics: tuple[Metric, ...] = (
        Metric("error", "share of other choices, or mean error of steering and pedal", higher=False, digits=4),
    )
    note = "Whole episodes are held out; the epoch is chosen on episodes of the training part."
    settings: Mapping[str, Any] = {"batch_size": 8, "chunk": 16}

    def knows(self, folder: Path) -> bool:
        """Whether it is a recording of its environment."""
        return (folder / MANIFEST).is_file() and self.source in (None, read_manifest(folder)[0]["source"])

    def load(self, folders: Sequence[Path]) -> list[Sample]:
        """One sample per episode; see the class.

        Raises:
            UserError: if a folder holds no recording of its environment, or the recordings are of different
                environments, rates, pictures or kinds of actions.
        """
        if not folders:
            raise UserError("there is nothing to learn from: give --data the folder of a recording.")
        recordings = [Recording.open(folder, source=self.source) for folder in folders]
        self.refuse_unlike(recordings)
        episodes = [(r.episodes[i].path, r.load(i)) for r, i in unique_episodes(recordings)]
        discrete = {chooses(episode) for _, episode in episodes}
        if len(discrete) > 1:
            raise UserError(
                f"some episodes in {', '.join(map(str, folders))} were driven by choices and others continuously: "
                "train on those of one kind."
            )
        actions = self.actions_of([episode for _, episode in episodes]) if discrete == {True} else None
        samples = [self.sample(path, episode, actions) for path, episode in episodes]
        shapes = {tuple(sample.fields["frames"].shape[1:]) for sample in samples}
        if len(shapes) > 1:
            raise UserError(f"the pictures in {folders[0]} have different sizes ({sorted(shapes)}): record them anew.")
        return samples

    def refuse_unlike(self, recordings: Sequence[Recording]) -> None:
        """Refuse recordings that do not belong together, in one sentence."""
        sources = {recording.meta["source"]: recording.folder for recording in recordings}
        if len(sources) > 1:
            listed = ", ".join(f"{folder} of '{source}'" for source, folder in sources.items())
            raise UserError(f"the recordings are of different environments ({listed}): train on those of one.")

    def actions_of(self, episodes: Sequence[Episode]) -> Tensor:
        """[choices, 3] steering, throttle and brake of every choice, as they were driven; 0 of one that never was."""
        widths = [0 if e.expert_logits is None else e.expert_logits.shape[1] for e in episodes]
        count = max(*widths, *(1 + int(max(labels_of(e).max(), e.choice.max())) for e in episodes))
        table = torch.zeros(count, 3)
        for episode in episodes:
            for choice, *units in zip(episode.choice, episode.steering, episode.throttle, episode.brake, strict=True):
                if choice >= 0:
                    table[choice] = torch.tensor([float(unit) for unit in units])
        return table

    def sample(self, path: Path, episode: Episode, actions: Tensor | None) -> Sample:
        """An episode in memory, with the labels of the class."""
        N = len(episode)
        fields = {"frames": torch.from_numpy(episode.decoded()), "t": torch.tensor(episode.t_s)}
        if actions is None:
            control = np.stack([episode.label, np.clip(episode.pedal_label, -1.0, 1.0)], axis=1)
            return Sample(path.name, {**fields, "target": torch.tensor(control)})
        logits = episode.expert_logits
        known = logits is not None and logits.shape[1] == len(actions)
        fields["teacher"] = torch.tensor(logits) if known else torch.full((N, len(actions)), torch.nan)
        fields |= {"target": torch.tensor(labels_of(episode)), "actions": actions.expand(N, -1, -1)}
        return Sample(path.name, fields)

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

    def class_weights(self, samples: Sequence[Sample], power: float) -> Tensor:
        """[choices] weights, such that their mean over the frames is 1; all alike where control is continuous."""
        if is_continuous(samples):
            return torch.ones(1)
        targets = torch.cat([sample.fields["target"] for sample in samples])
        return inverse_frequency(targets[targets >= 0], samples[0].fields["teacher"].shape[1], power)

    def augment(self, batch: Batch, generator: torch.Generator) -> Batch:
        """Each sequence lit a little differently: nothing else is known to leave the right action as it is."""
        return {**batch, "frames": relight(batch["frames"], generator)}

    def loss(self, outputs: Tensor, batch: Batch, weights: Tensor, options: LossOptions) -> tuple[Tensor, Tensor]:
        if "teacher" in batch:
            return choice_loss(outputs, batch, weights, options)
        return self.control_loss(outputs, batch)

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


class CarRacing(Imitation):
    """Which of five actions the expert would take, or how it would steer and hold the pedal, under one protocol."""

    name = source = "carracing"
    protocols = ("sequence", "paper")
    measure_name = "accuracy"
    metrics = RETURN_METRICS
    sizes: Mapping[str, Size] = {"smoke": Size(1, 120, 120), "cpu": Size(4), "full": Size(drive=20)}
    data_folders = ("carracing", "carracing-expert")
    sample_recording = "carracing-sample"
    closed_loop = True
    settings: Mapping[str, Any] = {"batch_size": 8, "chunk": 16, "epochs": 100}
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
        """Refuse recordings of different rates."""
        rates: dict[float, Path] = {}
        for recording in recordings:
            rates.setdefault(float(recording.meta["fps"]), recording.folder)
        if len(rates) > 1:
            listed = ", ".join(f"{path} at {rate:g}/s" for rate, path in rates.items())
            raise UserError(f"the recordings have different frame rates ({listed}): train on those of one rate.")

    def actions_of(self, episodes: Sequence[Episode]) -> Tensor:
        actions = [to_action(choice) for choice in range(len(ACTIONS))]
        return torch.tensor([(a.steering, a.throttle, a.brake) for a in actions])

    def sample(self, path: Path, episode: Episode, actions: Tensor | None) -> Sample:
        """See ``Imitation.sample``; steering is clipped to ``MOST_STEERING``."""
        logits = episode.expert_logits
        strange = logits is not None and logits.shape[1] != len(ACTIONS)
        if actions is not None and (strange or int(episode.expert_choice.max()) >= len(ACTIONS)):
            raise UserError(f"{path} was driven with other actions than the five of CarRacing.")
        sample = super().sample(path, episode, actions)
        if actions is None:
            sample.fields["target"][:, 0].clamp_(-MOST_STEERING, MOST_STEERING)
        return sample

    def architecture(self, samples: Sequence[Sample], gap_s: float, instruments: bool) -> dict[str, Any]:
        """The network of the paper's Table 4; under ``paper`` kernels and strides are its scripts', otherwise ours."""
        steers = is_continuous(samples)
        actions = [to_action(choice) for choice in range(0 if steers else len(ACTIONS))]
        return {
            "actions": tuple((a.steering, a.throttle, a.brake) for a in actions),
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
        parts = []
        for k, (learn, keep) in enumerate(rotate(len(samples), min(5, len(samples)), seed)[:count]):
            train, valid = self.split([few[i] for i in learn], 0.15, seed)
            tests = truncate([samples[i] for i in keep], size.max_tests)
            parts.append(Fold(f"episodes {k + 1} of 5", train, valid, {self.name: tests}))
        return parts

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
        """See ``Task.score``; driving is the bench's business."""
        truth = torch.cat([sample.fields["target"] for sample in samples])
        if is_continuous(samples):
            return {"accuracy": 100 * float(close(torch.cat(list(outputs)), truth).float().mean())}
        answer = torch.cat([y.argmax(dim=-1) for y in outputs])
        known = truth >= 0
        return {"accuracy": 100 * float((answer == truth)[known].float().mean())}

    def references(self, task: str, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, list[Tensor]]:
        """The action that the expert takes most often; of a continuous one the middle of steering and pedal."""
        targets = torch.cat([sample.fields["target"] for sample in train])
        if is_continuous(train):
            middle = targets.median(dim=0).values
            return {"median action": [middle.expand(len(sample), -1) for sample in samples]}
        scores = torch.bincount(targets[targets >= 0], minlength=len(ACTIONS)).float()
        return {"most frequent action": [scores.expand(len(sample), -1) for sample in samples]}


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

    name = SOURCE
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
        """Whether it is a log of the simulator, or a recording of it."""
        return is_log(folder) or ((folder / MANIFEST).is_file() and read_manifest(folder)[0]["source"] == SOURCE)

    def load(self, folders: Sequence[Path]) -> list[Sample]:
        """One sample per drive: ``frames`` uint8 [N, 66, 200, 3] (YUV), ``t`` [N] s, ``target`` [N] steering.

        Where there are side cameras, also ``left`` and ``right``, like ``frames``.

        Raises:
            UserError: if a folder holds neither a log of the simulator nor a recording of it.
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
                    samples[key] = drive_sample(episode, f"{folder.name} drive {episode.seed}")
        if twice:
            warnings.warn(duplicates_sentence(twice), stacklevel=2)
        return list(samples.values())

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

    def architecture(self, samples: Sequence[Sample], gap_s: float, instruments: bool) -> dict[str, Any]:
        return {"actions": (), "repeat": 1, **UDACITY_NETWORK}

    def folds(self, data_dirs: Mapping[str, Path], count: int, seed: int, size: Size = EVERYTHING) -> list[Fold]:
        """See ``Task.folds``; sizes count frames of the centre camera."""
        samples = self.load([data_dirs[self.name]])
        if self.protocol == "paper":
            return self.frame_folds(samples, count, seed, size.max_samples)
        parts = []
        for k, (learn, test) in enumerate(block_folds(samples, 5)[:count]):
            train, valid = self.split(truncate(learn, size.max_samples), 0.15, seed + k)
            tests = truncate(center_alone(test), size.max_tests)
            parts.append(Fold(f"blocks {k + 1} of 5", train, valid, {self.name: tests}))
        return parts

    def frame_folds(self, samples: Sequence[Sample], count: int, seed: int, most: int | None) -> list[Fold]:
        """The authors' folds over shuffled frames; the side cameras' frames stay with the centre's."""
        rows = frames_of(samples, most)
        parts = []
        for k, (learn, keep) in enumerate(rotate(len(rows), 5, seed)[:count]):
            test = labelled(center_alone([rows[i] for i in keep]), rows)
            train = labelled(with_sides([rows[i] for i in learn]), rows)
            parts.append(Fold(f"fold {k + 1} of 5", train, test, {self.name: test}))
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
        """See ``augmented``; under ``paper`` a frame is changed with probability 0.6."""
        changed = augmented(batch, self.augmentation, generator)
        if self.protocol == "paper":
            keep = torch.rand(len(batch["target"]), generator=generator) >= AUGMENTED
            for name in ("frames", "t", "target"):
                changed[name][keep] = batch[name][keep]
        return changed

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

    def score(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, float]:
        steering = torch.cat([y[..., 0] for y in outputs]).clamp(-1, 1)
        error = steering - torch.cat([sample.fields["target"] for sample in samples])
        return {"mse": float(error.square().mean()), "mae": float(error.abs().mean())}

    def references(self, task: str, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, list[Tensor]]:
        """Straight on, and always the mean steering of the training part."""
        mean = torch.cat([sample.fields["target"] for sample in train]).mean()
        constants = {"always 0": torch.zeros(1), "mean of the training part": mean.reshape(1)}
        return {name: [value.expand(len(s), 1) for s in samples] for name, value in constants.items()}


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


def chooses(episode: Episode) -> bool:
    """Whether there is a choice to learn in every frame; if not, there are steering and pedal."""
    known = (episode.expert_choice >= 0).any() or (episode.choice >= 0).all()
    return episode.expert_steering is None and bool(known)


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


def close(outputs: Tensor, target: Tensor) -> Tensor:
    """[N] whether steering and pedal [N, 2] are the expert's, within ``CLOSE``."""
    return ((outputs.float().clamp(-1, 1) - target).abs() <= torch.tensor(CLOSE, device=outputs.device)).all(dim=-1)


def drives_in(folder: Path) -> list[Episode]:
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


def drive_sample(episode: Episode, name: str, upright: bool = True) -> Sample:
    """A drive in memory; pictures of a crooked camera are turned ``upright``, or left as they are."""
    crooked = upright and camera_mount(episode.meta, STRAIGHT, SCENE) == SCENE
    fields = {
        "frames": torch.from_numpy(prepared(episode.frames, name, crooked)),
        "t": torch.tensor(episode.t_s),
        "target": torch.tensor(episode.label),
        **{side: torch.from_numpy(prepared(frames, name, crooked)) for side, frames in episode.side_frames.items()},
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


def labelled(samples: Sequence[Sample], rows: Sequence[Sample]) -> list[Sample]:
    """Samples with the labels that the task's own functions leave out; they are those of every row."""
    return [Sample(s.name, s.fields, rows[0].labels) for s in samples]
