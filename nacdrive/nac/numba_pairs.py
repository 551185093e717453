"""The pair backbone compiled by numba: when it applies, and the addresses its kernels work on.

Importing this file needs no numba; the kernels (``numba_kernels``) are imported, and compiled or read from numba's
cache, when first used.
"""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nacdrive.nac.backbone import FusedWeights, Pattern
from nacdrive.nac.key_sets import AllKeys, KeySet
from nacdrive.nac.pairwise import Tokens
from nacdrive.nac.validation import tracing

ENABLED = os.environ.get("NACDRIVE_NUMBA", "1") != "0"
"""Whether the kernels are used where they can be; set it (or the environment variable) to turn them off."""
ALIGNMENT = 64  # bytes: a vector must not lie across two lines of the cache


@cache
def available() -> bool:
    """Whether numba is installed and its kernels compile here."""
    if importlib.util.find_spec("numba") is None:
        return False
    try:
        from nacdrive.nac import numba_kernels  # noqa: F401
    except Exception:  # an old numba, a processor that LLVM cannot serve: whatever it is, torch computes the same
        return False
    return True


def supported(tokens: Tokens, w: FusedWeights) -> bool:
    """Whether the kernels compute this backbone.

    Not supported, and left to torch: float64, GPUs, activations silu and linear, circuits without inter neurons,
    compiling, export and function transforms.
    """
    return (
        ENABLED
        and not tracing()
        and tokens.zq.device.type == "cpu"
        and tokens.zq.dtype == torch.float32
        and w.activation == "sigmoid"
        and w.pattern is not None
        and w.w2 is not None
        and w.w3 is not None
        and available()
    )


class Lists(NamedTuple):
    """Synapses between two layers: ``first`` of each neuron and the ``other`` end, by target and by source."""

    first: np.ndarray
    other: np.ndarray
    first_back: np.ndarray
    other_back: np.ndarray
    ends: tuple[np.ndarray, np.ndarray]  # source and target, in the order by target
    ends_back: tuple[np.ndarray, np.ndarray]


def lists(mask: Tensor, row: int) -> Lists:
    """Of a ``mask [sources, targets]``; a neuron's place is its number times ``row`` floats."""
    present = mask.numpy()
    target, source = np.nonzero(present.T)
    source_back, target_back = np.nonzero(present)

    def starts(owner: np.ndarray, count: int) -> np.ndarray:
        return np.concatenate([[0], np.bincount(owner, minlength=count).cumsum()]).astype(np.int64)

    return Lists(
        starts(target, present.shape[1]),
        (source * row).astype(np.int32),
        starts(source_back, present.shape[0]),
        (target_back * row).astype(np.int32),
        (source, target),
        (source_back, target_back),
    )


def _all_lists(pattern: Pattern, row: int) -> list[Lists | None]:
    if pattern.lists is None:
        pattern.lists = [None if m is None else lists(m, row) for m in (pattern.inter, pattern.command, pattern.motor)]
    found: list[Lists | None] = pattern.lists
    return found


