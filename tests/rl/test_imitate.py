"""An agent that looks learns from a driver that knows the track."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.drivers import load_expert
from nacdrive.drivers.ppo import PpoExpert
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.carracing.env import make_carracing
from nacdrive.models.agents.cockpit import CockpitNet
from nacdrive.models.agents.view import FrameStack, View
from nacdrive.rl.config import ImitateConfig
from nacdrive.rl.imitate import BatchedExpert, Drives, Imitation, LabelledDrive, Progress, imitate, label_of
from nacdrive.rollout.rollout import rollout

VIEW = View(height=42, width=48, instruments=True)
TINY = ImitateConfig(
    rounds=2, episodes=2, steps=2, last_steps=1, batch_size=8, eval_every=1, eval_episodes=1, max_frames=50
)

FORGETFUL = replace(
    TINY,
    repeat=4,
    max_frames=80,
    frames=1,
    instruments=False,
    model="lstm",
    memory_window=4,
    memory_width=8,
    sequence_length=4,
    disturbance=CameraNoise(blackout=0.1, blackout_steps=3, dropped=0.3, late=1),
)
"""Sees one small frame at a time, some of them late, black or not at all, and remembers."""


def test_the_instruments_reach_the_network_unspoilt() -> None:
    """At equal speed, bars that differ by a hundredth of a unit differ in what is handed on."""
    env = make_carracing(renderer="fast", instruments=True, continuous=True, repeat=2)
    frame, _ = env.reset(seed=1)
    for _ in range(30):
        frame, *_ = env.step(Action(0.1, 1.0, 0.0))
    small = VIEW.small(frame)[0]
    env.close()
    assert small.shape == VIEW.shape[1:] == (63, 48)
    np.testing.assert_array_equal(small[42:].reshape(12, 84), frame[84:, 12:, 0])
    net = CockpitNet(VIEW)
    darker = frame.copy()
    darker[84:, :12] = 0
    stack = FrameStack(VIEW).push(darker)
    score_hidden = net(torch.from_numpy(stack[None].copy()))
    assert torch.equal(score_hidden, net(torch.from_numpy(FrameStack(VIEW).push(frame)[None].copy())))
    stack[-1, 42:] = np.where(stack[-1, 42:] > 0, stack[-1, 42:] - 1, 0)
    assert not torch.equal(score_hidden, net(torch.from_numpy(stack[None])))


def test_batches_are_stacked_as_the_driver_stacks_them() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (9, *VIEW.shape[1:]), dtype=np.uint8)
    drives = Drives(20, VIEW)
    drives.add(LabelledDrive(frames[:3], np.zeros((3, 2), np.float32), np.arange(3.0), 0.0, False))
    drives.add(LabelledDrive(frames[3:], np.ones((6, 2), np.float32), np.arange(6.0), 0.0, False))
    which = np.array([0, 2, 3, 8])
    for stack, expected in zip(
        drives.stacks(which), ([0, 0, 0, 0], [0, 0, 1, 2], [3, 3, 3, 3], [5, 6, 7, 8]), strict=True
    ):
        np.testing.assert_array_equal(stack, frames[expected])
    assert drives.labels[which, 0].tolist() == [0, 0, 1, 1]


def test_labels_keep_what_turns_the_wheels() -> None:
    assert label_of(Action(-1.0, 0.0, 0.4)) == (-0.5, -0.4)
    assert label_of(Action(0.2, 1.0, 0.0)) == (0.2, 1.0)


@pytest.mark.nightly
def test_it_learns_what_the_teacher_does(tmp_path: Path) -> None:
    torch.manual_seed(0)  # whatever tests ran before
    training = Imitation(replace(TINY, steps=60, learning_rate=(2e-3, 2e-3)), tmp_path, lambda progress: None)
    for drive in training.collect():
        training.drives.add(drive)
    first = training.fit(1)
    training.fit(40)
    assert training.fit(5) < 0.3 * first


class StoppedError(Exception):
    pass


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[ImitateConfig], Path]:
    """The best agent of a run that nothing stopped, one for each config."""
    return cache(lambda tiny: imitate(tiny, tmp_path_factory.mktemp("whole") / "run"))


@pytest.mark.parametrize(
    "tiny", [pytest.param(TINY, id="stack", marks=pytest.mark.nightly), pytest.param(FORGETFUL, id="memory")]
)
def test_a_stopped_run_goes_on_to_the_same_agent(
    tmp_path: Path, whole: Callable[[ImitateConfig], Path], tiny: ImitateConfig
) -> None:

    def stop(progress: Progress) -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        imitate(tiny, tmp_path / "parts", show=stop)
    best = imitate(tiny, tmp_path / "parts", resume=True)

    def last(out: Path) -> Any:
        return load_expert(out.parent / "last.pt", discrete_only=False).net.state_dict()

    first, second = last(whole(tiny)), last(best)
    assert all(torch.equal(first[name], second[name]) for name in first)
    lines = [json.loads(line) for line in (tmp_path / "parts" / "log.jsonl").read_text().splitlines()]
    assert [line["steps"] for line in lines] == [2, 4, 5]
    with pytest.raises(UserError, match="--steps 2 instead of 3"):
        imitate(replace(tiny, steps=3), tmp_path / "parts", resume=True)


def test_a_run_that_was_made_shorter_than_it_is_goes_on(tmp_path: Path) -> None:
    tiny = replace(FORGETFUL, rounds=3, eval_every=4)
    long = Imitation(tiny, tmp_path, lambda progress: None)
    shape = (tiny.max_frames // tiny.repeat, *long.view.shape[1:])
    blank = np.zeros(shape, np.uint8), np.zeros((shape[0], 2), np.float32), np.arange(shape[0], dtype=np.float64)
    for long.round in range(tiny.rounds):
        long.write_drives([LabelledDrive(*blank, 0.0, True)] * tiny.episodes)
    long.round, long.step = tiny.rounds, tiny.all_steps
    long.write_checkpoint(1.0)
    for name in ("log.jsonl", "best.pt"):
        (tmp_path / name).touch()
    short = Imitation(replace(tiny, rounds=1), tmp_path, lambda progress: None)
    short.restore()
    assert (short.round, short.drives.count) == (3, tiny.episodes * shape[0])
    assert short.run() == tmp_path / "best.pt"
    long.restore()
    assert long.drives.count == 3 * short.drives.count


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"expert": "ppo"}, "ppo chooses among five actions"),
        ({"rounds": 0}, "--rounds is 0"),
        ({"steering_noise": -1.0}, "--steering-noise is -1"),
        ({"channels": (0, 8, 8)}, "--channels is 0"),
        ({"model": "lstn"}, "unknown model 'lstn'"),
        ({"memory_options": '{"topk": 8}'}, "--memory-options is for a memory"),
        ({"memory_window": 4}, "--memory-window is for a memory"),
        ({"precision": "float16"}, "--precision is float16"),
        ({"learning_rate": (0.0, 1e-5)}, "--learning-rate is 0"),
        ({"model": "gru", "memory_window": 5000, "max_frames": 60}, "a drive has at most 30 decisions: give no more"),
    ],
)
def test_what_cannot_be_is_refused_before_a_folder_is_made(tmp_path: Path, changes: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        imitate(replace(TINY, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("layer", ["lstm", "cfc", "nac-steady", "mha"])
def test_what_is_trained_is_what_drives(layer: str) -> None:
    """A piece of a drive that is learnt from, the sixteen drives beside each other and the agent of the file, which
    streams, give the same numbers; frames come at uneven times.
    """
    rng = np.random.default_rng(0)
    view = View(frames=1, height=42, width=48)
    training = Imitation(replace(FORGETFUL, model=layer), Path(), lambda progress: None)
    times = np.cumsum(rng.integers(1, 4, 12)) * 0.08
    pictures = rng.integers(0, 256, (12, 96, 96, 3), dtype=np.uint8)
    frames = np.stack([view.small(picture)[0] for picture in pictures])
    training.drives.add(LabelledDrive(frames, rng.random((12, 2), dtype=np.float32), times, 0.0, False))
    piece = training.drives.sequences(np.random.default_rng(1), 40, 4, 4)[0]
    net = training.average
    with torch.no_grad():
        seen = net.features(piece.observations.flatten(0, 1)).view(*piece.padding.shape, -1)
        assert net.memory is not None
        learnt = net.head(net.memory.at(seen, piece.t, piece.trained)).numpy()
        whole = net.head(net.memory(seen, piece.t, piece.padding)[piece.trained]).numpy()
    np.testing.assert_allclose(learnt, whole, atol=1e-5)
    alone = PpoExpert(net, repeat=4, continuous=True)
    beside = BatchedExpert(net, 4, lambda question: training.decide([question, question])[1])
    found = {}
    for driver in (alone, beside):
        driver.reset()
        rows = []
        for picture, t_s in zip(pictures, times, strict=True):
            action = driver.act(picture, {"frame_t_s": float(t_s)})
            rows.append([action.steering, action.throttle - action.brake])
        found[driver] = np.array(rows)
    np.testing.assert_allclose(found[alone], found[beside], atol=1e-5)
    order = np.searchsorted(times, piece.t[piece.trained].numpy())
    assert set(order) == set(range(12))
    np.testing.assert_allclose(np.clip(learnt, -1, 1), found[alone][order], atol=1e-5)


def test_every_decision_is_as_likely_to_be_trained() -> None:
    drives = Drives(40, View(frames=1, height=4, width=4))
    for length in (2, 7, 21):
        frames = np.zeros((length, 4, 4), np.uint8)
        drives.add(
            LabelledDrive(frames, np.zeros((length, 2), np.float32), np.arange(length) + 100.0 * length, 0.0, True)
        )
    pieces, labels = drives.sequences(np.random.default_rng(0), 9000, 5, 3)
    seen, counts = np.unique(pieces.t[pieces.trained].numpy(), return_counts=True)
    assert len(seen) == 30 and len(labels) == counts.sum()
    assert counts.max() < 1.15 * counts.min()


def test_while_no_newer_frame_has_come_the_last_decision_holds() -> None:
    training = Imitation(FORGETFUL, Path(), lambda progress: None)
    driver = PpoExpert(training.net, repeat=4, continuous=True)
    driver.reset()
    picture = np.random.default_rng(0).integers(0, 256, (96, 96, 3), dtype=np.uint8)
    first = driver.act(picture, {"t_s": 0.0, "frame_t_s": 0.0})
    assert driver.act(picture, {"t_s": 0.08, "frame_t_s": 0.0}) is first and driver.state().held
    assert driver.act(picture, {"t_s": 0.16, "frame_t_s": 0.08}) is not first and not driver.state().held


def test_a_lost_frame_is_neither_labelled_nor_remembered(tmp_path: Path) -> None:
    training = Imitation(FORGETFUL, tmp_path, lambda progress: None)
    for drive in training.collect():
        assert len(drive.t) == len(drive.labels) == len(drive.frames) < 20
        assert (np.diff(drive.t) > 0.07).all() and np.diff(drive.t).max() > 0.1
        assert (drive.frames.reshape(len(drive.t), -1).max(axis=1) == 0).any()


def test_each_drive_may_draw_what_is_wrong_with_its_camera(tmp_path: Path) -> None:
    varied = replace(FORGETFUL, episodes=4, vary_camera=True, disturbance=CameraNoise(blackout=0.9, rate=(15, 25)))
    training = Imitation(varied, tmp_path, lambda progress: None)
    drives = training.collect()
    dark = [(drive.frames.reshape(len(drive.t), -1).max(axis=1) == 0).any() for drive in drives]
    quick = [np.diff(drive.t)[:-1].max() < 0.079 for drive in drives]
    assert 0 < sum(dark) < 4 and 0 < sum(quick) < 4
    for drive in drives:
        training.drives.add(drive)  # more decisions than at the usual pace


def test_drives_may_begin_beside_the_road(tmp_path: Path) -> None:
    config = replace(TINY, repeat=4, episodes=1, max_frames=320, steering_noise=0.0)
    (usual,) = Imitation(config, tmp_path, lambda progress: None).collect()
    (bad,) = Imitation(replace(config, bad_starts=1.0), tmp_path, lambda progress: None).collect()
    # The road is darker than the grass, and all that lies before a car that begins in its middle.
    first, begun_badly = ((drive.frames[0, 10:35, 20:28] < 125).mean() for drive in (usual, bad))
    assert first > 0.2 > begun_badly and len(bad.t) > 60


def test_an_agent_with_a_memory_drives_like_any_other(whole: Callable[[ImitateConfig], Path]) -> None:
    agent = load_expert(whole(FORGETFUL), discrete_only=False)
    assert agent.continuous and not agent.instruments and agent.net.memory.spec.gap_s == pytest.approx(0.08)
    env = make_carracing(renderer="fast", repeat=4, max_frames=40, continuous=True)
    try:
        assert [tick.done for tick in rollout(env, agent, 3)][-1]
    finally:
        env.close()
    with pytest.raises(UserError, match="labels frames in their order"):
        agent.logits(np.zeros((1, 1, 42, 48), np.uint8))
