"""NAC with its circuit on the key alone: its reference, gradients, streaming, neurons and bad input."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path

import pytest
import torch
from torch.nn.utils import prune, weight_norm

from nacdrive import layers
from nacdrive.layers import contract
from nacdrive.layers.nac import NACKeyLayer
from nacdrive.nac import Euler, NACKey, Steady
from nacdrive.nac.kernels import key as kernel
from tests.helpers.key_reference import key_forward

FORMS = {
    "exact": {},
    "euler": {"mode": Euler(3)},
    "steady": {"mode": Steady()},
    "lags": {"time_features": 0},
    "top3": {"topk": 3},
    "full": {"sparsity": 0.0, "units": 9},
}


def layer_of(**options) -> NACKey:
    torch.manual_seed(0)
    return NACKey(16, 4, in_features=6, time_scale=0.5, **options).double().eval()


def inputs(batch: int = 2, steps: int = 11) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(batch, steps, 6, dtype=torch.float64, generator=generator)
    return x, torch.rand(batch, steps, dtype=torch.float64, generator=generator).cumsum(1)


@pytest.fixture(autouse=True)
def many_blocks(monkeypatch) -> None:
    """What is short here is computed in several blocks of pairs, as longer sequences are."""
    monkeypatch.setattr(kernel, "ROWS_AT_ONCE", 3)
    monkeypatch.setattr(kernel, "PAIRS_AT_ONCE", 60)


@pytest.fixture(params=FORMS.values(), ids=FORMS)
def layer(request) -> NACKey:
    return layer_of(**request.param)


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("timed", [True, False])
def test_equals_the_reference_forward_and_every_gradient(layer: NACKey, window: int | None, timed: bool) -> None:
    x, t = inputs()
    padding = torch.zeros(2, 11, dtype=torch.bool)
    padding[0, :2] = padding[1, 5] = padding[1, 9:] = True
    options = {"t": t if timed else None, "key_padding_mask": padding, "window": window}
    results = []
    for run in (layer, lambda *a, **o: key_forward(layer, *a, **o)):
        given = x.clone().requires_grad_()
        layer.zero_grad()
        y = run(given, **options)[~padding]
        (y * torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view_as(y)).sum().backward()
        grads = {name: p.grad for name, p in layer.named_parameters() if p.grad is not None}
        results.append({"y": y.detach(), "x": given.grad, **grads})
    mine, theirs = results
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-9, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")


def test_gradients_are_those_of_finite_differences(layer: NACKey) -> None:
    x, t = inputs(1, 5)
    names = [name for name, _ in layer.named_parameters()]

    def run(x, t, *parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,), {"t": t})

    given = [x.requires_grad_(), t.requires_grad_(), *(p.detach().requires_grad_() for p in layer.parameters())]
    assert torch.autograd.gradcheck(run, given, fast_mode=True)


def test_gradients_of_gradients_are_those_of_finite_differences_or_one_sentence() -> None:
    layer, (x, t) = layer_of(), inputs(1, 5)
    x = x.requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: layer(x, t=t, need_weights=True)[0], [x], fast_mode=True)
    (grad,) = torch.autograd.grad(layer(x, t=t).square().sum(), x)
    assert grad.isfinite().all()
    with pytest.raises(RuntimeError, match="gradients of gradients need need_weights=True"):
        torch.autograd.grad(layer(x, t=t).square().sum(), x, create_graph=True)


@pytest.mark.parametrize("options", FORMS.values(), ids=FORMS)
def test_every_form_keeps_the_contract(options: dict) -> None:
    contract.check(NACKeyLayer, **options)


@torch.no_grad()
def test_steps_are_the_window_of_forward_and_change_no_state(layer: NACKey) -> None:
    x, t = inputs()
    wanted = layer(x, t=t + 1.7e9, window=4)
    state = layer.init_state(2, 4)
    for i in range(x.shape[1]):
        y, after = layer.step(x[:, i], t[:, i] + 1.7e9, state)
        again, _ = layer.step(x[:, i], t[:, i] + 1.7e9, state)
        assert torch.equal(y, again)
        torch.testing.assert_close(y, wanted[:, i], rtol=1e-5, atol=1e-5)  # a clock since 1970 in microseconds
        state = after


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_step_by_numpy_is_the_plain_one(layer: NACKey, dtype: torch.dtype, timed: bool) -> None:
    layer = layer.to(dtype)
    x, t = inputs()
    states = [layer.init_state(2, 4), layer.init_state(2, 4)]
    for i in range(x.shape[1]):
        results = []
        for k, is_plain in enumerate((True, False)):
            with torch.set_grad_enabled(is_plain):
                y, states[k] = layer.step(x[:, i].to(dtype), t[:, i] + 1.7e9 if timed else None, states[k])
            assert (states[k].weights is None) is is_plain
            results.append((y, states[k].memory, states[k].clock))
        torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5 if dtype == torch.float32 else 1e-8)
        assert results[0][0].dtype == results[1][0].dtype == dtype


@torch.no_grad()
def test_a_step_by_numpy_notices_what_changed_and_leaves_what_is_not_its_own() -> None:
    layer = layer_of(mode="steady")
    x, t = inputs()
    _, before = layer.step(x[:, 0], t[:, 0], layer.init_state(2, 4))
    first, after = layer.step(x[:, 1], t[:, 1], before)
    assert after.weights is before.weights is not None
    travelled = pickle.loads(pickle.dumps(before))
    assert travelled.weights is None and torch.equal(layer.step(x[:, 1], t[:, 1], travelled)[0], first)
    other = copy.deepcopy(layer)
    assert torch.equal(other.step(x[:, 1], t[:, 1], copy.deepcopy(before))[0], first)

    for change in (
        lambda: other.mask_group("inter", [0, 1]),
        lambda: other.gamma.mul_(2),
        lambda: other.value.weight.fill_(0.1),
    ):
        change()
        with torch.enable_grad():
            wanted, _ = other.step(x[:, 1], t[:, 1], before)
        assert not torch.allclose(wanted, first)
        torch.testing.assert_close(other.step(x[:, 1], t[:, 1], before)[0], wanted, rtol=1e-8, atol=1e-8)

    torch.nn.utils.parametrize.register_parametrization(other.query, "weight", torch.nn.Tanh())
    y, after = other.step(x[:, 1], t[:, 1], before)
    assert after.weights is None and not torch.allclose(y, wanted)
    shared = torch.func.vmap(lambda x: layer.step(x, t[:, 1], before)[0])(torch.stack([x[:, 1], x[:, 2]]))
    torch.testing.assert_close(shared[0], first, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["query", "key", "value", "out_proj"])
@pytest.mark.parametrize("kind", ["pruned", "weight norm", "hook"])
@pytest.mark.filterwarnings("ignore:.*weight_norm")
def test_a_step_uses_the_weights_that_a_hook_makes_anew(kind: str, name: str) -> None:
    layer, (x, t) = layer_of(mode="steady"), inputs()
    with torch.no_grad():
        _, before = layer.step(x[:, 0], t[:, 0], layer.init_state(2, 4))
    part = getattr(layer, name)
    if kind == "pruned":
        prune.l1_unstructured(part, "weight", 0.5)
    elif kind == "weight norm":
        weight_norm(part)
    else:
        part.register_forward_hook(lambda module, inputs, y: y + 1)  # with a state that has kept its weights
    for weight in layer.parameters():
        weight.data.mul_(1.5)
    wanted, _ = layer.step(x[:, 1], t[:, 1], before)
    with torch.no_grad():
        y, _ = layer.step(x[:, 1], t[:, 1], before)
    torch.testing.assert_close(y, wanted, rtol=1e-8, atol=1e-8)


@torch.no_grad()
def test_order_and_age_of_the_past_matter_and_lags_alone_know_no_clock() -> None:
    x, t = inputs()
    for name, options in FORMS.items():
        layer = layer_of(**options)
        y = layer(x, t=t, last_only=True)
        assert (layer(torch.cat([x[:, :-1].flip(1), x[:, -1:]], 1), t=t, last_only=True) - y).abs().max() > 1e-3
        moved = (layer(x, t=t + 60, last_only=True) - y).abs().max()
        assert moved < 1e-9 if name == "lags" else moved > 1e-3


@torch.no_grad()
def test_neurons_lay_open_what_forward_computes() -> None:
    layer, (x, t) = layer_of(), inputs()
    y, weights = layer(x, t=t, need_weights=True)
    states = layer.neuron_states(x, t=t)
    lag, phi, omega, rho = (states[name] for name in ("t", "phi", "omega", "rho"))
    assert (omega > 0).all() and (rho > 0).all() and (phi.abs() < 1).all()
    assert torch.equal(weights, states["weights"])
    torch.testing.assert_close(lag[0, 0, 7, 2], (t[0, 7] - t[0, 2]) / 0.5)
    a = phi.unsqueeze(2) * (1 - torch.exp(-omega.unsqueeze(2) * lag))
    torch.testing.assert_close(states["a"], a)
    content = states["q"] @ states["k"].transpose(2, 3) / 2
    logits = content + layer.gamma.view(-1, 1, 1) * (a - omega.unsqueeze(2) * lag)
    torch.testing.assert_close(states["logits"].tril(), logits.tril())
    mixed = (weights * torch.exp(-rho.unsqueeze(2) * lag)) @ states["v"]
    torch.testing.assert_close(layer.out_proj(mixed.transpose(1, 2).flatten(2)), y)
    assert states["inter"].shape[:2] == (2, 11) and states["command"].shape[2] == len(layer.wiring.neurons("command"))


@torch.no_grad()
def test_a_masked_circuit_says_the_same_of_every_moment() -> None:
    layer, (x, t) = layer_of(), inputs()
    layer.mask_group("command")
    assert layer.neuron_states(x, t=t)["phi"].std(-1).max() < 1e-12


def test_policies_read_the_neurons_of_the_last_step_and_the_wiring() -> None:
    layer = layers.build("nac-key", 16, 4, 5, in_features=6)
    x, t = (z.float() for z in inputs(1, 9))
    states, wiring = layer.neuron_states(x, t), layer.circuit()
    assert states["weights"].shape == states["phi"].shape == states["t"].shape == (4, 9)
    assert states["weights"][:, :4].max() == 0 and torch.allclose(states["weights"].sum(1), torch.ones(4))
    assert states["inter"].shape == (4, 9, wiring["groups"]["inter"]) and states["k"].shape == (4, 9, 4)
    assert wiring["groups"]["sensory"] == 6 and wiring["groups"]["motor"] == len(wiring["motors"]) == 12
    assert not [edge for edge in wiring["edges"] if edge[0] == edge[2] == "command"]


@torch.no_grad()
def test_numbers_that_stay() -> None:
    layer = NACKey(8, 2, in_features=3, time_features=2).double()
    for n, p in enumerate(layer.parameters()):
        p.copy_(torch.sin(torch.arange(p.numel(), dtype=p.dtype) + n).view_as(p) / 2)
    x = torch.cos(torch.arange(15, dtype=torch.float64)).view(1, 5, 3)
    y = layer(x, t=torch.tensor([0.0, 1.0, 1.5, 4.0, 4.25], dtype=torch.float64), window=3)[0, -1]
    torch.testing.assert_close(y, torch.tensor(GOLDEN, dtype=torch.float64), rtol=0, atol=1e-12)


GOLDEN = [
    0.18535502727827,
    -0.32355417467069,
    0.01158540047981,
    0.94628281129348,
    0.28682663186054,
    -1.03581962917988,
    -0.56574298279549,
    0.57940311600255,
]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"d_model": 2}, "d_model=2; allowed is 4 or more"),
        ({"num_heads": 3}, "d_model 16 is not divisible by 3 heads"),
        ({"in_features": 0}, "in_features=0; allowed is 1 or more"),
        ({"topk": 0}, "topk=0; allowed is 1 or more"),
        ({"sparsity": 0.95}, "sparsity=0.95; allowed"),
        ({"units": 3}, "units=3; allowed"),
        ({"time_scale": 0.0}, "time_scale=0.0; allowed"),
        ({"time_features": -1}, "time_features=-1; allowed"),
        ({"dropout": 1.0}, "dropout=1.0; allowed"),
        ({"mode": "midpoint"}, "mode='midpoint'; allowed"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(options: dict, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        NACKey(**{"d_model": 16, "num_heads": 4, **options})


def test_bad_input_is_refused_in_one_sentence() -> None:
    layer, (x, t) = layer_of(), inputs()
    state = layer.init_state(2, 4)
    for call, words in (
        (lambda: layer(x[..., :5]), "allowed is"),
        (lambda: layer(x, t=t[:, :3]), "t has shape (2, 3)"),
        (lambda: layer(x, window=0), "window=0; allowed is 1 or more"),
        (lambda: layer(x, key_padding_mask=t), "allowed is torch.bool"),
        (lambda: layer.init_state(0, 4), "batch_size=0"),
        (lambda: layer.step(x[:1, 0], None, state), "as in the state"),
        (lambda: layer.step(x[:, 0], t, state), "t has shape (2, 11); allowed is [2]"),
        (lambda: layer.step(x[:, 0], 0.5, state), "t is a float; allowed is a torch tensor"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            call()


def test_the_table_of_layers_says_what_each_feels_of_the_past() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs/sequence.md").read_text()
    table = {}
    for names, time, past in re.findall(
        r"^\| (`.+?`) \| .*? \| (-|gaps|clock) \| (bag|order|times) \|", text, re.MULTILINE
    ):
        table |= dict.fromkeys(re.findall(r"`([^`]+)`", names), (time, past))
    for name in set(layers.names()) - {"stack", "dense"}:
        layer = layers.build(name, 16, 4, 4)
        time = "-" if layer.time_sense == "none" else layer.time_sense
        assert table[name] == (time, layer.past_sense or ("order" if time == "-" else "times")), name
