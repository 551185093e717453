"""The learned parts that a circuit masks: sensory gates (paper, Eqn. 13) and the pair backbone (Eqns. 14-16)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nacdrive.nac.wiring import Wiring

POLARITIES = ("free", "initial", "fixed")
ACTIVATIONS = ("tanh", "sigmoid", "silu", "linear")
ALWAYS_ON = 40.0  # sigmoid gives exactly 1 there, and not yet anything that overflows
WORTH_A_SPARSE_PRODUCT = 6  # a synapse by itself takes as long as six entries of a dense matrix
# Keeps the variance through a squashing layer, so that phi varies by about 0.24 at initialisation.
GAINS = {"tanh": 5 / 3, "sigmoid": 4.0, "silu": 1.7, "linear": 1.0}


class Synapses(nn.Module):
    """A stack of ``copies`` weight matrices ``[sources, targets]`` that share one wiring, in -1, 0 and +1.

    Initial weights are normal with deviation gain / sqrt(synapses into the neuron). ``polarity``: ``free`` ignores the
    sign of a synapse, ``initial`` starts from it, ``fixed`` keeps it.
    """

    mask: Tensor
    sign: Tensor

    def __init__(self, adjacency: Tensor, copies: int, gain: float, polarity: str, bias: bool = True) -> None:
        super().__init__()
        sources, targets = adjacency.shape
        self.polarity = polarity
        self.weight = nn.Parameter(torch.empty(copies, sources, targets))
        self.bias = nn.Parameter(torch.zeros(copies, targets)) if bias else None
        adjacency = adjacency.to(self.weight.device)  # that of a ``with torch.device(...)``, which buffers must follow
        self.register_buffer("mask", adjacency != 0)
        if polarity != "free":
            self.register_buffer("sign", adjacency.to(torch.int8))
        with torch.no_grad():
            self.weight.normal_().mul_(gain / self.mask.sum(0).clamp(min=1).sqrt())
            if polarity != "free":
                self.weight.abs_().mul_(self.sign)

    def forward(self, x: Tensor) -> Tensor:
        """A single copy as a layer: ``[..., sources]`` to ``[..., targets]``."""
        return F.linear(x, self.effective()[0].T, None if self.bias is None else self.bias[0])

    def effective(self) -> Tensor:
        """Weights with absent synapses at zero, ``[copies, sources, targets]``."""
        return self.weight.abs() * (self.sign * self.mask) if self.polarity == "fixed" else self.weight * self.mask


class FirstLayer(NamedTuple):
    """The backbone's first layer per token: zq = q wq + b1 and zk = k wk; a pair only adds the two."""

    wq: Tensor  # [H, D, I]
    wk: Tensor  # [H, D, I]
    b1: Tensor  # [H, I]


@dataclass(eq=False)
class Pattern:
    """Which synapses of a fused backbone exist, ``[sources, targets]`` of each product; the same for all heads."""

    inter: Tensor  # of w2
    command: Tensor | None  # of wr
    motor: Tensor  # of w3
    lists: dict[int, Any] = field(default_factory=dict)  # as the compiled kernels want them, made by these once


@dataclass(frozen=True)
class FusedWeights:
    """The backbone behind its first layer: from zq + zk of a pair to its motor neurons, ``activation`` and products.

    tanh(z) = 2 sigmoid(2z) - 1 is folded into weights and biases, because torch's sigmoid is several times
    faster than its tanh. ``w2 is None``: the first layer is already the recurrent one (a circuit without
    inter neurons). ``w3 is None``: zq + zk are the motor neurons (linear activation). S = U = C unless pruned.
    ``b2 is None`` beside a ``w2``: one of the I neurons is always on and brings the bias along.
    """

    w2: Tensor | None  # [H, I, C]
    b2: Tensor | None  # [H, C]
    wr: Tensor | None  # [H, S, U]
    br: Tensor | None  # [H, U]; acts together with wr
    w3: Tensor | None  # [H, C, 2]
    b3: Tensor | None  # [H, 2]
    activation: str
    unfolds: int
    first_source: int = 0
    edges: tuple[Tensor, Tensor] | None = None  # row and column of each synapse in wr, where these are few
    pattern: Pattern | None = None  # of a pruned backbone

    @property
    def sources(self) -> slice:
        """The S command neurons with recurrent synapses; the first U have their targets."""
        assert self.wr is not None
        return slice(self.first_source, self.first_source + self.wr.shape[1])

    def tensors(self) -> dict[str, Tensor | None]:
        """What is learned, by name, in the order in which it is handed to autograd."""
        return {name: getattr(self, name) for name in FUSED_TENSORS}

    def with_tensors(self, tensors: Iterable[Tensor | None]) -> FusedWeights:
        """The same circuit with other numbers, in the order of ``tensors()``."""
        named: dict[str, Any] = dict(zip(FUSED_TENSORS, tensors, strict=True))
        return replace(self, **named)


