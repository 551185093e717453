"""Listeners of a drive that waits for nobody: in a thread of their own, behind, failing, at a rate, in pieces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Event

import numpy as np

from nacdrive.common.action import Action
from nacdrive.datasets.recording import Recording
from nacdrive.drivers.tick import Tick
from nacdrive.rollout.background import BACKLOG, BackgroundListener, split_drives
from nacdrive.rollout.recorder import EpisodeRecorder, corrections
from nacdrive.rollout.rollout import Probes
from tests.helpers.udacity_simulators import until

FRAME = np.zeros((160, 320, 3), np.uint8)


def tick(step: int, t_s: float, drive: int = 0) -> Tick:
    return Tick(drive, drive, step, t_s, FRAME, Action(0.1, 0.2, 0.0))


def test_listeners_are_told_in_order_and_to_the_end() -> None:
    told: list[Tick] = []
    with BackgroundListener([told.append]) as background:
        for step in range(20):
            background(tick(step, step * 0.02))
    assert [one.step for one in told] == list(range(20)) and background.lost == 0 and not background.failures


def test_neurons_and_saliency_are_read_at_their_rates_and_only_while_watched() -> None:
    told: list[Tick] = []
    read: list[str] = []
    watched = Event()
    watched.set()
    probes = Probes(
        neurons=lambda: read.append("neurons") or {"phi": np.float32([len(read)])},
        neurons_every=2,
        saliency=lambda frame: read.append("saliency") or np.zeros((2, 2), np.float32),
        saliency_every=4,
        watched=watched.is_set,
    )
    with BackgroundListener([told.append], probes) as background:
        for drive in range(2):
            for step in range(8):
                background(tick(step, step * 0.02, drive))
                assert until(lambda count=8 * drive + step + 1: len(told) == count)
        watched.clear()
        background(tick(8, 0.16, 1))
    with_neurons = [(one.episode, one.step) for one in told if one.neurons]
    with_saliency = [(one.episode, one.step) for one in told if one.saliency is not None]
    assert with_neurons == [(drive, step) for drive in (0, 1) for step in (0, 2, 4, 6)]
    assert with_saliency == [(drive, step) for drive in (0, 1) for step in (0, 4)]


def test_nothing_is_read_while_the_listeners_are_behind() -> None:
    told: list[Tick] = []
    free = Event()

    def slow(one: Tick) -> None:
        assert free.wait(120)
        told.append(one)

    probes = Probes(neurons=lambda: {"phi": np.float32([1])}, neurons_every=1)
    with BackgroundListener([slow], probes) as background:
        for step in range(30):
            background(tick(step, step * 0.02))
        free.set()
    having = [one.step for one in told if one.neurons]
    # The first one was read at once or after all had come; in the end nobody is behind any more.
    assert set(range(25, 30)) <= set(having) and not set(range(1, 24)) & set(having)


def test_a_listener_that_stands_still_holds_up_nobody() -> None:
    free = Event()
    with BackgroundListener([lambda one: free.wait(120)]) as background:
        for step in range(1000):
            background(tick(step, step * 0.02))
        assert not free.is_set()
        # The queue is full, and the listener holds at most one more.
        assert 1000 - BACKLOG - 1 <= background.lost <= 1000 - BACKLOG
        free.set()


def test_a_listener_that_fails_is_left_out_and_the_others_go_on() -> None:
    told: list[Tick] = []
    lines: list[str] = []

    class Recorder:
        calls = 0

        def __call__(self, one: Tick) -> None:
            self.calls += 1
            if one.step == 3:
                raise OSError(28, "No space left on device", "/recordings/x")

    recorder = Recorder()
    with BackgroundListener([recorder, told.append], say=lines.append) as background:
        for step in range(20):
            background(tick(step, step * 0.02))
    assert len(told) == 20 and recorder.calls == 4 and len(background.failures) == 1
    assert lines == [
        "Recorder has failed: [Errno 28] No space left on device: '/recordings/x' The drive goes on without it."
    ]


def test_neurons_that_cannot_be_read_are_left_out() -> None:
    told: list[Tick] = []
    lines: list[str] = []

    def neurons() -> dict[str, object]:
        raise RuntimeError("out of memory")

    with BackgroundListener([told.append], Probes(neurons=neurons, neurons_every=1), lines.append) as background:
        for step in range(5):
            background(tick(step, step * 0.02))
    assert len(told) == 5 and len(lines) == 1 and "out of memory" in lines[0]
    assert isinstance(background.failures[0], RuntimeError)


def test_a_recording_is_kept_split_drives() -> None:
    told: list[Tick] = []
    listener = split_drives(told.append, 4)
    for step in range(10):
        listener(tick(step, 7 + step * 0.5))
    listener(tick(0, 0.0, drive=1))
    assert [one.step for one in told] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 0]
    assert [one.done for one in told] == [False, False, False, True] * 2 + [False] * 3
    assert told[4].t_s == 0.0 and told[5].t_s == 0.5
    assert all(one.frame_t_s is None for one in told)


def test_a_part_of_a_drive_shifts_the_times_of_its_frames_too() -> None:
    told: list[Tick] = []
    listener = split_drives(told.append, 4)
    for step in range(3):
        listener(replace(tick(step, 7 + step * 0.5), frame_t_s=7 + step * 0.25))
    assert [one.frame_t_s for one in told] == [0.0, 0.25, 0.5]


def test_a_correction_that_ends_with_the_simulator_is_kept_at_once(tmp_path: Path) -> None:
    with corrections(tmp_path, source="udacity", fps=10.0, image="jpeg") as recorder:
        listener = split_drives(recorder, 1500, 0.1)
        for step in range(50):
            listener(replace(tick(step, step * 0.02), human=step > 20, done=step == 49, events=("gone",)))
        assert recorder.kept == 1
    assert len(Recording.open(tmp_path).load(0)) == 7


def test_a_drive_longer_than_an_episode_is_recorded_whole(tmp_path: Path) -> None:
    with EpisodeRecorder(tmp_path / "kept", source="udacity", fps=50.0, driver="somebody", image="jpeg") as recorder:
        listener = split_drives(recorder, 4)
        for step in range(10):
            listener(tick(step, step * 0.02))
    kept = Recording.open(tmp_path / "kept", source="udacity")
    assert sorted(len(kept.load(number)) for number in range(3)) == [2, 4, 4]
