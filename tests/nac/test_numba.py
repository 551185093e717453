"""The kernels compiled by numba equal the naive float64 twin and torch's own path: forward, gradients, live steps."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys

import pytest
import torch

from nacdrive.nac import NAC, Euler, pairwise
from nacdrive.nac.kernels import numba
from nacdrive.nac.kernels.numba import CompiledBackbone
from nacdrive.nac.kernels.numba.step import CompiledStep
from tests.helpers.nac_reference import nac_forward
from tests.helpers.nightly import daily

pytest.importorskip("numba", reason="the compiled kernels need numba (pip install nacdrive[fast])")

TOLERANCE = 2e-5  # float32 sums in another order, logits with a scale of 8
OPTIONS = {
    "exact": {},
    "euler": {"mode": "euler", "topk": 3},
    "euler-fixed-step": {"mode": Euler(5, step=0.1), "topk": None},
    "steady-scaled": {"mode": "steady", "eps": 0.05, "logit_scale": True},
    "all-keys": {"topk": None},
    "lag": {"topk": None, "input_norm": True, "time_features": 4, "logit_scale": 8.0},
    "elapsed": {"topk": None, "time_input": "elapsed", "logit_scale": 8.0},
    "gap": {"topk": None, "time_input": "gap", "phi": "tanh"},
    "gated": {"topk": 3, "score_gradient": "gated", "phi": "none"},
    "straight-through": {"topk": 3, "score_gradient": "straight-through", "quadrature": "constant", "delta_t": 0.5},
    "partition": {"topk": 3, "selection": "sqrt"},
    "four-unfolds": {"topk": None, "unfolds": 4, "sparsity": 0.2},
    "no-recurrence": {"topk": None, "unfolds": 1, "activation": "sigmoid"},
    "full": {"topk": None, "sparsity": 0.0, "share_backbone": True},
    "full-gate": {"gate": "fc", "sparsity": 0.5},
    "signed": {"topk": None, "polarity": "fixed", "sparsity": 0.8},
}
MASKS = {"open": (False, False), "causal": (True, False), "padded": (False, True), "causal-padded": (True, True)}


@pytest.fixture(autouse=True)
def always_compiled(monkeypatch):
    monkeypatch.setattr(numba, "ENABLED", True)
    monkeypatch.setattr(pairwise, "PAIRS_AT_ONCE", 12)  # so that few pairs make several blocks


@pytest.fixture
def calls(monkeypatch):
    """How often the kernels were used."""
    counted = {"motor": 0, "backward": 0, "attend": 0}

    def counting(owner, name):
        run = getattr(owner, name)

        def count(*args, **kwargs):
            counted[name] += 1
            return run(*args, **kwargs)

        monkeypatch.setattr(owner, name, count)

    counting(CompiledBackbone, "motor")
    counting(CompiledBackbone, "backward")
    counting(CompiledStep, "attend")
    return counted


def layer_of(options, d_model=20, heads=2):
    torch.manual_seed(3)
    return NAC(d_model, heads, **{"topk": 4, **options})


def inputs(layer, padding, steps=13):
    torch.manual_seed(1)
    x = torch.randn(2, steps, layer.in_features)
    t = torch.rand(2, steps).cumsum(1)
    mask = None
    if padding:
        mask = torch.zeros(2, steps, dtype=torch.bool)
        mask[1, 8:] = True
        mask[0, 3] = True
    return x, t, mask


def outputs(run, layer, x, mask):
    """Output and all gradients."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    y = run(x)
    y = y if mask is None else y.masked_fill(mask.unsqueeze(-1), 0.0)
    (y.double() * torch.linspace(-1, 2, y.numel(), dtype=torch.float64).view_as(y)).sum().backward()
    found = {n: p.grad.double().clone() for n, p in layer.named_parameters() if p.grad is not None}
    return {"y": y.detach().double(), "x": x.grad.double(), **found}


def assert_same(mine, theirs, tolerance=TOLERANCE):
    assert mine.keys() == theirs.keys()
    for name, a in mine.items():
        b = theirs[name]
        assert (a - b).abs().max() <= tolerance * max(1.0, b.abs().max().item()), name


@pytest.mark.parametrize("masks", daily(MASKS, ["open", "causal-padded"]))
@pytest.mark.parametrize("name", OPTIONS)
def test_output_and_gradients_equal_the_naive_twin(name, masks, calls):
    causal, padding = MASKS[masks]
    layer = layer_of(OPTIONS[name])
    x, t, mask = inputs(layer, padding)
    given = {"t": t, "key_padding_mask": mask, "is_causal": causal}
    mine = outputs(lambda x: layer(x, **given), layer, x, mask)
    assert calls["motor"] > 1
    assert calls["backward"] > 1
    twin = layer_of(OPTIONS[name]).double()
    given["t"] = t.double()
    assert_same(mine, outputs(lambda x: nac_forward(twin, x, **given)[0], twin, x.double(), mask))