class _Memory:
    """Arrays whose addresses kernels hold."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def address(self, x: np.ndarray | Tensor | None) -> int:
        """Of an array that lives as long as this object; 0 of None."""
        if x is None:
            return 0
        self.kept.append(x)
        return int(x.ctypes.data) if isinstance(x, np.ndarray) else x.data_ptr()

    def floats(self, count: int) -> int:
        """Address of as many zeros, aligned."""
        x = np.zeros(count + ALIGNMENT // 4, np.float32)
        return -(-self.address(x) // ALIGNMENT) * ALIGNMENT


class CompiledBackbone:
    """What ``ChunkedBackbone`` does: motor neurons of pairs and the gradients of what they come from."""

    def __init__(self, tokens: Tokens, w: FusedWeights) -> None:
        from nacdrive.nac import numba_kernels as kernels

        assert w.pattern is not None and w.w2 is not None and w.w3 is not None
        self.kernels = kernels
        self.memory = memory = _Memory()
        self.heads, self.queries, inter = tokens.zq.shape
        self.keys = tokens.zk.shape[1]
        self.zq, self.zk = tokens.zq.detach().contiguous(), tokens.zk.detach().contiguous()
        commands = w.w2.shape[2]
        sources, targets = (0, 0) if w.wr is None else w.wr.shape[1:]
        updates = 0 if w.wr is None else w.unfolds - 1
        zeros = memory.floats(max(inter, commands))
        self.sizes = kernels.Sizes(inter, commands, sources, targets, w.first_source, updates, zeros)
        found = _all_lists(w.pattern, kernels.WIDTH)
        self.lists = found
        self.gradients: list[tuple[np.ndarray, np.ndarray]] = []
        self.synapses = [
            self._synapses(weight, bias, of)
            for weight, bias, of in zip((w.w2, w.wr, w.w3), (w.b2, w.br, w.b3), found, strict=True)
        ]
        whole = -(-inter // kernels.LANES) * kernels.LANES
        rows = [whole, commands, sources * max(updates, 1), commands, 2, whole, commands, sources, commands]
        numbers = np.zeros(3 * kernels.WIDTH, np.int64)
        at = memory.address(numbers)
        self.buffers = kernels.Buffers(
            *(memory.floats(max(n, 1) * kernels.WIDTH) for n in rows), *(at + 8 * i * kernels.WIDTH for i in range(3))
        )

    def motor(self, keys: KeySet, first: int, queries: int) -> Tensor:
        """Motor neurons ``[H, 2, q, n]`` of the queries from ``first`` on; 0 for pairs that are not allowed."""
        shape = (self.heads, 2, queries, keys.keys)
        motor = self.zq.new_empty(shape) if keys.allowed is None else self.zq.new_zeros(shape)
        tables = self.kernels.Tables(self.zq.data_ptr(), self.zk.data_ptr(), 0, 0)
        self._run(keys, first, queries, motor, tables, 0)
        return motor

    def backward(
        self, keys: KeySet, first: int, gmotor: Tensor, sums: Tokens, totals: dict[str, Tensor | None]
    ) -> None:
        """As that of ``ChunkedBackbone``."""
        queries = gmotor.shape[2]
        sums.zq[:, first : first + queries].zero_()
        tables = self.kernels.Tables(*(x.data_ptr() for x in (self.zq, self.zk, sums.zq, sums.zk)))
        self._run(keys, first, queries, gmotor.contiguous(), tables, 1)
        if first + queries == self.queries:
            self._finish(totals)

    def _run(self, keys: KeySet, first: int, queries: int, motor: Tensor, tables: Any, back: int) -> None:
        here = _Memory()
        rows = allowed = None
        first_key = 0
        if isinstance(keys, AllKeys):
            first_key = keys.here.start
        else:
            rows = keys.rows.contiguous()
        apart = 0
        if keys.allowed is not None:
            allowed = keys.allowed.contiguous()
            apart = 0 if allowed.shape[0] == 1 else allowed[0].numel()
        pairs = self.kernels.Pairs(
            queries,
            keys.keys,
            self.queries,
            self.keys,
            first,
            first_key,
            here.address(rows),
            here.address(allowed),
            apart,
            motor.data_ptr(),
        )
        self.kernels.run(0, self.heads, self.sizes, *self.synapses, pairs, tables, self.buffers, back)

    def _synapses(self, weight: Tensor | None, bias: Tensor | None, of: Lists | None) -> Any:
        memory, kernels = self.memory, self.kernels
        if weight is None or of is None:
            self.gradients.append((np.zeros(0), np.zeros(0)))
            return kernels.Synapses(*[0] * len(kernels.Synapses._fields))
        heads, _, targets = weight.shape
        values = weight.detach().numpy()
        by_target, by_source = (np.ascontiguousarray(values[:, s, t]) for s, t in (of.ends, of.ends_back))
        start = np.zeros((heads, targets), np.float32) if bias is None else bias.detach().contiguous()
        count = len(of.other)
        gradient, bias_gradient = np.zeros((heads, count), np.float32), np.zeros((heads, targets), np.float32)
        self.gradients.append((gradient, bias_gradient))
        return kernels.Synapses(
            count,
            memory.address(of.first),
            memory.address(of.other),
            memory.address(by_target),
            memory.address(of.first_back),
            memory.address(of.other_back),
            memory.address(by_source),
            memory.address(start),
            memory.floats(count * kernels.LANES),
            memory.floats(targets * kernels.LANES),
            memory.address(gradient),
            memory.address(bias_gradient),
        )

    def _finish(self, totals: dict[str, Tensor | None]) -> None:
        for number, of in enumerate(self.lists):
            weight, bias = (totals[name] for name in (("w2", "b2"), ("wr", "br"), ("w3", "b3"))[number])
            gradient, bias_gradient = self.gradients[number]
            if weight is not None and of is not None:
                weight.numpy()[:, of.ends[0], of.ends[1]] = gradient
            if bias is not None:
                bias.copy_(torch.from_numpy(bias_gradient))
