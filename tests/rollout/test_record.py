"""Recording with real simulators in real processes; episodes are cut short to be quick."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import PLACES
from nacdrive.datasets.images import decode_image, encode_jpeg
from nacdrive.datasets.recording import Recording
from nacdrive.datasets.udacity_log import read_log
from nacdrive.drivers.human import HumanControl
from nacdrive.drivers.tick import Tick
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.carracing.env import make_carracing
from nacdrive.rollout.record import EpisodeDriver, RecordProgress, record_episodes
from nacdrive.rollout.record_config import RecordConfig
from nacdrive.rollout.recorder import EpisodeBuffer, expert_action
from tests.helpers.ticks import make_tick

SEED = 3_000_000
BY_HAND = {"env": "udacity", "expert": "keyboard", "watch": True, "allow_control": True}


def config(out: Path, **options: object) -> RecordConfig:
    short = {"expert": "geometric", "episodes": 3, "max_frames": 60, "workers": 2, "out": out}
    return RecordConfig(**short | options)  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six short episodes, recorded in one go."""
    out = tmp_path_factory.mktemp("recordings") / "uninterrupted"
    record_episodes(config(out, episodes=6))
    return out


def test_episodes_are_what_was_driven(uninterrupted: Path) -> None:
    recording = Recording.open(uninterrupted, source="carracing")
    assert [info.seed for info in recording.episodes] == list(range(SEED, SEED + 6))
    assert recording.meta["fps"] == 12.5
    episode = recording.load(2)
    assert np.allclose(episode.t_s, np.arange(15) * 0.08)
    assert np.array_equal(episode.choice, episode.expert_choice)
    assert episode.speed_mps[0] < episode.speed_mps[-1]
    env = make_carracing(max_frames=60)
    frame, info = env.reset(seed=SEED + 2)
    driven = episode.decoded()
    total = 0.0
    for step, choice in enumerate(episode.choice.tolist()):
        assert np.array_equal(driven[step], frame)
        assert episode.speed_mps[step] == pytest.approx(info["speed_mps"])
        for name in PLACES:
            assert getattr(episode, name)[step] == pytest.approx(info[name], rel=1e-6)
        frame, reward, _, truncated, info = env.step(choice)
        assert episode.reward[step] == pytest.approx(float(reward), rel=1e-6)
        total += float(reward)
    assert truncated
    assert episode.episode_return == pytest.approx(total)
    assert episode.meta["ended"] == "time is up"


def test_what_an_irregular_camera_showed_is_kept_with_the_times_when_it_was_taken(
    uninterrupted: Path, tmp_path: Path
) -> None:
    record_episodes(config(tmp_path / "r", episodes=1, disturbance=CameraNoise(dropped=0.4, late=2)))
    whole, seen = Recording.open(uninterrupted).load(0), Recording.open(tmp_path / "r").load(0)
    assert whole.frame_t_s is None and seen.frame_t_s is not None and not seen.is_new.all()
    np.testing.assert_array_equal(seen.t_s, whole.t_s)
    taken = np.searchsorted(whole.t_s, seen.frame_t_s)
    np.testing.assert_array_equal(whole.t_s[taken], seen.frame_t_s)
    np.testing.assert_array_equal(whole.decoded()[taken], seen.decoded())


@pytest.mark.nightly
def test_the_number_of_processes_leaves_no_trace(uninterrupted: Path, tmp_path: Path) -> None:
    record_episodes(config(tmp_path / "r", episodes=6, workers=1))
    assert contents(tmp_path / "r") == contents(uninterrupted)


def test_progress_counts_every_frame_and_episode(tmp_path: Path) -> None:
    seeds: list[int] = []
    steps: list[RecordProgress] = []
    result = record_episodes(config(tmp_path / "r"), lambda episode, path: seeds.append(episode.seed), steps.append)
    assert sorted(seeds) == [SEED, SEED + 1, SEED + 2]
    assert (steps[-1].kept, steps[-1].dropped) == (3, 0)
    assert steps[-1].frames == result.frames == 45


