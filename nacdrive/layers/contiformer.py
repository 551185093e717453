"""ContiFormer (Chen et al., 2023): keys and values that flow by an ODE, and attention that integrates over time; and
the same with linear flows, whose trajectories and integrals have a closed matrix form.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn

from nacdrive.layers.base import split_heads
from nacdrive.layers.windowed import WindowedLayer
from nacdrive.nac.validation import check_heads, require, tracing

INSTANT = 1e-2  # typical gaps; over spans much shorter than this, the integral is the score of the moment
BLOCK = 64  # pairs join in blocks, so that buffers hold many rows
QUERIES = 64  # of the linear kind are scored at once, against no key that comes after them all


class FlowingAttention(WindowedLayer):
    """What both kinds share: queries, keys and values of every step, and how the heads are joined."""

    time_sense = "gaps"

    def build(self) -> None:
        check_heads(self.d_model, self.num_heads)
        self.qkv = nn.Linear(self.in_features, 3 * self.d_model)
        self.out = nn.Linear(self.d_model, self.d_model)

    def project(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.qkv(x))


class ContiFormerLayer(FlowingAttention):
    """y_i = sum_{j <= i} softmax_j(a_ij / sqrt(d)) v_j(t_i),  a_ij = mean of q(s) . k_j(s) over s from t_j to t_i.

    From its own step on, each pair (k_j, v_j) follows d(k, v)/ds = P tanh(Q (k, v) + b) + c, by one step of
    Runge-Kutta 4 per gap. The integral is the trapezoidal rule on the steps in between, so that it knows no future;
    the original interpolates q by splines through all steps. Its cost grows like T^2 d^2 / heads: for short
    sequences; ``contiformer-linear`` is the variant for long ones.
    """

    def build(self) -> None:
        super().build()
        pair = 2 * self.d_model // self.num_heads
        self.inner, self.outer = nn.Linear(pair, pair), nn.Linear(pair, pair)
        with torch.no_grad():
            self.outer.weight *= 0.1  # flows begin slow, so that a long gap does not carry keys far away

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        q, k, v = split_heads(u, self.num_heads)
        q, starts = q / math.sqrt(q.shape[-1]), torch.cat([k, v], dim=-1)
        rows = _Rows.apply(q, starts, dt, *self.weights())  # type: ignore[no-untyped-call]
        return cast(Tensor, self.out(rows.transpose(1, 2).flatten(2)))

    def weights(self) -> tuple[Tensor, ...]:
        """Q, b, P, c of the flow."""
        return self.inner.weight, self.inner.bias, self.outer.weight, self.outer.bias


def flow(pairs: Tensor, gap: Tensor, weights: tuple[Tensor, ...]) -> Tensor:
    """Pairs [..., 2 d_head] after ``gap`` (broadcast), by one step of Runge-Kutta 4."""
    Q, b, P, c = weights

    def change(p: Tensor) -> Tensor:
        tanh = 2 * torch.sigmoid(2 * nn.functional.linear(p, Q, b)) - 1  # by its faster twin
        return nn.functional.linear(tanh, P, c)

    k1 = change(pairs)
    k2 = change(pairs + gap / 2 * k1)
    k3 = change(pairs + gap / 2 * k2)
    return pairs + gap / 6 * (k1 + 2 * (k2 + k3) + change(pairs + gap * k3))


def row(state: Tensor, q: Tensor, dt: Tensor, i: int, weights: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Query i [N, heads, D], after the gaps dt [N, i + 1], over the pairs: its output and the state at its time.

    The state [N, heads, pairs, 2 D + 2] holds keys, values, scores of the row before, and integrals. Pairs whose step
    is yet to come stand still.
    """
    pairs, before, integral = state[..., :-2], state[..., -2], state[..., -1]
    P = state.shape[2]
    step, elapsed = torch.arange(P, device=q.device), dt.cumsum(dim=1)
    span = nn.functional.pad(elapsed[:, -1:] - elapsed, (0, P - dt.shape[1]))[:, None]
    gap = dt[:, -1, None, None] * (step < i)
    pairs = flow(pairs, gap.unsqueeze(-1), weights)
    scores = (pairs[..., : q.shape[-1]] @ q.unsqueeze(-1)).squeeze(-1)
    integral = integral + gap / 2 * (before + scores)
    alpha = ((integral + INSTANT * scores) / (span + INSTANT)).masked_fill(step > i, -torch.inf).softmax(dim=-1)
    y = (alpha.unsqueeze(-2) @ pairs[..., q.shape[-1] :]).squeeze(-2)
    return y, torch.cat([pairs, scores.unsqueeze(-1), integral.unsqueeze(-1)], dim=-1)


