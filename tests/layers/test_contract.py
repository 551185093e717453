"""One contract, every registered layer."""

import itertools
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nacdrive import layers
from nacdrive.common.errors import UserError
from nacdrive.layers import contract, registry
from nacdrive.layers.attention import MHALayer
from nacdrive.layers.contract import B, D, F, H, T, sequence
from nacdrive.layers.ct_rnn import CTRNNLayer
from nacdrive.layers.rnn import LSTMLayer


def layer_of(name, window):
    torch.manual_seed(0)
    return layers.build(name, D, H, window, in_features=F).eval()


@pytest.fixture(params=layers.names())
def name(request):
    return request.param


@pytest.mark.parametrize("law", contract.LAWS, ids=[law.__name__ for law in contract.LAWS])
def test_every_layer_keeps_the_law(name, law):
    def make(window, **options):
        torch.manual_seed(0)
        return layers.build(name, D, H, window, in_features=F, **options).eval()

    law(make)


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")  # of rela: torch is slower so
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_every_layer_trains_and_drives_under_autocast(name, given):
    (x, t), padding = sequence(), torch.zeros(B, T, dtype=torch.bool)
    padding[0, 8:] = True
    for window in (4, 50):
        layer = layer_of(name, window)
        wanted = layer(x.to(given).float(), t, padding).detach()
        with torch.autocast("cpu", torch.bfloat16):
            y = layer(x.to(given), t, padding)
            driven = contract.steps(layer, x.to(given), t)
        y.float().square().sum().backward()
        assert all(p.grad.isfinite().all() for p in layer.parameters() if p.grad is not None)
        torch.testing.assert_close(y[~padding].float(), wanted[~padding], atol=0.15, rtol=0.1)
        torch.testing.assert_close(driven[1].float(), wanted[1], atol=0.15, rtol=0.1)


@torch.no_grad()
def test_a_caller_may_fill_the_same_tensors_anew_for_every_step(name):
    layer, (x, t) = layer_of(name, 4), sequence()
    state, mine, clock = layer.init_state(B), torch.empty(B, F), torch.empty(B)
    rows = []
    for i in range(T):
        y, state = layer.step(mine.copy_(x[:, i]), clock.copy_(t[:, i]), state)
        rows.append(y)
    torch.testing.assert_close(torch.stack(rows, 1), contract.steps(layer, x, t))


@torch.no_grad()
def test_times_in_whole_seconds_are_times(name):
    layer, (x, _) = layers.build(name, D, H, 4, in_features=F, gap_s=0.4), sequence()
    t = torch.tensor([[0, 1, 3, 4, 9, 10, 11, 15, 16, 17, 20]]).expand(B, T)
    layer.eval()
    torch.testing.assert_close(layer(x, t), layer(x, t.double()))
    torch.testing.assert_close(contract.steps(layer, x, t), contract.steps(layer, x, t.double()))


@torch.no_grad()
def test_a_state_of_another_window_is_as_a_layer_of_that_window(name):
    (x, t), layer = sequence(), layer_of(name, 4)
    for window in (2, 9):
        other, state, rows = layer_of(name, window), layer.init_state(B, window), []
        other.load_state_dict(layer.state_dict())
        for i in range(T):
            y, state = layer.step(x[:, i], t[:, i], state)
            rows.append(y)
        torch.testing.assert_close(torch.stack(rows, 1), other(x, t), atol=1e-5, rtol=1e-4)
    for window, words in ((0, "window=0; allowed is 1 "), (2.5, "window=2.5; allowed is a whole number")):
        with pytest.raises(ValueError, match=words):
            layer.init_state(B, window)