def test_every_frame_records_fifty_a_second_of_the_same_drive(uninterrupted: Path, tmp_path: Path) -> None:
    record_episodes(config(tmp_path / "r", episodes=1, every_frame=True))
    fine, coarse = Recording.open(tmp_path / "r"), Recording.open(uninterrupted).load(0)
    assert fine.meta["fps"] == 50
    episode = fine.load(0)
    assert len(episode) == 60
    assert np.allclose(episode.t_s, np.arange(60) / 50)
    assert episode.frames[::4] == coarse.frames
    assert np.array_equal(episode.choice, np.repeat(coarse.choice, 4))
    assert episode.reward.reshape(15, 4).sum(axis=1) == pytest.approx(coarse.reward, abs=1e-5)
    assert episode.episode_return == pytest.approx(coarse.episode_return)


@pytest.mark.nightly
def test_min_return_drops_tracks_says_so_and_replaces_them(uninterrupted: Path, tmp_path: Path) -> None:
    returns = {info.seed: info.episode_return for info in Recording.open(uninterrupted).episodes}
    limit = sorted(returns.values())[3]
    good = [seed for seed in returns if returns[seed] >= limit][:3]
    paths: dict[int, Path | None] = {}
    result = record_episodes(
        config(tmp_path / "r", min_return=limit), lambda episode, path: paths.update({episode.seed: path})
    )
    assert [info.seed for info in result.episodes] == good
    expected = {seed: returns[seed] for seed in range(SEED, good[-1]) if seed not in good}
    assert {seed: value for seed, value in result.dropped.items() if seed < good[-1]} == expected
    assert {seed for seed, path in paths.items() if path is None} == result.dropped.keys()
    assert Recording.open(tmp_path / "r").meta["dropped"]


def test_min_return_out_of_reach_ends_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"5 tracks stayed below --min-return 2000 .*lower --min-return"):
        record_episodes(config(tmp_path / "r", episodes=1, max_frames=8, min_return=2000.0))


