"""``all_pairs`` a few thousand pairs at a time, so that what is large stays in a core's cache.

Two sizes of pieces: a block of queries goes through dynamics, softmax and weighted sum at once (a few numbers per
pair), a chunk of it through the circuit (some hundred numbers per pair, in buffers used again for every chunk). The
backward pass computes the neurons of each chunk again, so memory does not grow with the number of pairs times neurons.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nacdrive.nac import pairwise
from nacdrive.nac.backbone import Folded
from nacdrive.nac.chunked_backbone import Circuit, pieces
from nacdrive.nac.key_sets import KeySet, meeting
from nacdrive.nac.pairwise import Job, Tokens, attend

CHUNKS_PER_BLOCK = 8


def chunked_pairs(tokens: Tokens, w: Folded, scale: Tensor | None, job: Job) -> Tensor:
    """Attention outputs ``[H, N, D]``, as ``all_pairs`` gives them."""
    seed = int(torch.randint(1 << 62, ()).item()) if job.dropout else 0
    y: Tensor = _Chunked.apply(  # type: ignore[no-untyped-call]
        job, w[9:], seed, torch.is_grad_enabled(), scale, *tokens, *w[:9]
    )
    return y


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        job: Job,
        form: tuple[Any, ...],
        seed: int,
        recording: bool,
        scale: Tensor | None,
        *tensors: Tensor | None,
    ) -> Tensor:
        tokens, w = _unpack(tensors, form)
        heads, queries, _ = tokens.zq.shape
        circuit = Circuit(tokens, w, job.index is None)
        y = tokens.v.new_empty(heads, queries, tokens.v.shape[-1])
        motors = []
        for first, last in _blocks(heads, queries, job):
            met = meeting(job, heads, first, last)
            motor = circuit.motor(met, first, last - first)
            _, gate = _gate(tokens, met, first, last)
            mix = attend(motor, gate, met.allowed, scale, _keep(gate, job, seed, first), job.options).mix
            y[:, first:last] = met.weighted_sum(tokens.v, mix)
            if recording and job.index is not None:
                motors.append(motor)  # two numbers per pair; of all T^2 pairs they would be too many
        ctx.save_for_backward(scale, *tensors)
        ctx.job, ctx.form, ctx.seed, ctx.motors = job, form, seed, motors
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gy: Tensor) -> tuple[Any, ...]:
        # The caller may still be inside autocast, which would undo the float32 of the forward pass.
        with torch.autocast(gy.device.type, enabled=False):
            return (None,) * 4 + _backward(ctx, gy)


def _backward(ctx: Any, gy: Tensor) -> tuple[Any, ...]:
    scale, *tensors = ctx.saved_tensors
    job = ctx.job
    tokens, w = _unpack(tensors, ctx.form)
    heads, queries, _ = tokens.zq.shape
    circuit = Circuit(tokens, w, job.index is None)
    # Queries come once each, keys many times. Not zeros_like: it copies odd strides.
    zq, tq, stamped = (x.new_empty(x.shape) for x in (tokens.zq, tokens.tq, tokens.stamps))
    zk, tk, v = (x.new_zeros(x.shape) for x in (tokens.zk, tokens.tk, tokens.v))
    sums = Tokens(zq, zk, tq, tk, v, stamped)
    totals = [None if x is None else x.new_zeros(x.shape) for x in w[3:9]]
    scale = None if scale is None else scale.detach().requires_grad_()
    gscale = None if scale is None else torch.zeros_like(scale)
    for number, (first, last) in enumerate(_blocks(heads, queries, job)):
        met = meeting(job, heads, first, last)
        slope, gate = _gate(tokens, met, first, last)
        motor = ctx.motors[number].detach() if ctx.motors else circuit.motor(met, first, last - first)
        with torch.enable_grad():
            leaves = [motor.requires_grad_(), gate.requires_grad_()] + ([] if scale is None else [scale])
            mix = attend(motor, gate, met.allowed, scale, _keep(gate, job, ctx.seed, first), job.options).mix
        gmix = met.weighted_sum_backward(tokens.v, mix.detach(), gy[:, first:last], sums.v)
        gmotor, ggate, *rest = torch.autograd.grad(mix, leaves, gmix, allow_unused=True, materialize_grads=True)
        if gscale is not None:
            gscale += rest[0]
        sums.tq[:, first:last] = ggate.sum(2)
        sums.stamps[first:last] = (ggate * slope).sum((0, 2))
        met.scatter(sums.tk, torch.stack([ggate * tokens.stamps[first:last].unsqueeze(-1), ggate], -1))
        circuit.backward(met, first, gmotor, sums, totals)
    return (gscale, *sums, None, None, None, *totals)


def _unpack(tensors: Sequence[Tensor | None], form: tuple[Any, ...]) -> tuple[Tokens, Folded]:
    halves: Any = tensors[:6]
    weights: Any = (*tensors[6:], *form)  # NamedTuple's types know no "nine of these"
    return Tokens(*halves), Folded(*weights)


def _blocks(heads: int, queries: int, job: Job) -> list[tuple[int, int]]:
    step = max(1, CHUNKS_PER_BLOCK * pairwise.PAIRS_AT_ONCE // (heads * job.keys_per_query))
    if job.index is not None:
        return pieces(0, queries, step)
    length = job.rules.position.shape[1]
    return [piece for start in range(0, queries, length) for piece in pieces(start, start + length, step)]


def _gate(tokens: Tokens, met: KeySet, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Slope (of the time stamp) and argument ``[H, q, n]`` of the time gate."""
    slope, offset = met.take(tokens.tk).unbind(-1)
    gate = torch.addcmul(offset, tokens.stamps[first:last].unsqueeze(-1), slope)
    return slope, gate + tokens.tq[:, first:last].unsqueeze(-1)


def _keep(gate: Tensor, job: Job, seed: int, first: int) -> Tensor | None:
    """Dropout factors that come out the same when a block is computed again."""
    if not job.dropout:
        return None
    generator = torch.Generator(device=gate.device).manual_seed((seed + first) % (1 << 63))
    kept = torch.rand(gate.shape, generator=generator, device=gate.device, dtype=gate.dtype) >= job.dropout
    return kept.to(gate.dtype) / (1 - job.dropout)
