"""``report.html``: axes that show differences, a map per filmed drive, links to its worst moment."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nacdrive.datasets.episode import Episode
from nacdrive.datasets.images import encode_png
from nacdrive.datasets.manifest import DRIVES
from nacdrive.datasets.recording import Recording
from nacdrive.envs.registry import CARRACING
from nacdrive.viz.recorded import recorded_ticks
from nacdrive.viz.report import BARS, bars, between, films, lead, tiles, worst
from nacdrive.viz.report_charts import by_track, drive_map, over_time, return_marks, ticks, worst_moment
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
