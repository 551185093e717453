"""ContiFormer (Chen et al., 2023): keys and values that flow by an ODE, and attention that integrates over time."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from nacdrive.layers.windowed import WindowedLayer

INSTANT = 1e-2  # typical gaps; over spans much shorter than this, the integral is the score of the moment
BLOCK = 64  # pairs join in blocks, so that buffers hold many rows


class ContiFormerLayer(WindowedLayer):
    """y_i = sum_{j <= i} softmax_j(a_ij / sqrt(d)) v_j(t_i),  a_ij = mean of q(s) . k_j(s) over s from t_j to t_i.

    From its own step on, each pair (k_j, v_j) follows d(k, v)/ds = P tanh(Q (k, v) + b) + c, by one step of
    Runge-Kutta 4 per gap. The integral is the trapezoidal rule on the steps in between, so that it knows no future;
    the original interpolates q by splines through all steps. Its cost grows like T^2 d^2 / heads: for short
    sequences; ``contiformer-linear`` is the variant for long ones.
    """

    time_sense = "gaps"

    def __init__(self, in_features: int, d_model: int, num_heads: int, window: int, **options: Any) -> None:
        super().__init__(in_features, d_model, num_heads, window, **options)
        if d_model % num_heads:
            raise ValueError(f"d_model {d_model} is not divisible by {num_heads} heads")
        self.qkv = nn.Linear(in_features, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        pair = 2 * d_model // num_heads
        self.inner, self.outer = nn.Linear(pair, pair), nn.Linear(pair, pair)
        with torch.no_grad():
            self.outer.weight *= 0.1  # flows begin slow, so that a long gap does not carry keys far away

    def project(self, x: Tensor) -> Tensor:
        u: Tensor = self.qkv(x)
        return u

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        N, L, _ = u.shape
        q, k, v = u.view(N, L, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, starts = q / math.sqrt(q.shape[-1]), torch.cat([k, v], dim=-1)
        y: Tensor = _Rows.apply(q, starts, dt, *self.weights())  # type: ignore[no-untyped-call]
        merged: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return merged

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
    k4 = change(pairs + gap * k3)
    return pairs + gap / 6 * (k1 + 2 * (k2 + k3) + k4)


def row(state: Tensor, q: Tensor, dt: Tensor, i: int, weights: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Query i [N, heads, D], after the gaps dt [N, i + 1], over the pairs: its output and the state at its time.

    The state [N, heads, pairs, 2 D + 2] holds keys, values, scores of the row before, and integrals. Pairs whose step
    is yet to come stand still.
    """
    pairs, before, integral = state[..., :-2], state[..., -2], state[..., -1]
    P = state.shape[2]
    step = torch.arange(P, device=q.device)
    elapsed = dt.cumsum(dim=1)
    span = nn.functional.pad(elapsed[:, -1:] - elapsed, (0, P - dt.shape[1]))[:, None]
    gap = dt[:, -1, None, None] * (step < i)
    pairs = flow(pairs, gap.unsqueeze(-1), weights)
    scores = (pairs[..., : q.shape[-1]] @ q.unsqueeze(-1)).squeeze(-1)
    integral = integral + gap / 2 * (before + scores)
    logits = (integral + INSTANT * scores) / (span + INSTANT)
    alpha = logits.masked_fill(step > i, -torch.inf).softmax(dim=-1)
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
        q, dt, *saved = ctx.saved_tensors
        weights, states = tuple(w.detach().requires_grad_() for w in saved[:4]), saved[4:]
        grad_q = torch.empty_like(q)
        grad_starts = q.new_zeros((*q.shape[:3], 2 * q.shape[3]))
        grad_weights = [torch.zeros_like(w) for w in weights]
        grad_state = torch.zeros_like(states[-1][0])
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
