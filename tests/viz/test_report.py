"""``report.html``: axes that show differences, a map per filmed drive, links to its worst moment."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nacdrive.datasets.episode import Episode
from nacdrive.datasets.images import encode_png
from nacdrive.datasets.manifest import DRIVES
from nacdrive.datasets.recording import Recording
from nacdrive.envs.registry import CARRACING
from nacdrive.viz.recorded import recorded_ticks
from nacdrive.viz.report import (
    BARS,
    axis_note,
    bars,
    between,
    failures,
    films,
    lead,
    table,
    tiles,
    tracks,
    worst,
)
from nacdrive.viz.report_charts import by_track, differs, drive_map, over_time, return_marks, ticks, worst_moment
from nacdrive.viz.trace import why_of
from tests.helpers.episodes import begin, make_episode
from tests.helpers.small_policies import episode_of, small_policy, smooth_frames


def row(seed: int, episode_return: float, curve: list[list[float]] | None = None, track: str = "") -> dict[str, Any]:
    made = {"seed": seed, "episode_return": episode_return, "ending": "lap finished", "curve": curve or []}
    return {**made, **({"track": track} if track else {})}


def drive(steps: int = 100, **more: Any) -> Episode:
    """Ten seconds along a quarter of a circle, the expert disagreeing in a tenth of it, the worst second at 6 s."""
    t_s = np.arange(steps) * 0.1
    reward = np.full(steps, 2.0)
    reward[60:70] = -3.0
    choice = np.full(steps, 3)
    values = {
        "t_s": t_s,
        "reward": reward,
        "choice": choice,
        "expert_choice": np.where((t_s >= 3) & (t_s < 4), 1, 3),
        "x_m": 100 * np.cos(t_s / 6),
        "y_m": 100 * np.sin(t_s / 6),
    }
    return replace(make_episode(7, steps), **{**values, **more})


@pytest.mark.parametrize("returns", [[890.0, 910.0, 925.0], [5.0, 5.0], [-80.0, 900.0], [0.0, 1e-3]])
def test_the_axis_of_returns_spans_what_there_is(returns: list[float]) -> None:
    rows = [row(i, value) for i, value in enumerate(returns)]
    marks = return_marks(rows, [])
    span = max(max(returns) - min(returns), 1.0)
    assert marks[0] <= min(returns) and marks[-1] >= max(returns)
    assert marks[-1] - marks[0] <= 2.5 * span, "the drives use the chart's width"
    assert len(set(re.findall(r'class="dot" cx="([\d.]+)"', by_track(rows, [])))) == len(set(returns))


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.0), (-3.0, -3.0), (5.0, 5.0), (0.0, 1e-6), (-20.0, 900.0)])
def test_an_axis_has_two_marks_even_where_all_values_are_the_same(low: float, high: float) -> None:
    marks = ticks(low, high)
    assert 2 <= len(marks) <= 12
    assert marks[0] <= low + 1e-9 * abs(low)
    assert marks[-1] >= high - 1e-9 * abs(high)


@pytest.mark.parametrize(
    ("low", "high", "marks"),
    [
        (0, 900, [0, 200, 400, 600, 800, 1000]),
        (-20, 100, [-20, 0, 20, 40, 60, 80, 100]),
        (0, 6, [0, 1, 2, 3, 4, 5, 6]),
        (0, 55, [0, 10, 20, 30, 40, 50, 60]),
        (0, 30, [0, 5, 10, 15, 20, 25, 30]),
        (5, 5, [5, 6]),
    ],
)
def test_marks_are_round_numbers_about_six_apart(low: float, high: float, marks: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(marks)


def test_the_axis_of_equal_returns_is_one_wide() -> None:
    assert return_marks([row(1, 5.0)], [row(1, 5.0)]) == pytest.approx([4.4, 4.6, 4.8, 5.0, 5.2, 5.4, 5.6])
    assert return_marks([row(1, 0.0)], [row(1, 120.0)]) == pytest.approx([0, 20, 40, 60, 80, 100, 120])


def test_each_track_is_a_line_with_its_dot_its_ring_and_its_name() -> None:
    svg = by_track([row(7, 0.0), row(8, 60.0)], [row(7, 120.0)])
    assert svg.startswith('<svg viewBox="0 0 760 76"')
    # From 96 to 732 pixels for 0 to 120.
    assert re.findall(r'<path class="grid" d="M([\d.]+) 8V48"/><text x="([\d.]+)" y="66"', svg) == [
        (f"{x:g}", f"{x:g}") for x in (96, 202, 308, 414, 520, 626, 732)
    ]
    assert re.findall(r'class="dot" cx="([\d.]+)" cy="([\d.]+)" r="4"', svg) == [("414", "18"), ("96", "38")]
    assert '<path class="gap" d="M96 38H732"/><circle class="ring" cx="732" cy="38" r="4"/>' in svg
    assert re.findall(r'<text x="86" y="([\d.]+)" text-anchor="end">(\d)</text>', svg) == [("22", "8"), ("42", "7")]
    assert svg.count('class="ring"') == 1


@pytest.mark.parametrize(("count", "height", "named"), [(45, 936, 45), (75, 936, 75), (76, 936, 0), (300, 1536, 0)])
def test_lines_of_many_tracks_stand_closer_and_without_names(count: int, height: float, named: int) -> None:
    svg = by_track([row(k, float(k)) for k in range(count)], [])
    assert f'viewBox="0 0 760 {height}"' in svg and svg.count('text-anchor="end"') == named


def test_returns_over_time_are_lines_over_seconds() -> None:
    svg = over_time([row(7, 100, [[0, 0], [10, 100]]), row(8, 50, [[0, 0], [5, 50]])], [])
    assert 'viewBox="0 0 760 296"' in svg and 'aria-label="Return over time"' in svg
    marks = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">([^<]+)</text>', svg)
    assert [mark for mark in marks if mark[2] == "middle"] == [
        (f"{96 + 127.2 * k:g}", "286", "middle", f"{2 * k} s") for k in range(6)
    ]
    assert [mark for mark in marks if mark[2] == "end"] == [
        ("86", f"{272 - 52 * k}", "end", f"{20 * k}") for k in range(6)
    ]
    assert re.findall(r'class="grid" d="M96 ([\d.]+)H744"', svg) == [f"{268 - 52 * k}" for k in range(6)]
    lines = re.findall(r'class="(?:thin|mean)" d="M([^"]+)"', svg)
    assert [len(line.split("L")) for line in lines] == [160] * 3
    assert [line.split("L")[0] for line in lines] == ["96 268"] * 3
    assert [line.split("L")[-1] for line in lines] == ["732 8", "732 138", "732 73"], "who has ended keeps its return"
    less = over_time([row(7, 1, [[0, 0], [10, 100]])], [row(7, 1, [[0, 0], [10, 110]])])
    assert re.findall(r'text-anchor="end">([^<]+)<', less) == ["-10", "-8", "-6", "-4", "-2", "0"]
    assert 'class="mean-expert" d="M96 8H744"' in less
    ahead = over_time([row(7, 1, [[0, 0], [10, 120]])], [row(7, 1, [[0, 0], [10, 110]])])
    assert re.findall(r'text-anchor="end">([^<]+)<', ahead) == ["0", "+2", "+4", "+6", "+8", "+10"]


def lengthened(step: NDArray[np.float64], **more: Any) -> Episode:
    """A drive along a line of so many steps, with one picture for all of them."""
    one, same = make_episode(7, 1), np.full(len(step), 3)
    zeros = np.zeros(len(step))
    columns = {name: zeros for name in ("steering", "throttle", "brake", "reward", "speed_mps", "y_m")}
    values = {**columns, "t_s": 0.1 * step, "choice": same, "expert_choice": same, "expert_logits": None}
    return replace(one, frames=list(one.frames) * len(step), **{**values, **more})


def test_a_map_has_a_rule_a_start_and_the_shape_of_the_road() -> None:
    flat = drive(x_m=np.linspace(0, 200, 100), y_m=np.zeros(100))
    svg = drive_map(flat, 2.0, "x")
    assert 'viewBox="0 0 300 190"' in svg
    # 200 m are 272 pixels between the margins of 14.
    assert re.findall(r'class="way" d="M([\d. ]+)L', svg) == ["14.0 95.0"] and "L286.0 95.0" in svg
    assert '<circle class="start" cx="14.0" cy="95.0" r="3.5">' in svg
    assert re.findall(r'class="rule" d="M4 186h([\d.]+)"/><text x="4" y="182" text-anchor="start">(\d+) m', svg) == [
        ("68.0", "50")
    ]
    assert 'r="8"><title>2.0 s</title>' in svg
    small = drive_map(drive(x_m=np.linspace(0, 1, 100), y_m=np.linspace(0, 1, 100)), 2.0, "x")
    assert re.findall(r'class="rule" d="M4 186h([\d.]+)".*>(\d+) m', small) == [("81.0", "10")], "no road is so small"
    step = np.arange(1200.0)
    long = drive_map(lengthened(step, x_m=7.5 * step), 2.0, "x")
    assert len(re.findall(r'class="way" d="M([^"]+)"', long)[0].split("L")) == 400


def test_a_map_of_a_long_drive_shows_every_disagreement_and_of_a_drive_that_agrees_none() -> None:
    step = np.arange(1200.0)
    many = lengthened(step, x_m=step, expert_choice=np.where(step == 601, 1, 3))
    assert re.findall(r'class="other" d="([^"]+)"', drive_map(many, 2.0, "x"))[0].count("M") == 1
    assert 'class="other"' not in drive_map(drive(expert_choice=np.full(100, 3)), 2.0, "x")
    assert 'class="way"' not in drive_map(drive(x_m=np.r_[1.0, np.full(99, np.nan)]), 2.0, "x")
    assert 'class="way"' in drive_map(drive(x_m=np.r_[1.0, 2.0, np.full(98, np.nan)]), 2.0, "x")


def test_who_steers_a_tenth_of_full_lock_otherwise_differs_and_an_unasked_expert_does_not() -> None:
    steered = drive(4, steering=np.zeros(4), expert_steering=np.array([0.05, 0.1, -0.2, 0.0]))
    assert list(differs(steered)) == [False, True, True, False]
    asked = drive(4, choice=np.array([3, 3, -1, 0]), expert_choice=np.array([-1, 1, 1, 0]))
    assert list(differs(asked)) == [False, True, False, False]
    nothing = drive(3, choice=np.array([0, 0, 1]), expert_choice=np.array([0, 1, 0]))
    assert list(differs(nothing)) == [False, True, True], "to do nothing is a choice too"


def test_the_worst_second_of_a_drive_that_was_not_left_is_no_cut_one() -> None:
    late = drive()
    late.reward[-5:] = -9.0
    assert worst_moment(late)[0] == pytest.approx(6.5), "half a second at the end is no second"
    early = drive()
    early.reward[35:45] = -9.0
    assert worst_moment(early)[0] == pytest.approx(4.5), "the first four seconds are not judged"
    assert worst_moment(replace(drive(), t_s=drive().t_s + 3.0))[0] == pytest.approx(9.5), "as seconds of the recording"
    short = drive(20)
    assert worst_moment(short) == (0.0, pytest.approx(20.0))


def test_the_tiles_say_how_sure_the_numbers_are_and_compare_with_the_expert() -> None:
    numbers = {"mean": 899.6, "std": 12.4, "interval95": (880.0, 910.0)}
    share = {"value": 0.987, "interval95": (0.95, 0.999)}
    metrics = {
        "return": numbers, "expert_return": {"mean": 912.0, "std": None, "interval95": None}, "expert_fraction": share,
        "decision_ms_median": 1.04, "decision_ms_p99": 2.26, "expert_agreement": 0.876, "finished_laps": 1,
        "progress": 0.5, "episodes": [{}] * 3,
    }  # fmt: skip
    shown = re.findall(r"<b>(.*?)</b><span>(.*?)<br>(.*?)</span>", tiles(metrics))
    assert shown == [
        ("900 ± 12", "mean return", "95 %: 880 to 910"),
        ("98.7%", "of the expert&#x27;s return", "95 %: 95.0% to 99.9%"),
        ("912", "mean return of the expert", ""),
        ("1 of 3", "drives with a finished lap", ""),
        ("50.0%", "of a lap driven, on average", ""),
        ("1.0 ms", "median decision", "slowest 1 % of an episode: 2.3 ms"),
        ("87.6%", "same action as the expert riding along", ""),
    ]


def test_safety_stops_are_listed_and_an_axis_that_does_not_begin_at_nothing_is_named() -> None:
    rows = [{**row(7, 900.0), "failure": None}, {**row(8, 920.0), "failure": "not <finite>"}]
    assert failures(rows[:1]) == "" and "Safety stops: 1</h2><ul><li>track 8: not &lt;finite&gt;</li>" in failures(rows)
    assert "The axis begins at 900" in axis_note(rows, []) and axis_note([row(7, 0.0), row(8, 9.0)], []) == ""
    assert axis_note([row(7, -5.0), row(8, 9.0)], []) == ""


def test_a_table_has_a_line_for_each_episode_with_its_expert() -> None:
    more = {
        "progress": 0.5,
        "simulated_s": 9.04,
        "mean_speed_mps": 7.25,
        "wheels_off": 0.125,
        "decision_ms_median": 1.0,
    }
    html = table([row(7, 10.04, track="lake") | more], [row(7, 11.0, track="lake")])
    assert re.findall(r"<td.*?>(.*?)</td>", html) == [
        "lake 7", "10.0", "11.0", "50.0%", "9.0", "7.2", "12.5%", "1.0", "lap finished",
    ]  # fmt: skip
    assert re.findall(r'<t[dh] class="word">(.*?)<', html) == ["end", "lap finished"]
    assert "expert" not in table([row(7, 10.0) | more], [])


def test_numbers_of_each_track_stand_beside_those_of_the_expert() -> None:
    numbers = {"autonomy": {"mean": 98.765, "interval95": (97.0, 99.5)}, "collisions": 3}
    drove = {"laps_finished": {"count": 2, "interval95": None}}
    metrics = {"tracks": {"lake": {**numbers, **drove}}, "expert_tracks": {"lake": {**numbers, **drove}}}
    html = tracks(metrics)
    assert re.findall(r"<th(?: [^>]*)?>(.*?)</th>", html) == ["", "lake", "lake, expert"]
    assert re.findall(r"<td.*?>(.*?)</td>", html) == [
        "autonomy", *["98.8 (97 to 99.5)"] * 2, "collisions", "3", "3", "laps finished", "2", "2",
    ]  # fmt: skip
    assert re.findall(r'<td class="word">(.*?)<', html) == ["autonomy", "collisions", "laps finished"]
    assert tracks({}) == ""


def test_an_interval_is_from_its_lower_end_to_its_upper() -> None:
    assert between((1.25, 9.5), ".1f") == "95 %: 1.2 to 9.5"
    assert between(None, ".1f") == ""


def test_a_report_counts_drives_where_each_may_have_several_laps() -> None:
    """Four drives of three laps each that were asked for: laps 1, 1, 1 and 2."""
    about = {"model": {"file": "m.pt"}, "films": {}, "expert_fraction": None, "expert_return": None}
    none = {"mean": 9.0, "std": None, "interval95": None}
    numbers = {"return": none, "decision_ms_median": 1.0, "decision_ms_p99": 2.0, "expert_agreement": None}
    metrics = {**about, **numbers, "finished_laps": 4, "progress": 1.25, "episodes": [{}] * 4}
    assert "m.pt finishes a lap in 4 of 4 drives." in lead(metrics)
    shown = tiles(metrics)
    assert "<b>4 of 4</b><span>drives with a finished lap" in shown and "<b>125.0%</b><span>of a lap driven" in shown


def test_drives_of_one_seed_on_two_tracks_have_experts_of_their_own() -> None:
    rows = [row(7, 10.0, track="lake"), row(7, 20.0, track="mountain")]
    experts = [row(7, 11.0, track="lake"), row(7, 22.0, track="mountain")]
    said = re.findall("<title>(.*?)</title>", by_track(rows, experts))
    assert said == [
        "track mountain 7: return 20.0, lap finished; expert 22.0",
        "track lake 7: return 10.0, lap finished; expert 11.0",
    ]


def test_return_over_time_is_told_against_the_expert_on_the_same_track() -> None:
    own, expert = [[0, 0], [10, 100], [20, 100]], [[0, 0], [10, 150]]
    svg = over_time([row(7, 100, own), row(8, 50, own)], [row(7, 150, expert)])
    assert "less the expert" in svg
    assert svg.count('class="thin"') == 1, "where no expert drove there is nothing to compare"
    (line,) = re.findall(r'class="mean" d="M([^"]+)"', svg)
    heights = [float(point.split()[1]) for point in line.split("L")]
    assert heights[-1] == max(heights) > heights[0], "50 behind at the end, which is down"
    assert over_time([row(7, 1.0)], []) == ""


def test_the_worst_second_is_found_and_the_start_is_no_excuse() -> None:
    at_s, lost = worst_moment(drive())
    assert at_s == pytest.approx(6.5) and lost == pytest.approx(-30)
    slow = drive()
    slow.reward[:10] = -5.0
    assert worst_moment(slow)[0] == pytest.approx(6.5), "every car starts slowly"
    left = drive()
    left.reward[-1] = -100.0
    assert worst_moment(left) == (pytest.approx(9.9), pytest.approx(-100)), "the field was left"
    assert worst_moment(drive(5))[0] >= 0, "shorter than a start"


def test_the_map_shows_where_the_expert_differs_and_the_worst_moment() -> None:
    svg = drive_map(drive(), 6.5, 'a "drive"')
    (way,) = re.findall(r'class="way" d="M([^"]+)"', svg)
    points = [tuple(map(float, point.split())) for point in way.split("L")]
    assert points[0][0] > points[-1][0] and points[0][1] > points[-1][1], "it drives north, and the north is up"
    other = re.findall(r'class="other" d="([^"]+)"', svg)[0].count("M")
    assert 8 <= other <= 12, "a second of ten in ten seconds"
    worst = tuple(float(v) for v in re.findall(r'class="worst" cx="([\d.]+)" cy="([\d.]+)"', svg)[0])
    assert worst == points[65]
    assert 'aria-label="a &quot;drive&quot;"' in svg


def test_a_drive_whose_places_are_not_known_has_no_map() -> None:
    assert drive_map(drive(x_m=None, y_m=None), 1.0, "x") == ""
    assert drive_map(drive(x_m=np.full(100, np.nan)), 1.0, "x") == ""


@pytest.fixture
def evaluation(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A folder with two kept drives, the worst of them the one of the larger seed."""
    writer = begin(tmp_path / DRIVES)
    for seed in (7, 9):
        writer.add(replace(drive(), seed=seed))
    entry = {"episode_return": 12.0, "file": "worst_9.mp4", "seed": 9, "drive": "episode-0000009.parquet"}
    metrics = {"films": {"worst": entry}, "run": {"config": {"model": "my net.pt"}}}
    return tmp_path, metrics


