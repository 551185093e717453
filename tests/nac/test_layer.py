"""The layer as a torch citizen: bad input, options, state, autocast, compile, export."""

from __future__ import annotations

import copy
import io
import subprocess
import sys

import pytest
import torch

from nacdrive.nac import NAC, PRESETS, VARIANTS, Euler, NACKey, pairwise, variant

BAD_ARGUMENTS = [
    ({"d_model": 10}, "d_model 10 is not divisible by 4 heads"),
    ({"d_model": 1, "num_heads": 1}, "d_model=1"),
    ({"num_heads": 0}, "num_heads=0"),
    ({"topk": 0}, "topk=0"),
    ({"sparsity": 0.05}, "sparsity=0.05"),
    ({"sparsity": 0.95}, "sparsity=0.95"),
    ({"unfolds": 0}, "unfolds=0"),
    ({"backbone_units": 3}, "backbone_units=3"),
    ({"mode": "fast"}, "mode='fast'"),
    ({"mode": 3}, "mode=3"),
    ({"selection": "best"}, "selection='best'"),
    ({"activation": "relu"}, "activation='relu'"),
    ({"phi": "relu"}, "phi='relu'"),
    ({"gate": "mlp"}, "gate='mlp'"),
    ({"polarity": "both"}, "polarity='both'"),
    ({"quadrature": "simpson"}, "quadrature='simpson'"),
    ({"time_input": "unix"}, "time_input='unix'"),
    ({"dropout": 1.0}, "dropout=1.0"),
    ({"eps": 0.0}, "eps=0.0"),
    ({"time_scale": 0.0}, "time_scale=0.0"),
    ({"delta_t": -1.0}, "delta_t=-1.0"),
    ({"in_features": 0}, "in_features=0"),
]


