"""The one place where it is chosen how pairs are computed."""

from __future__ import annotations

from torch import Tensor

from nacdrive.nac import pairwise, triton_pairs
from nacdrive.nac.backbone import FusedWeights
from nacdrive.nac.chunked import chunked_pairs
from nacdrive.nac.pairwise import PairProblem, Tokens
from nacdrive.nac.validation import tracing


def pair_attention(tokens: Tokens, w: FusedWeights, scale: Tensor | None, problem: PairProblem) -> Tensor:
    """Attention outputs ``[H, N, D]`` by the fastest way there is for these pairs."""
    if triton_pairs.wins(tokens, w, problem):
        return triton_pairs.triton_pairs(tokens, w, scale, problem)
    if tracing() or tokens.zq[..., 0].numel() * problem.keys_per_query <= pairwise.PAIRS_AT_ONCE:
        return pairwise.all_pairs(tokens, w, scale, problem).y
    return chunked_pairs(tokens, w, scale, problem)
