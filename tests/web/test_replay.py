"""Recordings on the page: the server's answers, and the player in a real Chromium."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.images import encode_png
from nacdrive.viz.recorded import recorded_ticks
from nacdrive.web import replay as replay_module
from nacdrive.web.episode_cache import EpisodeCache, EpisodeLabel, ReplaySource
from nacdrive.web.protocol import encode_frame
from nacdrive.web.replay import ReplayServer, film
from nacdrive.web.stream import Lane
from tests.helpers.ports import lasting_port
from tests.helpers.ticks import CHOICES, CIRCUIT, STEP_S, WINDOW, make_tick, road
from tests.web.test_page import shows, text, until

STEPS = 60


def run_of(name: str, shift: int = 0, circuit: bool = True) -> ReplaySource:
    def load(number: int) -> list[Any]:
        ticks = [make_tick(step + shift, episode=number, circuit=circuit) for step in range(STEPS)]
        return [make_tick(i, episode=number, action=tick.action, neurons=tick.neurons) for i, tick in enumerate(ticks)]

    labels = [EpisodeLabel(700 + i, STEPS, 60.0, "ppo") for i in range(2)]
    return ReplaySource(name, labels, load, CHOICES, CIRCUIT if circuit else None)


@pytest.fixture
def replay() -> Iterator[ReplayServer]:
    with ReplayServer(EpisodeCache([run_of("steady"), run_of("exact", shift=20)]), port=0) as server:
        yield server


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=120) as answer:
        return bytes(answer.read())


def make_episode(steps: int = 12) -> Episode:
    choice = np.arange(steps) % 5
    return Episode(
        frames=[encode_png(road(step)) for step in range(steps)],
        t_s=np.arange(steps) * 0.08,
        choice=choice,
        steering=np.array([0, 1, -1, 0, 0])[choice],
        throttle=np.array([0, 0, 0, 1, 0])[choice],
        brake=np.array([0, 0, 0, 0, 0.8])[choice],
        reward=np.full(steps, 2.0),
        speed_mps=np.linspace(0, 30, steps),
        expert_choice=np.full(steps, 2),
        expert_logits=np.tile(np.array([0, 0, 3, 0, 0], dtype=np.float32), (steps, 1)),
        seed=5,
        source="carracing",
        driver="nac_steady",
        episode_return=2.0 * steps,
    )


def test_recorded_ticks_tell_what_was_driven_and_what_the_expert_would_have_done() -> None:
    ticks = recorded_ticks(make_episode())
    assert np.array_equal(ticks[3].frame, road(3))
    assert (ticks[1].action.steering, ticks[1].action.choice, ticks[1].action.logits) == (1.0, 1, None)
    assert ticks[1].expert is not None and (ticks[1].expert.steering, ticks[1].expert.choice) == (-1.0, 2)
    assert ticks[2].action.logits is None, "how sure a policy was nobody kept, though the expert agreed"
    itself = recorded_ticks(replace(make_episode(), driver="ppo"), teacher="ppo")
    assert itself[2].action.logits is not None and itself[1].action.logits is None
    assert recorded_ticks(make_episode(), teacher="ppo")[2].action.logits is None
    assert ticks[-1].episode_return == 24.0 and ticks[-1].done
    assert [tick.budget_ms for tick in ticks] == pytest.approx([80.0] * 12)


def test_a_replayed_correction_shows_the_person_and_the_policy_beside() -> None:
    beside = {"steering": [0.0] * 11 + [None], "throttle": [1.0] * 12, "brake": [0.0] * 12, "choice": [3] * 12}
    ticks = recorded_ticks(replace(make_episode(), driver="keyboard", meta={"policy": beside}))
    assert all(tick.human and tick.expert is None for tick in ticks)
    assert ticks[1].action.choice == 1 and ticks[1].policy is not None and ticks[1].policy.choice == 3
    assert ticks[-1].policy is None, "it had failed"


def test_a_continuous_teacher_is_shown_beside_the_steering() -> None:
    label = np.linspace(-1, 1, 12, dtype=np.float32)
    unknown = {"choice": np.full(12, -1), "expert_choice": np.full(12, -1), "expert_logits": None}
    ticks = recorded_ticks(replace(make_episode(), source="udacity", expert_steering=label, **unknown))
    assert [tick.expert.steering for tick in ticks if tick.expert] == pytest.approx(label.tolist())
    assert ticks[0].action.choice is None


def test_unknown_decision_times_are_nothing_on_the_page() -> None:
    lane = Lane()
    lane.add(recorded_ticks(make_episode())[0])
    assert json.dumps(lane.rows[0], allow_nan=False)


def test_the_listing_names_runs_and_episodes(replay: ReplayServer) -> None:
    listing = json.loads(get(replay.url + "replay/runs"))
    assert [run["name"] for run in listing["runs"]] == ["steady", "exact"]
    row = {"seed": 701, "steps": STEPS, "episode_return": 60.0, "driver": "ppo", "expert_return": None}
    assert listing["runs"][0]["episodes"][1] == row


@pytest.mark.parametrize("path", ["2/0/rows", "0/2/rows", "0/0/nothing", "-1/0/rows", "0/9/ticks", "0/9/video.mp4"])
def test_what_is_not_there_is_404(replay: ReplayServer, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(f"{replay.url}replay/{path}")


def test_a_chunk_past_the_end_is_empty_and_a_huge_one_is_cut(replay: ReplayServer) -> None:
    assert get(replay.url + "replay/0/0/ticks?from=999&count=5") == b""
    assert get(replay.url + "replay/0/0/ticks?count=-1") == b""
    assert len(get(replay.url + "replay/0/0/ticks?from=-5&count=100000")) > 1000


@pytest.mark.parametrize("first", [0, 2])
def test_the_last_frame_stays_where_a_decision_was_made_before_the_next_one_came(first: int) -> None:
    black = np.zeros((96, 96, 3), np.uint8)
    ticks = [make_tick(k, **({"between_frames": True, "frame": black} if k in (2, 3) else {})) for k in range(5)]
    run = ReplaySource("x", [EpisodeLabel(0, 5, 0.0, "ppo")], lambda i: ticks)
    with ReplayServer(EpisodeCache([run]), port=0) as server:
        body = get(f"{server.url}replay/0/0/ticks?from={first}")
        body += get(f"{server.url}replay/0/0/ticks?from={first + 1}&count=4")
    shown = [encode_frame(road(k))[1] for k in (0, 1, 1, 1, 4)]
    assert [body.count(image) for image in (shown[1], encode_frame(black)[1])] == [3 if first == 0 else 2, 0]
    assert body.count(shown[4]) == 1
    with ReplayServer(EpisodeCache([replace(run, policy="onlooker")]), port=0) as server:
        body = get(f"{server.url}replay/0/0/ticks?from={first}&count=5")
    seen = [body.count(image) for image in (shown[1], encode_frame(black)[1])]
    assert seen == [1 - first // 2, 2], "who asks what a policy sees there sees that"


def test_few_episodes_are_kept_in_memory() -> None:
    loads: list[int] = []
    run = ReplaySource(
        "x", [EpisodeLabel(i, 1, 0.0, "ppo") for i in range(20)], lambda i: loads.append(i) or [make_tick(0)]
    )  # type: ignore[func-returns-value]
    cache = EpisodeCache([run])
    for i in [*range(20), 19, 0]:
        cache.ticks(0, i)
    assert loads == [*range(20), 0]


def test_the_film_that_is_sent_is_no_open_file(replay: ReplayServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows lets no folder go that holds an open file."""
    sent: list[Any] = []
    monkeypatch.setattr(replay_module, "film", lambda ticks, target, *_: target.write_bytes(b"film"))
    monkeypatch.setattr(replay_module, "send_file", lambda file, *_, **__: sent.append(file) or "sent")
    assert get(replay.url + "replay/0/0/video.mp4") == b"sent"
    assert sent[0].read() == b"film" and not hasattr(sent[0], "name")


