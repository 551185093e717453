"""How a network is fitted; imports nothing heavy."""

from __future__ import annotations

from typing import Literal

from nacdrive.common.options import Count, NotNegative, Options, Positive, SeedOption, Share


class EpochsOption(Options):
    """How it is learnt."""

    epochs: Count = 30
    """Most passes over the data; of expert train, passes over the decisions of an update."""


class BatchOption(Options):
    """How it is learnt."""

    batch_size: Count = 8
    """Sequences, or decisions of an agent, in each step of the optimiser; of bench runtime, in each pass."""


class PrecisionOption(Options):
    """How it is learnt."""

    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto is bfloat16 on CUDA and float32 on the CPU, which may have no quick bfloat16."""


class FitConfig(EpochsOption, BatchOption, PrecisionOption, SeedOption):
    """How it is learnt."""

    chunk: Count = 16
    """Consecutive frames per sequence; the convolutions see each of them once."""
    valid_batch: Count = 1
    """Sequences, uncut, per step of the validation."""
    learning_rate: Positive = 1e-3
    """Learning rate at the start."""
    optimizer: Literal["adamw", "adam", "rmsprop"] = "adamw"
    """The paper takes Adam at 1e-4 for CarRacing; AdamW at 1e-3 gets there in fewer epochs."""
    weight_decay: NotNegative = 1e-2
    """Of AdamW."""
    schedule: Literal["cosine", "hat", "plateau", "steep-plateau", "constant"] = "cosine"
    """cosine falls to nearly 0 over all epochs; hat, for a network that has learnt before, rises from there first, and
    the running mean begins with its weights; plateau multiplies by 0.9 after 2 epochs without gain (paper),
    steep-plateau by 0.3 after 3 (the paper's E-MNIST)."""
    patience: int = 8
    """Epochs without a lower validation loss after which the training stops; 0 = never."""
    valid_share: Share = 0.1
    """Share of the episodes kept for validation; 0 keeps none, else at least one where there are two."""
    average: Share = 0.99
    """Decay per step of the running mean of the weights that is validated and kept; 0 = the weights themselves."""
    clip: Positive = 1.0
    """Largest norm of the gradient."""
    soft: Share = 1.0
    """Weight of the expert's whole distribution against its choice alone, 0 .. 1 (where it gives scores of actions)."""
    class_weights: NotNegative | None = None
    """Power of the inverse frequency by which an action or steering counts: 0 = all alike, 1 = balanced; if not given
    0.5, and 0 where an expert's scores of any frame are known."""
    augment: bool = True
    """Change the frames a little at random: shifted, lit (udacity: shadowed and, without slow cars, mirrored too)."""
    checkpoint_steps: Count = 100
    """Steps between checkpoints within an epoch; the end of an epoch always makes one."""