@pytest.mark.parametrize(("changes", "words"), BAD_ARGUMENTS, ids=[w for _, w in BAD_ARGUMENTS])
def test_a_bad_argument_is_named_with_its_value(changes: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        NAC(**{"d_model": 16, "num_heads": 4, **changes})


@pytest.mark.parametrize("euler", [{"steps": 0}, {"step": 0.0}, {"rtol": 0.0}, {"adaptive": True, "step": 1.0}])
def test_bad_euler_is_named(euler: dict) -> None:
    with pytest.raises(ValueError, match="Euler"):
        Euler(**euler)


X = torch.zeros(2, 5, 16)
BAD_CALLS = [
    (lambda n: n(X[0]), "query has shape"),
    (lambda n: n(X[..., :8]), "query has shape"),
    (lambda n: n(X[:, :0]), "query has shape"),
    (lambda n: n(X.double()), "query has dtype torch.float64"),
    (lambda n: n(X.half()), "query has dtype torch.float16"),
    (lambda n: n(X.long()), "query has dtype torch.int64"),
    (lambda n: n(X, X.double()), "key has dtype"),
    (lambda n: n(X, X[:1]), "key has batch size 1"),
    (lambda n: n(X, X, X[:, :4]), "value has 4 steps"),
    (lambda n: n(X, t=torch.zeros(4)), "t has shape"),
    (lambda n: n(X, t=torch.zeros(2, 5, 1)), "t has shape"),
    (lambda n: n(X, key_padding_mask=torch.zeros(2, 4, dtype=torch.bool)), "key_padding_mask has shape"),
    (lambda n: n(X, key_padding_mask=torch.zeros(2, 5)), "key_padding_mask has dtype"),
    (lambda n: n(X, X[:, :4], is_causal=True), "is_causal"),
    (lambda n: n(X, window=3), "window=3"),
    (lambda n: n(X, is_causal=True, window=0), "window=0"),
    (lambda n: n.init_state(0, 3), "batch_size=0"),
    (lambda n: n.init_state(1, 0), "window=0"),
    (lambda n: n.step(X[:1, 0], None, n.init_state(2, 3)), "x has shape"),
    (lambda n: n.step(X[:, 0], torch.zeros(3), n.init_state(2, 3)), "t has shape"),
    (lambda n: n.step(X[:, 0], None, NAC(16, 2).init_state(2, 3)), r"memory .* \(2, 2, 3, 42\).* \[4, -1, -1, 34\]"),
    (lambda n: n.step(X[:, 0], None, NAC(16, 4).double().init_state(2, 3)), "float64 on cpu; .*float32 on cpu"),
    (lambda n: n.step(X[:, 0], None, NACKey(16, 4).init_state(2, 3)), "state is a KeyState; allowed is a State"),
    (lambda n: NACKey(16, 4).step(X[:, 0], None, n.init_state(2, 3)), "state is a State; allowed is a KeyState"),
    (lambda n: NACKey(16, 4).step(X[:, 0], None, NACKey(16, 2).init_state(2, 3)), "memory of the state has shape"),
    (lambda n: n.mask_group("brain"), "group='brain'"),
    (lambda n: n.mask_group("inter", [10**6]), "neurons="),
    (lambda n: n.rewire(in_features=[99]), "in_features="),
]


@pytest.mark.parametrize(("call", "words"), BAD_CALLS, ids=[f"{i}-{w}" for i, (_, w) in enumerate(BAD_CALLS)])
def test_a_bad_call_is_named(call, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call(NAC(16, 4))


def test_time_that_runs_backwards_is_refused_where_gaps_matter() -> None:
    t = torch.tensor([0.0, 1.0, 0.5, 2.0, 3.0])
    NAC(16, 4)(X, t=t)
    layer = NAC(16, 4, time_input="gap")
    with pytest.raises(ValueError, match=r"t goes back by 0\.5 s"):
        layer(X, t=t)
    layer(X, t=t, key_padding_mask=torch.tensor([[False, False, True, False, False]] * 2))
    _, state = layer.step(X[:, 0], torch.ones(2), layer.init_state(2, 3))
    with pytest.raises(ValueError, match="t goes back"):
        layer.step(X[:, 0], torch.zeros(2), state)
    for nowhere in (torch.nan, torch.inf):
        with pytest.raises(ValueError, match="t holds NaN or infinity"):
            layer(X, t=torch.tensor([0.0, 1.0, nowhere, nowhere, 3.0]))
        for place in (0, -1):
            t = torch.arange(5.0)
            t[place] = nowhere
            with pytest.raises(ValueError, match="t holds NaN or infinity"):
                layer(X, t=t)
        with pytest.raises(ValueError, match="t holds NaN or infinity"):
            layer.step(X[:, 0], torch.full((2,), nowhere), layer.init_state(2, 3))


@pytest.mark.parametrize("paper", [False, True], ids=["defaults", "paper"])
@pytest.mark.parametrize("name", [*VARIANTS, *PRESETS])
def test_every_named_variant_runs_and_learns(name: str, paper: bool) -> None:
    layer = variant(name, 16, 4, paper=paper)
    layer(torch.randn(2, 12, 16)).sum().backward()
    assert layer.q_gate.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("mode", ["exact", "euler", "steady"])
def test_constant_gates_see_nothing_of_a_pair(mode: str) -> None:
    layer = variant("nac-constant", 16, 4, mode=mode, topk=3)
    with torch.no_grad():
        for bias in (p for name, p in layer.backbone.named_parameters() if name.endswith("bias")):
            bias.normal_()
    s = layer.neuron_states(torch.randn(2, 9, 16), is_causal=True, last_only=True)
    for gate in ("phi", "omega"):
        assert (s[gate] - s[gate][:1, :, :1, :1]).abs().max() < 1e-6
    if mode == "steady":
        assert torch.allclose(s["weights"], torch.tensor(1 / 3))
    # What differs between pairs is their time gate alone.
    assert (s["t"].std(-1) > 0).all()


def test_variants_are_configured_by_their_names() -> None:
    assert variant("nac-pw", 16, 4).topk is None
    assert variant("nac-32k", 16, 4).topk == 32
    assert variant("nac-exact", 16, 4, paper=True).selection == "sqrt"
    with pytest.raises(ValueError, match="nac-fast"):
        variant("nac-fast", 16, 4)


def test_neuron_states_lay_open_what_forward_computes() -> None:
    layer = NAC(16, 4, topk=3)
    x = torch.randn(2, 7, 16)
    s = layer.neuron_states(x, is_causal=True)
    shapes = {name: tuple(value.shape) for name, value in s.items()}
    assert shapes["q"] == shapes["k"] == shapes["v"] == (2, 4, 7, 4)
    for name in ("keys", "phi", "omega", "t", "logits", "weights"):
        assert shapes[name] == (2, 4, 7, 3)
    assert shapes["inter"] == (2, 4, 7, 3, layer.wiring.inters)
    assert shapes["command"] == (2, 4, 7, 3, layer.wiring.commands)
    v = s["v"].unsqueeze(2).expand(-1, -1, 7, -1, -1).gather(3, s["keys"].unsqueeze(-1).expand(-1, -1, -1, -1, 4))
    y = ((s["weights"] * s["t"]).unsqueeze(-1) * v).sum(3).transpose(1, 2).reshape(2, 7, 16)
    torch.testing.assert_close(layer.out_proj(y), layer(x, is_causal=True))
    assert torch.equal(s["logits"] == -torch.inf, s["weights"] == 0)
    assert s["command"].abs().max() <= 1


def test_dropout_acts_in_training_only_and_is_the_same_when_recomputed(monkeypatch) -> None:
    monkeypatch.setattr(pairwise, "PAIRS_AT_ONCE", 16)
    layer = NAC(8, 2, dropout=0.5, topk=3).double()
    x = torch.randn(1, 12, 8, dtype=torch.float64, requires_grad=True)

    def f(x):
        torch.manual_seed(3)
        return layer(x)

    assert torch.autograd.gradcheck(f, (x,), fast_mode=True)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_rewiring_keeps_trained_synapses() -> None:
    layer = NAC(16, 4, in_features=6, out_features=3)
    other = layer.rewire(in_features=[5, None, 0], out_features=[2, 2])
    assert other(torch.randn(1, 4, 3)).shape == (1, 4, 2)
    for gate in ("q_gate", "k_gate", "v_gate"):
        old, new = getattr(layer, gate).effective(), getattr(other, gate).effective()
        assert torch.equal(new[:, 0], old[:, 5]) and torch.equal(new[:, 2], old[:, 0])
    assert torch.equal(other.out_proj.weight[1], layer.out_proj.weight[2])
    x = torch.randn(2, 5, 6)
    torch.testing.assert_close(
        layer.rewire(in_features=8, out_features=5)(torch.nn.functional.pad(x, (0, 2)))[..., :3], layer(x)
    )


def test_rewiring_keeps_masked_neurons_masked() -> None:
    layer = NAC(16, 4)
    layer.mask_group("inter", [0, 1])
    assert torch.equal(layer.rewire(in_features=4).backbone.sensory.mask, layer.backbone.sensory.mask)


def test_a_logit_scale_begins_where_it_is_asked_to() -> None:
    assert NAC(16, 4).logit_scale is None
    for given, start in ((True, torch.ones(())), (8.0, torch.full((4,), 8.0)), (2, torch.full((4,), 2.0))):
        scale = NAC(16, 4, logit_scale=given).logit_scale
        assert scale is not None and torch.equal(scale, start)


def test_a_saved_layer_is_the_same_layer() -> None:
    layer = NAC(16, 4, logit_scale=True)
    layer.mask_group("command", [1])
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = NAC(16, 4, logit_scale=True, seed=1)
    other.load_state_dict(torch.load(file, weights_only=True))
    x = torch.randn(2, 5, 16)
    assert torch.equal(layer(x), other(x)), "masks are part of the state: the seed of the wiring does not matter"
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))


