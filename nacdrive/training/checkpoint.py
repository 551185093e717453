"""Where a training stands: everything that the next step depends on, in one file."""

from __future__ import annotations

import pickle
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nacdrive.common.errors import UserError
from nacdrive.models.files import write_tensors

KIND = "nacdrive training checkpoint"
VERSION = 1
OLD_NAMES = {"best_accuracy": "best_measure"}
"""Numbers of ``Progress`` that older checkpoints know by another name."""


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
    """Sum of their weights."""
    factor: float = 1.0
    """What the plateau schedule has made of the learning rate."""
    best_loss: float = float("inf")
    """Lowest validation loss so far."""
    best_epoch: int = -1
    """Epoch that reached it."""
    best_measure: float = 0.0
    """The task's measure on the validation part at that epoch, such as the share decided as the teacher."""
    seconds: float = 0.0
    """Wall time of this round, interruptions left out."""


@dataclass
class Weights:
    """Weights that are kept beside those under training."""

    mean: dict[str, Tensor]
    """Running mean of the parameters."""
    best: dict[str, Tensor] | None = None
    """State of the network at the lowest validation loss, with the mean of the parameters; None before the first."""


def save_checkpoint(
    path: Path, network: nn.Module, optimizer: torch.optim.Optimizer, weights: Weights, progress: Progress
) -> None:
    """Write a checkpoint atomically."""
    content = {
        "kind": KIND,
        "version": VERSION,
        "progress": asdict(progress),
        "network": network.state_dict(),
        "optimizer": optimizer.state_dict(),
        "mean": weights.mean,
        "best": weights.best,
    }
    write_tensors(path, content)


def load_checkpoint(
    path: Path, network: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
) -> tuple[Progress, Weights]:
    """Put network and optimizer back where they were.

    Raises:
        UserError: if the file is damaged or belongs to another network.
    """
    try:
        content: Any = torch.load(path, map_location=device, weights_only=True)
        if content["kind"] != KIND or content["version"] != VERSION:
            raise ValueError(f"it is a '{content['kind']}' of version {content['version']}")
        network.load_state_dict(content["network"])
        optimizer.load_state_dict(content["optimizer"])
        progress = {OLD_NAMES.get(name, name): value for name, value in content["progress"].items()}
        return Progress(**progress), Weights(content["mean"], content["best"])
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, TypeError, OSError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{path} is no checkpoint that can be resumed ({first}): train anew with --overwrite."
        ) from error
