"""What torch's other ways of running a layer ask of it: padding of any content, transforms, meta device, penalties."""

from __future__ import annotations

import pytest
import torch

from nacdrive.layers import build
from nacdrive.nac import NAC, Steady, pairwise
from nacdrive.nac.kernels import triton
from tests.helpers.nac_reference import nac_forward
from tests.helpers.nightly import daily

PARTITIONS = {
    "sqrt": ({"selection": "sqrt"}, 70),
    "sqrt-blocks-of-5": ({"selection": "sqrt", "sqrt_block": 5}, 40),
    "auto-above-1024": ({"selection": "auto"}, 1100),
}
TIMES = {
    "absolute": {},
    "gap": {"time_input": "gap"},
    "elapsed": {"time_input": "elapsed"},
    "features": {"time_features": 3},
    "gated": {"score_gradient": "gated", "topk": 3},
}
EVERYTHING = {"time_input": "elapsed", "time_features": 3, "input_norm": True, "logit_scale": 8.0}

WAYS = {
    "top3": {},
    "pairwise": {"topk": None},
    "everything": EVERYTHING,
    "gated": {"score_gradient": "gated"},
}


def tokens(steps: int, batch: int = 2, width: int = 16) -> torch.Tensor:
    return torch.randn(batch, steps, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def layer_of(**options) -> NAC:
    torch.manual_seed(0)
    return NAC(16, 4, **{"topk": 3, **options}).double().eval()


@pytest.fixture(params=daily(PARTITIONS, ["sqrt", "sqrt-blocks-of-5"]))
def partitioned(request) -> tuple[NAC, torch.Tensor]:
    options, steps = PARTITIONS[request.param]
    return layer_of(**options), tokens(steps, batch=1)


def streamed(layer: NAC, x: torch.Tensor, t: torch.Tensor | None, window: int) -> torch.Tensor:
    state, rows = layer.init_state(len(x), window), []
    for i in range(x.shape[1]):
        y, state = layer.step(x[:, i], None if t is None else t[:, i], state)
        rows.append(y)
    return torch.stack(rows, 1)


@torch.no_grad()
def test_what_comes_later_changes_no_earlier_output_of_a_partition(partitioned) -> None:
    layer, x = partitioned
    whole = layer(x, is_causal=True)
    for steps in (5, 17, x.shape[1] - 3):
        torch.testing.assert_close(layer(x[:, :steps], is_causal=True), whole[:, :steps])


@torch.no_grad()
def test_steps_equal_the_causal_partition(partitioned) -> None:
    layer, x = partitioned
    steps = x.shape[1]
    torch.testing.assert_close(streamed(layer, x, None, steps), layer(x, is_causal=True))
    shorter = steps - 12
    torch.testing.assert_close(streamed(layer, x, None, shorter), layer(x, is_causal=True, window=shorter))


@torch.no_grad()
@pytest.mark.parametrize("window", [None, 30, 300])
@pytest.mark.parametrize("where", ["front", "inside"])
def test_padding_in_front_or_inside_changes_nothing_in_a_partition(partitioned, where, window) -> None:
    layer, x = partitioned
    steps = x.shape[1]
    padding = torch.zeros(2, steps + 7, dtype=torch.bool)
    padding[0, :7] = True  # of another place in each sequence
    padding[1, slice(0, 7) if where == "front" or window else slice(3, 10)] = True
    longer = torch.full((2, steps + 7, x.shape[2]), torch.nan, dtype=x.dtype)
    longer[~padding] = x.expand(2, -1, -1).reshape(-1, x.shape[2])
    for causal in (False, True) if window is None else (True,):
        y = layer(longer, key_padding_mask=padding, is_causal=causal, window=window)
        wanted = layer(x, is_causal=causal, window=window)
        torch.testing.assert_close(y[~padding].view(2, steps, -1), wanted.expand(2, -1, -1))
        last = layer(longer, key_padding_mask=padding, is_causal=causal, window=window, last_only=True)
        torch.testing.assert_close(last, wanted[:, -1:].expand(2, -1, -1))


@torch.no_grad()
@pytest.mark.parametrize("causal", [False, True])
def test_padding_behind_changes_nothing_in_a_partition(partitioned, causal: bool) -> None:
    layer, x = partitioned
    steps = x.shape[1]
    longer = torch.cat([x, torch.full((1, 40, 16), torch.nan, dtype=x.dtype)], 1)
    padding = torch.arange(steps + 40).unsqueeze(0) >= steps
    found = layer(longer, key_padding_mask=padding, is_causal=causal)[:, :steps]
    torch.testing.assert_close(found, layer(x, is_causal=causal))
    last = layer(longer, key_padding_mask=padding, is_causal=causal, last_only=True)
    torch.testing.assert_close(last[:, 0], found[:, -1])


@torch.no_grad()
def test_rows_of_different_lengths_have_partitions_of_their_own() -> None:
    layer, x = layer_of(selection="sqrt"), tokens(60, batch=3)
    lengths = torch.tensor([60, 25, 41])
    padding = torch.arange(60) >= lengths.unsqueeze(1)
    y = layer(x, key_padding_mask=padding)
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(y[row, :length], layer(x[row : row + 1, :length])[0])


@pytest.mark.parametrize("topk", [3, None], ids=["top3", "pairwise"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", TIMES.values(), ids=TIMES)
def test_nothing_in_padding_matters_wherever_it_stands(options: dict, causal: bool, topk: int | None) -> None:
    if topk is None and "score_gradient" in options:
        pytest.skip("without Top-K there is no choice to train")
    layer, x = layer_of(**{**options, "topk": topk}), tokens(9)
    t = torch.arange(9.0, dtype=torch.float64).repeat(2, 1) * 1.5
    padding = torch.zeros(2, 9, dtype=torch.bool)
    padding[0, :2] = True
    padding[0, 5] = True
    padding[1] = True  # a row of nothing but padding
    hidden = padding.unsqueeze(-1)
    found = []
    for filler, late in ((0.0, 0.0), (torch.nan, torch.nan)):
        layer.zero_grad()
        given = x.masked_fill(hidden, filler).requires_grad_()
        y = layer(given, t=t.masked_fill(padding, late), key_padding_mask=padding, is_causal=causal)
        y[0, ~padding[0]].square().sum().backward()
        grads = [p.grad for p in layer.parameters() if p.grad is not None]
        assert all(torch.isfinite(g).all() for g in grads)
        found.append([y[0, ~padding[0]], *grads])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@torch.no_grad()
@pytest.mark.parametrize("options", [TIMES["gap"], TIMES["elapsed"]], ids=["gap", "elapsed"])
def test_padding_in_front_is_as_if_it_were_not_there(options: dict) -> None:
    layer, x = layer_of(**options), tokens(9)
    t = torch.rand(2, 9, dtype=torch.float64).cumsum(1)
    padding = torch.arange(9).expand(2, 9) < 3
    y = layer(x, t=t, key_padding_mask=padding, is_causal=True)[:, 3:]
    torch.testing.assert_close(y, layer(x[:, 3:], t=t[:, 3:], is_causal=True))


def test_a_step_after_a_write_through_data_uses_the_new_weights() -> None:
    layer, other, x = layer_of(), layer_of(seed=1), tokens(1)[:, 0]
    with torch.no_grad():
        layer.step(x, None, layer.init_state(2, 4))
        for p, q in zip(layer.parameters(), other.parameters(), strict=True):
            p.data.copy_(q.data + 0.1)
        y, _ = layer.step(x, None, layer.init_state(2, 4))
        torch.testing.assert_close(y, layer(x.unsqueeze(1))[:, 0])


def test_a_running_stream_follows_a_parametrised_weight() -> None:
    layer, x = layer_of(), tokens(1)[:, 0]
    torch.nn.utils.parametrizations.weight_norm(layer.k_gate, "weight")
    torch.nn.utils.parametrizations.weight_norm(layer.backbone.sensory, "weight")
    with torch.no_grad():
        _, state = layer.step(x, None, layer.init_state(2, 1))
        for module in (layer.k_gate, layer.backbone.sensory):
            module.parametrizations.weight.original0.mul_(-2.0)
        y, _ = layer.step(x, None, state)
        torch.testing.assert_close(y, layer(x.unsqueeze(1))[:, 0])


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_a_gradient_penalty_is_right_with_many_pairs(options: dict, monkeypatch) -> None:
    layer, x = layer_of(**options), tokens(9).requires_grad_()
    t = torch.rand(2, 9, dtype=torch.float64).cumsum(1)
    parameters = [p for p in layer.parameters() if p.requires_grad]
    found = []
    for chunk in (1 << 20, 16):
        monkeypatch.setattr(pairwise, "PAIRS_AT_ONCE", chunk)
        (g,) = torch.autograd.grad(layer(x, t=t, is_causal=True).square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(g.square().sum(), parameters, allow_unused=True, materialize_grads=True))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_a_gradient_penalty_through_dropout_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(pairwise, "PAIRS_AT_ONCE", 16)
    layer, x = layer_of(dropout=0.5).train(), tokens(9).requires_grad_()
    with pytest.raises(RuntimeError, match="dropout=0"):
        torch.autograd.grad(layer(x).sum(), x, create_graph=True)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"score_gradient": "straight-through"},
        {"unfolds": 1},
        {"mode": Steady(), "quadrature": "constant"},
        EVERYTHING,
    ],
    ids=str,
)
def test_every_trainable_parameter_gets_a_gradient(options: dict) -> None:
    """Distributed training waits for those that get none."""
    layer = layer_of(**options)
    layer(tokens(9), t=torch.rand(2, 9).cumsum(1)).square().sum().backward()
    assert [n for n, p in layer.named_parameters() if p.requires_grad and p.grad is None] == []


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("options", [{}, {"selection": "sqrt"}], ids=["exact", "sqrt"])
def test_a_traced_layer_chooses_keys_anew_for_each_input(options: dict) -> None:
    layer = layer_of(**options)
    traced = torch.jit.trace(layer, (tokens(24),), check_trace=False)
    other = tokens(24).flip(1) * 1.7
    torch.testing.assert_close(traced(other), layer(other))


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_function_transforms_follow_the_layer(options: dict, monkeypatch) -> None:
    monkeypatch.setattr(pairwise, "PAIRS_AT_ONCE", 16)
    layer, x = layer_of(**options), tokens(9, batch=3)
    rows = torch.func.vmap(lambda row: layer(row.unsqueeze(0), is_causal=True)[0])(x)
    torch.testing.assert_close(rows, layer(x, is_causal=True))
    weights = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(weights, x):
        return torch.func.functional_call(layer, weights, (x,)).square().sum()

    found = torch.func.grad(loss)(weights, x)
    layer(x).square().sum().backward()
    for name, p in layer.named_parameters():
        torch.testing.assert_close(found[name], torch.zeros_like(p) if p.grad is None else p.grad, msg=name)
    value, slope = torch.func.jvp(lambda x: layer(x).sum(), (x,), (torch.ones_like(x),))
    torch.testing.assert_close(value, layer(x).sum())
    h = 1e-6
    torch.testing.assert_close(slope, (layer(x + h).sum() - layer(x - h).sum()) / (2 * h), rtol=1e-4, atol=1e-5)


