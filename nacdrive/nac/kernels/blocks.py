"""``all_pairs`` a few thousand pairs at a time, by ``chunked`` or ``numba``: what is large stays in a core's cache.

Two sizes of pieces: a block of queries goes through dynamics, softmax and weighted sum at once (a few numbers per
pair), a chunk of it through the circuit (some hundred numbers per pair, in buffers used again for every chunk). The
backward pass computes the neurons of each chunk again, so memory does not grow with the number of pairs times neurons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from nacdrive.nac import pairwise
from nacdrive.nac.backbone import FusedWeights
from nacdrive.nac.kernels.key_sets import KeySet, key_set
from nacdrive.nac.pairwise import PairProblem, Tokens, all_pairs, attend, gate_argument

CHUNKS_PER_BLOCK = 8
MOTORS_KEPT = 1 << 21  # pairs of all heads up to which both motor neurons wait for the backward pass: 16 MiB


class BlockBackbone(Protocol):
    """The circuit over the pairs of a block."""

    def motor(self, keys: KeySet, first: int, queries: int) -> Tensor:
        """Motor neurons ``[H, 2, q, n]`` of the queries from ``first`` on."""

    def backward(
        self, keys: KeySet, first: int, gmotor: Tensor, sums: Tokens, totals: dict[str, Tensor | None]
    ) -> None:
        """Add up the gradients of the first layer's halves (of ``zq`` overwritten) and of the weights (``totals``)."""


MakeBackbone = Callable[[Tokens, FusedWeights, PairProblem], BlockBackbone]


def attend_in_blocks(
    make: MakeBackbone, tokens: Tokens, w: FusedWeights, scale: Tensor | None, problem: PairProblem
) -> Tensor:
    """Attention outputs ``[H, N, D]``, as ``all_pairs`` gives them, of the circuit that ``make`` makes."""
    seed = int(torch.randint(1 << 62, ()).item()) if problem.dropout else 0
    y: Tensor = _InBlocks.apply(  # type: ignore[no-untyped-call]
        make, problem, w, seed, torch.is_grad_enabled(), scale, *tokens, *w.tensors().values()
    )
    return y


def pieces(first: int, last: int, step: int) -> list[tuple[int, int]]:
    """``first`` to ``last`` in ranges of at most ``step``."""
    return [(i, min(i + step, last)) for i in range(first, last, step)]