def test_films_are_made_one_at_a_time(replay: ReplayServer, monkeypatch: pytest.MonkeyPatch) -> None:
    under_way, most = [], []

    def make(ticks: Any, target: Path, *_: Any) -> None:
        under_way.append(1)
        most.append(len(under_way))
        time.sleep(0.2)
        target.write_bytes(b"film")
        under_way.pop()

    monkeypatch.setattr(replay_module, "film", make)
    with ThreadPoolExecutor(6) as viewers:
        films = list(viewers.map(get, [replay.url + "replay/0/0/video.mp4"] * 6))
    assert films == [b"film"] * 6 and max(most) == 1


def test_the_film_is_an_mp4(tmp_path: Path) -> None:
    film([make_tick(step) for step in range(5)], tmp_path / "a.mp4", "steady")
    assert (tmp_path / "a.mp4").read_bytes()[4:8] == b"ftyp"


def test_the_player_plays_pauses_seeks_and_steps(replay: ReplayServer, open_page: Callable[..., Any]) -> None:
    page = open_page(replay.url)
    until(page, "document.getElementById('state').textContent.startsWith('Replay')")
    until(page, "Number(document.getElementById('step').textContent) > 2")
    page.keyboard.press("Space")
    until(page, "document.getElementById('state').textContent === 'Paused'")
    page.keyboard.press("End")
    shows(page, make_tick(STEPS - 1))
    page.keyboard.press(",")
    shows(page, make_tick(STEPS - 2))
    page.keyboard.press("Home")
    shows(page, make_tick(0))
    for _ in range(3):
        page.keyboard.press(".")
    tick = make_tick(3)
    shows(page, tick)
    assert text(page, "#steering output") == f"right {tick.action.steering:.2f}"
    assert text(page, "#speed") == f"{tick.speed_mps:.1f}"
    page.fill("#player input[type=range]", "1.5")
    shows(page, make_tick(30))
    assert page.get_attribute("#player input[type=range]", "aria-valuetext") == "1.5 of 3.0 s"
    with page.expect_event("load"):
        page.evaluate("setTimeout(() => { location.hash = '#run=1&ep=2&t=0.50'; })")
    until(page, "document.getElementById('seed')?.textContent === '701'")
    shows(page, make_tick(10))
    assert text(page, "#title").endswith("exact"), "a link that is put into the address of an open page"
    assert page.faults == []


