"""From chosen pairs to attention: backbone, dynamics, softmax and weighted sum over the keys of each query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from nacdrive.nac.dynamics import Dynamics
from nacdrive.nac.gates import Folded
from nacdrive.nac.selection import Rules

PHIS = ("sigmoid", "tanh", "none")
PAIRS_AT_ONCE = 4096  # their hidden layers fit a core's second-level cache
QUADRATURES = ("time", "constant")


@dataclass(frozen=True)
class PairOptions:
    """What a pair is computed with: see the arguments of ``NAC`` of the same names."""

    dynamics: Dynamics
    phi: str
    quadrature: str
    delta_t: float
    eps: float


class Tokens(NamedTuple):
    """Per-token halves of everything that a pair needs; heads first, batch and time flattened."""

    zq: Tensor  # [H, N, I] first backbone layer, query half with bias
    zk: Tensor  # [H, M, I] key half
    tq: Tensor  # [H, N]    time gate, query half (time stamp included)
    tk: Tensor  # [H, M, 2] time gate, key half: slope and offset
    v: Tensor  # [H, M, D]
    stamps: Tensor  # [N]


def pair_logits(z: Tensor, w: Folded) -> tuple[Tensor, Tensor, Tensor]:
    """Motor neurons ``[H, 2, P]``, inter ``[H, P, I]`` and command layer ``[H, P, C]`` of ``P`` pairs per head.

    Args:
        z: ``[H, P, I]``, sum of the two halves of the first layer; overwritten where no gradient is recorded.
        w: folded backbone.
    """
    if w.w3 is None or w.b3 is None:
        return z.transpose(1, 2), z, z
    act = _activation(w.act, z)
    if w.w2 is not None and w.b2 is not None:
        inter = act(z)
        s = torch.baddbmm(w.b2.unsqueeze(1), inter, w.w2)
    else:
        inter = s = z
    if w.wr is None:
        command = act(s)
    elif w.br is not None:
        command = torch.sigmoid(s)  # a new tensor: s is still needed
        s = s.add_(w.br.unsqueeze(1)) if _overwritable(s) else s + w.br.unsqueeze(1)
    else:
        command = torch.sigmoid(s) if w.act == "sigmoid" else F.silu(s)
    for r in range(w.unfolds - 1 if w.wr is not None else 0):
        assert w.wr is not None
        last = r == w.unfolds - 2 and _overwritable(s)
        command = act(s.baddbmm_(command, w.wr) if last else torch.baddbmm(s, command, w.wr))
    return _read_motor(command, w.w3, w.b3), inter, command


def _read_motor(command: Tensor, w3: Tensor, b3: Tensor) -> Tensor:
    # Transposed, a product with two columns is several times faster, and phi and omega each lie in one piece.
    return torch.baddbmm(b3.unsqueeze(2), w3.transpose(1, 2), command.transpose(1, 2))


def _overwritable(z: Tensor) -> bool:
    return not torch.is_grad_enabled() and not torch.compiler.is_compiling()


def _activation(name: str, z: Tensor) -> Callable[[Tensor], Tensor]:
    if name == "silu":
        return F.silu
    return torch.sigmoid_ if _overwritable(z) else torch.sigmoid


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
        motor: ``[H, 2, N, n]`` motor neurons.
        gate: ``[H, N, n]`` argument of the time gate.
        allowed: broadcastable to ``[H, N, n]``, False = excluded; None allows all.
        scale: logit scale, a scalar; None for 1.
        keep: dropout factors ``[H, N, n]``, or None.
        o: options.
    """
    content, rate = motor.unbind(1)
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


