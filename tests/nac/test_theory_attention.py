"""Laws of the whole layer: what it can represent, how sharp it can be, what its partition finds; and the peer's."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from theory import approximation, keys, published, recall
from theory.approximation import ROUTES

from nacdrive.nac import NAC

MODES = ("exact", "euler", "steady")
needs_peer = pytest.mark.skipif(not published.installed(), reason="torch-nac is not installed")


# --- Theorem 2


@pytest.mark.parametrize("mode", MODES)
def test_one_token_with_constant_quadrature_is_affine_whatever_the_weights(mode: str) -> None:
    route = ROUTES["one-constant"]
    layer = approximation.make_layer(route, heads=8, mode=mode)
    y = approximation.features(layer, route, torch.linspace(-3, 3, 31, dtype=torch.float64))
    assert y.diff(dim=0).diff(dim=0).abs().max() < 1e-12 * y.abs().max()


@pytest.mark.parametrize("quadrature", ["time", "constant"])
def test_one_token_gives_the_backbone_no_gradient(quadrature: str) -> None:
    layer = NAC(16, 4, quadrature=quadrature)
    layer(torch.randn(3, 1, 16)).square().sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in layer.backbone.parameters())


def test_two_tokens_give_the_backbone_a_gradient() -> None:
    layer = NAC(16, 4)
    layer(torch.randn(3, 2, 16)).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in layer.backbone.parameters())


def test_the_printed_construction_stays_at_the_best_straight_line() -> None:
    for heads in (4, 32):
        rms = approximation.fit_sine(ROUTES["one-constant"], heads)[1]
        assert rms == pytest.approx(approximation.best_affine(), rel=0.02)


@pytest.mark.parametrize("route", ["one-time", "two-constant"])
@pytest.mark.parametrize("mode", MODES)
def test_a_route_that_works_approximates_the_sine_ever_better(route: str, mode: str) -> None:
    few, many = (approximation.fit_sine(ROUTES[route], heads, mode)[1] for heads in (4, 32))
    assert many < 1e-3 < few


def test_time_quadrature_at_one_token_is_a_classical_network_with_one_hidden_layer() -> None:
    heads = 5
    layer = NAC(heads, heads, sparsity=0, in_features=1, out_features=1).double()
    slope, knot, outer = torch.randn(3, heads, dtype=torch.float64)
    with torch.no_grad():
        for gate in (layer.q_gate, layer.k_gate, layer.v_gate):
            gate.weight.zero_()
            gate.bias.zero_()
        layer.q_gate.weight.fill_(1)  # q_h = x
        layer.v_gate.bias.fill_(1)  # v_h = 1
        layer.time_gate.weight.zero_()
        layer.time_gate.weight[:, 0, 1] = slope  # the offset of the time gate, from q
        layer.time_gate.bias.zero_()
        layer.time_gate.bias[:, 1] = knot
        layer.out_proj.weight[0] = outer
        layer.out_proj.bias.zero_()
        x = torch.linspace(-2, 2, 9, dtype=torch.float64)
        y = layer(x.view(-1, 1, 1))
    assert torch.allclose(y[:, 0, 0], torch.sigmoid(x[:, None] * slope + knot) @ outer)


# --- effective number of keys


@pytest.mark.parametrize("mode", ["exact", "euler"])
@given(st.integers(2, 24), st.integers(0, 1000), st.floats(0.01, 100))
@settings(max_examples=20, deadline=None)
def test_no_key_outweighs_another_by_more_than_e_before_equilibrium(mode, length, seed, size) -> None:
    torch.manual_seed(seed)
    layer = NAC(8, 2, mode=mode, topk=None)
    with torch.no_grad():
        weights = layer.neuron_states(size * torch.randn(1, length, 8))["weights"]
    assert (weights.amax(-1) <= math.e * weights.amin(-1) * (1 + 1e-5)).all()
    assert (keys.effective(weights) >= keys.FLOOR * length * (1 - 1e-5)).all()


def test_steady_mode_attends_to_far_fewer_keys_than_exact_mode() -> None:
    exact, steady = (keys.effective(keys.logits(mode, 96, seed=0).softmax(-1)).mean() for mode in ("exact", "steady"))
    assert exact > 0.97 * 96
    assert steady < 0.5 * 96


# --- the square-root partition


@pytest.mark.parametrize("causal", [False, True])
@given(st.integers(20, 90), st.integers(2, 5), st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_the_layer_selects_what_algorithm_2_selects(causal: bool, length: int, blocks: int, seed: int) -> None:
    torch.manual_seed(seed)
    # Left to itself, the layer gives early queries of a causal sequence smaller blocks.
    size = math.isqrt(length - 1) + 1 if causal else None
    layer = NAC(8, 2, topk=4, selection="sqrt", sqrt_blocks=blocks, sqrt_block=size).double()
    with torch.no_grad():
        states = layer.neuron_states(torch.randn(1, length, 8, dtype=torch.float64), is_causal=causal)
    for head in range(2):
        chosen = states["keys"][0, head].masked_fill(states["weights"][0, head] == 0, -1)
        plain = recall.partition(states["q"][0, head], states["k"][0, head], 4, blocks, causal)
        assert torch.equal(chosen.sort(-1).values, plain)


@pytest.mark.parametrize("kind", ["iid", "smooth"])
@pytest.mark.parametrize("causal", [False, True])
def test_recall_grows_with_blocks_and_is_one_when_all_are_searched(kind: str, causal: bool) -> None:
    values = recall.curve(kind, [1, 4, 32], causal, seeds=1)
    assert values[0] < values[1] < values[2]
    assert values[2] == 1


def test_few_blocks_find_the_keys_of_smooth_sequences_but_not_of_noise() -> None:
    (noise,), (drive,) = (recall.curve(kind, [4], False, seeds=1) for kind in ("iid", "smooth"))
    assert noise < 0.35
    assert drive > 0.8


# --- the published package


@needs_peer
@pytest.mark.parametrize("scramble", [False, True], ids=["fresh", "any-weights"])
def test_the_published_gates_are_one_number_that_ignores_the_input(scramble: bool) -> None:
    gates = published.gates_of_published(0, scramble)
    assert gates.phi.amax() - gates.phi.amin() < 1e-5
    assert gates.omega.amax() - gates.omega.amin() < 1e-5
    assert gates.slope == 0


def test_the_gates_here_follow_the_input() -> None:
    gates = published.gates_of_ours(0)
    assert gates.phi.std() > 0.1
    assert gates.omega.std() > 0.1
    assert gates.slope > 0.1


@needs_peer
@pytest.mark.parametrize("mode", ["euler", "steady"])
def test_published_attention_is_uniform_over_the_selected_keys(mode: str) -> None:
    weights = published.published_weights(mode)
    assert torch.allclose(weights, torch.full_like(weights, 1 / 8), atol=1e-5)


@needs_peer
def test_the_published_package_weighs_masked_keys_and_never_sees_the_tail() -> None:
    assert published.padded_weight() > 0.2
    assert published.never_selected(62) > 0