@pytest.mark.parametrize("size", [(6, 1), (16, 2), (64, 4)], ids=str)
def test_all_widths_equal_torchs_path(size, monkeypatch):
    """Narrower than a vector, a whole number of vectors and not."""
    layer = layer_of({"topk": None}, *size)
    x, t, _ = inputs(layer, False)
    mine = outputs(lambda x: layer(x, t=t), layer, x, None)
    monkeypatch.setattr(numba, "ENABLED", False)
    assert_same(mine, outputs(lambda x: layer(x, t=t), layer, x, None))


def test_a_synapse_of_weight_zero_still_has_its_gradient(monkeypatch):
    layer = layer_of({"topk": None})
    with torch.no_grad():
        for part in (layer.backbone.inter, layer.backbone.command, layer.backbone.motor):
            part.weight.zero_()
        layer.backbone.motor.weight[:, 1:] = 0.5
    x, t, _ = inputs(layer, False)
    mine = outputs(lambda x: layer(x, t=t), layer, x, None)
    assert mine["backbone.inter.weight"].abs().max() > 0
    monkeypatch.setattr(numba, "ENABLED", False)
    assert_same(mine, outputs(lambda x: layer(x, t=t), layer, x, None))


def test_masking_neurons_is_noticed(monkeypatch):
    layer = layer_of({"topk": None})
    x, t, _ = inputs(layer, False)
    before = outputs(lambda x: layer(x, t=t), layer, x, None)
    layer.mask_group("inter", [0, 2, 5])
    mine = outputs(lambda x: layer(x, t=t), layer, x, None)
    assert (mine["y"] - before["y"]).abs().max() > 1e-4
    monkeypatch.setattr(numba, "ENABLED", False)
    assert_same(mine, outputs(lambda x: layer(x, t=t), layer, x, None))


def test_adaptive_euler_takes_the_kernels_motor_neurons(monkeypatch, calls):
    layer = layer_of({"mode": Euler(adaptive=True), "topk": None})
    x, t, _ = inputs(layer, False)
    mine = outputs(lambda x: layer(x, t=t), layer, x, None)
    assert calls["motor"] > 1
    monkeypatch.setattr(numba, "ENABLED", False)
    # A last digit may decide on one doubling more or less, which differ by the tolerance of the steps.
    assert_same(mine, outputs(lambda x: layer(x, t=t), layer, x, None), tolerance=5e-3)


def test_dropout_draws_the_same_with_and_without(monkeypatch):
    layer = layer_of({"topk": None, "dropout": 0.4})
    x, t, _ = inputs(layer, False)

    def run(x):
        torch.manual_seed(5)
        return layer(x, t=t)

    mine = outputs(run, layer, x, None)
    monkeypatch.setattr(numba, "ENABLED", False)
    assert_same(mine, outputs(run, layer, x, None))


def test_threads_give_the_same_numbers():
    layer = layer_of({"topk": None}, 24, 3)
    x, t, _ = inputs(layer, False)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(outputs(lambda x: layer(x, t=t), layer, x, None))
    finally:
        torch.set_num_threads(before)
    assert_same(*found, tolerance=1e-6)


def test_the_second_derivative_is_that_of_torch(monkeypatch):
    layer = layer_of({"topk": None})
    x, t, _ = inputs(layer, False)

    def penalty():
        z = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(layer(z, t=t).square().sum(), z, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), layer.backbone.motor.weight)[0]

    mine = penalty()
    monkeypatch.setattr(numba, "ENABLED", False)
    theirs = penalty()
    assert (mine - theirs).abs().max() <= 1e-4 * theirs.abs().max()


def streamed(layer, x, t, window):
    state = layer.init_state(x.shape[0], window)
    rows = []
    with torch.no_grad():
        for i in range(x.shape[1]):
            y, state = layer.step(x[:, i], t[:, i], state)
            rows.append(y)
    return torch.stack(rows, 1)


@pytest.mark.parametrize("window", [1, 3, 6, 20])
@pytest.mark.parametrize("name", OPTIONS)
def test_live_steps_equal_the_causal_naive_twin(name, window, calls):
    layer = layer_of(OPTIONS[name]).eval()
    x, t, _ = inputs(layer, False, steps=19)
    mine = streamed(layer, x, t, window)
    assert calls["attend"] == 19
    twin = layer_of(OPTIONS[name]).double()
    theirs, _ = nac_forward(twin, x.double(), t=t.double(), is_causal=True, window=window)
    assert (mine - theirs).abs().max() <= TOLERANCE


