"""Linear attention (Katharopoulos et al., 2020): the usual meaning of the name. What the paper cites is ``rela``."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import elu

from nacdrive.layers.kernels import kernel_attention
from nacdrive.layers.mha import MHALayer


class LinearAttentionLayer(MHALayer):
    """y_i = sum_j f(q_i) . f(k_j) v_j / sum_j f(q_i) . f(k_j) per head, f(x) = elu(x) + 1. It feels no time."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, causal: bool) -> Tensor:
        """See ``MHALayer.attend``."""
        return kernel_attention(elu(q) + 1, elu(k) + 1, v, seen, causal)
