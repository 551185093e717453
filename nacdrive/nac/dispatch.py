"""The one place where it is chosen how pairs are computed."""

from __future__ import annotations

import torch
from torch import Tensor

from nacdrive.nac import pairwise, triton_pairs
from nacdrive.nac.backbone import Folded
from nacdrive.nac.chunked import chunked_pairs
from nacdrive.nac.pairwise import Job, Tokens


def pair_attention(tokens: Tokens, w: Folded, scale: Tensor | None, job: Job) -> Tensor:
    """Attention outputs ``[H, N, D]`` by the fastest way there is for these pairs."""
    if triton_pairs.wins(tokens, w, job):
        return triton_pairs.triton_pairs(tokens, w, scale, job)
    if tokens.tq.numel() * job.keys_per_query <= pairwise.PAIRS_AT_ONCE or torch.compiler.is_compiling():
        return pairwise.all_pairs(tokens, w, scale, job).y
    return chunked_pairs(tokens, w, scale, job)