def differentiable_gradients(
    tokens: Tokens, w: FusedWeights, scale: Tensor | None, problem: PairProblem, gy: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients of scale, tokens and weights that can be differentiated again, by way of ``all_pairs``.

    For ``create_graph=True`` (a gradient penalty): it takes the memory of all pairs at once, and knows no dropout.
    """
    if problem.dropout:
        raise RuntimeError("NAC: gradients of gradients need dropout=0 (or layer.eval()) with this many pairs")
    inputs = [scale, *tokens, *w.tensors().values()]
    wanted = [x for x in inputs if x is not None and x.requires_grad]
    with torch.autocast(gy.device.type, enabled=False):
        y = all_pairs(tokens, w, scale, problem).y
        gradients = iter(torch.autograd.grad(y, wanted, gy, create_graph=True, allow_unused=True))
    return tuple(next(gradients) if x is not None and x.requires_grad else None for x in inputs)


class _InBlocks(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        make: MakeBackbone,
        problem: PairProblem,
        form: FusedWeights,
        seed: int,
        recording: bool,
        scale: Tensor | None,
        *tensors: Tensor | None,
    ) -> Tensor:
        tokens, w = unpack(tensors, form)
        heads, queries, _ = tokens.zq.shape
        backbone = make(tokens, w, problem)
        y = tokens.v.new_empty(heads, queries, tokens.v.shape[-1])
        motors = []
        keep_motors = recording and (
            problem.index is not None or heads * queries * problem.keys_per_query <= MOTORS_KEPT
        )
        for first, last in _blocks(heads, queries, problem):
            keys = key_set(problem, heads, first, last)
            motor = backbone.motor(keys, first, last - first)
            gate, _, _ = gate_argument(keys.take(tokens.tk), tokens.tq[:, first:last], tokens.tau[first:last], True)
            score = None if tokens.score is None else tokens.score[:, first:last]
            keep = _keep(gate, problem, seed, first)
            mix = attend(motor, gate, keys.allowed, scale, keep, problem.options, score).mix
            y[:, first:last] = keys.weighted_sum(tokens.v, mix)
            if keep_motors:
                motors.append(motor)
        ctx.save_for_backward(scale, *tensors)
        ctx.make, ctx.problem, ctx.seed, ctx.motors = make, problem, seed, motors
        # The tensors themselves are saved above, where autograd can see that nobody overwrites them.
        ctx.form = form.with_tensors([None] * len(w.tensors()))
        return y

    @staticmethod
    def backward(ctx: Any, gy: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            scale, *tensors = ctx.saved_tensors
            tokens, w = unpack(tensors, ctx.form)
            return (None,) * 5 + differentiable_gradients(tokens, w, scale, ctx.problem, gy)
        # The caller may still be inside autocast, which would undo the float32 of the forward pass.
        with torch.autocast(gy.device.type, enabled=False):
            return (None,) * 5 + _backward(ctx, gy)


def _backward(ctx: Any, gy: Tensor) -> tuple[Any, ...]:
    scale, *tensors = ctx.saved_tensors
    problem = ctx.problem
    tokens, w = unpack(tensors, ctx.form)
    heads, queries, _ = tokens.zq.shape
    backbone: BlockBackbone = ctx.make(tokens, w, problem)
    # Queries come once each, keys many times. Not zeros_like: it copies odd strides.
    zq, tq, tau = (x.new_empty(x.shape) for x in (tokens.zq, tokens.tq, tokens.tau))
    zk, tk, v = (x.new_zeros(x.shape) for x in (tokens.zk, tokens.tk, tokens.v))
    gscore = None if tokens.score is None else tokens.score.new_empty(tokens.score.shape)
    sums = Tokens(zq, zk, tq, tk, v, tau, gscore)
    totals = {name: None if x is None else x.new_zeros(x.shape) for name, x in w.tensors().items()}
    scale = None if scale is None else scale.detach().requires_grad_()
    gscale = None if scale is None else torch.zeros_like(scale)
    for number, (first, last) in enumerate(_blocks(heads, queries, problem)):
        keys, here = key_set(problem, heads, first, last), slice(first, last)
        gate, time, slope = gate_argument(keys.take(tokens.tk), tokens.tq[:, here], tokens.tau[here], True)
        motor = ctx.motors[number].detach() if ctx.motors else backbone.motor(keys, first, last - first)
        with torch.enable_grad():
            score = None if tokens.score is None else tokens.score[:, here].detach().requires_grad_()
            leaves = [motor.requires_grad_(), gate.requires_grad_()]
            leaves += [x for x in (score, scale) if x is not None]
            keep = _keep(gate, problem, ctx.seed, first)
            mix = attend(motor, gate, keys.allowed, scale, keep, problem.options, score).mix
        gmix = keys.weighted_sum_backward(tokens.v, mix.detach(), gy[:, here], sums.v)
        gmotor, ggate, *rest = torch.autograd.grad(mix, leaves, gmix, allow_unused=True, materialize_grads=True)
        if gscore is not None:
            gscore[:, here] = rest[0]
        if gscale is not None:
            gscale += rest[-1]
        gslope, gtime = ggate * time, ggate * slope
        if tokens.elapsed:
            sums.tq[:, here] = torch.stack([gslope.sum(2), ggate.sum(2)], -1)
            keys.scatter(sums.tk, torch.stack([gslope, ggate, -gtime], -1))
        else:
            sums.tq[:, here] = ggate.sum(2)
            keys.scatter(sums.tk, torch.stack([gslope, ggate], -1))
        sums.tau[here] = gtime.sum((0, 2))
        backbone.backward(keys, first, gmotor, sums, totals)
    return (gscale, *sums, *totals.values())


def unpack(tensors: Sequence[Tensor | None], form: FusedWeights) -> tuple[Tokens, FusedWeights]:
    """Tokens and weights from the flat list that autograd knows."""
    count = len(Tokens._fields)
    tokens: Any = tensors[:count]
    return Tokens(*tokens), form.with_tensors(tensors[count:])


def _blocks(heads: int, queries: int, problem: PairProblem) -> list[tuple[int, int]]:
    step = max(1, CHUNKS_PER_BLOCK * pairwise.PAIRS_AT_ONCE // (heads * problem.keys_per_query))
    if problem.index is not None:
        return pieces(0, queries, step)
    length = problem.mask.position.shape[1]
    return [piece for start in range(0, queries, length) for piece in pieces(start, start + length, step)]


def _keep(gate: Tensor, problem: PairProblem, seed: int, first: int) -> Tensor | None:
    """Dropout factors that come out the same when a block is computed again."""
    if not problem.dropout:
        return None
    generator = torch.Generator(device=gate.device).manual_seed((seed + first) % (1 << 63))
    kept = torch.rand(gate.shape, generator=generator, device=gate.device, dtype=gate.dtype) >= problem.dropout
    return kept.to(gate.dtype) / (1 - problem.dropout)
