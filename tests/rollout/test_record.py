"""Recording with real simulators in real processes; episodes are cut short to be quick."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from nacdrive.common.errors import UserError
from nacdrive.datasets.recording import Recording
from nacdrive.envs.carracing.env import make_carracing
from nacdrive.rollout.record import Outcome, RecordProgress, record_episodes
from nacdrive.rollout.record_config import RecordConfig

SEED = 3_000_000


def config(out: Path, **options: object) -> RecordConfig:
    short = {"expert": "geometric", "episodes": 3, "max_frames": 60, "workers": 2, "out": out}
    return RecordConfig(**short | options)  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten short episodes, recorded in one go."""
    out = tmp_path_factory.mktemp("recordings") / "uninterrupted"
    record_episodes(config(out, episodes=10))
    return out


def test_episodes_are_what_was_driven(uninterrupted: Path) -> None:
    recording = Recording.open(uninterrupted, source="carracing")
    assert [info.seed for info in recording.episodes] == list(range(SEED, SEED + 10))
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
        frame, reward, _, truncated, info = env.step(choice)
        assert episode.reward[step] == pytest.approx(float(reward), rel=1e-6)
        total += float(reward)
    assert truncated
    assert episode.episode_return == pytest.approx(total)
    assert episode.meta["ended"] == "time is up"


def test_the_number_of_processes_leaves_no_trace(uninterrupted: Path, tmp_path: Path) -> None:
    record_episodes(config(tmp_path / "r", episodes=10, workers=1))
    assert contents(tmp_path / "r") == contents(uninterrupted)


def test_progress_counts_every_frame_and_episode(tmp_path: Path) -> None:
    outcomes: list[Outcome] = []
    steps: list[RecordProgress] = []
    result = record_episodes(config(tmp_path / "r"), outcomes.append, steps.append)
    assert sorted(outcome.seed for outcome in outcomes) == [SEED, SEED + 1, SEED + 2]
    assert (steps[-1].kept, steps[-1].asked, steps[-1].driving) == (3, 3, 0)
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


def test_min_return_drops_tracks_says_so_and_replaces_them(uninterrupted: Path, tmp_path: Path) -> None:
    returns = {info.seed: info.episode_return for info in Recording.open(uninterrupted).episodes}
    limit = sorted(returns.values())[5]
    good = [seed for seed in returns if returns[seed] >= limit][:3]
    outcomes: list[Outcome] = []
    result = record_episodes(config(tmp_path / "r", min_return=limit), outcomes.append)
    assert [info.seed for info in result.episodes] == good
    expected = {seed: returns[seed] for seed in range(SEED, good[-1]) if seed not in good}
    assert {seed: value for seed, value in result.dropped.items() if seed < good[-1]} == expected
    assert {outcome.seed for outcome in outcomes if outcome.path is None} == result.dropped.keys()
    assert Recording.open(tmp_path / "r").meta["dropped"]


def test_min_return_out_of_reach_ends_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"5 tracks stayed below --min-return 2000 .*lower --min-return"):
        record_episodes(config(tmp_path / "r", episodes=1, max_frames=8, min_return=2000.0))


def test_resume_drives_only_what_is_missing(uninterrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    record_episodes(config(out, episodes=2))
    outcomes: list[Outcome] = []
    record_episodes(config(out, episodes=10, resume=True), outcomes.append)
    assert sorted(outcome.seed for outcome in outcomes) == list(range(SEED + 2, SEED + 10))
    assert contents(out) == contents(uninterrupted)
    assert record_episodes(config(out, episodes=10, resume=True)).frames == 0


def test_resume_with_other_options_is_refused(tmp_path: Path) -> None:
    record_episodes(config(tmp_path / "r", episodes=1, max_frames=8))
    with pytest.raises(UserError, match="max_frames 8 instead of 60"):
        record_episodes(config(tmp_path / "r", resume=True))


def start(out: Path, *more: str) -> subprocess.Popen[str]:
    command = ["record", "--expert", "geometric", "--episodes", "10", "--max-frames", "60", "--workers", "2"]
    return subprocess.Popen(
        [Path(sys.executable).with_name("nacdrive"), *command, "--out", str(out), *more],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def processes_of(session: int) -> list[int]:
    """Living processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, owner = path.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(owner) == session and state != "Z":
            found.append(int(path.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for left-over processes in /proc")
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
    record_episodes(config(out, episodes=10, resume=True))
    assert contents(out) == contents(uninterrupted)


def test_ctrl_c_keeps_complete_episodes_and_says_how_to_go_on(uninterrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    process = start(out)
    wait_for(lambda: process.poll() is not None or any(out.glob("episode-*.parquet")))
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "episodes are complete and kept in" in said
    assert "Traceback" not in said
    assert len(Recording.open(out)) >= 1
    wait_for(lambda: not processes_of(process.pid))
    record_episodes(config(out, episodes=10, resume=True))
    assert contents(out) == contents(uninterrupted)


def wait_for(condition: object, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"env": "carracin"}, "unknown environment 'carracin': did you mean 'carracing'"),
        ({"episodes": 0}, "--episodes is 0"),
        ({"max_frames": 0}, "--max-frames is 0"),
        ({"workers": -1}, "--workers is -1"),
        ({"seed": -1}, "--seed is -1"),
        ({"seed": 3_999_999}, "policies are judged on"),
        ({"seed": 4_500_000}, "policies are judged on"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, options: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        config(tmp_path, **options)


def test_an_unknown_expert_leaves_no_folder_behind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'geometric'"):
        record_episodes(config(tmp_path / "r", expert="geometrik"))
    assert not (tmp_path / "r").exists()