FUSED_TENSORS = ("w2", "b2", "wr", "br", "w3", "b3")


class NeuronOrder(NamedTuple):
    """Neurons that a fused backbone keeps, one past the last standing for a zero that fills up; None keeps all."""

    inter: Tensor | None = None
    command: Tensor | None = None
    source: Tensor | None = None  # those of ``command`` with recurrent synapses
    target: Tensor | None = None  # those of ``command`` that these lead to
    first_source: int = 0
    edges: tuple[Tensor, Tensor] | None = None


def _placed(x: Tensor, dim: int, order: Tensor | None) -> Tensor:
    """The neurons of ``order`` along ``dim``."""
    missing = 1 if order is not None else _padded(x.shape[dim]) - x.shape[dim]
    if missing:
        x = F.pad(x, (0, 0) * (x.ndim - 1 - dim) + (0, missing))
    return x if order is None else x.index_select(dim, order)


def _which(chosen: Tensor) -> list[int]:
    return [int(i) for i in chosen.nonzero()]


def _padded(width: int) -> int:
    """Width with neurons added that reach nobody: products of matrices are faster in multiples of eight."""
    return width if width < 32 else -(-width // 8) * 8


class Backbone(nn.Module):
    """NCP circuit over a query-key pair, with ``2 * head_dim`` inputs and two motor neurons, or over a key, with any.

    ``copies`` are trained independently, one a head, or 1 if all heads share it. The other arguments are NAC's.
    """

    def __init__(self, wiring: Wiring, copies: int, activation: str, unfolds: int, polarity: str) -> None:
        super().__init__()
        self.activation, self.unfolds = activation, unfolds
        self._pruned: tuple[object, NeuronOrder] | None = None  # made by ``_order``, never saved
        self._patterns: dict[bool, Pattern] = {}  # of that order, made by ``_pattern``
        inner, outer = torch.from_numpy(wiring.adjacency), torch.from_numpy(wiring.sensory_adjacency)
        motor, command, inter = (torch.from_numpy(wiring.neurons(g)) for g in ("motor", "command", "inter"))
        gain = GAINS[activation]
        if wiring.layered:
            # Inputs have unit variance, so the first layer takes the gain too: its neurons should bend.
            self.sensory = Synapses(outer[:, inter], copies, gain, polarity)
            self.inter: Synapses | None = Synapses(inner[inter][:, command], copies, gain, polarity)
            hidden = command
        else:
            hidden = torch.cat([command, inter])
            self.sensory = Synapses(outer[:, hidden], copies, gain, polarity)
            self.inter = None
        loops = inner[hidden][:, hidden]
        self.command = Synapses(loops, copies, gain, polarity, bias=False) if bool(loops.any()) else None
        self.motor = Synapses(inner[hidden][:, motor], copies, gain, polarity)
        if self.command is not None and unfolds == 1:
            self.command.requires_grad_(False)  # idle: distributed training waits for gradients that never come

    @property
    def first_width(self) -> int:
        """Width I of the pair's first layer, as ``fuse`` arranges it."""
        return 2 if self.activation == "linear" else _padded(self.sensory.weight.shape[-1])

    def mask(self, group: str, neurons: Iterable[int] | None) -> None:
        """Remove every synapse from and to ``neurons`` (positions in ``group``; all by default)."""
        into = {"sensory": None, "inter": self.sensory, "command": self.inter or self.sensory, "motor": self.motor}
        out: dict[str, list[Synapses | None]]
        out = {"sensory": [self.sensory], "inter": [self.inter], "command": [self.command, self.motor], "motor": []}
        if group not in into or (group == "inter" and self.inter is None):
            raise ValueError(f"group={group!r}; allowed are {', '.join(g for g in into if g != 'inter' or self.inter)}")
        sources = [s for s in out[group] if s is not None]
        target = into[group]
        size = target.mask.shape[1] if target is not None else self.sensory.mask.shape[0]
        chosen = list(range(size)) if neurons is None else list(neurons)
        if any(not 0 <= n < size for n in chosen):
            raise ValueError(f"neurons={chosen}; group {group!r} has positions 0 to {size - 1}")
        with torch.no_grad():
            for synapses in sources:
                synapses.mask[chosen] = False
            if target is not None:
                target.mask[:, chosen] = False
            if group == "command" and self.command is not None:
                self.command.mask[:, chosen] = False

    def fuse(self, heads: int, prune: bool = False, prune_inter: bool = True) -> tuple[FirstLayer, FusedWeights]:
        """Effective weights, expanded to ``heads`` and arranged for the pair kernels (differentiable).

        ``prune`` orders the neurons so that those without a say in the result, and recurrent synapses that do not
        exist, are left out of the products, for the kernels on a CPU; with ``prune_inter`` also the inter neurons,
        whose number then depends on the masks. The result is the same.
        """

        def weight(synapses: Synapses) -> Tensor:
            return synapses.effective().expand(heads, -1, -1)

        def bias(synapses: Synapses) -> Tensor:
            assert synapses.bias is not None
            return synapses.bias.expand(heads, -1)

        w1, b1 = weight(self.sensory), bias(self.sensory)
        w2, b2 = (weight(self.inter), bias(self.inter)) if self.inter is not None else (None, None)
        wr = weight(self.command) if self.command is not None and self.unfolds > 1 else None
        w3, b3 = weight(self.motor), bias(self.motor)
        br = None
        if self.activation == "linear":
            return self._fuse_linear(w1, b1, w2, b2, wr, w3, b3)
        if self.activation == "tanh":
            w1, b1 = 2 * w1, 2 * b1
            if w2 is not None and b2 is not None:
                w2, b2 = 4 * w2, 2 * (b2 - w2.sum(1))
            if wr is not None:
                wr, br = 4 * wr, -2 * wr.sum(1)
            w3, b3 = 2 * w3, b3 - w3.sum(1)
        order = self._order() if prune else NeuronOrder()
        pattern = self._pattern(order, prune_inter) if prune else None
        if not prune_inter:
            order = order._replace(inter=None)
        if w2 is not None and b2 is not None:
            w1, b1 = _placed(w1, 2, order.inter), _placed(b1, 1, order.inter)
            w2, b2 = _placed(_placed(w2, 1, order.inter), 2, order.command), _placed(b2, 1, order.command)
            if order.inter is not None and self.activation != "silu":
                # The last inter neuron stands for nobody: let it be always on, its synapses are the biases.
                b1 = torch.cat([b1[:, :-1], torch.full_like(b1[:, -1:], ALWAYS_ON)], 1)
                w2, b2 = torch.cat([w2[:, :-1], b2.unsqueeze(1)], 1), None
        else:
            w1, b1 = _placed(w1, 2, order.command), _placed(b1, 1, order.command)
        if wr is not None and order.target is not None and len(order.target) == 0:
            wr = br = None
        if wr is not None:
            wr = _placed(_placed(wr, 1, order.source), 2, order.target)
            br = None if br is None else _placed(br, 1, order.target)
        w3 = _placed(w3, 1, order.command)
        depth = w1.shape[1] // 2
        activation = "silu" if self.activation == "silu" else "sigmoid"
        unfolds = 1 if wr is None else self.unfolds
        edges = None if wr is None else order.edges
        fused = FusedWeights(w2, b2, wr, br, w3, b3, activation, unfolds, order.first_source, edges, pattern)
        return FirstLayer(w1[:, :depth], w1[:, depth:], b1), fused

    def _order(self) -> NeuronOrder:
        masks = [s.mask for s in (self.motor, self.command, self.inter) if s is not None]
        # A change in place raises a tensor's version; a replacement changes its address.
        stamp = None if any(x.is_inference() for x in masks) else [(x.data_ptr(), x._version) for x in masks]
        if self._pruned is None or stamp is None or self._pruned[0] != stamp:
            # Kept for later calls, and those may want gradients: a live step is in inference mode.
            with torch.inference_mode(False):
                self._pruned = (stamp, self._prune())
            self._patterns.clear()
        return self._pruned[1]

    def _pattern(self, order: NeuronOrder, prune_inter: bool) -> Pattern | None:
        """Present synapses in the order of the fused weights."""
        if self.inter is None or prune_inter in self._patterns:
            return self._patterns.get(prune_inter)
        with torch.inference_mode(False):
            rows = order.inter if prune_inter else None
            inter = _placed(_placed(self.inter.mask.float(), 0, rows), 1, order.command)
            if rows is not None and self.activation != "silu":
                inter = torch.cat([inter[:-1], torch.ones_like(inter[:1])])  # of the neuron that is always on
            command = None
            if self.command is not None and self.unfolds > 1:
                command = _placed(_placed(self.command.mask.float(), 0, order.source), 1, order.target) != 0
            motor = _placed(self.motor.mask.float(), 0, order.command) != 0
            self._patterns[prune_inter] = Pattern(inter != 0, command, motor)
        return self._patterns[prune_inter]

    def _prune(self) -> NeuronOrder:
        """Keep the neurons from which synapses lead to a motor neuron within the unfolds."""
        needed = self.motor.mask.any(1)
        if not bool(needed.any()):
            return NeuronOrder()
        updated, source = torch.zeros_like(needed), torch.zeros_like(needed)
        if self.command is not None:
            loops = self.command.mask
            for _ in range(self.unfolds - 1):
                updated |= needed & loops.any(0)
                source |= loops[:, updated].any(1)
                needed |= source

        # Targets and sources must each be one piece, so neurons that are both lie between the others.
        before, both, after = _which(updated & ~source), _which(updated & source), _which(source & ~updated)
        nobody = len(needed)
        target, sources = before + both, both + after
        command = target + after + _which(needed & ~updated & ~source)
        inter = edges = None
        if self.inter is not None:
            used = _which(self.inter.mask[:, needed].any(1))
            inter = used + [len(self.inter.mask)] * (_padded(len(used) + 1) - len(used))  # at least one for nobody
        if self.command is not None and target:
            present = self.command.mask[sources][:, target].nonzero()
            if len(present) * WORTH_A_SPARSE_PRODUCT <= len(sources) * len(target):
                edges = (present[:, 0].contiguous(), present[:, 1].contiguous())
        kept = [
            None if x is None else torch.tensor(x, dtype=torch.int64, device=needed.device)
            for x in (inter, command or [nobody], sources, target)
        ]
        return NeuronOrder(kept[0], kept[1], kept[2], kept[3], len(before), edges)

    def _fuse_linear(
        self, w1: Tensor, b1: Tensor, w2: Tensor | None, b2: Tensor | None, wr: Tensor | None, w3: Tensor, b3: Tensor
    ) -> tuple[FirstLayer, FusedWeights]:
        """Without a nonlinearity the circuit is one matrix, and its motor neurons split into q and k parts."""
        if w2 is not None and b2 is not None:
            w1, b1 = w1 @ w2, (b1.unsqueeze(1) @ w2).squeeze(1) + b2
        w, b = w1, b1
        for _ in range(self.unfolds - 1 if wr is not None else 0):
            assert wr is not None
            w, b = w1 + w @ wr, b1 + (b.unsqueeze(1) @ wr).squeeze(1)
        w, b = w @ w3, (b.unsqueeze(1) @ w3).squeeze(1) + b3
        depth = w.shape[1] // 2
        return FirstLayer(w[:, :depth], w[:, depth:], b), FusedWeights(None, None, None, None, None, None, "linear", 1)


class TimeGate(nn.Module):
    """t_ij = sigmoid((w_a.u + b_a) tau + (w_b.u + b_b)) for the pair u = [q_i ; k_j] (paper, section 2.2).

    tau is the query's time tau_i, or the pair's lag tau_i - tau_j (``time_input="elapsed"``).
    """

    def __init__(self, depth: int, copies: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(copies, 2 * depth, 2))
        self.bias = nn.Parameter(torch.zeros(copies, 2))
        nn.init.normal_(self.weight, std=1 / math.sqrt(2 * depth))

    def halves(self, q: Tensor, k: Tensor, tau: Tensor, tau_k: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Per-token parts of the gate's argument; ``Tokens`` says how they are put together.

        Of q ``[H, N, D]``, k ``[H, M, D]`` and the queries' time input ``[N]``: tq ``[H, N]`` and tk ``[H, M, 2]``.
        With that of the keys, ``tau_k [M]``, tq ``[H, N, 2]`` and tk ``[H, M, 3]``.
        """
        heads, _, depth = q.shape
        weight = self.weight.to(q.dtype).expand(heads, -1, -1)
        bias = self.bias.to(q.dtype).expand(heads, -1).unsqueeze(1)
        of_q, of_k = torch.baddbmm(bias, q, weight[:, :depth]), k @ weight[:, depth:]
        if tau_k is None:
            return of_q[..., 0] * tau + of_q[..., 1], of_k
        return of_q, torch.cat([of_k, tau_k.view(1, -1, 1).expand(heads, -1, -1)], -1)