def test_the_worst_moment_is_linked_in_the_film_and_in_a_replay(evaluation: tuple[Path, dict[str, Any]]) -> None:
    folder, metrics = evaluation
    html = films(metrics, folder)
    assert 'href="worst_9.mp4#t=6.5"' in html
    assert 'href="http://127.0.0.1:8090/#run=0&amp;ep=2&amp;t=6.50"' in html, "episodes are counted as replay counts"
    assert "nacdrive replay" in html and "--model &#x27;my net.pt&#x27;" in html
    assert "something else in 10%" in html and 'class="map"' in html


def test_the_worst_moment_has_a_bar_for_what_muting_each_part_changes_and_a_page_to_send(tmp_path: Path) -> None:
    policy = small_policy("nac-steady-choices")
    frames, t_s = smooth_frames(policy, 6)
    begin(tmp_path / DRIVES).add(episode_of(policy, [encode_png(frame) for frame in frames], t_s))
    html = worst(tmp_path, 0, "a drive", "a.mp4", policy)
    episode = Recording.open(tmp_path / DRIVES).load(0)
    at_s = float(re.findall(r"at ([\d.]+) s", html)[0])
    step = int(np.searchsorted(episode.t_s, at_s))
    why = why_of(policy, policy.meter(), recorded_ticks(episode), step, CARRACING.actions)
    assert escape(why["sentence"]) in html and why["bars"]
    shown = re.findall(r"<li( class=decides)?>(.*?)<output>.*?width:([\d.]+)%", html)
    assert [(name, bool(decides)) for decides, name, _ in shown] == [
        (bar["name"], bar["decides"]) for bar in why["bars"][:BARS]
    ]
    assert [float(width) for *_, width in shown] == pytest.approx([100 * bar["change"] for bar in why["bars"][:BARS]])
    assert "as a page to send" not in html, "there is none"
    (tmp_path / "a.html").touch()
    assert f'href="a.html#ep=1&amp;t={at_s:.1f}' in worst(tmp_path, 0, "a drive", "a.mp4", policy)


