"""Teaching: a person's corrections become rounds of a training, which take over between decisions and can be undone."""

from __future__ import annotations

import fcntl
import json
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from nacdrive.cli.drive import DriveConfig, load, what_if_of
from nacdrive.cli.main import parse
from nacdrive.common.errors import UserError
from nacdrive.common.paths import shipped
from nacdrive.common.result_folder import LOCK
from nacdrive.datasets.manifest import MANIFEST
from nacdrive.datasets.recording import Recording
from nacdrive.datasets.writer import RecordingWriter, set_aside
from nacdrive.drivers.human import HumanControl, Keyboard
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.drivers.tick import Tick
from nacdrive.envs.base import Keys
from nacdrive.envs.carracing.env import to_action
from nacdrive.extras.teach import card as teach_module
from nacdrive.extras.teach import pupil
from nacdrive.extras.teach import rounds as rounds_module
from nacdrive.extras.teach.card import TeachCard, teach_card
from nacdrive.extras.teach.pupil import Outcome, compare, meant
from nacdrive.extras.teach.rounds import Job, Round, Teaching
from nacdrive.models import Policy, PolicyConfig, load_policy, save_policy
from nacdrive.rollout.recorder import EpisodeBuffer, corrections, executed_action
from nacdrive.rollout.train_config import TrainConfig
from nacdrive.rollout.train_policy import round_path, train_policy
from nacdrive.tasks.driving import DrivingTask
from tests.helpers.episodes import make_episode
from tests.helpers.ticks import make_tick

STEPS = 40


def tick_of(step: int, seed: int, *, human: bool = False, **more: Any) -> Tick:
    """A Tick of a drive, or of a person who accelerates whatever comes."""
    by_person = {"action": to_action(3), "policy": make_tick(step).action, "human": True} if human else {}
    tick = make_tick(step, circuit=False, saliency=False, **by_person, **more)
    return replace(tick, seed=seed)


