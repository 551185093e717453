"""What must hold whatever the weights and the inputs are."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nacdrive.nac import NAC, Euler, Exact, Steady
from nacdrive.nac.dynamics import decay_mean
from nacdrive.nac.mask import AttentionMask
from nacdrive.nac.topk import Choice, select, top_k

positive = st.floats(1e-3, 50.0)
bounded = st.floats(0.0, 1.0)
METHODS = {"pairwise": {"topk": None}, "top3": {"topk": 3}, "sqrt": {"topk": 3, "selection": "sqrt"}}


def numbers(*values: float) -> list[torch.Tensor]:
    return [torch.tensor([v], dtype=torch.float64) for v in values]


@given(bounded, positive, st.floats(1e-6, 1.0))
def test_euler_converges_to_exact(phi: float, omega: float, t: float) -> None:
    p, w, s = numbers(phi, omega, t)
    exact = Exact()(p, w, s)
    errors = [(Euler(n)(p, w, s) - exact).abs().item() for n in (64, 4096)]
    assert errors[1] <= max(errors[0] / 16, 1e-9)
    assert errors[1] <= 0.01 * max(phi / omega, 1e-9)


@given(bounded, positive)
def test_exact_tends_to_steady_as_time_passes(phi: float, omega: float) -> None:
    p, w, s = numbers(phi, omega, 60 / omega)
    torch.testing.assert_close(Exact()(p, w, s), Steady()(p, w, s))


@given(bounded, positive, st.floats(0.0, 1.0), st.integers(1, 12))
def test_logits_stay_between_rest_and_equilibrium(phi: float, omega: float, t: float, steps: int) -> None:
    """Theorem 1 from a(0) = 0; for Euler at any omega, because its step never exceeds 1/omega."""
    p, w, s = numbers(phi, omega, t)
    for mode in (Exact(), Euler(steps), Euler(steps, step=0.5), Euler(steps, adaptive=True)):
        a = mode(p, w, s).item()
        assert -1e-12 <= a <= phi / omega * (1 + 1e-12) + 1e-12


@given(bounded, positive, st.floats(1e-3, 1.0))
def test_adaptive_euler_meets_its_tolerance(phi: float, omega: float, t: float) -> None:
    p, w, s = numbers(phi, omega, t)
    a = Euler(2, adaptive=True, rtol=1e-3, doublings=20)(p, w, s)
    assert (a - Exact()(p, w, s)).abs().item() <= 3e-3 * phi / omega + 1e-12


@given(st.floats(0.0, 1e4))
def test_decay_mean_is_smooth_through_zero(x: float) -> None:
    assert torch.autograd.gradcheck(decay_mean, (torch.tensor([x + 1e-5], dtype=torch.float64, requires_grad=True),))


def test_decay_mean_has_its_limits_at_zero() -> None:
    x = torch.zeros(1, requires_grad=True)
    y = decay_mean(x)
    y.backward()
    assert y.item() == 1 and x.grad.item() == -0.5
    with torch.no_grad():
        assert decay_mean(x).item() == 1


@given(st.integers(1, 300), st.integers(1, 9), st.integers(0, 1000))
def test_top_k_is_exact(n: int, k: int, seed: int) -> None:
    k = min(n, k)
    scores = torch.randn(2, 3, n, generator=torch.Generator().manual_seed(seed))
    chosen = scores.gather(-1, top_k(scores, k)).sort(-1, descending=True).values
    assert torch.equal(chosen, scores.topk(k, -1).values)
    assert all(len(set(row.tolist())) == k for row in top_k(scores, k).flatten(0, 1))


@pytest.mark.parametrize("n", [512, 1024])
def test_top_k_is_exact_on_long_rows_with_few_keys(n: int) -> None:
    scores = torch.randn(4, n)
    scores[:, 5:] = -torch.inf
    assert torch.equal(torch.isin(top_k(scores, 8), torch.arange(5)).sum(-1), torch.full((4,), 5))


@pytest.mark.parametrize("extra", [0, 1, 50])
def test_top_k_of_all_keys_equals_pairwise(extra: int) -> None:
    layer = NAC(16, 4, topk=None).double()
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    pairwise = layer(x)
    layer.topk = 9 + extra
    torch.testing.assert_close(layer(x), pairwise)


@pytest.mark.parametrize("options", METHODS.values(), ids=METHODS)
def test_rows_of_a_batch_do_not_see_each_other(options: dict) -> None:
    layer = NAC(16, 4, **options).double()
    x = torch.randn(3, 10, 16, dtype=torch.float64)
    torch.testing.assert_close(layer(x)[1:2], layer(x[1:2]))


@pytest.mark.parametrize("options", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("causal", [False, True])
def test_padding_changes_nothing(options: dict, causal: bool) -> None:
    """With the square-root partition at a fixed block size: its default depends on the padded length."""
    layer = NAC(16, 4, sqrt_block=4, **options).double()
    x = torch.randn(2, 11, 16, dtype=torch.float64)
    longer = torch.cat([x, 100 * torch.randn(2, 6, 16, dtype=torch.float64)], 1)
    mask = torch.arange(17).expand(2, 17) >= 11
    padded = layer(longer, key_padding_mask=mask, is_causal=causal)
    torch.testing.assert_close(padded[:, :11], layer(x, is_causal=causal))


@pytest.mark.parametrize("options", [*METHODS.values(), {"topk": 3, "window": 5}], ids=[*METHODS, "window"])
def test_the_future_changes_nothing(options: dict) -> None:
    options = dict(options)
    window = options.pop("window", None)
    layer = NAC(16, 4, **options).double()
    x = torch.randn(2, 20, 16, dtype=torch.float64)
    y = layer(x, is_causal=True, window=window)
    for moment in (1, 7, 13, 19):
        other = x.clone()
        other[:, moment:] = 30 * torch.randn_like(other[:, moment:])
        torch.testing.assert_close(layer(other, is_causal=True, window=window)[:, :moment], y[:, :moment])


@pytest.mark.parametrize("options", [{"topk": None}, {"topk": 3}], ids=["pairwise", "top3"])
def test_order_of_keys_does_not_matter(options: dict) -> None:
    layer = NAC(16, 4, **options).double()
    q, k = torch.randn(2, 5, 16, dtype=torch.float64), torch.randn(2, 12, 16, dtype=torch.float64)
    order = torch.randperm(12)
    torch.testing.assert_close(layer(q, k), layer(q, k[:, order]))


def test_tail_keys_are_selected_by_the_partition() -> None:
    """17 keys make 3 blocks of 5 and a tail of 2, which the published package never sees."""
    q = torch.ones(1, 1, 17, 4)
    k = torch.zeros(1, 1, 17, 4)
    k[:, :, 16] = 1.0
    mask = AttentionMask(torch.arange(17).expand(1, 17), None, causal=False, window=None)
    assert (select(q, k, mask, Choice(2, "sqrt")) == 16).any(-1).all()


@pytest.mark.parametrize("mode", ["exact", "euler", "steady"])
def test_every_head_depends_on_content_from_the_start(mode: str) -> None:
    """In torch-nac 0.0.2 phi is one number for every pair and d phi / d x is exactly 0."""
    torch.manual_seed(0)
    layer = NAC(64, 4, mode=mode)
    x = torch.randn(2, 32, 64, requires_grad=True)
    phi = layer.neuron_states(x)["phi"]
    assert 0.15 < phi.std().item() < 0.35
    for h in range(4):
        (gradient,) = torch.autograd.grad(phi[:, h].sum(), x, retain_graph=True)
        assert gradient.abs().max() > 1e-3


@pytest.mark.parametrize("mode", [Exact(), Euler(6), Euler(3, step=1.0), Euler(2, adaptive=True), Steady()], ids=str)
@pytest.mark.parametrize("value", [1e4, -1e4, 0.0, 1e-40], ids=str)
@pytest.mark.parametrize("activation", ["tanh", "silu", "linear"])
def test_extreme_inputs_stay_finite(mode, value: float, activation: str) -> None:
    torch.manual_seed(0)
    layer = NAC(16, 4, mode=mode, activation=activation, topk=3)
    for x in (torch.full((1, 6, 16), value), torch.randn(1, 6, 16) * value):
        x.requires_grad_()
        y = layer(x, t=torch.linspace(0, 1e4, 6))
        y.sum().backward()
        assert torch.isfinite(y).all() and torch.isfinite(x.grad).all()
        assert all(torch.isfinite(p.grad).all() for p in layer.parameters() if p.grad is not None)


@pytest.mark.parametrize("options", METHODS.values(), ids=METHODS)
def test_a_row_without_keys_gives_the_output_bias(options: dict) -> None:
    layer = NAC(16, 4, **options)
    torch.nn.init.normal_(layer.out_proj.bias)
    mask = torch.tensor([[False] * 6, [True] * 6])
    x = torch.randn(2, 6, 16, requires_grad=True)
    y = layer(x, key_padding_mask=mask)
    y.sum().backward()
    torch.testing.assert_close(y[1], layer.out_proj.bias.expand(6, -1))
    assert torch.isfinite(x.grad).all()


def test_one_token_makes_the_modes_equal() -> None:
    """At T = 1 the softmax over one key is 1, so phi and omega cannot reach the output."""
    x = torch.randn(3, 1, 16)
    outputs = []
    for mode in ("exact", "euler", "steady"):
        torch.manual_seed(0)
        outputs.append(NAC(16, 4, mode=mode)(x))
    assert torch.equal(outputs[0], outputs[1]) and torch.equal(outputs[0], outputs[2])


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("steps", "topk"), [(5, 4), (13, 8), (26, 8), (40, 8)])
def test_an_early_query_may_find_fewer_keys_than_topk_in_its_blocks(steps: int, topk: int, padded: bool) -> None:
    layer = NAC(8, 2, topk=topk, selection="sqrt").double()
    x = torch.randn(2, steps, 8, dtype=torch.float64)
    padding = torch.zeros(2, steps, dtype=torch.bool)
    padding[1, -2:] = padded
    y = layer(x, is_causal=True, key_padding_mask=padding)
    # The first step has only itself to look at, whatever the partition holds.
    torch.testing.assert_close(y[:, :1], layer(x[:, :1], is_causal=True))
    assert torch.isfinite(y).all()