def test_every_layer_follows_the_default_dtype_and_device(name):
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        layer, x = layer_of(name, 4), torch.randn(B, T, F)
        assert layer(x, torch.rand(B, T).cumsum(1)).dtype == layer.step(x[:, 0], None, layer.init_state(B))[0].dtype
        kinds = {s.dtype for s in layer.state_dict().values() if s.is_floating_point()}
    finally:
        torch.set_default_dtype(before)
    assert kinds == {torch.float64}
    with torch.device("meta"):
        assert {s.device.type for s in layer_of(name, 4).state_dict().values()} == {"meta"}


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"num_heads": 0}, "num_heads=0; allowed is 1 or more"),
        ({"num_heads": 2.0}, "num_heads=2.0; allowed is a whole number"),
        ({"num_heads": 3}, "d_model 16 is not divisible by 3 heads"),
        ({"in_features": 0}, "in_features=0; allowed is 1 or more"),
        ({"d_model": 0}, "d_model=0; allowed is [124] or more"),
        ({"window": 2.5}, "window=2.5; allowed is a whole number"),
    ],
    ids=str,
)
def test_a_size_that_cannot_be_is_named(sizes, words):
    with_heads = ("mha", "mtan", "performer", "odeformer", "cta", "contiformer", "contiformer-linear", "nac-exact")
    for name in (*with_heads, "nac-key", "stack", *(() if "num_heads" in sizes else ("lstm", "ct-rnn", "s4"))):
        with pytest.raises(ValueError, match=words):
            layers.build(name, **{"d_model": D, "num_heads": H, "window": 4, **sizes})


class Forgetful(LSTMLayer):
    """Streams from nothing at every step."""

    def step(self, x, t, state):
        return super().step(x, t, self.init_state(len(x)))


class Clairvoyant(MHALayer):
    """Sees the future."""

    def forward(self, x, t=None, padding=None):
        return super().forward(x, t, padding) + x.square().mean(dim=(1, 2), keepdim=True)


class Curious(LSTMLayer):
    """Looks into padding."""

    def forward(self, x, t=None, padding=None):
        return super().forward(x, t, None)


class Narrow(LSTMLayer):
    """Gives half of the width."""

    def forward(self, x, t=None, padding=None):
        return super().forward(x, t, padding)[..., : self.d_model // 2]


class Idle(LSTMLayer):
    """Has a parameter that does nothing."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.extra = torch.nn.Parameter(torch.ones(3))


class Timeless(LSTMLayer):
    """Says that it feels time."""

    time_sense = "gaps"


class Social(LSTMLayer):
    """Mixes the sequences of a batch."""

    def forward(self, x, t=None, padding=None):
        return super().forward(x + 0 * x.nan_to_num(), t, padding) + x.nan_to_num().mean(dim=(0, 2))[None, :, None]

    def step(self, x, t, state):
        y, state = super().step(x, t, state)
        return y + x.mean(), state


class Fleeting(LSTMLayer):
    """Keeps a number that it needs out of its state_dict."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        Fleeting.count = getattr(Fleeting, "count", 0) + 1
        self.offset = float(Fleeting.count)

    def forward(self, x, t=None, padding=None):
        return super().forward(x, t, padding) + self.offset

    def step(self, x, t, state):
        y, state = super().step(x, t, state)
        return y + self.offset, state


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (Narrow, "shape"),
        (Forgetful, "streaming"),
        (Clairvoyant, "streaming"),
        (Curious, "padding"),
        (Idle, "gradients"),
        (Timeless, "gaps"),
    ],
)
def test_a_layer_that_breaks_a_law_is_told_which(broken, law):
    with pytest.raises(contract.BrokenLawError, match=f"^{broken.__name__} breaks the law '{law}': ") as caught:
        contract.check(broken)
    assert "\n" not in str(caught.value)


class Late(CTRNNLayer):
    """Answers at any time as if nothing had happened since the last step."""

    def at(self, x, t, t_query, asked=None, padding=None):
        return super().at(x, t, t[:, -1:].expand_as(t_query), asked, padding)