def test_bars_of_a_wheel_are_longest_at_the_greatest_change() -> None:
    row = {"name": "head 1", "text": "left 0.10 → right 0.30", "change": 0.4, "decides": True}
    assert "width:100%" in bars({"bars": [row]}) and "width:50%" in bars({"bars": [{**row, "change": 0.05}]})
    assert "<li" not in bars({"bars": []})


@pytest.mark.parametrize("drive", [None, "episode-0000099.parquet", "../../secret.parquet"])
def test_a_drive_that_was_not_kept_has_its_film_and_no_link(
    evaluation: tuple[Path, dict[str, Any]], drive: str | None
) -> None:
    folder, metrics = evaluation
    metrics["films"]["worst"]["drive"] = drive
    html = films(metrics, folder)
    assert "worst_9.mp4" in html and "worst second" not in html and "nacdrive replay" not in html


@pytest.mark.nightly
def test_the_link_of_the_report_leads_to_that_moment_in_the_replay(
    evaluation: tuple[Path, dict[str, Any]], open_page: Any
) -> None:
    from nacdrive.cli.replay import ReplayConfig, open_run
    from nacdrive.web.episode_cache import EpisodeCache
    from nacdrive.web.replay import ReplayServer
    from tests.web.test_page import text, until

    folder, metrics = evaluation
    (folder / "evaluation.json").write_text("{}")
    fragment = re.findall(r'href="http://127.0.0.1:8090/(#[^"]+)"', films(metrics, folder))[0].replace("&amp;", "&")
    with ReplayServer(EpisodeCache([open_run(folder, ReplayConfig(data=(folder,)))[0]]), port=0) as server:
        page = open_page(server.url + fragment)
        until(page, "document.getElementById('time').textContent === '6.5 s'")
        assert (text(page, "#seed"), text(page, "#state")) == ("9", "Paused")
