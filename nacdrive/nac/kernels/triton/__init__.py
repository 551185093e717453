"""The pairs on a GPU: when it applies, how it is launched, and its place in autograd.

Importing this needs no triton; the kernels (``forward``, ``backward``) are imported when first used. Both passes
recompute every pair from its tokens, so memory does not grow with the number of pairs.

Right on an H100, and timed there (docs/results/gpu.md): forward with Top-K little faster than the chunked path, over
all pairs 30 times; a training step with Top-K 12 times. ``PROGRAMS_PER_PROCESSOR`` is not tuned.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from nacdrive.nac.backbone import FusedWeights
from nacdrive.nac.dynamics import Euler, Steady
from nacdrive.nac.kernels.blocks import differentiable_gradients, unpack
from nacdrive.nac.pairwise import PairProblem, Tokens
from nacdrive.nac.validation import tracing

LEAST_PAIRS: int | None = 1 << 14
"""Pairs (heads x queries x keys per query) from which the kernel is chosen; set it to 0 for always, None for never.

At 4,096 of them an H100 gains 0.4 ms a call, which does not soon pay for a first call that compiles for seconds.
"""
PAIRS_PER_TILE = 32  # rows of the matrix products of one step; with 64 an H100 trains slower by 1.2 to 1.8 times
KEYS_PER_BLOCK = 16  # the rest of a tile is queries, which share what is read and summed per key when pairwise
DEEPEST = 64  # channels of a head
# Neurons per layer that are compiled for, by whether products are bfloat16, and the bytes of shared memory that the
# backward pass takes at most: a third more than compiling tiles of 64 pairs for sm_90 gave (40 KiB, 112 KiB; about
# 20 KiB, 192 KiB), as far as Hopper has it. Three TF32 products of 128 neurons would need 640 KiB, so wide float32
# layers are left to the chunked path.
SHARED = {True: {64: 54 << 10, 128: 150 << 10}, False: {32: 96 << 10, 64: 227 << 10}}
MOST_UNFOLDS = 4  # the backward pass recomputes R (R - 1) / 2 recurrent updates, written out one by one
PROGRAMS_PER_PROCESSOR = 2  # the more, the better the tail; each writes one partial sum of every weight's gradient
OLDEST = (8, 0)  # compute capability: bfloat16 and TF32 products


@cache
def available() -> bool:
    """Whether triton is installed."""
    return importlib.util.find_spec("triton") is not None


def supported(tokens: Tokens, w: FusedWeights, problem: PairProblem) -> bool:
    """Whether the kernel computes these pairs (it is fast only from ``LEAST_PAIRS`` on; see ``applies``).

    All others are left to the chunked path; deterministic algorithms, because keys' gradients are summed atomically.
    """
    mode = problem.options.dynamics
    width = max(tokens.zq.shape[-1], 1 if w.w3 is None else w.w3.shape[-2])
    room = [needed for widest, needed in SHARED[problem.low].items() if width <= widest]
    return (
        available()
        and not tracing()
        and not tokens.elapsed
        and tokens.score is None
        and all(x.dtype == torch.float32 for x in tokens if x is not None)
        and problem.dropout == 0
        and not (isinstance(mode, Euler) and mode.adaptive)
        and tokens.v.shape[-1] <= DEEPEST
        and bool(room)
        and w.unfolds <= MOST_UNFOLDS
        and not torch.are_deterministic_algorithms_enabled()
        and _runs_on(tokens.zq.device, room[0])
    )


def applies(tokens: Tokens, w: FusedWeights, problem: PairProblem) -> bool:
    """Whether the kernel is the way: on a GPU, supported and large enough."""
    if not tokens.zq.is_cuda or LEAST_PAIRS is None:
        return False
    return problem.keys_per_query * tokens.tq.numel() >= LEAST_PAIRS and supported(tokens, w, problem)


def attend(tokens: Tokens, w: FusedWeights, scale: Tensor | None, problem: PairProblem) -> Tensor:
    """Attention outputs ``[H, N, D]``, as ``all_pairs`` gives them."""
    y: Tensor = _TritonPairs.apply(problem, w, scale, *tokens, *w.tensors().values())  # type: ignore[no-untyped-call]
    return y


@cache
def _runs_on(device: torch.device, shared: int) -> bool:
    if device.type != "cuda":
        from triton.runtime.interpreter import InterpretedFunction

        from nacdrive.nac.kernels.triton.forward import forward_kernel

        return isinstance(forward_kernel, InterpretedFunction)
    if torch.version.hip is not None or torch.cuda.get_device_capability(device) < OLDEST:
        return False
    from triton.runtime import driver

    number = torch.cuda.current_device() if device.index is None else device.index
    return bool(driver.active.utils.get_device_properties(number)["max_shared_mem"] >= shared)


def _power(n: int, least: int) -> int:
    return max(least, 1 << (n - 1).bit_length())


def tf32_allowed() -> bool:
    """Whether the user lets float32 products be made of TF32 ones, by either of torch's two settings."""
    try:
        return bool(torch.backends.cuda.matmul.allow_tf32)
    except RuntimeError:  # the newer setting is in use, and torch will not translate it
        return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


