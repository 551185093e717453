"""A user's own environment and driver go the whole way: recorded, learnt from, driven for DAgger, evaluated."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nacdrive.cli.main import dispatch
from nacdrive.cli.replay import ReplayConfig, open_run
from nacdrive.common.errors import UserError
from nacdrive.datasets.recording import Recording
from nacdrive.extras.what_if.recorded import load_what_if

ENVIRONMENT = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Lane(gymnasium.Env):
    metadata = {"render_fps": 10}

    def __init__(self):
        self.observation_space = spaces.Box(0, 255, (48, 64, 3), np.uint8)
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.n = float(self.np_random.uniform(-1, 1)), 0
        return self.look(), {}

    def look(self):
        frame = np.zeros((48, 64, 3), np.uint8)
        frame[:, int(32 + 20 * np.clip(self.x, -1.5, 1.5))] = 255
        return frame

    def step(self, action):
        self.x += (0.0, -0.1, 0.1)[int(action)] + float(self.np_random.normal(0, 0.02))
        self.n += 1
        return self.look(), 1 - abs(self.x), abs(self.x) > 1.5, self.n >= 24, {}


def make_env():
    return Lane()
"""
DRIVER = """
import numpy as np
from nacdrive.common.action import Action


class Centre:
    name = "centre"

    def reset(self, env):
        pass

    def act(self, frame, info):
        x = float(np.argmax(frame[0, :, 0])) - 32
        return Action(0.0, 0.0, 0.0, 0 if abs(x) < 2 else 1 if x > 0 else 2)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the user's two files, as the working folder."""
    (tmp_path / "my_lane_env.py").write_text(ENVIRONMENT)
    (tmp_path / "my_lane_driver.py").write_text(DRIVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_own_environment_is_recorded_learnt_driven_for_dagger_and_evaluated(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env, driver = ["--env", "my_lane_env:make_env"], "my_lane_driver:Centre"
    assert dispatch(["record", *env, "--driver", driver, "--episodes", "3", "--workers", "1", "--out", "r"]) == 0
    recording = Recording.open(here / "r")
    assert (len(recording), recording.meta["fps"], recording.meta["source"]) == (3, 10, "my_lane_env:make_env")
    np.testing.assert_array_equal(recording.load(0).choice, recording.load(0).expert_choice)

    train = "train --task imitation --data r --out run --model mha --epochs 1 --dagger 1 --dagger-episodes 2"
    assert dispatch([*train.split(), *env, "--expert", driver, "--workers", "1"]) == 0
    driven = Recording.open(here / "run" / "dagger-1")
    assert len(driven) == 2 and (driven.load(0).expert_choice >= 0).all()

    evaluate = ["eval", *env, "--model", "run/mha.pt", "--expert", driver, "--episodes", "2", "--workers", "1"]
    assert dispatch([*evaluate, "--out", "ev"]) == 0
    assert "of the expert's return" in capsys.readouterr().out
    assert dispatch(["drive", *env, "--model", "run/mha.pt", "--headless", "--episodes", "1"]) == 0
    # It counts no laps, so that nothing is claimed of one.
    assert " in 2.4 s" in (printed := capsys.readouterr().out) and "of the lap" not in printed

    # Whatever looks at a recording with a policy knows that one of imitation belongs to it.
    assert dispatch(["explain", "saliency", "--model", "run/mha.pt", "--data", "r", "--out", "saliency.png"]) == 0
    assert load_what_if(here / "r", "run/mha.pt").policy.name == "mha"
    watched, asked = open_run(here / "r", ReplayConfig(data=here / "r", model="run/mha.pt"))
    assert watched.policy == "mha" and asked is not None
    assert len(list((here / "ev").glob("*.mp4"))) == 2 and len(Recording.open(here / "ev" / "drives")) == 2


TOWN = """
from my_lane_env import Lane
from nacdrive.envs.gym_env import GymEnv
from nacdrive.envs.registry import SEEDED, EnvSpec


class Town(GymEnv):
    def __init__(self, track="north", repeat=None, max_frames=None):
        super().__init__(Lane(), "town", actions=("go", "pull left", "pull right"))
        self.crossings = 0

    def metrics(self):
        return {"crossings": 3, "comfort": 0.5}


SPEC = EnvSpec(
    "town", "My town", Town, source="town", task="imitation", tracks=("north", "south"),
    totals=frozenset({"crossings"}), options=SEEDED | {"track"},
)
"""


def test_an_own_environment_with_tracks_is_evaluated_to_the_end(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "my_town.py").write_text(TOWN)
    asked = "eval --env my_town:SPEC --driver my_lane_driver:Centre --expert none --episodes 2 --workers 1 --out town"
    assert dispatch(asked.split()) == 0
    metrics = json.loads((here / "town" / "metrics.json").read_text())
    assert metrics["tracks"].keys() == {"north", "south"}
    north = metrics["tracks"]["north"]
    assert (north["drives"], north["crossings"], north["comfort"]["mean"]) == (2, 6, 0.5)
    printed = capsys.readouterr().out
    assert "north: 2 of 2 drives needed no safety stop" in printed and "crossings 6, comfort 0.50" in printed
    assert len(Recording.open(here / "town" / "drives").episodes) >= 2


def test_what_is_missing_for_an_own_environment_is_said_before_the_work(here: Path) -> None:
    own = "--env my_lane_env:make_env --driver my_lane_driver:Centre"
    for line, said in (
        ("record --env my_lane_env:make_env", "give --driver module:MyDriver or --expert"),
        ("record --env my_lane_env:make_car", "has no 'make_car'"),
        ("record --env my_lane_env:make_env --driver my_lane_driver:Center", "has no 'Center'"),
        (f"record {own} --every-frame", "--every-frame is for carracing"),
        (f"eval {own} --laps 2", "--laps is for udacity-track"),
        ("train --task imitation --data r --dagger 1", "name one with --env"),
        ("train --task imitation", "name some with --data"),
    ):
        with pytest.raises(UserError, match=said):
            dispatch(line.split())
    assert sorted(path.name for path in here.iterdir() if not path.name.startswith("__")) == [
        "my_lane_driver.py",
        "my_lane_env.py",
    ]