def test_resume_drives_only_what_is_missing(uninterrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    record_episodes(config(out, episodes=2))
    seeds: list[int] = []
    record_episodes(config(out, episodes=6, resume=True), lambda episode, path: seeds.append(episode.seed))
    assert sorted(seeds) == list(range(SEED + 2, SEED + 6))
    assert contents(out) == contents(uninterrupted)
    assert record_episodes(config(out, episodes=6, resume=True)).frames == 0


def test_resume_with_other_options_is_refused(tmp_path: Path) -> None:
    record_episodes(config(tmp_path / "r", episodes=1, max_frames=8))
    with pytest.raises(UserError, match="max_frames 8 instead of 60"):
        record_episodes(config(tmp_path / "r", resume=True))


@pytest.mark.parametrize(
    ("before", "now", "key"),
    [
        ({"disturbance": CameraNoise(blackout=0.501)}, {"disturbance": CameraNoise(blackout=0.499)}, "camera"),
        ({"env": "udacity", "expert": "tests.helpers.arena_drivers:Straight"}, {"env": "udacity"}, "expert_sha256"),
        (BY_HAND, {**BY_HAND, "track": "lake"}, "track"),
    ],
)
def test_what_a_recording_must_share_tells_them_apart(before: Any, now: Any, key: str, tmp_path: Path) -> None:
    one, other = (EpisodeDriver(config(tmp_path, **options)).recipe for options in (before, now))
    assert one.get(key) != other.get(key)


def test_whoever_drives_elsewhere_drives_recordings_too(tmp_path: Path) -> None:
    driver = EpisodeDriver(config(tmp_path, expert="predictive", driver="ppo"))
    assert driver.loaded.driver.name == "ppo" and len(str(driver.recipe["driver_sha256"])) == 64


def test_side_cameras_are_not_recorded_where_the_middle_one_is_disturbed(tmp_path: Path) -> None:
    for options, is_recorded in (({}, True), ({"disturbance": CameraNoise(blackout=0.5)}, False)):
        driver = EpisodeDriver(config(tmp_path, env="udacity", **options))
        assert driver.described.options["sides"] == driver.recipe["sides"] == is_recorded


def start(out: Path, *more: str) -> subprocess.Popen[str]:
    command = ["record", "--expert", "geometric", "--episodes", "6", "--max-frames", "60", "--workers", "2"]
    return subprocess.Popen(
        [Path(sys.executable).with_name("nacdrive"), *command, "--out", str(out), *more],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def processes_of(session: int) -> list[int]:
    """Living processes of a session."""
    living = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, owner = path.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(owner) == session and state != "Z":
            living.append(int(path.parent.name))
    return living


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for left-over processes in /proc")
@pytest.mark.nightly
@pytest.mark.parametrize("delay_s", [0.0, 0.2])
def test_sigkill_loses_at_most_what_was_under_way_and_resume_gives_the_same_recording(
    uninterrupted: Path, tmp_path: Path, delay_s: float
) -> None:
    out = tmp_path / "r"
    process = start(out)
    wait_for(lambda: process.poll() is not None or any(out.glob("episode-*.parquet")))
    time.sleep(delay_s)
    process.kill()
    process.communicate()
    whole = Recording.open(out)
    assert all(len(whole.load(i)) == 15 for i in range(len(whole)))
    wait_for(lambda: not processes_of(process.pid))
    record_episodes(config(out, episodes=6, resume=True))
    assert contents(out) == contents(uninterrupted)


def test_ctrl_c_keeps_complete_episodes_and_says_how_to_go_on(uninterrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    process = start(out)
    wait_for(lambda: process.poll() is not None or any(out.glob("episode-*.parquet")))
    os.killpg(process.pid, signal.SIGINT)
    _, printed = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "episodes are complete and kept in" in printed
    assert "Traceback" not in printed
    assert len(Recording.open(out)) >= 1
    wait_for(lambda: not processes_of(process.pid))
    record_episodes(config(out, episodes=6, resume=True))
    assert contents(out) == contents(uninterrupted)


def wait_for(condition: object, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env": "carracin"}, "unknown environment 'carracin': did you mean 'carracing'"),
        ({"env": "udacity", "expert": "ppo"}, "--expert ppo does not know udacity-track"),
        ({"env": "udacity", "min_return": 3.0}, "--min-return is for carracing"),
        ({"env": "udacity", "every_frame": True}, "--every-frame is for carracing"),
        ({"env": "udacity", "steering_noise": 3.0}, "--steering-noise is 3"),
        ({"env": "udacity", "steering_noise": float("nan")}, "--steering-noise is nan"),
        ({"env": "udacity", "track": "laek"}, "did you mean 'lake'"),
        ({"log": Path("x")}, "--log is for udacity-track"),
        ({"steering_noise": 1.0}, "--steering-noise is for udacity-track"),
        ({"min_return": float("nan")}, "--min-return is nan"),
        ({"min_return": float("inf")}, "--min-return is inf"),
        ({"seed": 10**23}, "--seed is 1"),
        ({"episodes": 0}, "--episodes is 0"),
        ({"max_frames": 0}, "--max-frames is 0"),
        ({"workers": -1}, "--workers is -1"),
        ({"seed": -1}, "--seed is -1"),
        ({"seed": 3_999_999}, "policies are judged on"),
        ({"seed": 4_500_000}, "policies are judged on"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        RecordConfig(**{"out": tmp_path, **options})  # type: ignore[arg-type]


def test_defaults_follow_the_environment() -> None:
    assert (RecordConfig().expert, RecordConfig().folder.name) == ("ppo", "carracing-expert")
    udacity = RecordConfig(env="udacity")
    assert (udacity.env, udacity.expert, udacity.folder.name) == ("udacity-track", "geometric", "udacity-geometric")


def test_an_unknown_expert_leaves_no_folder_behind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'geometric'"):
        record_episodes(config(tmp_path / "r", expert="geometrik"))
    assert not (tmp_path / "r").exists()


# ------------------------------------------------------------------------------------ the built-in tracks


def on_tracks(seconds: float = 2.0, **more: Any) -> EpisodeDriver:
    options = {"env": "udacity-track", "max_frames": round(seconds * 50), "sides": False}
    return EpisodeDriver(RecordConfig(**{**options, **more}))


def test_a_drive_depends_on_its_seed_alone_and_both_tracks_take_turns() -> None:
    driver = on_tracks()
    one, other, two = driver.record(4), driver.record(5), driver.record(4)
    assert one.frames == two.frames
    np.testing.assert_array_equal(one.steering, two.steering)
    assert (one.meta["track"], other.meta["track"]) == ("lake", "mountain")
    assert one.meta["top_speed_mps"] == two.meta["top_speed_mps"] != other.meta["top_speed_mps"]
    assert len(one) == 25
    assert one.t_s[1] == pytest.approx(0.08)
    assert one.decoded().shape == (25, 160, 320, 3)


def test_the_label_is_what_the_expert_would_do_not_what_the_disturbed_wheel_did() -> None:
    disturbed = on_tracks(3.0, steering_noise=2.0).record(6)
    calm = on_tracks(3.0, steering_noise=0.0).record(6)
    np.testing.assert_array_equal(calm.label, calm.steering)
    assert np.abs(disturbed.label - disturbed.steering).max() > 0.1
    assert np.abs(calm.steering).max() <= 1


def test_a_recording_is_resumed_and_written_in_the_simulators_layout_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from nacdrive.cli.record import run

    asked = RecordConfig(
        env="udacity", episodes=1, max_frames=40, workers=1, out=tmp_path / "r", log=tmp_path / "log", track="lake"
    )
    assert run(asked).folder == tmp_path / "r"
    first = (tmp_path / "r" / "episode-3000000.parquet").read_bytes()
    record_episodes(dataclasses.replace(asked, episodes=2, resume=True, log=None))
    recording = Recording.open(tmp_path / "r", source="udacity")
    assert [info.seed for info in recording.episodes] == [3_000_000, 3_000_001]
    assert recording.episodes[0].path.read_bytes() == first
    assert set(recording.load(0).side_frames) == {"left", "right"}
    assert recording.meta["fps"] == 12.5
    rows = read_log(tmp_path / "log").rows
    np.testing.assert_allclose([row.steering for row in rows], recording.load(0).steering, atol=1e-6)
    assert "driving_log.csv" in capsys.readouterr().out


def test_a_log_that_exists_is_found_before_the_drives(tmp_path: Path) -> None:
    from nacdrive.cli.record import run

    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "mine.txt").write_text("kept")
    with pytest.raises(UserError, match="already holds something"):
        run(RecordConfig(env="udacity", episodes=1, max_frames=40, out=tmp_path / "r", log=tmp_path / "log"))
    (tmp_path / "file").write_text("kept")
    overwrite = {"overwrite": True}
    for log, more in (
        (tmp_path / "file", overwrite),
        (tmp_path / "log", overwrite),
        (tmp_path / "r" / "log", {}),
        (tmp_path / "r", {}),
    ):
        with pytest.raises(UserError, match="already holds something, or will hold the recording"):
            run(RecordConfig(env="udacity", episodes=1, max_frames=40, out=tmp_path / "r", log=log, **more))
    assert not (tmp_path / "r").exists()


# ------------------------------------------------------------------------------------ watched, by hand, by others


@pytest.mark.parametrize(
    "more",
    [
        {},
        pytest.param({"every_frame": True}, marks=pytest.mark.nightly),
        pytest.param({"env": "udacity", "max_frames": 60}, marks=pytest.mark.nightly),
    ],
)
def test_a_watched_recording_is_the_same_and_its_ticks_tell_it(tmp_path: Path, more: dict[str, Any]) -> None:
    short = {"expert": "geometric", "episodes": 1, "max_frames": 40, **more}
    ticks: list[Tick] = []
    record_episodes(RecordConfig(out=tmp_path / "alone", workers=1, **short))
    record_episodes(RecordConfig(out=tmp_path / "watched", watch=True, **short), listeners=[ticks.append])
    alone, watched = (next((tmp_path / name).glob("*.parquet")).read_bytes() for name in ("alone", "watched"))
    assert alone == watched
    episode = Recording.open(tmp_path / "watched").load(0)
    assert [tick.t_s for tick in ticks] == episode.t_s.tolist()
    assert [tick.action.steering for tick in ticks] == pytest.approx(episode.steering.tolist())
    assert ticks[-1].done and ticks[-1].episode_return == pytest.approx(episode.episode_return)
    if episode.expert_steering is not None:
        labels = [tick.expert.steering for tick in ticks if tick.expert is not None]
        assert labels == pytest.approx(episode.expert_steering.tolist())


@pytest.mark.parametrize("env", ["carracing", "udacity"])
def test_a_person_drives_and_records_with_the_keyboard(tmp_path: Path, env: str) -> None:
    by_hand = {"env": env, "expert": "keyboard", "watch": True, "allow_control": True, "seed": 3_000_100}
    control, ticks = HumanControl(needs_person=True, silence_s=30), []
    asked = RecordConfig(out=tmp_path / "r", episodes=1, max_frames=100, **by_hand)
    recording = threading.Thread(
        target=record_episodes, args=(asked,), kwargs={"listeners": [ticks.append], "control": control}
    )
    recording.start()
    control.acquire(1)
    while recording.is_alive():
        control.set_keys(1, ["up"] if len(ticks) < 15 else ["up", "right"])
        time.sleep(0.02)
    episode = Recording.open(tmp_path / "r").load(0)
    assert (episode.source, episode.driver, len(episode)) == (env, "keyboard", 25)
    assert all(tick.human for tick in ticks)
    assert episode.speed_mps[0] < 0.5 < episode.speed_mps[14]
    assert not episode.steering[:15].any() and episode.steering[20:].max() == 1
    if env == "carracing":
        assert np.array_equal(episode.choice, episode.expert_choice) and set(episode.choice) == {1, 3}
    else:
        assert episode.frames[0][:2] == b"\xff\xd8" and np.array_equal(episode.label, episode.steering)
        assert 0 < episode.steering[16] < 1, "a wheel turns by degrees"


def test_a_person_needs_the_page_and_says_so_in_full(tmp_path: Path) -> None:
    for options in (
        {"expert": "keyboard"},
        {"allow_control": True, "watch": True},
        {"expert": "keyboard", "watch": True},
    ):
        with pytest.raises(UserError, match="--expert keyboard, --watch and --allow-control"):
            config(tmp_path, **options)
    by_hand = RecordConfig(env="udacity", expert="keyboard", watch=True, allow_control=True)
    assert by_hand.folder == Path("recordings/udacity-keyboard")


def test_a_driver_of_ones_own_is_recorded_and_labelled_by_the_expert_or_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_straight.py").write_text(
        "from nacdrive.envs.carracing.env import to_action\n"
        "class Straight:\n"
        "    name = 'straight'\n"
        "    def reset(self, env): pass\n"
        "    def act(self, frame, info): return to_action(3)\n"
    )
    monkeypatch.chdir(tmp_path)
    options: dict[str, Any] = {"driver": "my_straight:Straight", "episodes": 1, "max_frames": 40, "workers": 1}
    record_episodes(RecordConfig(out=tmp_path / "own", **options))
    longer = {**options, "max_frames": 160}
    record_episodes(RecordConfig(out=tmp_path / "labelled", expert="geometric", **longer))
    own, labelled = (Recording.open(tmp_path / name).load(0) for name in ("own", "labelled"))
    assert own.driver == labelled.driver == "straight"
    assert set(own.choice) == set(labelled.choice) == set(own.expert_choice) == {3}
    assert set(labelled.expert_choice) != {3}
    assert Recording.open(tmp_path / "labelled").meta["expert"] == "geometric"
    with pytest.raises(UserError, match="instead of"):
        record_episodes(RecordConfig(out=tmp_path / "own", resume=True, **{**options, "driver": None}))
    with (tmp_path / "my_straight.py").open("a") as file:
        file.write("# Not the same.")
    with pytest.raises(UserError, match=r"was recorded with driver_sha256 .* instead of"):
        record_episodes(RecordConfig(out=tmp_path / "own", resume=True, **options))


def test_a_disturbed_camera_is_recorded_and_the_expert_sees_the_true_frames(uninterrupted: Path) -> None:
    true = Recording.open(uninterrupted).load(0)
    asked = config(Path("unused"), disturbance=CameraNoise(blackout=1.0))
    black = EpisodeDriver(asked).record(SEED)
    assert not black.decoded().any()
    np.testing.assert_array_equal(black.expert_choice, true.expert_choice)
    assert "camera" in EpisodeDriver(asked).recipe and "camera" not in EpisodeDriver(config(Path("unused"))).recipe


def test_frames_that_came_as_jpeg_are_kept_as_they_came_unless_the_camera_changed_them() -> None:
    frame = np.random.default_rng(0).integers(0, 256, (16, 32, 3), dtype=np.uint8)
    came = encode_jpeg(frame, quality=40)
    buffer = EpisodeBuffer(expert_action, "jpeg")
    options: dict[str, Any] = {"expert": Action(0.1, 0.0, 0.0), "frame": frame}
    buffer(make_tick(0, info={"jpeg": came}, **options))
    buffer(make_tick(1, info={"jpeg": came, "clean_frame": frame}, done=True, events=("ended",), **options))
    episode = buffer.episode(source="udacity", driver="nobody", meta={})
    assert episode.frames[0] == came and episode.frames[1] == encode_jpeg(frame) != came
    assert decode_image(episode.frames[0]).shape == frame.shape
    assert episode.meta["ended"] == "ended"
