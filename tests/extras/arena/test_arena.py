"""Several contestants on one track: one simulated clock and one camera for all, whatever their processes take."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from nacdrive.common.errors import UserError
from nacdrive.datasets.recording import Recording
from nacdrive.drivers.human import HumanControl
from nacdrive.drivers.tick import Tick
from nacdrive.envs.camera_noise import Camera, CameraNoise
from nacdrive.envs.carracing.env import Station
from nacdrive.envs.carracing.tyres import FULL_LOCK
from nacdrive.envs.registry import env_spec
from nacdrive.extras.arena import contestant as contestants
from nacdrive.extras.arena.arena import LEAD_S, Arena, _Clock, _Lane
from nacdrive.extras.arena.contestant import Abandon, Begin, Contestant, Ended, Go, Ready
from nacdrive.extras.arena.standings import ending_text, ranking, totals, totals_table, track_table
from nacdrive.rollout.drive import Drive
from tests.helpers.episodes import begin, make_episode
from tests.helpers.ticks import make_tick

OPTIONS = {"renderer": "fast", "max_frames": 60}
DRIVERS = "tests.helpers.arena_drivers"


def contestant(name: str, driver: str = "Straight", **more: Any) -> Contestant:
    return Contestant(name, Drive(driver=f"{DRIVERS}:{driver}", options=OPTIONS, **more))


class Audience:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.ticks: list[tuple[int, Tick]] = []
        self.begun = 0
        self.cameras: list[tuple[CameraNoise, float]] = []

    def begin(self, episode: int, seed: int, track: str) -> None:
        self.begun += 1
        self.ticks.clear()

    def tick(self, index: int, tick: Tick) -> None:
        self.ticks.append((index, tick))

    def camera(self, noise: CameraNoise, since_s: float) -> None:
        self.cameras.append((noise, since_s))


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    with Arena([contestant("quick"), contestant("slow", "Slow")], HumanControl()) as found:
        yield found


def test_who_decides_slowly_drives_the_same_and_nobody_is_far_ahead(arena: Arena) -> None:
    audience = Audience()
    rows = arena.drive(0, 3, audience=[audience])
    at = [0.0, 0.0]
    for index, tick in audience.ticks:
        at[index] = tick.t_s
        assert abs(at[0] - at[1]) <= LEAD_S + 2 * 0.08 + 1e-9 or tick.done or at[1 - index] > 1
    quick, slow = rows["quick"], rows["slow"]
    alone = arena.drive(0, 3, together=False)["quick"]
    for same in ("episode_return", "simulated_s", "progress", "decisions"):
        assert quick[same] == slow[same] == alone[same]
    stations = [tick.info["station_m"] for index, tick in audience.ticks if index == 0]
    assert stations[0] == 0 and np.all(np.diff(stations[5:]) > 0)
    assert "clean_frame" not in audience.ticks[0][1].info


def test_a_person_starts_all_over_and_the_camera_changes_for_all_at_the_same_simulated_time(arena: Arena) -> None:
    class Person(Audience):
        def tick(self, index: int, tick: Tick) -> None:
            super().tick(index, tick)
            if self.begun == 1 and tick.step == 1 and index == 0:
                arena.set_camera(CameraNoise(brightness=0.9))
            if self.begun == 1 and tick.step == 3 and index == 0:
                assert arena.control is not None
                arena.control.reset()
            if self.begun == 2 and tick.step == 4 and index == 0:
                arena.set_camera(CameraNoise(brightness=0.1))

    audience = Person()
    rows = arena.drive(1, 4, audience=[audience])
    assert audience.begun == 2
    assert rows["quick"]["decisions"] == 15, "the attempt before does not count"
    dark = [[tick.t_s for i, tick in audience.ticks if i == index and tick.frame.mean() < 40] for index in (0, 1)]
    assert dark[0] == dark[1] and len(dark[0]) > 2
    since = audience.cameras[-1][1]
    assert dark[0][0] > since
    changes = [change["since_s"] for change in arena.changes if change["episode"] == 1]
    assert changes == [0.0, round(since, 3)], "the attempt before leaves what holds from the start, and no change"
    arena.set_camera(CameraNoise())


def test_the_slowest_sets_how_far_the_others_may_drive(arena: Arena) -> None:
    for lane, t_s in zip(arena._lanes, (3.0, 1.0), strict=True):
        lane.t_s = t_s
    order = _Clock(arena, realtime=False, together=True).order(arena._lanes)
    assert order is not None and order.until_s == pytest.approx(1.0 + 0.08 + LEAD_S)


def test_a_person_holds_gas_in_a_bend_and_above_the_top_speed_nobody_else_has_any() -> None:
    person, straight = Contestant("person", Drive(driver="keyboard", options=OPTIONS)), contestant("straight")
    moved = []
    with person.load().open(3) as opened:
        driver: Any = opened.driver
        driver.keys = frozenset({"up", "left"})
        moved = [(tick.action, tick.speed_mps) for tick in opened]
    action, speed = moved[-1]
    assert 0.05 < action.throttle < 0.2 and -FULL_LOCK <= action.steering < -0.2 and speed > 5
    capped = []
    with straight.load().open(3) as opened:
        opened.driver = contestants.Handicap(opened.driver, replace(straight, top_speed_mps=5.0))
        capped = [(tick.speed_mps, tick.action.choice) for tick in opened]
    assert max(speed for speed, _ in capped) < 7
    assert {choice for _, choice in capped} == {0, 3} and all(choice == 0 for speed, choice in capped if speed >= 5)


def test_a_head_start_keeps_the_others_standing() -> None:
    late = replace(contestant("late"), head_start_s=0.4)
    with late.load().open(3) as opened:
        opened.driver = contestants.Handicap(opened.driver, late)
        speeds = {round(tick.t_s, 2): float(tick.speed_mps or 0) for tick in opened}
    assert all(speed < 0.01 for t_s, speed in speeds.items() if t_s <= 0.4) and max(speeds.values()) > 1


def test_a_ghost_whose_drive_comes_out_otherwise_is_refused() -> None:
    ghost = Contestant("ghost", Drive(driver="ghost", options=OPTIONS), ghost=Path("recordings/carracing-sample"))
    loaded = ghost.load()
    driver: Any = loaded.driver
    driver.take(3000000, 0)
    with loaded.open(3000000) as opened:
        assert [tick.action.choice for tick in opened] == [action.choice for action in driver.actions[:15]]
    driver._speeds = driver._speeds + 1
    with pytest.raises(UserError, match="this drive is another one"), loaded.open(3000000) as opened:
        list(opened)


def test_of_two_drives_on_one_track_a_ghost_drives_each_in_its_turn(tmp_path: Path) -> None:
    writer = begin(tmp_path / "recording")
    for seed, steps in ((1, 3), (3, 4), (3, 5)):
        writer.add(make_episode(seed, steps))
    recording = Recording.open(tmp_path / "recording")
    ghost = contestants.Ghost(recording, env_spec("carracing"))
    lengths = []
    for number in range(2):
        ghost.take(3, number)
        lengths.append(len(ghost.actions))
    assert lengths == [info.steps for info in recording.episodes[1:]] and sorted(lengths) == [4, 5]


def test_a_ghost_does_not_drive_an_attempt_that_was_started_over(tmp_path: Path) -> None:
    writer = begin(tmp_path / "recording")
    for seed, steps, ended in ((3, 4, "interrupted"), (3, 5, "lap"), (3, 6, "interrupted"), (4, 7, "interrupted")):
        writer.add(replace(make_episode(seed, steps), meta={"ended": ended}))
    ghost = contestants.Ghost(Recording.open(tmp_path / "recording"), env_spec("carracing"))
    lengths = []
    for seed, number in ((3, 0), (4, 1)):
        ghost.take(seed, number)
        lengths.append(len(ghost.actions))
    assert lengths == [5, 7]


def test_what_a_person_did_is_an_event_of_their_own_drive_alone() -> None:
    control, audience, options = HumanControl(), Audience(), {**OPTIONS, "max_frames": 12}
    person = Contestant("person", Drive(driver="keyboard", options=options))
    other = Contestant("other", Drive(driver=f"{DRIVERS}:Straight", options=options))
    with Arena([person, other], control) as arena:
        control.reset()
        arena.drive(0, 3, audience=[audience])
    assert audience.begun == 2
    mine, others = ([event for at, tick in audience.ticks if at == lane for event in tick.events] for lane in (0, 1))
    assert set(mine) - set(others) and not set(others) - set(mine)


@pytest.mark.parametrize(("driver", "said"), [("no_such:Driver", "no module"), (f"{DRIVERS}:Broken", "no such road")])
def test_a_contestant_that_cannot_drive_ends_the_arena_with_a_sentence(driver: str, said: str) -> None:
    other = Contestant("b", Drive(driver=driver, options=OPTIONS))
    with pytest.raises(UserError, match=said), Arena([contestant("a"), other]) as arena:
        arena.drive(0, 3)


@pytest.mark.parametrize(("names", "said"), [(["a"], "2 to 6"), (list("abcdefg"), "2 to 6"), (["a", "a"], "same name")])
def test_too_few_too_many_and_namesakes_are_refused(names: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Arena([contestant(name) for name in names])


def test_orders_hold_from_their_own_simulated_time_on_whenever_they_come() -> None:
    ours, theirs = Pipe()

    def drive(pipe: Any) -> None:
        with suppress(EOFError):  # which ends a contestant
            contestants._drive_all(
                pipe, Contestant("person", Drive(driver="keyboard", options=OPTIONS | {"repeat": 4}))
            )

    thread = Thread(target=drive, args=(theirs,), daemon=True)
    thread.start()
    said: list[Any] = [ours.recv()]
    assert said[0] == Ready(0.08)
    ours.send(Begin(0, 3))
    # All at once: each is taken up when the one before is used up.
    ours.send(Go(0.4, keys=frozenset({"up"})))
    ours.send(Go(0.8, CameraNoise(brightness=0.1), keys=frozenset({"left"}), events=("camera",)))
    ticks = [ours.recv() for _ in range(10)]
    assert all(tick.action.throttle and not tick.action.steering for tick in ticks[1:5])
    assert all(tick.action.steering < 0 for tick in ticks[5:]) and all(tick.human for tick in ticks)
    assert [tick.frame.mean() < 40 for tick in ticks] == [False] * 6 + [True] * 4
    assert ticks[5].events == ("camera",)
    ours.send(Abandon())
    assert isinstance(ours.recv(), Abandon)
    ours.send(Begin(1, 3))
    ours.send(Go(math.inf))
    while not isinstance(said[-1], Ended):
        said.append(ours.recv())
    assert len(said) == 2 + 15 and said[1].t_s == 0
    ours.close()
    thread.join(120)


@pytest.mark.parametrize("renderer", ["official", "fast"])
def test_a_contestant_sees_the_instruments_that_its_driver_reads(renderer: str) -> None:
    contestant = Contestant("continuous", Drive(driver="continuous", options={"renderer": renderer}))
    env = contestant.load().make_env(0, camera=CameraNoise())
    try:
        frame, _ = env.reset(seed=0)
        assert env.actions == () and frame[84:].any()
    finally:
        env.close()


def test_a_camera_that_changes_keeps_its_newest_frames() -> None:
    frames = [np.full((2, 2, 3), value, np.uint8) for value in range(10)]
    camera = Camera(CameraNoise())
    seen = [int(camera(frame)[0, 0, 0]) for frame in frames[:3]]
    camera.change(CameraNoise(delay_steps=2))
    seen += [int(camera(frame)[0, 0, 0]) for frame in frames[3:7]]
    camera.change(CameraNoise())
    seen += [int(camera(frame)[0, 0, 0]) for frame in frames[7:]]
    assert seen == [0, 1, 2, 2, 2, 3, 4, 7, 8, 9]


def test_a_station_grows_over_laps_and_falls_on_the_way_back() -> None:
    turns = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    station = Station(50 * np.stack([np.cos(turns), np.sin(turns)], axis=1))
    around = np.linspace(0.01, 4 * np.pi + 0.01, 300)
    found = [station.follow(52 * math.cos(turn), 52 * math.sin(turn)) for turn in around]
    assert found[0] == 0 and np.all(np.diff(found) > 0)
    assert found[-1] == pytest.approx(2 * station.length_m, rel=1e-3)
    assert station.follow(52 * math.cos(around[-2]), 52 * math.sin(around[-2])) < found[-1]


def row(**more: Any) -> dict[str, Any]:
    usual = {"finished_lap": True, "failure": None, "simulated_s": 18.0, "progress": 1.0, "episode_return": 900.0}
    return {**usual, "wheels_off": 0.0, "late_decisions": 0, "ending": "lap finished", **more}


def test_a_finished_lap_stands_before_any_other_and_interventions_before_time() -> None:
    rows = {
        "lost": row(finished_lap=False, progress=0.4, ending="left the field"),
        "further": row(finished_lap=False, progress=0.7, ending="time is up"),
        "helped": row(simulated_s=15.0, interventions=2),
        "slow": row(simulated_s=19.0),
        "quick": row(simulated_s=17.0),
        "as quick": row(simulated_s=17.0),
        "stopped": row(failure="not finite", progress=0.9),
    }
    ranked = ranking(rows)
    assert [(entry["rank"], entry["name"]) for entry in ranked] == [
        (1, "quick"), (1, "as quick"), (3, "slow"), (4, "helped"), (5, "stopped"), (6, "further"), (7, "lost"),
    ]  # fmt: skip
    assert "lap finished, 2 interventions" in track_table(ranked)


@pytest.mark.parametrize(("count", "text"), [(None, ""), (0, ""), (1, ", 1 intervention"), (2, ", 2 interventions")])
def test_an_ending_names_the_interventions_that_there_were(count: int | None, text: str) -> None:
    assert ending_text({"ending": "lap", "interventions": count}) == f"lap{text}"


def test_totals_are_paired_by_track_and_say_when_nothing_is_shown() -> None:
    tracks = [
        {"a": row(episode_return=900.0 + 50 * k), "b": row(episode_return=890.0 + 50 * k + k % 2, simulated_s=19.0)}
        for k in range(12)
    ]
    a, b = totals(tracks)
    assert a["difference"] is None and a["wins"] == 12 and b["wins"] == 0
    assert b["difference"]["value"] == pytest.approx(-9.5)
    low, high = b["difference"]["interval95"]
    assert -10 <= low < high <= -9, "the tracks differ by 550, the pairs by 1"
    assert "no difference shown" not in totals_table([a, b])
    alike = totals([{"a": row(), "b": row(episode_return=900.0 + 10 * (-1) ** k)} for k in range(4)])
    assert "no difference shown" in totals_table(alike)


def test_a_ranking_is_a_table_of_seconds_shares_and_endings() -> None:
    rows = {
        "nac": row(simulated_s=17.04, episode_return=912.54, wheels_off=0.006, interventions=1),
        "ppo": row(finished_lap=False, progress=0.4, failure="not finite", late_decisions=3),
    }
    best, last = ranking(rows)
    assert last == {
        "rank": 2, "name": "ppo", "ending": "not finite", "finished": False, "time_s": 18.0, "progress": 0.4,
        "episode_return": 900.0, "off_road": 0.0, "interventions": None, "late_decisions": 3,
    }  # fmt: skip
    assert track_table([best, {**last, "name": "a longer name"}]).splitlines() == [
        "                       time   of the road    return   off the road",
        "  1. nac             17.0 s       100.0%     912.5         0.6%   lap finished, 1 intervention",
        "  2. a longer name   18.0 s        40.0%     900.0         0.0%   not finite",
    ]


def test_a_lap_that_a_safety_stop_ended_is_no_finished_one_and_fewer_interventions_beat_time() -> None:
    rows = {
        "helped": row(simulated_s=10.0, interventions=1),
        "alone": row(simulated_s=19.0, interventions=0),
        "stopped": row(simulated_s=5.0, failure="not finite"),
    }
    assert [entry["name"] for entry in ranking(rows)] == ["alone", "helped", "stopped"]
    apart = ranking({"a": row(simulated_s=17.0), "b": row(simulated_s=17.0 + 1e-10), "c": row(simulated_s=17.001)})
    assert [entry["rank"] for entry in apart] == [1, 1, 3]


def test_of_several_tracks_the_best_the_finished_and_the_grass_are_counted() -> None:
    tracks = [
        {"a": row(wheels_off=0.1), "b": row(simulated_s=17.0, wheels_off=0.2)},
        {"a": row(wheels_off=0.2), "b": row(finished_lap=False, wheels_off=0.4)},
        {"a": row(), "b": row()},
    ]
    a, b = totals(tracks)
    assert (a["wins"], a["finished"], a["tracks"], a["off_road"]) == (2, 3, 3, pytest.approx(0.1))
    assert (b["wins"], b["finished"], b["tracks"], b["off_road"]) == (2, 2, 3, pytest.approx(0.2))
    assert totals([]) == []


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (-9.5, (-10.0, -9.0), "-9.5 (-10.0 to -9.0)"),
        (9.5, (0.5, 20.0), "+9.5 (+0.5 to +20.0)"),
        (9.5, (0.0, 20.0), "+9.5 (+0.0 to +20.0): no difference shown"),
        (-9.5, (-20.0, 0.0), "-9.5 (-20.0 to +0.0): no difference shown"),
        (3.0, None, "+3.0 (one track says nothing of others)"),
    ],
)
def test_a_difference_is_shown_only_where_its_interval_leaves_out_nothing(
    value: float, interval: tuple[float, float] | None, text: str
) -> None:
    first = {"name": "nac", "tracks": 2, "wins": 1, "finished": 2, "return": {"mean": 900.0}, "difference": None}
    other = {**first, "name": "ppo 2", "wins": 0, "difference": {"value": value, "interval95": interval}}
    assert totals_table([first, other]).splitlines() == [
        "2 tracks; difference of the return to nac, paired by track, 95 % interval:",
        "  nac    best on 1, laps finished 2, return   900.0, the others are compared with it",
        f"  ppo 2  best on 0, laps finished 2, return   900.0, {text}",
    ]


def clock(now: list[float], **how: bool) -> _Clock:
    """Of an arena of two whose decisions are 0.1 s apart, and where the wall's clock is ``now``."""
    arena = Arena([contestant("a"), contestant("b")], clock=lambda: now[0])
    arena._lanes = [_Lane(one, None, step_s=0.1) for one in arena.contestants]  # type: ignore[arg-type]
    return _Clock(arena, **{"realtime": True, "together": True, **how})


