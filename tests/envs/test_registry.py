from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from annotated_types import Interval
from gymnasium.utils.env_checker import check_env

import nacdrive.envs
from nacdrive.common.errors import UserError
from nacdrive.common.options import choices_of, limits, type_hints
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.registry import ENVIRONMENTS, EnvSpec, env_spec, spec_of_source
from nacdrive.envs.udacity_track.options import ROAD_OPTIONS, RoadOptions
from tests.helpers.nightly import daily

OURS = ("carracing", "udacity-track", "udacity")
OWN = """
import gymnasium, numpy as np

class Blank(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (32, 32, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)
    def __init__(self, laps=1): self.laps = laps
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((32, 32, 3), np.uint8), {}
    def step(self, action):
        return np.zeros((32, 32, 3), np.uint8), 0.0, False, False, {"laps": self.laps}

def make_env(laps=1): return Blank(laps)
def broken(): raise RuntimeError("no such road")
def wrong(): return 3
def make_driving_env():
    from nacdrive.envs.gym_env import GymEnv
    return GymEnv(Blank(), "own")
number = 3
from nacdrive.envs.registry import EnvSpec
SPEC = EnvSpec("own", "Own", make_driving_env, source="own", task="imitation")
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_env.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_env", raising=False)


@pytest.mark.parametrize("name", OURS)
def test_what_is_known_of_ours(name: str) -> None:
    spec = env_spec(name)
    assert spec.name == name and name in ENVIRONMENTS.names()
    assert spec.title and spec.source and spec.task and spec.tracks
    assert spec.expert is None or spec.expert in spec.experts
    assert pickle.loads(pickle.dumps(spec)) == spec


@pytest.mark.parametrize("name", ["carracing", "udacity-track"])
def test_each_is_made_by_its_options(name: str) -> None:
    spec = env_spec(name)
    env = spec.make({"repeat": 2, "max_frames": 4, "renderer": None, "track": None})
    assert isinstance(env, DrivingEnv) and env.name == name and env.realtime == spec.realtime
    assert spec.frames_per_second is not None and env.step_s == pytest.approx(2 / spec.frames_per_second)
    env.reset(seed=4)
    idle = env.action_of(0) if env.actions else np.zeros(2, np.float32)
    assert [env.step(idle)[3] for _ in range(2)] == [False, True]
    env.close()


def test_a_misspelt_name_or_option_is_told_with_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown environment 'carracin': did you mean 'carracing'"):
        env_spec("carracin")
    with pytest.raises(UserError, match="unknown option of carracing 'render': did you mean 'renderer'"):
        env_spec("carracing").make({"render": "fast"})
    with pytest.raises(UserError, match="unknown option of udacity-track 'patchs': did you mean 'patches'"):
        env_spec("udacity-track").make({"patchs": 3})


def test_each_road_option_is_honoured_recorded_and_refused_elsewhere() -> None:
    given: dict[str, Any] = {
        name: next(filter(None, choices_of(kind)), (limits(kind) or Interval(ge=1)).ge)
        for name, kind in type_hints(RoadOptions).items()
        if name in ROAD_OPTIONS
    }
    env = env_spec("udacity-track").make({"track": "random:7", **given})
    assert {name: env.episode_meta()[name] for name in ROAD_OPTIONS} == given
    env.close()
    for name in ROAD_OPTIONS:
        assert env_spec("udacity-track").honours(name)
        with pytest.raises(UserError, match="is for udacity-track, and --env carracing does not know it"):
            env_spec("carracing").refuse({name: given[name]})


def test_an_option_that_would_be_ignored_is_refused() -> None:
    env_spec("carracing").refuse({"renderer": "fast", "track": None})
    with pytest.raises(UserError, match=r"^--renderer is for carracing, and --env udacity-track"):
        env_spec("udacity-track").refuse({"track": "lake", "renderer": "fast"})
    with pytest.raises(UserError, match=r"^--steering-noise is for udacity-track, and --env carracing"):
        env_spec("carracing").refuse({"steering_noise": 0.0})


def test_tracks_take_turns_by_the_seed() -> None:
    spec = env_spec("udacity-track")
    assert spec.tracks_of("both") == spec.tracks_of(None) == ("lake", "mountain")
    assert [spec.track_of("both", seed) for seed in (3_000_000, 3_000_001)] == ["lake", "mountain"]
    assert spec.track_of("mountain", 3_000_000) == "mountain" and env_spec("carracing").track_of(None, 5) == ""


@pytest.mark.usefixtures("own")
def test_a_users_own_function_is_an_environment() -> None:
    spec = env_spec("own_env:make_env")
    assert spec.task == "imitation" and spec.honours("repeat") and not spec.honours("renderer")
    spec = pickle.loads(pickle.dumps(spec))
    env = spec.make({"repeat": 3, "max_frames": 6})
    env.reset(seed=0)
    assert env.name == "own_env:make_env" and env.actions == ("action 0", "action 1", "action 2")
    ends = [env.step(0) for _ in range(2)]
    assert [end[3] for end in ends] == [False, True] and ends[-1][4]["laps"] == 1
    assert env_spec("own_env:Blank").make().observation_space.shape == (32, 32, 3)


@pytest.mark.usefixtures("own")
def test_every_environment_has_a_limit_of_frames() -> None:
    idle = {"own_env:make_env": 0, "own_env:make_driving_env": 0, "own_env:SPEC": 0}
    for name, action in idle.items():
        env = env_spec(name).make({"max_frames": 2})
        assert isinstance(env, DrivingEnv)
        for _ in range(2):
            env.reset(seed=0)
            ends = [env.step(action)[3:] for _ in range(2)]
            assert [truncated for truncated, _ in ends] == [False, True] and ends[-1][1]["ended"] == "time is up", name
    with pytest.raises(UserError, match="--repeat is not for own_env:make_driving_env"):
        env_spec("own_env:make_driving_env").make({"repeat": 2})


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("own_env:broken", "own_env:broken could not make its environment: RuntimeError: no such road"),
        ("own_env:wrong", "own_env:wrong made int, and not a Gymnasium environment"),
        ("own_env:number", "own_env:number is no environment"),
        ("own_env:absent", "module 'own_env' has no 'absent'"),
        ("no_env:make_env", "no module 'no_env'"),
        ("gym:NoSuch-v0", "Gymnasium cannot make 'NoSuch-v0'"),
    ],
)
def test_what_is_no_environment_is_named(name: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        env_spec(name).make()


@pytest.mark.usefixtures("own")
def test_an_option_that_a_users_function_lacks_is_named() -> None:
    with pytest.raises(UserError, match="unknown option of own_env:make_env 'track'"):
        env_spec("own_env:make_env").make({"track": "lake"})


def test_an_installed_package_brings_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "town.py").write_text(OWN)
    info = tmp_path / "town-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: town\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[nacdrive.envs]\ntown = town:make_env\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "town" in ENVIRONMENTS.names()
    env = env_spec("town").make()
    env.reset(seed=0)
    assert env.name == "town" and env.step(1)[4]["laps"] == 1


def test_a_spec_can_be_registered_with_all_that_verbs_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ENVIRONMENTS, "_registered", {})
    fast = EnvSpec("quick", "Quick", env_spec("carracing").build, source="carracing", task="carracing")
    ENVIRONMENTS.register("quick", fast)
    assert env_spec("quick") is fast


# The built-in track's own check stands in udacity_track/test_env.py.
@pytest.mark.parametrize(
    "gym_id", daily(sorted(nacdrive.envs.IDS), ["nacdrive/CarRacing-v0", "nacdrive/CarRacingFast-v0"])
)
def test_gymnasiums_own_check(gym_id: str) -> None:
    env = gymnasium.make(gym_id)
    check_env(env.unwrapped, skip_render_check="Udacity" in gym_id)  # its mode "human" opens a window
    env.close()


def test_they_run_side_by_side_in_gymnasiums_vector_environments() -> None:
    for gym_id, action in (
        ("nacdrive/CarRacingFast-v0", np.full(2, 3)),
        ("nacdrive/UdacityTrack-v0", np.zeros((2, 2))),
    ):
        both = gymnasium.make_vec(gym_id, num_envs=2, vectorization_mode="sync")
        frames, info = both.reset(seed=[1, 2])
        assert frames.shape[0] == 2 and (frames[0] != frames[1]).any() and (info["t_s"] == 0).all()
        frames, rewards, *_ = both.step(action.astype(both.action_space.dtype))
        assert frames.dtype == np.uint8 and rewards.shape == (2,)
        both.close()


@pytest.mark.nightly
@pytest.mark.parametrize("gym_id", ["nacdrive/CarRacingFast-v0", "nacdrive/UdacityTrack-v0"])
def test_stable_baselines_learns_in_them(gym_id: str) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    options = {"max_frames": 40} if "Car" in gym_id else {"max_seconds": 2.0}
    env = gymnasium.make(gym_id, **options)
    learner = sb3.PPO("CnnPolicy", env, n_steps=16, batch_size=8, n_epochs=1, device="cpu", seed=0)
    learner.learn(16)
    assert learner.num_timesteps == 16
    env.close()


def test_action_names_are_those_of_the_environments() -> None:
    """A page shows them before the environment is made."""
    for name in ("carracing", "udacity-track"):
        spec = env_spec(name)
        env = spec.make()
        assert spec.actions == env.actions
        if spec.action_of is not None:
            assert [spec.action_of(k) for k in range(len(env.actions))] == [
                env.action_of(k) for k in range(len(env.actions))
            ]
        env.close()
    found = spec_of_source("udacity")
    assert found is not None and found.task == "udacity" and spec_of_source("my_env:make") is None