class Job(NamedTuple):
    """Which pairs are to be computed, and how.

    ``index`` is ``[H or 1, N, n]``, the chosen key of each pair within its sequence; None takes all keys.
    """

    index: Tensor | None  # type: ignore[assignment]  # hides tuple.index, which nobody calls
    rules: Rules
    keys: int
    options: PairOptions
    dropout: float  # 0 outside training
    low: bool = False  # bfloat16 products where a kernel has them; logits and softmax are always float32

    def rows(self, heads: int, first: int, last: int) -> tuple[Tensor, Tensor | None]:
        """For queries ``first`` to ``last``: rows ``[H, q, n]`` of tables ``[H * M, ...]``, and which are allowed."""
        position = self.rules.position
        if self.index is None:
            index = torch.arange(self.keys, device=position.device).expand(1, last - first, -1)
        else:
            index = self.index[:, first:last]
        allowed = None if self.rules.open else self.rules.allowed_flat(index, first)
        if self.rules.window is not None:
            index = index.clamp(min=0)
        sequence = torch.arange(first, last, device=index.device).unsqueeze(-1) // position.shape[1]
        head = torch.arange(heads, device=index.device).view(-1, 1, 1) * (position.shape[0] * self.keys)
        return index + (sequence * self.keys + head), allowed


def gather_rows(table: Tensor, rows: Tensor) -> Tensor:
    """``[H, q, n, E]`` of a table ``[H, M, E]`` for ``rows`` of ``Job.rows``."""
    width = table.shape[-1]
    # index_select is several times faster than indexing with brackets on a CPU.
    return table.reshape(-1, width).index_select(0, rows.reshape(-1)).view(*rows.shape, width)


def gate_argument(tokens: Tokens, rows: Tensor, first: int, last: int) -> Tensor:
    """Argument ``[H, q, n]`` of the time gate."""
    slope, offset = gather_rows(tokens.tk, rows).unbind(-1)
    return tokens.stamps[first:last].unsqueeze(-1) * slope + offset + tokens.tq[:, first:last].unsqueeze(-1)


class Pairs(NamedTuple):
    """All that ``pair_attention`` computed on its way."""

    y: Tensor  # [H, N, D]
    attention: Attention
    index: Tensor  # type: ignore[assignment]  # [H, N, n]
    allowed: Tensor | None
    inter: Tensor  # [H, N, n, I]
    command: Tensor  # [H, N, n, C]


def all_pairs(tokens: Tokens, w: Folded, scale: Tensor | None, job: Job) -> Pairs:
    """Every pair at once, in plain torch: what autograd, ``torch.compile`` and ONNX export can follow."""
    heads, queries, _ = tokens.zq.shape
    rows, allowed = job.rows(heads, 0, queries)
    n = rows.shape[-1]
    z = gather_rows(tokens.zk, rows) + tokens.zq.unsqueeze(2)
    motor, inter, command = pair_logits(z.flatten(1, 2), w)
    gate = gate_argument(tokens, rows, 0, queries)
    keep = F.dropout(torch.ones_like(gate), job.dropout) if job.dropout else None
    attention = attend(motor.reshape(heads, 2, queries, n), gate, allowed, scale, keep, job.options)
    y = (attention.mix.unsqueeze(2) @ gather_rows(tokens.v, rows)).squeeze(2)
    width = (heads, queries, n, -1)
    return Pairs(y, attention, rows % job.keys, allowed, inter.view(width), command.view(width))


def pair_attention(tokens: Tokens, w: Folded, scale: Tensor | None, job: Job) -> Tensor:
    """Attention outputs ``[H, N, D]`` by the fastest way there is for these pairs.

    This is the one place where a kernel is chosen.
    """
    n = job.keys if job.index is None else job.index.shape[-1]
    pairs = tokens.zq.shape[0] * tokens.zq.shape[1] * n
    if tokens.zq.is_cuda:
        from nacdrive.nac import triton_pairs

        if triton_pairs.wins(tokens, w, job):
            return triton_pairs.triton_pairs(tokens, w, scale, job)
    if pairs <= PAIRS_AT_ONCE or torch.compiler.is_compiling():
        return all_pairs(tokens, w, scale, job).y
    return chunked_pairs(tokens, w, scale, job)