@dataclass(frozen=True)
class Plan:
    """Sizes and switches of one launch: ``numbers`` at run time, ``constants`` compiled in."""

    grid: tuple[int, int]
    numbers: dict[str, int]
    constants: dict[str, int | float | str | bool]
    warps: int

    @property
    def arguments(self) -> dict[str, Any]:
        return {**self.numbers, **self.constants, "num_warps": self.warps}


def plan(tokens: Tokens, w: FusedWeights, scaled: bool, problem: PairProblem, processors: int) -> Plan:
    """How the kernels are launched for these shapes, with a logit scale or without, on so many multiprocessors."""
    heads, queries, inter = tokens.zq.shape
    mask, o = problem.mask, problem.options
    slots, indexed, linear = problem.keys_per_query, problem.index is not None, w.w3 is None
    layers = [inter] if w.w3 is None else [inter, w.w3.shape[1]]
    ip, cp = _power(layers[0], 16), _power(layers[-1], 16)
    per_key_block = min(_power(slots, 1), KEYS_PER_BLOCK)
    per_tile = PAIRS_PER_TILE // per_key_block
    span = queries if indexed else mask.position.shape[1]
    tiles_per_span = -(-span // per_tile)
    tiles = tiles_per_span * (queries // span)
    programs = min(tiles, max(1, -(-PROGRAMS_PER_PROCESSOR * processors // heads)))
    euler = o.dynamics if isinstance(o.dynamics, Euler) else None
    mode = "euler" if euler else "steady" if isinstance(o.dynamics, Steady) else "exact"
    numbers = {
        "N": queries,
        "M": tokens.zk.shape[1],
        "QUERIES": mask.position.shape[1],
        "KEYS": problem.keys,
        "slots": slots,
        "window": mask.window or 0,
        "tiles": tiles,
        "span": span,
        "tiles_per_span": tiles_per_span,
    }
    constants: dict[str, int | float | str | bool] = {
        "IW": inter,
        "IP": ip,
        "C": layers[-1],
        "CP": cp,
        "D": tokens.v.shape[-1],
        "DP": _power(tokens.v.shape[-1], 2),
        "BQ": per_tile,
        "BK": per_key_block,
        "INDEXED": indexed,
        "CAUSAL": mask.causal,
        "WINDOWED": mask.causal and mask.window is not None,
        "PADDED": mask.padding is not None,
        "LINEAR": linear,
        "INTER": w.w2 is not None,
        "R": w.unfolds if w.wr is not None else 1,
        "ACT": w.activation,
        "PHI": o.phi,
        "MODE": mode,
        "STEPS": euler.steps if euler else 1,
        "STEP": float(euler.step or 0.0) if euler else 0.0,
        "EPS": float(o.eps),
        "TIME": o.quadrature == "time",
        "DELTA": float(o.delta_t),
        "SCALED": scaled,
        "LOW": problem.low,
        # Three TF32 products keep float32's precision on tensor cores; one, where the user allows it, does not.
        "PRECISION": "tf32" if tf32_allowed() else "tf32x3",
    }
    return Plan((programs, heads), numbers, constants, 8 if max(ip, cp) > 64 else 4)


class _TritonPairs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, problem: PairProblem, form: FusedWeights, scale: Tensor | None, *tensors: Tensor | None
    ) -> Tensor:
        from nacdrive.nac.kernels.triton.forward import forward_kernel

        tokens, w = unpack([None if x is None else x.contiguous() for x in tensors], form)
        device = tokens.zq.device
        processors = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2
        launch = plan(tokens, w, scale is not None, problem, processors)
        heads, queries, _ = tokens.zq.shape
        y = tokens.v.new_empty(heads, queries, tokens.v.shape[-1])
        top, total = tokens.tau.new_empty(heads, queries), tokens.tau.new_empty(heads, queries)
        given = _arguments(tokens, w, scale, problem)
        with torch.cuda.device_of(y):  # type: ignore[no-untyped-call]
            forward_kernel[launch.grid](*given, y, top, total, **launch.arguments, num_stages=2)
        ctx.save_for_backward(scale, y, top, total, *tensors)
        ctx.problem, ctx.form, ctx.launch = problem, form.with_tensors([None] * len(w.tensors())), launch
        return y

    @staticmethod
    def backward(ctx: Any, gy: Tensor) -> tuple[Any, ...]:
        from nacdrive.nac.kernels.triton.backward import backward_kernel

        scale, y, top, total, *tensors = ctx.saved_tensors
        if torch.is_grad_enabled():
            tokens, w = unpack(tensors, ctx.form)
            return (None, None, *differentiable_gradients(tokens, w, scale, ctx.problem, gy))
        tokens, w = unpack([None if x is None else x.contiguous() for x in tensors], ctx.form)
        launch: Plan = ctx.launch
        programs, heads = launch.grid
        gy = gy.to(torch.float32).contiguous()
        delta = (gy * y).sum(-1)
        by_query = [torch.empty_like(tokens.zq), torch.empty_like(tokens.tq)]
        by_key = [torch.zeros_like(x) for x in (tokens.zk, tokens.tk, tokens.v)]
        tau = tokens.tau.new_empty(heads, len(tokens.tau))
        partial = {n: None if x is None else x.new_empty(heads, programs, *x.shape[1:]) for n, x in w.tensors().items()}
        if w.wr is not None and w.br is None:
            partial["br"] = w.wr.new_empty(heads, programs, w.wr.shape[-1])  # the kernel gives it anyway
        of_scale = None if scale is None else tau.new_empty(heads, programs)
        out = (by_query[0], by_key[0], by_query[1], by_key[1], by_key[2], tau, *partial.values(), of_scale)
        given = _arguments(tokens, w, scale, ctx.problem)
        with torch.cuda.device_of(gy):  # type: ignore[no-untyped-call]
            gradients = [top if x is None else x for x in out]
            backward_kernel[launch.grid](*given, top, total, gy, delta, *gradients, **launch.arguments, num_stages=1)
        weights = {name: None if x is None else x.sum(1) for name, x in partial.items()}
        if w.br is None:
            weights["br"] = None
        gscale = None
        if of_scale is not None and scale is not None:
            gscale = of_scale.sum(1).view(-1, 1, 1).sum_to_size(scale.shape)
        return (None, None, gscale, *out[:5], tau.sum(0), None, *weights.values())  # no score is trained here


def _arguments(tokens: Tokens, w: FusedWeights, scale: Tensor | None, problem: PairProblem) -> list[Tensor | int]:
    """Leading arguments of both kernels. What is absent is another pointer, which the kernel never reads."""
    nothing = tokens.tq
    matrices = [None if x is None else x.to(torch.bfloat16) if problem.low else x for x in (w.w2, w.wr)]
    # Without unfold bias the kernel adds zeros.
    br = torch.zeros_like(w.wr[:, 0]) if w.wr is not None and w.br is None else w.br
    factor = None if scale is None else scale.expand(len(nothing), 1, 1).contiguous()  # one for each head
    weights = [matrices[0], w.b2, matrices[1], br, w.w3, w.b3, factor]
    index = None if problem.index is None else problem.index.contiguous()
    heads_apart = 0 if index is None or index.shape[0] == 1 else index.stride(0)
    rows_apart = 0 if index is None else index.stride(1)
    position = problem.mask.position.reshape(-1).contiguous()
    padding = None if problem.mask.padding is None else problem.mask.padding.contiguous().view(torch.uint8)
    return [
        *tokens[:6],
        *(nothing if x is None else x for x in weights),
        position if index is None else index,
        heads_apart,
        rows_apart,
        position,
        position if padding is None else padding,
    ]
