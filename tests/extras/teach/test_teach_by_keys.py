"""A person at the keys of a real browser, who reacts late, teaches a policy that knows ten roads to drive others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from nacdrive.cli.drive import DriveConfig, load, recorders
from nacdrive.drivers.human import HumanControl
from nacdrive.envs.seeds import POLICY_RECORDING, POLICY_TEST
from nacdrive.envs.udacity_track.options import RoadOptions
from nacdrive.extras.teach.card import teach_card
from nacdrive.extras.teach.rounds import Teaching
from nacdrive.rollout.drive import Drive
from nacdrive.rollout.evaluate import EvalJob, drive_jobs
from nacdrive.rollout.record import record_episodes
from nacdrive.rollout.record_config import RecordConfig
from nacdrive.rollout.train_config import TrainConfig
from nacdrive.rollout.train_policy import train_policy
from nacdrive.web import LiveServer
from tests.helpers.teachers import teach

SPEED_MPH, ROADS = 25.0, 20
MINUTES = 10.0
"""Simulated, of the person's attention."""
ANY_ROAD, HARD = RoadOptions(), RoadOptions(road_difficulty=1.0)


def learn_ten_roads(folder: Path) -> tuple[Path, Path]:
    """A recording of ten roads, driven without a mistake, and a policy that has learnt a little from it."""
    laps = folder / "ten_roads"
    record_episodes(
        RecordConfig(
            env="udacity-track", track="random", roads=10, episodes=10, steering_noise=0.0, workers=1, out=laps,
        )
    )  # fmt: skip
    config = TrainConfig(task="udacity", model="nac-steady", data=(laps,), epochs=2, out=folder / "policy")
    return laps, train_policy(config)


def autonomy(model: Path, roads: int = ROADS, workers: int = 2, **options: Any) -> float:
    """Percent, on roads that nobody learns from."""
    drive = Drive("udacity-track", model, options={"laps": 1.0, **options}, speed_mph=SPEED_MPH, track="random")
    seeds = range(POLICY_TEST.start, POLICY_TEST.start + roads)
    jobs = [EvalJob("policy", k, seed, drive.env_spec.track_of("random", seed)) for k, seed in enumerate(seeds)]
    rows = [row["autonomy"] for _, row in drive_jobs(drive, jobs, workers)]
    return float(sum(rows) / len(rows))


def practise(first: Path, data: tuple[Path, ...], epochs: int, out: Path) -> Path:
    """Learn on while nobody attends, as the tutorial says."""
    config = TrainConfig(
        task="udacity", model="nac-steady", first=first, data=data, epochs=epochs, batch_size=4, valid_share=0.0,
        out=out,
    )  # fmt: skip
    return train_policy(config)


def practise_lessons(teaching: Teaching, out: Path) -> Path:
    """Learn again, and longer, what was shown, and the old laps."""
    lessons = tuple(teaching.folder / one.lesson for one in teaching.rounds)
    return practise(teaching.model, (*teaching.training.data, *lessons), 4, out)


def teach_by_keys(
    open_page: Callable[..., Any],
    laps: Path,
    model: Path,
    out: Path,
    minutes: float,
    road: RoadOptions = ANY_ROAD,
    **more: Any,
) -> tuple[Teaching, float]:
    """The teaching, on roads of the kind ``road``, and the share of the time that was driven by hand."""
    config = DriveConfig(
        env="udacity-track", track="random", model=str(model), speed=SPEED_MPH, expert="none", teach=True, data=(laps,),
        out=out, seed=POLICY_RECORDING.start + 100, road=road,
    )  # fmt: skip
    # Time is the world's: it goes on when the person has seen and pressed.
    control = HumanControl(clock=lambda: 0.0)
    loaded = load(config)
    card = teach_card(config, loaded)
    assert card is not None
    with ExitStack() as stack:
        server = stack.enter_context(LiveServer(port=0, control=control, cards=[card]))
        listeners = [server.publish, *recorders(config, stack, loaded, loaded.fps, card)]
        page = open_page(server.url)
        by_hand = teach(page, control, loaded, card, listeners, 60 * minutes, config.seed, **more)
        assert page.faults == []
    return card.teaching, by_hand / (60 * minutes)


@pytest.mark.nightly
def test_ten_minutes_by_keys_teach_a_policy_of_ten_roads_to_drive_others(
    open_page: Callable[..., Any], tmp_path: Path
) -> None:
    laps, model = learn_ten_roads(tmp_path)
    assert autonomy(model) < 90
    teaching, by_hand = teach_by_keys(open_page, laps, model, tmp_path / "teaching", MINUTES)
    assert by_hand < 0.9, "the policy drives too"
    print(f"by hand {by_hand:.0%}, rounds {len(teaching.rounds)}, autonomy {autonomy(teaching.model):.1f} %")
    assert autonomy(practise_lessons(teaching, tmp_path / "practice")) >= 99


@pytest.mark.nightly
def test_ten_minutes_by_keys_on_hard_roads_teach_what_more_practice_of_the_old_ones_does_not(
    open_page: Callable[..., Any], tmp_path: Path
) -> None:
    laps, beginner = learn_ten_roads(tmp_path)
    model = practise(beginner, (laps,), 7, tmp_path / "known")
    assert autonomy(model, **HARD.given) < 90
    teaching, by_hand = teach_by_keys(open_page, laps, model, tmp_path / "teaching", MINUTES, HARD)
    taught = autonomy(practise_lessons(teaching, tmp_path / "practice"), **HARD.given)
    # As many steps of the old laps alone.
    control = autonomy(practise(model, (laps,), 7, tmp_path / "control"), **HARD.given)
    print(f"by hand {by_hand:.0%}, taught {taught:.1f} %, control {control:.1f} %")
    assert taught >= 95 and taught > control + 3
