"""From chosen pairs to attention: backbone, dynamics, softmax and weighted sum over the keys of each query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from nacdrive.nac.backbone import FusedWeights
from nacdrive.nac.dynamics import Dynamics
from nacdrive.nac.mask import AttentionMask
from nacdrive.nac.validation import one_of, require, tracing

PHIS = ("sigmoid", "tanh", "none")
PAIRS_AT_ONCE = 4096  # their hidden layers fit a core's second-level cache


@dataclass(frozen=True)
class PairOptions:
    """What a pair is computed with: see the arguments of ``NAC`` of the same names."""

    dynamics: Dynamics
    phi: str
    quadrature: str
    delta_t: float
    eps: float
    score_gradient: str = "none"

    def __post_init__(self) -> None:
        require(self.delta_t > 0, "delta_t", self.delta_t, "a positive number of seconds")
        require(self.eps > 0, "eps", self.eps, "a positive rate in 1/s")
        one_of("quadrature", self.quadrature, ("time", "constant"))
        one_of("phi", self.phi, PHIS)
        one_of("score_gradient", self.score_gradient, ("none", "straight-through", "gated"))


class Tokens(NamedTuple):
    """Per-token halves of everything that a pair needs; heads first, batch and time flattened.

    Argument of the time gate: tau_i slope_j + offset_j + tq_i; with lags (``elapsed``), where tq holds slope and
    offset: (tau_i - tau_j) (slope_i + slope_j) + offset_i + offset_j.
    """

    zq: Tensor  # [H, N, I] first backbone layer, query half with bias
    zk: Tensor  # [H, M, I] key half
    tq: Tensor  # [H, N]    time gate, query half (time input included); with lags [H, N, 2]: slope and offset
    tk: Tensor  # [H, M, 2] time gate, key half: slope and offset; with lags [H, M, 3]: and tau_j
    v: Tensor  # [H, M, D]
    tau: Tensor  # [N] time input of the queries
    score: Tensor | None = None  # [H, N, n] by which the pairs were chosen, where these are trained

    @property
    def elapsed(self) -> bool:
        """Whether the time gate gets the pair's lag."""
        return self.tq.ndim == 3


