"""Which episodes are driven: spread over the knobs first, then near those that failed; the same whoever drives."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nacdrive.cli.eval import EvalConfig
from nacdrive.cli.main import parse
from nacdrive.common.options import flag
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.registry import env_spec
from nacdrive.envs.seeds import HUNT, POLICY_RECORDING, POLICY_TEST
from nacdrive.extras.hunt.search import AREAS, CAMERA, CELLS, KNOBS, ROUND, Case, Search, command, knobs_of
from nacdrive.rollout.drive import Drive

SPEC = env_spec("udacity-track")
DRIVE = Drive("udacity-track", Path("nac_steady.pt"), track="random", options={"laps": 1.0}, speed_mph=20.0)
ALL = knobs_of(SPEC, DRIVE, AREAS)


def search(count: int, known: dict[int, dict[str, bool]] | None = None, seed: int = 0) -> Search:
    return Search(ALL, AREAS, seed, known or {}, lambda so_far: so_far < count)


def fails(case: Case) -> bool:
    return case.knobs.get("slow_cars", 0) > 2


def drive_all(cases: Search, at_once: int) -> list[Case]:
    """As ``run_jobs`` does with so many workers, results in another order."""
    rng, done, busy = random.Random(1), [], []
    while True:
        while len(busy) < at_once and (case := next(cases, None)) is not None:
            busy.append(case)
        if not busy:
            return sorted(done, key=lambda case: case.number)
        case = busy.pop(rng.randrange(len(busy)))
        done.append(case)
        cases.add(case, failed=fails(case))


def test_the_same_seed_drives_the_same_episodes_however_many_work_at_the_same_time() -> None:
    alone, many = drive_all(search(130), 1), drive_all(search(130), 7)
    assert alone == many and len(alone) == 130
    assert drive_all(search(130, seed=1), 1) != alone


def test_a_resumed_search_goes_on_where_it_was_stopped() -> None:
    alone = drive_all(search(90), 1)
    known = {case.seed: {"failed": fails(case)} for case in alone[:47]}
    assert drive_all(search(90, known), 3) == alone[47:]


def test_first_all_is_spread_then_half_is_near_what_failed() -> None:
    cases = drive_all(search(200), 1)
    assert all(case.near is None for case in cases[:ROUND])
    near = [case for case in cases if case.near is not None]
    assert len(near) > 0.4 * (len(cases) - 2 * ROUND)
    by_number = {case.number: case for case in cases}
    for case in near:
        origin = by_number[case.near]  # type: ignore[index]
        assert fails(origin) and origin.knobs.keys() == case.knobs.keys() and origin.seed != case.seed
    anywhere = [case for case in cases if case.near is None]
    assert np.mean([*map(fails, near)]) > 2 * np.mean([*map(fails, anywhere)])


def test_every_area_is_searched_and_every_part_of_every_range() -> None:
    cases = drive_all(search(5 * CELLS), 1)
    spread = [case for case in cases if case.near is None]
    assert {case.area for case in spread[:5]} == set(AREAS)
    for knob in ALL:
        values = [case.knobs[knob.option] for case in spread if knob.option in case.knobs]
        assert all(knob.low <= value <= knob.high for value in values)
    assert all(case.knobs or case.area == "seeds" for case in cases)


def test_each_episode_has_a_track_of_its_own_that_may_be_learnt_from_and_judges_nobody() -> None:
    seeds = [case.seed for seed in (0, 1) for case in drive_all(search(60, seed=seed), 1)]
    assert len(set(seeds)) == 120 and all(seed in HUNT and seed in POLICY_RECORDING for seed in seeds)
    assert not set(HUNT) & set(POLICY_TEST)


def test_a_knob_keeps_to_its_range() -> None:
    knob = next(one for one in KNOBS if one.option == "patches")
    assert [knob.at(share) for share in (0, 0.5, 1, 1.25, -0.25, 2)] == [1, 30, 60, 45, 16, 1]
    assert knob.share(60) == 1


@pytest.mark.parametrize("env", ["carracing", "udacity-track"])
def test_both_ends_of_every_knob_are_settings_of_a_drive(env: str) -> None:
    spec = env_spec(env)
    knobs = knobs_of(spec, Drive(env, track="random", speed_mph=spec.speed_mph), AREAS)
    assert all(knob.low < knob.high for knob in knobs)
    for end in ("low", "high"):
        line = [f"{flag(knob.option)}={getattr(knob, end):g}" for knob in knobs]
        parse(EvalConfig, "nacdrive eval", ["--env", env, *(["--track", "random"] if spec.random_roads else []), *line])


def test_a_knob_left_alone_is_as_in_a_drive_without_it() -> None:
    usual = {knob.option: knob.usual for knob in ALL}
    cameras = {knob.option: CAMERA[knob.option] for knob in ALL if knob.area == "cameras"}
    nothing = {knob.option: 0 for knob in ALL if knob.area in ("starts", "traffic")}
    nothing |= {"patches": 0, "missing_marks": 0}
    assert usual.items() >= (cameras | nothing | {"speed": SPEC.speed_mph}).items()
    assert usual["road_difficulty"] == usual["scene_variety"] == 0.5, "the middle of what roads are made with"


@pytest.mark.parametrize(("env", "far_m", "fast_mps"), [("carracing", 12, 60), ("udacity-track", 4, 13)])
def test_starts_reach_over_the_edge_of_the_road_and_up_to_a_speed_of_the_car(
    env: str, far_m: float, fast_mps: float
) -> None:
    ranges = {knob.option: (knob.low, knob.high) for knob in knobs_of(env_spec(env), Drive(env), ("starts",))}
    assert ranges == {"start_offset": (-far_m, far_m), "start_heading": (-45, 45), "start_speed": (0, fast_mps)}


def test_who_drives_at_a_speed_of_its_own_is_not_given_another() -> None:
    def is_searched(**more: Any) -> bool:
        return "speed" in {knob.option for knob in knobs_of(SPEC, replace(DRIVE, **more), AREAS)}

    assert is_searched(speed_mph=SPEC.speed_mph)
    assert not is_searched(speed_mph=25.0) and not is_searched(speed_mph=SPEC.speed_mph, driver="geometric")


def test_a_case_near_a_failure_stays_near_it() -> None:
    cases = search(1)
    knob = next(one for one in ALL if one.option == "sun_elevation")
    cases.failures = [Case(3, "roads", 7, {knob.option: knob.at(0.5)})]
    near = [cases.near(number) for number in range(40, 240)]
    shares = [knob.share(case.knobs[knob.option]) for case in near if case is not None]
    assert len(shares) == 200 and np.std(shares) == pytest.approx(0.1, rel=0.3)
    assert np.mean(shares) == pytest.approx(0.5, abs=0.05)
    first = near[0]
    assert first is not None and (first.number, first.area, first.near) == (40, "roads", 3)
    assert first.seed == cases.first_seed + 40
    elsewhere = cases.near(40, 9)
    assert elsewhere is not None and elsewhere.seed == 9
    cases.failures = [Case(3, "seeds", 7, {})]
    assert cases.near(40) is None, "a failure that turned nothing has nothing near it"


def test_what_is_given_is_not_searched_and_what_an_environment_has_not_neither() -> None:
    given = Drive("udacity-track", Path("x.pt"), track="lake", options={"slow_cars": 2}, speed_mph=25.0)
    names = {knob.option for knob in knobs_of(SPEC, given, AREAS)}
    assert not names & {"slow_cars", "speed", "road_difficulty", "scene_variety"} and "parked_cars" in names
    noisy = Drive("udacity-track", Path("x.pt"), track="random", camera=CameraNoise(noise=0.1), speed_mph=20.0)
    assert not {"blackout", "noise"} & {knob.option for knob in knobs_of(SPEC, noisy, AREAS)}
    car = knobs_of(env_spec("carracing"), Drive(), AREAS)
    assert {knob.area for knob in car} == {"starts", "cameras"}
    assert {knob.area for knob in knobs_of(env_spec("gym:X-v0"), Drive("gym:X-v0"), AREAS)} == {"cameras"}


@pytest.mark.parametrize("env", ["carracing", "udacity-track"])
def test_the_printed_command_is_the_same_drive(env: str) -> None:
    spec = env_spec(env)
    drive = Drive(
        env, Path("agents/x.pt"), track="random" if spec.random_roads else None,
        options={"laps": 1.0} if spec.honours("laps") else {"renderer": "fast"}, speed_mph=spec.speed_mph,
    )  # fmt: skip
    knobs = knobs_of(spec, drive, AREAS)
    areas = sorted({knob.area for knob in knobs})
    for case in drive_all(Search(knobs, areas, 3, {}, lambda count: count < len(areas)), 1):
        line = command(case, drive).split(" --trust")[0].split()
        config = parse(EvalConfig, "nacdrive eval", line[2:])
        again, whole = config.driven(drive.model), case.of(drive)
        assert (config.model, config.seed, config.count) == ("agents/x.pt", case.seed, 1)
        assert config.track == (None if drive.track is None else "random") and again.expert is None
        assert again.options.items() >= whole.options.items()
        assert (again.camera, again.speed_mph) == (whole.camera, whole.speed_mph)