@pytest.mark.parametrize("late", [False, True])
def test_the_film_is_of_the_very_frames_that_were_remembered(open_page: Callable[..., Any], late: bool) -> None:
    # The number of the frame that is seen at each decision: up to two behind, some lost, none overtakes another.
    seen = np.maximum.accumulate([max(0, step - step * 7 % 5 % 3 * late) for step in range(STEPS)])

    def grey(number: int) -> int:
        return 20 + 3 * int(number)

    def tick(step: int) -> Any:
        window = [seen[0]] * WINDOW + sorted(set(seen[: step + 1]))
        neurons = make_tick(step).neurons | {"frame_t_s": np.float32(np.array(window[-WINDOW:]) * STEP_S)}
        more = {"frame_t_s": seen[step] * STEP_S} if late else {}
        return make_tick(step, frame=np.full((96, 96, 3), grey(seen[step]), np.uint8), neurons=neurons, **more)

    source = ReplaySource(
        "late", [EpisodeLabel(700, STEPS, 60.0, "x")], lambda _: list(map(tick, range(STEPS))), CHOICES, CIRCUIT
    )
    with ReplayServer(EpisodeCache([source]), port=0) as server:
        page = open_page(f"{server.url}#run=0&ep=1&t={45 * STEP_S:.2f}")
        page.click("#show-neurons")
        expected = [grey(number) for number in sorted(set(seen[:46]))[-WINDOW:]]
        read = """(count) => {
          const canvas = document.getElementById('attention');
          const unit = parseFloat(getComputedStyle(document.documentElement).fontSize);
          const scale = canvas.width / canvas.getBoundingClientRect().width;
          const [left, y] = [4.4 * unit * scale, 2.6 * unit * scale];
          const x = (key) => left + ((key + 0.5) * (canvas.width - left)) / count;
          const grey = (key) => canvas.getContext('2d').getImageData(x(key), y, 1, 1).data[0];
          return Array.from({length: count}, (_, key) => grey(key));
        }"""
        deadline = time.monotonic() + 120
        while page.evaluate(read, WINDOW) != expected:
            assert time.monotonic() < deadline, (page.evaluate(read, WINDOW), expected)
            page.wait_for_timeout(100)
        assert page.faults == []