def gate_argument(tk: Tensor, tq: Tensor, tau: Tensor, fused: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Argument of the time gate, and what its time input is and is multiplied by, each ``[H, q, n]`` or broadcastable.

    Of the pairs' keys ``[H, q or 1, n, 2]``, the queries ``[H, q]`` and their tau ``[q]``; with lags ``[..., 3]`` and
    ``[H, q, 2]``. ``fused`` multiplies and adds at once: faster, and rounded once less.
    """
    if tq.ndim == 2:
        slope, offset = tk.unbind(-1)
        of_pair = tau.unsqueeze(-1)
        gate = torch.addcmul(offset, of_pair, slope) if fused else of_pair * slope + offset
        return gate + tq.unsqueeze(-1), of_pair, slope
    slope, offset, tau_k = tk.unbind(-1)
    lag = tau.unsqueeze(-1) - tau_k
    slope = slope + tq[..., :1]
    return torch.addcmul(offset + tq[..., 1:], lag, slope), lag, slope


def pair_logits(z: Tensor, w: FusedWeights) -> tuple[Tensor, Tensor, Tensor]:
    """Motor neurons ``[H, 2, P]``, inter ``[H, P, I]`` and command layer ``[H, P, C]`` of ``P`` pairs per head.

    ``z [H, P, I]``, the sum of the two halves of the first layer, is overwritten where no gradient is recorded.
    """
    if w.w3 is None or w.b3 is None:
        return z.transpose(1, 2), z, z
    unrecorded = not torch.is_grad_enabled() and not tracing()
    act = F.silu if w.activation == "silu" else torch.sigmoid_ if unrecorded else torch.sigmoid
    if w.w2 is not None:
        inter = act(z)
        s = torch.bmm(inter, w.w2) if w.b2 is None else torch.baddbmm(w.b2.unsqueeze(1), inter, w.w2)
    else:
        inter = s = z
    if w.wr is None:
        command = act(s)
        return read_motor(command, w.w3, w.b3), inter, command
    command = torch.sigmoid(s) if w.activation == "sigmoid" else F.silu(s)  # a new tensor: s is still needed
    sources, updated = w.sources, w.wr.shape[2]
    whole = updated == s.shape[-1]
    s = s if whole else s[..., :updated]
    if w.br is not None:
        s = s.add_(w.br.unsqueeze(1)) if unrecorded else s + w.br.unsqueeze(1)
    for _ in range(w.unfolds - 1):
        new = act(torch.baddbmm(s, command[..., sources], w.wr))
        command = new if whole else torch.cat([new, command[..., updated:]], -1)
    return read_motor(command, w.w3, w.b3), inter, command


def read_motor(command: Tensor, w3: Tensor, b3: Tensor) -> Tensor:
    """Motor neurons ``[H, 2, P]``."""
    # Transposed, a product with two columns is several times faster, and phi and omega each lie in one piece.
    return torch.baddbmm(b3.unsqueeze(2), w3.transpose(1, 2), command.transpose(1, 2))


class Attention(NamedTuple):
    """Everything about a set of pairs, each ``[H, N, n]``."""

    phi: Tensor
    omega: Tensor
    t_ij: Tensor
    logits: Tensor
    weights: Tensor  # softmax over the last axis; 0 for pairs that are not allowed
    mix: Tensor  # weights times quadrature: the factors of the values


def attend(
    motor: Tensor,
    gate: Tensor,
    allowed: Tensor | None,
    scale: Tensor | None,
    keep: Tensor | None,
    o: PairOptions,
    score: Tensor | None = None,
) -> Attention:
    """Dynamics, softmax and quadrature (paper, Eqns. 15-19) of ``motor [H, 2, N, n]``.

    ``[H, N, n]`` are the argument of the time gate, which pairs are ``allowed`` (None: all), the dropout factors
    ``keep`` and the ``score`` by which they were chosen, where it is trained; the logits' ``scale`` is broadcast to it.
    """
    content, rate = motor.unbind(1)
    phi = torch.sigmoid(content) if o.phi == "sigmoid" else torch.tanh(content) if o.phi == "tanh" else content
    omega, t_ij = F.softplus(rate) + o.eps, torch.sigmoid(gate)
    logits = o.dynamics(phi, omega, t_ij)
    if scale is not None:
        logits = logits * scale
    if score is not None and o.score_gradient == "gated":
        logits = logits + score
    weights = _masked_softmax(logits, allowed)
    if score is not None and o.score_gradient == "straight-through":
        soft = _masked_softmax(score, allowed)
        weights = weights + (soft - soft.detach())
    mix = weights * t_ij if o.quadrature == "time" else weights * o.delta_t
    if keep is not None:
        mix = mix * keep
    return Attention(phi, omega, t_ij, logits, weights, mix)


def _masked_softmax(logits: Tensor, allowed: Tensor | None) -> Tensor:
    if allowed is None:
        return _softmax(logits)
    # A row without any key must give zeros, not NaN, also in its gradient: hence no -inf here.
    return _softmax(logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)).masked_fill(~allowed, 0.0)


def _softmax(x: Tensor) -> Tensor:
    # torch's softmax takes short rows one by one, which is slower than the five passes below unless they are few.
    if tracing() or x.device.type != "cpu" or x.shape[-1] > 32 or x.numel() <= 1024:
        return x.softmax(-1)
    e = (x - x.detach().amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


@dataclass(frozen=True)
class PairProblem:
    """Which pairs are to be computed, and how.

    ``index`` is ``[H or 1, N, n]``, the chosen key of each pair within its sequence; None takes all keys.
    """

    index: Tensor | None
    mask: AttentionMask
    keys: int
    options: PairOptions
    dropout: float  # 0 outside training
    low: bool = False  # bfloat16 products where a kernel has them; logits and softmax are always float32

    @property
    def keys_per_query(self) -> int:
        """Pairs of a query per head."""
        return self.keys if self.index is None else self.index.shape[-1]

    def rows(self, heads: int, first: int, last: int) -> tuple[Tensor, Tensor | None]:
        """For queries ``first`` to ``last``: rows ``[H, q, n]`` of tables ``[H * M, ...]``, and which are allowed."""
        position = self.mask.position
        if self.index is None:
            index = torch.arange(self.keys, device=position.device).expand(1, last - first, -1)
        else:
            index = self.index[:, first:last]
        # While a graph is recorded, an open mask may still come with slots without a key.
        unmasked = self.mask.open and (self.index is None or not tracing())
        queries = torch.arange(first, last, device=position.device)
        allowed = None if unmasked else self.mask.allowed_of(queries, index)
        # -1 marks a slot without a key (before the window, or the padding of the partition's last block): it is not
        # allowed above, and reads row 0 here only so that it reads something.
        index = index.clamp(min=0)
        sequence = queries.unsqueeze(-1) // position.shape[1]
        head = torch.arange(heads, device=index.device).view(-1, 1, 1) * (position.shape[0] * self.keys)
        return index + (sequence * self.keys + head), allowed


def gather_rows(table: Tensor, rows: Tensor) -> Tensor:
    """``[H, q, n, E]`` of a table ``[H, M, E]`` for ``rows`` of ``PairProblem.rows``."""
    width = table.shape[-1]
    # index_select is several times faster than indexing with brackets on a CPU.
    return table.reshape(-1, width).index_select(0, rows.reshape(-1)).view(*rows.shape, width)


def pair_scores(q: Tensor, k: Tensor, problem: PairProblem) -> Tensor:
    """q_i . k_j / sqrt(D) of the chosen pairs, ``[H, N, n]``; q is ``[H, N, D]``, k ``[H, M, D]``. Differentiable."""
    heads, queries, depth = q.shape
    q = q / depth**0.5
    if problem.index is None:
        batch = problem.mask.position.shape[0]
        scores = q.view(heads, batch, -1, depth) @ k.view(heads, batch, -1, depth).transpose(-1, -2)
        return scores.view(heads, queries, -1)
    rows, _ = problem.rows(heads, 0, queries)
    return (gather_rows(k, rows) @ q.unsqueeze(-1)).squeeze(-1)


class Pairs(NamedTuple):
    """All that ``all_pairs`` computed on its way."""

    y: Tensor  # [H, N, D]
    attention: Attention
    index: Tensor  # type: ignore[assignment]  # [H, N, n]
    allowed: Tensor | None
    inter: Tensor  # [H, N, n, I]
    command: Tensor  # [H, N, n, C]


def all_pairs(tokens: Tokens, w: FusedWeights, scale: Tensor | None, problem: PairProblem) -> Pairs:
    """All pairs at once, in plain torch: what autograd, ``torch.compile`` and ONNX export can follow."""
    heads, queries, _ = tokens.zq.shape
    rows, allowed = problem.rows(heads, 0, queries)
    n = rows.shape[-1]
    motor, inter, command = pair_logits((gather_rows(tokens.zk, rows) + tokens.zq.unsqueeze(2)).flatten(1, 2), w)
    gate, _, _ = gate_argument(gather_rows(tokens.tk, rows), tokens.tq, tokens.tau)
    keep = F.dropout(torch.ones_like(gate), problem.dropout) if problem.dropout else None
    attention = attend(motor.reshape(heads, 2, queries, n), gate, allowed, scale, keep, problem.options, tokens.score)
    y = (attention.mix.unsqueeze(2) @ gather_rows(tokens.v, rows)).squeeze(2)
    width = (heads, queries, n, -1)
    return Pairs(y, attention, rows % problem.keys, allowed, inter.view(width), command.view(width))
