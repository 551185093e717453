"""Small policies of every kind that is exported to C and HTML, with weights large enough that a mistake shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nacdrive.datasets.episode import Episode
from nacdrive.models import Policy, PolicyConfig, save_policy
from tests.helpers.episodes import make_episode

CHOICES: dict[str, Any] = {
    "task": "carracing",
    "actions": ((0, 0, 0), (1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, 0, 0.8)),
    "height": 40,
    "width": 44,
    "channels": (10, 20),
    "kernels": (5, 3),
    "strides": (3, 2),
}
STEERS: dict[str, Any] = {
    "task": "udacity",
    "actions": (),
    "height": 60,
    "width": 80,
    "crop": (20, 47),
    "resize": (22, 50),
    "yuv": True,
    "activation": "elu",
    "channels": (24, 6),
    "kernels": (5, 3),
    "strides": (2, 2),
    "pedal": True,
}
UPRIGHT = {
    **STEERS,
    "height": 160,
    "width": 320,
    "upright": True,
    "crop": (60, 135),
    "resize": (40, 110),
    "kernels": (5, 5),
    "strides": (4, 4),
}
LONG = {**CHOICES, "window": 9}
KINDS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    **{
        f"{model}-choices": (CHOICES, model, {}) for model in ("nac-steady", "nac-exact", "gru", "lstm", "cfc", "dense")
    },
    **{f"{model}-steers": (STEERS, model, {}) for model in ("nac-steady", "nac-euler", "gru", "lstm", "cfc", "dense")},
    "upright": (UPRIGHT, "nac-steady", {}),
    "topk": (LONG, "nac-exact", {"topk": 3}),
    "absolute-time": (LONG, "nac-exact", {"time_input": "absolute"}),
    "elapsed-time": (LONG, "nac-elapsed", {}),
    "silu-tanh": (LONG, "nac-phi-tanh", {"activation": "silu", "unfolds": 4}),
    "linear-none": (LONG, "nac-phi-none", {"activation": "linear"}),
    "sigmoid-full": (LONG, "nac-exact", {"activation": "sigmoid", "sparsity": 0.0}),
    "shared-constant": (
        LONG,
        "nac-05sfc",
        {"share_backbone": True, "quadrature": "constant", "delta_t": 0.5, "logit_scale": 4.0},
    ),
    "one-unfold-fixed": (LONG, "nac-steady", {"unfolds": 1, "polarity": "fixed"}),
    **{f"nac-key-{mode}-steers": (STEERS, "nac-key", {"mode": mode}) for mode in ("exact", "euler", "steady")},
    "nac-key-driving": ({**LONG, "projection": 12}, "nac-key", {"mode": "steady", "topk": 3, "time_features": 0}),
    "nac-key-full": ({**LONG, "masked_rows": (30, 40)}, "nac-key", {"sparsity": 0.0, "topk": 5, "time_features": 3}),
    "projected-lstm": ({**STEERS, "projection": 9}, "lstm", {}),
    "masked-rows": ({**CHOICES, "masked_rows": (30, 40)}, "nac-euler", {}),
    "two-columns": ({**CHOICES, "width": 11, "kernels": (5, 1)}, "dense", {}),
    "long-gru": (LONG, "gru", {}),
    "long-lstm": (LONG, "lstm", {}),
    "long-cfc": (LONG, "cfc", {}),
}
# Each layer, both outputs, each way to feel time and each shape of the camera's pictures at least once.
DAILY = (
    *("nac-steady-choices", "nac-euler-steers", "gru-steers", "lstm-choices", "upright", "topk", "absolute-time"),
    *("elapsed-time", "silu-tanh", "linear-none", "shared-constant", "one-unfold-fixed", "masked-rows", "long-cfc"),
)


def small_policy(kind: str) -> Policy:
    """The policy of that name in ``KINDS``."""
    shape, model, options = KINDS[kind]
    size = {"window": 4, "d_model": 16, "num_heads": 4, "dense": 8}
    torch.manual_seed(sum(map(ord, kind)))
    policy = Policy.new(PolicyConfig(model=model, options=options, **{**size, **shape}), kind.replace("-", "_"))
    with torch.no_grad():
        # Layers on top of one another all but forget their input as they are first drawn.
        for name, weight in policy.network.named_parameters():
            if name.endswith("weight") and weight.is_floating_point():
                weight.mul_(1.7)
    policy.reset()
    return policy


def saved(kind: str, folder: Path) -> tuple[Policy, Path]:
    """The same as a model file."""
    policy, path = small_policy(kind), folder / f"{kind.replace('-', '_')}.pt"
    save_policy(policy, path)
    return policy, path


def smooth_frames(policy: Policy, steps: int, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """``steps`` frames that change from one to the next as a road does, and their times, some of them late."""
    rng = np.random.default_rng(seed)
    rows, columns = policy.config.height, policy.config.width
    y, x = np.mgrid[0:rows, 0:columns]
    frames = np.empty((steps, rows, columns, 3), np.uint8)
    for i in range(steps):
        for c in range(3):
            wave = np.sin(x * (0.05 + 0.02 * c) + 0.4 * i) + np.cos(y * 0.08 - 0.25 * i * (c + 1))
            frames[i, :, :, c] = np.clip(128 + 55 * wave + rng.normal(0, 8, wave.shape), 0, 255)
    return frames, np.concatenate([[0.0], np.cumsum(rng.choice([0.08, 0.08, 0.2], steps - 1))])


def episode_of(policy: Policy, frames: list[bytes], t_s: Any) -> Episode:
    blank = make_episode(7, len(frames))
    return Episode(
        **{
            **vars(blank),
            "frames": frames,
            "t_s": t_s,
            "source": policy.task,
            "choice": np.full(len(frames), -1),
            "expert_logits": None,
        }
    )