@pytest.mark.parametrize("name", ["nac-key", "nac-lag", "ct-rnn", "s4", "mtan", "stack"])
def test_at_any_time_a_layer_answers_as_a_step_that_nothing_remembers(name):
    layer, (x, t) = layer_of(name, 4), sequence()
    padding = torch.zeros(B, T, dtype=torch.bool)
    padding[1, 8:] = True
    query = torch.stack([t[:, 3], t[:, 6] + 0.01, t[:, 0], t[:, -1] + 2.0], dim=1)
    answers = layer.at(x, t, query, padding=padding)
    for row in range(B):
        for place, time in enumerate(query[row]):
            state = layer.init_state(1)
            for i in range(T):
                if not padding[row, i] and t[row, i] <= time:
                    _, state = layer.step(x[row : row + 1, i], t[row : row + 1, i], state)
                    newest = x[row : row + 1, i]
            wanted, _ = layer.step(newest, time.reshape(1), state)
            torch.testing.assert_close(answers[row, place], wanted[0], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["nac-key", "nac-elapsed", "gru-ode", "mtan", "stack"])
def test_at_counts_padding_inside_the_window_as_one_more_step_does(name):
    layer, (x, t) = layer_of(name, 4), sequence()
    padding = torch.zeros(B, T, dtype=torch.bool)
    padding[0, [1, 4]] = padding[1, 3] = padding[1, 8:] = True
    stray = torch.where(padding, 0.0, t)
    query = torch.stack([t[:, 2], t[:, 5], t[:, 6] + 0.01, t[:, -1] + 2.0], dim=1)
    answers = layer.at(x.masked_fill(padding.unsqueeze(-1), torch.nan), stray, query, padding=padding)
    for row, place in itertools.product(range(B), range(query.shape[1])):
        end = max(i for i in range(T) if not padding[row, i] and t[row, i] <= query[row, place]) + 1
        steps = torch.cat([x[row, :end], x[row, end - 1 : end]]).unsqueeze(0)
        times = torch.cat([t[row, :end], query[row, place : place + 1]]).unsqueeze(0)
        hidden = torch.nn.functional.pad(padding[row, :end], (0, 1)).unsqueeze(0)
        torch.testing.assert_close(answers[row, place], layer(steps, times, hidden)[0, -1], atol=2e-5, rtol=1e-4)


def test_at_takes_times_that_the_batch_shares_and_refuses_what_is_none():
    layer, (x, t) = layer_of("ct-rnn", 4), sequence()
    query = t[0, -3:]
    torch.testing.assert_close(layer.at(x, t[0], query), layer.at(x, t[:1].expand(B, -1), query.expand(B, -1)))
    nan, asked = torch.full((B, 1), torch.nan), x[:, :3]
    for call, words in (
        (lambda: layer.at(x, None, query), "t is a NoneType; allowed is a torch tensor"),
        (lambda: layer.at(x, t, 0.5), "t_query is a float; allowed is a torch tensor"),
        (lambda: layer.at(x, t, t[0, 0]), r"t_query=\[\]; allowed is \[batch, times\] \(seconds\), none of them 0"),
        (lambda: layer.at(x, t, t[:, :0]), r"t_query=\[2, 0\]; allowed is \[batch, times\]"),
        (lambda: layer.at(x, t, t[[0, 0, 0]]), r"t_query has shape \(3, 11\); allowed is \[11\] or \[2, 11\]"),
        (lambda: layer.at(x, t, nan), "t_query=nan; allowed is the time of the first step or later"),
        (lambda: layer.at(x, t[:, 1:], query), r"t has shape \(2, 10\); allowed is \[11\] or"),
        (lambda: layer.at(x[:, 0], t, query), r"x has shape \(2, 6\)"),
        (lambda: layer.at(x, t, query, asked[..., 1:]), r"asked has shape \(2, 3, 5\)"),
        (lambda: layer.at(x, t, query, asked[:, 1:]), r"asked=\[2, 2, 6\]; allowed is \[2, 3, 6\]"),
    ):
        with pytest.raises(ValueError, match=f"^{words}"):
            call()