def chunked_pairs(tokens: Tokens, w: Folded, scale: Tensor | None, job: Job) -> Tensor:
    """The same as ``all_pairs`` in memory that does not grow with the number of pairs; gradients are recomputed."""
    seed = int(torch.randint(1 << 62, ()).item()) if job.dropout else 0
    y: Tensor = _Chunked.apply(  # type: ignore[no-untyped-call]
        job, w.act, w.unfolds, seed, scale, *tokens, *w[:9]
    )
    return y


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, job: Job, act: str, unfolds: int, seed: int, scale: Tensor | None, *tensors: Tensor | None
    ) -> Tensor:
        tokens, w = _unpack(tensors, act, unfolds)
        heads, queries, _ = tokens.zq.shape
        y = torch.empty(heads, queries, tokens.v.shape[-1], dtype=tokens.v.dtype, device=tokens.v.device)
        values = tokens.v.reshape(-1, tokens.v.shape[-1])
        for first, last in _chunks(tokens, job):
            rows, allowed = job.rows(heads, first, last)
            z = gather_rows(tokens.zk, rows).add_(tokens.zq[:, first:last].unsqueeze(2))
            motor, _, _ = pair_logits(z.flatten(1, 2), w)
            gate = gate_argument(tokens, rows, first, last)
            a = attend(
                motor.reshape(heads, 2, last - first, -1),
                gate,
                allowed,
                scale,
                _keep(gate, job, seed, first),
                job.options,
            )
            n = rows.shape[-1]
            bags = F.embedding_bag(rows.reshape(-1, n), values, per_sample_weights=a.mix.reshape(-1, n), mode="sum")
            y[:, first:last] = bags.view(heads, last - first, -1)
        ctx.save_for_backward(scale, *tensors)
        ctx.job, ctx.act, ctx.unfolds, ctx.seed = job, act, unfolds, seed
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gy: Tensor) -> tuple[Any, ...]:
        # The caller may still be inside autocast, which would undo the float32 of the forward pass.
        with torch.autocast(gy.device.type, enabled=False):
            return _chunked_backward(ctx, gy)


def _chunked_backward(ctx: Any, gy: Tensor) -> tuple[Any, ...]:
    scale, *tensors = ctx.saved_tensors
    job = ctx.job
    tokens, w = _unpack(tensors, ctx.act, ctx.unfolds)
    heads = tokens.zq.shape[0]
    sums = Tokens(*(x.new_zeros(x.shape) for x in tokens))  # not zeros_like: it copies odd strides
    # Leaves of the small graph that is rebuilt for each chunk.
    leaves = [None if x is None else x.detach().requires_grad_() for x in (scale, *w[:9])]
    w = _folded(leaves[1:], ctx.act, ctx.unfolds)
    used = [x for x in leaves[4:] if x is not None] + ([leaves[0]] if leaves[0] is not None else [])
    totals = [torch.zeros_like(x) for x in used]
    for first, last in _chunks(tokens, job):
        rows, allowed = job.rows(heads, first, last)
        stamps = tokens.stamps[first:last].unsqueeze(-1)
        with torch.no_grad():
            z = gather_rows(tokens.zk, rows).add_(tokens.zq[:, first:last].unsqueeze(2))
            slope, offset = gather_rows(tokens.tk, rows).unbind(-1)
            gate = stamps * slope + offset + tokens.tq[:, first:last].unsqueeze(-1)
            gout = gy[:, first:last].unsqueeze(2)
            gmix = (gather_rows(tokens.v, rows) * gout).sum(-1)
        with torch.enable_grad():
            z.requires_grad_()
            gate.requires_grad_()
            motor = _motor(z.flatten(1, 2), w).reshape(heads, 2, last - first, -1)
            a = attend(motor, gate, allowed, leaves[0], _keep(gate, job, ctx.seed, first), job.options)
        gz, gg, *rest = torch.autograd.grad(a.mix, [z, gate, *used], gmix, allow_unused=True, materialize_grads=True)
        for total, part in zip(totals, rest, strict=True):
            total.add_(part)
        flat = rows.reshape(-1)
        sums.zq[:, first:last] = gz.sum(2)
        sums.tq[:, first:last] = gg.sum(2)
        sums.stamps[first:last] = (gg * slope).sum((0, 2))
        _add_rows(sums.zk, flat, gz)
        _add_rows(sums.tk, flat, torch.stack([gg * stamps, gg], -1))
        _add_rows(sums.v, flat, a.mix.detach().unsqueeze(-1) * gout)
    found = iter(totals)
    weights = [None if x is None else next(found) for x in leaves[4:]]
    gscale = None if leaves[0] is None else next(found)
    return (None, None, None, None, gscale, *sums, None, None, None, *weights)


