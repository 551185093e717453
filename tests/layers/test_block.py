"""The stack of residual blocks around any layer."""

import pytest
import torch

from nacdrive import layers
from nacdrive.layers import contract
from nacdrive.layers.block import Pooling
from nacdrive.layers.contract import D, F, H, sequence
from tests.helpers.nightly import daily


def stack_of(window=12, **options):
    torch.manual_seed(0)
    return layers.build("stack", D, H, window, in_features=F, **options).eval()


@pytest.mark.parametrize("kind", daily(["nac-elapsed", "lstm", "mha", "s4"], ["lstm"]))
def test_a_stack_of_any_layer_keeps_the_contract(kind):
    from nacdrive.layers.block import StackLayer

    contract.check(StackLayer, layer=kind, depth=3)


@pytest.mark.parametrize(
    "options",
    [
        {"pooling": "mean"},
        {"pooling": "attention"},
        pytest.param({"pooling": "attention", "time_features": 3, "layer": "nac-lag"}, marks=pytest.mark.nightly),
        {"time_features": 3},
    ],
    ids=str,
)
def test_a_stack_with_pooling_or_time_features_keeps_the_contract(options):
    from nacdrive.layers.block import StackLayer

    contract.check(StackLayer, **{"layer": "mha", "depth": 2, **options})


@pytest.mark.parametrize("kind", ["mean", "attention"])
def test_pooling_is_its_equation_over_the_steps_that_are_no_padding(kind):
    torch.manual_seed(0)
    pooling, x = Pooling(kind, D, H, window=5), torch.randn(2, 9, D)
    if kind == "attention":
        torch.nn.init.normal_(pooling.query, std=3.0)
    padding = torch.zeros(2, 9, dtype=torch.bool)
    padding[0, 6:] = True
    padding[1, 2] = True
    y = pooling(x, padding)
    for b, i in ((0, 5), (1, 8), (1, 3), (0, 0)):
        seen = [j for j in range(max(0, i - 4), i + 1) if not padding[b, j]]
        for h in range(H):
            part = x[b, seen, h * D // H : (h + 1) * D // H]
            score = part @ pooling.query[h] / (D // H) ** 0.5 if kind == "attention" else torch.zeros(len(seen))
            wanted = (score.softmax(0).unsqueeze(1) * part).sum(0)
            torch.testing.assert_close(y[b, i, h * D // H : (h + 1) * D // H], wanted)
    torch.testing.assert_close(pooling.last(x, padding), torch.stack([y[0, 5], y[1, 8]]))


def test_the_mean_of_a_long_window_weighs_the_first_step_as_the_last():
    pooling, x = Pooling("mean", D, H, window=50), torch.randn(1, 9, D)
    torch.testing.assert_close(pooling.last(x), x.mean(1))


def test_a_pooling_that_there_is_not_is_named():
    with pytest.raises(ValueError, match="pooling='max'; allowed is one of last, mean, attention"):
        stack_of(pooling="max")


@pytest.mark.parametrize("pooling", ["last", "mean", "attention"])
def test_networks_for_series_and_for_driving_take_a_stack(pooling):
    from nacdrive.models.config import PolicyConfig
    from nacdrive.models.driving import DrivingNetwork
    from nacdrive.models.policy import Policy
    from nacdrive.tasks import load_task

    options = {"layer": "mha", "pooling": pooling, "depth": 1}
    task = load_task("synthetic-recall")
    samples = task.part("train", 0, 3)
    network = task.network("stack", samples, **options).eval()
    x, t = samples[0].fields["x"][None].expand(2, -1, -1), samples[0].fields["t"][None].expand(2, -1)
    padding = torch.zeros(2, x.shape[1] + 3, dtype=torch.bool)
    padding[:, x.shape[1] :] = True
    longer = torch.cat([x, x[:, :3]], 1), torch.cat([t, t[:, -3:]], 1)
    torch.testing.assert_close(network(*longer, padding), network(x, t, padding[:, : x.shape[1]]))

    config = PolicyConfig("carracing", "stack", ((0.0, 1.0, 0.0), (1.0, 0.0, 0.0)), window=4, options=options)
    torch.manual_seed(0)
    driving = DrivingNetwork(config).eval()
    frames = torch.randint(0, 256, (1, 6, 96, 96, 3), dtype=torch.uint8)
    times = torch.arange(6) * config.gap_s
    policy = Policy(driving, "stack")
    policy.reset()
    scores = []
    for frame, now in zip(frames[0], times.tolist(), strict=True):
        policy.step(frame.numpy(), now)
        scores.append(policy.last_decision().scores)
    with torch.inference_mode():
        wanted = driving(frames, times[None])[0]
    torch.testing.assert_close(torch.stack([torch.as_tensor(s) for s in scores]), wanted, atol=1e-4, rtol=1e-4)


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
    states = layer.neuron_states(x[:1], t[:1])
    assert states["weights"].shape[0] == H
    assert layer.circuit()["groups"]["motor"] == 2
    first, last = layer.blocks[0], layer.blocks[-1]
    assert first is not last
    seen = []
    last.layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    layer(x[:1], t[:1])
    torch.testing.assert_close(states["weights"], last.layer.neuron_states(seen[0], t[:1])["weights"])


@pytest.mark.parametrize("option", [{"depth": 0}, {"expansion": -1.0}, {"dropout": 1.0}])
def test_a_bad_option_is_named(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        stack_of(**option)
