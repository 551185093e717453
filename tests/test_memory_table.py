"""``tools/memory_table.py``: what it compares, with which intervals, and that its events are of the same state."""

import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.layers.registry import LAYERS

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def tool():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        import memory_table

        # Its layers are gone again for the tests that come after.
        patch.setattr(LAYERS, "_registered", {})
        memory_table.register_layers()
        yield memory_table


@pytest.fixture(scope="module")
def comparisons(tool):
    return sys.modules["memory_comparisons"]


def line(memory: str, seed: int, points: float) -> dict:
    laps, events = [points - 5, points + 5], [[points / 100], [points / 100]]
    about = {"memory": memory, "seed": seed, "parameters": 1, "seconds": 1, "laps": {}, "events": {}}
    about["laps"] |= dict.fromkeys(("all", "unequal gaps", "hidden speed"), laps)
    about["events"] |= dict.fromkeys(
        ("1 black", "2 black", "4 black", "8 black", "30 % lost", "50 % lost", "up to 4 late", "unequal gaps"), events
    )
    return about


def test_agents_are_paired_by_training_seed_whatever_the_order_of_the_lines(comparisons):
    rows = [line("lstm", seed, 500 + 10 * seed) for seed in (0, 1, 2)]
    rows += [line("nac-key", seed, 531 + 11 * (seed - 1) + 10) for seed in (2, 0, 1, 5)]
    result = comparisons.compare(rows, "nac-key", "lstm", "laps", "all")
    assert result["value"] == pytest.approx(31) and result["seeds"] == 3
    # Student's t of three seeds: 31 +- 4.30 * 1 / sqrt(3).
    np.testing.assert_allclose(result["interval95"], [31 - 2.484, 31 + 2.484], atol=1e-3)
    shown = comparisons.tables(rows)
    assert any(text.startswith("| laps, all | nac-key - lstm | +31 [+29, +33] | 3 |") for text in shown)
    assert any(text.startswith("| events, unequal gaps | nac-key - lstm | +0.31") for text in shown)
    assert comparisons.compare(rows[:1] + rows[4:5], "nac-key", "lstm", "laps", "all")["interval95"] is None


def test_each_arm_less_another_is_bold_where_the_interval_leaves_out_zero(comparisons):
    rows = [line("none", seed, 500) for seed in (0, 1, 2)]
    rows += [line("lstm", seed, 531 + 11 * (seed - 1)) for seed in (0, 1, 2)]
    rows += [line("gru", seed, 531 + 50 * (seed - 1)) for seed in (0, 1, 2)] + [line("cfc", 1, 400)]
    head, _, *arms = comparisons.less(rows, "none")
    cells = [[part.strip() for part in text.split("|")[1:-1]] for text in (head, *arms)]
    assert cells[0][:2] == ["less `none`", "laps, all"] and cells[0][-2:] == ["unequal gaps", "seeds"]
    assert [row[:2] for row in cells[1:]] == [
        ["lstm", "**+31** [4, 58]"], ["gru", "+31 [-93, 155]"], ["cfc", "-100"],
    ]  # fmt: skip
    assert [row[-2:] for row in cells[1:]] == [
        ["**+0.31** [0.04, 0.58]", "3"],
        ["+0.31 [-0.93, 1.55]", "3"],
        ["-1.00", "1"],
    ]


