"""The fast layer equals its naive float64 twin, forward and every gradient."""

from __future__ import annotations

import itertools

import pytest
import torch

from nacdrive.nac import NAC, Euler, Exact, Steady, pairwise
from nacdrive.nac.kernels.chunked import ChunkedBackbone
from tests.helpers.nac_reference import nac_forward

MODES = {"exact": Exact(), "euler": Euler(6), "euler-fixed-step": Euler(5, step=0.1), "steady": Steady()}
SELECTIONS = {"pairwise": (None, "auto"), "top3": (3, "exact"), "sqrt": (3, "sqrt")}
MASKS = {"open": {}, "padded": {"padding": True}, "causal": {"causal": True}, "window": {"causal": True, "window": 4}}
MASKS["causal-padded"] = {"causal": True, "padding": True}


def compare(layer: NAC, *, padding=False, causal=False, window=None, dtype=torch.float64, tolerance=1e-9, steps=11):
    torch.manual_seed(1)
    layer = layer.to(dtype)
    x = torch.randn(2, steps, layer.in_features, dtype=dtype)
    t = torch.rand(2, steps, dtype=dtype).cumsum(1)
    mask = None
    if padding:
        mask = torch.zeros(2, steps, dtype=torch.bool)
        mask[1, 6:] = True
        mask[0, 3] = True
    options = {"t": t, "key_padding_mask": mask, "is_causal": causal, "window": window}
    results = []
    for run in (lambda q: layer(q, need_weights=True, **options), lambda q: nac_forward(layer, q, **options)):
        q = x.clone().requires_grad_()
        layer.zero_grad()
        y, weights = run(q)
        if mask is not None:  # what a padding step would attend to has no meaning
            y, weights = y.masked_fill(mask.unsqueeze(-1), 0.0), weights.masked_fill(mask[:, None, :, None], 0.0)
        # An odd functional of y, so that no gradient cancels.
        (y.double() * torch.linspace(-1, 2, y.numel(), dtype=torch.float64).view_as(y)).sum().backward()
        grads = {n: p.grad.double() for n, p in layer.named_parameters() if p.grad is not None}
        results.append(
            ({"y": y.detach().double(), "weights": weights.detach().double()}, {"x": q.grad.double(), **grads})
        )
    plain = layer(x, **options)
    plain = plain if mask is None else plain.masked_fill(mask.unsqueeze(-1), 0.0)
    torch.testing.assert_close(plain.double(), results[1][0]["y"], rtol=tolerance, atol=tolerance)
    for mine, theirs in zip(results[0], results[1], strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine:
            size = max(1.0, theirs[name].abs().max().item())
            torch.testing.assert_close(
                mine[name], theirs[name], rtol=0, atol=tolerance * size, msg=lambda m, n=name: f"{n}: {m}"
            )


CASES = list(itertools.product(MODES, SELECTIONS, MASKS))


@pytest.mark.parametrize(("mode", "selection", "mask"), CASES, ids=["-".join(c) for c in CASES])
def test_equals_reference(mode: str, selection: str, mask: str) -> None:
    topk, method = SELECTIONS[selection]
    layer = NAC(8, 2, mode=MODES[mode], topk=topk, selection=method, time_scale=0.5)
    compare(layer, **MASKS[mask])


OPTIONS = [
    {"share_backbone": True},
    {"unfolds": 1},
    {"unfolds": 3},
    {"activation": "sigmoid"},
    {"activation": "silu"},
    {"activation": "linear", "unfolds": 3},
    {"phi": "tanh"},
    {"phi": "none"},
    {"quadrature": "constant", "delta_t": 0.5},
    {"gate": "fc", "sparsity": 0.5},
    {"sparsity": 0},
    {"sparsity": 0.9},
    {"polarity": "initial"},
    {"polarity": "fixed"},
    {"logit_scale": True},
    {"learn_time_scale": True},
    {"time_input": "gap"},
    {"time_input": "elapsed"},
    {"time_input": "elapsed", "learn_time_scale": True, "share_backbone": True},
    {"time_features": 3},
    {"score_gradient": "gated"},
    {"score_gradient": "straight-through"},
    {"score_gradient": "gated", "logit_scale": 8.0, "time_input": "elapsed", "input_norm": True, "time_features": 2},
    {"input_norm": True},
    {"logit_scale": 8.0},
    {"time_input": "elapsed", "time_features": 3, "input_norm": True, "logit_scale": 8.0},
    {"in_features": 5, "out_features": 3},
    {"backbone_units": 90},
    {"mode": Euler(adaptive=True, rtol=1e-12, doublings=5)},
]
IDS = ["-".join(f"{k}={v}" for k, v in o.items()) for o in OPTIONS]


@pytest.mark.parametrize("chunk", [1 << 20, 16], ids=["at-once", "chunked"])
@pytest.mark.parametrize("options", OPTIONS, ids=IDS)
def test_every_option_equals_reference(options: dict, chunk: int, monkeypatch) -> None:
    monkeypatch.setattr(pairwise, "PAIRS_AT_ONCE", chunk)
    layer = NAC(8, 2, topk=3, **options)
    compare(layer, causal=True)


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("mask", MASKS)
def test_chunks_equal_reference_in_float32(mask: str, selection: str, monkeypatch) -> None:
    monkeypatch.setattr(pairwise, "PAIRS_AT_ONCE", 24)
    topk, method = SELECTIONS[selection]
    compare(NAC(8, 2, topk=topk, selection=method), dtype=torch.float32, tolerance=3e-5, **MASKS[mask])


def test_chunked_gradients_equal_reference(monkeypatch) -> None:
    """``need_weights`` takes the plain path, so the chunked backward pass is compared here by itself."""
    everything = {"time_input": "elapsed", "time_features": 2, "input_norm": True, "logit_scale": 8.0}
    few = ({}, {"activation": "silu"}, {"activation": "linear"}, {"unfolds": 1}, {"logit_scale": True}, everything)
    scores = [{"score_gradient": kind, **everything} for kind in ("gated", "straight-through")]
    for options in (*few, *scores, {**everything, "topk": None}):
        layer = NAC(8, 2, **{"topk": 3, "learn_time_scale": True, **options}).double()
        x = torch.randn(2, 9, 8, dtype=torch.float64)
        t = torch.rand(2, 9, dtype=torch.float64).cumsum(1)
        found = []
        for chunk in (1 << 20, 16):
            monkeypatch.setattr(pairwise, "PAIRS_AT_ONCE", chunk)
            layer.zero_grad()
            q = x.clone().requires_grad_()
            layer(q, t=t, is_causal=True).pow(2).sum().backward()
            found.append([q.grad, *(p.grad for p in layer.parameters() if p.requires_grad)])
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("size", [1, 30, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_chunked_pairwise_holds_for_large_inputs(dtype: torch.dtype, size: float, monkeypatch) -> None:
    """Its inter neurons are made from exponentials per token, unless these could overflow."""
    layer = NAC(8, 2, topk=None).to(dtype)
    x = size * torch.randn(2, 9, 8, dtype=dtype)
    found = []
    for chunk in (1 << 20, 8):
        monkeypatch.setattr(pairwise, "PAIRS_AT_ONCE", chunk)
        layer.zero_grad()
        q = x.clone().requires_grad_()
        y = layer(q)
        y.sum().backward()
        found.append([y.detach(), q.grad, *(p.grad for p in layer.parameters())])
    digits = 1e-9 if dtype == torch.float64 else 2e-4
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=digits, atol=digits * max(1.0, one.abs().max().item()))


@pytest.mark.parametrize("chunk", [1 << 20, 8], ids=["at-once", "chunked"])
@pytest.mark.parametrize(
    "options", [{"activation": "tanh"}, {"activation": "silu"}, {"score_gradient": "gated"}], ids=str
)
def test_gradcheck(options: dict, chunk: int, monkeypatch) -> None:
    monkeypatch.setattr(pairwise, "PAIRS_AT_ONCE", chunk)
    torch.manual_seed(0)
    layer = NAC(4, 2, topk=2, logit_scale=True, **options).double()
    x = torch.randn(1, 4, 4, dtype=torch.float64, requires_grad=True)
    names = [n for n, _ in layer.named_parameters()]

    def f(x, *parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(f, (x, *layer.parameters()), fast_mode=True)


@pytest.mark.parametrize("kind", ["gated", "straight-through"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("topk", "method"), [(3, "exact"), (3, "sqrt"), (40, "exact")])
def test_a_trained_score_equals_reference(kind: str, mask: str, topk: int, method: str, monkeypatch) -> None:
    monkeypatch.setattr(pairwise, "PAIRS_AT_ONCE", 24)
    compare(NAC(8, 2, topk=topk, selection=method, score_gradient=kind), **MASKS[mask])


def test_straight_through_leaves_the_output_alone_and_trains_what_chooses() -> None:
    layers = []
    for kind in ("none", "straight-through"):
        torch.manual_seed(0)
        layers.append(NAC(8, 2, topk=2, score_gradient=kind).double())
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    outputs = [layer(x) for layer in layers]
    assert torch.equal(*outputs)
    for y in outputs:
        y.square().sum().backward()
    plain, trained = (layer.q_gate.weight.grad for layer in layers)
    assert not torch.allclose(plain, trained)
    assert torch.equal(*(layer.v_gate.weight.grad for layer in layers))


def test_a_trained_score_needs_a_choice() -> None:
    with pytest.raises(ValueError, match="score_gradient='gated'; allowed is none without topk"):
        NAC(8, 2, topk=None, score_gradient="gated")


@pytest.mark.parametrize("kind", ["none", "gated"])
def test_cross_attention_equals_reference(kind: str) -> None:
    layer = NAC(8, 2, topk=4, score_gradient=kind).double()
    q, k, v = (torch.randn(2, n, 8, dtype=torch.float64) for n in (5, 9, 9))
    y, weights = layer(q, k, v, need_weights=True)
    expected, alpha = nac_forward(layer, q, k, v)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(weights, alpha)


def test_long_sequences_in_float32_equal_reference() -> None:
    torch.manual_seed(0)
    layer = NAC(16, 4)
    x = torch.randn(1, 160, 16)
    torch.testing.assert_close(layer(x).double(), nac_forward(layer, x)[0], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("steps", [1, 9, 60, 300])
def test_causal_pairs_are_computed_once_each_and_few_that_nobody_sees(steps: int, monkeypatch) -> None:
    monkeypatch.setattr(pairwise, "PAIRS_AT_ONCE", 512)
    parts: list[tuple[tuple[int, int], tuple[int, int]]] = []
    plain = ChunkedBackbone._parts

    def noted(self, keys, queries):
        found = plain(self, keys, queries)
        begin = sum(b - a for (a, b), (c, _) in parts if c == 0)
        parts.extend(((begin + a, begin + b), key) for (a, b), key in found)
        return found

    monkeypatch.setattr(ChunkedBackbone, "_parts", noted)
    torch.manual_seed(0)
    layer, x = NAC(8, 2, topk=None).double(), torch.randn(1, steps, 8, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(layer(x, is_causal=True), nac_forward(layer, x, is_causal=True)[0])
        if steps * steps * 2 <= 512:
            return  # all at once
        times = torch.zeros(steps, steps, dtype=torch.int64)
        for (a, b), (c, d) in parts:
            times[a:b, c:d] += 1
        assert (times.tril() == torch.ones_like(times).tril()).all() and times.max() == 1
        assert times.sum() < (0.6 if steps > 100 else 0.75) * steps**2
