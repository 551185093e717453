"""Continuous-time attention inside a neural ODE (after Chien & Chen, 2021)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from nacdrive.layers.windowed import InputLayer
from nacdrive.nac.validation import check_heads


class CTALayer(InputLayer):
    """dz/ds = tanh(W x_i + U z + R c + b) - z over the gap before step i, with the context c of the state's question.

    c = sum_{j <= i} softmax_j(q(z) . k_j / sqrt(d)) v_j per head: the query comes from the state, keys and values from
    all steps so far. One step of exponential Euler per gap, stable for every gap. The original lets keys, values and
    scores flow by networks of their own as well; here z alone is sequential.
    """

    time_sense = "gaps"

    def build(self) -> None:
        d_model = self.d_model
        check_heads(d_model, self.num_heads)
        self.input = nn.Linear(self.in_features, 3 * d_model)  # drive, key, value
        self.query = nn.Linear(d_model, d_model)
        self.state = nn.Parameter(torch.empty(d_model, d_model))
        self.context = nn.Parameter(torch.empty(d_model, d_model))
        nn.init.orthogonal_(self.state)
        nn.init.xavier_uniform_(self.context)

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        drive, k, v = u.chunk(3, dim=2)
        scale = 1 / math.sqrt(self.d_model // self.num_heads)
        k, v = (s.reshape(*s.shape[:2], self.num_heads, -1).transpose(1, 2).flatten(0, 1) for s in (k, v))
        weights = (scale * self.query.weight, scale * self.query.bias, self.state, self.context)
        keep = torch.exp(-dt.t().unsqueeze(-1))
        y: Tensor = _AttendingState.apply(drive.transpose(0, 1), k, v, keep, *weights)  # type: ignore[no-untyped-call]
        return y.transpose(0, 1)


class _AttendingState(torch.autograd.Function):
    """The recurrence of z, with gradients of weights, keys and values formed once for all steps.

    drive [L, N, d], k and v [N * heads, L, D], keep [L, N, 1] (what is left of z after a gap); query weight and bias,
    state and context weights -> z [L, N, d].
    """

    @staticmethod
    def forward(
        ctx: Any, drive: Tensor, k: Tensor, v: Tensor, keep: Tensor, wq: Tensor, bq: Tensor, wz: Tensor, wc: Tensor
    ) -> Tensor:
        L, N, d = drive.shape
        # Here and on the way back: the layouts in which a product with one row is fast.
        v, turned_k = v.contiguous(), k.transpose(1, 2).contiguous()
        queries, contexts, targets = (torch.empty_like(drive, memory_format=torch.contiguous_format) for _ in range(3))
        z, weights = drive.new_zeros(L + 1, N, d), k.new_zeros(len(k), L, L)
        from_state = torch.cat([wq, wz]).t()
        for i in range(L):
            asked, carried = torch.mm(z[i], from_state).chunk(2, dim=1)
            torch.add(asked, bq, out=queries[i])
            alpha = torch.bmm(queries[i].view(len(k), 1, -1), turned_k[:, :, : i + 1]).squeeze(1).softmax(dim=1)
            weights[:, i, : i + 1] = alpha
            contexts[i] = torch.bmm(alpha.unsqueeze(1), v[:, : i + 1]).view(N, d)
            torch.addmm(drive[i] + carried, contexts[i], wc.t(), out=targets[i]).tanh_()
            torch.lerp(targets[i], z[i], keep[i], out=z[i + 1])
        ctx.save_for_backward(k, v, keep, wq, wz, wc, queries, contexts, targets, z, weights)
        return z[1:].clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        k, v, keep, wq, wz, wc, queries, contexts, targets, z, weights = ctx.saved_tensors
        L, N, d = targets.shape
        k, turned_v = k.contiguous(), v.transpose(1, 2).contiguous()
        grad_drive, grad_contexts, grad_queries = (torch.empty_like(targets) for _ in range(3))
        grad_logits, grad_z, from_drive = torch.zeros_like(weights), torch.zeros_like(z[0]), torch.cat([wz, wc], dim=1)
        slopes, grad_keep = (1 - targets.square()) * (1 - keep), torch.empty_like(keep)
        for i in range(L - 1, -1, -1):
            grad_z = grad_z + grad[i]
            torch.mul(grad_z, slopes[i], out=grad_drive[i])
            grad_keep[i] = (grad_z * (z[i] - targets[i])).sum(dim=1, keepdim=True)
            to_state, to_context = torch.mm(grad_drive[i], from_drive).chunk(2, dim=1)
            grad_contexts[i], alpha = to_context, weights[:, i, : i + 1]
            grad_alpha = torch.bmm(grad_contexts[i].view(len(k), 1, -1), turned_v[:, :, : i + 1]).squeeze(1)
            grad_l = torch.ops.aten._softmax_backward_data(grad_alpha, alpha, 1, alpha.dtype)
            grad_logits[:, i, : i + 1] = grad_l
            grad_queries[i] = torch.bmm(grad_l.unsqueeze(1), k[:, : i + 1]).view(N, d)
            grad_z = torch.addmm(torch.addcmul(to_state, grad_z, keep[i]), grad_queries[i], wq)
        by_heads = [s.view(L, len(k), -1).transpose(0, 1) for s in (queries, grad_contexts)]
        grad_k = torch.bmm(grad_logits.transpose(1, 2), by_heads[0])
        grad_v = torch.bmm(weights.transpose(1, 2), by_heads[1])
        flat_queries, flat_drive, flat_z = (s.flatten(0, 1) for s in (grad_queries, grad_drive, z[:-1]))
        grad_wq, grad_bq = flat_queries.t() @ flat_z, flat_queries.sum(dim=0)
        grad_wz, grad_wc = flat_drive.t() @ flat_z, flat_drive.t() @ contexts.flatten(0, 1)
        return grad_drive, grad_k, grad_v, grad_keep, grad_wq, grad_bq, grad_wz, grad_wc