def test_a_window_wider_than_a_vector_is_streamed_in_pieces(calls):
    layer = layer_of({"topk": 20}).eval()
    x, t, _ = inputs(layer, False, steps=45)
    theirs, _ = nac_forward(layer_of({"topk": 20}).double(), x.double(), t=t.double(), is_causal=True, window=40)
    assert (streamed(layer, x, t, 40) - theirs).abs().max() <= TOLERANCE
    assert calls["attend"] == 45


def test_an_old_state_can_be_used_again():
    layer = layer_of({}).eval()
    x, t, _ = inputs(layer, False)
    with torch.no_grad():
        _, state = layer.step(x[:, 0], t[:, 0], layer.init_state(2, 4))
        first, _ = layer.step(x[:, 1], t[:, 1], state)
        layer.step(x[:, 2], t[:, 2], state)
        again, _ = layer.step(x[:, 1], t[:, 1], state)
    assert torch.equal(first, again)


@pytest.mark.parametrize(
    "how", [copy.deepcopy, lambda state: pickle.loads(pickle.dumps(state))], ids=["copy", "pickle"]
)
def test_a_state_that_was_copied_or_sent_goes_on(how):
    layer = layer_of({}).eval()
    x, t, _ = inputs(layer, False)
    with torch.no_grad():
        _, state = layer.step(x[:, 0], t[:, 0], layer.init_state(2, 4))
        there = how(state)
        here, _ = layer.step(x[:, 1], t[:, 1], state)
        del state
        after, _ = layer.step(x[:, 1], t[:, 1], there)
    torch.testing.assert_close(here, after)


def test_a_step_notices_new_weights():
    layer = layer_of({}).eval()
    x, t, _ = inputs(layer, False)
    with torch.no_grad():
        _, state = layer.step(x[:, 0], t[:, 0], layer.init_state(2, 4))
        before, _ = layer.step(x[:, 1], t[:, 1], state)
        layer.backbone.motor.bias.add_(1.0)
        after, _ = layer.step(x[:, 1], t[:, 1], state)
    assert (before - after).abs().max() > 1e-4


@pytest.mark.parametrize("activation", ["silu", "linear"])
def test_what_kernels_do_not_cover_is_left_to_torch(activation, calls):
    layer = layer_of({"topk": None, "activation": activation})
    x, t, _ = inputs(layer, False)
    outputs(lambda x: layer(x, t=t), layer, x, None)
    streamed(layer.eval(), x, t, 4)
    doubled = layer_of({"topk": None}).double()
    outputs(lambda x: doubled(x, t=t.double()), doubled, x.double(), None)
    adaptive = layer_of({"mode": Euler(adaptive=True)}).eval()
    streamed(adaptive, x, t, 4)
    assert calls == {"motor": 0, "backward": 0, "attend": 0}


def run_alone(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


USE = """
import sys, torch
from nacdrive.nac import NAC
layer = NAC(16, 2, topk=None).eval()
with torch.no_grad():
    layer.step(torch.zeros(1, 16), None, layer.init_state(1, 4))
print("numba" in sys.modules)
"""


@pytest.mark.nightly
def test_the_environment_variable_turns_them_off_and_numba_is_not_even_imported():
    assert run_alone(USE, NACDRIVE_NUMBA="0").strip() == "False"


@pytest.mark.nightly
def test_numba_without_its_compiler_is_as_no_numba():
    assert "True" in run_alone(USE, NUMBA_DISABLE_JIT="1")


def test_without_a_folder_for_the_cache_kernels_are_compiled_without_one(monkeypatch):
    """As in an installation that cannot be written, by a user without a home."""
    from nacdrive.nac.kernels.numba import compiled

    def refuse(*args, **kwargs):
        if kwargs.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return real(*args, **kwargs)

    real = compiled.njit
    monkeypatch.setattr(compiled, "njit", refuse)
    types = compiled.types
    twice = compiled._compiled(types.int64(types.int64))(lambda x: 2 * x)
    assert twice(21) == 42


def test_sigmoid_is_as_exact_as_float32_allows():
    import numpy as np
    from numba import njit

    from nacdrive.nac.kernels.numba.compiled import LANES, squash

    @njit
    def run(out, x, vectors):
        squash(out, x, vectors)

    x = np.linspace(-100, 100, 1 << 12, dtype=np.float32)
    out = np.empty_like(x)
    run(out.ctypes.data, x.ctypes.data, len(x) // LANES)
    exact = 1 / (1 + np.exp(-x.astype(np.float64)))
    assert np.abs(out - exact).max() < 1.5e-7
    near = np.abs(x) < 80
    assert (np.abs(out - exact) / exact)[near].max() < 3e-6
