"""*Send this lap*: the page of a drive that goes on, or of a recording, is that of ``nacdrive share``."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from flask import Flask, Response

from nacdrive.common.errors import UserError
from nacdrive.common.paths import shipped
from nacdrive.extras.export import card as lap_card
from nacdrive.extras.export.card import LapCard, LapMemory
from nacdrive.web import LiveServer
from tests.helpers.ticks import CHOICES, make_tick
from tests.web.test_page import text, until

MODEL = shipped("agents") / "carracing" / "nac_steady.pt"


@pytest.fixture
def memory() -> LapMemory:
    return LapMemory("carracing", "nac_steady", "png")


@pytest.fixture
def drive(memory: LapMemory) -> Iterator[LiveServer]:
    with LiveServer(port=0, choices=CHOICES, cards=[LapCard({0: (MODEL, memory.episode)}, memory=memory)]) as server:
        yield server


def publish(server: LiveServer, steps: int, **more: Any) -> None:
    for step in range(steps):
        server.publish(make_tick(step, circuit=False, saliency=False, **more))


def record_of(page: str) -> Any:
    (found,) = re.findall(r'<script type="application/json" id="record">(.*?)</script>', page, re.DOTALL)
    return json.loads(found)


def test_a_lap_begins_with_its_episode_without_decisions_that_were_held_and_within_its_bytes(
    memory: LapMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="has only begun"):
        memory.episode()
    for step in range(4):
        memory.add(make_tick(step), 1 + step)
    for step in range(6):
        memory.add(make_tick(step, episode=1, held=step == 3, x_m=float(step), y_m=0.0), 5 + step)
    episode = memory.episode()
    assert (
        len(episode) == 5 and episode.seed == 701 and episode.x_m is not None and list(episode.x_m) == [0, 1, 2, 4, 5]
    )
    monkeypatch.setattr(lap_card, "MOST_BYTES", 3 * make_tick(0).frame.nbytes)
    memory.add(make_tick(6, episode=1), 11)
    assert len(memory.episode()) == 3


def test_the_lap_of_a_moment_that_is_held_is_sent_though_the_drive_goes_on(
    memory: LapMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    seq = 0
    for episode, steps, human in ((0, 3, False), (0, 4, True), (1, 5, False)):  # the second is the first, started over
        for step in range(steps):
            seq += 1
            memory.add(make_tick(step, episode=episode, human=human and step == 2), seq)
    laps = [memory.episode(seq) for seq in (2, 3, 4, 7, 8, 12, 0)]
    assert [len(lap) for lap in laps] == [3, 3, 4, 4, 5, 5, 5]
    assert [lap.driver for lap in laps[1:3]] == ["nac_steady", "a person and nac_steady"]
    monkeypatch.setattr(lap_card, "MOST_BYTES", 4 * make_tick(0).frame.nbytes)
    memory.add(make_tick(5, episode=1), 13)
    with pytest.raises(UserError, match="not kept any more"):
        memory.episode(7)


def test_the_page_of_the_lap_is_fetched_and_what_is_no_lap_is_one_sentence(drive: LiveServer) -> None:
    address = drive.url.rstrip("/") + "/lap.html"
    with pytest.raises(urllib.error.HTTPError, match="409") as refused:
        urllib.request.urlopen(address, timeout=120)
    assert "has only begun" in refused.value.read().decode()
    publish(drive, 5)
    with urllib.request.urlopen(address, timeout=120) as answer:
        assert answer.headers["Content-Disposition"] == "attachment; filename=lap.html"
        page = answer.read().decode()
    assert len(record_of(page)["t_s"]) == 5 and record_of(page)["seed"] == 700
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{address}?run=7", timeout=120)


def test_one_lap_is_written_at_a_time(memory: LapMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, written = Event(), Event()

    def slowly(*_: Any) -> str:
        inside.set()
        written.wait(120)
        return "page"

    monkeypatch.setattr(lap_card, "lap_page", slowly)
    memory.add(make_tick(0), 1)
    memory.add(make_tick(1), 2)
    app = Flask(__name__)
    app.register_error_handler(UserError, lambda error: Response(str(error), 409))
    LapCard({0: (MODEL, memory.episode)}, memory=memory).add_routes(app)
    first: list[int] = []
    thread = Thread(target=lambda: first.append(app.test_client().get("/lap.html").status_code))
    thread.start()
    assert inside.wait(120)
    second = app.test_client().get("/lap.html")
    assert second.status_code == 409 and "another lap is being written" in second.text
    written.set()
    thread.join()
    assert first == [200] and app.test_client().get("/lap.html").status_code == 200


@pytest.mark.nightly
def test_a_button_saves_the_lap_that_is_on_the_screen(
    open_page: Callable[..., Any], drive: LiveServer, tmp_path: Path
) -> None:
    page = open_page(drive.url)
    publish(drive, 20)
    until(page, "document.querySelector('#history button') !== null")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Send this lap").click()
    saved.value.save_as(tmp_path / "lap.html")
    until(page, "document.getElementById('lap-sent').textContent.startsWith('lap.html is saved')")
    assert page.faults == []
    lap = open_page((tmp_path / "lap.html").as_uri())
    for _ in range(600):
        if lap.evaluate("player.lap.plain.every((d) => d !== null)"):
            break
        lap.wait_for_timeout(50)
    assert lap.evaluate("player.lap.length") == 20 and text(lap, "#why .reason") and lap.faults == []
