"""The backbone over chunks of pairs, forward and backward without autograd, in buffers used again for every chunk.

Inter neurons lie pair by pair (a gathered row is one pair's), command neurons neuron by neuron: there the few
recurrent synapses are a few rows added to others, and any range of neurons is one piece. ``torch.utils.checkpoint``
over blocks of queries computes the same in a fifth of these lines, and takes 1.3 to 3.6 times as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from nacdrive.nac import pairwise
from nacdrive.nac.backbone import FusedWeights
from nacdrive.nac.kernels.blocks import pieces
from nacdrive.nac.kernels.key_sets import AllKeys, KeySet, Part
from nacdrive.nac.pairwise import PairProblem, Tokens, pair_logits

CAUSAL_STEPS = 4  # pieces of a causal block, each of which leaves out the keys behind it: a third to a half of them
LEAST_QUERIES = 8  # fewer make so small products that calling them takes longer

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input


class ChunkedBackbone:
    """A ``BlockBackbone``: motor neurons of pairs and the gradients of what they come from.

    ``P`` pairs of a chunk, I inter neurons, C command neurons; S of these have recurrent synapses, to the first U.
    """

    def __init__(self, tokens: Tokens, w: FusedWeights, problem: PairProblem) -> None:
        self.tokens, self.w = tokens, w
        self.usual = w.activation == "sigmoid" and w.w2 is not None and w.w3 is not None
        self.buffers: dict[str, Tensor] = {}
        if self.usual and w.w2 is not None and w.w3 is not None:
            self.w2 = w.w2.transpose(1, 2).contiguous()  # [H, C, I]
            self.w3 = w.w3.transpose(1, 2).contiguous()  # [H, 2, C]
            self.recurrent = None if w.wr is None else Recurrent(w, w.w2.shape[2])
        # Where each query meets all keys, what is made once per key pays.
        self.factors = _factors(tokens) if self.usual and problem.index is None else None

    def motor(self, keys: KeySet, first: int, queries: int) -> Tensor:
        heads = self.tokens.zq.shape[0]
        shape = (heads, 2, queries, keys.keys)
        # What a causal block leaves out is masked, but must be finite for the gradients beside it.
        causal = isinstance(keys, AllKeys) and keys.ends is not None
        motor = self.tokens.zq.new_zeros(shape) if causal else self.tokens.zq.new_empty(shape)
        for part in self._parts(keys, queries):
            (a, b), (c, d) = part
            if self.usual:
                assert self.w.b3 is not None
                command, _ = self._commands(self._inter(keys, part, first))
                motors = torch.baddbmm(self.w.b3.unsqueeze(2), self.w3, command)
            else:
                z = self._first_layer(keys, part, first)
                with torch.no_grad():
                    motors = pair_logits(z, self.w)[0]
            motor[:, :, a:b, c:d] = motors.view(heads, 2, b - a, d - c)
        return motor

    def backward(
        self, keys: KeySet, first: int, gmotor: Tensor, sums: Tokens, totals: dict[str, Tensor | None]
    ) -> None:
        heads, _, queries, _ = gmotor.shape
        for part in self._parts(keys, queries):
            (a, b), (c, d) = part
            gm = gmotor[:, :, a:b, c:d].reshape(heads, 2, -1)
            if self.usual:
                gz = self._backward_usual(self._inter(keys, part, first), gm, totals)
            else:
                gz = self._backward_other(self._first_layer(keys, part, first), gm, totals)
            gz = gz.view(heads, b - a, d - c, -1)
            of_query = sums.zq[:, first + a : first + b]
            if c == 0:
                torch.sum(gz, 2, out=of_query)
            else:
                of_query += gz.sum(2)
            keys.scatter(sums.zk, gz, part)

    def _parts(self, keys: KeySet, queries: int) -> list[Part]:
        """Every pair once; of a causal block with all keys only as far as its queries see."""
        per_head = max(1, pairwise.PAIRS_AT_ONCE // self.tokens.zq.shape[0])
        step = max(1, per_head // keys.keys)
        if not isinstance(keys, AllKeys):
            return [(q, (0, keys.keys)) for q in pieces(0, queries, step)]
        ends = keys.ends
        if ends is None:
            return [(q, k) for q in pieces(0, queries, step) for k in pieces(0, keys.keys, per_head)]
        most = max(LEAST_QUERIES, -(-queries // CAUSAL_STEPS))
        parts: list[Part] = []
        first = 0
        while first < queries:
            last = first + 1
            while last < min(queries, first + most) and (last + 1 - first) * ends[last] <= per_head:
                last += 1
            parts += [((first, last), k) for k in pieces(0, ends[last - 1], per_head)]
            first = last
        return parts

    def _buffer(self, name: str, *shape: int) -> Tensor:
        """``[H, *shape]`` with any content; the same memory whenever asked by this name."""
        size = self.tokens.zq.shape[0] * math.prod(shape)
        if name not in self.buffers or len(self.buffers[name]) < size:
            self.buffers[name] = self.tokens.zq.new_empty(size)
        return self.buffers[name][:size].view(self.tokens.zq.shape[0], *shape)

    def _first_layer(self, keys: KeySet, part: Part, first: int) -> Tensor:
        """Sums of both halves, ``[H, P, I]``."""
        (a, b), (c, d) = part
        zq = self.tokens.zq
        z = self._buffer("z", (b - a) * (d - c), zq.shape[2])
        keys.add_halves(zq[:, first + a : first + b], self.tokens.zk, part, z.view(zq.shape[0], b - a, d - c, -1))
        return z

    def _inter(self, keys: KeySet, part: Part, first: int) -> Tensor:
        """Inter neurons ``[H, P, I]``."""
        if self.factors is None or not isinstance(keys, AllKeys):
            return self._first_layer(keys, part, first).sigmoid_()
        (a, b), (c, d) = part
        of_query, of_key = self.factors
        inter = self._buffer("z", (b - a) * (d - c), of_query.shape[2])
        keys.multiply(of_query[:, first + a : first + b], of_key, part, inter.view(of_query.shape[0], b - a, d - c, -1))
        return inter.add_(1).reciprocal_()

    def _commands(self, inter: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Command neurons ``[H, C, P]``, and before each update the ``[H, S, P]`` that recurrent synapses read."""
        w = self.w
        size = inter.shape[1]
        s = torch.bmm(self.w2, inter.transpose(1, 2), out=self._buffer("s", self.w2.shape[1], size))
        if w.b2 is not None:
            s.add_(w.b2.unsqueeze(2))
        sources: list[Tensor] = []
        if self.recurrent is None:
            return s.sigmoid_(), sources
        u = s
        for r in range(w.unfolds - 1):
            width = self.recurrent.sources.stop - self.recurrent.sources.start
            sources.append(torch.sigmoid(u[:, self.recurrent.sources], out=self._buffer(f"source{r}", width, size)))
            if r == 0 and w.br is not None:
                s[:, : self.recurrent.targets].add_(w.br.unsqueeze(2))
            u = s if r == w.unfolds - 2 else self._buffer("u", *s.shape[1:]).copy_(s)
            self.recurrent.add(sources[-1], u)
        return s.sigmoid_(), sources

    def _backward_usual(self, inter: Tensor, gm: Tensor, totals: dict[str, Tensor | None]) -> Tensor:
        gw2, gb2, gwr, gbr, gw3, gb3 = (totals[name] for name in ("w2", "b2", "wr", "br", "w3", "b3"))
        assert gw2 is not None and gw3 is not None and gb3 is not None
        command, sources = self._commands(inter)
        gb3 += gm.sum(2)
        gw3 += torch.bmm(gm, command.transpose(1, 2)).transpose(1, 2)
        gs = torch.bmm(self.w3.transpose(1, 2), gm, out=self._buffer("gs", *command.shape[1:]))
        sigmoid_backward(gs, command, grad_input=gs)
        gu = gs  # gradient of the sums of the last update; gs becomes that of all updates together
        while sources and self.recurrent is not None:
            assert gwr is not None
            if gbr is not None:
                gbr += gu[:, : self.recurrent.targets].sum(2)
            source = sources.pop()
            self.recurrent.add_weight_gradient(source, gu, gwr, self._buffer)
            gsource = self.recurrent.backward(gu, self._buffer("gsource", *source.shape[1:]))
            sigmoid_backward(gsource, source, grad_input=gsource)
            if sources:
                gu = self._buffer("gu", *gs.shape[1:]).zero_()
                gu[:, self.recurrent.sources] = gsource
            gs[:, self.recurrent.sources] += gsource
        if gb2 is not None:
            gb2 += gs.sum(2)
        gw2 += torch.bmm(gs, inter).transpose(1, 2)
        gz = torch.bmm(gs.transpose(1, 2), self.w2, out=self._buffer("gz", *inter.shape[1:]))
        result: Tensor = sigmoid_backward(gz, inter, grad_input=gz)
        return result

    def _backward_other(self, z: Tensor, gm: Tensor, totals: dict[str, Tensor | None]) -> Tensor:
        leaves = {n: None if x is None else x.detach().requires_grad_() for n, x in self.w.tensors().items()}
        used = {name: x for name, x in leaves.items() if x is not None}
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            motor = pair_logits(z, self.w.with_tensors(leaves.values()))[0]
        gz, *parts = torch.autograd.grad(motor, [z, *used.values()], gm, allow_unused=True, materialize_grads=True)
        for name, part in zip(used, parts, strict=True):
            total = totals[name]
            assert total is not None
            total += part
        return gz