def test_last_only_in_cross_attention_is_the_last_query_whatever_the_keys_padding() -> None:
    layer, q, k = layer_of(), tokens(7), tokens(7) * 2
    padding = torch.arange(7).expand(2, 7) >= 4
    whole = layer(q, k, key_padding_mask=padding)
    torch.testing.assert_close(layer(q, k, key_padding_mask=padding, last_only=True), whole[:, -1:])


@pytest.mark.parametrize("options", [EVERYTHING, {"time_features": 2}], ids=["everything", "features"])
def test_cross_attention_with_times_of_its_own_equals_reference(options: dict) -> None:
    layer, q, k = layer_of(**options), tokens(5), tokens(8) * 2
    t, key_t = torch.rand(2, 5).double().cumsum(1) + 3, torch.rand(2, 8).double().cumsum(1)
    torch.testing.assert_close(layer(q, k, t=t, key_t=key_t), nac_forward(layer, q, k, t=t, key_t=key_t)[0])
    with pytest.raises(ValueError, match="key_t"):
        layer(q, k, t=t)


def test_a_layer_on_the_meta_device_is_there_as_a_whole() -> None:
    with torch.device("meta"):
        layer = NAC(16, 4, **EVERYTHING)
    assert {x.device.type for x in [*layer.parameters(), *layer.buffers()]} == {"meta"}
    layer.to_empty(device="cpu").load_state_dict(NAC(16, 4, **EVERYTHING).state_dict())
    assert torch.isfinite(layer(torch.randn(1, 5, 16))).all()