def test_at_says_what_it_cannot_answer():
    x, t = sequence()
    with pytest.raises(ValueError, match="'LSTMLayer'; allowed is one that feels time"):
        layer_of("lstm", 4).at(x, t, t[:, :1])
    with pytest.raises(ValueError, match=r"t_query=.*; allowed is the time of the first step or later"):
        layer_of("ct-rnn", 4).at(x, t, t[:, :1] - 1)


def make_of(kind):
    def make(window, **options):
        torch.manual_seed(0)
        return kind(F, D, H, window, **options).eval()

    return make


@pytest.mark.parametrize(
    ("broken", "law", "meaning"),
    [
        (Clairvoyant, contract.window, "it is not causal"),
        (Social, contract.batch, "alone is as in a batch"),
        (Late, contract.at, "at a step's time"),
        (Fleeting, contract.state, "same state_dict"),
    ],
)
def test_each_law_catches_what_breaks_it(broken, law, meaning):
    with pytest.raises(contract.BrokenLawError, match=meaning):
        law(make_of(broken))


def test_a_layer_that_keeps_all_laws_passes_and_leaves_the_random_stream_alone():
    before = torch.get_rng_state()
    contract.check(LSTMLayer)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_state_of_a_layer_of_another_kind_or_size_is_refused_in_one_sentence():
    x = torch.zeros(1, 16)
    kinds = {name: layers.build(name, 16, 4, 4) for name in ("nac-exact", "nac-key", "gru", "ltc", "mha", "stack")}
    kinds["mha of 2 heads"] = layers.build("mha", 16, 2, 4)
    kinds["stack of 3"] = layers.build("stack", 16, 4, 4, depth=3)
    states = {name: layer.step(x, None, layer.init_state(1))[1] for name, layer in kinds.items()}
    for name, of in itertools.permutations(kinds, 2):
        with pytest.raises(ValueError, match="as this layer's own init_state and step give"):
            kinds[name].step(x, None, states[of])
    double = layers.build("gru", 16, 4, 4).double()
    with pytest.raises(ValueError, match=r"u of the state has shape \(1, 1, 16\), torch.float64"):
        kinds["gru"].step(x, None, double.step(x.double(), None, double.init_state(1))[1])


def test_times_of_another_shape_are_refused_in_one_sentence(name):
    x, t = sequence()
    for layer in (layer_of(name, 4), layers.build("stack", D, H, 4, in_features=F, layer=name, time_features=2)):
        for wrong in (t[:, 1:], t.T, t[:1].expand(B + 1, -1), t.unsqueeze(-1), t[0, 0], t > 0):
            with pytest.raises(ValueError, match=r"t has (shape|dtype) .*; allowed is .* \(seconds\)"):
                layer(x, wrong)
        for wrong in (t[:1, 0].expand(B + 1), t[:, :1], t[0, 0]):
            with pytest.raises(ValueError, match=r"t has shape .*; allowed is .* \(seconds\)"):
                layer.step(x[:, 0], wrong, layer.init_state(B))


@torch.no_grad()
def test_steps_of_another_shape_are_refused_in_one_sentence(name):
    layer, (x, t) = layer_of(name, T), sequence()
    for given, words in ((x[0], "has shape"), (x[..., 1:], "has shape"), (x[:0], "has shape"), (x.double(), "dtype")):
        with pytest.raises(ValueError, match=rf"^(x|query) has {words.removeprefix('has ')}"):
            layer(given, t[: len(given)])


@torch.no_grad()
@pytest.mark.parametrize("convert", [Tensor.numpy, Tensor.tolist], ids=["ndarray", "list"])
def test_what_is_no_tensor_is_refused_in_one_sentence(name, convert):
    (x, t), padding = sequence(), torch.zeros(B, T, dtype=torch.bool)
    for layer in (layer_of(name, 4), layers.build("stack", D, H, 4, in_features=F, layer=name)):
        state = layer.init_state(B)
        for call, given, words in (
            (layer, (convert(x), t), "(x|query)"),
            (layer, (x, convert(t)), "t"),
            (layer, (x, t, convert(padding)), "key_padding_mask"),
            (layer.step, (convert(x[:, 0]), t[:, 0], state), "x"),
            (layer.step, (x[:, 0], convert(t[:, 0]), state), "t"),
        ):
            with pytest.raises(ValueError, match=rf"^{words} is a (ndarray|list); allowed is a torch tensor$"):
                call(*given)


