"""Live steps equal causal attention over the window."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nacdrive.nac import NAC, Steady

CASES = {
    "top3": {"topk": 3},
    "pairwise": {"topk": None},
    "steady": {"mode": Steady(), "topk": 3},
    "gap": {"time_input": "gap", "topk": 3, "time_scale": 0.2},
    "elapsed": {"time_input": "elapsed", "topk": 3, "time_scale": 0.2},
    "features": {"time_features": 3, "input_norm": True, "logit_scale": 8.0, "topk": 3},
    "everything": {"time_input": "elapsed", "time_features": 3, "input_norm": True, "logit_scale": 8.0, "topk": None},
    "sqrt": {"selection": "sqrt", "topk": 3},
    "gated": {"score_gradient": "gated", "topk": 3},
    "gated-elapsed": {"score_gradient": "gated", "topk": 3, "time_input": "elapsed", "logit_scale": 8.0},
    "straight-through": {"score_gradient": "straight-through", "topk": 3},
    "linear": {"activation": "linear", "topk": 3},
    "shared": {"share_backbone": True, "unfolds": 3},
    "constant": {"quadrature": "constant", "logit_scale": True},
}


def run(layer: NAC, x: torch.Tensor, t: torch.Tensor | None, window: int) -> torch.Tensor:
    state = layer.init_state(x.shape[0], window)
    outputs = []
    for i in range(x.shape[1]):
        y, state = layer.step(x[:, i], None if t is None else t[:, i], state)
        outputs.append(y)
    return torch.stack(outputs, 1)


@pytest.mark.parametrize("window", [1, 4, 13, 40])
@pytest.mark.parametrize("timed", [True, False], ids=["timed", "untimed"])
@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_steps_equal_the_causal_window(options: dict, timed: bool, window: int) -> None:
    layer = NAC(16, 4, **options).double()
    x = torch.randn(2, 13, 16, dtype=torch.float64)
    t = torch.rand(2, 13, dtype=torch.float64).cumsum(1) if timed else None
    torch.testing.assert_close(run(layer, x, t, window), layer(x, t=t, is_causal=True, window=window))


def test_a_window_as_long_as_the_sequence_is_plain_causal_attention() -> None:
    layer = NAC(16, 4, topk=3).double()
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    torch.testing.assert_close(run(layer, x, None, 9), layer(x, is_causal=True))


def test_step_leaves_the_old_state_alone() -> None:
    layer = NAC(16, 4)
    x = torch.randn(3, 2, 16)
    _, state = layer.step(x[0], None, layer.init_state(2, 4))
    first, _ = layer.step(x[1], None, state)
    layer.step(x[2], None, state)
    again, _ = layer.step(x[1], None, state)
    assert torch.equal(first, again)


def test_step_follows_the_weights_as_they_change() -> None:
    layer = NAC(16, 4)
    x = torch.randn(2, 16)
    with torch.no_grad():
        before, _ = layer.step(x, None, layer.init_state(2, 4))
        layer.backbone.motor.weight.mul_(-3)
        layer.q_gate.weight.add_(1.0)
        layer.v_gate.weight.mul_(2.0)
        after, _ = layer.step(x, None, layer.init_state(2, 4))
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, layer(x.unsqueeze(1))[:, 0])


def test_step_follows_a_replaced_part_and_a_change_of_dtype() -> None:
    layer, other = NAC(16, 4), NAC(16, 4)
    x = torch.randn(2, 16)
    with torch.no_grad():
        for change in (
            lambda: setattr(layer, "k_gate", other.k_gate),
            lambda: setattr(layer.backbone, "inter", other.backbone.inter),
            lambda: layer.mask_group("command", range(5)),
            lambda: setattr(layer.q_gate.weight, "data", torch.randn(1, 16, 16)),
            lambda: layer.load_state_dict(other.state_dict()),
            lambda: layer.double(),
        ):
            layer.step(x, None, layer.init_state(2, 4))
            change()
            x = x.to(layer.out_proj.weight.dtype)
            after, _ = layer.step(x, None, layer.init_state(2, 4))
            torch.testing.assert_close(after, layer(x.unsqueeze(1))[:, 0])


@torch.no_grad()
def test_a_saved_state_is_the_memory_alone(tmp_path: Path) -> None:
    layer, x = NAC(64, 4).eval(), torch.randn(2, 64)
    _, state = layer.step(x, None, layer.init_state(2, 4))
    torch.save(state, tmp_path / "state.pt")
    again = torch.load(tmp_path / "state.pt", weights_only=False)
    assert (tmp_path / "state.pt").stat().st_size < 4 * state.memory.numel() + 8000 and again.weights is None
    assert torch.equal(layer.step(x, None, again)[0], layer.step(x, None, state)[0])
    assert copy.deepcopy(state).weights is None


def test_the_state_of_another_layer_brings_none_of_its_weights() -> None:
    x, (own, other) = torch.randn(2, 8), (NAC(8, 2).eval(), NAC(8, 2).eval())
    with torch.no_grad():
        _, state = other.step(x, None, other.init_state(2, 4))
        y, _ = own.step(x, None, state)
        expected, _ = own.step(x, None, replace(state, weights=None))
    assert torch.equal(y, expected)


def test_gradients_flow_through_steps() -> None:
    layer = NAC(16, 4, topk=2).double()
    x = torch.randn(2, 6, 16, dtype=torch.float64, requires_grad=True)
    (from_steps,) = torch.autograd.grad(run(layer, x, None, 6).pow(2).sum(), x)
    (from_forward,) = torch.autograd.grad(layer(x, is_causal=True).pow(2).sum(), x)
    torch.testing.assert_close(from_steps, from_forward)


def test_last_only_is_the_last_row() -> None:
    layer = NAC(16, 4, topk=3)
    x = torch.randn(2, 9, 16)
    mask = torch.arange(9).expand(2, 9) >= torch.tensor([[6], [9]])
    t = torch.rand(2, 9).cumsum(1)
    for options in ({}, {"is_causal": True}, {"is_causal": True, "window": 4}):
        torch.testing.assert_close(layer(x, t=t, last_only=True, **options), layer(x, t=t, **options)[:, -1:])
        rows = layer(x, t=t, key_padding_mask=mask, **options)[torch.arange(2), [5, 8]]
        torch.testing.assert_close(layer(x, t=t, key_padding_mask=mask, last_only=True, **options)[:, 0], rows)
