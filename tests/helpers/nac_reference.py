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
from nacdrive.nac.key import NACKey
from nacdrive.nac.layer import NAC
from nacdrive.nac.topk import AUTO_EXACT_UP_TO, SMALLEST_BLOCK

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
    key_t: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    is_causal: bool = False,
    window: int | None = None,
) -> tuple[Tensor, Tensor]:
    """What ``layer(...)`` should return, without dropout.

    Arguments as for ``NAC.forward``. Quadratic in time and memory.

    Returns:
        Output ``[B, Tq, out_features]`` and weights ``[B, H, Tq, Tk]``, float64; differentiable.
    """
    itself = key is None or key is query
    key = query if key is None else key
    value = key if value is None else value
    batch, queries, keys = query.shape[0], query.shape[1], key.shape[1]
    of_query = key_padding_mask if itself else None
    tau, tau_k, features, features_k = times(layer, t, key_t, batch, queries, keys, of_query, key_padding_mask, itself)
    query, key, value = (
        x.double() if p is None else x.double().masked_fill(p.unsqueeze(-1), 0.0)
        for x, p in ((query, of_query), (key, key_padding_mask), (value, key_padding_mask))
    )
    if layer.input_norm is not None:
        query, key, value = (normalised(layer, x) for x in (query, key, value))
    if features is not None and features_k is not None:
        query, key = torch.cat([query, features], -1), torch.cat([key, features_k], -1)
    q, k, v = (
        x @ dense(gate)[0] + bias(gate)[0]
        for x, gate in ((query, layer.q_gate), (key, layer.k_gate), (value, layer.v_gate))
    )
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
        lag = tau.unsqueeze(-1) if tau_k is None else tau.unsqueeze(-1) - tau_k.unsqueeze(1)
        time = torch.sigmoid(a * lag + b)
        logits = solve(layer.options.dynamics, phi, omega, time)
        if layer.logit_scale is not None:
            scale = layer.logit_scale.double()
            logits = logits * (scale[h] if scale.ndim else scale)
        score = qh @ kh.transpose(1, 2) / math.sqrt(layer.head_dim)
        if layer.options.score_gradient == "gated":
            logits = logits + score
        alpha = softmax(logits, chosen)
        if layer.options.score_gradient == "straight-through":
            alpha = alpha + softmax(score, chosen) - softmax(score, chosen).detach()
        factor = time if layer.options.quadrature == "time" else layer.options.delta_t
        outputs.append((alpha * factor) @ vh)
        weights.append(alpha)
    out = torch.cat(outputs, -1) @ layer.out_proj.weight.double().T + layer.out_proj.bias.double()
    return out, torch.stack(weights, 1)


def softmax(logits: Tensor, chosen: Tensor) -> Tensor:
    """Over the chosen keys; 0 for the others."""
    exps = torch.exp(logits - logits.detach().max()) * chosen
    return exps / exps.sum(-1, keepdim=True).clamp(min=1e-300)


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


def normalised(layer: NAC | NACKey, x: Tensor) -> Tensor:
    """LayerNorm over the features of each token."""
    assert layer.input_norm is not None
    spread = x.var(-1, keepdim=True, unbiased=False) + layer.input_norm.eps
    return (x - x.mean(-1, keepdim=True)) / spread.sqrt() * layer.input_norm.weight + layer.input_norm.bias


def times(
    layer: NAC,
    t: Tensor | None,
    key_t: Tensor | None,
    batch: int,
    queries: int,
    keys: int,
    of_query: Tensor | None,
    of_key: Tensor | None,
    itself: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Time inputs of queries ``[B, Tq]`` and keys ``[B, Tk]``, and the time features of both."""
    scale = layer.time_scale.double()

    def clock(given: Tensor | None, steps: int, padding: Tensor | None) -> Tensor:
        found = torch.zeros(batch, steps, dtype=torch.float64)
        for b in range(batch):
            real = 0
            for i in range(steps):
                if padding is not None and padding[b, i]:
                    continue
                found[b, i] = real * scale if given is None else given.expand(batch, steps)[b, i]
                real += 1
        return found / scale

    of_queries = clock(t, queries, of_query)
    of_keys = of_queries if itself and key_t is None else clock(key_t, keys, of_key)
    features: tuple[Tensor | None, Tensor | None] = (None, None)
    if layer.time_frequencies is not None:
        one, other = (x.unsqueeze(-1) * layer.time_frequencies.double() for x in (of_queries, of_keys))
        features = torch.cat([one.sin(), one.cos()], -1), torch.cat([other.sin(), other.cos()], -1)
    if layer.time_input == "elapsed":
        return of_queries, of_keys, *features
    ones = torch.ones(batch, queries, dtype=torch.float64)
    if t is None:
        return ones, None, *features
    if layer.time_input == "absolute":
        return of_queries, None, *features
    rows = []
    for b in range(batch):
        row, last = [], None
        for i in range(queries):
            if of_query is not None and of_query[b, i]:
                row.append(ones[b, i])
                continue
            row.append(ones[b, i] if last is None else of_queries[b, i] - of_queries[b, last])
            last = i
        rows.append(torch.stack(row))
    return torch.stack(rows), None, *features


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
    searched = allowed & searched_keys(layer, q.detach(), k.detach(), allowed, causal, window)
    kept = torch.zeros_like(allowed)
    for b in range(q.shape[0]):
        for i in range(q.shape[1]):
            row = [scores[b, i, j].item() if searched[b, i, j] else -math.inf for j in range(keys)]
            order = sorted(range(keys), key=row.__getitem__, reverse=True)
            kept[b, i, [j for j in order[: layer.topk] if searched[b, i, j]]] = True
    return kept


def block_size(layer: NAC, keys: int, causal: bool) -> int | None:
    """Keys per block for a query that has ``keys`` keys; None where the best are found exactly."""
    if layer.selection == "exact" or (layer.selection == "auto" and keys <= AUTO_EXACT_UP_TO):
        return None
    if layer.sqrt_block:
        return layer.sqrt_block
    size = math.ceil(math.sqrt(keys))
    return max(SMALLEST_BLOCK, 2 ** math.ceil(math.log2(size))) if causal else size


def searched_keys(layer: NAC, q: Tensor, k: Tensor, allowed: Tensor, causal: bool, window: int | None) -> Tensor:
    """Bool ``[B, Tq, Tk]``: keys among which the best are looked for."""
    assert layer.topk is not None
    batch, keys, _ = k.shape
    result = torch.zeros(batch, q.shape[1], keys, dtype=torch.bool)
    for b in range(batch):
        present = [j for j in range(keys) if allowed[b, :, j].any()]
        if not present:
            continue
        for i in range(q.shape[1]):
            mine = [j for j in present if not causal or j <= i]
            count = len(mine)
            size = block_size(layer, count, causal)
            outside = causal and window is not None and bool(mine) and mine[0] <= i - window
            if size is None or outside or layer.topk >= count:
                result[b, i] = True
                continue
            blocks = [mine[first : first + size] for first in range(0, count, size)]
            rank = {n: (q[b, i] @ k[b, block].mean(0)).item() for n, block in enumerate(blocks)}
            if causal:
                rank[len(blocks) - 1] = math.inf
            searched = max(layer.sqrt_blocks or 0, math.ceil(layer.topk / size) + 1)
            for n in sorted(rank, key=lambda n: -rank[n])[:searched]:
                result[b, i, list(blocks[n])] = True
    return result