@torch.no_grad()
def test_a_step_at_a_time_that_is_no_real_number_is_refused(name):
    x, t = sequence()
    for layer in (layer_of(name, 4), layers.build("stack", D, H, 4, in_features=F, layer=name)):
        for wrong in (t[:, 0] > 0, t[:, 0].cfloat()):
            with pytest.raises(ValueError, match=r"^t has dtype .*; allowed is a real dtype \(seconds\)$"):
                layer.step(x[:, 0], wrong, layer.init_state(B))


@torch.no_grad()
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_s4_runs_in_half_precision(kind):
    layer, (x, t) = layer_of("s4", T), sequence()
    for times in (None, t):
        wanted = layer(x.to(kind).float(), times)
        y = layer_of("s4", T).to(kind)(x.to(kind), times)
        assert y.dtype == kind
        torch.testing.assert_close(y.float(), wanted, atol=0.05, rtol=0.05)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        *(
            (name, {"dropout": 0.1}, "dropout=0.1; allowed is 0: ")
            for name in ("linear-attention", "rela", "performer")
        ),
        ("mha", {"dropout": 3.0}, "dropout=3.0; allowed is 0 <= dropout < 1"),
        ("mha", {"dropout": "x"}, "dropout='x'; allowed is 0 <= dropout < 1"),
        ("nac-key", {"dropout": "x"}, "dropout='x'; allowed is 0 <= dropout < 1"),
        *((name, {"unfolds": 0}, "unfolds=0; allowed is 1 step or more") for name in ("ltc", "mmrnn", "odeformer")),
        ("ltc", {"unfolds": -1}, "unfolds=-1; allowed is 1 step or more"),
        *((name, {"unfolds": 2.5}, "unfolds=2.5; allowed is a whole number") for name in ("ct-rnn", "gru-ode")),
        ("cfc", {"backbone_units": 0}, "backbone_units=0; allowed is 1 or more"),
        ("s4", {"state": 1}, "state=1; allowed is 2 or more"),
        ("performer", {"features": -3}, "features=-3; allowed is 1 direction or more"),
        ("performer", {"redraw": -1}, "redraw=-1; allowed is 0 or more"),
        ("phased-lstm", {"open_ratio": 1.5}, "open_ratio=1.5; allowed is a share between 0 and 1"),
        ("phased-lstm", {"periods": (0.0, 2.0)}, r"periods=\(0.0, 2.0\); allowed is "),
    ],
    ids=str,
)
def test_an_option_that_cannot_be_is_named(name, options, words):
    with pytest.raises(ValueError, match=f"^{words}"):
        layers.build(name, D, H, 4, **options)


def test_gradients_reach_the_times_of_every_layer_that_feels_them(name):
    layer, (x, t) = layer_of(name, T), sequence()
    given = t.clone().requires_grad_()
    y = layer(x, given)
    torch.testing.assert_close(y, layer(x, t), rtol=1e-4, atol=1e-5)
    if layer.time_sense != "none" and name != "contiformer":  # whose backward pass leaves times out
        y.square().sum().backward()
        assert given.grad is not None and given.grad.isfinite().all() and bool(given.grad.any())


def test_times_may_be_shared_by_the_batch(name):
    layer, (x, t) = layer_of(name, 4), sequence()
    torch.testing.assert_close(layer(x, t[0]), layer(x, t[:1].expand(B, -1)))


def test_an_error_of_the_layer_itself_becomes_one_sentence():
    class Failing(LSTMLayer):
        def forward(self, x, t=None, padding=None):
            raise RuntimeError("no such thing")

    with pytest.raises(contract.BrokenLawError, match="Failing fails at the law 'shape': RuntimeError: no such thing"):
        contract.check(Failing)


