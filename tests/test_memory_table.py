"""``tools/memory_table.py``: what it compares, with which intervals, and that its events are of the same state."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nacdrive.envs.camera_noise import CameraNoise

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def tool():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        import memory_table
    memory_table.register_layers()
    return memory_table


def line(memory: str, seed: int, points: float) -> dict:
    laps, events = [points - 5, points + 5], [[points / 100], [points / 100]]
    about = {"memory": memory, "seed": seed, "parameters": 1, "seconds": 1, "laps": {}, "events": {}}
    about["laps"] |= dict.fromkeys(("all", "unequal gaps", "hidden speed"), laps)
    about["events"] |= dict.fromkeys(
        ("1 black", "2 black", "4 black", "8 black", "30 % lost", "50 % lost", "up to 4 late", "unequal gaps"), events
    )
    return about


def test_agents_are_paired_by_training_seed_whatever_the_order_of_the_lines(tool):
    rows = [line("lstm", seed, 500 + 10 * seed) for seed in (0, 1, 2)]
    rows += [line("nac-key", seed, 531 + 11 * (seed - 1) + 10) for seed in (2, 0, 1, 5)]
    result = tool.compare(rows, "nac-key", "lstm", "laps", "all")
    assert result["value"] == pytest.approx(31) and result["seeds"] == 3
    # Student's t of three seeds: 31 +- 4.30 * 1 / sqrt(3).
    np.testing.assert_allclose(result["interval95"], [31 - 2.484, 31 + 2.484], atol=1e-3)
    shown = tool.tables(rows)
    assert any(text.startswith("| laps, all | nac-key - lstm | +31 [+29, +33] | 3 |") for text in shown)
    assert any(text.startswith("| events, unequal gaps | nac-key - lstm | +0.31") for text in shown)
    assert tool.compare(rows[:1] + rows[4:5], "nac-key", "lstm", "laps", "all")["interval95"] is None


def test_holm_as_in_his_paper(tool):
    np.testing.assert_allclose(tool.holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    assert tool.holm([0.9, 0.8]) == [1.0, 1.0]


def drives(tool, count: int, steps: int = 30) -> list:
    rng = np.random.default_rng(0)
    frames = rng.integers(1, 255, (count, steps, 42, 48), dtype=np.uint8)
    t, camera = np.arange(steps) * tool.GAP_S, CameraNoise(blackout=0.3, dropped=0.3, late=2)
    labels = rng.normal(size=(count, steps, 2)).astype(np.float32)
    return [tool.PoolDrive(*pair, t, camera, k, "x") for k, pair in enumerate(zip(frames, labels, strict=True))]


def test_a_drive_is_learnt_from_as_its_camera_showed_it(tool):
    pool = drives(tool, 2)
    seen = tool.Seen(pool, np.random.default_rng(0), tool.ARMS["lstm"])
    assert len(seen.edges) == 1 + 2 * tool.VERSIONS
    at = np.arange(seen.edges[0], seen.edges[1])
    gaps = np.diff(seen.t[at])
    assert (gaps > 0).all() and gaps.max() > 1.5 * tool.GAP_S  # some were lost, none is seen twice
    pictures = seen.stacks(at).numpy()[:, 0]
    black = ~pictures.any(axis=(1, 2))
    assert 0 < black.sum() < len(at)
    taken = np.rint(seen.t[at] / tool.GAP_S).astype(int)
    np.testing.assert_array_equal(pictures[~black], pool[0].frames[taken[~black]])
    # The label is of the moment of the decision, not of that at which the frame was taken.
    age = np.rint(np.expm1(seen.times[at, 1])).astype(int)
    assert age.max() > 0
    np.testing.assert_array_equal(seen.labels[at], pool[0].labels[taken + age])
    held = tool.Seen(pool, np.random.default_rng(0), tool.ARMS["hold"])
    assert (held.picture[: held.count] > 0).sum() >= held.count - 2 * tool.VERSIONS  # but for a first one


@pytest.mark.parametrize("name", ["stack", "mha", "nac-key-no-circuit"])
def test_an_arm_learns_and_the_averaged_weights_drive(tool, name):
    net, about = tool.train(tool.ARMS[name], drives(tool, 2), 0, 2)
    assert about["parameters"] > 1000 and np.isfinite(about["loss"])
    agent = tool.Agent(tool.ARMS[name], lambda question: tool.decide(net, [question])[0])
    agent.reset(None)
    frame = np.full((96, 96, 3), 99, np.uint8)
    first = agent.act(frame, {"t_s": 0.0})
    assert abs(first.steering) <= 1 and not agent.held
    assert agent.act(frame, {"t_s": 0.08, "frame_t_s": 0.0}) is first and agent.held
    assert agent.act(np.zeros_like(frame), {"t_s": 0.16}) is not first


def test_without_its_circuit_a_key_has_the_same_rates_whatever_it_holds(tool):
    torch.manual_seed(0)
    layer = tool.WithoutCircuit(8, 8, 2, 4)
    _, moments, _ = layer.nac.read(torch.randn(1, 5, 8), torch.arange(5.0).double()[None])
    assert (moments[..., -3:] == moments[:, :1, :, -3:]).all() and (moments[..., -3] == 0).all()


@pytest.mark.nightly
def test_events_begin_in_the_state_that_the_teacher_left_and_leave_it_alone(tool, monkeypatch):
    monkeypatch.setattr(tool, "PLACES", 4)
    routes = tool.make_routes(1_000_000)
    net = tool.ArmNet(tool.ARMS["gru"]).eval()
    events = tool.judge_events(net, routes)
    assert events == tool.judge_events(net, [tool.Route.of(route.plain()) for route in routes])
    assert set(events) == set(tool.EVENTS) and all(len(metres) == 2 for each in events.values() for metres in each)
    assert max(max(metres) for each in events.values() for metres in each) > 0
