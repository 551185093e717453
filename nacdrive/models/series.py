"""The paper's network (Table 4) for series: two convolutions over time, one sequence layer, a dense head; its files."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nacdrive.common.compat import series_tensors
from nacdrive.common.errors import UserError
from nacdrive.common.plugins import check_trusted
from nacdrive.common.tensor_file import json_object, read_tensor_file, write_tensor_file
from nacdrive.layers import build
from nacdrive.models.config import NetworkConfig
from nacdrive.models.files import check_device, fitting
from nacdrive.nac.variants import PAPER, PRESETS, VARIANTS

KIND = "nacdrive series model"
VERSION = 1


@dataclass(frozen=True)
class SeriesConfig(NetworkConfig):
    """What a network for series is made of, as plain JSON."""

    task: str
    """Task it was made for, such as ``emnist``."""
    protocol: str
    """``sequence`` or ``paper``."""
    model: str
    channels_in: int
    """Features of a step."""
    outputs: int
    """Width of the answer: classes, or 1."""
    read: Literal["last", "steps"]
    """Whether the sequence gets one answer, at its last step, or every step its own."""
    window: int
    """Steps that an answer of the sequence layer may depend on."""
    channels: tuple[int, ...]
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    """Strides of the convolutions; 1 wherever steps have times."""
    d_model: int
    """Width of the sequence layer."""
    num_heads: int
    dense: tuple[int, ...]
    """Widths of the dense layers before the answer."""
    mean: tuple[float, ...]
    """Of each feature over the training part."""
    std: tuple[float, ...]
    gap_s: float | None
    """Mean time between two steps of the training part, the layer's unit of time; None hides the time from it."""
    options: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    """What the task must know to use the network again, such as the names of its classes."""


class SeriesNetwork(nn.Module):
    """Features of a series and their times -> one answer, or one per step.

    With stride 1 the convolutions see the past alone, so an answer never depends on what comes later.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, config: SeriesConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("mean", torch.tensor(config.mean))
        self.register_buffer("std", torch.tensor(config.std))
        widths = [config.channels_in, *config.channels]
        layers = zip(widths, widths[1:], config.kernels, config.strides, strict=False)
        self.convolutions = nn.ModuleList(nn.Conv1d(*layer) for layer in layers)
        options = config.options if config.gap_s is None else {"gap_s": config.gap_s, **config.options}
        size = config.d_model, config.num_heads, config.window
        self.sequence = build(config.model, *size, in_features=widths[-1], **options)
        joints = pairwise([config.d_model, *config.dense, config.outputs])
        self.head = nn.Sequential(*[part for a, b in joints for part in (nn.Linear(a, b), nn.ReLU())][:-1])

    def forward(self, x: Tensor, t: Tensor, padding: Tensor) -> Tensor:
        """Features x [B, T, channels_in] at t [B, T] seconds -> answers [B, outputs], or [B, T, outputs] of all steps.

        ``padding`` [B, T] is True where a step is padding; all of it stands behind the sequence.
        """
        config = self.config
        x = ((x - self.mean) / self.std).to(self.mean.dtype).masked_fill(padding.unsqueeze(-1), 0.0).transpose(1, 2)
        for layer in self.convolutions:
            assert isinstance(layer, nn.Conv1d)
            x = F.relu(layer(F.pad(x, margins(x.shape[2], layer.kernel_size[0], layer.stride[0]))))
        x = x.transpose(1, 2)
        # Where the stride is above 1, steps have no times and padding is part of the data (the paper's form).
        hidden = padding if x.shape[1] == padding.shape[1] else None
        times = None if config.gap_s is None else t - t[:, :1]
        y = self.sequence.last(x, times, hidden) if config.read == "last" else self.sequence(x, times, hidden)
        return cast(Tensor, self.head(y))


def margins(length: int, kernel: int, stride: int) -> tuple[int, int]:
    """Steps of zeros before and behind a sequence: all before it (causal) at stride 1, else the usual "same" rule."""
    if stride == 1:
        return kernel - 1, 0
    total = max(0, (-(-length // stride) - 1) * stride + kernel - length)
    return total // 2, total - total // 2


def layer_options(model: str, protocol: str) -> dict[str, Any]:
    """Options that a protocol pins: the paper's NAC has a constant window and its square-root partition."""
    return dict(PAPER) if protocol == "paper" and model in {**VARIANTS, **PRESETS} else {}


def save_series(network: SeriesNetwork, path: Path, meta: dict[str, Any]) -> None:
    """Write ``network`` and ``meta``, plain JSON about its training, to ``path`` atomically."""
    content = {"config": json.dumps(network.config.to_json()), "meta": json.dumps(meta), "time": "seconds"}
    write_tensor_file(path, KIND, VERSION, content, network.state_dict())


def load_series(path: Path, *, task: str, device: str = "cpu") -> tuple[SeriesNetwork, dict[str, Any]]:
    """The network in ``path``, ready to answer, and what is known of its training.

    ``UserError`` also where it was made for another task, or by the ``paper`` protocol, whose networks take rows scaled
    with what they are tested on.
    """
    content = read_tensor_file(path, KIND, VERSION, name="model file")
    with fitting(path):
        config = SeriesConfig.from_json(json_object(content, "config"))
        check_trusted(path, config.task, config.model, config.options)
        meta = json_object(content, "meta")
        if config.task != task:
            raise UserError(f"{path} was trained for '{config.task}', not for '{task}': give another --model.")
        if config.protocol == "paper":
            raise UserError(f"{path} was trained under the {config.protocol} protocol: train one under 'sequence'.")
        network = SeriesNetwork(config)
        network.load_state_dict(series_tensors(content["tensors"], config.gap_s, content.get("time")))
    return network.to(check_device(device)).eval(), meta