def test_holm_as_in_his_paper(comparisons):
    np.testing.assert_allclose(comparisons.holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    assert comparisons.holm([0.9, 0.8]) == [1.0, 1.0]


@pytest.fixture
def small(tool, monkeypatch):
    """Trainings of two rounds, of one drive of 15 decisions and two minibatches each."""
    worst = CameraNoise(blackout=0.3, dropped=0.3, late=2)
    monkeypatch.setattr(tool, "draw_camera", lambda rng: worst)
    return tool


@pytest.fixture(params=["carracing", "udacity-track"])
def experiment(request, small):
    return replace(small.EXPERIMENTS[request.param], rounds=2, each=1, steps=2, last_steps=0, decisions=15)


@pytest.mark.parametrize("name", ["stack", "hold", "lstm", "nac-key"])
def test_what_is_learnt_from_is_what_drove(small, experiment, name):
    torch.manual_seed(0)
    net, asked = small.ArmNet(small.ARMS[name], experiment).eval(), []

    def ask(question):
        answer = small.decide(net, [question])[0]
        asked.append((*question[:3], answer[0].copy()))
        return answer

    seen = small.Seen(small.ARMS[name], experiment)
    seen.add_all([small.label(1_000_200, small.Agent(small.ARMS[name], ask, experiment), 0.5)])
    stacks, times, t, rows = map(np.stack, zip(*asked, strict=True))
    at = np.arange(seen.count)
    np.testing.assert_array_equal(seen.stacks(at), stacks)
    np.testing.assert_array_equal(seen.times[at], times)
    np.testing.assert_array_equal(seen.t[at], t)
    assert len(at) < 15 and np.ptp(np.diff(t)) > 0 and times[:, 1].max() > 0  # some were lost, some late
    with torch.no_grad():
        learnt = small.predict(net, seen, at[None], np.ones((1, len(at)), bool))
    np.testing.assert_allclose(learnt.numpy(), rows, atol=1e-5)


@pytest.mark.parametrize("env", ["carracing", "udacity-track"])
def test_all_arms_learn_on_the_same_tracks_through_the_same_cameras(tool, env):
    experiment = tool.EXPERIMENTS[env]
    rounds = [tool.tracks_of(seed, number, experiment) for seed in (0, 1) for number in range(experiment.rounds)]
    tracks = {track for tracks in rounds for track in tracks}
    assert len(tracks) == 2 * experiment.rounds * experiment.each
    last = tool.tracks_of(9, experiment.rounds - 1, experiment)
    assert last.stop <= experiment.training.stop and not tracks & {*experiment.validation[:1000], *experiment.test}
    cameras = [tool.draw_camera(np.random.default_rng([track, 5])) for track in range(400)]
    assert 0.6 < np.mean([camera == tool.ALL for camera in cameras]) < 0.9
    assert max(camera.late for camera in cameras) == tool.EVENTS["unequal gaps"][0].late


def test_an_arm_learns_and_the_averaged_weights_drive(small, experiment, tmp_path):
    arm = small.ARMS["nac-key-no-circuit"]
    whole, about = small.train(arm, 0, tmp_path / "whole", experiment)
    assert about["parameters"] > 1000 and np.isfinite(about["loss"]) and len(about["driven"]) == 2
    net = small.ArmNet(arm, experiment).eval()
    net.load_state_dict(whole)
    agent = small.Agent(arm, lambda question: small.decide(net, [question])[0], experiment)
    agent.reset(None)
    frame = np.full((160, 320, 3), 99, np.uint8)
    first = agent.act(frame, {"t_s": 0.0})
    assert abs(first.steering) <= 1 and not agent.held
    assert agent.act(frame, {"t_s": 0.08, "frame_t_s": 0.0}) is first and agent.held
    assert agent.act(np.zeros_like(frame), {"t_s": 0.16}) is not first


def test_a_stopped_training_ends_with_the_same_weights(small, experiment, tmp_path):
    whole, about = small.train(small.ARMS["mha"], 0, tmp_path / "whole", experiment)
    first = small.Training(small.ARMS["mha"], 0, experiment)
    first.round()
    small.write_tensor_file(tmp_path / "half", small.KIND, 1, {"content": first.state()})
    parted, again = small.train(small.ARMS["mha"], 0, tmp_path / "half", experiment)
    assert again["loss"] == about["loss"] and again["driven"] == about["driven"]
    assert all(torch.equal(parted[name], value) for name, value in whole.items())


def test_a_car_that_has_left_the_field_is_far_from_the_middle_from_then_on(tool):
    experiment = replace(tool.UDACITY, decisions=4)
    lap = [Namespace(step=k, next_info={"lane_offset_m": metres}, episode_return=1) for k, metres in enumerate([-1, 9])]
    assert experiment.score(lap) == (1 + 3 * experiment.farthest_m) / 4
    assert tool.CARRACING.score(lap) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("env", ["carracing", "udacity-track"])
def test_events_begin_in_the_state_that_the_teacher_left_and_leave_it_alone(tool, monkeypatch, env):
    monkeypatch.setattr(tool, "PLACES", 4)
    experiment = tool.EXPERIMENTS[env]
    routes = tool.make_routes(experiment.validation.start, experiment)
    net = tool.ArmNet(tool.ARMS["gru"], experiment).eval()
    events = tool.judge_events(net, routes)
    assert events == tool.judge_events(net, [tool.Route.of(route.plain()) for route in routes])
    assert set(events) == set(tool.EVENTS) and all(len(metres) == 2 for each in events.values() for metres in each)
    assert max(max(metres) for each in events.values() for metres in each) > 0