def _unpack(tensors: Sequence[Tensor | None], act: str, unfolds: int) -> tuple[Tokens, Folded]:
    halves: Any = tensors[:6]
    return Tokens(*halves), _folded(tensors[6:], act, unfolds)


def _folded(weights: Sequence[Tensor | None], act: str, unfolds: int) -> Folded:
    anything: Any = (*weights, act, unfolds)  # NamedTuple's types cannot say "nine of these, then two of those"
    return Folded(*anything)


def _chunks(tokens: Tokens, job: Job) -> list[tuple[int, int]]:
    heads, queries, _ = tokens.zq.shape
    n = job.keys if job.index is None else job.index.shape[-1]
    step = max(1, PAIRS_AT_ONCE // (heads * n))
    return [(first, min(first + step, queries)) for first in range(0, queries, step)]


def _keep(gate: Tensor, job: Job, seed: int, first: int) -> Tensor | None:
    """Dropout factors that come out the same when a chunk is computed again."""
    if not job.dropout:
        return None
    generator = torch.Generator(device=gate.device).manual_seed((seed + first) % (1 << 63))
    kept = torch.rand(gate.shape, generator=generator, device=gate.device, dtype=gate.dtype) >= job.dropout
    return kept.to(gate.dtype) / (1 - job.dropout)


def _add_rows(table: Tensor, flat: Tensor, rows: Tensor) -> None:
    width = table.shape[-1]
    table.view(-1, width).index_add_(0, flat, rows.reshape(-1, width))


def _motor(z: Tensor, w: Folded) -> Tensor:
    """Motor neurons with gradients; by hand where the circuit is the usual one, which saves passes over memory."""
    if w.act == "sigmoid" and w.w2 is not None and w.w3 is not None:
        motor: Tensor = _Circuit.apply(  # type: ignore[no-untyped-call]
            z, w.w2, w.b2, w.wr, w.br, w.w3, w.b3, w.unfolds
        )
        return motor
    return pair_logits(z, w)[0]


class _Circuit(torch.autograd.Function):
    """inter -> command (R times) -> motor with sigmoid neurons. It may overwrite nothing that it was given."""

    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        w2: Tensor,
        b2: Tensor,
        wr: Tensor | None,
        br: Tensor | None,
        w3: Tensor,
        b3: Tensor,
        unfolds: int,
    ) -> Tensor:
        inter = torch.sigmoid(z)
        s = torch.baddbmm(b2.unsqueeze(1), inter, w2)
        commands = [torch.sigmoid(s)]
        if wr is not None:
            if br is not None:
                s.add_(br.unsqueeze(1))
            for r in range(unfolds - 1):
                last = r == unfolds - 2
                z = s.baddbmm_(commands[-1], wr) if last else torch.baddbmm(s, commands[-1], wr)
                commands.append(z.sigmoid_())
        ctx.save_for_backward(w2, wr, w3, inter, *commands)
        ctx.biased = br is not None
        return _read_motor(commands[-1], w3, b3)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gm: Tensor) -> tuple[Tensor | None, ...]:
        w2, wr, w3, inter, *commands = ctx.saved_tensors
        gw3, gb3 = (gm @ commands[-1]).transpose(1, 2), gm.sum(2)
        gc = gm.transpose(1, 2) @ w3.transpose(1, 2)
        gs_sum: Tensor | None = None
        gwr = None if wr is None else torch.zeros_like(wr)
        for r in range(len(commands) - 1, 0, -1):
            assert wr is not None and gwr is not None
            gs = torch.ops.aten.sigmoid_backward(gc, commands[r])
            gwr += commands[r - 1].transpose(1, 2) @ gs
            gc = gs @ wr.transpose(1, 2)
            gs_sum = gs if gs_sum is None else gs_sum.add_(gs)
        gbr = gs_sum.sum(1) if gs_sum is not None and ctx.biased else None
        gs = torch.ops.aten.sigmoid_backward(gc, commands[0])
        if gs_sum is not None:
            gs = gs.add_(gs_sum)
        gw2, gb2 = inter.transpose(1, 2) @ gs, gs.sum(1)
        gz = torch.ops.aten.sigmoid_backward(gs @ w2.transpose(1, 2), inter)
        return gz, gw2, gb2, gwr, gbr, gw3, gb3, None
