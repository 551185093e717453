"""The examples work as they stand, from a folder outside the repository."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from nacdrive.common.paths import find_model
from nacdrive.common.plugins import load_object
from nacdrive.datasets.recording import Recording
from nacdrive.drivers import load_driver
from nacdrive.drivers.tick import Tick
from nacdrive.envs.gym_env import GymEnv
from nacdrive.envs.registry import env_spec
from nacdrive.rollout.rollout import rollout
from tests.helpers.exchange import drive, write

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: copies of the examples and nothing else."""
    for file in EXAMPLES.glob("*.py"):
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for file in EXAMPLES.glob("*.py"):
        monkeypatch.delitem(sys.modules, file.stem, raising=False)
    return tmp_path


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("my_*.py")), ids=lambda file: file.stem)
def test_each_is_short_and_has_examples_of_its_use(file: Path) -> None:
    text = file.read_text()
    assert 20 <= len(text.splitlines()) <= 65
    assert f"{file.stem}:" in text.split('"""')[1]


@pytest.mark.parametrize("name", ["crossing", "donkey_part", "freeway", "racetrack"])
def test_worlds_of_others_take_eighty_lines_and_name_what_to_install(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 80 and "pip install " in text.split('"""')[1]


def test_the_environment_keeps_gymnasiums_rules_and_tells_where_the_car_is() -> None:
    env = env_spec("my_env:make_env").make()
    assert isinstance(env, GymEnv)
    check_env(env.env, skip_render_check=True)
    _, info = env.reset(seed=1)
    assert info["lane_offset_m"] == 0 and info["heading_rad"] == pytest.approx(np.pi / 2)
    right = env.action_space.high
    for _ in range(6):
        _, _, _, _, info = env.step(right)
    assert info["lane_offset_m"] > 0.5 and info["heading_rad"] < np.pi / 2 - 0.5
    assert info["t_s"] == pytest.approx(0.6)


def test_the_driver_follows_the_road_by_the_picture() -> None:
    env, driver = env_spec("my_env:make_env").make(), load_driver("my_driver:MyDriver")
    for seed in range(2):
        ticks = list(rollout(env, driver, seed))
        assert ticks[-1].events[-1] == "time is up" and ticks[-1].failure is None
        offsets = [abs(tick.lane_offset_m or 0.0) for tick in ticks]
        assert env.metrics()["progress"] >= 1 and max(offsets) < 3 and np.mean(offsets) < 1
    # As an expert it is asked about pictures that another drove to: what it said before must not count.
    frame, info = env.reset(seed=7)
    assert driver.act(frame, info).steering == driver.act(frame, info).steering != 0


def test_the_layer_streams_what_it_computes_at_once() -> None:
    layer = load_object("my_layer:MyLayer")(6, 16, 4, 5, gap_s=0.1).eval()
    x, t = torch.randn(2, 9, 6), torch.rand(2, 9).cumsum(dim=1)
    state, steps = layer.init_state(2), []
    for i in range(9):
        y, state = layer.step(x[:, i], t[:, i], state)
        steps.append(y)
    torch.testing.assert_close(torch.stack(steps, dim=1), layer(x, t))
    assert (layer(x, t) - layer(x, 2 * t)).abs().max() > 1e-3  # it feels time


def first_ticks(env: str, driver: str, count: int) -> list[Tick]:
    return [tick for tick, _ in zip(rollout(env_spec(env).make(), load_driver(driver), 3), range(count), strict=False)]


def test_highway_envs_racetrack_tells_its_lanes_and_is_followed() -> None:
    pytest.importorskip("highway_env", reason="needs highway-env (pip install highway-env)")
    ticks = first_ticks("racetrack:make_env", "racetrack:LaneFollower", 25)
    assert len(ticks) == 25 and ticks[0].frame.shape == (96, 96, 3) and ticks[0].frame.std() > 10
    assert max(abs(tick.lane_offset_m or 0.0) for tick in ticks) < 2.5 and ticks[-1].episode_return > 15


def test_the_chicken_of_freeway_looks_before_it_crosses() -> None:
    pytest.importorskip("ale_py", reason="needs ale-py (pip install ale-py)")
    env = env_spec("freeway:make_env").make()
    assert env.actions == ("NOOP", "UP", "DOWN") and env.step_s == pytest.approx(1 / 15)
    ticks = first_ticks("freeway:make_env", "freeway:LookAhead", 70)
    assert ticks[-1].episode_return >= 1 and {tick.action.choice for tick in ticks} >= {0, 1}


def test_a_maze_of_minigrid_is_crossed_on_a_shortest_way() -> None:
    pytest.importorskip("minigrid", reason="needs minigrid (pip install minigrid)")
    env = env_spec("crossing:make_env").make()
    assert env.actions == ("left", "right", "forward")
    ticks = first_ticks("crossing:make_env", "crossing:ShortestPath", 99)
    assert 10 < len(ticks) < 40 and ticks[-1].events[-1] == "at the goal" and ticks[-1].episode_return > 0.6


def test_a_policy_is_a_part_of_donkeycars_own_loop(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("donkeycar", reason="needs donkeycar (pip install --no-deps donkeycar pyfiglet prettytable)")
    for module in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(module)
    from nacdrive.extras.exchange.tub import export_tub
    from nacdrive.extras.export.onnx import export_onnx

    (model,) = export_onnx(find_model("nac_steady"), elsewhere / "pilot.onnx")
    export_tub(write(elsewhere / "short", [drive(steps=6, size=(96, 96), jpeg=True)]), elsewhere / "tub")
    load_object("donkey_part:main")(str(model), str(elsewhere / "tub"))
    lines = [line for line in capsys.readouterr().out.splitlines() if re.fullmatch(r"[+-]\d\.\d\d [+-]\d\.\d\d", line)]
    assert len(lines) == 6


def nacdrive(line: str) -> str:
    """Run a command line in the current folder, as a person would; gives what it said."""
    run = "from nacdrive.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", run, *line.split()],
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.nightly
def test_stable_baselines_learns_in_vector_environments() -> None:
    done = subprocess.run(
        [sys.executable, "gym_vec_env.py", "128"],
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "total_timesteps" in done.stdout, done.stderr


@pytest.mark.nightly
def test_from_a_recording_to_a_policy_that_drives(elsewhere: Path) -> None:
    nacdrive("record --env my_env:make_env --driver my_driver:MyDriver --episodes 4 --out road --workers 2")
    recording = Recording.open(elsewhere / "road")
    assert recording.meta["source"] == "my_env:make_env" and recording.meta["fps"] == 10
    episode = recording.load(0)
    assert episode.driver == "grey-seeker" and len(episode) > 200 and np.abs(episode.steering).max() > 0.05

    layer = "--model my_layer:MyLayer --task imitation --data road --out runs/road"
    nacdrive(
        f"train {layer} --epochs 4 --dagger 1 --dagger-episodes 2 --env my_env:make_env --expert my_driver:MyDriver"
    )
    model = elsewhere / "runs" / "road" / "MyLayer.pt"
    assert model.is_file()

    nacdrive(
        f"eval --env my_env:make_env --model {model} --trust my_layer --episodes 2 --expert my_driver:MyDriver "
        "--out ev --no-videos"
    )
    metrics = json.loads((elsewhere / "ev" / "metrics.json").read_text())
    assert len(metrics["episodes"]) == 2 and (elsewhere / "ev" / "report.html").is_file()
    assert "my_env" in (elsewhere / "ev" / "report.html").read_text()
    assert "% of the lap" in nacdrive(f"drive --env my_env:make_env --model {model} --trust my_layer --headless")


@pytest.mark.nightly
def test_a_task_of_ones_own_is_a_column_of_the_table(elsewhere: Path) -> None:
    table = nacdrive("bench table --tasks my_task:MyTask --models gru --budget smoke --out table --workers 1")
    row = next(line for line in table.splitlines() if line.startswith("| gru"))
    assert float(row.split("|")[2]) > 80  # chance is 50 %


@pytest.mark.nightly
@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda file: file.stem)
def test_the_cells_of_a_notebook_run_one_after_the_other(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if file.stem == "recording":
        pytest.importorskip("pandas")
    module = ModuleType(f"notebook_{file.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    assert cells[0]["source"][0].startswith("# ") and all(not cell.get("outputs") for cell in cells)
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), str(file), "exec"), module.__dict__)
