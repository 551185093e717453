"""Fit a network to sequences. A resumed fit gives the same numbers as one that was never interrupted."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from nacdrive.common.errors import UserError, first_line, quoted
from nacdrive.common.tensor_file import read_tensor_file, write_tensor_file
from nacdrive.layers.base import SequenceLayer
from nacdrive.tasks.base import Task
from nacdrive.tasks.sample import Batch, Sample
from nacdrive.tasks.splits import Block, seeded
from nacdrive.training.batches import Batches
from nacdrive.training.config import FitConfig
from nacdrive.training.log import MetricsLog

KIND = "nacdrive training checkpoint"
VERSION = 1
ADVICE = "train anew with --overwrite"
PLATEAUS = {"plateau": (0.9, 2), "steep-plateau": (0.3, 3)}
"""By what a schedule multiplies the learning rate, and after how many epochs without gain."""


def checkpoint_path(folder: Path, round_: int) -> Path:
    """Where the checkpoint of a round lies."""
    return folder / f"checkpoint-{round_}.pt"


@dataclass
class Progress:
    """Numbers of a training under way. Randomness needs none: each step seeds itself by round, epoch and step."""

    round: int = 0
    """Round of DAgger; 0 is the training on the recordings alone."""
    epoch: int = 0
    """Epoch under way."""
    step: int = 0
    """Steps of this epoch that are done."""
    total_steps: int = 0
    """Steps of this round that are done."""
    loss_sum: float = 0.0
    """Weighted sum of this epoch's losses so far."""
    weight_sum: float = 0.0
    penalty_sum: float = 0.0
    """Sum of what was added to the loss of this epoch's steps so far."""
    factor: float = 1.0
    """What the plateau schedule has made of the learning rate."""
    best_loss: float = float("inf")
    """Validation loss of the best epoch so far: the lowest, or that of the epoch with the best criterion."""
    best_epoch: int = -1
    best_measure: float = 0.0
    """The task's measure on the validation part at that epoch, such as the share decided as the teacher."""
    seconds: float = 0.0
    """Wall time of this round, interruptions left out."""

    @property
    def mean_loss(self) -> float:
        """Of this epoch so far; 0 where no label was known yet."""
        return self.loss_sum / max(self.weight_sum, 1e-6)


@runtime_checkable
class Penalised(Protocol):
    """A network that has to learn more than the task asks."""

    def penalty(self, batch: Batch) -> Tensor:
        """What is added to the mean loss of a batch that it has just been given."""


@dataclass(frozen=True)
class FitUpdate:
    """State of a training after a step, for a progress display."""

    progress: Progress
    steps: int
    """Steps of this epoch."""
    epochs: int
    """Most epochs."""
    train_loss: float
    """Mean loss of this epoch so far."""


@dataclass(frozen=True)
class FitResult:
    """Outcome of a training; the network holds the weights of the best epoch."""

    progress: Progress
    train_steps: int
    """Steps (frames) that were learnt from."""
    valid_steps: int
    """Steps that were validated on."""


def fit(
    network: nn.Module,
    task: Task,
    train: Sequence[Sample],
    valid: Sequence[Sample],
    config: FitConfig,
    folder: Path,
    *,
    round_: int = 0,
    device: torch.device | str = "cpu",
    on_step: Callable[[FitUpdate], None] = lambda update: None,
) -> FitResult:
    """Train ``network`` on ``train`` until the loss on ``valid``, or the task's criterion there, is no longer better
    (never, if ``valid`` is empty).

    Goes on from the checkpoint of this round in ``folder``, if there is one. Every step depends on the checkpoint, the
    data and the config alone. A loss that is not finite is a ``UserError``; the last checkpoint is kept.
    """
    return Fitting(network, task, train, valid, config, folder, round_, torch.device(device)).run(on_step)


