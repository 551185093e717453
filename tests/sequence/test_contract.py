"""One contract, every registered layer."""

import pytest
import torch

from nacdrive import sequence
from nacdrive.base.errors import UserError

B, T, F, D, H = 2, 11, 6, 16, 4


def layer_of(name, window):
    torch.manual_seed(0)
    return sequence.build(name, D, H, window, in_features=F).eval()


def sequence_of(seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(B, T, F, generator=generator)
    t = torch.rand(B, T, generator=generator).cumsum(dim=1)
    return x, t


@pytest.fixture(params=sequence.names())
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


def test_gradients_reach_every_parameter(name):
    layer, (x, t) = layer_of(name, 4), sequence_of()
    layer(x, t).square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in layer.parameters())


def test_when_the_clock_was_started_does_not_matter(name):
    layer, (x, t) = layer_of(name, 4), sequence_of()
    if layer.time_sense == "clock":
        pytest.skip("this layer reads the clock by its definition")
    torch.testing.assert_close(layer(x, t + 64.0), layer(x, t), atol=1e-4, rtol=1e-3)


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UserError, match="did you mean 'nac-steady'"):
        sequence.build("nac-stedy", D, H, 4)


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
