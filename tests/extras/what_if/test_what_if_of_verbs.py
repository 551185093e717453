"""What ``nacdrive drive`` and ``replay`` hand to the process that answers: the same policy in the same world."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from nacdrive.cli import drive, replay
from nacdrive.common.action import Action
from nacdrive.common.paths import shipped
from nacdrive.drivers.tick import Tick
from nacdrive.extras.what_if.moments import moment_of
from nacdrive.extras.what_if.what_if import WhatIf
from nacdrive.rollout.rollout import rollout


def ghost(asked: WhatIf, ticks: Sequence[Tick], driven: Sequence[Action], step: int) -> list[tuple[float, float]]:
    moment = moment_of(ticks, driven, step + 1, asked.policy.config.window)
    assert moment is not None
    answers = asked.ghost(moment, [], seconds=0.3)
    return [(p["x_m"], p["y_m"]) for answer in answers if answer.get("who") == "edited" for p in answer["points"]]


@pytest.mark.parametrize(
    "options",
    [{"env": "carracing", "seed": 4_000_003}, {"env": "udacity-track", "seed": 3, "track": "lake"}],
    ids=lambda options: options["env"],
)
def test_a_ghost_without_edits_is_the_drive_with_all_that_stands_around_its_policy(options: dict[str, str]) -> None:
    torch.set_num_threads(1)
    config = drive.DriveConfig(**options)  # type: ignore[arg-type]
    driver, policy = drive.driver_of(config)
    env = drive.make_env(config, driver, policy, config.first_seed)
    whole = drive.wrapped(config, driver, env, None)
    ticks = list(itertools.islice(rollout(env, whole, config.first_seed), 40))
    assert policy is not None
    source = pickle.loads(pickle.dumps(drive.what_if_of(config, policy, expert=False)))
    line = ghost(source.load(), ticks, [tick.action for tick in ticks], 15)
    assert len(line) >= 3
    assert line == [(tick.x_m, tick.y_m) for tick in ticks[15 : 15 + len(line)]]


def test_a_recording_is_driven_once_more_to_the_very_pictures() -> None:
    folder = shipped("recordings") / "carracing-sample"
    run, source = replay.open_run(folder, replay.ReplayConfig(data=(Path(folder),), model="nac_steady.pt"))
    assert source is not None and run.driven is not None
    assert source.ghost and source.expert
    asked = pickle.loads(pickle.dumps(source)).load()
    # The policy of a replay only looks on; the past is what the expert drove, and pictures must match to the pixel.
    ticks = run.load(0)
    assert len(ghost(asked, ticks, run.driven(0), 40)) >= 3
    assert len(run.tuning) == 16