def test_a_layer_of_ones_own_is_built_by_its_reference():
    layer = layers.build(f"{__name__}:Timeless", D, H, 4, in_features=F)
    assert isinstance(layer, Timeless)
    x, t = sequence()
    assert layer(x, t).shape == (B, T, D)


def test_a_registered_layer_brings_its_options(monkeypatch):

    monkeypatch.setattr(registry.LAYERS, "_registered", {})
    monkeypatch.setattr(registry, "OPTIONS", dict(registry.OPTIONS))
    layers.register("my-nac", "nacdrive.layers.nac:NACLayer", {"topk": 3})
    assert layers.build("my-nac", D, H, 4).nac.topk == 3
    assert layers.build("my-nac", D, H, 4, topk=5).nac.topk == 5
    assert "my-nac" in layers.names()
    with pytest.raises(UserError, match="belongs to nacdrive"):
        layers.register("lstm", LSTMLayer)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Narrow, "breaks the law 'shape': forward gives .* run nacdrive.layers.contract.check\\(Narrow\\)"),
        (torch.nn.Linear, "cannot be built as Name"),
        (
            lambda *sizes, **options: torch.nn.Identity(),
            "makes a Identity, which is not a nacdrive.layers.SequenceLayer",
        ),
    ],
    ids=["narrow", "other arguments", "other class"],
)
def test_a_layer_that_is_none_is_refused_in_one_sentence(monkeypatch, kind, words):

    monkeypatch.setattr(registry.LAYERS, "_registered", {})
    monkeypatch.setattr(registry, "OPTIONS", dict(registry.OPTIONS))
    layers.register("mine", kind)
    with pytest.raises(UserError, match=words):
        layers.build("mine", D, H, 4, in_features=F)


@pytest.mark.parametrize("name", ["mha", "gru", "lstm", "cfc", "s4", "mtan", "nac-key-plain"])
def test_any_layer_takes_what_nac_lag_has_beside_its_circuit(name):
    layer = layers.build(f"{name}-lag", D, H, 6, in_features=F, gap_s=0.5)
    x, t = sequence()
    moved = t.clone()
    moved[:, :-1] -= 0.3
    assert layer.time_sense == "clock" and layer.gap_s == layer.blocks[0].layer.gap_s == 0.5
    with torch.no_grad():
        assert (layer.last(x, t) - layer.last(x, moved)).abs().max() > 1e-4
    lags = "times" if "key" in name or name == "mtan" else "gaps" if name in ("cfc", "s4") else None
    assert (f"feels {lags} itself" if lags else "cannot take lags") in registry.row_note(f"{name}-lag")


def test_a_layer_of_ones_own_has_its_name_for_itself(monkeypatch):
    monkeypatch.setattr(registry.LAYERS, "_registered", {})
    assert registry.of_lag("gru-lag") == "gru"
    layers.register("gru-lag", "nacdrive.layers.rnn:GRULayer")
    assert registry.of_lag("gru-lag") is None


def test_a_layer_with_the_options_of_another_is_known_by_its_name_alone():
    assert layers.build("nac-gated-lag", D, H, 4, topk=3).blocks[0].layer.nac.topk == 3
    assert registry.of_lag("nac-lag") is registry.of_lag("gru") is registry.of_lag("mine:Layer-lag") is None
    assert "as the authors' code computes it" in registry.row_note("nac-constant")
    assert registry.row_note("gru") is None and not [name for name in layers.names() if name.endswith("mha-lag")]
    layers.check_name("gru-lag")
    for name in ("nac-2k-lag", "grue-lag", "nac-key-plain"):
        with pytest.raises(UserError, match="unknown model"):
            layers.check_name(name)
    with pytest.raises(UserError, match="there is no 'stack-lag'"):
        layers.check_name("stack-lag")