def _factors(tokens: Tokens) -> tuple[Tensor, Tensor] | None:
    """e^-z of both halves: sigmoid(zq + zk) = 1 / (1 + e^-zq e^-zk), quicker; None where a product could overflow."""
    limit = 0.49 * math.log(torch.finfo(tokens.zq.dtype).max)
    if not all(bool(x.abs().amax() < limit) for x in (tokens.zq, tokens.zk)):
        return None
    of_query, of_key = (torch.exp2(x * -math.log2(math.e)) for x in (tokens.zq, tokens.zk))  # faster than exp
    return of_query, of_key


class Recurrent:
    """The recurrent command synapses: one by one where they are few, else as a dense product."""

    def __init__(self, w: FusedWeights, commands: int) -> None:
        assert w.wr is not None
        self.wr = w.wr  # [H, S, U]
        heads, _, self.targets = w.wr.shape
        self.sources, self.edges = w.sources, w.edges
        if w.edges is not None:
            source, target = w.edges
            head = torch.arange(heads, device=source.device).unsqueeze(1)
            # All heads in one matrix, the blocks of its diagonal.
            self.rows, self.columns = (head * commands + target).view(-1), (head * w.wr.shape[1] + source).view(-1)
            values = w.wr[:, source, target].reshape(-1)
            shape = (heads * commands, heads * w.wr.shape[1])
            index = torch.stack([self.rows, self.columns])
            self.forwards = torch.sparse_coo_tensor(index, values, shape, check_invariants=False)
            self.backwards = torch.sparse_coo_tensor(index.flip(0), values, shape[::-1], check_invariants=False)

    def add(self, source: Tensor, u: Tensor) -> None:
        """Add to ``u [H, C, P]`` what reaches it from ``source [H, S, P]``."""
        if self.edges is None:
            u[:, : self.targets].baddbmm_(self.wr.transpose(1, 2), source)
        else:
            u.flatten(0, 1).addmm_(self.forwards, source.flatten(0, 1))

    def backward(self, gu: Tensor, out: Tensor) -> Tensor:
        """Gradient of ``source``, written to ``out [H, S, P]``."""
        if self.edges is None:
            return torch.bmm(self.wr, gu[:, : self.targets], out=out)
        out.zero_().flatten(0, 1).addmm_(self.backwards, gu.flatten(0, 1))
        return out

    def add_weight_gradient(self, source: Tensor, gu: Tensor, total: Tensor, buffer: Callable[..., Tensor]) -> None:
        """Add the gradient of ``wr`` to ``total [H, S, U]``."""
        if self.edges is None:
            total.baddbmm_(source, gu[:, : self.targets].transpose(1, 2))
            return
        edges, size = len(self.edges[0]), source.shape[2]
        before, after = (buffer(name, edges, size).flatten(0, 1) for name in ("before", "after"))
        torch.index_select(source.flatten(0, 1), 0, self.columns, out=before)
        torch.index_select(gu.flatten(0, 1), 0, self.rows, out=after)
        total[:, self.edges[0], self.edges[1]] += before.mul_(after).sum(1).view(-1, edges)