@pytest.mark.nightly
def test_at_eight_times_the_speed_the_episode_ends_eight_times_sooner(
    replay: ReplayServer, open_page: Callable[..., Any]
) -> None:
    page = open_page(replay.url)
    until(page, "document.getElementById('player').querySelectorAll('option').length > 5")
    page.select_option("#player [aria-label='Speed of the replay']", "8")
    until(page, f"document.getElementById('step').textContent === '{STEPS - 1}'")
    until(page, "document.getElementById('state').textContent === 'Paused'")


@pytest.mark.nightly
def test_two_runs_stand_on_one_axis(replay: ReplayServer, open_page: Callable[..., Any]) -> None:
    page = open_page(replay.url)
    until(page, "Number(document.getElementById('step').textContent) > 0")
    page.keyboard.press("Space")
    page.keyboard.press("Home")
    before = page.evaluate("document.getElementById('strips').toDataURL()")
    page.select_option("#player [aria-label='Episode to compare with']", "1/0")
    page.wait_for_selector("#legend-b")
    assert "exact" in text(page, "#legend-b-name")
    until(page, "(was) => document.getElementById('strips').toDataURL() !== was", before)
    assert page.faults == []


@pytest.mark.nightly
def test_the_view_is_saved_as_png_and_the_episode_as_mp4(
    replay: ReplayServer, open_page: Callable[..., Any], tmp_path: Path
) -> None:
    page = open_page(replay.url)
    until(page, "Number(document.getElementById('step').textContent) > 0")
    for button, magic in (("#png", b"\x89PNG"), ("[aria-label='Save this episode as mp4']", b"ftyp")):
        with page.expect_download(timeout=120_000) as saved:
            page.click(button)
        saved.value.save_as(tmp_path / "saved")
        assert magic in (tmp_path / "saved").read_bytes()[:12]
    assert page.faults == []


def test_the_command_refuses_what_it_cannot_show(tmp_path: Path) -> None:
    from nacdrive.cli.replay import ReplayConfig, run

    with pytest.raises(UserError):
        run(ReplayConfig(data=(tmp_path / "nothing",)))
    with pytest.raises(UserError, match="--saliency-every"):
        ReplayConfig(data=(tmp_path,), saliency_every=-1)
    with pytest.raises(UserError, match="name a recording"):
        ReplayConfig(data=())


def commented_run() -> ReplaySource:
    labels = [EpisodeLabel(700, STEPS, 222.9, "ppo")]
    load = run_of("x").load
    return ReplaySource("sample", labels, load, CHOICES, CIRCUIT, policy="nac_steady", expert="ppo")


@pytest.mark.nightly
def test_a_policy_that_only_looks_on_is_not_credited_with_the_drive(open_page: Callable[..., Any]) -> None:
    with ReplayServer(EpisodeCache([commented_run()]), port=0) as server:
        page = open_page(server.url)
        until(page, "Number(document.getElementById('step').textContent) > 0")
        assert "nac_steady looks on, ppo drove" in text(page, "#title")
        assert (text(page, "#speed-name"), text(page, "#return-name")) == ("speed of ppo m/s", "return of ppo")
        assert text(page, "#does-note") == "what it would decide; ppo drove"
        assert text(page, "#legend-a") == "nac_steady (looks on)"
        assert text(page, "#legend-driver-name") == "ppo (drove)" and page.is_visible("#legend-driver")
        assert page.faults == []


