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
from torch.nn import functional as F

from nacdrive.nac import pairs
from nacdrive.nac.gates import Folded
from nacdrive.nac.pairs import Job, Tokens, attend, gate_argument, gather_rows, pair_logits, read_motor

CHUNKS_PER_BLOCK = 8

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input


def chunked_pairs(tokens: Tokens, w: Folded, scale: Tensor | None, job: Job) -> Tensor:
    """Attention outputs ``[H, N, D]``, as ``all_pairs`` gives them."""
    seed = int(torch.randint(1 << 62, ()).item()) if job.dropout else 0
    y: Tensor = _Chunked.apply(  # type: ignore[no-untyped-call]
        job, w.act, w.unfolds, w.first_source, seed, torch.is_grad_enabled(), scale, *tokens, *w[:9]
    )
    return y


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        job: Job,
        act: str,
        unfolds: int,
        first_source: int,
        seed: int,
        recording: bool,
        scale: Tensor | None,
        *tensors: Tensor | None,
    ) -> Tensor:
        tokens, w = _unpack(tensors, act, unfolds, first_source)
        heads, queries, _ = tokens.zq.shape
        circuit = _Circuit(tokens, w)
        values = tokens.v.reshape(-1, tokens.v.shape[-1])
        y = tokens.v.new_empty(heads, queries, values.shape[-1])
        motors = []
        for first, last in _blocks(heads, queries, job):
            rows, allowed = job.rows(heads, first, last)
            motor = circuit.motor(rows, first)
            gate = gate_argument(tokens, rows, first, last)
            mix = attend(motor, gate, allowed, scale, _keep(gate, job, seed, first), job.options).mix
            n = rows.shape[-1]
            bags = F.embedding_bag(rows.view(-1, n), values, per_sample_weights=mix.view(-1, n), mode="sum")
            y[:, first:last] = bags.view(heads, last - first, -1)
            if recording and job.index is not None:
                motors.append(motor)  # two numbers per pair; of all T^2 pairs they would be too many
        ctx.save_for_backward(scale, *tensors)
        ctx.job, ctx.act, ctx.unfolds, ctx.first_source, ctx.seed = job, act, unfolds, first_source, seed
        ctx.motors = motors
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gy: Tensor) -> tuple[Any, ...]:
        # The caller may still be inside autocast, which would undo the float32 of the forward pass.
        with torch.autocast(gy.device.type, enabled=False):
            return (None,) * 6 + _backward(ctx, gy)


def _backward(ctx: Any, gy: Tensor) -> tuple[Any, ...]:
    scale, *tensors = ctx.saved_tensors
    job = ctx.job
    tokens, w = _unpack(tensors, ctx.act, ctx.unfolds, ctx.first_source)
    heads, queries, _ = tokens.zq.shape
    circuit = _Circuit(tokens, w)
    # Queries come once each, keys many times. Not zeros_like: it copies odd strides.
    zq, tq, stamped = (x.new_empty(x.shape) for x in (tokens.zq, tokens.tq, tokens.stamps))
    zk, tk, v = (x.new_zeros(x.shape) for x in (tokens.zk, tokens.tk, tokens.v))
    sums = Tokens(zq, zk, tq, tk, v, stamped)
    totals = [None if x is None else x.new_zeros(x.shape) for x in w[3:9]]
    scale = None if scale is None else scale.detach().requires_grad_()
    gscale = None if scale is None else torch.zeros_like(scale)
    for number, (first, last) in enumerate(_blocks(heads, queries, job)):
        rows, allowed = job.rows(heads, first, last)
        stamps = tokens.stamps[first:last].unsqueeze(-1)
        slope, offset = gather_rows(tokens.tk, rows).unbind(-1)
        gate = stamps * slope + offset + tokens.tq[:, first:last].unsqueeze(-1)
        motor = ctx.motors[number].detach() if ctx.motors else circuit.motor(rows, first)
        with torch.enable_grad():
            leaves = [motor.requires_grad_(), gate.requires_grad_()] + ([] if scale is None else [scale])
            mix = attend(motor, gate, allowed, scale, _keep(gate, job, ctx.seed, first), job.options).mix
        gout = gy[:, first:last].unsqueeze(2)
        gmix = gather_rows(tokens.v, rows).mul_(gout).sum(-1)
        gmotor, ggate, *rest = torch.autograd.grad(mix, leaves, gmix, allow_unused=True, materialize_grads=True)
        if gscale is not None:
            gscale += rest[0]
        sums.tq[:, first:last] = ggate.sum(2)
        sums.stamps[first:last] = (ggate * slope).sum((0, 2))
        _add_rows(sums.tk, rows, torch.stack([ggate * stamps, ggate], -1))
        _add_rows(sums.v, rows, mix.detach().unsqueeze(-1) * gout)
        circuit.backward(rows, first, gmotor, sums, totals)
    return (gscale, *sums, None, None, None, *totals)


