"""Circuits: equal to ncps 1.0.1 for the same arguments, and what can be done with them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ncps.wirings import NCP, AutoNCP, FullyConnected, Random

from nacdrive.nac import NAC, auto_ncp, from_ncps, key, layered_wiring, ncp, random_wiring
from nacdrive.nac.wiring import backbone_wiring, sensory_wiring


def assert_same(mine, theirs) -> None:
    np.testing.assert_array_equal(mine.adjacency, theirs.adjacency_matrix)
    np.testing.assert_array_equal(mine.sensory_adjacency, theirs.sensory_adjacency_matrix)


@pytest.mark.parametrize("sparsity", [0.1, 0.2, 0.5, 0.75, 0.9])
@pytest.mark.parametrize(
    ("inputs", "units", "outputs"), [(1, 5, 2), (4, 21, 2), (32, 170, 2), (64, 106, 0), (7, 40, 5)]
)
def test_auto_ncp_equals_ncps(inputs: int, units: int, outputs: int, sparsity: float) -> None:
    theirs = AutoNCP(units, outputs, sparsity_level=sparsity)
    theirs.build(inputs)
    assert_same(auto_ncp(inputs, units, outputs, sparsity), theirs)


@given(st.integers(1, 12), st.integers(6, 60), st.integers(0, 3), st.floats(0.1, 0.9), st.integers(0, 2**32 - 1))
def test_auto_ncp_equals_ncps_for_any_size_and_seed(inputs, units, outputs, sparsity, seed) -> None:
    theirs = AutoNCP(units, outputs, sparsity_level=sparsity, seed=seed)
    theirs.build(inputs)
    assert_same(auto_ncp(inputs, units, outputs, sparsity, seed), theirs)


def test_ncp_equals_ncps() -> None:
    theirs = NCP(12, 8, 3, sensory_fanout=4, inter_fanout=5, recurrent_command_synapses=6, motor_fanin=4, seed=7)
    theirs.build(9)
    assert_same(ncp(9, 12, 8, 3, 4, 5, 6, 4, seed=7), theirs)


@pytest.mark.parametrize("d_model", [2, 3, 16, 32, 64, 100, 129, 256])
def test_sizes_follow_the_paper(d_model: int) -> None:
    gate = sensory_wiring(5, d_model, 0.5, "ncp", 1)
    assert gate.inters == d_model
    assert gate.units == math.ceil((d_model - 0.5) / 0.6)
    assert backbone_wiring(4, d_model, 0.5, "ncp", 1).units == d_model + math.floor(d_model / 0.6)


def test_backbone_of_64_channels_has_101_inter_and_67_command_neurons() -> None:
    wiring = backbone_wiring(32, 64, 0.5, "ncp", 1)
    assert (wiring.inters, wiring.commands, wiring.motors) == (101, 67, 2)


@pytest.mark.parametrize("gate", ["ncp", "fc"])
@pytest.mark.parametrize("sparsity", [0.0, 0.2, 0.5, 0.9])
def test_density_is_one_minus_sparsity(gate: str, sparsity: float) -> None:
    wiring = sensory_wiring(64, 64, sparsity, gate, 3)
    block = wiring.sensory_adjacency[:, wiring.neurons("inter")]
    assert np.abs(block).mean() == pytest.approx(1 - sparsity, abs=0.03)


@pytest.mark.parametrize("group", ["sensory", "inter", "command"])
def test_masking_a_group_in_a_layer_equals_building_it_with_the_masked_wiring(group: str) -> None:
    layer = NAC(16, 2, backbone_units=30)
    lost = layer.wiring.neurons(group)[:2]
    adjacency, sensory = layer.wiring.adjacency.copy(), layer.wiring.sensory_adjacency.copy()
    if group == "sensory":
        sensory[lost] = 0
    else:
        adjacency[lost] = adjacency[:, lost] = sensory[:, lost] = 0
    wiring = replace(layer.wiring, adjacency=adjacency, sensory_adjacency=sensory)
    masked = NAC(16, 2, backbone_units=30, wiring=wiring)
    layer.mask_group(group, [0, 1])
    for name in ("sensory", "inter", "command", "motor"):
        assert torch.equal(getattr(layer.backbone, name).mask, getattr(masked.backbone, name).mask), name


@pytest.mark.parametrize(("units", "command"), [(1, 1), (2, 1), (5, 2), (10, 4), (64, 25)])
def test_two_fifths_of_a_keys_neurons_are_command_neurons_and_none_feeds_itself(units: int, command: int) -> None:
    for sparsity in (0.0, 0.5):
        if sparsity and units < 5:
            continue  # AutoNCP wants more
        wiring = key._wiring(6, units, 3, sparsity, None)
        sizes = [len(wiring.neurons(group)) for group in ("inter", "command", "motor")]
        assert sizes == [units - command, command, 3]
        commands = wiring.neurons("command")
        assert not wiring.adjacency[commands[:, None], commands].any()


@pytest.mark.parametrize("kind", ["ncp", "random", "full", "own"])
def test_any_wiring_drives_a_layer(kind: str) -> None:
    if kind == "own":
        rng = np.random.default_rng(0)
        blocks = [rng.integers(-1, 2, size=s).astype(np.int32) for s in ((8, 6), (6, 5), (5, 5), (5, 2))]
        wiring = layered_wiring(*blocks)
    elif kind == "ncp":
        wiring = random_wiring(8, 12, 6, 2, 0.4, recurrent=True)
    else:
        source = Random(20, 2, sparsity_level=0.5) if kind == "random" else FullyConnected(20, 2)
        source.build(8)
        wiring = from_ncps(source)
    x = torch.randn(1, 4, 16)
    layer = NAC(16, 4, wiring=wiring)
    y = layer(x)
    y.sum().backward()
    assert y.shape == (1, 4, 16) and torch.isfinite(y).all()
    assert layer.backbone.motor.weight.grad is not None


def test_from_ncps_keeps_the_circuit() -> None:
    theirs = AutoNCP(30, 2)
    theirs.build(8)
    mine = from_ncps(theirs)
    assert_same(mine, theirs)
    assert mine.layered and (mine.motors, mine.commands) == (2, 11)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: auto_ncp(3, 10, 2, 0.95), "sparsity=0.95"),
        (lambda: auto_ncp(3, 4, 2), "outputs=2"),
        (lambda: ncp(3, 4, 4, 2, 5, 2, 2, 2), "sensory_fanout=5"),
        (lambda: auto_ncp(3, 10, 2).neurons("brain"), "group='brain'"),
    ],
)
def test_bad_wiring_is_named(call, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("[", r"\[").replace("]", r"\]")):
        call()