def test_state_dict_names_are_stable() -> None:
    gates = [f"{g}.{n}" for g in ("k_gate", "q_gate", "v_gate") for n in ("bias", "mask", "weight")]
    backbone = [f"backbone.{g}.{n}" for g in ("inter", "motor", "sensory") for n in ("bias", "mask", "weight")]
    rest = ["backbone.command.mask", "backbone.command.weight", "out_proj.bias", "out_proj.weight"]
    rest += ["time_gate.bias", "time_gate.weight", "time_scale"]
    assert sorted(NAC(16, 4).state_dict()) == sorted(gates + backbone + rest)


def test_weights_sum_to_one_over_selected_keys() -> None:
    y, weights = NAC(16, 4, topk=3)(torch.randn(2, 9, 16), need_weights=True)
    assert y.shape == (2, 9, 16) and weights.shape == (2, 4, 9, 9)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 9))
    assert (weights > 0).sum(-1).eq(3).all()


@pytest.mark.parametrize("chunk", [1 << 20, 64], ids=["at-once", "chunked"])
def test_autocast_stays_near_float32(chunk: int, monkeypatch) -> None:
    monkeypatch.setattr(pairwise, "PAIRS_AT_ONCE", chunk)
    layer = NAC(32, 4, mode="steady")
    x = torch.randn(2, 12, 32)
    expected = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
        y.float().sum().backward()
        _, state = layer.step(x[:, 0], None, layer.init_state(2, 4))
    assert y.dtype == torch.bfloat16 and state.memory.dtype == torch.float32
    assert (y.float() - expected).abs().mean() < 0.1 * expected.abs().mean() + 0.02
    assert torch.isfinite(layer.backbone.motor.weight.grad).all()


