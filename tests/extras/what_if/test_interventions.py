"""Edits of a policy are exact: of the picture, the memory and the network; without any nothing changes at all."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from nacdrive.common.errors import UserError
from nacdrive.extras.what_if.interventions import (
    KINDS,
    Blur,
    Dim,
    Edit,
    HideFrame,
    IntervenedPolicy,
    Mute,
    Paint,
    ShiftTime,
    edits_from_json,
    occlusion_map,
    softmax,
)
from nacdrive.models import Policy
from nacdrive.models.config import PolicyConfig
from tests.helpers import nac_reference as reference

ACTIONS = ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (-1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 0.8))
STEPS = 7


def new_policy(layer: str = "nac-steady", **options: Any) -> Policy:
    torch.manual_seed(0)
    config = {"task": "carracing", "model": layer, "actions": ACTIONS, "window": 4, "height": 48, "width": 48}
    return Policy.new(PolicyConfig(**{**config, "d_model": 16, "num_heads": 4, "gap_s": 0.08, **options}))


@pytest.fixture(scope="module")
def frames() -> NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 256, (STEPS, 48, 48, 3), dtype=np.uint8)


def driven(policy: Policy, frames: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Scores [steps, actions] of all decisions."""
    policy.reset()
    found = []
    for i, frame in enumerate(frames):
        policy.step(frame, 0.08 * i)
        found.append(policy.last_decision().scores)
    return np.stack(found)


def last(policy: IntervenedPolicy, frames: NDArray[np.uint8]) -> NDArray[np.float32]:
    policy.reset()
    for i, frame in enumerate(frames):
        action = policy.step(frame, 0.08 * i)
    assert action.logits is not None
    return action.logits


@pytest.mark.parametrize("layer", ["nac-steady", "nac-exact", "nac-key", "lstm", "mha"])
def test_without_edits_decisions_are_bit_equal(layer: str, frames: NDArray[np.uint8]) -> None:
    policy = new_policy(layer)
    assert np.array_equal(driven(policy, frames), driven(IntervenedPolicy(policy), frames))


def test_a_circuit_on_the_key_is_muted_and_its_past_edited(frames: NDArray[np.uint8]) -> None:
    policy = new_policy("nac-key")
    motors = [f"{gate} {head}" for gate in ("phi", "omega", "rho") for head in range(1, 5)]
    assert policy.circuit()["motors"] == motors
    plain = last(IntervenedPolicy(policy), frames)
    edits = [Mute(head=1), Mute(group="inter", neuron=2), Mute(group="motor"), HideFrame(2), ShiftTime(0.5)]
    for edit in edits:
        assert np.abs(last(IntervenedPolicy(policy, [edit]), frames) - plain).max() > 1e-6, edit
    with pytest.raises(UserError, match="share one circuit"):
        last(IntervenedPolicy(policy, [Mute(head=1, group="inter")]), frames)
    assert np.array_equal(last(IntervenedPolicy(policy), frames), plain)


def naive(policy: Policy, frames: NDArray[np.uint8], heads: Callable[[Tensor], Tensor]) -> NDArray[np.float64]:
    """The last decision by the naive reference, with ``heads`` done to the outputs [..., d_model] of the heads."""
    nac = copy.deepcopy(policy.network.sequence.nac)
    with torch.no_grad():
        weight, bias = nac.out_proj.weight.clone(), nac.out_proj.bias.clone()
        nac.out_proj.weight.copy_(torch.eye(len(weight)))
        nac.out_proj.bias.zero_()
        x = policy.network.features(torch.from_numpy(frames)).unsqueeze(0)
        t = torch.arange(len(frames), dtype=torch.float64).unsqueeze(0) * 0.08
        merged, _ = reference.nac_forward(nac, x, t=t, is_causal=True, window=policy.config.window)
        y = heads(merged[0, -1]) @ weight.double().T + bias.double()
        scores: NDArray[np.float64] = policy.network.double().head(y).numpy()
        policy.network.float()
    return scores


