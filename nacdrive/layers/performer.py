"""Performer (Choromanski et al., 2020): softmax attention estimated by positive orthogonal random features, FAVOR+."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from nacdrive.layers.kernels import kernel_attention
from nacdrive.layers.mha import MHALayer


class PerformerLayer(MHALayer):
    """exp(q . k / sqrt(d)) = E_w[f(q) . f(k)],  f(x) = exp(w x - |x|^2 / 2) with x scaled by d^(-1/4).

    The ``features`` directions w (d log d of them if not given) are a buffer, drawn anew every ``redraw`` forward
    passes of training (0 for never) and left alone in evaluation. It feels no time.
    """

    projection: Tensor
    passes: Tensor

    def __init__(
        self,
        in_features: int,
        d_model: int,
        num_heads: int,
        window: int,
        features: int | None = None,
        redraw: int = 1000,
        **options: Any,
    ) -> None:
        super().__init__(in_features, d_model, num_heads, window, **options)
        width = d_model // num_heads
        self.redraw = redraw
        self.register_buffer("projection", directions(features or max(8, int(width * math.log(width))), width))
        self.register_buffer("passes", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        """See ``SequenceLayer.forward``."""
        if self.training and self.redraw:
            self.passes += 1
            if int(self.passes) % self.redraw == 0:
                self.projection.copy_(directions(*self.projection.shape))
        return super().forward(x, t, padding)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, causal: bool) -> Tensor:
        """See ``MHALayer.attend``."""
        for_q, for_k = self.exponents(q), self.exponents(k)
        # A factor per query drops out of its weights; one per key would not, and one for all keys would see the future.
        for_q = for_q - for_q.detach().amax(dim=-1, keepdim=True)
        return kernel_attention(for_q.exp(), for_k.exp(), v, seen, causal)

    def exponents(self, x: Tensor) -> Tensor:
        """w x - |x|^2 / 2 of x [..., d_head] after scaling: [..., features]."""
        x = x * x.shape[-1] ** -0.25
        y: Tensor = x @ self.projection.t() - x.square().sum(dim=-1, keepdim=True) / 2
        return y


def directions(features: int, width: int) -> Tensor:
    """[features, width]: blocks of orthogonal directions, each as long as a normal vector of that width."""
    q, r = torch.linalg.qr(torch.randn(math.ceil(features / width), width, width))
    # Without its signs the factorisation prefers some directions to their opposites.
    blocks = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    w: Tensor = blocks.flatten(0, 1)[:features] * torch.randn(features, width).norm(dim=1, keepdim=True)
    return w
