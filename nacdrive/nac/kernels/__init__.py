"""How pairs are computed: one module or folder for each way, tried in the order of ``BACKENDS``.

Each has ``applies(tokens, w, problem)`` and ``attend(tokens, w, scale, problem)``, which gives the attention outputs
``[H, N, D]``. Tensors are handed over one by one, not in the problem: autograd must see what it keeps.
"""

from __future__ import annotations

from torch import Tensor

from nacdrive.nac.backbone import FusedWeights
from nacdrive.nac.kernels import chunked, numba, plain, triton
from nacdrive.nac.pairwise import PairProblem, Tokens

BACKENDS = (triton, plain, numba, chunked)


def pair_attention(tokens: Tokens, w: FusedWeights, scale: Tensor | None, problem: PairProblem) -> Tensor:
    """Attention outputs ``[H, N, D]`` by the first way that applies to these pairs."""
    backend = next(backend for backend in BACKENDS if backend.applies(tokens, w, problem))
    y: Tensor = backend.attend(tokens, w, scale, problem)
    return y
