"""The keys of a block of queries: a few chosen ones each, or all of their sequence.

Both kinds answer the same questions. ``q`` queries of a block have ``n`` keys each; a table holds one row per key of
all sequences, ``[H, M, E]``.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from nacdrive.nac.pairwise import PairProblem, gather_rows


class GatheredKeys:
    """Each query has its own keys: their rows are gathered, and gradients scattered."""

    def __init__(self, problem: PairProblem, heads: int, first: int, last: int) -> None:
        self.rows, self.allowed = problem.rows(heads, first, last)  # [H, q, n]
        self.keys = self.rows.shape[2]

    def take(self, table: Tensor) -> Tensor:
        """The keys' rows of ``table``, ``[H, q, n, E]``."""
        return gather_rows(table, self.rows)

    def add_halves(self, of_query: Tensor, table: Tensor, part: Part, out: Tensor) -> None:
        """``out [H, q', n', E]`` = ``of_query [H, q', E]`` of some queries + their keys' rows."""
        torch.index_select(table.flatten(0, 1), 0, self._part(part).reshape(-1), out=out.flatten(0, 2))
        out.add_(of_query.unsqueeze(2))

    def scatter(self, table: Tensor, x: Tensor, part: Part | None = None) -> None:
        """Add ``x [H, q, n, E]`` to the keys' rows of ``table``."""
        rows = self.rows if part is None else self._part(part)
        table.flatten(0, 1).index_add_(0, rows.reshape(-1), x.reshape(-1, table.shape[-1]))

    def weighted_sum(self, values: Tensor, mix: Tensor) -> Tensor:
        """Values of the keys times ``mix [H, q, n]``, summed: ``[H, q, D]``."""
        heads, queries, n = self.rows.shape
        weights = mix.reshape(-1, n)
        bags = F.embedding_bag(self.rows.view(-1, n), values.flatten(0, 1), per_sample_weights=weights, mode="sum")
        return bags.view(heads, queries, -1)

    def weighted_sum_backward(self, values: Tensor, mix: Tensor, gout: Tensor, gvalues: Tensor) -> Tensor:
        """Gradient of ``mix``; that of ``values`` is added to ``gvalues``. ``gout`` is ``[H, q, D]``."""
        self.scatter(gvalues, mix.unsqueeze(-1) * gout.unsqueeze(2))
        return self.take(values).mul_(gout.unsqueeze(2)).sum(-1)

    def _part(self, part: Part) -> Tensor:
        (a, b), _ = part  # a query's few keys are never cut
        return self.rows[:, a:b]


class AllKeys:
    """All keys of one sequence: nothing is gathered, halves are added by broadcasting."""

    def __init__(self, problem: PairProblem, first: int, last: int) -> None:
        self.keys, sequence = problem.keys, first // problem.mask.position.shape[1]
        self.here = slice(sequence * problem.keys, (sequence + 1) * problem.keys)
        self.allowed = None
        self.ends: list[int] | None = None
        """Of a causal block: behind which key each query sees none."""
        if problem.mask.causal:
            self.ends = [i + 1 for i in problem.mask.position.reshape(-1)[first:last].tolist()]
        if not problem.mask.open:
            device = problem.mask.position.device
            every = torch.arange(problem.keys, device=device).expand(1, last - first, -1)
            self.allowed = problem.mask.allowed_of(torch.arange(first, last, device=device), every)

    def take(self, table: Tensor) -> Tensor:
        """The sequence's rows of ``table`` for every query, ``[H, 1, n, E]``."""
        return table[:, self.here].unsqueeze(1)

    def add_halves(self, of_query: Tensor, table: Tensor, part: Part, out: Tensor) -> None:
        torch.add(of_query.unsqueeze(2), self._rows(table, part).unsqueeze(1), out=out)

    def multiply(self, of_query: Tensor, table: Tensor, part: Part, out: Tensor) -> None:
        """As ``add_halves``, a product."""
        torch.mul(of_query.unsqueeze(2), self._rows(table, part).unsqueeze(1), out=out)

    def scatter(self, table: Tensor, x: Tensor, part: Part | None = None) -> None:
        self._rows(table, part).add_(x.sum(1))

    def weighted_sum(self, values: Tensor, mix: Tensor) -> Tensor:
        return mix @ values[:, self.here]

    def weighted_sum_backward(self, values: Tensor, mix: Tensor, gout: Tensor, gvalues: Tensor) -> Tensor:
        gvalues[:, self.here].baddbmm_(mix.transpose(1, 2), gout)
        return gout @ values[:, self.here].transpose(1, 2)

    def _rows(self, table: Tensor, part: Part | None) -> Tensor:
        rows = table[:, self.here]
        return rows if part is None else rows[:, slice(*part[1])]


Part = tuple[tuple[int, int], tuple[int, int]]  # from and to: queries of the block, keys of each
KeySet = GatheredKeys | AllKeys


def key_set(problem: PairProblem, heads: int, first: int, last: int) -> KeySet:
    """The keys of queries ``first`` to ``last``; with all keys the queries must be of one sequence."""
    return AllKeys(problem, first, last) if problem.index is None else GatheredKeys(problem, heads, first, last)