@pytest.fixture(scope="module")
def old_laps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teach") / "old"
    writer = RecordingWriter(folder, source="carracing", fps=20.0, expert="keyboard")
    for seed in range(2):
        buffer = EpisodeBuffer(executed_action)
        for step in range(STEPS):
            buffer(tick_of(step, seed))
        writer.add(buffer.episode(source="carracing", driver="keyboard", meta={}))
    return folder


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that has learnt nothing."""
    torch.manual_seed(0)
    actions = tuple((a.steering, a.throttle, a.brake) for a in map(to_action, range(5)))
    size: dict[str, Any] = {"channels": (4, 4), "kernels": (5, 3), "strides": (4, 4), "window": 2, "d_model": 8}
    config = PolicyConfig(task="carracing", model="mha", actions=actions, num_heads=2, **size)
    path = tmp_path_factory.mktemp("teach") / "first.pt"
    save_policy(Policy.new(config, "first"), path, {"config": {"model": "mha"}})
    return path


@pytest.fixture
def training(first: Path, old_laps: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        model="mha", first=first, data=(old_laps,), window=2, epochs=1, lesson_frames=256, learning_rate=3e-3,
        schedule="hat", average=0.9, valid_share=0.5, out=tmp_path / "teaching" / "training",
    )  # fmt: skip


@pytest.fixture
def teaching(training: TrainConfig, tmp_path: Path) -> Teaching:
    return Teaching(tmp_path / "teaching", tmp_path / "teaching" / "corrections", training)


@pytest.fixture
def card(teaching: Teaching, first: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TeachCard]:
    # What is learnt in one epoch by so small a network may come to anything.
    monkeypatch.setattr(teach_module, "WORSE", 1.0)
    card = TeachCard(teaching, PolicyDriver(load_policy(first)), begin=False, standing=False)
    card.around(corrections(teaching.recording, source="carracing", fps=20.0))
    yield card
    card.close()


def correct(card: TeachCard, seed: int) -> None:
    """A person takes the wheel for 20 decisions of a drive."""
    for step in range(30):
        card.listen(tick_of(step, seed, human=5 <= step < 25))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def same(one: dict[str, Any], two: dict[str, Any]) -> bool:
    return all(torch.equal(one[name], two[name]) for name in one)


def test_a_correction_is_learnt_takes_over_and_can_be_undone_and_trained_again(
    card: TeachCard, teaching: Teaching, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def weights() -> dict[str, Any]:
        return {name: value.clone() for name, value in card.driver.policy.network.state_dict().items()}  # type: ignore[union-attr]

    untaught = weights()
    card.begin()
    correct(card, 7)
    until(lambda: card._weights is not None)
    assert same(weights(), untaught), "nothing takes over but between two decisions of the drive"
    card.listen(tick_of(1, 8))
    taught = weights()
    assert not same(taught, untaught)
    assert same(taught, load_policy(teaching.model).network.state_dict())
    assert teaching.count == 1 and "1 correction in 1 round, agreement with you" in card._news
    lesson = Recording.open(teaching.folder / teaching.rounds[0].lesson)
    assert lesson.meta["source"] == "carracing" and set(lesson.load(0).expert_choice) == {3}
    assert len(lesson.load(0).meta["policy"]["choice"]) == 20, "what the policy wanted to do stands beside it"

    again = parse(TrainConfig, "nacdrive train", shlex.split(teaching.command())[2:])
    assert isinstance(again, TrainConfig)
    path = train_policy(replace(again, out=tmp_path / "again", valid_share=0.5))
    assert same(load_policy(path).network.state_dict(), taught)

    undo = card._command("undo")
    assert undo is not None
    undo()
    card.listen(tick_of(2, 8))
    assert same(weights(), untaught)
    assert not teaching.model.exists() and not teaching.pending
    assert len(Recording.open(teaching.recording)) >= 1, "what the person did stays recorded"
    assert "undone: round 1" in card._news


def test_a_round_that_makes_the_old_laps_worse_is_not_taken_over_and_learnt_again_with_more(
    card: TeachCard, teaching: Teaching, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(teach_module, "WORSE", -2.0)
    card.begin()
    correct(card, 7)
    until(lambda: "not taken over" in card._news)
    assert "worse" in card._news and not teaching.rounds and card._weights is None
    assert "Teaching: round 1 is not taken over: it would make the old laps worse" in capsys.readouterr().out
    monkeypatch.setattr(teach_module, "WORSE", 1.0)
    correct(card, 8)
    until(lambda: bool(teaching.rounds))
    assert teaching.count == 2


def test_a_damaged_correction_is_named_and_the_others_are_learnt(
    card: TeachCard, teaching: Teaching, capsys: pytest.CaptureFixture[str]
) -> None:
    correct(card, 7)
    path = teaching.recording / "episode-0000007.parquet"
    data = bytearray(path.read_bytes())
    data[-300] ^= 255
    path.write_bytes(data)
    correct(card, 8)
    assert card._wait_for_more() == (path.with_name("episode-0000008.parquet"),) == teaching.pending
    assert f"left out: {path} has been altered since it was recorded" in card._news and "--set-aside" in card._news
    assert card._wait_for_more() == teaching.pending
    assert capsys.readouterr().out.count("left out") == 1


def test_a_job_with_a_damaged_correction_is_a_sentence_and_the_process_goes_on(
    teaching: Teaching, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = RecordingWriter(teaching.recording, source="carracing", fps=12.5, expert="keyboard")
    path = writer.add(make_episode(1))
    data = bytearray(path.read_bytes())
    data[-300] ^= 255
    path.write_bytes(data)
    monkeypatch.setattr(pupil.Pupil, "__init__", lambda self, training: None)
    monkeypatch.setattr(pupil, "lower_priority", lambda: None)
    jobs = iter([Job(1, teaching.folder / "lesson-1", (path,), ())])
    sent: list[object] = []
    pipe = SimpleNamespace(recv=lambda: next(jobs), send=sent.append)
    with pytest.raises(StopIteration):
        pupil.learn_rounds(cast(Any, pipe), teaching.training)
    assert len(sent) == 1 and isinstance(sent[0], UserError) and f"{path} has been altered" in str(sent[0])


def test_a_correction_of_a_seed_whose_file_was_set_aside_is_learnt(teaching: Teaching) -> None:
    writer = RecordingWriter(teaching.recording, source="carracing", fps=12.5, expert="keyboard")
    paths = [writer.add(make_episode(seed)) for seed in (7, 8)]
    teaching.rounds = [Round("lesson-1", tuple(path.name for path in paths), (0.5, 0.75), (0.875, 0.875))]
    assert not teaching.pending
    set_aside(paths[0])
    with pytest.warns(UserWarning, match="is missing"):
        assert teaching.pending == (), "nothing is learnt twice"
    path = writer.add(make_episode(7))
    with pytest.warns(UserWarning, match="is missing"):
        assert teaching.pending == (path,)


def test_a_teaching_goes_on_with_the_same_policy_however_it_is_named(
    teaching: Teaching, training: TrainConfig, first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "p.pt"
    policy.write_bytes(first.read_bytes())
    monkeypatch.chdir(tmp_path)

    def go_on(name: Path) -> None:
        again = Teaching(teaching.folder, teaching.recording.relative_to(tmp_path), replace(training, first=name))
        again.open(overwrite=False, resume=teaching.folder.exists())
        again.save(again.rounds, again.undone)

    for name in (policy, Path("p.pt")):
        go_on(name)
    go_on(policy.rename(tmp_path / "moved.pt"))
    written = teaching.folder / "teaching.json"
    text = written.read_text()
    (tmp_path / "moved.pt").write_bytes(first.read_bytes() + b"another")
    with pytest.raises(
        UserError, match=r"is a teaching of .*moved\.pt, which has changed since: give another --out\.$"
    ):
        go_on(Path("moved.pt"))
    stored = json.loads(text)
    del stored["first_sha256"]
    written.write_text(json.dumps(stored))
    go_on(Path("moved.pt"))  # of which an older nacdrive noted the name alone


def test_what_speaks_against_a_round() -> None:
    shares = (0.71, 0.93), (0.97, 0.94)
    assert teach_module.objection(Outcome(*shares, gains=(0.3, 0.01))) == "", "it may be no worse"
    assert "(97 → 94 % as recorded)" in teach_module.objection(Outcome(*shares, gains=(0.3, -0.01)))
    less = Outcome((0.71, 0.6), (0.97, 0.97), gains=(-0.01, 0.02))
    assert "agree with you less (71 → 60 %)" in teach_module.objection(less)
    assert teach_module.shift((0.971, 0.969)) == "unchanged at 97 %"


def test_whether_a_policy_is_worse_is_asked_of_pieces_of_the_laps() -> None:
    before, fallen = np.ones(480, dtype=bool), np.ones(480, dtype=bool)
    fallen[:60] = False
    shares, gain = compare(before, fallen)
    assert shares == (1.0, 0.875) and gain > -0.03, "one bend may be chance"
    fallen[::4] = False
    assert compare(before, fallen)[1] < -0.2
    assert compare(before[:1], fallen[:1])[1] == 1.0, "of one decision nothing is known"


def test_a_teaching_goes_on_where_a_killed_one_stopped(teaching: Teaching, training: TrainConfig) -> None:
    teaching.open(overwrite=False, resume=False)
    writer = RecordingWriter(teaching.recording, source="carracing", fps=12.5, expert="keyboard")
    one, two = (writer.add(make_episode(seed)) for seed in (1, 2))
    job = teaching.begin_round((one,))
    for path in (job.lesson / "recording.json", training.folder / "policy-round-1.pt"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("learnt")
    teaching.accept(job, (0.5, 0.75), (0.875, 0.875))
    unfinished = teaching.begin_round((two,))
    (training.folder / "policy-round-2.pt").write_text("killed before it was accepted")
    unfinished.lesson.mkdir()
    later = Teaching(teaching.folder, teaching.recording, training)
    later.open(overwrite=False, resume=True)
    assert later.rounds == teaching.rounds and later.pending == (two,)
    assert not unfinished.lesson.exists() and not (training.folder / "policy-round-2.pt").exists()
    assert later.model.read_text() == "learnt"
    later.undo()
    assert not later.model.exists() and later.pending == (two,)
    stored = json.loads((teaching.folder / "teaching.json").read_text())
    assert stored["undone"] == [one.name]
    with pytest.raises(UserError, match=f"learns from {teaching.recording}: give --corrections {teaching.recording}"):
        Teaching(teaching.folder, Path("elsewhere"), training).open(overwrite=False, resume=True)
    (teaching.folder / "teaching.json").write_text(json.dumps({"first": str(training.first)}))
    with pytest.raises(UserError, match=r"teaching\.json is damaged \(KeyError.*give another --out"):
        later.open(overwrite=False, resume=True)
    own = replace(training, first=later.model)
    with pytest.raises(UserError, match="is read here, and --overwrite would delete it"):
        Teaching(teaching.folder, teaching.recording, own).open(overwrite=True, resume=False)
    with pytest.raises(UserError, match="is a teaching of"):
        other = replace(training, first=Path("other.pt"))
        Teaching(teaching.folder, teaching.recording, other).open(overwrite=False, resume=True)


def test_a_full_disk_is_one_sentence_and_all_corrections_wait_for_room(
    card: TeachCard, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "corrections")

    monkeypatch.setattr(teach_module, "RETRY_S", 0.0)
    with monkeypatch.context() as disk:
        disk.setattr(RecordingWriter, "add", full)
        for seed in (7, 8, 9):
            correct(card, seed)
        assert (card.teaching.recording / MANIFEST).exists() and card.teaching.pending == ()
    printed = capsys.readouterr().out
    assert printed.count("corrections wait in memory") == 1 and "no space is left on the disk" in printed
    card.listen(tick_of(30, 9))
    assert card.recorder is not None and card.recorder.kept == 3
    recording = Recording.open(card.recorder.folder)
    assert [(recording.load(k).seed, len(recording.load(k))) for k in range(3)] == [(7, 20), (8, 20), (9, 20)]
    assert len(card._wait_for_more()) == 3, "and are learnt from"


@pytest.mark.parametrize("full", ["write_json", "atomic_path"])
def test_a_round_that_the_disk_does_not_take_is_neither_learnt_nor_undone(
    full: str, card: TeachCard, first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device", "teaching")

    teaching = card.teaching
    teaching.open(overwrite=False, resume=False)
    for number in (1, 2):
        path = round_path(teaching.training.folder, number)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(first.read_bytes() + bytes(number))
    one, two = (Job(k, teaching.folder / f"lesson-{k}", (Path(f"{k}"),), ()) for k in (1, 2))
    teaching.accept(one, (0.5, 0.75), (0.875, 0.875))
    kept = [path.read_bytes() for path in (teaching.model, teaching.folder / "teaching.json")]
    with monkeypatch.context() as disk:
        disk.setattr(rounds_module, full, no_room)
        with pytest.raises((OSError, UserError), match=r"(?i)no space"):
            teaching.accept(two, (0.5, 0.75), (0.875, 0.875))
        disk.setattr(rounds_module, "write_json", no_room)
        for wish in ("undo", "drop"):
            command = card._command(wish)
            assert command is not None
            command()
            assert "no space is left on the disk" in card._news and card._ended == ""
    assert [one.lesson for one in teaching.rounds] == ["lesson-1"] and teaching.undone == [] and card._weights is None
    assert [path.read_bytes() for path in (teaching.model, teaching.folder / "teaching.json")] == kept


@pytest.mark.parametrize("wish", ["", "now"])
def test_on_the_wire_a_new_network_takes_over_while_the_car_stands_or_on_request(card: TeachCard, wish: str) -> None:
    card.standing = True
    shown: dict[str, Any] = {}
    card.page = SimpleNamespace(set=lambda teach: shown.update(teach), note=lambda text: None)  # type: ignore[assignment]
    other = {name: value + 1 for name, value in card.driver.policy.network.state_dict().items()}  # type: ignore[union-attr]
    card._weights = other
    card.listen(replace(tick_of(1, 7), speed_mps=9.0))
    card._show()
    assert card._weights is other and shown["can"]["now"], "while it drives nothing changes under it"
    if command := card._command(wish):
        command()
    card.listen(replace(tick_of(2, 7, human=True), speed_mps=0.0))
    assert card._weights is other, "nor while a person has the wheel"
    card.listen(replace(tick_of(3, 7), speed_mps=9.0 if wish else 0.05))
    assert card._weights is None and same(card.driver.policy.network.state_dict(), other)  # type: ignore[union-attr]
    if command:
        command()
    card._weights = other
    card.listen(replace(tick_of(4, 7), speed_mps=9.0))
    assert card._weights is other, "who presses twice has asked for one network"


def test_the_page_shows_what_goes_on_and_what_can_be_asked(card: TeachCard) -> None:
    shown: dict[str, Any] = {}
    card.page = SimpleNamespace(set=lambda teach: shown.update(teach), note=lambda text: None)  # type: ignore[assignment]

    def state() -> tuple[bool, str, float | None, set[str]]:
        card._show()
        return shown["begun"], shown["text"], shown["share"], {what for what, may in shown["can"].items() if may}

    begun, text, share, can = state()
    assert not begun and text.startswith("Teach it: ") and share is None and not can and not shown["taught"]
    card._thread = threading.current_thread()
    card._job, card._share = Job(0, Path(), (), ()), 0.25
    assert state() == (True, "Reading the old laps. You may take the wheel already.", None, set())
    card._job = None
    assert state()[:2] == (True, "Take the wheel where it goes wrong, and hand back when it is well again.")
    card.teaching.rounds.append(Round("lesson-1", ("a", "b"), (0.5, 0.75), (0.875, 0.875)))
    result = "2 corrections in 1 round, agreement with you 50 → 75 %, the old laps unchanged at 88 %: "
    result += f"{card.teaching.model}."
    assert state() == (True, result, None, {"undo", "keep", "drop"}) and shown["taught"]
    card._job = Job(2, Path(), (Path("c"),), ())
    assert state() == (True, f"{result} Learning round 2 from 1 correction ...", 0.25, {"keep"})
    card._job, card._weights, card.standing = None, {}, True
    _, text, _, can = state()
    assert text == f"{result} The new network takes over when the car stands." and can == {
        "undo",
        "keep",
        "drop",
        "now",
    }
    card.standing, card._ended = False, "keep"
    assert state() == (False, f"Kept. {result}", None, {"drop"})
    card._ended = "drop"
    begun, text, _, can = state()
    assert not begun and text.startswith("Dropped: the policy of before drives.") and not can
    card._thread = None


@pytest.mark.parametrize("wish", ["undo", "drop"])
def test_while_the_old_laps_are_read_again_a_round_can_be_undone_or_dropped(card: TeachCard, wish: str) -> None:
    card.teaching.open(overwrite=False, resume=False)
    card.teaching.rounds.append(Round("lesson-1", ("a",), (0.5, 0.75), (0.875, 0.875)))
    card._job = card.teaching.begin_round(())
    command = card._command(wish)
    assert command is not None
    command()
    assert not card.teaching.rounds and card.teaching.undone == ["a"] and card._weights is not None
    assert card._ended == ("drop" if wish == "drop" else "")


def test_a_page_that_closes_in_the_middle_of_a_correction_loses_nothing_of_it(card: TeachCard, tmp_path: Path) -> None:
    now = 0.0
    control = HumanControl(clock=lambda: now)
    for step in range(30):
        if step == 5:
            control.acquire(1)
        if 5 <= step < 15:
            control.set_keys(1, ["up"])
        # From then on the browser is silent.
        now = 0.08 * step
        card.listen(tick_of(step, 7, human=control.poll(wait=False).keys is not None))
    assert control.state["person"] is None
    (kept,) = [Recording.open(card.teaching.recording).load(0)]
    assert 10 <= len(kept) <= 17 and kept.t_s[0] == pytest.approx(tick_of(5, 7).t_s)
    assert card.recorder is not None and card.recorder.kept == 1


def test_what_a_stick_steers_is_a_correction_like_that_of_keys(card: TeachCard) -> None:
    person = Keyboard()
    steered = [
        person.action(
            (), 0.08 * k, cast(Any, SimpleNamespace(actions=(), unwrapped=SimpleNamespace(keys=Keys()))), (0.25, 0.0)
        )
        for k in range(20)
    ]
    for step, action in enumerate(steered):
        card.listen(replace(tick_of(step, 7, human=True), action=replace(action, human=True)))
    card.listen(tick_of(len(steered), 7))
    mean = meant(Recording.open(card.teaching.recording).load(0))
    assert mean is not None and mean == pytest.approx(0.25)


def test_of_two_commands_that_teach_into_one_folder_the_second_is_refused(teaching: Teaching) -> None:
    teaching.folder.mkdir()
    with (teaching.folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another nacdrive writes into"):
            teaching.open(overwrite=False, resume=True)


def test_a_kill_between_two_files_leaves_the_taught_policy_as_the_rounds_are(teaching: Teaching) -> None:
    teaching.open(overwrite=False, resume=False)
    rounds = [round_path(teaching.training.folder, number) for number in (1, 2)]
    teaching.training.folder.mkdir(exist_ok=True)
    for path in rounds:
        path.write_text(path.name)
    teaching.accept(Job(1, teaching.folder / "lesson-1", (Path("a"),), ()), (0.5, 0.75), (0.875, 0.875))
    before = teaching.model.read_bytes()
    teaching.accept(Job(2, teaching.folder / "lesson-2", (Path("b"),), ()), (0.5, 0.75), (0.875, 0.875))
    # Killed when the rounds were written down, and their policy was not yet.
    teaching.model.write_bytes(before)
    later = Teaching(teaching.folder, teaching.recording, teaching.training)
    later.open(overwrite=False, resume=True)
    assert later.model.read_bytes() == rounds[1].read_bytes()


def test_damaged_old_laps_are_one_sentence_on_the_page(card: TeachCard, old_laps: Path) -> None:
    training = card.teaching.training
    card.teaching.training = replace(training, data=(old_laps.parent / "elsewhere",))
    card.begin()
    until(lambda: "not begun" in card._news)
    assert "elsewhere" in card._news


def test_steering_by_taps_is_learnt_as_its_mean() -> None:
    taps = replace(make_episode(3, steps=30), choice=np.full(30, -1), steering=np.tile([0.0, 1.0, 0.0], 10))
    mean = meant(taps)
    assert mean is not None and mean[10:20] == pytest.approx(1 / 3, abs=0.1)
    begun = meant(replace(taps, steering=np.r_[np.linspace(0, 1, 4), np.ones(26)]))
    assert begun is not None and begun[0] > 0.9, "the wheel's way to where it is meant is not learnt"
    slow = replace(make_episode(3, steps=4), choice=np.full(4, -1), t_s=np.arange(4.0), steering=np.arange(4.0) / 4)
    np.testing.assert_array_equal(meant(slow), [0.25, 0.25, 0.5, 0.75], "frames that are a second apart")
    assert meant(make_episode(3)) is None, "choices have no mean"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"data": (Path("laps"),)}, "--data of a drive: for teaching alone. Add --teach"),
        ({"resume": True, "out": Path("x")}, "--out and --resume of a drive"),
        ({"teach": True, "headless": True}, "--teach needs the page"),
        ({"model": "nac_exact", "driver": "ppo"}, "--model is for a policy, and --driver drives: leave one out"),
        ({"corrections": Path("mine")}, "--corrections keeps what a person drives: add --allow-control"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        DriveConfig(**options)


def test_the_button_and_what_if_stand_on_one_page(old_laps: Path, first: Path) -> None:
    config = DriveConfig(allow_control=True, data=(old_laps,), model=str(first))
    loaded = load(config)
    assert teach_card(config, loaded) is not None and loaded.policy is not None
    assert what_if_of(config, loaded.policy, expert=False).ghost


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"driver": "ppo"}, "--teach teaches a policy of a .pt file, and ppo is none"),
        ({"data": (Path("nowhere"),)}, "there is no folder nowhere: check the path"),
        (
            {"model": "nac_steady_continuous", "data": (shipped("recordings") / "carracing-sample",)},
            "nac_steady_continuous has learnt steering and pedals, and --data holds others",
        ),
    ],
)
def test_who_cannot_be_taught_is_refused_before_the_drive(options: dict[str, Any], sentence: str) -> None:
    config = DriveConfig(teach=True, **options)
    assert config.allow_control and config.seed == 3_000_000, "nobody learns from the tracks of the test"
    with pytest.raises(UserError, match=sentence):
        teach_card(config, load(config))


def test_a_folder_of_another_environment_is_named(old_laps: Path, first: Path, tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "road", source="udacity", fps=12.5, expert="none")
    writer.add(make_episode(source="udacity"))
    config = DriveConfig(teach=True, data=(old_laps, tmp_path / "road"), model=str(first))
    with pytest.raises(UserError, match=r"road was recorded in 'udacity', not in 'carracing'"):
        teach_card(config, load(config))


def test_a_page_without_old_laps_says_why_nobody_can_teach(
    first: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = DriveConfig(allow_control=True, model=str(first))
    loaded = load(config)
    monkeypatch.setattr(DrivingTask, "knows", lambda *_: False)
    assert teach_card(config, loaded) is None
    assert "no Teach button: give --data the recordings" in capsys.readouterr().out


def test_who_corrects_what_another_corrects_is_told_with_the_first_moment(card: TeachCard, capsys: Any) -> None:
    other = (
        f"import sys; from pathlib import Path; from nacdrive.rollout.recorder import corrections; "
        f"from tests.extras.teach.test_teach import tick_of; "
        f"mine = corrections(Path({str(card.teaching.recording)!r}), source='carracing', fps=20.0); "
        f"mine(tick_of(0, 1, human=True)); print('mine', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", other], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "mine\n"
        card.listen(tick_of(5, 7, human=True))
        assert re.search(r"until they can be written: another nacdrive \(process \d+\)", capsys.readouterr().out)
        process.communicate("")
    for step in range(6, 9):
        card.listen(tick_of(step, 7, human=step < 8))
    assert card.recorder is not None and card.recorder.kept == 1, "written when the other has ended"


def test_a_lesson_agrees_within_a_tenth_of_the_steering_or_in_the_choice() -> None:
    answers = torch.tensor([[0.05, 0.9], [0.25, -0.9], [-1.5, 0.0]])
    steering = torch.tensor([0.0, 0.0, -1.0])
    assert pupil.same(answers, steering).tolist() == pupil.same(answers, torch.stack([steering, steering], 1)).tolist()
    assert pupil.same(answers, steering).tolist() == [True, False, True]
    # Choices that nobody made do not count.
    assert pupil.same(answers, torch.tensor([1, -1, 0])).tolist() == [True, False]
