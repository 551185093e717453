"""Attention: one head, several heads, rectified linear, kernelised and FAVOR+, of times alone, of a block as an ODE."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import elu

from nacdrive.layers.base import SequenceLayer, split_heads, visible
from nacdrive.layers.windowed import InputLayer, WindowedLayer, unfolds_of
from nacdrive.nac.streaming import check_state
from nacdrive.nac.validation import (
    check_dropout,
    check_heads,
    check_step,
    check_times,
    check_tokens,
    require,
    tracing,
    whole,
)

TINY = 1e-6  # keeps quotients finite
CHUNK = 128  # queries that see each other by a matrix; what came before is one sum


def kernel_attention(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, causal: bool) -> Tensor:
    """sum_j (q_i . k_j) v_j / sum_j (q_i . k_j) over the keys that query i may see: [B, H, Tq, D].

    Features q [B, H, Tq, M] and k [B, H, Tk, M] are not negative; v is [B, H, Tk, D]. ``seen`` and ``causal`` are those
    of ``MHALayer.attend``.
    """
    # A value of 1 beside the others sums the weights.
    v = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)
    if causal:
        y = _causal(q, k, v)
    elif seen is None:
        y = q @ (k.transpose(-1, -2) @ v)
    else:
        y = (q @ k.transpose(-1, -2)).masked_fill(~seen, 0.0) @ v
    return y[..., :-1] / (y[..., -1:] + TINY)


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    past = q.new_zeros((*q.shape[:2], k.shape[-1], v.shape[-1]))
    parts = []
    for q_c, k_c, v_c in zip(*(torch.split(s, CHUNK, dim=2) for s in (q, k, v)), strict=True):
        parts.append((q_c @ k_c.transpose(-1, -2)).tril() @ v_c + q_c @ past)
        past = past + k_c.transpose(-1, -2) @ v_c
    return torch.cat(parts, dim=2)


class Cache(NamedTuple):
    """Keys and values [B, heads, steps, d_head] of the last steps of the window."""

    window: int
    keys: Tensor | None = None
    values: Tensor | None = None


class MHALayer(SequenceLayer):
    """softmax(Q K' / sqrt(d)) V per head, over the last ``window`` steps; keys and values are kept while streaming."""

    past_sense = "bag"

    def build(self, *, dropout: float = 0.0) -> None:
        check_heads(self.d_model, self.num_heads)
        check_dropout(dropout)
        none = isinstance(self, (LinearAttentionLayer, ReLALayer, PerformerLayer))  # in an ``attend`` of their own
        require(not (none and dropout), "dropout", dropout, f"0: {type(self).__name__} leaves no weight out")
        self.qkv = nn.Linear(self.in_features, 3 * self.d_model)
        self.out = nn.Linear(self.d_model, self.d_model)
        self.dropout = dropout
        nn.init.xavier_uniform_(self.qkv.weight)
        nn.init.zeros_(self.qkv.bias)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, causal: bool) -> Tensor:
        """Weighted values [B, heads, Tq, d_head] of queries of that shape; keys and values are [B, heads, Tk, d_head].

        ``seen`` [B or 1, 1, Tq, Tk] is what each query may see, never nothing; None for all, or its past if ``causal``.
        """
        dropout = self.dropout if self.training else 0.0
        return nn.functional.scaled_dot_product_attention(q, k, v, seen, dropout, is_causal=causal)

    def forward(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        check_tokens("x", x, self.in_features, self.out.weight, padding)
        if t is not None:
            check_times("t", t, *x.shape[:2])
        if padding is not None:
            x = x.masked_fill(padding.unsqueeze(-1), 0.0)  # not even NaN in padding may matter
        seen = visible(x.shape[1], self.window, padding, x.device)
        return self.merge(self.attend(*self._heads(x), seen, causal=seen is None))

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return split_heads(self.qkv(x), self.num_heads)

    def merge(self, y: Tensor) -> Tensor:
        """[B, heads, T, d_head] -> [B, T, d_model]."""
        return cast(Tensor, self.out(y.transpose(1, 2).flatten(2)))

    def init_state(self, batch_size: int, window: int | None = None) -> Cache:
        return Cache(self.window_of(window))

    def step(self, x: Tensor, t: Tensor | None, state: Cache) -> tuple[Tensor, Cache]:
        check_step(x, t, len(x), self.in_features, self.out.weight)
        q, k, v = self._heads(x.unsqueeze(1))
        check_state(state, Cache, "keys", (len(x), k.shape[1], -1, k.shape[3]), k.dtype, x)
        window, keys, values = state
        if keys is not None and values is not None:
            k, v = torch.cat([keys, k], dim=2)[:, :, -window:], torch.cat([values, v], dim=2)[:, :, -window:]
        return self.merge(self.attend(q, k, v, None, causal=False))[:, 0], Cache(window, k, v)


class AttentionLayer(MHALayer):
    """softmax(Q K' / sqrt(d_model)) V; ``num_heads`` is ignored."""

    def __init__(self, in_features: int, d_model: int, num_heads: int, window: int, **options: Any) -> None:
        super().__init__(in_features, d_model, 1, window, **options)


class LinearAttentionLayer(MHALayer):
    """y_i = sum_j f(q_i) . f(k_j) v_j / sum_j f(q_i) . f(k_j) per head, f(x) = elu(x) + 1. It feels no time."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, causal: bool) -> Tensor:
        return kernel_attention(elu(q) + 1, elu(k) + 1, v, seen, causal)


class ReLALayer(MHALayer):
    """y = sigmoid(w z) g z / rms(z),  z_i = sum_j relu(q_i . k_j / sqrt(d)) v_j, over all heads together.

    The scores are not normalised; the gated RMS norm (gain g, gate weight w per channel) keeps the outputs in scale.
    It feels no time.
    """

    def build(self, **options: Any) -> None:
        super().build(**options)
        self.gain, self.gate = nn.Parameter(torch.ones(self.d_model)), nn.Parameter(torch.ones(self.d_model))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, causal: bool) -> Tensor:
        scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).relu()
        if causal:
            scores = scores.tril()
        elif seen is not None:
            scores = scores.masked_fill(~seen, 0.0)
        return scores @ v

    def merge(self, y: Tensor) -> Tensor:
        """See ``MHALayer.merge``; the norm stands before the last projection."""
        z = y.transpose(1, 2).flatten(2)
        normed = nn.functional.rms_norm(z, z.shape[-1:], self.gain, TINY)
        return cast(Tensor, self.out((self.gate * z).sigmoid() * normed))


class PerformerLayer(MHALayer):
    """exp(q . k / sqrt(d)) = E_w[f(q) . f(k)],  f(x) = exp(w x - |x|^2 / 2) with x scaled by d^(-1/4).

    The ``features`` directions w (d log d of them if not given) are a buffer, drawn anew every ``redraw`` forward
    passes of training (0 for never) and left alone in evaluation. It feels no time.
    """

    projection: Tensor
    passes: Tensor

    def build(self, *, features: int | None = None, redraw: int = 1000, **options: Any) -> None:
        super().build(**options)
        whole(features is None or features >= 1, "features", features, "1 direction or more, or None")
        whole(redraw >= 0, "redraw", redraw, "0 or more passes")
        width = self.d_model // self.num_heads
        self.redraw = redraw
        self.register_buffer("projection", directions(features or max(8, int(width * math.log(width))), width))
        self.register_buffer("passes", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        if self.training and self.redraw:
            self.passes += 1
            if int(self.passes) % self.redraw == 0:
                # Not in place: the backward pass of an earlier forward may still need the old ones.
                self.projection = directions(*self.projection.shape).to(self.projection)
        return super().forward(x, t, padding)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, causal: bool) -> Tensor:
        for_q, for_k = self.exponents(q), self.exponents(k)
        # A factor per query drops out of its weights; one per key would not, and one for all keys would see the future.
        for_q = for_q - for_q.detach().amax(dim=-1, keepdim=True)
        return kernel_attention(for_q.exp(), for_k.exp(), v, seen, causal)

    def exponents(self, x: Tensor) -> Tensor:
        """w x - |x|^2 / 2 of x [..., d_head] after scaling: [..., features]."""
        x = x * x.shape[-1] ** -0.25
        return x @ self.projection.t() - x.square().sum(dim=-1, keepdim=True) / 2


def directions(features: int, width: int) -> Tensor:
    """[features, width]: blocks of orthogonal directions, each as long as a normal vector of that width."""
    q, r = torch.linalg.qr(torch.randn(math.ceil(features / width), width, width))
    # Without its signs the factorisation prefers some directions to their opposites.
    blocks = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    return cast(Tensor, blocks.flatten(0, 1)[:features] * torch.randn(features, width).norm(dim=1, keepdim=True))


class MTANLayer(WindowedLayer):
    """Multi-time attention (Shukla & Marlin, 2021, equations 1 to 4): attention between embeddings of times alone.

    y_i = sum_h W_h sum_{j <= i} softmax_j(q_h(phi(t_i)) . k_h(phi(t_j)) / sqrt(d)) x_j + b.

    phi(t) holds one linear feature of time and d_model - 1 sines with learnable frequency and phase. The original
    asks at fixed reference times, the future included, and masks missing channels; here every step asks at its own
    time over its past, and a step is observed as a whole.
    """

    time_sense = "clock"

    def build(self) -> None:
        d_model = self.d_model
        check_heads(d_model, self.num_heads)
        self.frequency = nn.Parameter(torch.empty(d_model).uniform_(-1.0, 1.0))
        self.phase = nn.Parameter(torch.empty(d_model).uniform_(-math.pi, math.pi))
        with torch.no_grad():
            self.frequency[0] *= 0.01  # the linear feature has no bound
        self.query, self.key = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.out = nn.Linear(self.num_heads * self.in_features, d_model)

    def embed(self, t: Tensor) -> Tensor:
        """[...] typical gaps -> [..., d_model]."""
        angle = t.unsqueeze(-1) * self.frequency + self.phase
        return torch.cat([angle[..., :1], angle[..., 1:].sin()], dim=-1)

    def weights(self, t: Tensor) -> Tensor:
        """Attention [N, heads, L, L] of times t [N, L]; [1, heads, L, L] if all rows of t are the same."""
        if len(t) == 1 or (not tracing() and bool((t == t[:1]).all())):
            t = t[:1]
        L, phi = t.shape[1], self.embed(t)
        q, k = (f(phi).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for f in (self.query, self.key))
        future = t.new_full((L, L), -torch.inf).triu(1)
        return (torch.matmul(q / math.sqrt(q.shape[-1]), k.transpose(-1, -2)) + future).softmax(dim=-1)

    def project(self, x: Tensor) -> Tensor:
        """See ``WindowedLayer.project``: W_h x for all heads at once where that is narrower than x for every head."""
        if self.in_features <= self.d_model:
            return x
        weight = self.out.weight.view(self.d_model, self.num_heads, -1).transpose(0, 1).flatten(0, 1)
        return nn.functional.linear(x, weight)

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        weights = self.weights(t)
        if self.in_features <= self.d_model:
            return cast(Tensor, self.out((weights @ u.unsqueeze(1)).transpose(1, 2).flatten(2)))
        per_head = u.view(*u.shape[:-1], self.num_heads, self.d_model).transpose(1, 2)
        return (weights @ per_head).sum(dim=1) + self.out.bias


class ODEFormerLayer(InputLayer):
    """A weight-tied transformer block stepped as an ODE: what the authors' code runs under the name ODEFormer.

    The citation (d'Ascoli et al., 2023) is another thing, a transformer that writes the formula of an observed ODE.

    dh/ds = A(h) + M(h + A(h)) over the depth s in [0, 1], in ``unfolds`` Euler steps.
    It begins at h(0) = W x_i + E log(1 + dt_i) + b. A is causal multi-head attention and M a two-layer perceptron, each
    behind a layer norm, as in a pre-norm transformer block. Depth is no time; the gap enters by its embedding E.
    """

    time_sense = "gaps"

    def build(self, *, unfolds: int = 4) -> None:
        d_model = self.d_model
        self.unfolds = unfolds_of(unfolds)
        self.input, self.gap = nn.Linear(self.in_features, d_model), nn.Linear(1, d_model, bias=False)
        # Its own window is never what limits: the steps that come this far are those of a window already.
        self.attention = MHALayer(d_model, d_model, self.num_heads, torch.iinfo(torch.int64).max)
        self.norms = nn.ModuleList([nn.LayerNorm(d_model), nn.LayerNorm(d_model)])
        self.perceptron = nn.Sequential(nn.Linear(d_model, 2 * d_model), nn.GELU(), nn.Linear(2 * d_model, d_model))

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        h: Tensor = u + self.gap(torch.log1p(dt).unsqueeze(-1))
        for _ in range(self.unfolds):
            change = self.attention(self.norms[0](h))
            h = h + (change + self.perceptron(self.norms[1](h + change))) / self.unfolds
        return h