@torch.no_grad()
def test_the_key_form_without_a_circuit_moves_every_moment_alike():
    layer = layers.build("nac-key-plain", D, H, 6, in_features=F)
    x, t = sequence()
    states = layer.nac.neuron_states(x, t=t)
    assert all(states[gate].std(-1).max() < 1e-7 for gate in ("phi", "omega", "rho"))
    assert layer.circuit() is None and layer.neuron_states(x[:1], t[:1])["weights"].shape == (H, T)
    assert not [name for name, _ in layer.named_parameters() if "backbone" in name]


def test_the_nineteen_baselines_of_the_table_are_registered():
    assert len(layers.BASELINES) == len(set(layers.BASELINES)) == 19
    assert set(layers.BASELINES) < set(layers.names())


def test_ablations_are_for_the_bench_alone():
    listed = layers.names()
    assert len(layers.names(ablations=True)) == len(listed) + 12
    assert "nac-2k" not in listed and "nac-pw" in listed
    assert layers.build("nac-2k", D, H, 4).nac.topk == 2  # files that were trained with it load
    layers.check_name("nac-pw")
    with pytest.raises(UserError, match="unknown model 'nac-2k'"):
        layers.check_name("nac-2k")


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UserError, match="did you mean 'nac-steady'"):
        layers.build("nac-stedy", D, H, 4)


def test_nac_shows_its_neurons_and_its_circuit():
    layer, (x, t) = layer_of("nac-exact", 4), sequence()
    states = layer.neuron_states(x[:1, -4:], t[:1, -4:])
    assert states["phi"].shape == states["weights"].shape == (H, 4)
    assert states["q"].shape == (H, D // H)
    assert states["k"].shape == (H, 4, D // H)
    circuit = layer.circuit()
    assert circuit["groups"]["motor"] == 2
    assert {edge[2] for edge in circuit["edges"]} == {"inter", "command", "motor"}


def test_a_model_files_layer_name_calls_nothing_but_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "harmful.py").write_text("called = []\ndef harm(*args, **options):\n    called.append(args)\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="is no sequence layer"):
        layers.build("harmful:harm", D, H, 4, in_features=F)
    import harmful

    assert not harmful.called


@torch.no_grad()
@pytest.mark.parametrize("wrong", ["float", "int", "short", "one row", "of steps"])
def test_a_padding_mask_of_another_kind_is_refused_in_one_sentence(name, wrong):
    x, t = sequence()
    padding = torch.zeros(B, T, dtype=torch.bool)
    given = {
        "float": padding.float(), "int": padding.int(), "short": padding[:, 1:], "one row": padding[:1],
        "of steps": padding[0],
    }[wrong]  # fmt: skip
    with pytest.raises(ValueError, match=r"key_padding_mask has (dtype|shape) .*; allowed is "):
        layer_of(name, T)(x, t, given)


@torch.no_grad()
@pytest.mark.parametrize("name", ["cfc", "ct-rnn", "nac-key", "gru-ode", "stack"])
def test_half_precision_knows_how_many_steps_there_were(name):
    torch.manual_seed(0)
    layer = layers.build(name, D, H, 6, in_features=F).bfloat16().eval()
    x = torch.randn(1, 6, F, dtype=torch.bfloat16).repeat(1, 60, 1)  # 360 steps: bfloat16 counts to 256
    y, given = layer(x), layer(x, torch.arange(360, dtype=torch.float64)[None] * layer.gap_s)
    torch.testing.assert_close(y, given, atol=0.05, rtol=0.05)
    torch.testing.assert_close(contract.steps(layer, x, None)[0, -6:], y[0, -6:], atol=0.05, rtol=0.05)


@pytest.mark.parametrize("name", ["contiformer", "s4", "nac-key"])
def test_gradients_of_gradients_are_right_or_refused(name):
    layer, (x, t) = layer_of(name, T), sequence()
    with pytest.raises(RuntimeError, match="gradients of gradients"):
        torch.autograd.grad(layer(x, t).square().sum(), layer.parameters(), create_graph=True)
