"""What ``nacdrive drive`` and ``replay`` hand to the process that answers: the same policy in the same world."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from nacdrive.cli import drive, replay
from nacdrive.cli.eval import run as evaluate
from nacdrive.common.action import Action
from nacdrive.common.paths import shipped
from nacdrive.datasets.recording import Recording
from nacdrive.drivers.tick import Tick
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.extras.arena.contestant import Contestant
from nacdrive.extras.what_if.moments import moment_of
from nacdrive.extras.what_if.what_if import WhatIf
from nacdrive.rollout.drive import Drive
from nacdrive.rollout.eval_config import EvalConfig
from tests.helpers.nightly import daily


def ghost(asked: WhatIf, ticks: Sequence[Tick], driven: Sequence[Action], step: int) -> list[tuple[float, float]]:
    moment = moment_of(ticks, driven, step + 1, asked.policy.config.window)
    assert moment is not None
    answers = asked.ghost(moment, [], seconds=0.3)
    return [(p["x_m"], p["y_m"]) for answer in answers if answer.get("who") == "edited" for p in answer["points"]]


@pytest.mark.parametrize(
    "options",
    daily(
        [
            {"env": "carracing", "seed": 4_000_003},
            {
                "env": "carracing",
                "seed": 4_000_003,
                "model": "nac_steady_continuous",
                "disturbance": CameraNoise(dropped=0.6),
            },
            {"env": "udacity-track", "seed": 3, "track": "lake"},
        ],
        ["carracing", "carracing, frames lost"],
        lambda options: options["env"] + ", frames lost" * ("disturbance" in options),
    ),
)
def test_a_ghost_without_edits_is_the_drive_with_all_that_stands_around_its_policy(options: dict[str, str]) -> None:
    torch.set_num_threads(1)
    config = drive.DriveConfig(**options)  # type: ignore[arg-type]
    loaded = drive.load(config)
    assert loaded.policy is not None
    with loaded.open(config.first_seed) as opened:
        ticks = list(itertools.islice(opened, 48))
    source = pickle.loads(pickle.dumps(drive.what_if_of(config, loaded.policy, expert=False)))
    asked = source.load()
    for step in (15, 24, 33):
        line = ghost(asked, ticks, [tick.action for tick in ticks], step)
        assert len(line) >= 3
        assert line == [(tick.x_m, tick.y_m) for tick in ticks[step : step + len(line)]]


@pytest.mark.nightly
def test_a_recording_is_driven_once_more_to_the_very_pictures() -> None:
    folder = shipped("recordings") / "carracing-sample"
    run, seen = replay.open_run(folder, replay.ReplayConfig(data=(Path(folder),), model="nac_steady.pt"))
    assert seen is not None and run.driven is not None
    source, (model, episode_of) = seen
    assert model.name == "nac_steady.pt" and episode_of(0).source == "carracing"
    assert source.ghost and source.expert
    asked = pickle.loads(pickle.dumps(source)).load()
    # The policy of a replay only looks on; the past is what the expert drove, and pictures must match to the pixel.
    ticks = run.load(0)
    assert len(ghost(asked, ticks, run.driven(0), 40)) >= 3
    assert run.why is not None and run.why(ticks, 40)["sentence"].startswith("It ")


def test_a_drive_with_decisions_between_frames_is_driven_once_more_whoever_looks_at_it(tmp_path: Path) -> None:
    slow, out, seed = CameraNoise(rate=(5, 6)), tmp_path / "slow", 4_000_003
    asked = {"episodes": 1, "workers": 1, "out": out, "max_frames": 120, "renderer": "fast"}
    evaluate(EvalConfig(model="nac_steady.pt", seed=seed, disturbance=slow, **asked))  # type: ignore[arg-type]
    episode = Recording.open(out / "drives").load(0)
    assert episode.between_frames is not None and np.nansum(episode.between_frames) > 10
    drive = Drive(driver="ghost", camera=slow, options={"max_frames": 120, "renderer": "fast"})
    loaded = Contestant("ghost", drive, ghost=out / "drives").load()
    loaded.driver.take(seed, 0)  # type: ignore[attr-defined]
    with loaded.open(seed) as opened:
        assert [tick.action.choice for tick in opened] == [action.choice for action in loaded.driver.actions]  # type: ignore[attr-defined]
    # The one that looks decides where a frame comes alone.
    model = "docs/results/carracing_seeds/scores-2.pt"
    run, seen = replay.open_run(out, replay.ReplayConfig(data=(out,), model=model))
    assert seen is not None and run.driven is not None
    assert len(ghost(seen[0].load(), run.load(0), run.driven(0), 12)) >= 2


@pytest.mark.nightly
def test_a_ghost_of_an_evaluated_drive_has_its_speed_and_its_laps(tmp_path: Path) -> None:
    out = tmp_path / "fast"
    asked = {"env": "udacity-track", "track": "lake", "episodes": 1, "workers": 1, "out": out}
    evaluate(EvalConfig(**asked, laps=0.03, speed=30.0, disturbance=CameraNoise(brightness=0.9)))  # type: ignore[arg-type]
    run, seen = replay.open_run(out, replay.ReplayConfig(data=(out,), model="nac_steady.pt"))
    assert seen is not None and run.driven is not None
    asked_again = seen[0].load()
    ticks = run.load(0)
    assert (ticks[-1].speed_mps or 0) > 9.5, "faster than the usual 20 mph, 8.9 m/s"
    step = len(ticks) - 3
    line = ghost(asked_again, ticks, run.driven(0), step)
    assert line == [(tick.x_m, tick.y_m) for tick in ticks[step : step + len(line)]]
    last = ghost(asked_again, ticks, run.driven(0), len(ticks) - 1)
    assert len(last) == 1, "the drive ends with its laps"
