"""One contract, every registered layer."""

import pytest
import torch

from nacdrive import layers
from nacdrive.common.errors import UserError

B, T, F, D, H = 2, 11, 6, 16, 4


def layer_of(name, window):
    torch.manual_seed(0)
    return layers.build(name, D, H, window, in_features=F).eval()


def sequence_of(seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(B, T, F, generator=generator)
    t = torch.rand(B, T, generator=generator).cumsum(dim=1)
    return x, t


@pytest.fixture(params=layers.names())
def name(request):
    return request.param


@pytest.mark.parametrize("window", [1, 4, 50])
def test_step_repeated_equals_forward(name, window):
    layer, (x, t) = layer_of(name, window), sequence_of()
    state, rows = layer.init_state(B), []
    for i in range(T):
        y, state = layer.step(x[:, i], t[:, i], state)
        rows.append(y)
    torch.testing.assert_close(torch.stack(rows, dim=1), layer(x, t), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("window", [1, 4, 50])
def test_output_depends_on_the_window_and_nothing_else(name, window):
    layer, (x, t) = layer_of(name, window), sequence_of()
    changed = x.clone()
    changed[:, 5] += 1.0
    differs = (layer(changed, t) - layer(x, t)).abs().amax(dim=(0, 2)) > 1e-6
    assert not differs[:5].any(), "a later frame changed an earlier output"
    assert differs[5]
    assert not differs[5 + window :].any(), "a frame that had left the window changed an output"


def test_what_stands_in_padding_never_matters(name):
    layer, (x, t) = layer_of(name, 4), sequence_of()
    padding = torch.zeros(B, T, dtype=torch.bool)
    padding[0, 7:] = True
    padding[1, :2] = True
    padding[1, 6] = True
    other = torch.where(padding.unsqueeze(-1), torch.full_like(x, 9.0), x)
    late = torch.where(padding, t + 3.0, t)
    one, two = layer(x, t, padding)[~padding], layer(other, late, padding)[~padding]
    assert torch.isfinite(one).all()
    torch.testing.assert_close(one, two)


def test_padding_behind_a_sequence_leaves_its_outputs_alone(name):
    layer, (x, t) = layer_of(name, 4), sequence_of()
    padding = torch.zeros(B, T, dtype=torch.bool)
    padding[:, 8:] = True
    torch.testing.assert_close(layer(x, t, padding)[:, :8], layer(x[:, :8], t[:, :8]), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("window", [4, 50])
def test_last_is_the_last_step_of_forward_that_is_no_padding(name, window):
    layer, (x, t) = layer_of(name, window), sequence_of()
    padding = torch.zeros(B, T, dtype=torch.bool)
    padding[0, 7:] = True
    whole = layer(x, t, padding)
    expected = torch.stack([whole[0, 6], whole[1, T - 1]])
    torch.testing.assert_close(layer.last(x, t, padding), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("timed", [True, False])
def test_a_padding_step_is_as_if_it_were_not_there(name, timed):
    layer, (x, t) = layer_of(name, 50), sequence_of()
    valid = torch.tensor([1, 2, 3, 6, 7, 10])
    padding = torch.ones(B, T, dtype=torch.bool)
    padding[:, valid] = False
    x_nan = x.masked_fill(padding.unsqueeze(-1), torch.nan)
    whole = layer(x_nan, t if timed else None, padding)[:, valid]
    torch.testing.assert_close(whole, layer(x[:, valid], t[:, valid] if timed else None), atol=1e-5, rtol=1e-4)


def test_without_times_step_repeated_equals_forward(name):
    layer, (x, _) = layer_of(name, 4), sequence_of()
    state, rows = layer.init_state(B), []
    for i in range(T):
        y, state = layer.step(x[:, i], None, state)
        rows.append(y)
    torch.testing.assert_close(torch.stack(rows, dim=1), layer(x), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("window", [4, 50])
def test_gradients_reach_the_input_and_every_parameter(name, window):
    layer, (x, t) = layer_of(name, window).train(), sequence_of()
    x.requires_grad_()
    y = layer(x, t)
    assert y.shape == (B, T, D)
    (y * torch.linspace(-1, 1, D)).square().sum().backward()
    assert x.grad.isfinite().all()
    assert (x.grad.abs().amax(dim=2) > 0).all()
    for key, p in layer.named_parameters():
        assert p.grad is not None and p.grad.isfinite().all() and p.grad.any(), key


def test_gaps_matter_to_a_layer_that_says_so_and_to_no_other(name):
    layer, (x, t) = layer_of(name, 50), sequence_of()
    wider = t[:, :1] + 3 * (t - t[:, :1])
    moved = (layer(x, wider) - layer(x, t)).abs().amax()
    assert (moved > 1e-4) == (layer.time_sense != "none")


@pytest.mark.parametrize("gap", [0.0, 1e4])
@pytest.mark.parametrize("window", [4, 50])
def test_no_gap_breaks_a_number(name, window, gap):
    layer, (x, t) = layer_of(name, window).train(), sequence_of()
    t = t.clone()
    t[:, 5:] += gap - (t[:, 5:6] - t[:, 4:5])
    t[1] = gap * torch.arange(T)
    x.requires_grad_()
    y = layer(x, t)
    assert y.isfinite().all()
    y.sum().backward()
    assert x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_sequences_of_a_batch_do_not_meet(name):
    layer, (x, t) = layer_of(name, 50), sequence_of()
    torch.testing.assert_close(layer(x.flip(0), t.flip(0)), layer(x, t).flip(0), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(layer(x[:1], t[:1]), layer(x, t)[:1], atol=1e-5, rtol=1e-4)


def test_a_state_dict_makes_the_same_layer(name):
    layer, (x, t) = layer_of(name, 50), sequence_of()
    torch.manual_seed(1)
    other = layers.build(name, D, H, 50, in_features=F).eval()
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x, t), layer(x, t))


def test_double_precision_agrees_with_single(name):
    layer, (x, t) = layer_of(name, 50), sequence_of()
    single = layer(x, t)
    double = layer.double()(x.double(), t.double())
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), single, atol=1e-4, rtol=1e-3)


def test_a_gap_is_counted_in_typical_gaps(name):
    layer, (x, t) = layer_of(name, 50), sequence_of()
    torch.manual_seed(0)
    slow = layers.build(name, D, H, 50, in_features=F, gap_s=10.0).eval()
    torch.testing.assert_close(slow(x, 10 * t), layer(x, t), atol=1e-4, rtol=1e-3)


def test_when_the_clock_was_started_does_not_matter(name):
    layer, (x, t) = layer_of(name, 4), sequence_of()
    if layer.time_sense == "clock":
        pytest.skip("this layer reads the clock by its definition")
    torch.testing.assert_close(layer(x, t + 64.0), layer(x, t), atol=1e-4, rtol=1e-3)


def test_options_for_an_optimizer_name_parameters(name):
    layer = layer_of(name, 4)
    assert set(layer.optimizer_options()) <= {key for key, _ in layer.named_parameters()}


def test_the_nineteen_baselines_of_the_table_are_registered():
    assert len(layers.BASELINES) == len(set(layers.BASELINES)) == 19
    assert set(layers.BASELINES) < set(layers.names())


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UserError, match="did you mean 'nac-steady'"):
        layers.build("nac-stedy", D, H, 4)


def test_a_window_of_nothing_is_refused(name):
    with pytest.raises(ValueError, match="window"):
        layer_of(name, 0)


def test_nac_shows_its_neurons_and_its_circuit():
    layer, (x, t) = layer_of("nac-exact", 4), sequence_of()
    states = layer.neuron_states(x[:1, -4:], t[:1, -4:])
    assert states["phi"].shape == states["weights"].shape == (H, 4)
    assert states["q"].shape == (H, D // H)
    assert states["k"].shape == (H, 4, D // H)
    circuit = layer.circuit()
    assert circuit["groups"]["motor"] == 2
    assert {edge[2] for edge in circuit["edges"]} == {"inter", "command", "motor"}
