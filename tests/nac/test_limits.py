"""What is just allowed and just not, what options are when nobody gives them, and what a fresh layer begins with."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest
import torch

from nacdrive.nac import NAC, PRESETS, VARIANTS, Euler, Exact, Steady, Wiring, variant
from nacdrive.nac.backbone import GAINS, Synapses, TimeGate, _padded
from nacdrive.nac.dynamics import as_dynamics
from nacdrive.nac.kernels.blocks import pieces
from nacdrive.nac.layer import sources_of
from nacdrive.nac.mask import SCORES_AT_ONCE, AttentionMask, in_rows
from nacdrive.nac.topk import spans
from nacdrive.nac.wiring import auto_ncp, backbone_wiring, from_ncps, full_wiring, ncp, random_wiring, sensory_wiring

torch.set_num_threads(1)
INF, NAN = math.inf, math.nan
ALLOWED: list[tuple[str, list[Any], list[Any], str]] = [
    # argument, allowed, not allowed, what is said to be allowed
    ("topk", [1, 8, None], [0, -1], "1 or more, or None for all keys"),
    ("sparsity", [0, 0.0, 0.1, 0.9], [0.09, 0.91, -0.1, 1.0], "0 or 0.1 to 0.9"),
    ("backbone_units", [5, None], [4, 0], "5 or more, or None"),
    ("unfolds", [1, 2], [0], "1 or more"),
    ("delta_t", [1e-9, 2.0], [0.0, -1.0], "a positive number of seconds"),
    ("time_scale", [1e-9, 1e9], [0.0, INF, NAN], "a positive number of seconds"),
    ("eps", [1e-9], [0.0, -1e-3], "a positive rate in 1/s"),
    ("dropout", [0.0, 0.999], [1.0, -0.1], "0 <= dropout < 1"),
    ("time_features", [0, 1], [-1], "0 or more frequencies"),
    ("logit_scale", [True, False, 1e-3, 1], [0.0, -1.0, INF], "True, False or a positive number"),
    *((name, [1, None], [0], "1 or more, or None") for name in ("in_features", "out_features", "sqrt_blocks")),
    ("sqrt_block", [1, None], [0], "1 or more, or None"),
]


@pytest.mark.parametrize(("name", "good", "bad", "words"), ALLOWED, ids=[row[0] for row in ALLOWED])
def test_every_option_has_its_limits_and_says_them(name: str, good: list[Any], bad: list[Any], words: str) -> None:
    for value in good:
        NAC(8, 2, **{name: value})
    for value in bad:
        with pytest.raises(ValueError) as caught:
            NAC(8, 2, **{name: value})
        assert str(caught.value) == f"{name}={value!r}; allowed is {words}"


def test_what_is_counted_has_no_fractions() -> None:
    for name in ("topk", "unfolds", "backbone_units", "in_features", "sqrt_block", "time_features"):
        with pytest.raises(ValueError, match=f"^{name}=8.0; allowed is a whole number$"):
            NAC(8, 2, **{name: 8.0})
    layer, x = NAC(8, 2), torch.zeros(1, 3, 8)
    for call in (lambda: layer(x, is_causal=True, window=2.0), lambda: layer.init_state(1, 2.0)):
        with pytest.raises(ValueError, match=r"window=2\.0; allowed is a whole number"):
            call()
    with pytest.raises(ValueError, match=r"Euler steps=2\.5; allowed is a whole number"):
        Euler(2.5)  # type: ignore[arg-type]


def test_a_layer_has_two_channels_and_one_head_at_least() -> None:
    assert NAC(2, 1)(torch.zeros(1, 3, 2)).shape == (1, 3, 2)
    for d_model, heads, words in ((1, 1, "d_model=1; allowed is 2 or more"), (8, 0, "num_heads=0; allowed is 1 or mo")):
        with pytest.raises(ValueError, match=words):
            NAC(d_model, heads)
    with pytest.raises(ValueError, match="d_model 9 is not divisible by 2 heads"):
        NAC(9, 2)
    with pytest.raises(ValueError, match="score_gradient='gated'; allowed is none without topk"):
        NAC(8, 2, topk=None, score_gradient="gated")


def test_a_wiring_of_ones_own_must_fit_the_heads() -> None:
    NAC(8, 2, wiring=auto_ncp(8, 20, 2))
    with pytest.raises(ValueError, match=r"wiring.inputs=6; allowed is 2 \* d_model / num_heads = 8"):
        NAC(8, 2, wiring=auto_ncp(6, 20, 2))
    with pytest.raises(ValueError, match=r"wiring.motors=3; allowed is 2 \(phi and omega\)"):
        NAC(8, 2, wiring=auto_ncp(8, 20, 3))


def test_what_nobody_asked_for_is_as_documented() -> None:
    """Every saved layer leaves options out: another default would make another network of its weights."""
    found = {p.name: p.default for p in inspect.signature(NAC).parameters.values() if p.kind is p.KEYWORD_ONLY}
    assert found == {
        "mode": "exact",
        "topk": 8,
        "selection": "auto",
        "sparsity": 0.5,
        "share_backbone": False,
        "backbone_units": None,
        "activation": "tanh",
        "unfolds": 2,
        "quadrature": "time",
        "delta_t": 1.0,
        "phi": "sigmoid",
        "gate": "ncp",
        "wiring": None,
        "polarity": "free",
        "time_scale": 1.0,
        "learn_time_scale": False,
        "time_input": "absolute",
        "time_features": 0,
        "input_norm": False,
        "eps": 1e-3,
        "logit_scale": False,
        "score_gradient": "none",
        "dropout": 0.0,
        "in_features": None,
        "out_features": None,
        "sqrt_blocks": None,
        "sqrt_block": None,
        "seed": None,
    }
    assert Euler() == Euler(6, None, False, 1e-3, 8)
    assert (as_dynamics("exact"), as_dynamics("euler"), as_dynamics("steady")) == (Exact(), Euler(), Steady())


def test_the_papers_variants_and_the_presets_set_what_their_names_say() -> None:
    expected = {
        "nac-2k": ("topk", 2),
        "nac-32k": ("topk", 32),
        "nac-pw": ("topk", None),
        "nac-02s": ("sparsity", 0.2),
        "nac-09s": ("sparsity", 0.9),
        "nac-euler": ("mode", "euler"),
        "nac-steady": ("mode", "steady"),
        "nac-phi-none": ("phi", "none"),
        "nac-phi-tanh": ("phi", "tanh"),
    }
    for name, (option, value) in expected.items():
        assert VARIANTS[name] == {option: value}
    assert VARIANTS["nac-exact"] == {}
    for name, sparsity in (("nac-fc", 0.0), ("nac-02sfc", 0.2), ("nac-05sfc", 0.5), ("nac-09sfc", 0.9)):
        assert VARIANTS[name] == {"gate": "fc", "sparsity": sparsity}
    lag = {"input_norm": True, "time_features": 16, "logit_scale": 8.0}
    assert PRESETS["nac-lag"] == {"topk": None, **lag} and PRESETS["nac-lag-8k"] == {"topk": 8, **lag}
    assert PRESETS["nac-gated"] == {"topk": 8, "score_gradient": "gated", **lag}
    assert PRESETS["nac-constant"] == {"gate": "constant"}
    assert PRESETS["nac-elapsed"] == {"topk": None, "time_input": "elapsed", "logit_scale": 8.0}
    paper = {"quadrature": "constant", "delta_t": 1.0, "selection": "sqrt"}
    layer = variant("nac-2k", 8, 2, paper=True)
    kept = {"quadrature": layer.options.quadrature, "delta_t": layer.options.delta_t, "selection": layer.selection}
    assert layer.topk == 2 and kept == paper and variant("nac-2k", 8, 2).options.quadrature == "time"
    assert variant("nac-2k", 8, 2, topk=3).topk == 3


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"steps": 0}, "Euler steps=0; allowed is 1 or more"),
        ({"step": 0.0}, "Euler step=0.0; allowed is a positive"),
        ({"step": 0.1, "adaptive": True}, "an adaptive step cannot be fixed"),
        ({"rtol": 0.0}, "rtol=0.0, doublings=8; both must be positive"),
        ({"doublings": 0}, "rtol=0.001, doublings=0; both must be positive"),
    ],
)
def test_eulers_limits(bad: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Euler(**bad)
    Euler(steps=1, step=1e-9)
    Euler(rtol=1e-12, doublings=1, adaptive=True)


def test_one_euler_step_is_the_step_times_phi() -> None:
    phi, omega, t = (torch.tensor(x, dtype=torch.float64) for x in (0.6, 0.5, 0.8))
    assert float(Euler(steps=1)(phi, omega, t)) == pytest.approx(0.48)
    # Two of 0.4 s: 0.24, then 0.24 + 0.4 (0.6 - 0.12).
    assert float(Euler(steps=2)(phi, omega, t)) == pytest.approx(0.432)
    assert float(Euler(steps=2, step=0.1)(phi, omega, t)) == pytest.approx(0.06 + 0.1 * (0.6 - 0.03))
    # A step never exceeds 1/omega: from there on it is the equilibrium.
    assert float(Euler(steps=1, step=50.0)(phi, omega, t)) == pytest.approx(1.2)


def test_adaptive_euler_stops_doubling_once_it_is_near() -> None:
    phi, omega, t = (torch.tensor([x], dtype=torch.float64) for x in (0.6, 0.5, 0.8))

    def naive(n: int) -> float:
        a = 0.0
        for _ in range(n):
            a += 0.8 / n * (0.6 - 0.5 * a)
        return a

    # From 2 steps on: 4 differ from 2 by 4.7 %, 8 from 4 by 2.2 %, 16 from 8 by 1.1 %.
    for rtol, steps in ((0.05, 4), (0.03, 8), (0.015, 16)):
        assert float(Euler(2, adaptive=True, rtol=rtol)(phi, omega, t)) == pytest.approx(naive(steps), rel=1e-12)
    # At most so many doublings; what it begins with is rounded up to a power of two.
    assert float(Euler(3, adaptive=True, rtol=1e-9, doublings=1)(phi, omega, t)) == pytest.approx(naive(8), rel=1e-12)


def small(**changed: Any) -> dict[str, Any]:
    return {
        "adjacency": np.zeros((4, 4), np.int32),
        "sensory_adjacency": np.zeros((3, 4), np.int32),
        "motors": 1,
        "commands": 2,
        **changed,
    }


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"motors": -1}, "motors=-1 and commands=2 do not fit into 4 units"),
        ({"commands": -1}, "motors=1 and commands=-1 do not fit into 4 units"),
        ({"motors": 3}, "motors=3 and commands=2 do not fit into 4 units"),
        ({"adjacency": np.zeros((4, 5), np.int32)}, "must be square"),
        ({"sensory_adjacency": np.zeros((3, 5), np.int32)}, r"it must be \[inputs, 4\]"),
        ({"sensory_adjacency": np.zeros(4, np.int32)}, r"it must be \[inputs, 4\]"),
        ({"adjacency": np.full((4, 4), 2)}, "adjacency holds values other than -1, 0 and 1"),
        ({"sensory_adjacency": np.full((3, 4), -2)}, "sensory_adjacency holds values other"),
    ],
)
def test_a_wiring_that_cannot_be_is_named(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Wiring(**small(**changed))


def test_a_wiring_may_have_no_motors_no_commands_or_nothing_else() -> None:
    for motors, commands, inters in ((0, 0, 4), (0, 4, 0), (4, 0, 0), (1, 3, 0), (1, 2, 1)):
        made = Wiring(**small(motors=motors, commands=commands))
        assert (made.inputs, made.units, made.inters) == (3, 4, inters)
        groups = {name: made.neurons(name).tolist() for name in ("sensory", "motor", "command", "inter")}
        assert groups["sensory"] == [0, 1, 2]
        assert groups["motor"] + groups["command"] + groups["inter"] == [0, 1, 2, 3]


@pytest.mark.parametrize(("source", "target"), [(0, 1), (3, 0), (2, 3), (0, 0), (3, 3), (1, 3)])
def test_one_synapse_astray_and_a_circuit_is_layered_no_longer(source: int, target: int) -> None:
    made = full_wiring(3, 1, 2, 1)  # motor 0, commands 1 and 2, inter 3
    assert made.layered and not Wiring(**small(commands=3)).layered
    adjacency = made.adjacency.copy()
    assert adjacency[source, target] == 0
    adjacency[source, target] = -1
    assert not Wiring(adjacency, made.sensory_adjacency, 1, 2).layered
    sensory = made.sensory_adjacency.copy()
    sensory[0, 1] = 1
    assert not Wiring(made.adjacency, sensory, 1, 2).layered, "an input that reaches a command neuron"


def test_full_and_random_circuits_have_the_synapses_of_their_names() -> None:
    made = full_wiring(3, 4, 2, 1)
    assert (np.abs(made.adjacency).sum(), made.sensory_adjacency.sum()) == (4 * 2 + 2 * 2 + 2 * 1, 12)
    assert full_wiring(3, 4, 2, 1, recurrent=False).adjacency.sum() == 10
    for sparsity in (0.0, 0.5, 0.99):
        made = random_wiring(6, 20, 10, 2, sparsity, recurrent=True)
        hears = [made.sensory_adjacency[:, made.neurons("inter")]]
        inter, command, motor = (made.neurons(name) for name in ("inter", "command", "motor"))
        hears += [made.adjacency[inter][:, command], made.adjacency[command][:, motor]]
        for block in hears:
            wanted = block.size - round(block.size * sparsity)
            assert (block != 0).any(axis=0).all(), "nobody is deaf"
            assert wanted <= (block != 0).sum() <= wanted + block.shape[1]
    assert not random_wiring(6, 20, 10, 2, 0.5, recurrent=False).adjacency[2:12, 2:12].any()
    for sparsity in (-0.1, 1.0):
        with pytest.raises(ValueError, match=f"sparsity={sparsity}; allowed is 0 <= sparsity < 1"):
            random_wiring(6, 20, 10, 2, sparsity, recurrent=True)


def test_the_limits_of_an_automatic_circuit() -> None:
    for sparsity in (0.1, 0.9):
        auto_ncp(3, 10, 2, sparsity)
    for sparsity in (0.0999, 0.9001):
        with pytest.raises(ValueError, match=r"allowed is 0.1 to 0.9"):
            auto_ncp(3, 10, 2, sparsity)
    assert auto_ncp(3, 5, 2).motors == 2
    with pytest.raises(ValueError, match="outputs=2 with units=4; outputs must be less than units - 2"):
        auto_ncp(3, 4, 2)
    for fans in ((4, 2, 2), (3, 3, 2), (3, 2, 3)):
        with pytest.raises(ValueError, match="but there are only"):
            ncp(5, 3, 2, 1, fans[0], fans[1], 1, fans[2])
    ncp(5, 3, 2, 1, 3, 2, 1, 2)


def test_circuits_have_the_papers_sizes_whatever_the_gate() -> None:
    # AutoNCP(ceil((8 - 0.5) / 0.6), 0) has 13 neurons, of which 0.4 are command neurons; AutoNCP(8 + 13, 2) 21.
    for gate, sparsity in (("ncp", 0.5), ("fc", 0.5), ("ncp", 0), ("fc", 0)):
        sensory = sensory_wiring(6, 8, sparsity, gate, 1)
        assert (sensory.inputs, sensory.inters, sensory.commands, sensory.motors) == (6, 8, 5, 0)
        backbone = backbone_wiring(8, 8, sparsity, gate, 1)
        assert (backbone.inputs, backbone.units, backbone.commands, backbone.motors) == (8, 21, 7, 2)
        assert backbone_wiring(8, 8, sparsity, gate, 1, units=9).units == 9
    # Fully connected gates have no recurrent synapses; a full circuit has all.
    command = backbone_wiring(8, 8, 0, "ncp", 1).neurons("command")
    assert backbone_wiring(8, 8, 0, "ncp", 1).adjacency[np.ix_(command, command)].all()
    assert not backbone_wiring(8, 8, 0, "fc", 1).adjacency[np.ix_(command, command)].any()


def test_a_wiring_of_ncps_that_was_never_built_is_told() -> None:
    class Unbuilt:
        sensory_adjacency_matrix = None

    with pytest.raises(ValueError, match=r"call wiring.build\(inputs\) first"):
        from_ncps(Unbuilt())


@pytest.mark.parametrize(
    ("wanted", "found"),
    [(None, [0, 1, 2]), (2, [0, 1]), (5, [0, 1, 2, None, None]), ([2, None, 0, 2], [2, None, 0, 2])],
)
def test_inputs_are_taken_over_by_number_or_by_name(wanted: Any, found: list[int | None]) -> None:
    assert sources_of("in_features", wanted, 3) == found


@pytest.mark.parametrize("wanted", [0, [], [3], [-1]])
def test_inputs_that_are_not_there_are_told(wanted: Any) -> None:
    with pytest.raises(ValueError, match="allowed is 1 or more, or a list of 0 to 2 and None"):
        sources_of("in_features", wanted, 3)


def test_queries_choose_by_the_rule_of_their_position() -> None:
    assert spans(3, "exact", None) == [(0, 3, None)]
    assert spans(1024, "auto", None) == [(0, 1024, None)]
    # Blocks hold the power of two from the square root of the position on.
    assert spans(2000, "auto", None) == [(0, 1024, None), (1024, 2000, 64)]
    assert spans(5000, "auto", None) == [(0, 1024, None), (1024, 4096, 64), (4096, 5000, 128)]
    assert spans(100, "sqrt", None) == [(0, 16, 4), (16, 64, 8), (64, 100, 16)]
    assert spans(16, "sqrt", None) == [(0, 16, 4)] and spans(17, "sqrt", None) == [(0, 16, 4), (16, 17, 8)]
    assert spans(100, "sqrt", 7) == [(0, 100, 7)] and spans(2000, "auto", 7) == [(0, 1024, None), (1024, 2000, 7)]


@pytest.mark.parametrize(("queries", "per_query"), [(10, SCORES_AT_ONCE // 4), (3, SCORES_AT_ONCE), (7, 1), (5, 10**9)])
def test_no_more_scores_are_held_than_fit_and_every_query_is_asked_once(queries: int, per_query: int) -> None:
    q = torch.arange(queries).view(1, 1, queries, 1)
    mask = AttentionMask(torch.arange(queries).view(1, -1), None, True, None)
    sizes = []

    def choose(part: torch.Tensor, rows: AttentionMask) -> torch.Tensor:
        sizes.append(part.shape[2])
        assert rows.position[0].tolist() == part[0, 0, :, 0].tolist()
        return part

    assert in_rows(q, mask, per_query, choose).flatten().tolist() == list(range(queries))
    assert all(size == 1 or size * per_query <= SCORES_AT_ONCE for size in sizes)
    assert len(sizes) == -(-queries // max(1, SCORES_AT_ONCE // per_query)), "and no fewer than need be"


def test_ranges_are_cut_into_pieces_without_a_gap() -> None:
    assert pieces(3, 10, 4) == [(3, 7), (7, 10)] and pieces(0, 8, 4) == [(0, 4), (4, 8)] and pieces(5, 5, 3) == []


def test_wide_layers_are_padded_to_eights_and_narrow_ones_are_not() -> None:
    assert [_padded(n) for n in (2, 31, 32, 33, 40, 41)] == [2, 31, 32, 40, 40, 48]


@pytest.mark.parametrize("polarity", ["free", "initial", "fixed"])
def test_fresh_synapses_spread_by_gain_over_the_root_of_their_number(polarity: str) -> None:
    torch.manual_seed(0)
    adjacency = torch.zeros(400, 3)
    adjacency[:100, 0], adjacency[:400, 1] = 1, -1
    made = Synapses(adjacency, 50, 3.0, polarity)
    spread = [float(made.weight.detach()[:, adjacency[:, k] != 0, k].square().mean().sqrt()) for k in range(2)]
    assert spread == pytest.approx([3.0 / 10, 3.0 / 20], rel=0.03)
    assert not made.effective()[:, adjacency == 0].any() and not made.bias.any()
    assert not made.effective()[..., 2].any() and torch.isfinite(made.weight).all(), "a neuron that nobody reaches"
    signs = made.effective()[0, :, 0][:100].sign().unique().tolist()
    assert signs == ([-1.0, 1.0] if polarity == "free" else [1.0])
    assert (made.effective()[..., 1] <= 0).all() == (polarity != "free")
    assert ("sign" in dict(made.named_buffers())) == (polarity != "free")
    assert Synapses(adjacency, 2, 3.0, polarity, bias=False).bias is None


def test_a_fresh_layer_bends_but_does_not_saturate() -> None:
    assert GAINS == {"tanh": 5 / 3, "sigmoid": 4.0, "silu": 1.7, "linear": 1.0}
    torch.manual_seed(0)
    gate = TimeGate(32, 200)
    assert float(gate.weight.detach().std()) == pytest.approx(1 / 8, rel=0.05) and not gate.bias.any()
    layer = NAC(64, 4, time_features=4, logit_scale=8.0)
    assert not layer.out_proj.bias.any() and layer.logit_scale.tolist() == [8.0] * 4
    bound = math.sqrt(6 / 128)  # Xavier's
    assert 0.95 * bound < float(layer.out_proj.weight.detach().abs().max()) <= bound
    assert layer.time_frequencies.tolist() == pytest.approx([1.0, 0.1, 0.01, 0.001])
    assert NAC(8, 2, logit_scale=True).logit_scale.item() == 1.0 and NAC(8, 2).logit_scale is None
    states = layer.neuron_states(torch.randn(4, 30, 64), t=torch.arange(30.0))
    assert 0.15 < float(states["phi"].detach().std()) < 0.35, "as its gains promise"


def test_a_time_scale_is_learnt_only_where_that_is_asked_for() -> None:
    fixed, learnt = NAC(8, 2, time_scale=3.0), NAC(8, 2, time_scale=3.0, learn_time_scale=True)
    assert fixed.time_scale.item() == learnt.time_scale.item() == 3.0
    assert [name for name, _ in learnt.named_parameters() if name == "time_scale"] == ["time_scale"]
    assert "time_scale" in dict(fixed.named_buffers())


def test_the_seed_of_the_circuit_is_that_of_ncps_unless_given() -> None:
    usual, same, other, again = (NAC(8, 2, seed=seed).wiring.adjacency for seed in (None, 22222, 0, 0))
    assert (usual == same).all() and (other == again).all() and (usual != other).any()


def test_an_empty_memory_says_its_size() -> None:
    state = NAC(8, 2).init_state(3, 5)
    assert repr(state) == "State(heads=2, batch=3, window=5, seen=0)"
    assert (state.t, state.clock, state.weights) == (None, None, None) and not state.memory.any()
    _, after = NAC(8, 2).eval().step(torch.zeros(3, 8), torch.zeros(3), state)
    assert after.seen == 1 and state.seen == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda n, x: n(x, x[..., :4]), "key has shape (2, 5, 4); allowed is [batch, time, 8], none of them 0"),
        (lambda n, x: n(x, t=torch.zeros(5, dtype=torch.bool)), "t has dtype torch.bool; allowed is a real dtype"),
        (lambda n, x: n(x, t=torch.zeros(5, dtype=torch.cfloat)), "t has dtype torch.complex64; allowed is a real"),
        (lambda n, x: n(x, t=torch.zeros(2, 4)), "t has shape (2, 4); allowed is [5] or [2, 5] (seconds)"),
        (lambda n, x: n(x, x, x[:, :3]), "value has 3 steps; allowed is as many as key, 5"),
        (lambda n, x: n(x, x, x[:1]), "value has batch size 1; allowed is that of query, 2"),
        (lambda n, x: n.mask_group("motor", [2]), "neurons=[2]; group 'motor' has positions 0 to 1"),
        (lambda n, x: n.mask_group("motor", [-1]), "neurons=[-1]; group 'motor' has positions 0 to 1"),
        (lambda n, x: n.mask_group("brain"), "group='brain'; allowed are sensory, inter, command, motor"),
    ],
)
def test_a_call_that_makes_no_sense_is_told_in_full(call: Any, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        call(NAC(8, 2), torch.zeros(2, 5, 8))
    assert words in str(caught.value)


def test_times_may_be_whole_numbers_and_shared_by_the_batch() -> None:
    torch.manual_seed(0)
    layer, x = NAC(8, 2).eval(), torch.randn(2, 5, 8)
    expected = layer(x, t=torch.arange(5.0).expand(2, 5))
    for t in (torch.arange(5), torch.arange(5.0), torch.arange(5).expand(2, 5)):
        torch.testing.assert_close(layer(x, t=t), expected)
    # Equal times are in order.
    NAC(8, 2, time_input="gap")(x, t=torch.zeros(5))