def test_half_precision_layer_keeps_float32_logits() -> None:
    layer = NAC(16, 4).bfloat16()
    assert layer.neuron_states(torch.randn(1, 5, 16).bfloat16())["logits"].dtype == torch.float32
    assert layer(torch.randn(1, 5, 16).bfloat16()).dtype == torch.bfloat16


@pytest.mark.nightly
@pytest.mark.parametrize("causal", [False, True])
def test_torch_compile_follows_the_whole_layer(causal: bool) -> None:
    layer = NAC(16, 4, topk=3)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x = torch.randn(2, 9, 16)
    y = compiled(x, is_causal=causal)
    torch.testing.assert_close(y, layer(x, is_causal=causal))
    y.sum().backward()
    assert layer.q_gate.weight.grad is not None


@pytest.mark.nightly
@pytest.mark.parametrize(
    "options", [{"topk": 3}, {"topk": None, "mode": "euler"}, {"topk": 3, "selection": "sqrt"}], ids=str
)
def test_onnx_export_gives_the_same_numbers(options: dict, tmp_path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    layer = NAC(16, 4, **options).eval()
    x = torch.randn(2, 9, 16)
    path = tmp_path / "nac.onnx"
    torch.onnx.export(layer, (x,), path, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(str(path))
    (output,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(output), layer(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.nightly
def test_an_exported_layer_takes_sequences_shorter_than_topk(tmp_path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    layer = NAC(16, 4, topk=5).eval()
    path = tmp_path / "nac.onnx"
    steps = torch.export.Dim.DYNAMIC
    torch.onnx.export(layer, (torch.randn(2, 9, 16),), path, dynamo=True, verbose=False, dynamic_shapes=({1: steps},))
    session = onnxruntime.InferenceSession(str(path))
    for length in (2, 4, 9, 20):
        x = torch.randn(2, length, 16)
        (output,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        torch.testing.assert_close(torch.from_numpy(output), layer(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.nightly
def test_the_core_needs_nothing_but_torch_and_numpy() -> None:
    """With what torch and numpy import themselves as the measure."""
    code = "import sys, torch, numpy; before = set(sys.modules); from nacdrive.nac import NAC; "
    code += "print(sorted({m.split('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert set(eval(out)) <= {"nacdrive", "numpy", "torch"}
