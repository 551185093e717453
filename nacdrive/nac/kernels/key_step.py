"""A live step of ``NACKey`` by NumPy: at one moment a time, calls to torch cost more than what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from nacdrive.nac.streaming import Snapshot, hooks_of


class KeyStep:
    """The weights of a ``NACKey`` as a step uses them: masked, and those that read the same numbers side by side."""

    def __init__(self, layer: Any, made_from: Snapshot) -> None:
        self.made_from, self.hooks, self.topk, self.dynamics = made_from, hooks_of(layer), layer.topk, layer.dynamics
        self.heads, self.depth, self.width = layer.num_heads, layer.head_dim, layer.d_model
        circuit, norm, times = layer.backbone, layer.input_norm, layer.time_frequencies
        scale, of_x = self.depth**-0.5, torch.cat([layer.value.weight.T, circuit.sensory.effective()[0]], 1)
        q, k, of_time = layer.query.weight.T * scale, layer.key.weight.T, layer.query.in_features - len(of_x)
        first = torch.cat([q, k, F.pad(of_x, (0, 0, 0, of_time))], 1)
        biases = [layer.query.bias * scale, torch.zeros(self.width), layer.value.bias, circuit.sensory.bias[0]]
        bias = torch.cat([part.to(first) for part in biases]) + norm.bias @ first[: len(of_x)]
        first[: len(of_x)] *= norm.weight.unsqueeze(1)
        rates = torch.cat([torch.zeros_like(layer.omega), layer.omega, layer.rho])
        self.first, self.first_bias = array_of(first), array_of(bias)
        self.inter, self.inter_bias = array_of(circuit.inter.effective()[0]), array_of(circuit.inter.bias[0])
        self.motor, self.motor_bias = array_of(circuit.motor.effective()[0]), array_of(circuit.motor.bias[0] + rates)
        self.out, self.out_bias = array_of(layer.out_proj.weight.T), array_of(layer.out_proj.bias)
        self.gamma, self.eps = array_of(layer.gamma.unsqueeze(1)), norm.eps
        self.time_scale, self.frequencies = float(layer.time_scale), None if times is None else array_of(times)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """None in a copy: the next step there makes it anew."""
        return type(None), ()

    @staticmethod
    def of(layer: Any, before: KeyStep | None) -> KeyStep | None:
        """``before`` while the layer is as it was; None of another precision, or where parts are not the usual ones."""
        if before is not None and not any(before.hooks) and before.made_from.is_current(layer):
            return before
        dense = layer.query, layer.key, layer.value, layer.out_proj  # quantized or parametrized, they are others
        usual = type(layer.input_norm) is nn.LayerNorm and all(type(part) is nn.Linear for part in dense)
        usual = usual and not any(hooks_of(layer)) and layer.gamma.dtype in (torch.float32, torch.float64)
        return KeyStep(layer, made_from) if usual and (made_from := Snapshot.of(layer)) else None

    @np.errstate(invalid="ignore", over="ignore")
    def step(self, x: Tensor, clock: Tensor, memory: Tensor, keys: int) -> tuple[Tensor, Tensor]:
        """Outputs ``[B, d_model]`` and the memory one step on, whose last ``keys`` of ``clock [B, W]`` count."""
        heads, depth, width, batch = self.heads, self.depth, self.width, len(x)
        z, times, before = (part.detach().numpy() for part in (x, clock, memory))
        z = z - z.sum(-1, keepdims=True) / z.shape[1]  # twice as fast as mean()
        z = z / np.sqrt((z * z).sum(-1, keepdims=True) / z.shape[1] + self.eps)
        if self.frequencies is not None:
            phase = times[:, -1:] / self.time_scale * self.frequencies
            z = np.concatenate([z, np.sin(phase).astype(z.dtype), np.cos(phase).astype(z.dtype)], 1)
        read = z @ self.first + self.first_bias
        motor = np.tanh(np.tanh(read[:, 3 * width :]) @ self.inter + self.inter_bias) @ self.motor + self.motor_bias
        after = np.concatenate([before[:, 1:], before[:, :1]], 1)
        here, gates = after[:, -1], after[:, -1, :, 2 * depth :]
        k_and_v = read[:, width : 3 * width].reshape(batch, 2, heads, depth)
        here[..., : 2 * depth] = k_and_v.swapaxes(1, 2).reshape(batch, heads, 2 * depth)
        gates[..., 0] = np.tanh(motor[:, :heads])
        gates[..., 1:] = np.logaddexp(0, motor[:, heads:]).reshape(batch, 2, heads).swapaxes(1, 2)
        kept = after[:, -keys:].swapaxes(1, 2)
        lags = np.maximum((times[:, -1:] - times[:, -keys:]) / self.time_scale, 0).astype(z.dtype)[:, None]
        content = (kept[..., :depth] @ read[:, :width].reshape(batch, heads, depth, 1))[..., 0]
        phi, omega, rho = kept[..., 2 * depth], kept[..., 2 * depth + 1], kept[..., 2 * depth + 2]
        moved = self.dynamics(*(torch.from_numpy(part) for part in (omega * phi, omega, lags))).numpy()
        logits = content + self.gamma * (moved - omega * lags)
        if self.topk is not None and self.topk < keys:
            np.put_along_axis(logits, content.argpartition(-self.topk, -1)[..., : -self.topk], -np.inf, -1)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        mix = weights / weights.sum(-1, keepdims=True) * np.exp(-rho * lags)
        y = (mix[:, :, None] @ kept[..., depth : 2 * depth]).reshape(batch, width) @ self.out + self.out_bias
        return torch.from_numpy(y), torch.from_numpy(after)


def array_of(x: Tensor) -> NDArray[Any]:
    """A copy: NumPy must not see what is written into a parameter, which ``made_from`` notices."""
    return np.ascontiguousarray(x.detach().numpy()).copy()
