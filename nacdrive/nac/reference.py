"""The layer once more, as naively as the equations are written: float64, every pair materialised, one head at a time.

It shares nothing with the fast path but the parameters. The tests compare the two, forward and every gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from nacdrive.nac.backbone import Synapses
from nacdrive.nac.dynamics import Dynamics, Euler, Steady
from nacdrive.nac.layer import NAC
from nacdrive.nac.selection import AUTO_EXACT_UP_TO

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": lambda x: x * torch.sigmoid(x),
    "linear": lambda x: x,
    "none": lambda x: x,
}


def nac_forward(
    layer: NAC,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    *,
    t: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    is_causal: bool = False,
    window: int | None = None,
) -> tuple[Tensor, Tensor]:
    """What ``layer(...)`` should return, without dropout.

    Arguments as for ``NAC.forward``. Quadratic in time and memory.

    Returns:
        Output ``[B, Tq, out_features]`` and weights ``[B, H, Tq, Tk]``, float64; differentiable.
    """
    key = query if key is None else key
    value = key if value is None else value
    batch, queries, keys = query.shape[0], query.shape[1], key.shape[1]
    q, k, v = (
        x.double() @ dense(gate)[0] + bias(gate)[0]
        for x, gate in ((query, layer.q_gate), (key, layer.k_gate), (value, layer.v_gate))
    )
    stamps = time_stamps(layer, t, batch, queries)
    allowed = allowed_pairs(batch, queries, keys, key_padding_mask, is_causal, window)
    outputs, weights = [], []
    for h in range(layer.num_heads):
        part = slice(h * layer.head_dim, (h + 1) * layer.head_dim)
        qh, kh, vh = q[..., part], k[..., part], v[..., part]
        chosen = allowed & selected(layer, qh, kh, allowed, is_causal, window)
        u = torch.cat([qh.unsqueeze(2).expand(-1, -1, keys, -1), kh.unsqueeze(1).expand(-1, queries, -1, -1)], -1)
        o_phi, o_omega = circuit(layer, u, h).unbind(-1)
        phi = FUNCTIONS[layer.options.phi](o_phi)
        omega = torch.log1p(torch.exp(-o_omega.abs())) + o_omega.clamp(min=0) + layer.options.eps
        gate = layer.time_gate
        copy = min(h, gate.weight.shape[0] - 1)
        a, b = (u @ gate.weight[copy].double() + gate.bias[copy].double()).unbind(-1)
        time = torch.sigmoid(a * stamps.unsqueeze(-1) + b)
        logits = solve(layer.options.dynamics, phi, omega, time)
        if layer.logit_scale is not None:
            logits = logits * layer.logit_scale.double()
        exps = torch.exp(logits - logits.max()) * chosen
        alpha = exps / exps.sum(-1, keepdim=True).clamp(min=1e-300)
        factor = time if layer.options.quadrature == "time" else layer.options.delta_t
        outputs.append((alpha * factor) @ vh)
        weights.append(alpha)
    out = torch.cat(outputs, -1) @ layer.out_proj.weight.double().T + layer.out_proj.bias.double()
    return out, torch.stack(weights, 1)


def dense(synapses: Synapses) -> Tensor:
    """Weights ``[copies, sources, targets]`` with absent synapses at zero."""
    weight = synapses.weight.double()
    return weight.abs() * synapses.sign * synapses.mask if synapses.polarity == "fixed" else weight * synapses.mask


def bias(synapses: Synapses) -> Tensor:
    """Biases ``[copies, targets]``."""
    assert synapses.bias is not None
    return synapses.bias.double()


def circuit(layer: NAC, u: Tensor, head: int) -> Tensor:
    """Motor neurons ``[..., 2]`` of the backbone for pairs ``u`` ``[..., 2 D]``."""
    net = layer.backbone
    h = min(head, net.motor.weight.shape[0] - 1)
    f = FUNCTIONS[net.activation]
    s = u @ dense(net.sensory)[h] + bias(net.sensory)[h]
    if net.inter is not None:
        s = f(s) @ dense(net.inter)[h] + bias(net.inter)[h]
    command = f(s)
    for _ in range(net.unfolds - 1):
        command = f(s + command @ dense(net.command)[h]) if net.command is not None else command
    return command @ dense(net.motor)[h] + bias(net.motor)[h]


def solve(dynamics: Dynamics, phi: Tensor, omega: Tensor, t: Tensor) -> Tensor:
    """da/dt = phi - omega a from 0 to t, by formula or step by step."""
    if isinstance(dynamics, Steady):
        return phi / omega
    if not isinstance(dynamics, Euler):
        return phi / omega * (1 - torch.exp(-omega * t))
    steps = 2 ** ((dynamics.steps - 1).bit_length() + dynamics.doublings) if dynamics.adaptive else dynamics.steps
    h = t / steps if dynamics.step is None else torch.full_like(t, dynamics.step)
    h = torch.minimum(h, 1 / omega)
    a = torch.zeros_like(phi)
    for _ in range(steps):
        a = a + h * (phi - omega * a)
    return a


def time_stamps(layer: NAC, t: Tensor | None, batch: int, queries: int) -> Tensor:
    """``[B, Tq]`` as the time gate feels them."""
    if t is None:
        return torch.ones(batch, queries, dtype=torch.float64)
    t = t.double().expand(batch, queries)
    scale = layer.time_scale.double()
    if layer.stamps == "absolute":
        return t / scale
    return torch.cat([torch.ones(batch, 1, dtype=torch.float64), t.diff(dim=1) / scale], 1)


def allowed_pairs(
    batch: int, queries: int, keys: int, padding: Tensor | None, causal: bool, window: int | None
) -> Tensor:
    """Bool ``[B, Tq, Tk]``."""
    allowed = torch.ones(batch, queries, keys, dtype=torch.bool)
    for i in range(queries):
        for j in range(keys):
            if causal and (j > i or (window is not None and j <= i - window)):
                allowed[:, i, j] = False
    if padding is not None:
        allowed &= ~padding.unsqueeze(1)
    return allowed


def selected(layer: NAC, q: Tensor, k: Tensor, allowed: Tensor, causal: bool, window: int | None) -> Tensor:
    """Bool ``[B, Tq, Tk]``: the pairs that Top-K keeps, found by sorting."""
    keys = k.shape[1]
    if layer.topk is None or layer.topk >= keys:
        return torch.ones_like(allowed)
    scores = (q @ k.transpose(1, 2)).detach()
    searched = allowed.clone()
    partition = layer.selection == "sqrt" or (layer.selection == "auto" and keys > AUTO_EXACT_UP_TO)
    if partition and not (causal and window is not None and window < keys):
        searched &= searched_blocks(layer, q.detach(), k.detach(), allowed.any(1), causal)
    kept = torch.zeros_like(allowed)
    for b in range(q.shape[0]):
        for i in range(q.shape[1]):
            row = [scores[b, i, j].item() if searched[b, i, j] else -math.inf for j in range(keys)]
            order = sorted(range(keys), key=row.__getitem__, reverse=True)
            kept[b, i, [j for j in order[: layer.topk] if searched[b, i, j]]] = True
    return kept


def searched_blocks(layer: NAC, q: Tensor, k: Tensor, present: Tensor, causal: bool) -> Tensor:
    """Bool ``[B, Tq, Tk]``: keys in the blocks that the square-root partition looks into."""
    assert layer.topk is not None
    batch, keys, _ = k.shape
    size = min(layer.sqrt_block or math.ceil(math.sqrt(keys)), keys)
    blocks = [range(first, min(first + size, keys)) for first in range(0, keys, size)]
    count = max(layer.sqrt_blocks or 0, math.ceil(layer.topk / size) + 1)
    result = torch.zeros(batch, q.shape[1], keys, dtype=torch.bool)
    for b in range(batch):
        centroids = {}
        for n, block in enumerate(blocks):
            real = [j for j in block if present[b, j]]
            if real:
                centroids[n] = k[b, real].mean(0)
        for i in range(q.shape[1]):
            own = i // size
            rank = {n: (q[b, i] @ c).item() for n, c in centroids.items() if not causal or n < own}
            if causal:
                rank[own] = math.inf
            for n in sorted(rank, key=lambda n: -rank[n])[:count]:
                result[b, i, list(blocks[n])] = True
    return result
