"""All pairs at once, one torch operation after another: for few pairs, and for whatever torch records or transforms."""

from __future__ import annotations

from torch import Tensor

from nacdrive.nac import pairwise
from nacdrive.nac.backbone import FusedWeights
from nacdrive.nac.kernels import numba
from nacdrive.nac.pairwise import PairProblem, Tokens
from nacdrive.nac.validation import tracing


def applies(tokens: Tokens, w: FusedWeights, problem: PairProblem) -> bool:
    """Whether the pairs fit a core's cache, or a graph is recorded; compiled kernels pay from half as many pairs on."""
    most = pairwise.PAIRS_AT_ONCE // (2 if numba.applies(tokens, w, problem) else 1)
    return tracing() or tokens.zq[..., 0].numel() * problem.keys_per_query <= most


def attend(tokens: Tokens, w: FusedWeights, scale: Tensor | None, problem: PairProblem) -> Tensor:
    """See ``pairwise.all_pairs``."""
    return pairwise.all_pairs(tokens, w, scale, problem).y
