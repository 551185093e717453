"""The public names of ``nacdrive``: what one types first works, and does what the verbs do."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import gymnasium
import numpy as np
import pyarrow.parquet
import pytest
import torch

import nacdrive
from nacdrive import NAC, Recording
from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.common.result_folder import LOCK
from nacdrive.drivers.constant import Constant
from nacdrive.envs.base import DrivingEnv
from nacdrive.rollout.drive import Drive

ROOT = Path(__file__).resolve().parents[1]
CALLS = "tests/helpers/api_calls.py"
FIRST = 4_000_000


@pytest.fixture(scope="module")
def env() -> DrivingEnv:
    return nacdrive.make_env("carracing", renderer="fast", max_frames=16)


def test_importing_it_and_listing_its_names_imports_nothing_else() -> None:
    code = (
        "import sys, nacdrive; print(*dir(nacdrive)); print(*sorted({'torch', 'numpy', 'gymnasium'} & {*sys.modules}));"
        # Gymnasium knows our ids whichever of the two is imported first.
        "import gymnasium; print('nacdrive/CarRacing-v0' in gymnasium.registry)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, heavy, known = done.stdout.split("\n")[:3]
    assert names.split() == sorted(nacdrive.__all__) and not heavy and known == "True"


def test_the_page_lists_the_public_names_and_the_calls_that_mypy_checks_have_them_all() -> None:
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    calls = (ROOT / CALLS).read_text(encoding="utf-8")
    mypy = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    assert CALLS in mypy["files"]
    for name in nacdrive.__all__:
        assert f"`{name}`" in page, name
        # What ``evaluate`` gives has no call of its own.
        assert re.search(rf"\b{name}\b", calls) or name == "Evaluation", name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = nacdrive.nothing


def test_a_policy_steps_in_a_gymnasium_loop_as_in_rollout(env: DrivingEnv, model_file: Path) -> None:
    policy = nacdrive.load_policy(model_file)
    totals = []
    for decide in (policy.act, lambda frame, info: policy.predict(frame)[0]):
        policy.reset()
        frame, info = env.reset(seed=FIRST)
        total, done = 0.0, False
        while not done:
            frame, reward, terminated, truncated, info = env.step(decide(frame, info))
            total, done = total + float(reward), terminated or truncated
        totals.append(total)
    driven = [*nacdrive.rollout(policy, env, FIRST)]
    named = [*nacdrive.rollout(str(model_file), "carracing", FIRST, renderer="fast", max_frames=16)]
    assert totals == [driven[-1].episode_return] * 2 and len(driven) == 4
    assert [tick.action.choice for tick in driven] == [tick.action.choice for tick in named]


def test_a_rollout_is_on_the_track_that_it_is_asked_for() -> None:
    frames = []
    for track in (None, "lake", "mountain"):
        drive = nacdrive.rollout("geometric", "udacity-track", FIRST, track=track, max_frames=4)
        frames.append(next(tick.frame for tick in drive))
    assert np.array_equal(frames[0], frames[1]) and not np.array_equal(frames[1], frames[2])


def test_every_name_that_a_verb_takes_is_taken(tmp_path: Path) -> None:
    for name in ("nac_steady", "nac_steady.pt", "carracing/nac_steady", "nac-steady"):
        assert nacdrive.load_policy(name).name == "nac_steady"
    with pytest.raises(UserError, match="did you mean"):
        nacdrive.load_policy("nac_stedy")
    with pytest.raises(UserError, match="say layer=NAME"):
        nacdrive.load_policy("nac_steady", d_model=8)
    with pytest.raises(UserError, match="unknown option"):
        nacdrive.make_env("carracing", colour="red")
    for who in ("constant", Constant()):
        ticks = [*nacdrive.rollout(who, "carracing", FIRST, renderer="fast", max_frames=8)]
        assert len(ticks) == 2, who


def test_the_layer_of_a_shipped_policy_is_exchanged_in_one_line() -> None:
    policy = nacdrive.load_policy("nac_steady", layer="lstm")
    before = nacdrive.load_policy("nac_steady")
    assert policy.config.model == "lstm" and policy.config.d_model == before.config.d_model
    kept = policy.network.vision[0].weight  # type: ignore[union-attr]
    assert torch.equal(kept, before.network.vision[0].weight)  # type: ignore[union-attr]
    assert isinstance(policy.act(np.zeros((96, 96, 3), np.uint8)), Action)


def test_an_evaluation_has_the_rows_of_the_verb_and_writes_nothing(
    env: DrivingEnv, model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nacdrive.rollout.evaluate import evaluate

    monkeypatch.chdir(tmp_path)
    policy = nacdrive.load_policy(model_file)
    result = nacdrive.evaluate(policy, env, episodes=2, expert="geometric")
    options = {"renderer": "fast", "max_frames": 16, "rule": "gymnasium-1.4"}
    drive = Drive("carracing", model=model_file, expert="geometric", options=options)
    assert not list(tmp_path.iterdir())
    metrics = evaluate(drive, [FIRST, FIRST + 1], tmp_path / "verb", workers=0, films=False)
    names = ("seed", "episode_return", "decisions", "ending", "expert_agreement", "progress")
    for ours, theirs in ((result.episodes, metrics["episodes"]), (result.expert_episodes, metrics["expert_episodes"])):
        assert [[row[name] for name in names] for row in ours] == [[row[name] for name in names] for row in theirs]
    assert result.mean == metrics["return"]["mean"] and result.interval == tuple(metrics["return"]["interval95"])
    assert "over 2 episodes" in repr(result)
    with pytest.raises(UserError, match="give names or files"):
        nacdrive.evaluate(policy, env, episodes=2, workers=2)


def test_stable_baselines_evaluates_a_policy(env: DrivingEnv, model_file: Path) -> None:
    from stable_baselines3.common.evaluation import evaluate_policy

    mean, spread = evaluate_policy(nacdrive.load_policy(model_file), env, n_eval_episodes=1, warn=False)  # type: ignore[arg-type]
    assert np.isfinite(mean) and spread == 0
    with pytest.raises(ValueError, match="one episode at a time"):
        nacdrive.load_policy(model_file).predict(np.zeros((2, 96, 96, 3), np.uint8))


def test_gymnasium_knows_the_environments_by_the_package_alone() -> None:
    assert gymnasium.make("nacdrive:nacdrive/CarRacingFast-v0").unwrapped.name == "carracing"  # type: ignore[attr-defined]


def test_what_is_recorded_in_python_is_trained_on_with_dagger(tmp_path: Path) -> None:
    out = tmp_path / "expert"
    recording = nacdrive.record(out, episodes=2, expert="geometric", max_frames=16)
    assert isinstance(recording, Recording) and len(recording) == 2
    table = pyarrow.parquet.read_table(recording.episodes[0].path)
    assert {"frame", "t_s", "steering", "choice"} <= set(table.column_names)
    rounds = {"dagger": 1, "dagger_episodes": 1, "expert": "geometric", "max_frames": 16}
    policy = nacdrive.train(recording, layer="dense", epochs=1, out=str(tmp_path / "run"), **rounds)
    assert policy.task == "carracing" and (tmp_path / "run/dagger-1").is_dir()
    assert not (tmp_path / "run" / LOCK).exists(), "another process may go on with it"
    # Files and folders may be texts, those that are learnt on from too.
    first = {"first": str(tmp_path / "run/dense.pt"), "lessons": [str(out)], "overwrite": True}
    assert nacdrive.train(str(out), layer="dense", epochs=1, out=tmp_path / "more", **first).config == policy.config


def test_what_is_recorded_in_python_is_written_in_the_simulators_layout_too(tmp_path: Path) -> None:
    short = {"episodes": 1, "max_frames": 12, "track": "lake"}
    recording = nacdrive.record(tmp_path / "r", "udacity-track", log=str(tmp_path / "log"), **short)
    assert len((tmp_path / "log/driving_log.csv").read_text().splitlines()) == recording.episodes[0].steps


def test_a_driver_needs_no_name_and_an_environment_that_is_made_takes_no_options(env: DrivingEnv) -> None:
    class Gas:
        def reset(self, env: DrivingEnv) -> None:
            pass

        def act(self, frame: object, info: object) -> Action:
            return Action(0.0, 1.0, 0.0, 3)

    assert len([*nacdrive.rollout(Gas(), env, FIRST)]) == 4 and len(nacdrive.evaluate(Gas(), env, 1).returns) == 1
    for who in (Gas(), "constant"):
        for option in ("model", "driver"):
            with pytest.raises(UserError, match=f"^{option}: who drives is the first argument: leave it out.$"):
                nacdrive.evaluate(who, env, 1, **{option: "no_such.pt"})
    for none in (None, len, Gas, object()):
        with pytest.raises(UserError, match=r"is no driver: give .* has reset\(env\) and act\(frame, info\)\.$"):
            nacdrive.evaluate(none, env, 1)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"^max_frames: the environment is made already"):
        nacdrive.evaluate("constant", env, 1, max_frames=8)


def test_what_is_given_by_its_name_alone_is_asked_for_by_it(env: DrivingEnv, tmp_path: Path) -> None:
    for sentence, call in (
        (r"expert object\(\) is no name", lambda: nacdrive.evaluate("constant", env, 1, expert=object())),
        ("no name of an environment", lambda: nacdrive.evaluate("constant", lambda: env, 1)),  # type: ignore[arg-type]
        ("no name of an environment", lambda: nacdrive.record(tmp_path / "own", env, 1)),  # type: ignore[arg-type]
        (
            "nac-key cannot be made with these options",
            lambda: nacdrive.load_policy("nac_steady", layer="nac-key", window=8),
        ),
        ("gru cannot be made with these options", lambda: nacdrive.load_policy("nac_steady", layer="gru", windows=8)),
        (
            r"nac-lag cannot be made with these options \(topk=0; allowed is 1 or more",
            lambda: nacdrive.load_policy("nac_steady", layer="nac-lag", topk=0),
        ),
        ("^None is no policy: give its name or path.", lambda: nacdrive.load_policy(None)),  # type: ignore[arg-type]
        ("^3 is no policy: give its name or path.", lambda: nacdrive.load_policy(3)),  # type: ignore[arg-type]
        ("^None is no folder: give its name or path.", lambda: nacdrive.record(None)),  # type: ignore[arg-type]
        ("^None is no recording: give its name or path.", lambda: nacdrive.train(None)),  # type: ignore[arg-type]
        ("no name of a layer", lambda: nacdrive.load_policy("nac_steady", layer=nacdrive.NAC)),  # type: ignore[arg-type]
    ):
        with pytest.raises(UserError, match=sentence):
            call()


def test_own_arrays_and_own_dicts_become_a_recording_to_train_on(tmp_path: Path) -> None:
    frames = np.random.default_rng(0).integers(0, 255, (6, 48, 48, 3), dtype=np.uint8)
    t_s, steering = np.arange(6) * 0.1, np.linspace(-1, 1, 6)
    Recording.from_arrays(frames, t_s, steering=steering, folder=tmp_path / "own")
    with Recording.append_to(tmp_path / "own") as episode:
        for frame, t, wheel in zip(frames, t_s, steering, strict=True):
            episode.append({"frame": frame, "t_s": t, "steering": wheel})
    recording = Recording.open(tmp_path / "own")
    assert len(recording) == 2 and recording.meta["fps"] == pytest.approx(10)
    for index in range(2):
        np.testing.assert_array_equal(recording.load(index).decoded(), frames)
        np.testing.assert_allclose(recording.load(index).label, steering, rtol=1e-6)
    policy = nacdrive.train(recording, layer="nac-lag", epochs=1, valid_share=0.5, out=tmp_path / "run")
    assert policy.config.continuous and abs(policy.act(frames[0]).steering) <= 1


def test_wrong_arrays_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    frames = np.zeros((3, 8, 8, 3), np.uint8)
    for sentence, columns in (
        ("fit each other", {"steering": np.zeros(2)}),
        ("did you mean", {"stearing": np.zeros(3)}),
    ):
        with pytest.raises(UserError, match=sentence):
            Recording.from_arrays(frames, np.arange(3), folder=tmp_path / "own", **columns)
    dates = np.array(["2026-01-01", "2026-01-02", "2026-01-03"], dtype="datetime64[ns]")
    straight = {"steering": np.zeros(3)}
    for sentence, t_s, columns in (
        ("does not increase", np.zeros(3), straight),
        ("does not increase in numbers", dates, straight),
        ("nothing says what was driven", np.arange(3), {}),
        ("throttle lies between 0 and 1", np.arange(3), {**straight, "throttle": -np.ones(3)}),
        ("steering lies between -1 and 1", np.arange(3), {"steering": np.full(3, np.nan)}),
    ):
        with pytest.raises(UserError, match=sentence):
            Recording.from_arrays(frames, t_s, folder=tmp_path / "own", **columns)
    assert not list(tmp_path.iterdir())


def test_the_layer_stands_in_a_module_of_ones_own() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = NAC(d_model=8, num_heads=2, topk=4)

        def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            return self.layer(x, t=t, is_causal=True)

    y = Net()(torch.randn(1, 5, 8), torch.rand(1, 5).cumsum(1))
    assert y.shape == (1, 5, 8)
    y.sum().backward()
