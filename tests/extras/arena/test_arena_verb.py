"""``nacdrive arena``: refusals, and one whole run whose result opens as a replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from nacdrive.cli.replay import ReplayConfig, open_run, parts_of
from nacdrive.common.errors import UserError
from nacdrive.common.result_folder import release_folders
from nacdrive.datasets.recording import Recording
from nacdrive.extras.arena.card import ArenaCard
from nacdrive.extras.arena.verb import ArenaConfig, drive_tracks, run

SAMPLE = Path("recordings/carracing-sample")
TWO = ("tests.helpers.arena_drivers:Straight", "geometric")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"models": ("nac_steady.pt",)}, "2 to 6 contestants, and there is 1"),
        ({"drivers": TWO * 4}, "there are 8"),
        ({"drivers": TWO[:1]}, "and there is 1: name them"),
        ({"drivers": TWO * 3, "person": True, "allow_control": True}, "and there are 7: name them"),
        ({"drivers": TWO, "top_speed": 0.5, "person": True, "allow_control": True}, "--top-speed is 0.5"),
        ({"drivers": TWO, "head_start": 61.0, "person": True, "allow_control": True}, "--head-start is 61"),
        ({"env": "udacity", "drivers": TWO}, "give --env udacity-track"),
        ({"drivers": TWO, "laps": 2.0}, "--laps is for udacity-track"),
        ({"drivers": TWO, "person": True}, "add --allow-control"),
        ({"drivers": TWO, "person": True, "headless": True}, "--person needs the page"),
        ({"drivers": TWO, "allow_control": True, "headless": True}, "--allow-control needs the page"),
        ({"drivers": TWO, "person": True, "allow_control": True, "fast": True}, "too fast for a person"),
        ({"drivers": ("ppo", "geometric"), "env": "udacity-track"}, "ppo does not know udacity-track"),
        ({"drivers": TWO, "top_speed": 20.0}, "--top-speed lets a person win"),
        ({"drivers": TWO, "head_start": 3.0}, "--head-start lets a person win"),
        ({"ghost": SAMPLE, "person": True, "allow_control": True, "top_speed": 9.0}, "--top-speed lets a person win"),
        ({"drivers": TWO, "ghost": SAMPLE, "env": "udacity-track", "track": "lake"}, "--ghost has tracks of its own"),
        ({"drivers": TWO, "episodes": 0}, "--episodes is 0"),
        ({"drivers": TWO, "page_port": 70_000}, "--page-port is 70000"),
        ({"drivers": TWO, "env": "udacity-track", "speed": 99.0}, "--speed is 99"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_makes_no_sense_is_refused_in_a_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        ArenaConfig(**options)


def test_without_names_the_shipped_policy_meets_the_expert_and_namesakes_are_told_apart() -> None:
    assert ArenaConfig().names == ["nac_steady", "ppo"]
    assert ArenaConfig(models=("a.pt", "b/a.pt"), drivers=("m:Own",)).names == ["a (1)", "a (2)", "Own"]
    assert ArenaConfig(models=("a.pt", "b/a.pt", "a (1).pt")).names == ["a (1)", "a (2)", "a (1) (1)"]
    # Their files would be the same.
    assert ArenaConfig(models=("a+b.pt", "a-b.pt")).names == ["a+b (1)", "a-b (2)"]


def test_six_may_drive_and_a_ghost_and_a_person_are_among_them() -> None:
    config = ArenaConfig(drivers=TWO * 2, ghost=SAMPLE, person=True, allow_control=True)
    assert config.names == ["Straight (1)", "geometric (1)", "Straight (2)", "geometric (2)", "ghost", "person"]
    assert ArenaConfig(drivers=TWO[:1], person=True, allow_control=True).names == ["Straight", "person"]
    assert ArenaConfig(drivers=("a/mine.onnx", "b/b.py:Two")).names == ["mine", "Two"]
    assert (config.seed, config.episodes, config.head_start, config.top_speed) == (4_000_000, 1, 0.0, None)
    limits: dict[str, Any] = {"drivers": TWO, "person": True, "allow_control": True}
    for options in ({"top_speed": 1.0, "head_start": 60.0}, {"top_speed": 100.0, "head_start": 0.0}):
        assert ArenaConfig(**limits, **options).top_speed == options["top_speed"]


@pytest.mark.parametrize(
    ("is_shown", "fast", "paces"),
    [
        (True, False, {"realtime": True, "together": True}),
        (True, True, {"realtime": False, "together": True}),
        (False, False, {"realtime": False, "together": False}),
    ],
)
def test_only_what_is_watched_keeps_pace_with_the_clock(is_shown: bool, fast: bool, paces: dict[str, bool]) -> None:
    driven: list[dict[str, Any]] = []

    class Course:
        def drive(self, *where: Any, audience: Any, **how: bool) -> None:
            driven.append(how)
            raise KeyboardInterrupt

    course: Any = Course()
    config = ArenaConfig(drivers=TWO, fast=fast, headless=not is_shown)
    with pytest.raises(KeyboardInterrupt):
        drive_tracks(config, course, ArenaCard() if is_shown else None, cast(Any, None))
    assert driven == [paces]


def test_a_result_lies_in_a_folder_of_the_track_and_of_those_who_drive() -> None:
    config = ArenaConfig(drivers=TWO, env="udacity-track", track="random:3")
    assert config.folder == Path("runs/arena-udacity-random-3-Straight-geometric")
    assert ArenaConfig(drivers=TWO * 2).folder.name == (
        "arena-carracing-Straight--1--geometric--1--Straight--2--geometric--2-"
    )
    assert ArenaConfig(drivers=TWO, out=Path("mine")).folder == Path("mine")


def test_each_episode_has_the_next_seed_and_its_track() -> None:
    assert ArenaConfig(drivers=TWO, episodes=3, seed=7).courses == [(7, ""), (8, ""), (9, "")]
    assert ArenaConfig(drivers=TWO, env="udacity-track", track="lake", seed=7).courses == [(7, "lake")]
    ghost: dict[str, Any] = {"drivers": TWO[:1], "ghost": SAMPLE}
    with pytest.raises(UserError, match="--ghost has 1 from there on"):
        _ = ArenaConfig(**ghost, seed=3000002, episodes=2).courses


def test_a_person_has_a_minute_and_all_others_the_top_speed() -> None:
    config = ArenaConfig(drivers=TWO, person=True, allow_control=True, top_speed=20.0)
    contestants = config.contestants()
    assert [one.top_speed_mps for one in contestants] == [20.0, 20.0, None]
    assert {one.drive.options["max_frames"] for one in contestants} == {3000}
    lake = ArenaConfig(drivers=TWO, person=True, allow_control=True, env="udacity-track").contestants()
    assert {one.drive.options["max_frames"] for one in lake} == {None}, "a lap of the lake takes longer"
    alone = ArenaConfig(drivers=TWO).contestants()
    assert "max_frames" not in alone[0].drive.options and alone[0].top_speed_mps is None
    started = ArenaConfig(drivers=TWO[:1], person=True, allow_control=True, head_start=4.0, ghost=SAMPLE).contestants()
    assert [(one.name, one.head_start_s) for one in started] == [("Straight", 4.0), ("ghost", 0.0), ("person", 0.0)]


def test_a_ghost_drives_its_recording_once_more_on_the_tracks_of_it(tmp_path: Path) -> None:
    more: dict[str, Any] = {"drivers": TWO[:1], "ghost": SAMPLE}
    config = ArenaConfig(**more, renderer="fast", max_frames=60, headless=True, out=tmp_path / "arena")
    assert run(config)[0] == 0
    release_folders()
    (track,) = json.loads((tmp_path / "arena" / "arena.json").read_text())["tracks"]
    (ghost,) = (one for one in track["ranking"] if one["name"] == "ghost")
    assert track["seed"] == 3000000
    assert ghost["episode_return"] == pytest.approx(Recording.open(SAMPLE).load(0).reward[:15].sum(), abs=1e-3)
    for options, sentence in (
        ({"seed": 701}, "there is no track 701"),
        ({"episodes": 9}, "--ghost has 3 from there on"),
        ({"env": "udacity-track"}, "--ghost was recorded in 'carracing'"),
    ):
        with pytest.raises(UserError, match=sentence):
            _ = ArenaConfig(**{**more, **options}).courses
    assert ArenaConfig(**more, seed=3000001, episodes=2).courses == [(3000001, ""), (3000002, "")]


def test_a_result_holds_every_drive_and_opens_as_a_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "arena"
    more: dict[str, Any] = {"renderer": "fast", "max_frames": 40, "episodes": 2, "headless": True, "out": out}
    assert run(ArenaConfig(drivers=TWO, **more))[0] == 0
    said = capsys.readouterr().out
    assert "track 4000000" in said and "difference of the return to Straight" in said
    found = json.loads((out / "arena.json").read_text())
    assert [one["name"] for one in found["contestants"]] == ["Straight", "geometric"]
    assert [one["seed"] for one in found["tracks"]] == [4000000, 4000001]
    assert found["totals"][1]["difference"]["interval95"] is not None
    config = ReplayConfig(data=(out,))
    runs = [open_run(part, config)[0] for part in parts_of(out)]
    assert [source.name for source in runs] == ["Straight", "geometric"]
    assert [len(source.labels) for source in runs] == [2, 2]
    ticks = runs[1].load(0)
    assert ticks[-1].episode_return == pytest.approx(
        next(one["episode_return"] for one in found["tracks"][0]["ranking"] if one["name"] == "geometric"), abs=1e-3
    )
    release_folders()
    with pytest.raises(UserError, match="already holds a result"):
        run(ArenaConfig(drivers=TWO, **more))