def _unpack(tensors: Sequence[Tensor | None], act: str, unfolds: int, first_source: int) -> tuple[Tokens, Folded]:
    halves: Any = tensors[:6]
    weights: Any = (*tensors[6:], act, unfolds, first_source)  # NamedTuple's types know no "nine of these"
    return Tokens(*halves), Folded(*weights)


def _pieces(first: int, last: int, step: int) -> list[tuple[int, int]]:
    return [(i, min(i + step, last)) for i in range(first, last, step)]


def _blocks(heads: int, queries: int, job: Job) -> list[tuple[int, int]]:
    step = _queries_per_chunk(heads, job.keys_per_query)
    return _pieces(0, queries, CHUNKS_PER_BLOCK * step)


def _queries_per_chunk(heads: int, keys: int) -> int:
    return max(1, pairs.PAIRS_AT_ONCE // (heads * keys))


def _keep(gate: Tensor, job: Job, seed: int, first: int) -> Tensor | None:
    """Dropout factors that come out the same when a block is computed again."""
    if not job.dropout:
        return None
    generator = torch.Generator(device=gate.device).manual_seed((seed + first) % (1 << 63))
    kept = torch.rand(gate.shape, generator=generator, device=gate.device, dtype=gate.dtype) >= job.dropout
    return kept.to(gate.dtype) / (1 - job.dropout)


def _add_rows(table: Tensor, rows: Tensor, x: Tensor) -> None:
    width = table.shape[-1]
    table.view(-1, width).index_add_(0, rows.reshape(-1), x.reshape(-1, width))


class _Circuit:
    """The backbone over chunks of pairs, without autograd, in buffers."""

    def __init__(self, tokens: Tokens, w: Folded) -> None:
        self.tokens = tokens
        self.w = w
        self.table = tokens.zk.reshape(-1, tokens.zk.shape[-1])
        self.usual = w.act == "sigmoid" and w.w2 is not None and w.w3 is not None
        if self.usual and w.w3 is not None:
            # The motor neurons read the changed command neurons elsewhere.
            changed = 0 if w.wr is None else w.wr.shape[2]
            self.w3_of_command = F.pad(w.w3[:, changed:], (0, 0, changed, 0)).transpose(1, 2)
        self.buffers: dict[tuple[str, int, int], Tensor] = {}

    def buffer(self, name: str, size: int, width: int) -> Tensor:
        """``[H, size, width]`` with any content; the same memory whenever asked by this name and size."""
        found = self.buffers.get((name, size, width))
        if found is None:
            found = self.tokens.zq.new_empty(self.tokens.zq.shape[0], size, width)
            self.buffers[name, size, width] = found
        return found

    def chunks(self, rows: Tensor) -> list[tuple[int, int]]:
        heads, queries, n = rows.shape
        return _pieces(0, queries, _queries_per_chunk(heads, n))

    def motor(self, rows: Tensor, first: int) -> Tensor:
        """Motor neurons ``[H, 2, q, n]`` of the queries from ``first`` on; ``rows`` is ``[H, q, n]``."""
        heads, queries, n = rows.shape
        motor = self.tokens.zq.new_empty(heads, 2, queries, n)
        for a, b in self.chunks(rows):
            z = self._first_layer(rows[:, a:b], first + a)
            if self.usual:
                found = self._read_motor(*self._commands(z.sigmoid_()))
            else:
                with torch.no_grad():
                    found = pair_logits(z, self.w)[0]
            motor[:, :, a:b] = found.view(heads, 2, b - a, n)
        return motor

    def _first_layer(self, rows: Tensor, first: int) -> Tensor:
        heads, queries, n = rows.shape
        z = self.buffer("z", queries * n, self.table.shape[-1])
        torch.index_select(self.table, 0, rows.reshape(-1), out=z.view(heads * queries * n, -1))
        z.view(heads, queries, n, -1).add_(self.tokens.zq[:, first : first + queries].unsqueeze(2))
        return z

    def _commands(self, inter: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Command neurons after their first update, ``[H, P, C]``, and after each other those that change."""
        w = self.w
        assert w.w2 is not None and w.b2 is not None
        size, width = inter.shape[1], w.w2.shape[2]
        s = torch.baddbmm(w.b2.unsqueeze(1), inter, w.w2, out=self.buffer("s", size, width))
        command = torch.sigmoid(s, out=self.buffer("command", size, width))
        if w.wr is None:
            return command, []
        updated = w.wr.shape[2]
        s = s[..., :updated]
        if w.br is not None:
            s.add_(w.br.unsqueeze(1))
        changed: list[Tensor] = []
        for r in range(1, w.unfolds):
            u = torch.baddbmm(s, self._sources(command, changed), w.wr, out=self.buffer(f"u{r}", size, updated))
            changed.append(u.sigmoid_())  # a slice of ``command`` would be several times slower
        return command, changed

    def _sources(self, command: Tensor, changed: list[Tensor]) -> Tensor:
        """What the recurrent synapses read, ``[H, P, S]``."""
        if not changed:
            return command[..., self.w.sources]
        updated = changed[-1].shape[2]
        return torch.cat([changed[-1][..., self.w.first_source :], command[..., updated : self.w.sources.stop]], 2)

    def _read_motor(self, command: Tensor, changed: list[Tensor]) -> Tensor:
        assert self.w.w3 is not None and self.w.b3 is not None
        if changed:
            command[..., : changed[-1].shape[2]] = changed[-1]
        return read_motor(command, self.w.w3, self.w.b3)

    def backward(self, rows: Tensor, first: int, gmotor: Tensor, sums: Tokens, totals: list[Tensor | None]) -> None:
        """Add up the gradients of the first layer's halves and of the weights ``w[3:9]``."""
        heads, _, n = rows.shape
        for a, b in self.chunks(rows):
            z = self._first_layer(rows[:, a:b], first + a)
            gm = gmotor[:, :, a:b].reshape(heads, 2, -1)
            gz = self._backward_usual(z, gm, totals) if self.usual else self._backward_other(z, gm, totals)
            torch.sum(gz.view(heads, b - a, n, -1), 2, out=sums.zq[:, first + a : first + b])
            _add_rows(sums.zk, rows[:, a:b], gz)

    def _backward_usual(self, z: Tensor, gm: Tensor, totals: Sequence[Tensor | None]) -> Tensor:
        w = self.w
        gw2, gb2, gwr, gbr, gw3, gb3 = totals
        assert w.w2 is not None and w.w3 is not None
        assert gw2 is not None and gb2 is not None and gw3 is not None and gb3 is not None
        inter = z.sigmoid_()
        command, changed = self._commands(inter)
        _, size, width = command.shape
        gb3 += gm.sum(2)
        gmt = gm.transpose(1, 2)
        gc = torch.bmm(gmt, self.w3_of_command, out=self.buffer("gc", size, width))
        gs_later: Tensor | None = None  # gradient of the sums through all updates but the first
        if changed:
            assert w.wr is not None and gwr is not None
            u, first, stop = w.wr.shape[2], w.first_source, w.sources.stop
            gw3[:, :u] += torch.bmm(gm, changed[-1]).transpose(1, 2)
            gw3[:, u:] += torch.bmm(gm, command[..., u:]).transpose(1, 2)
            gu = torch.bmm(gmt, w.w3[:, :u].transpose(1, 2), out=self.buffer("gu", size, u))
            while changed:
                sigmoid_backward(gu, changed.pop(), grad_input=gu)
                gwr.baddbmm_(self._sources(command, changed).transpose(1, 2), gu)
                gs_later = gu if gs_later is None else gs_later + gu
                if not changed:
                    gc[..., first:stop].baddbmm_(gu, w.wr.transpose(1, 2))
                    break
                gsource = gu @ w.wr.transpose(1, 2)
                gc[..., u:stop] += gsource[..., u - first :]
                gu = F.pad(gsource[..., : u - first], (first, 0))
        else:
            gw3 += torch.bmm(gm, command).transpose(1, 2)
        gs: Tensor = sigmoid_backward(gc, command, grad_input=gc)
        if gs_later is not None:
            if gbr is not None:
                gbr += gs_later.sum(1)
            gs[..., : gs_later.shape[2]] += gs_later
        gw2.baddbmm_(inter.transpose(1, 2), gs)
        gb2 += gs.sum(1)
        gz = torch.bmm(gs, w.w2.transpose(1, 2), out=self.buffer("gz", size, inter.shape[2]))
        result: Tensor = sigmoid_backward(gz, inter, grad_input=gz)
        return result

    def _backward_other(self, z: Tensor, gm: Tensor, totals: Sequence[Tensor | None]) -> Tensor:
        leaves = [None if x is None else x.detach().requires_grad_() for x in self.w[3:9]]
        used = [x for x in leaves if x is not None]
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            weights: Any = (*self.w[:3], *leaves, *self.w[9:])
            motor = pair_logits(z, Folded(*weights))[0]
        gz, *found = torch.autograd.grad(motor, [z, *used], gm, allow_unused=True, materialize_grads=True)
        for total, part in zip((x for x in totals if x is not None), found, strict=True):
            total += part
        return gz