class _Rows(torch.autograd.Function):
    """All rows, keeping the states between rows alone, in one buffer per block, and computing each row again.

    q [N, heads, L, D], starts (keys, then values) [N, heads, L, 2 D], dt [N, L] (no gradient), weights of the flow ->
    [N, heads, L, D]. One small allocation per row would scatter the memory until the next row fits nowhere.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, starts: Tensor, dt: Tensor, *weights: Tensor) -> Tensor:
        y, states = torch.empty_like(q), []
        last = starts.new_zeros((*starts.shape[:2], 0, starts.shape[3] + 2))
        for first in range(0, q.shape[2], BLOCK):
            joined = nn.functional.pad(starts[:, :, first : first + BLOCK], (0, 2))
            last = torch.cat([last, joined], dim=2)
            block = last.new_empty((joined.shape[2] + 1, *last.shape))
            block[0] = last
            for n in range(joined.shape[2]):
                i = first + n
                y[:, :, i], block[n + 1] = row(block[n], q[:, :, i], dt[:, : i + 1], i, weights)
            last = block[-1]
            states.append(block)
        ctx.save_for_backward(q, dt, *weights, *states)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("contiformer: gradients of gradients are not computed")
        q, dt, *saved = ctx.saved_tensors
        weights, states = tuple(w.detach().requires_grad_() for w in saved[:4]), saved[4:]
        grad_q = torch.empty_like(q)
        grad_starts = q.new_zeros((*q.shape[:3], 2 * q.shape[3]))
        grad_weights, grad_state = [torch.zeros_like(w) for w in weights], torch.zeros_like(states[-1][0])
        for block, first in reversed(list(zip(states, range(0, q.shape[2], BLOCK), strict=True))):
            for n in reversed(range(len(block) - 1)):
                i = first + n
                state, query = block[n].detach().requires_grad_(), q[:, :, i].detach().requires_grad_()
                with torch.enable_grad():
                    outputs = row(state, query, dt[:, : i + 1], i, weights)
                inputs = (state, query, *weights)
                grad_state, grad_q[:, :, i], *more = torch.autograd.grad(outputs, inputs, (grad[:, :, i], grad_state))
                for total, part in zip(grad_weights, more, strict=True):
                    total += part
            grad_starts[:, :, first : first + BLOCK] = grad_state[:, :, first:, :-2]
            grad_state = grad_state[:, :, :first]
        return grad_q, grad_starts, None, *grad_weights


class ContiFormerLinearLayer(FlowingAttention):
    """``contiformer`` with the flows dk/ds = S k, dv/ds = S' v, S and S' skew-symmetric: pairs of channels rotate.

    Turned back to time 0, q and k have the same product, and the integral of q(s) . k_j(s) from t_j to t_i becomes
    (P_i - P_j) . k_j with the running integral P of q: one matrix product instead of T^2 trajectories.
    """

    def build(self) -> None:
        super().build()
        d_model, num_heads = self.d_model, self.num_heads
        require(d_model >= 2 * num_heads, "d_model", d_model, f"2 * num_heads = {2 * num_heads} or more")
        # Radians per typical gap, from a turn in six steps to one in thousands.
        pairs = d_model // num_heads // 2
        self.key_rate = nn.Parameter(torch.logspace(0, -3, pairs).repeat(num_heads, 1))
        self.value_rate = nn.Parameter(torch.logspace(0, -3, pairs).repeat(num_heads, 1))

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        q, k, v = split_heads(u, self.num_heads)
        s = dt.cumsum(dim=1) - dt[:, :1]
        q, k = (rotate(f, self.key_rate, -s) for f in (q / math.sqrt(q.shape[-1]), k))
        v = rotate(v, self.value_rate, -s)
        asked, keys = integrals(q, k, s)
        rows = []
        for start in range(0, q.shape[2], QUERIES):
            now, past = slice(start, start + QUERIES), slice(0, start + QUERIES)
            exact = (q[:, :, now] * k[:, :, now]).sum(dim=-1)
            rows.append(attention(asked[:, :, now], keys[:, :, past], exact, s[:, now], s[:, past]) @ v[:, :, past])
        y: Tensor = self.out(rotate(torch.cat(rows, dim=2), self.value_rate, s).transpose(1, 2).flatten(2))
        return y


def integrals(q: Tensor, k: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Factors [N, heads, L, D + 1] whose product is the integral of q . k_j from s_j to s_i, plus INSTANT q_i . k_j."""
    trapezoids = (q[:, :, 1:] + q[:, :, :-1]) * (s.diff(dim=1) / 2)[:, None, :, None]
    P = torch.cat([torch.zeros_like(q[:, :, :1]), trapezoids], dim=2).cumsum(dim=2)
    # The product with P_j stands in one more channel.
    asked = torch.cat([P + INSTANT * q, torch.ones_like(q[..., :1])], dim=-1)
    return asked, torch.cat([k, -(P * k).sum(dim=-1, keepdim=True)], dim=-1)


def attention(asked: Tensor, keys: Tensor, exact: Tensor, s: Tensor, s_keys: Tensor) -> Tensor:
    """Weights [N, heads, rows, columns] of the last rows of a sequence; ``exact`` [N, heads, rows] is q_i . k_i."""
    first = s_keys.shape[1] - s.shape[1]
    span = (s.unsqueeze(2) - s_keys.unsqueeze(1)).clamp(min=0.0).unsqueeze(1)
    future = span.new_full(span.shape[-2:], -torch.inf).triu(first + 1)
    logits = torch.addcmul(future, asked @ keys.transpose(-1, -2), 1 / (span + INSTANT))
    # Where a step meets itself, the difference of two integrals would be all rounding.
    if tracing():
        itself = torch.ones_like(future, dtype=torch.bool).triu(first).tril(first)
        logits = torch.where(itself, exact.unsqueeze(-1), logits)
    else:
        logits.diagonal(first, -2, -1).copy_(exact)
    return logits.softmax(dim=-1)


def rotate(x: Tensor, rate: Tensor, s: Tensor) -> Tensor:
    """Turn the channel pairs of x [N, heads, L, D] by rate [heads, D // 2] times s [N, L]; an odd one stays."""
    angle = rate.unsqueeze(1) * s[:, None, :, None]
    cos, sin = angle.cos(), angle.sin()
    pairs = rate.shape[-1]
    a, b, alone = torch.split(x, [pairs, pairs, x.shape[-1] - 2 * pairs], dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos, alone], dim=-1)
