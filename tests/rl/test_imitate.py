"""An agent that looks learns from a driver that knows the track."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.drivers import load_expert
from nacdrive.drivers.ppo_cockpit import CockpitNet
from nacdrive.drivers.ppo_view import FrameStack, View
from nacdrive.envs.carracing.env import make_carracing
from nacdrive.rl.imitate import Drives, Imitation, Progress, imitate, label_of
from nacdrive.rl.imitate_config import ImitateConfig

VIEW = View(height=42, width=48, instruments=True)
TINY = ImitateConfig(
    rounds=2, episodes=2, steps=2, last_steps=1, batch_size=8, eval_every=1, eval_episodes=1, max_frames=50
)


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
    drives.add(frames[:3], np.zeros((3, 2), np.float32))
    drives.add(frames[3:], np.ones((6, 2), np.float32))
    stacks, labels = drives.batch(np.array([0, 2, 3, 8]))
    for stack, expected in zip(stacks, ([0, 0, 0, 0], [0, 0, 1, 2], [3, 3, 3, 3], [5, 6, 7, 8]), strict=True):
        np.testing.assert_array_equal(stack, frames[expected])
    assert labels[:, 0].tolist() == [0, 0, 1, 1]


def test_labels_keep_what_turns_the_wheels() -> None:
    assert label_of(Action(-1.0, 0.0, 0.4)) == (-0.5, -0.4)
    assert label_of(Action(0.2, 1.0, 0.0)) == (0.2, 1.0)


def test_it_learns_what_the_teacher_does(tmp_path: Path) -> None:
    training = Imitation(replace(TINY, steps=60, lr=(2e-3, 2e-3)), tmp_path, lambda progress: None)
    for drive in training.collect():
        training.drives.add(drive.frames, drive.labels)
    first = training.fit(1)
    training.fit(40)
    assert training.fit(1) < 0.3 * first


class StoppedError(Exception):
    pass


def test_a_stopped_run_goes_on_to_the_same_agent(tmp_path: Path) -> None:
    whole = imitate(TINY, tmp_path / "whole")

    def stop(progress: Progress) -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        imitate(TINY, tmp_path / "parts", show=stop)
    best = imitate(TINY, tmp_path / "parts", resume=True)

    def last(out: Path) -> Any:
        return load_expert(out.parent / "last.pt", discrete_only=False).net.state_dict()

    first, second = last(whole), last(best)
    assert all(torch.equal(first[name], second[name]) for name in first)
    lines = [json.loads(line) for line in (tmp_path / "parts" / "log.jsonl").read_text().splitlines()]
    assert [line["steps"] for line in lines] == [2, 4, 5]
    with pytest.raises(UserError, match="--steps 2 instead of 3"):
        imitate(replace(TINY, steps=3), tmp_path / "parts", resume=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"teacher": "ppo"}, "ppo chooses among five actions"),
        ({"rounds": 0}, "--rounds is 0"),
        ({"noise": -1.0}, "--noise is -1"),
        ({"precision": "float16"}, "--precision is float16"),
        ({"lr": (0.0, 1e-5)}, "--lr is 0"),
    ],
)
def test_what_cannot_be_is_refused_before_a_folder_is_made(tmp_path: Path, changes: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        imitate(replace(TINY, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()
