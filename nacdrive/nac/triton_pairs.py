"""GPU form of ``pair_attention``: when it applies, how it is launched, and its place in autograd.

Importing this file needs no triton; the kernels (``triton_forward``, ``triton_backward``) are imported when first
used. Both passes recompute every pair from its tokens, so memory does not grow with the number of pairs.

Written without a GPU at hand: the results were checked in Triton's interpreter and the kernels compile for sm_80 and
sm_90, but nothing was timed. ``benchmarks/nac_gpu.py`` measures; ``LEAST_PAIRS`` and ``PAIRS_PER_TILE`` are to be set
from what it prints.
"""

from __future__ import annotations

import contextlib
import importlib.util
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from nacdrive.nac.backbone import Folded
from nacdrive.nac.dynamics import Euler, Steady
from nacdrive.nac.pairwise import Job, Tokens

LEAST_PAIRS: int | None = 1 << 14
"""Pairs (heads x queries x keys per query) from which the kernel is chosen; set it to 0 for always, None for never.

Not measured. Below it a call is bound by launching kernels, and one launch instead of some thirty saves microseconds
at most, which does not pay for a first call that compiles for seconds.
"""
PAIRS_PER_TILE = 64  # rows of the matrix products of one step: one warp group's tile on Hopper
KEYS_PER_BLOCK = 16  # the rest of a tile is queries, which share what is read and summed per key when pairwise
DEEPEST = 64  # channels of a head
# Neurons per layer that are compiled for, by whether products are bfloat16, and the bytes of shared memory that the
# backward pass then takes: a third more than compiling for sm_90 gave (40 KiB, 112 KiB; about 20 KiB, 192 KiB), as far
# as Hopper has it. Three TF32 products of 128 neurons would need 640 KiB, so wide float32 layers are left to the
# chunked path.
SHARED = {True: {64: 54 << 10, 128: 150 << 10}, False: {32: 96 << 10, 64: 227 << 10}}
MOST_UNFOLDS = 4  # the backward pass recomputes R (R - 1) / 2 recurrent updates, written out one by one
PROGRAMS_PER_PROCESSOR = 2  # the more, the better the tail; each writes one partial sum of every weight's gradient
OLDEST = (8, 0)  # compute capability: bfloat16 and TF32 products


@cache
def available() -> bool:
    """Whether triton is installed."""
    return importlib.util.find_spec("triton") is not None


def supported(tokens: Tokens, w: Folded, job: Job) -> bool:
    """Whether the kernel computes these pairs (it is fast only from ``LEAST_PAIRS`` on; see ``wins``).

    Not supported, and left to the chunked path: float64, dropout in training, ``Euler(adaptive=True)``, layers
    wider than 64 neurons (128 under autocast), heads deeper than 64, more than 4 unfolds, deterministic algorithms
    (keys' gradients are summed atomically), tracing by ``torch.compile`` or export, and GPUs older than compute
    capability 8.0 or with too little shared memory.
    """
    mode = job.options.dynamics
    width = max(tokens.zq.shape[-1], 1 if w.w3 is None else w.w3.shape[-2])
    room = [needed for widest, needed in SHARED[job.low].items() if width <= widest]
    return (
        available()
        and not torch.compiler.is_compiling()
        and all(x.dtype == torch.float32 for x in tokens)
        and job.dropout == 0
        and not (isinstance(mode, Euler) and mode.adaptive)
        and tokens.v.shape[-1] <= DEEPEST
        and bool(room)
        and w.unfolds <= MOST_UNFOLDS
        and not torch.are_deterministic_algorithms_enabled()
        and _runs_on(tokens.zq.device, room[0])
    )


def wins(tokens: Tokens, w: Folded, job: Job) -> bool:
    """Whether ``pair_attention`` takes the kernel: on a GPU, supported and large enough."""
    if not tokens.zq.is_cuda or LEAST_PAIRS is None:
        return False
    return _slots(job) * tokens.tq.numel() >= LEAST_PAIRS and supported(tokens, w, job)


