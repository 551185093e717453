"""The figure of a circuit: weights as they act, bundled by group, the strongest of each bundle drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import PathPatch

from nacdrive.common.errors import UserError
from nacdrive.extras.explain.wiring import (
    EXCITING,
    INHIBITING,
    STRONGEST,
    Bundle,
    bundles,
    heights,
    matrices,
    nac_of,
    wiring_figure,
)
from nacdrive.models import Policy, PolicyConfig
from nacdrive.nac import NAC, Wiring
from nacdrive.viz.figures import save
from tests.helpers.nac_reference import circuit
from tests.helpers.small_policies import CHOICES, small_policy


@pytest.fixture(scope="module")
def policy():
    size = {"window": 4, "d_model": 64, "num_heads": 16, "dense": 8}
    torch.manual_seed(2)
    return Policy.new(PolicyConfig(model="nac-exact", **CHOICES, **size), "nac_exact")


def test_there_is_a_weight_exactly_where_the_wiring_has_a_synapse(policy) -> None:
    plan = policy.circuit()
    sizes = plan["groups"]
    wired = {(a, b): np.zeros((sizes[a], sizes[b]), bool) for a, b in {(e[0], e[2]) for e in plan["edges"]}}
    for a, i, b, j, _ in plan["edges"]:
        wired[a, b][i, j] = True
    found = matrices(nac_of(policy), 3)
    assert found.keys() == wired.keys()
    for pair, weights in found.items():
        np.testing.assert_array_equal(weights != 0, wired[pair], err_msg=str(pair))


def answered(nac: NAC, head: int, x: np.ndarray) -> np.ndarray:
    """Motor neurons made of the drawn matrices and the layer's biases alone."""
    found, net = matrices(nac, head), nac.backbone
    copy = min(head, len(net.motor.weight) - 1)

    def bias(synapses: Any) -> np.ndarray:
        return synapses.bias[copy].detach().double().numpy()

    if net.inter is not None:
        into = np.tanh(x @ found["sensory", "inter"] + bias(net.sensory)) @ found["inter", "command"] + bias(net.inter)
        loops, out = found.get(("command", "command")), found["command", "motor"]
    else:
        into = x @ np.hstack([found["sensory", "command"], found["sensory", "inter"]]) + bias(net.sensory)
        rows = [np.hstack([found[a, b] for b in ("command", "inter")]) for a in ("command", "inter")]
        loops, out = np.vstack(rows), np.vstack([found["command", "motor"], found["inter", "motor"]])
    state = np.tanh(into)
    for _ in range(net.unfolds - 1):
        state = np.tanh(into + state @ loops)
    return state @ out + bias(net.motor)


def crossed() -> Wiring:
    """A circuit that is not layered: everything may lead to everything but back to the inputs."""
    draw = np.random.default_rng(4)
    adjacency = draw.integers(-1, 2, (14, 14)).astype(np.int32)
    adjacency[:2] = 0
    return Wiring(adjacency, draw.integers(-1, 2, (8, 14)).astype(np.int32), motors=2, commands=5)


@pytest.mark.parametrize(
    "options",
    [{}, {"share_backbone": True}, {"polarity": "fixed"}, {"unfolds": 1}, {"unfolds": 3, "wiring": crossed()}],
    ids=["a circuit per head", "one for all", "fixed signs", "nothing recurrent", "not layered"],
)
def test_the_matrices_are_those_of_the_naive_reference(options: dict[str, Any]) -> None:
    torch.manual_seed(5)
    nac = NAC(16, 4, activation="tanh", **options)
    x = torch.randn(6, 8, dtype=torch.float64)
    true = circuit(nac, x, 2).detach().numpy()
    np.testing.assert_allclose(answered(nac, 2, x.numpy()), true, atol=1e-6)
    assert heights(bundles(matrices(nac, 2))).keys() >= {"query", "key", "command", "φ", "ω"}


def test_of_one_circuit_for_all_heads_a_head_has_its_own_motor_neurons(tmp_path: Path) -> None:
    policy = small_policy("nac-key-driving")
    nac = nac_of(policy)
    gates = nac.neuron_states(torch.randn(1, 5, 12))  # type: ignore[operator]
    for head in (0, 3):
        found, net = matrices(nac, head), nac.backbone
        inter = np.tanh(
            gates["sensory"][0].detach().numpy() @ found["sensory", "inter"] + net.sensory.bias[0].detach().numpy()
        )
        command = np.tanh(inter @ found["inter", "command"] + net.inter.bias[0].detach().numpy())
        phi = (command @ found["command", "motor"])[:, 0] + net.motor.bias[0, head].detach().numpy()
        np.testing.assert_allclose(np.tanh(phi), gates["phi"][0, head].detach().numpy(), atol=1e-5)
    names = {(bundle.source, bundle.target) for bundle in bundles(matrices(nac, 2))}
    assert names == {("features", "inter"), ("inter", "command"), ("command", "φ"), ("command", "ω"), ("command", "ρ")}
    save(wiring_figure(policy, 2), tmp_path / "w.png")


def test_the_strongest_are_the_largest_whatever_their_sign() -> None:
    weights = np.array([[0.0, -3.0, 0.5], [2.0, 0.0, -0.1]], np.float32)
    bundle = Bundle("inter", "command", weights)
    assert list(bundle.strongest(2)) == [(1, 0, 2.0), (0, 1, -3.0)]
    assert len(list(bundle.strongest(30))) == bundle.count == 4, "no synapse where the weight is exactly nothing"


def test_query_and_key_and_phi_and_omega_are_bundles_of_their_own(policy) -> None:
    found = bundles(matrices(nac_of(policy), 0))
    names = {(bundle.source, bundle.target) for bundle in found}
    assert names >= {("query", "inter"), ("key", "inter"), ("inter", "command"), ("command", "φ"), ("command", "ω")}
    assert sum(bundle.count for bundle in found) == len(policy.circuit()["edges"])


def test_neurons_stand_near_those_that_they_lead_to() -> None:
    to_phi = np.array([[0.0], [1.0], [0.0]], np.float32)
    to_omega = np.array([[2.0], [0.0], [0.1]], np.float32)
    places = heights([Bundle("command", "φ", to_phi), Bundle("command", "ω", to_omega)])
    assert places["command"].argmax() == 1, "the one that leads to φ stands at the top, as φ does"


def test_colours_are_the_signs_of_the_weights_and_no_more_than_the_strongest_are_drawn(policy) -> None:
    axis = wiring_figure(policy, 10).axes[0]
    lines = [patch for patch in axis.patches if isinstance(patch, PathPatch) and patch.get_linewidth() > 0]
    found = bundles(matrices(nac_of(policy), 10))
    wanted = [weight for bundle in found for *_, weight in bundle.strongest(STRONGEST)]
    assert len(lines) == len(wanted)
    colours = [to_hex(line.get_edgecolor()) for line in lines]
    assert colours == [EXCITING if weight > 0 else INHIBITING for weight in wanted]
    said = [text.get_text() for text in axis.get_legend().get_texts()]
    assert any("excites" in text for text in said) and any("inhibits" in text for text in said)


def test_a_head_that_is_not_there_and_a_policy_without_a_circuit_are_one_sentence(policy, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="heads 1 to 16"):
        wiring_figure(policy, 16)
    with pytest.raises(UserError, match="no NAC layer"):
        wiring_figure(small_policy("gru-choices"), 0)
    save(wiring_figure(policy, 0), tmp_path / "w.svg")
    assert b"<svg" in (tmp_path / "w.svg").read_bytes()
