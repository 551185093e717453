"""The stack of residual blocks around any layer."""

import pytest
import torch

from nacdrive import layers
from nacdrive.layers import contract
from nacdrive.layers.contract import D, F, H, sequence


def stack_of(window=12, **options):
    torch.manual_seed(0)
    return layers.build("stack", D, H, window, in_features=F, **options).eval()


@pytest.mark.parametrize("kind", ["nac-elapsed", "lstm", "mha", "s4"])
def test_a_stack_of_any_layer_keeps_the_contract(kind):
    from nacdrive.layers.block import StackLayer

    contract.check(StackLayer, layer=kind, depth=3)


def test_a_stack_is_its_equations_written_out():
    layer, (x, t) = stack_of(layer="lstm", depth=2, expansion=3.0), sequence()
    y = layer.embedding(x)
    for block in layer.blocks:
        y = y + block.layer(torch.nn.functional.layer_norm(y, (D,)), t)
        first, second = block.feed_forward[1], block.feed_forward[3]
        hidden = torch.nn.functional.gelu(first(torch.nn.functional.layer_norm(y, (D,))))
        y = y + second(hidden)
    torch.testing.assert_close(layer(x, t), torch.nn.functional.layer_norm(y, (D,)))
    assert first.out_features == 3 * D


def test_without_feed_forward_a_block_is_the_layer_alone():
    assert all(block.feed_forward is None for block in stack_of(expansion=0).blocks)


def test_dropout_acts_in_training_alone():
    layer, (x, t) = stack_of(layer="lstm", dropout=0.5), sequence()
    assert torch.equal(layer(x, t), layer(x, t))
    layer.train()
    assert not torch.equal(layer(x, t), layer(x, t))


def test_the_layers_share_the_window():
    assert [block.layer.window for block in stack_of(window=13, depth=3, layer="mha").blocks] == [5, 5, 5]


def test_options_reach_the_layers():
    layer = stack_of(layer="nac-exact", layer_options={"topk": 3}, gap_s=0.5)
    assert layer.blocks[1].layer.nac.topk == 3
    assert layer.blocks[1].layer.nac.time_scale == 0.5
    names = dict(stack_of(layer="s4").named_parameters())
    options = stack_of(layer="s4").optimizer_options()
    assert options and set(options) <= set(names)


def test_the_last_layer_shows_its_neurons():
    layer, (x, t) = stack_of(layer="nac-exact", window=50), sequence()
    assert layer.neuron_states(x[:1], t[:1])["weights"].shape[0] == H
    assert layer.circuit()["groups"]["motor"] == 2


@pytest.mark.parametrize("option", [{"depth": 0}, {"expansion": -1.0}, {"dropout": 1.0}])
def test_a_bad_option_is_named(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        stack_of(**option)
