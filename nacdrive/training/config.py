"""How a network is fitted; imports nothing heavy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from nacdrive.common.errors import UserError

LARGEST = 2**31 - 1
"""Of whole numbers: what every random generator takes as a seed."""


@dataclass(frozen=True)
class FitConfig:
    """Optimiser, schedule, batches, and when to stop."""

    epochs: int = 30
    """Most passes over the data."""
    batch: int = 8
    """Sequences per step."""
    chunk: int = 16
    """Consecutive frames per sequence; the convolutions see each of them once."""
    valid_batch: int = 1
    """Sequences, uncut, per step of the validation."""
    learning_rate: float = 1e-3
    """Learning rate at the start."""
    optimizer: Literal["adamw", "adam"] = "adamw"
    """The paper takes Adam at 1e-4 for CarRacing; AdamW at 1e-3 gets there in fewer epochs."""
    weight_decay: float = 1e-2
    """Of AdamW."""
    schedule: Literal["cosine", "plateau", "constant"] = "cosine"
    """cosine falls to nearly 0 over all epochs; plateau multiplies by 0.9 after 2 epochs without gain (paper)."""
    patience: int = 8
    """Epochs without a lower validation loss after which the training stops; 0 = never."""
    valid_share: float = 0.1
    """Share of the episodes kept for validation; at least one where there are two."""
    average: float = 0.99
    """Decay per step of the running mean of the weights that is validated and kept; 0 = the weights themselves."""
    clip: float = 1.0
    """Largest norm of the gradient."""
    soft: float = 0.5
    """Weight of the expert's whole distribution against its choice alone, 0 .. 1 (where it chooses among actions)."""
    class_weights: float = 0.5
    """Power of the inverse frequency by which an action or steering counts: 0 = all alike, 1 = balanced."""
    augment: bool = True
    """Change the frames a little at random: shifted, lit (udacity: mirrored and shadowed too)."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto is bfloat16 on CUDA and float32 on the CPU."""
    checkpoint_steps: int = 100
    """Steps between checkpoints within an epoch; the end of an epoch always makes one."""
    seed: int = 0
    """Seeds the split, the weights, the batches, the augmentation and dropout."""

    def __post_init__(self) -> None:
        limits: dict[str, tuple[float, float, bool]] = {
            **dict.fromkeys(("epochs", "batch", "chunk", "valid_batch", "checkpoint_steps"), (1, LARGEST, True)),
            **dict.fromkeys(("valid_share", "soft", "average"), (0, 1, True)),
            **dict.fromkeys(("learning_rate", "clip"), (0, math.inf, False)),
            **dict.fromkeys(("weight_decay", "class_weights"), (0, math.inf, True)),
            **dict.fromkeys(("patience", "seed"), (0, LARGEST, True)),
        }
        for name, (low, high, with_low) in limits.items():
            value = getattr(self, name)
            # Written so that NaN, which is neither above nor below anything, is refused too.
            if not (math.isfinite(value) and (low <= value if with_low else low < value) and value <= high):
                least = f"at least {low}" if with_low else f"above {low}"
                allowed = "a finite number" if math.isinf(high) else f"at most {high}"
                raise UserError(f"--{name.replace('_', '-')} is {value}: it must be {least} and {allowed}.")
