"""Where a training stands: everything that the next step depends on, in one file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from nacdrive.common.errors import UserError, first_line
from nacdrive.common.tensor_file import read_tensor_file, write_tensor_file

KIND = "nacdrive training checkpoint"
VERSION = 1
ADVICE = "train anew with --overwrite"


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
    factor: float = 1.0
    """What the plateau schedule has made of the learning rate."""
    best_loss: float = float("inf")
    """Validation loss of the best epoch so far: the lowest, or that of the epoch with the best criterion."""
    best_epoch: int = -1
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
        "progress": asdict(progress),
        "network": network.state_dict(),
        "optimizer": optimizer.state_dict(),
        "mean": weights.mean,
        "best": weights.best,
    }
    write_tensor_file(path, KIND, VERSION, content)


def load_checkpoint(
    path: Path, network: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
) -> tuple[Progress, Weights]:
    """Put network and optimizer back where they were."""
    content = read_tensor_file(path, KIND, VERSION, device=device, advice=ADVICE)
    try:
        network.load_state_dict(content["network"])
        optimizer.load_state_dict(content["optimizer"])
        return Progress(**content["progress"]), Weights(content["mean"], content["best"])
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} belongs to another network ({first_line(error)}): {ADVICE}.") from error
