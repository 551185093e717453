"""A drive on a built-in track is judged rightly; an evaluation is kept, resumed and summed up."""

import dataclasses
import json

import numpy as np
import pytest
from nacdrive.cli.eval_udacity import evaluate_udacity
from nacdrive.drivers.old_cruise import SpeedControl
from nacdrive.rollout.lake_evaluation import LakeCourse, evaluate_lake, numbers
from nacdrive.rollout.lake_referee import Referee

from nacdrive.cli.eval import EvalConfig
from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.common.statistics import proportion
from nacdrive.drivers.pure_pursuit import PurePursuit
from nacdrive.drivers.speed_control import SpeedController
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.udacity_track import make_udacity_track
from nacdrive.models import save_policy
from tests.helpers.udacity_logs import make_log
from tests.helpers.udacity_policy import udacity_policy


@pytest.fixture
def referee():
    env = make_udacity_track("lake", repeat=5, laps=0.06, recover=True)
    yield Referee(env)
    env.close()


def test_a_driver_who_stays_in_the_middle_has_a_clean_sheet(referee):
    referee.reset(seed=4_000_000)
    driver, done = PurePursuit().new_episode(referee.env), False
    while not done:
        *_, lost, late, info = referee.step(driver.act())
        done = lost or late
    row = referee.row()
    assert (row["off_road_events"], row["interventions"], row["autonomy"]) == (0, 0, 100.0)
    assert row["laps"] == pytest.approx(0.06, rel=0.05)
    assert 0 < row["offset_mean_m"] < row["offset_max_m"] < 1
    assert row["seconds"] == pytest.approx(info["t_s"])


def test_a_driver_who_leaves_the_road_is_put_back_and_pays_for_it(referee):
    referee.reset(seed=4_000_000)
    steps = 0
    while referee.interventions < 2 and steps < 400:
        referee.step(np.array([0.6, 0.5], dtype=np.float32))
        steps += 1
    row = referee.row()
    assert row["interventions"] == 2
    assert row["off_road_events"] >= 2
    assert row["clean_laps"] == 0
    assert row["autonomy"] == pytest.approx(max(0, 100 * (1 - 12 / row["seconds"])))
    assert not referee.env._info()["off_road"]


class Straight:
    """Never steers."""

    def reset(self):
        self.resets = getattr(self, "resets", 0) + 1

    def step(self, frame, t_s, speed_mps=None):
        return Action(0.25, 0.0, 0.0)

    def neurons(self):
        return {"phi": np.ones(1)}


def test_cruise_keeps_the_steering_and_adds_the_pedals():
    cruise = SpeedControl(Straight(), SpeedController(9.0))
    cruise.reset()
    slow, fast = cruise.step(None, 0.0, 2.0), cruise.step(None, 0.1, 20.0)
    assert (slow.steering, slow.brake) == (0.25, 0.0)
    assert slow.throttle > 0.5
    assert (fast.throttle, fast.steering) == (0.0, 0.25)
    assert fast.brake > 0
    assert cruise.neurons().keys() == {"phi"}


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "nac_steady.pt"
    save_policy(udacity_policy(window=2), path)
    return path


def test_an_evaluation_is_resumed_and_does_not_mix_with_another(model, tmp_path):
    course = LakeCourse(model, 0.01, 20.0, 10, CameraNoise())
    driven = []
    note = lambda job, row: driven.append((job.track, job.seed))  # noqa: E731
    options = {"workers": 0, "films": False, "progress": note}
    evaluate_lake(course, ["lake"], range(2), tmp_path / "out", **options)
    metrics = evaluate_lake(course, ["lake", "mountain"], range(2), tmp_path / "out", **options)
    lake, mountain = [("lake", 0), ("lake", 1)], [("mountain", 0), ("mountain", 1)]
    assert driven == [*lake, lake[0], lake[1], *mountain], "what is there already is told first"
    assert len((tmp_path / "out" / "lake.jsonl").read_text().splitlines()) == 2
    assert metrics["tracks"]["lake"]["drives"] == 2
    assert len(metrics["drives"]) == 4
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["tracks"] == metrics["tracks"]
    with pytest.raises(UserError, match="another speed_mph"):
        evaluate_lake(dataclasses.replace(course, speed_mph=9.0), ["lake"], [0], tmp_path / "out", **options)


def test_the_verb_drives_films_and_compares_with_a_log(model, tmp_path, capsys):
    log = make_log(tmp_path / "log", 6)
    config = EvalConfig(
        env="udacity", model=str(model), episodes=1, out=tmp_path / "out", workers=1, laps=0.01, repeat=10,
        track="lake", data=(log,),
    )  # fmt: skip
    metrics = evaluate_udacity(config)
    assert (tmp_path / "out" / "lake_4000000.mp4").stat().st_size > 1000
    assert metrics["offline"]["frames"] == 6
    told = capsys.readouterr().out
    assert "never left the road" in told
    assert "on 6 recorded frames" in told


@pytest.mark.parametrize(
    "options", [{"laps": 0}, {"speed": 40.0}, {"repeat": 0}, {"data": ("x",)}, {"env": "udacityy"}]
)
def test_options_that_do_not_fit_are_refused(options):
    with pytest.raises(UserError):
        EvalConfig(**{"env": "udacity" if "data" not in options else "carracing", **options})


def test_a_flawless_drive_has_all_its_laps_and_no_wheel_off_the_road():
    row = {
        "laps": 3.0, "off_road_events": 0, "interventions": 0, "clean_laps": 3, "failure": None, "autonomy": 100.0,
        "off_road_per_lap": 0.0, "offset_mean_m": 0.1, "offset_max_m": 0.5, "jitter_per_s": 0.1, "speed_mps": 9.0,
    }  # fmt: skip
    rows = [row, {**row, "off_road_events": 1}, {**row, "laps": 2.5}, {**row, "interventions": 1}]
    assert numbers(rows, 3)["flawless"]["count"] == 1
    low, high = proportion(10, 10)
    assert (low, high) == (pytest.approx(0.722, abs=1e-3), pytest.approx(1.0))
    assert proportion(0, 10)[0] == pytest.approx(0.0, abs=1e-9)