@dataclass(eq=False)
class Fitting:
    """One fit under way; see ``fit``."""

    network: nn.Module
    task: Task
    samples: Sequence[Sample]
    valid_samples: Sequence[Sample]
    config: FitConfig
    folder: Path
    round_: int
    device: torch.device

    def __post_init__(self) -> None:
        train, valid, config = self.samples, self.valid_samples, self.config
        self.network.to(self.device)
        self.path = checkpoint_path(self.folder, self.round_)
        self.train = Batches(train, config.chunk, config.batch_size)
        self.valid = Batches(valid, max(map(len, valid)), config.valid_batch) if valid else None
        power = self.task.balance(train) if config.class_weights is None else config.class_weights
        self.class_weights = self.task.class_weights(train, power).to(self.device)
        self.optimizer = make_optimizer(self.network, config)
        self.progress = Progress(round=self.round_)
        # Running mean of the parameters, and the state of the network, with that mean, at the best epoch so far.
        self.mean = {name: p.detach().clone() for name, p in self.network.named_parameters()}
        self.best: dict[str, Tensor] | None = None
        if self.path.exists():
            self.load()
        self.log = MetricsLog(self.folder, self.round_, self.progress.epoch)
        self.began = time.perf_counter() - self.progress.seconds

    def run(self, on_step: Callable[[FitUpdate], None]) -> FitResult:
        """Train to the end; the network then holds the best weights."""
        try:
            if not self.path.exists():
                self.save()
            while not self.finished():
                self.epoch(on_step)
        finally:
            self.log.close()
        if self.best is not None:
            self.network.load_state_dict(self.best)
        return FitResult(self.progress, self.train.steps, self.valid.steps if self.valid else 0)

    def finished(self) -> bool:
        """Whether all epochs are done, or validation has had nothing better for as long as ``patience`` allows."""
        p, patience = self.progress, self.config.patience
        stalled = patience > 0 and p.best_epoch >= 0 and p.step == 0 and p.epoch - 1 - p.best_epoch >= patience
        return p.epoch >= self.config.epochs or stalled

    def epoch(self, on_step: Callable[[FitUpdate], None]) -> None:
        """Do what is left of the epoch under way, validate, write a row and a checkpoint."""
        p, config = self.progress, self.config
        batches = self.train.epoch(p.epoch + 1000 * p.round, config.seed)
        for step in range(p.step, len(batches)):
            rate = self.learning_rate((p.epoch + step / len(batches)) / config.epochs)
            loss, weight = self.step(batches[step], step, rate)
            p.loss_sum, p.weight_sum = p.loss_sum + loss, p.weight_sum + weight
            p.step, p.total_steps = step + 1, p.total_steps + 1
            if p.step % config.checkpoint_steps == 0 and p.step < len(batches):
                self.save()
            on_step(FitUpdate(p, len(batches), config.epochs, p.mean_loss))
        row = {"round": p.round, "epoch": p.epoch, "steps": p.total_steps, "train_loss": p.mean_loss}
        row |= {"learning_rate": rate} if batches else {}
        row |= {"train_penalty": p.penalty_sum / len(batches)} if isinstance(self.network, Penalised) else {}
        row |= self.validate()
        p.epoch, p.step, p.loss_sum, p.weight_sum, p.penalty_sum = p.epoch + 1, 0, 0.0, 0.0, 0.0
        self.log.add({**row, "seconds": round(time.perf_counter() - self.began, 2)})
        self.save()

    def step(self, key: list[Block], step: int, rate: float) -> tuple[float, float]:
        """One step of the optimizer; returns the weighted sum of losses and the sum of weights."""
        p, config = self.progress, self.config
        generator = seeded(config.seed, 2, p.round, p.epoch, step)
        torch.manual_seed(generator.initial_seed())
        batch = self.train.load(key)
        if config.augment:
            batch = self.task.augment(batch, generator)
        batch = self.to_device(batch)
        self.network.train()
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("factor", 1.0)
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast():
            outputs = self.network(*(batch[name] for name in self.task.inputs))
        total, weight = self.task.loss(outputs, batch, self.class_weights, self.config.soft)
        loss = total / weight.clamp(min=1e-6)
        if isinstance(self.network, Penalised):
            penalty = self.network.penalty(batch)
            p.penalty_sum += float(penalty.detach())
            loss = loss + penalty
        torch.autograd.backward(loss)
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), config.clip)
        if not bool(torch.isfinite(total) & torch.isfinite(norm)):
            raise self.divergence(f"step {step} ({self.train.describe(key)})")
        self.optimizer.step()
        self.update_ema()
        return float(total.detach()), float(weight)

    def divergence(self, where: str) -> UserError:
        """The sentence for a loss that is no number."""
        return UserError(
            f"the loss is no longer a finite number at round {self.progress.round}, epoch {self.progress.epoch}, "
            f"{where}: stopped; the last checkpoint is {self.path}, go on from it with --resume and a lower "
            f"--learning-rate than {self.config.learning_rate:g}, or begin anew where its losses had grown already."
        )

    @torch.no_grad()
    def update_ema(self) -> None:
        """Move the running mean towards the weights; faster at first, when there is little to average."""
        steps, decay = self.progress.total_steps, self.config.average
        if self.config.schedule != "hat":
            decay = min(decay, (1 + steps) / (10 + steps))
        for name, parameter in self.network.named_parameters():
            self.mean[name].lerp_(parameter, 1 - decay if self.config.average else 1.0)

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Loss and measure on the validation samples; remembers the best weights."""
        p, config = self.progress, self.config
        self.network.eval()
        losses = weights = measures = counts = 0.0
        answers: list[Tensor] = []
        batches = () if self.valid is None else map(self.valid.load, self.valid.epoch(None, 0))
        for batch in map(self.to_device, batches):
            with self.autocast():
                outputs = functional_call(self.network, self.mean, tuple(batch[name] for name in self.task.inputs))
            total, weight = self.task.loss(outputs, batch, self.class_weights, self.config.soft)
            losses, weights = losses + float(total), weights + float(weight)
            total, count = self.task.measure(outputs, batch)
            measures, counts = measures + float(total), counts + float(count)
            answers += outputs.float().cpu() if self.task.criterion else ()
        if not weights:
            # Nothing there, or nothing that is known, tells one epoch from another: the last one stays.
            p.best_epoch, self.best = p.epoch, self.mean_state()
            return {}
        loss, measure = losses / weights, measures / max(counts, 1e-6)
        if not math.isfinite(loss):
            raise self.divergence("validation")
        is_better = loss < p.best_loss
        if (criterion := self.task.criterion) is not None:
            measure = self.task.score(self.task.name, answers, self.valid_samples)[criterion.key]
            is_better = p.best_epoch < 0 or (measure - p.best_measure) * (1 if criterion.higher else -1) > 0
        factor, wait = PLATEAUS.get(config.schedule, (1.0, 1))
        if is_better:
            p.best_loss, p.best_epoch, p.best_measure = loss, p.epoch, measure
            self.best = self.mean_state()
        elif (p.epoch - p.best_epoch) % wait == 0:
            p.factor *= factor
        return {"valid_loss": loss, f"valid_{self.task.measure_name}": measure}

    def mean_state(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in {**self.network.state_dict(), **self.mean}.items()}

    def learning_rate(self, share: float) -> float:
        """The rate after ``share`` of all epochs (0 .. 1)."""
        config = self.config
        if config.schedule in ("cosine", "hat"):
            # Of a new optimizer the first steps are as long as any: those of hat are short, to spoil nothing.
            half_turns = share if config.schedule == "cosine" else 1 - 2 * share
            # Never quite 0, so that the last steps still count.
            return config.learning_rate * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * half_turns)))
        return config.learning_rate * (self.progress.factor if config.schedule in PLATEAUS else 1.0)

    def to_device(self, batch: Batch) -> Batch:
        return batch if self.device.type == "cpu" else {name: x.to(self.device) for name, x in batch.items()}

    def autocast(self) -> torch.autocast | nullcontext[None]:
        """bfloat16 where it was asked for, or on CUDA."""
        wanted = self.config.precision == "bfloat16" or (self.config.precision == "auto" and self.device.type == "cuda")
        return torch.autocast(self.device.type, torch.bfloat16) if wanted else nullcontext()

    def save(self) -> None:
        """Write the checkpoint, atomically."""
        self.progress.seconds = time.perf_counter() - self.began
        content = {
            "progress": asdict(self.progress),
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "mean": self.mean,
            "best": self.best,
        }
        write_tensor_file(self.path, KIND, VERSION, content)

    def load(self) -> None:
        """Go on where the checkpoint stands."""
        content = read_tensor_file(self.path, KIND, VERSION, device=self.device, advice=ADVICE)
        kinds = (RuntimeError, ValueError, KeyError, TypeError, AttributeError)
        with quoted(f"{self.path} belongs to another network (", f"): {ADVICE}.", *kinds, say=first_line):
            self.network.load_state_dict(content["network"])
            for stored, group in zip(content["optimizer"]["param_groups"], self.optimizer.param_groups, strict=True):
                stored |= {"factor": group["factor"]} if "factor" in group else {}  # of the rate asked for now
            self.optimizer.load_state_dict(content["optimizer"])
            self.progress = Progress(**content["progress"])
            self.mean, self.best = content["mean"], content["best"]


def make_optimizer(network: nn.Module, config: FitConfig) -> torch.optim.Optimizer:
    """Adam, RMSprop, or AdamW that decays weights but not biases; what a sequence layer asks for comes first.

    A group's ``factor`` is its learning rate as a multiple of the config's.
    """
    decay = config.weight_decay if config.optimizer == "adamw" else 0.0
    groups: list[dict[str, Any]] = [{"params": [], "weight_decay": decay}, {"params": [], "weight_decay": 0.0}]
    special = layer_optimizer_options(network)
    for name, parameter in network.named_parameters():
        if name in special:
            own = {"weight_decay": decay, "lr": config.learning_rate, **special[name]}
            factor = own["lr"] / config.learning_rate
            groups.append({"params": [parameter], "weight_decay": own["weight_decay"], "factor": factor})
        else:
            groups[parameter.ndim <= 1]["params"].append(parameter)
    kinds = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}
    optimizer: torch.optim.Optimizer = kinds[config.optimizer](groups, lr=config.learning_rate)
    return optimizer


def layer_optimizer_options(network: nn.Module) -> dict[str, dict[str, float]]:
    """What the sequence layers of ``network`` ask of the optimizer, by the parameter's name in the network."""
    return {
        f"{prefix}.{name}".lstrip("."): options
        for prefix, layer in network.named_modules()
        if isinstance(layer, SequenceLayer)
        for name, options in layer.optimizer_options().items()
    }