def test_a_film_says_who_drove(tmp_path: Path) -> None:
    from nacdrive.viz.overlay import FrameOverlay

    caption = commented_run().caption(0)
    assert caption == "ppo drove; nac_steady only looks on"
    assert run_of("x").caption(0) == ""
    plain, named = (FrameOverlay("sample", words).paint(make_tick(3)) for words in ("", caption))
    assert plain != named


@pytest.mark.nightly
def test_an_expert_is_not_said_to_agree_with_itself(open_page: Callable[..., Any]) -> None:
    with ReplayServer(EpisodeCache([replace(run_of("sample", circuit=False), expert="ppo")]), port=0) as server:
        page = open_page(server.url)
        until(page, "Number(document.getElementById('step').textContent) > 0")
        assert text(page, "#agree") == "the expert itself drives"
        assert "ppo drove" in text(page, "#title")


def test_an_episode_that_cannot_be_read_says_why_and_a_late_answer_does_not_win(open_page: Callable[..., Any]) -> None:
    sentence, ready = "episode-701.parquet is missing: bring it back.", threading.Event()

    def load(number: int) -> list[Any]:
        if number == 1:
            raise UserError(sentence)
        assert number == 0 or ready.wait(120)
        return [make_tick(step, circuit=False, saliency=False) for step in range(200)]

    run = ReplaySource("x", [EpisodeLabel(700 + i, 200, 1.0, "ppo") for i in range(3)], load, CHOICES)
    with ReplayServer(EpisodeCache([run]), port=0) as server:
        page = open_page(server.url)
        until(page, "Number(document.getElementById('step').textContent) > 0")
        page.select_option("#player [aria-label='Episode']", "0/1")
        until(page, "(said) => document.getElementById('curtain').textContent === said", sentence)
        assert page.input_value("#player [aria-label='Episode']") == "0/0" and text(page, "#state") == "Cannot be read"
        page.keyboard.press("Space")
        page.wait_for_selector("#curtain", state="hidden")
        page.keyboard.press("a")
        page.click("text=All episodes of this run")
        until(page, "(said) => document.getElementById('statistics-note').textContent === said", sentence)
        assert page.is_enabled("text=All episodes of this run")
        page.keyboard.press("Escape")
        others = "#player [aria-label='Episode to compare with']"
        with page.expect_response("**/replay/0/2/rows"):
            page.select_option(others, "0/2")
            page.select_option(others, "0/0")
            page.select_option(others, "")
            ready.set()
        page.wait_for_timeout(150)
        assert not page.is_visible("#legend-b")
        assert [fault for fault in page.faults if "409" not in fault] == []


def test_a_server_that_died_stops_the_replay_and_is_waited_for(open_page: Callable[..., Any]) -> None:
    labels = [EpisodeLabel(700 + i, 400, 1.0, "ppo") for i in range(2)]
    long = ReplaySource("long", labels, lambda _: [make_tick(i) for i in range(400)])
    server = ReplayServer(EpisodeCache([long]), port=lasting_port())
    page = open_page(server.start())
    until(page, "Number(document.getElementById('step').textContent) > 0")
    server.stop()
    page.keyboard.press("End")
    until(page, "document.getElementById('state').dataset.state === 'lost'")
    faults = [fault for fault in page.faults if "net::ERR_CONNECTION_" not in fault]
    assert faults == [], "no promise is left alone with its failure"
    with ReplayServer(EpisodeCache([long]), port=server.port):
        until(page, "document.getElementById('step').textContent === '399'")
        until(page, "document.getElementById('state').textContent === 'Paused'")
        assert page.get_attribute("#state", "data-state") == "paused"
    page.fill("#player input[type=range]", "10")
    until(page, "document.getElementById('state').dataset.state === 'lost'")
    page.select_option("#player [aria-label='Episode']", "0/1")
    with ReplayServer(EpisodeCache([long]), port=server.port):
        until(page, "document.getElementById('state').dataset.state === 'replay'")
        assert page.input_value("#player [aria-label='Episode']") == "0/1" and not page.is_visible("#curtain")
