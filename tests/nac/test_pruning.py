"""Products without absent synapses and idle neurons give what the whole circuit gives."""

from __future__ import annotations

import pytest
import torch

from nacdrive.nac import NAC, pairwise, random_wiring

CIRCUITS = {
    "sparse": {"sparsity": 0.9},
    "half": {"sparsity": 0.5},
    "dense": {"sparsity": 0.0},
    "silu": {"activation": "silu", "sparsity": 0.9},
    "drawn": {"wiring": random_wiring(16, 40, 33, 2, 0.95, recurrent=True)},
}


def outcomes(layer: NAC, x: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Output and gradients of ``forward`` and of the plain path, which takes every neuron."""
    found = []
    for plain in (False, True):
        layer.zero_grad()
        q = x.clone().requires_grad_()
        y = layer(q, need_weights=True)[0] if plain else layer(q)
        y.pow(2).sum().backward()
        found.append([y.detach(), q.grad, *(p.grad for p in layer.parameters())])
    return found[0], found[1]


def check(layer: NAC) -> None:
    x = torch.randn(2, 9, 32, dtype=torch.float64)
    for pruned, whole in zip(*outcomes(layer, x), strict=True):
        torch.testing.assert_close(pruned, whole, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("chunk", [1 << 20, 40], ids=["at-once", "chunked"])
@pytest.mark.parametrize("unfolds", [1, 2, 3, 4])
@pytest.mark.parametrize("options", CIRCUITS.values(), ids=CIRCUITS)
def test_pruned_circuit_equals_the_whole(options: dict, unfolds: int, chunk: int, monkeypatch) -> None:
    monkeypatch.setattr(pairwise, "PAIRS_AT_ONCE", chunk)
    check(NAC(32, 4, topk=3, unfolds=unfolds, **options).double())


@pytest.mark.parametrize("chunk", [1 << 20, 40], ids=["at-once", "chunked"])
def test_pruning_follows_the_masks(chunk: int, monkeypatch) -> None:
    monkeypatch.setattr(pairwise, "PAIRS_AT_ONCE", chunk)
    layer = NAC(32, 4, topk=3, unfolds=3).double()
    whole = {name: x.clone() for name, x in layer.state_dict().items()}
    check(layer)
    layer.mask_group("command", range(20))
    check(layer)
    layer.mask_group("inter")
    check(layer)
    layer.mask_group("command")  # now nothing leads to a motor neuron
    check(layer)
    layer.load_state_dict(whole)
    check(layer)


def test_half_of_the_recurrent_product_is_left_out() -> None:
    _, fused = NAC(64, 4).backbone.fuse(4, prune=True)
    assert fused.wr is not None and fused.w3 is not None
    assert fused.wr.shape[1] * fused.wr.shape[2] < fused.w3.shape[1] ** 2 / 2


def test_few_recurrent_synapses_are_taken_one_by_one_and_many_together() -> None:
    few, many = (NAC(64, 4, sparsity=s).backbone.fuse(4, prune=True)[1] for s in (0.5, 0))
    assert few.edges is not None and few.wr is not None
    left = torch.ones_like(few.wr)
    left[:, few.edges[0], few.edges[1]] = 0
    assert not (few.wr * left).any()
    assert many.edges is None and many.wr is not None
