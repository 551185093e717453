"""Attention of a circuit that reads the key, a block of pairs at a time, each computed again in the backward pass.

A block fits a core's cache, no key behind the last query of a block or before its window is computed, and nothing of a
pair is kept. ``NACKey.attend`` computes the same, one torch operation after another over all pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nacdrive.nac.mask import AttentionMask

PAIRS_AT_ONCE = 1 << 17
ROWS_AT_ONCE = 32


class Plan(NamedTuple):
    """Which pairs there are, and how their logits are made."""

    of_query: Tensor  # [B, q] times of the queries in units of time, float64
    of_key: Tensor  # [B, T]
    mask: AttentionMask
    topk: int | None
    exact: bool  # a = phi (1 - exp(-omega lag)); if not, a = phi

    def blocks(self, heads: int) -> Iterator[tuple[slice, slice, slice]]:
        """Sequences, queries and keys of each block."""
        (batch, queries), keys, window = self.of_query.shape, self.of_key.shape[1], self.mask.window
        rows = queries if queries != keys else ROWS_AT_ONCE
        for row in range(0, queries, rows):
            some = slice(row, min(row + rows, queries))
            near = slice(0, keys) if queries != keys else slice(max(0, row + 1 - window) if window else 0, some.stop)
            at_once = max(1, PAIRS_AT_ONCE // (heads * (some.stop - row) * (near.stop - near.start)))
            for first in range(0, batch, at_once):
                yield slice(first, min(first + at_once, batch)), some, near


class Block(NamedTuple):
    """What is computed of a block's pairs, ``[b, H, q, n]``."""

    lags: Tensor
    fading: Tensor | None  # exp(-omega lag), of the exact solution
    weights: Tensor
    mix: Tensor


def block_of(plan: Plan, at: tuple[slice, slice, slice], tensors: tuple[Tensor, ...]) -> Block:
    """The pairs of a block."""
    b, rows, keys = at
    q, k, _, phi, omega, rho, gamma = tensors
    lags = (plan.of_query[b, rows, None] - plan.of_key[b, None, keys]).clamp_(min=0).to(q.dtype).unsqueeze(1)
    logits = q[b, :, rows] @ k[b, :, keys].transpose(-1, -2)
    padding = plan.mask.padding
    alike = b if padding is not None or plan.of_query.shape[1] != plan.of_key.shape[1] else slice(b.start, b.start + 1)
    mask = AttentionMask(
        plan.mask.position[alike, rows], None if padding is None else padding[alike], True, plan.mask.window
    )
    index = torch.arange(keys.start, keys.stop, device=q.device)
    unseen = ~mask.allowed(index.expand(*mask.position.shape, -1)).unsqueeze(1)
    # Added, which is quicker than to fill. A row without any key must give zeros, not NaN: hence no -inf.
    least = torch.finfo(q.dtype).min
    bias = torch.zeros_like(unseen, dtype=q.dtype).masked_fill_(unseen, least)
    if plan.topk is not None and plan.topk < logits.shape[-1]:
        best = (logits + bias).topk(plan.topk, -1).indices
        bias = torch.full_like(logits, least).scatter_(-1, best, 0.0).minimum(bias)
    of_key = (gamma.view(-1, 1) * phi[b, :, keys]).unsqueeze(2)
    logits += of_key
    logits.addcmul_((gamma.view(-1, 1) * omega[b, :, keys]).unsqueeze(2), lags, value=-1)
    fading = None
    if plan.exact:
        fading = (-omega[b, :, keys].unsqueeze(2) * lags).exp_()
        logits.addcmul_(of_key, fading, value=-1)
    weights = logits.add_(bias).softmax(-1)
    if padding is not None:
        weights.masked_fill_(bias < 0, 0.0)
    return Block(lags, fading, weights, (-rho[b, :, keys].unsqueeze(2) * lags).exp_().mul_(weights))


class KeyAttention(torch.autograd.Function):
    """Attention outputs ``[B, H, q, D]`` of a ``Plan``, q ``[B, H, q, D]``, divided by the root of D; k and v
    ``[B, H, T, D]``; phi, omega and rho ``[B, H, T]``; and gamma ``[H]``.
    """

    @staticmethod
    def forward(ctx: Any, plan: Plan, *tensors: Tensor) -> Tensor:
        ctx.plan = plan
        ctx.save_for_backward(*tensors)
        q, v = tensors[0], tensors[2]
        y = torch.empty_like(q)
        for at in plan.blocks(q.shape[1]):
            b, rows, keys = at
            y[b, :, rows] = block_of(plan, at, tensors).mix @ v[b, :, keys]
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("NACKey: gradients of gradients need need_weights=True")
        plan, tensors = ctx.plan, ctx.saved_tensors
        q, k, v, phi, omega, _, gamma = tensors
        sums = [torch.zeros_like(x) for x in tensors]
        gq, gk, gv, g_phi, g_omega, g_rho, g_gamma = sums
        for at in plan.blocks(q.shape[1]):
            b, rows, keys = at
            block, g = block_of(plan, at, tensors), grads[0][b, :, rows]
            gv[b, :, keys] += block.mix.transpose(-1, -2) @ g
            share = (g @ v[b, :, keys].transpose(-1, -2)).mul_(block.mix)
            of_logits = torch.addcmul(share, block.weights, share.sum(-1, keepdim=True), value=-1)
            gq[b, :, rows] += of_logits @ k[b, :, keys]
            gk[b, :, keys] += of_logits.transpose(-1, -2) @ q[b, :, rows]
            g_rho[b, :, keys] -= share.mul_(block.lags).sum(-2)
            towards = of_logits.sum(-2)
            if block.fading is not None:
                towards -= torch.mul(of_logits, block.fading, out=share).sum(-2)
                g_omega[b, :, keys] += gamma.view(-1, 1) * phi[b, :, keys] * share.mul_(block.lags).sum(-2)
            late = of_logits.mul_(block.lags).sum(-2)
            g_phi[b, :, keys] += gamma.view(-1, 1) * towards
            g_omega[b, :, keys] -= gamma.view(-1, 1) * late
            g_gamma += (phi[b, :, keys] * towards - omega[b, :, keys] * late).sum((0, 2))
        return None, *sums