def triton_pairs(tokens: Tokens, w: Folded, scale: Tensor | None, job: Job) -> Tensor:
    """Attention outputs ``[H, N, D]``, as ``chunked_pairs`` gives them.

    Args:
        tokens: float32 halves of all pairs.
        w: folded backbone.
        scale: logit scale, a scalar; None for 1.
        job: which pairs; ``job.low`` gives matrix products bfloat16 operands, while sums, logits and softmax stay
            float32.
    """
    y: Tensor = _TritonPairs.apply(job, w.act, w.unfolds, scale, *tokens, *w[3:9])  # type: ignore[no-untyped-call]
    return y


@cache
def _runs_on(device: torch.device, shared: int) -> bool:
    if device.type != "cuda":
        return _interpreted()
    if torch.version.hip is not None or torch.cuda.get_device_capability(device) < OLDEST:
        return False
    from triton.runtime import driver

    number = torch.cuda.current_device() if device.index is None else device.index
    return bool(driver.active.utils.get_device_properties(number)["max_shared_mem"] >= shared)


def _interpreted() -> bool:
    from triton.runtime.interpreter import InterpretedFunction

    from nacdrive.nac import triton_forward

    return isinstance(triton_forward.forward_kernel, InterpretedFunction)


def _slots(job: Job) -> int:
    return job.keys if job.index is None else job.index.shape[-1]


def _power(n: int, least: int) -> int:
    return max(least, 1 << (n - 1).bit_length())


@dataclass(frozen=True)
class Plan:
    """Sizes and switches of one launch: ``numbers`` at run time, ``constants`` compiled in."""

    grid: tuple[int, int]
    numbers: dict[str, int]
    constants: dict[str, int | float | str | bool]
    warps: int