@pytest.mark.parametrize("head", [0, 3])
def test_a_muted_head_contributes_nothing_in_the_naive_reference(head: int, frames: NDArray[np.uint8]) -> None:
    policy = new_policy()

    def without(outputs: Tensor) -> Tensor:
        parts = outputs.clone()
        parts[head * 4 : (head + 1) * 4] = 0
        return parts

    muted = driven(IntervenedPolicy(policy, [Mute(head=head)]), frames)[-1]
    np.testing.assert_allclose(muted, naive(policy, frames, without), atol=2e-5)
    assert np.abs(muted - driven(policy, frames)[-1]).max() > 1e-4


@pytest.mark.parametrize("head", [None, 2])
@pytest.mark.parametrize(
    ("group", "neuron"), [("sensory", 1), ("inter", 3), ("inter", None), ("command", 0), ("motor", 1)]
)
def test_a_muted_neuron_has_activity_zero_in_the_naive_reference(
    group: str, neuron: int | None, head: int | None, frames: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = new_policy("nac-exact")

    def silenced(x: Tensor, here: str, h: int) -> Tensor:
        if here == group and head in (None, h):
            x = x.clone()
            x[..., slice(None) if neuron is None else neuron] = 0
        return x

    def circuit(layer: Any, u: Tensor, h: int) -> Tensor:
        net, f = layer.backbone, torch.tanh
        u = silenced(u, "sensory", h)
        inter = silenced(f(u @ reference.dense(net.sensory)[h] + reference.bias(net.sensory)[h]), "inter", h)
        s = inter @ reference.dense(net.inter)[h] + reference.bias(net.inter)[h]
        command = silenced(f(s), "command", h)
        for _ in range(net.unfolds - 1):
            command = silenced(f(s + command @ reference.dense(net.command)[h]), "command", h)
        return silenced(command @ reference.dense(net.motor)[h] + reference.bias(net.motor)[h], "motor", h)

    monkeypatch.setattr(reference, "circuit", circuit)
    muted = driven(IntervenedPolicy(policy, [Mute(head, group, neuron)]), frames)[-1]
    np.testing.assert_allclose(muted, naive(policy, frames, lambda outputs: outputs), atol=2e-5)


def test_muting_leaves_the_policy_itself_as_it_was(frames: NDArray[np.uint8]) -> None:
    policy = new_policy()
    before = driven(policy, frames)
    driven(IntervenedPolicy(policy, [Mute(head=1), Mute(group="inter")]), frames)
    assert np.array_equal(driven(policy, frames), before)


@pytest.mark.parametrize("back", [1, 3])
def test_a_hidden_frame_is_as_though_it_had_never_come(back: int, frames: NDArray[np.uint8]) -> None:
    policy = new_policy("nac-exact")
    hidden = last(IntervenedPolicy(policy, [HideFrame(back)]), frames)
    rest = [i for i in range(STEPS - 5, STEPS) if i != STEPS - 1 - back]
    x = policy.network.features(torch.from_numpy(frames[rest])).unsqueeze(0)
    t = torch.tensor([rest], dtype=torch.float64) * 0.08
    # Of the window of four all but the hidden one, of which the last is judged.
    with torch.no_grad():
        y, _ = reference.nac_forward(policy.network.sequence.nac, x, t=t, is_causal=True, window=3)
        wanted = policy.network.double().head(y[0, -1]).numpy()
        policy.network.float()
    np.testing.assert_allclose(hidden, wanted, atol=2e-5)


def test_a_shifted_frame_is_judged_by_the_longer_gap(frames: NDArray[np.uint8]) -> None:
    policy = new_policy("nac-exact")
    late = last(IntervenedPolicy(policy, [ShiftTime(0.4)]), frames)
    policy.reset()
    for i, frame in enumerate(frames):
        policy.step(frame, 0.08 * i + (0.4 if i == STEPS - 1 else 0.0))
    np.testing.assert_allclose(late, policy.last_decision().scores, atol=2e-5)


def test_edits_of_the_picture_change_what_they_say(frames: NDArray[np.uint8]) -> None:
    frame = frames[0]
    painted = IntervenedPolicy(new_policy(), [Dim(0.5), Paint(0.25, 0.5, 0.5, 1.0, 200)]).seen(frame)
    assert (painted[24:, 12:24] == 200).all()
    assert np.array_equal(painted[:24], (frame[:24] * 0.5).astype(np.uint8))
    last_blurred = IntervenedPolicy(new_policy(), [Paint(0.25, 0.5, 0.5, 1.0, 200), Dim(0.5), Blur(2)])
    assert np.array_equal(last_blurred.seen(frame), Paint(0.25, 0.5, 0.5, 1.0, 200).on(Dim(0.5).on(Blur(2).on(frame))))
    assert np.array_equal(Dim(1.0).on(frame), frame)
    assert (Paint(0, 0, 0.001, 0.001).on(frame) != frame).any(axis=2).sum() <= 1
    flat = np.full_like(frame, 90)
    assert np.array_equal(Blur(3).on(flat), flat)
    assert Blur(3).on(frame).std() < frame.std() / 3


@pytest.mark.parametrize("config", [{}, {"crop": (16, 40), "actions": (), "yuv": True}, {"masked_rows": (40, 48)}])
def test_the_occlusion_map_is_that_of_painting_part_by_part(config: Any, frames: NDArray[np.uint8]) -> None:
    policy = new_policy(**config)
    window, times = list(frames[:5]), [0.08 * i for i in range(5)]
    fast = occlusion_map(IntervenedPolicy(policy, [Dim(0.9)]), window, times, cells=4)

    def decided(edits: list[Edit]) -> NDArray[np.float32]:
        edited = IntervenedPolicy(policy, edits)
        for frame, t in zip(window, times, strict=True):
            edited.step(frame, t)
        return edited.last_decision().scores

    base = decided([Dim(0.9)])
    for (row, column), found in np.ndenumerate(fast):
        one = decided([Dim(0.9), Paint(column / 4, row / 4, (column + 1) / 4, (row + 1) / 4)])
        if policy.config.continuous:
            wanted = np.clip(base[0], -1, 1) - np.clip(one[0], -1, 1)
        else:
            wanted = (softmax(base) - softmax(one))[base.argmax()]
        assert found == pytest.approx(wanted, abs=2e-5)
    if config.get("crop"):
        assert (fast[0] == 0).all()


def test_edits_survive_json_and_nothing_else_passes() -> None:
    edits = (Paint(0.1, 0.2, 0.3, 0.4, None), Dim(0.5), Blur(2.0), HideFrame(2), ShiftTime(0.3), Mute(3, "inter", 5))
    names = {kind: name for name, kind in KINDS.items()}
    given = [{"kind": names[type(edit)], **asdict(edit)} for edit in edits]
    assert edits_from_json(json.loads(json.dumps(given))) == edits
    wrong: list[Any] = [
        None, {}, [3], [{}], [{"kind": "fly"}], [{"kind": []}], [{"kind": "mute"}], [{"kind": "mute", "head": True}],
        [{"kind": "mute", "head": -1}], [{"kind": "mute", "group": "legs"}], [{"kind": "mute", "head": 1.5}],
        [{"kind": "dim"}], [{"kind": "dim", "factor": "1"}], [{"kind": "dim", "factor": 1e400}],
        [{"kind": "dim", "factor": float("nan")}], [{"kind": "dim", "factor": 1, "more": 2}],
        [{"kind": "paint", "left": 0.5, "top": 0, "right": 0.5, "bottom": 1}], [{"kind": "hide", "back": 0}],
        [{"kind": "hide", "back": 10**30}], [{"kind": "shift", "seconds": -1}], [{"kind": "dim", "factor": 1}] * 25,
    ]  # fmt: skip
    for given in wrong:
        with pytest.raises(UserError):
            edits_from_json(given)


@pytest.mark.parametrize("edit", [Mute(head=4), Mute(group="inter", neuron=999), HideFrame(4), Mute(0, "motor", 2)])
def test_what_a_policy_does_not_have_is_refused(edit: Edit) -> None:
    with pytest.raises(UserError):
        IntervenedPolicy(new_policy(), [edit])


def test_a_policy_without_a_circuit_cannot_be_muted() -> None:
    with pytest.raises(UserError, match="no neuronal attention circuit"):
        IntervenedPolicy(new_policy("lstm"), [Mute(head=0)])


def test_the_narrowest_paint_at_an_edge_paints_one_row_or_column() -> None:
    frame = np.zeros((96, 96, 3), np.uint8)
    for edges in ((0.0, 0.996, 1.0, 1.0), (0.996, 0.0, 1.0, 1.0), (0.0, 0.0, 1.0, 0.001)):
        assert int((Paint(*edges).on(frame) == 128).all(axis=2).sum()) == 96
