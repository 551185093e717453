"""``NACKey`` once more, as naively as its equations are written: float64, one pair at a time.

It shares nothing with the layer but the parameters. The tests compare the two, forward and every gradient.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nacdrive.nac.key import NACKey
from tests.helpers.nac_reference import bias, dense, normalised, solve


def key_forward(
    layer: NACKey,
    x: Tensor,
    *,
    t: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    window: int | None = None,
) -> Tensor:
    """What ``layer(x, ...)`` should return, ``[B, T, d_model]`` in float64; differentiable. Rows of padding are 0."""
    batch, steps, _ = x.shape
    rows = []
    for b in range(batch):
        real = [i for i in range(steps) if key_padding_mask is None or not key_padding_mask[b, i]]
        seconds = torch.arange(len(real)) * layer.time_scale if t is None else t.expand(batch, steps)[b, real]
        outputs = sequence(layer, x[b, real].double(), seconds.double() / layer.time_scale.double(), real, window)
        full = dict(zip(real, outputs, strict=True))
        rows.append(torch.stack([full.get(i, torch.zeros_like(layer.out_proj.bias).double()) for i in range(steps)]))
    return torch.stack(rows)


def sequence(layer: NACKey, x: Tensor, times: Tensor, places: list[int], window: int | None) -> list[Tensor]:
    """Outputs of one sequence without padding, whose steps stood at ``places``."""
    depth, heads, net = layer.head_dim, layer.num_heads, layer.backbone
    z = x = normalised(layer, x)
    if layer.time_frequencies is not None:
        phase = times.unsqueeze(-1) * layer.time_frequencies.double()
        z = torch.cat([x, phase.sin(), phase.cos()], -1)
    q = z @ layer.query.weight.double().T + layer.query.bias.double()
    k = z @ layer.key.weight.double().T
    v = x @ layer.value.weight.double().T + layer.value.bias.double()
    assert net.inter is not None
    command = torch.tanh(
        torch.tanh(x @ dense(net.sensory)[0] + bias(net.sensory)[0]) @ dense(net.inter)[0] + bias(net.inter)[0]
    )
    motor = command @ dense(net.motor)[0] + bias(net.motor)[0]
    outputs = []
    for i, place in enumerate(places):
        past = [j for j in range(i + 1) if window is None or places[j] > place - window]
        parts = []
        for h in range(heads):
            own = slice(h * depth, (h + 1) * depth)
            content = {j: q[i, own] @ k[j, own] / math.sqrt(depth) for j in past}
            kept = sorted(past, key=lambda j: -content[j].item())[: layer.topk]
            logits, values = [], []
            for j in kept:
                phi = torch.tanh(motor[j, h])
                omega = torch.log1p(torch.exp(motor[j, heads + h] + layer.omega[h].double()))
                rho = torch.log1p(torch.exp(motor[j, 2 * heads + h] + layer.rho[h].double()))
                lag = times[i] - times[j]
                a = solve(layer.dynamics, phi * omega, omega, lag)
                logits.append(content[j] + layer.gamma[h].double() * (a - omega * lag))
                values.append(torch.exp(-rho * lag) * v[j, own])
            weights = torch.softmax(torch.stack(logits), 0)
            parts.append(sum(weight * value for weight, value in zip(weights, values, strict=True)))
        outputs.append(torch.cat(parts) @ layer.out_proj.weight.double().T + layer.out_proj.bias.double())
    return outputs
