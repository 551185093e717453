"""A live step before and behind the sequence layer by NumPy: of one small frame, calls to torch cost more than what
they compute, most of all where a simulator's drawing has emptied the caches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nacdrive.models.driving import DrivingNetwork
from nacdrive.nac.kernels.key_step import array_of
from nacdrive.nac.streaming import Snapshot, hooks_of

Array = NDArray[np.float32]
MOST = 5_000_000
"""Multiplications of the convolutions up to which NumPy is the faster one; the published ones take 2 million."""
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "ReLU()": lambda x: np.maximum(x, 0, out=x),
    "ELU(alpha=1.0)": lambda x: np.maximum(x, np.expm1(np.minimum(x, 0)), out=x),
}


class DrivingStep:
    """The weights of a ``DrivingNetwork`` as a step uses them; its ``features`` and ``head`` are the naive twins."""

    def __init__(self, network: DrivingNetwork, convs: list[nn.Conv2d], made_from: Snapshot) -> None:
        self.made_from, self.hooks, self.preprocess = made_from, hooks_of(network), network.preprocess
        self.activation = ACTIVATIONS[str(network.head[1])]
        self.masked = slice(*network.config.masked_rows or (0, 0))
        self.kernels: list[tuple[Array, Array, int, int]] = []
        for conv in convs:
            # Rows in the order of what a kernel covers; the first takes bytes, not 2 / 255 of them less 1.
            weight, bias = conv.weight.permute(2, 3, 1, 0).flatten(0, 2), cast("Tensor", conv.bias)
            if not self.kernels:
                weight, bias = weight * (2 / 255), bias - weight.sum(0)
            self.kernels.append((array_of(weight), array_of(bias), conv.kernel_size[0], conv.stride[0]))
        dense = [layer for layer in (network.projection, *network.head) if isinstance(layer, nn.Linear)]
        *self.projection, self.hidden, self.last = [(array_of(layer.weight.T), array_of(layer.bias)) for layer in dense]

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """None in a copy: the next step there makes it anew."""
        return type(None), ()

    @staticmethod
    def of(network: DrivingNetwork, before: DrivingStep | None) -> DrivingStep | None:
        """``before`` while the network is as it was; None of one that is large, elsewhere, or of unusual parts."""
        busy = network.training or network.dropout.training or torch.is_autocast_enabled("cpu")
        if before is not None and not busy and not any(before.hooks) and before.made_from.is_current(network):
            return before
        convs = [part for part in network.vision if type(part) is nn.Conv2d and is_usual(part)]
        (height, width), work = network.config.input_size, 0
        for conv in convs:
            height, width = ((n - conv.kernel_size[0]) // conv.stride[0] + 1 for n in (height, width))
            work += height * width * conv.weight.numel()
        dense = [part for part in (network.projection, *list(network.head)[::2]) if part is not None]
        activations = {str(part) for part in [*list(network.vision)[1::2], network.head[1]]}
        usual = 0 < work <= MOST and not busy and type(network) is DrivingNetwork
        usual = usual and len(network.vision) == 2 * len(convs) and activations in [{name} for name in ACTIVATIONS]
        usual = usual and all(type(part) is nn.Linear and part.bias is not None for part in dense)
        usual = usual and {(x.dtype, x.device.type) for x in network.parameters()} == {(torch.float32, "cpu")}
        if not usual or any(hooks_of(network)) or (made_from := Snapshot.of(network)) is None:
            return None
        return DrivingStep(network, convs, made_from)

    @np.errstate(invalid="ignore", over="ignore")
    def features(self, frame: NDArray[np.uint8]) -> Tensor:
        """[height, width, 3] -> [1, features]."""
        if self.preprocess is not None and frame.shape[:2] != self.preprocess.size:
            frame = self.preprocess(torch.from_numpy(frame).unsqueeze(0))[0].numpy()
        x = frame.astype(np.float32)
        x[self.masked] = 127.5
        for weight, bias, kernel, stride in self.kernels:
            height, width = ((n - kernel) // stride + 1 for n in x.shape[:2])
            down, across, one = x.strides
            shape, strides = (height, width, kernel, kernel * x.shape[2]), (down * stride, across * stride, down, one)
            y = np.ndarray(shape, np.float32, x, 0, strides).reshape(height * width, -1) @ weight
            y += bias
            x = self.activation(y).reshape(height, width, -1)
        y = x.transpose(2, 0, 1).reshape(1, -1)
        for weight, bias in self.projection:
            y = y @ weight + bias
        return torch.from_numpy(y)

    @np.errstate(invalid="ignore", over="ignore")
    def outputs(self, y: Tensor) -> Array:
        """What the sequence layer gives, [1, d_model], -> [outputs]."""
        (hidden, hidden_bias), (weight, bias) = self.hidden, self.last
        return cast("Array", (self.activation(y.numpy() @ hidden + hidden_bias) @ weight + bias)[0])


def is_usual(conv: nn.Conv2d) -> bool:
    """Of square kernels side by side, all channels at once, nothing around the picture."""
    square = len({*conv.kernel_size}) == len({*conv.stride}) == 1
    return square and conv.bias is not None and (conv.padding, conv.dilation, conv.groups) == ((0, 0), (1, 1), 1)
