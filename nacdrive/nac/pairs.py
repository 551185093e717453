"""From chosen pairs to attention: backbone, dynamics, softmax and weighted sum over the keys of each query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from nacdrive.nac.dynamics import Dynamics
from nacdrive.nac.gates import Folded

PHIS = ("sigmoid", "tanh", "none")
QUADRATURES = ("time", "constant")


@dataclass(frozen=True)
class PairOptions:
    """What a pair is computed with: see the arguments of ``NAC`` of the same names."""

    dynamics: Dynamics
    phi: str
    quadrature: str
    delta_t: float
    eps: float
    dropout: float


class Tokens(NamedTuple):
    """Per-token halves of everything that a pair needs; heads first, batch and time flattened."""

    zq: Tensor  # [H, N, I] first backbone layer, query half with bias
    zk: Tensor  # [H, M, I] key half
    tq: Tensor  # [H, N]    time gate, query half (time stamp included)
    tk: Tensor  # [H, M, 2] time gate, key half: slope and offset
    v: Tensor  # [H, M, D]
    stamps: Tensor  # [N]


def pair_logits(z: Tensor, w: Folded) -> tuple[Tensor, Tensor, Tensor]:
    """Motor neurons ``[H, P, 2]`` (and the inter and command layers) of ``P`` pairs per head.

    Args:
        z: ``[H, P, I]``, sum of the two halves of the first layer. Used as scratch space without gradients.
        w: folded backbone.
    """
    act = F.silu if w.act == "silu" else torch.sigmoid
    if w.w3 is None:
        return z, z, z
    assert w.b3 is not None
    inter = z
    if w.w2 is not None and w.b2 is not None:
        inter = act(z)
        s = torch.baddbmm(w.b2.unsqueeze(1), inter, w.w2)
    else:
        s = z
    command = act(s)
    if w.wr is not None:
        if w.br is not None:
            s = s + w.br.unsqueeze(1)
        for _ in range(w.unfolds - 1):
            command = act(torch.baddbmm(s, command, w.wr))
    return torch.baddbmm(w.b3.unsqueeze(1), command, w.w3), inter, command


class Attention(NamedTuple):
    """Everything about a set of pairs, each ``[H, N, n]``."""

    phi: Tensor
    omega: Tensor
    t: Tensor
    logits: Tensor
    weights: Tensor  # softmax over the last axis; 0 for pairs that are not allowed
    mix: Tensor  # weights times quadrature: the factors of the values


def attend(
    motor: Tensor, gate: Tensor, allowed: Tensor | None, scale: Tensor | None, keep: Tensor | None, o: PairOptions
) -> Attention:
    """Dynamics, softmax and quadrature (paper, Eqns. 15-19).

    Args:
        motor: ``[H, N, n, 2]`` motor neurons.
        gate: ``[H, N, n]`` argument of the time gate.
        allowed: broadcastable to ``[H, N, n]``, False = excluded; None allows all.
        scale: logit scale, a scalar; None for 1.
        keep: dropout factors ``[H, N, n]``, or None.
        o: options.
    """
    content, rate = motor.unbind(-1)
    phi = torch.sigmoid(content) if o.phi == "sigmoid" else torch.tanh(content) if o.phi == "tanh" else content
    omega = F.softplus(rate) + o.eps
    t = torch.sigmoid(gate)
    logits = o.dynamics(phi, omega, t)
    if scale is not None:
        logits = logits * scale
    if allowed is None:
        weights = logits.softmax(-1)
    else:
        # A row without any key must give zeros, not NaN, also in its gradient: hence no -inf here.
        weights = logits.masked_fill(~allowed, torch.finfo(logits.dtype).min).softmax(-1)
        weights = weights.masked_fill(~allowed, 0.0)
    mix = weights * t if o.quadrature == "time" else weights * o.delta_t
    if keep is not None:
        mix = mix * keep
    return Attention(phi, omega, t, logits, weights, mix)


def gather_rows(table: Tensor, index: Tensor) -> Tensor:
    """``table[h, index[h, ...]]``: rows ``[H, N, n, E]`` of ``[H, M, E]`` for ``[H, N, n]`` row numbers."""
    heads, rows, width = table.shape
    offset = torch.arange(heads, device=table.device).view(heads, 1, 1) * rows
    return table.reshape(heads * rows, width)[index + offset]


def pair_attention(
    tokens: Tokens,
    w: Folded,
    scale: Tensor | None,
    index: Tensor,
    allowed: Tensor | None,
    o: PairOptions,
    training: bool,
) -> tuple[Tensor, Attention, Tensor, Tensor]:
    """All pairs at once, by autograd: ``y [H, N, D]``, the pairs' attention, inter and command layers."""
    heads, queries, n = index.shape
    z = tokens.zq.unsqueeze(2) + gather_rows(tokens.zk, index)
    motor, inter, command = pair_logits(z.flatten(1, 2), w)
    slope, offset = gather_rows(tokens.tk, index).unbind(-1)
    gate = tokens.stamps.unsqueeze(-1) * slope + offset + tokens.tq.unsqueeze(-1)
    keep = None
    if training and o.dropout:
        keep = F.dropout(torch.ones_like(gate), o.dropout)
    attention = attend(motor.view(heads, queries, n, 2), gate, allowed, scale, keep, o)
    y = (attention.mix.unsqueeze(2) @ gather_rows(tokens.v, index)).squeeze(2)
    return y, attention, inter.view(heads, queries, n, -1), command.view(heads, queries, n, -1)