def test_in_real_time_permission_grows_with_the_wall_and_lost_time_is_not_caught_up() -> None:
    now = [100.0]
    race = clock(now)
    lanes = race._arena._lanes

    def granted() -> float:
        order = race.order(lanes)
        assert order is not None
        race.granted_s = max(race.granted_s, order.until_s)
        return race.granted_s

    assert granted() == pytest.approx(1e-6), "the first decision needs no waiting"
    now[0] += 0.3
    assert granted() == pytest.approx(0.3)
    now[0] += 0.04
    assert granted() == pytest.approx(0.3), "less than half a decision is no message"
    now[0] += 0.02
    assert granted() == pytest.approx(0.36)
    now[0] += 60.0
    assert granted() == pytest.approx(0.1 + LEAD_S), "nobody is further ahead of the slowest"
    for lane in lanes:
        lane.t_s = 0.5
    now[0] += 0.1
    assert granted() == pytest.approx(0.7), "and the minute is not caught up"


def test_all_may_drive_on_to_their_next_frame_however_rare_frames_are(monkeypatch: pytest.MonkeyPatch) -> None:
    race = clock([0.0], realtime=False)
    for lane in race._arena._lanes:
        lane.begin("")
        tick = make_tick(0, t_s=0.0, next_info={"t_s": 2.0})
        monkeypatch.setattr(race._arena, "_receive", lambda lane, tick=tick: tick)
        race._arena._handle(lane, ())
    order = race.order(race._arena._lanes)
    assert order is not None and order.until_s == pytest.approx(2.0 + LEAD_S)


def test_without_an_audience_everybody_drives_as_fast_as_it_can() -> None:
    race = clock([0.0], together=False)
    order = race.order(race._arena._lanes)
    assert order is not None and order.until_s == math.inf and order.noise == race._arena.noise


def test_nothing_is_permitted_in_a_pause_and_keys_come_with_the_next_permission() -> None:
    race = clock([0.0], realtime=False)
    control = race._arena.control = HumanControl()
    lanes = race._arena._lanes
    race._arena.watched = lambda: True
    control.pause()
    waiting = race.order(lanes)
    assert waiting is not None and waiting.until_s == 0.0 and not waiting.events and not waiting.watched
    control.resume()
    order = race.order(lanes)
    assert order is not None and order.until_s == pytest.approx(0.1 + LEAD_S)
    assert order.watched and order.keys == frozenset() and order.axes is None