def plan(tokens: Tokens, w: Folded, scaled: bool, job: Job, processors: int) -> Plan:
    """How the kernels are launched for these shapes.

    Args:
        tokens: halves of the pairs; only shapes are looked at, as in ``w`` and ``job``.
        w: folded backbone.
        scaled: whether there is a logit scale.
        job: which pairs.
        processors: multiprocessors of the GPU.
    """
    heads, queries, inter = tokens.zq.shape
    rules, o = job.rules, job.options
    slots, indexed, linear = _slots(job), job.index is not None, w.w3 is None
    layers = [inter] if w.w3 is None else [inter, w.w3.shape[1]]
    ip, cp = _power(layers[0], 16), _power(layers[-1], 16)
    per_key_block = min(_power(slots, 1), KEYS_PER_BLOCK)
    per_tile = PAIRS_PER_TILE // per_key_block
    span = queries if indexed else rules.position.shape[1]
    tiles_per_span = -(-span // per_tile)
    tiles = tiles_per_span * (queries // span)
    programs = min(tiles, max(1, -(-PROGRAMS_PER_PROCESSOR * processors // heads)))
    euler = o.dynamics if isinstance(o.dynamics, Euler) else None
    mode = "euler" if euler else "steady" if isinstance(o.dynamics, Steady) else "exact"
    numbers = {
        "N": queries,
        "M": tokens.zk.shape[1],
        "QUERIES": rules.position.shape[1],
        "KEYS": job.keys,
        "slots": slots,
        "window": rules.window or 0,
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
        "CAUSAL": rules.causal,
        "WINDOWED": rules.causal and rules.window is not None,
        "PADDED": rules.padding is not None,
        "LINEAR": linear,
        "INTER": w.w2 is not None,
        "R": w.unfolds if w.wr is not None else 1,
        "ACT": w.act,
        "PHI": o.phi,
        "MODE": mode,
        "STEPS": euler.steps if euler else 1,
        "STEP": float(euler.step or 0.0) if euler else 0.0,
        "EPS": float(o.eps),
        "TIME": o.quadrature == "time",
        "DELTA": float(o.delta_t),
        "SCALED": scaled,
        "LOW": job.low,
        # Three TF32 products keep float32's precision on tensor cores; one, where the user allows it, does not.
        "PRECISION": "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3",
    }
    return Plan((programs, heads), numbers, constants, 8 if max(ip, cp) > 64 else 4)


class _TritonPairs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, job: Job, act: str, unfolds: int, scale: Tensor | None, *tensors: Tensor | None) -> Tensor:
        from nacdrive.nac.triton_forward import forward_kernel

        tokens = Tokens(*(x.contiguous() for x in tensors[:6] if x is not None))
        halves: Any = (tokens.zq, tokens.zk, tokens.tq)  # the three that the folded backbone needs no more
        parts: Any = (*halves, *(None if x is None else x.contiguous() for x in tensors[6:]), act, unfolds)
        w = Folded(*parts)
        launch = plan(tokens, w, scale is not None, job, _processors(tokens.zq.device))
        heads, queries, _ = tokens.zq.shape
        y = tokens.v.new_empty(heads, queries, tokens.v.shape[-1])
        top, total = tokens.tq.new_empty(heads, queries), tokens.tq.new_empty(heads, queries)
        given = _arguments(tokens, w, scale, job)
        with _on(tokens.zq.device):
            forward_kernel[launch.grid](
                *given, y, top, total, **launch.numbers, **launch.constants, num_warps=launch.warps, num_stages=2
            )
        ctx.save_for_backward(scale, *tokens, *w[3:9], y, top, total)
        ctx.job, ctx.act, ctx.unfolds, ctx.launch = job, act, unfolds, launch
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gy: Tensor) -> tuple[Any, ...]:
        from nacdrive.nac.triton_backward import backward_kernel

        scale, *tensors = ctx.saved_tensors
        tokens, (y, top, total) = Tokens(*tensors[:6]), tensors[12:]
        halves: Any = (tokens.zq, tokens.zk, tokens.tq)
        parts: Any = (*halves, *tensors[6:12], ctx.act, ctx.unfolds)
        w = Folded(*parts)
        launch: Plan = ctx.launch
        programs, heads = launch.grid
        gy = gy.to(torch.float32).contiguous()
        delta = (gy * y).sum(-1)
        by_query = [torch.empty_like(tokens.zq), torch.empty_like(tokens.tq)]
        by_key = [torch.zeros_like(x) for x in (tokens.zk, tokens.tk, tokens.v)]
        stamps = torch.empty_like(tokens.tq)
        partial = [None if x is None else x.new_empty(heads, programs, *x.shape[1:]) for x in w[3:9]]
        if w.wr is not None and w.br is None:
            partial[3] = w.wr.new_empty(heads, programs, w.wr.shape[-1])  # the kernel gives it anyway
        of_scale = None if scale is None else stamps.new_empty(heads * programs)
        out = (by_query[0], by_key[0], by_query[1], by_key[1], by_key[2], stamps, *partial, of_scale)
        given = _arguments(tokens, w, scale, ctx.job)
        with _on(gy.device):
            backward_kernel[launch.grid](
                *given,
                top,
                total,
                gy,
                delta,
                *(top if x is None else x for x in out),
                **launch.numbers,
                **launch.constants,
                num_warps=launch.warps,
                num_stages=1,
            )
        weights = [None if x is None else x.sum(1) for x in partial]
        if w.br is None:
            weights[3] = None
        gscale = None if of_scale is None or scale is None else of_scale.sum().reshape(scale.shape)
        return (None, None, None, gscale, *out[:5], stamps.sum(0), *weights)


def _arguments(tokens: Tokens, w: Folded, scale: Tensor | None, job: Job) -> list[Tensor | int]:
    """Leading arguments of both kernels. What is absent is another pointer, which the kernel never reads."""
    nothing = tokens.tq
    matrices = [None if x is None else x.to(torch.bfloat16) if job.low else x for x in (w.w2, w.wr)]
    # Without unfold bias the kernel adds zeros.
    br = torch.zeros_like(w.wr[:, 0]) if w.wr is not None and w.br is None else w.br
    weights = [matrices[0], w.b2, matrices[1], br, w.w3, w.b3, scale]
    index = None if job.index is None else job.index.contiguous()
    heads_apart = 0 if index is None or index.shape[0] == 1 else index.stride(0)
    rows_apart = 0 if index is None else index.stride(1)
    position = job.rules.position.reshape(-1).contiguous()
    padding = None if job.rules.padding is None else job.rules.padding.contiguous().view(torch.uint8)
    return [
        *tokens,
        *(nothing if x is None else x for x in weights),
        position if index is None else index,
        heads_apart,
        rows_apart,
        position,
        position if padding is None else padding,
    ]


def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def _on(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
