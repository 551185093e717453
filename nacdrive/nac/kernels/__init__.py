"""How pairs are computed: one module or folder for each way, tried in the order of ``pair_attention``.

Tensors are handed over one by one, not in the problem: autograd must see what it keeps.
"""

from __future__ import annotations

from torch import Tensor

from nacdrive.nac import pairwise
from nacdrive.nac.backbone import FusedWeights
from nacdrive.nac.kernels import numba, triton
from nacdrive.nac.kernels.blocks import attend_in_blocks
from nacdrive.nac.kernels.chunked import ChunkedBackbone
from nacdrive.nac.pairwise import PairProblem, Tokens
from nacdrive.nac.validation import tracing


def pair_attention(tokens: Tokens, w: FusedWeights, scale: Tensor | None, problem: PairProblem) -> Tensor:
    """Attention outputs ``[H, N, D]`` by the first way that is for these pairs."""
    if triton.applies(tokens, w, problem):
        return triton.attend(tokens, w, scale, problem)
    compiled = numba.supported(tokens.zq, w)
    # So many fit a core's cache all at once; compiled kernels pay from half as many on.
    most = pairwise.PAIRS_AT_ONCE // (2 if compiled else 1)
    if tracing() or tokens.zq[..., 0].numel() * problem.keys_per_query <= most:
        return pairwise.all_pairs(tokens, w, scale, problem).y
    return attend_in_blocks(numba.CompiledBackbone if compiled else ChunkedBackbone, tokens, w, scale, problem)
