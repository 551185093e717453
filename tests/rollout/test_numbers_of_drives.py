"""What is kept of driven episodes, and what an evaluation drives where nobody says otherwise."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.drivers.options import NOBODY
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.seeds import POLICY_TEST
from nacdrive.rollout import results
from nacdrive.rollout.eval_config import EvalConfig
from nacdrive.rollout.results import (
    EpisodeMetrics,
    ResultsFile,
    drive_name,
    is_whole_row,
    own_metrics,
    row_of,
)
from tests.helpers.ticks import make_tick


def drive(ticks: int = 4, **more: Any) -> EpisodeMetrics:
    driven = EpisodeMetrics(3)
    for step in range(ticks):
        tick: dict[str, Any] = {
            "t_s": step / 10, "episode_return": 1.5 * step, "decision_ms": step + 1.0, "speed_mps": 2.0 * step,
            "action": Action(0, 0, 0, choice=step % 2), "expert": Action(0, 0, 0, choice=0), "done": step == ticks - 1,
            "next_info": {"t_s": step / 10 + 0.1, "progress": 0.25, "laps": 1, "wheels_off": step / 4},
            "events": ("finished",),
        }  # fmt: skip
        driven.add(make_tick(step, **(tick | more)))
    return driven


def test_an_episode_is_summed_up_from_its_decisions() -> None:
    driven = drive()
    result = driven.result()
    assert (result.decisions, result.episode_return, result.simulated_s, result.progress) == (4, 4.5, 0.4, 0.25)
    assert result.finished_lap is True and result.failure is None
    assert (result.wheels_off, result.mean_speed_mps) == (0.375, 3)
    assert result.decision_ms_median == 2.5 and result.decision_ms_p99 == pytest.approx(3.97)
    assert result.expert_agreement == 0.5 and driven.actions == [2, 2, 0] and driven.ending == "finished"
    # Every fifth decision is a point of the curve, and the last.
    assert driven.points == [[0.0, 0.0], [0.3, 4.5]]
    assert drive(expert=None).result().expert_agreement is None
    assert drive(next_info={"t_s": 1.0}).result().finished_lap is False
    with pytest.raises(ValueError, match="without a decision"):
        EpisodeMetrics().result()


def test_an_episode_that_is_started_over_counts_from_its_last_start() -> None:
    driven = drive(3)
    for step in range(2):
        driven.add(make_tick(step, action=Action(0, 0, 0, choice=2), next_info={"t_s": 1.0}))
    assert driven.result().decisions == 2 and driven.actions == [0, 0, 2]


def test_a_long_curve_keeps_every_second_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MOST_POINTS", 4)
    driven = drive(41)
    times = [point[0] for point in driven.points]
    assert len(times) <= 4 and times[:2] == [0, 2] and times[-1] == 4


def test_a_row_has_what_the_environment_says_more() -> None:
    driven = drive()
    row = row_of(driven.result(), driven, {"offset_m": 0.5, "progress": 9.0}, "random:7")
    assert row["progress"] == 0.25, "a name of the result is the result's"
    assert row["track"] == "random:7" and row["offset_m"] == 0.5 and own_metrics(row) == ["offset_m"]
    assert "track" not in row_of(driven.result(), driven, {}) and is_whole_row(row)


def test_a_drives_file_has_its_seed_and_its_track_in_its_name() -> None:
    assert drive_name(12, "") == "episode-0000012.parquet"
    assert drive_name(1, "random:7") == "episode-0000001-random-7.parquet"


@pytest.mark.parametrize(
    "damage",
    [
        {"curve": [[1.0]]}, {"curve": [[1.0, 2.0, 3.0]]}, {"curve": [["a", 1]]}, {"actions": [math.inf]}, {"seed": "1"},
        {"progress": "x"}, {"own": "x"}, {"track": 3}, {"late_decisions": None}, {"episode_return": math.nan},
    ],
)  # fmt: skip
def test_a_damaged_row_is_driven_again(damage: dict[str, Any], tmp_path: Path) -> None:
    driven = drive()
    row = row_of(driven.result(), driven, {}) | {"seed": 1}
    assert is_whole_row(row) and not is_whole_row(row | damage)
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(row) + "\n" + json.dumps(row | {"seed": 2} | damage) + "\n" + '{"seed": ')
    assert list(ResultsFile(path).rows) == [1]
    # What is kept is whole, and the file has nothing else.
    assert [json.loads(line) for line in path.read_text().splitlines()] == [row]
    again = ResultsFile(path)
    again.add(row | {"seed": 3})
    assert list(ResultsFile(path).rows) == [1, 3]


# ---------------------------------------------------------------- options of an evaluation


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "eval-nac_steady"),
        ({"driver": "racing-line"}, "eval-racing-line"),
        ({"env": "udacity-track"}, "eval-udacity-nac_steady"),
        ({"disturbance": CameraNoise(noise=0.1, delay_steps=2)}, "eval-nac_steady-noise-0.1-delay-2"),
        ({"disturbance": CameraNoise(blackout=0.5, blackout_steps=1)}, "eval-nac_steady-blackout-0.5"),
        (
            {"disturbance": CameraNoise(blackout=0.5, blackout_steps=2)},
            "eval-nac_steady-blackout-0.5-blackout-steps-2",
        ),
        ({"disturbance": CameraNoise(brightness=0.5)}, "eval-nac_steady-brightness-0.5"),
        ({"disturbance": CameraNoise(rate=(10, 20))}, "eval-nac_steady-rate-10-20"),
        ({"env": "udacity-track", "track": "random:7"}, "eval-udacity-random-7-nac_steady"),
    ],
)
def test_an_evaluations_folder_is_named_after_what_it_drives(options: dict[str, Any], name: str) -> None:
    config = EvalConfig(**options)
    assert config.folder == Path("runs") / name and EvalConfig(out=Path("x"), **options).folder == Path("x")


def test_an_evaluation_drives_twenty_tracks_unless_a_log_alone_is_judged() -> None:
    assert EvalConfig().count == 20 and EvalConfig(episodes=3).count == 3 and EvalConfig().seed == POLICY_TEST.start
    log = {"env": "udacity-track", "data": (Path("log"),)}
    assert EvalConfig(**log).count == 0 and EvalConfig(**log).folder.name.startswith("verdict-udacity-")
    assert EvalConfig(**log, laps=1.0).count == EvalConfig(**log, track="lake").count == 20
    assert EvalConfig(**log, episodes=2).count == 2 and EvalConfig().videos


def test_what_is_driven_has_the_environments_usual_options() -> None:
    usual = EvalConfig().driven(None)
    assert usual.options["renderer"] == "official" and usual.options["rule"] == results.SHIPPED_OPTIONS["rule"]
    assert usual.expert is not None and EvalConfig(expert=NOBODY).driven(None).expert is None
    assert EvalConfig(driver=usual.expert).driven(None).expert is None, "nobody is compared with himself"
    assert EvalConfig(env="udacity-track").driven(None).options["laps"] == 3
    assert EvalConfig(env="udacity-track", track="random:7").driven(None).options["laps"] == 1
    assert EvalConfig(env="udacity-track", speed=12.0).driven(None).speed_mph == 12
    assert EvalConfig(env="udacity-track", driver="geometric", speed=12.0).driven(None).speed_mph == 12
    for option in ({"disturbance": CameraNoise(noise=0.1)}, {"watch": True}):
        with pytest.raises(UserError, match="--data drives none: add --episodes"):
            EvalConfig(env="udacity", data=(Path("log"),), **option)
    assert EvalConfig(env="udacity", data=(Path("log"),), episodes=2, disturbance=CameraNoise(noise=0.1)).count == 2
    with pytest.raises(UserError, match="--data judges a policy, and --driver"):
        EvalConfig(env="udacity-track", driver="geometric", data=(Path("log"),))
