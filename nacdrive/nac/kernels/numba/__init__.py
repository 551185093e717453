"""The pair backbone compiled by numba: when it applies, the addresses its kernels work on, and heads shared out to
as many threads as torch has.

Importing this needs no numba. The kernels (``compiled``) replace the circuit of a pair, not the attention: dynamics,
softmax and selection stay in torch, so every option has them and the chosen keys are the same; a live step does more.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nacdrive.nac.backbone import FusedWeights
from nacdrive.nac.kernels.key_sets import AllKeys, KeySet
from nacdrive.nac.pairwise import PairProblem, Tokens
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
        from nacdrive.nac.kernels.numba import compiled

        return not compiled.DISABLED
    except Exception:  # an old numba, a processor that LLVM cannot serve: whatever it is, torch computes the same
        return False


def supported(z: Tensor, w: FusedWeights) -> bool:
    """Whether the kernels compute this backbone from numbers like ``z``; the rest is left to torch."""
    return (
        ENABLED
        and not tracing()
        and z.device.type == "cpu"
        and z.dtype == torch.float32
        and w.activation == "sigmoid"
        and w.pattern is not None
        and w.w2 is not None
        and w.w3 is not None
        and available()
    )


class Lists(NamedTuple):
    """Synapses between two layers, by target and by source: where a neuron's begin, and the ``other`` end of each."""

    first: np.ndarray
    other: np.ndarray
    ends: tuple[np.ndarray, np.ndarray]  # source and target
    present: np.ndarray  # False where a list is only filled up

    @staticmethod
    def of(mask: np.ndarray, row: int, multiple: int = 1) -> Lists:
        """By target, of a ``mask [sources, targets]``, in rows of floats; filled up to a ``multiple`` of synapses."""
        reaching = [np.flatnonzero(column) for column in mask.T]
        lengths = np.array([-(-len(some) // multiple) * multiple for some in reaching])
        filled = [np.pad(some, (0, n - len(some))) for some, n in zip(reaching, lengths, strict=True)]
        present = [np.arange(n) < len(some) for some, n in zip(reaching, lengths, strict=True)]
        sources, targets = np.concatenate(filled), np.repeat(np.arange(len(lengths)), lengths)
        first = np.append(0, lengths.cumsum())
        return Lists(first, (sources * row).astype(np.int32), (sources, targets), np.concatenate(present))

    def weights(self, weight: Tensor) -> np.ndarray:
        """Those of ``[H, sources, targets]`` in the order of the lists, ``[H, count]``."""
        return np.ascontiguousarray(weight.detach().numpy()[:, self.ends[0], self.ends[1]] * self.present, np.float32)


Both = tuple[Lists, Lists]  # by target, by source


class Memory:
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


class Layers:
    """The synapses behind the first layer, as kernels want them (``addresses``), and room for their gradients."""

    def __init__(self, kernels: Any, w: FusedWeights, memory: Memory, width: int, multiple: int = 1) -> None:
        assert w.pattern is not None
        kept = w.pattern.lists  # made once for a pattern
        if width not in kept:
            masks = [None if m is None else m.numpy() for m in (w.pattern.inter, w.pattern.command, w.pattern.motor)]
            kept[width] = [
                None if m is None else (Lists.of(m, width, multiple), Lists.of(m.T, width, multiple)) for m in masks
            ]
        self.lists: list[Both | None] = kept[width]
        self.gradients: list[tuple[np.ndarray, np.ndarray] | None] = []
        self.addresses = [
            self._add(kernels, weight, bias, of, memory)
            for weight, bias, of in zip((w.w2, w.wr, w.w3), (w.b2, w.br, w.b3), self.lists, strict=True)
        ]

    def _add(self, kernels: Any, weight: Tensor | None, bias: Tensor | None, of: Both | None, memory: Memory) -> Any:
        if weight is None or of is None:
            self.gradients.append(None)
            return kernels.Synapses(*[0] * len(kernels.Synapses._fields))
        heads, _, targets = weight.shape
        start = np.zeros((heads, targets), np.float32) if bias is None else bias.detach().contiguous()
        count = len(of[0].other)
        gradients = np.zeros((heads, count), np.float32), np.zeros((heads, targets), np.float32)
        self.gradients.append(gradients)
        return kernels.Synapses(
            count,
            *(
                memory.address(x)
                for lists, ends in zip(of, (weight, weight.transpose(1, 2)), strict=True)
                for x in (lists.first, lists.other, lists.weights(ends))
            ),
            memory.address(start),
            memory.floats(count * kernels.LANES),
            memory.floats(targets * kernels.LANES),
            *(memory.address(x) for x in gradients),
        )

    def finish(self, totals: dict[str, Tensor | None]) -> None:
        """Add the gradients to dense tensors."""
        names = (("w2", "b2"), ("wr", "br"), ("w3", "b3"))
        for (name, bias_name), of, gradients in zip(names, self.lists, self.gradients, strict=True):
            weight, bias = totals[name], totals[bias_name]
            if weight is not None and of is not None and gradients is not None:
                weight.numpy()[:, of[0].ends[0], of[0].ends[1]] += gradients[0]
                if bias is not None:
                    bias += torch.from_numpy(gradients[1])


def circuit_of(kernels: Any, w: FusedWeights, layers: Layers, width: int, memory: Memory) -> list[int]:
    """Fields of ``Sizes``, three ``Synapses`` and ``Buffers`` of the kernels for ``width`` pairs."""
    assert w.w2 is not None
    _, inter, commands = w.w2.shape
    sources, targets = (0, 0) if w.wr is None else w.wr.shape[1:]
    updates = 0 if w.wr is None else w.unfolds - 1
    zeros = memory.floats(max(inter, commands))
    sizes = kernels.Sizes(inter, commands, sources, targets, w.first_source, updates, zeros)
    whole = -(-inter // kernels.LANES) * kernels.LANES
    rows = [whole, commands, sources * max(updates, 1), commands, 2, whole, commands, sources, commands]
    at = memory.address(np.zeros(3 * width, np.int64))
    buffers = kernels.Buffers(
        *(memory.floats(max(r, 1) * width) for r in rows), *(at + 8 * i * width for i in range(3))
    )
    return [*sizes, *(field for of in layers.addresses for field in of), *buffers]


class CompiledBackbone:
    """What ``ChunkedBackbone`` does: motor neurons of pairs and the gradients of what they come from."""

    def __init__(self, tokens: Tokens, w: FusedWeights, problem: PairProblem) -> None:
        from nacdrive.nac.kernels.numba import compiled as kernels

        self.kernels = kernels
        self.memory = memory = Memory()
        self.heads, self.queries, _ = tokens.zq.shape
        self.keys = tokens.zk.shape[1]
        self.zq, self.zk = tokens.zq.detach().contiguous(), tokens.zk.detach().contiguous()
        workers = min(torch.get_num_threads(), self.heads)
        self.heads_of = [(self.heads * i // workers, self.heads * (i + 1) // workers) for i in range(workers)]
        self.layers = [Layers(kernels, w, memory, kernels.WIDTH) for _ in self.heads_of]
        self.circuits = [circuit_of(kernels, w, layers, kernels.WIDTH, memory) for layers in self.layers]

    def motor(self, keys: KeySet, first: int, queries: int) -> Tensor:
        shape = (self.heads, 2, queries, keys.keys)
        # 0 for pairs that are not allowed.
        motor = self.zq.new_empty(shape) if keys.allowed is None else self.zq.new_zeros(shape)
        tables = self.kernels.Tables(self.zq.data_ptr(), self.zk.data_ptr(), 0, 0)
        self._run(keys, first, queries, motor, tables, 0)
        return motor

    def backward(
        self, keys: KeySet, first: int, gmotor: Tensor, sums: Tokens, totals: dict[str, Tensor | None]
    ) -> None:
        queries = gmotor.shape[2]
        sums.zq[:, first : first + queries].zero_()
        tables = self.kernels.Tables(*(x.data_ptr() for x in (self.zq, self.zk, sums.zq, sums.zk)))
        self._run(keys, first, queries, gmotor.contiguous(), tables, 1)
        if first + queries == self.queries:
            for layers in self.layers:
                layers.finish(totals)

    def _run(self, keys: KeySet, first: int, queries: int, motor: Tensor, tables: Any, back: int) -> None:
        here = Memory()
        rows, first_key = (None, keys.here.start) if isinstance(keys, AllKeys) else (keys.rows.contiguous(), 0)
        allowed = None if keys.allowed is None else keys.allowed.contiguous()
        apart = 0 if allowed is None or allowed.shape[0] == 1 else allowed[0].numel()
        sizes = queries, keys.keys, self.queries, self.keys, first, first_key
        pairs = self.kernels.Pairs(*sizes, here.address(rows), here.address(allowed), apart, motor.data_ptr())
        given = [np.array([*circuit, *pairs, *tables], np.int64) for circuit in self.circuits]
        work = [(*heads, x.ctypes.data, back) for heads, x in zip(self.heads_of, given, strict=True)]
        # Threads of this call alone: a pool would not survive a fork, and starting one takes some 50 us.
        others = [threading.Thread(target=self.kernels.run, args=args) for args in work[1:]]
        for thread in others:
            thread.start()
        self.kernels.run(*work[0])
        for thread in others:
            thread.join()
