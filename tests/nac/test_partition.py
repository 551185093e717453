"""Searching the partition block by block finds the keys that searching it query by query finds."""

from __future__ import annotations

import pytest
import torch

from nacdrive.nac import topk as selection
from nacdrive.nac.mask import AttentionMask

RULES = {"open": {}, "padded": {"padding": True}, "causal": {"causal": True}}
RULES["causal-padded"] = {"causal": True, "padding": True}


def mask_of(batch: int, steps: int, *, padding: bool = False, causal: bool = False) -> AttentionMask:
    mask = None
    if padding:
        mask = torch.rand(batch, steps) < 0.3
        mask[0] = True  # a sequence without any key
        mask[1, steps // 2 :] = True
    return AttentionMask(torch.arange(steps).expand(batch, steps), mask, causal, None)


def chosen(index: torch.Tensor, r: AttentionMask) -> list[set[int]]:
    allowed = r.allowed(index)
    pairs = zip(index.flatten(0, 2).tolist(), allowed.flatten(0, 2).tolist(), strict=True)
    return [{key for key, seen in zip(*row, strict=True) if seen} for row in pairs]


@pytest.mark.parametrize("at_once", [200, 1 << 19])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("steps", "size", "count", "topk"), [(64, 8, 2, 3), (70, 9, 3, 5), (50, 4, 2, 6), (40, 40, 1, 8)]
)
@pytest.mark.parametrize("kind", RULES)
def test_both_searches_agree(kind, steps, size, count, topk, dtype, at_once, monkeypatch) -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 2, 3, steps, 5, dtype=dtype).unbind(0)
    r = mask_of(3, steps, **RULES[kind])
    monkeypatch.setattr(selection, "SCORES_AT_ONCE", at_once)
    found = []
    for worth in (0, steps * count + 1):
        monkeypatch.setattr(selection, "WORTH_A_LOOP", worth)
        found.append(selection.by_partition(q, k, r, topk, size, count))
    assert found[0].shape == found[1].shape == (2, 3, steps, min(topk, count * size))
    assert chosen(found[0], r) == chosen(found[1], r)


def test_a_long_sequence_takes_the_search_by_block(monkeypatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("searched query by query")

    monkeypatch.setattr(selection, "inside_by_query", refuse)
    q, k = torch.randn(2, 1, 1, 2048, 8).unbind(0)
    assert selection.by_partition(q, k, mask_of(1, 2048), 8, 46, 2).shape == (1, 1, 2048, 8)