def test_the_kernel_asks_either_setting_of_torch_for_tf32() -> None:
    matmul = torch.backends.cuda.matmul
    if not hasattr(matmul, "fp32_precision"):
        pytest.skip("this torch has only the older setting")
    before = matmul.fp32_precision
    try:
        matmul.fp32_precision = "tf32"
        assert triton.tf32_allowed()
        matmul.fp32_precision = "ieee"
        assert not triton.tf32_allowed()
    finally:
        matmul.fp32_precision = before


def test_files_that_call_the_time_input_stamps_are_read() -> None:
    layer = build("nac-steady", 16, 4, 4, stamps="elapsed").nac
    assert layer.time_input == "elapsed"
    assert layer.rewire(in_features=3).time_input == "elapsed"


def test_rewiring_keeps_time_features_and_the_norm() -> None:
    layer = NAC(16, 4, in_features=6, **EVERYTHING)
    other = layer.rewire(in_features=[5, None, 0])
    old, new = layer.q_gate.effective()[0], other.q_gate.effective()[0]
    assert torch.equal(new[3:], old[6:]) and torch.equal(new[0], old[5])
    assert torch.equal(other.time_frequencies, layer.time_frequencies)
    assert other.input_norm.normalized_shape == (3,)


def test_a_clock_since_1970_is_read_to_the_millisecond() -> None:
    layer = layer_of(time_input="elapsed").float()
    x, t = tokens(9).float(), torch.rand(2, 9, dtype=torch.float64).cumsum(1)
    torch.testing.assert_close(
        layer(x, t=t + 1.7e9, is_causal=True), layer(x, t=t, is_causal=True), rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(
        streamed(layer, x, t + 1.7e9, 4), layer(x, t=t, is_causal=True, window=4), rtol=1e-4, atol=1e-5
    )
