"""The stream without a browser: what is sent, to whom, and that nobody slows the loop."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
from simple_websocket import Client, ConnectionClosed

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.web import DriveResult, LiveServer
from nacdrive.web.protocol import pack
from nacdrive.web.stream import COLUMNS, HISTORY_ROWS, Lane, Seen, StreamState, columns, sureness
from nacdrive.web.stream_socket import Encoder
from tests.helpers.ports import lasting_port
from tests.helpers.ticks import CHOICES, make_tick
from tests.helpers.web_clients import WholeClient


def join(server: LiveServer) -> Client:
    return WholeClient(server.url.replace("http", "ws") + "stream", headers={"Origin": "http://127.0.0.1"})


def head(message: bytes) -> dict[str, Any]:
    (length,) = struct.unpack_from("<I", message)
    return json.loads(message[4 : 4 + length])


def rows_until(viewer: Client, step: int, answer: bool = True) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    while not rows or rows[-1]["step"] < step:
        message = viewer.receive(5)
        assert message is not None
        if isinstance(message, bytes):
            rows += [dict(zip(COLUMNS, row, strict=True)) for row in head(message)["lanes"][0]["rows"]]
            if answer:
                viewer.send("a")
    return rows


def test_every_tick_reaches_a_viewer_in_numbers_even_those_whose_frames_are_skipped(server: LiveServer) -> None:
    viewer = join(server)
    server.publish(make_tick(0, circuit=False, saliency=False))
    rows = rows_until(viewer, 0)
    for step in range(1, 200):
        server.publish(make_tick(step, circuit=False, saliency=False))
    rows += rows_until(viewer, 199)
    assert [row["step"] for row in rows] == list(range(200))
    assert rows[7]["steering"] == make_tick(7).action.steering


def test_a_viewer_that_comes_late_is_sent_the_newest_and_may_ask_for_the_last_half_minute(server: LiveServer) -> None:
    for step in range(100):
        server.publish(make_tick(step, circuit=False, events=("off road",) if step == 3 else ()))
    assert [row["step"] for row in rows_until(join(server), 99)] == [99]
    past = json.loads(urlopen(server.url + "past").read())
    assert [row[COLUMNS.index("step")] for row in past["rows"]] == list(range(100))
    assert [event["text"] for event in past["events"]] == ["off road"]


def test_what_came_with_the_first_decision_is_sent_to_who_comes_right_after_it(server: LiveServer) -> None:
    # Of one decision there is no past that a page would ask for.
    server.publish(make_tick(0, circuit=False))
    viewer = join(server)
    while not isinstance(message := viewer.receive(5), bytes):
        assert message is not None
    assert [event["text"] for event in head(message)["lanes"][0]["events"]] == ["started"]


def test_a_frozen_viewer_gets_two_messages_and_no_more(server: LiveServer) -> None:
    frozen, brisk = join(server), join(server)
    for step in range(60):
        server.publish(make_tick(step))
        time.sleep(0.005)
    rows_until(brisk, 59)
    got = []
    while (message := frozen.receive(0.3)) is not None:
        got += [message] if isinstance(message, bytes) else []
    assert len(got) == 2


def test_five_viewers_get_every_frame_at_twenty_a_second(server: LiveServer) -> None:
    frames: dict[int, set[int]] = {number: set() for number in range(5)}

    def watch(number: int, viewer: Client) -> None:
        while (message := viewer.receive(3)) is not None:
            if isinstance(message, bytes):
                said = head(message)
                shown = max((tick["seq"] for tick in said["ticks"]), default=0)
                frames[number].add(shown)
                viewer.send("a")
                if shown == 40:
                    return

    watchers = [threading.Thread(target=watch, args=(number, join(server))) for number in range(5)]
    for watcher in watchers:
        watcher.start()
    for step in range(40):
        server.publish(make_tick(step))
        time.sleep(0.05)
    for watcher in watchers:
        watcher.join(120)
    assert min(map(len, frames.values())) >= 36


def test_a_message_is_made_once_for_all_viewers_that_have_seen_the_same() -> None:
    state, encoder = StreamState(), Encoder()
    state.publish(make_tick(0))
    news, later = (state.wait_for_new(Seen(), 0) for _ in range(2))
    assert news is not None and later is not None
    assert encoder.message(Seen(), news) is encoder.message(Seen(), later)
    state.publish(make_tick(1))
    newer = state.wait_for_new(news.seen, 0)
    assert newer is not None and encoder.message(news.seen, newer) != encoder.message(Seen(), news)


def test_publishing_takes_microseconds_with_a_frozen_viewer(server: LiveServer) -> None:
    frozen = join(server)
    ticks = [make_tick(step) for step in range(100)]
    spent = []
    for tick in ticks:
        began = time.perf_counter()
        server.publish(tick)
        spent.append(time.perf_counter() - began)
    assert np.median(spent) < 200e-6
    assert frozen.connected


def test_a_frozen_viewer_that_wakes_up_sees_the_newest_frame(server: LiveServer) -> None:
    viewer = join(server)
    server.publish(make_tick(0))
    rows_until(viewer, 0, answer=False)
    for step in range(1, 50):
        server.publish(make_tick(step))
    while (message := viewer.receive(0.3)) is not None:
        last = message
    for _ in range(2):
        viewer.send("a")
    while (message := viewer.receive(0.3)) is not None:
        last = message
    assert isinstance(last, bytes)
    assert head(last)["ticks"][0]["seq"] == 50


def test_the_axis_runs_on_over_the_episodes() -> None:
    state = StreamState()
    for episode in range(2):
        for step in range(10):
            state.publish(make_tick(step, episode=episode, circuit=False))
    seen = state.wait_for_new(Seen(), 0)
    assert seen is not None
    clock = [row[COLUMNS.index("clock_s")] for row in seen.lanes[0].rows]
    assert np.allclose(np.diff(clock), 0.05)


def test_history_stays_bounded() -> None:
    state = StreamState()
    tick = make_tick(0, circuit=False, events=("off road",))
    for _ in range(HISTORY_ROWS + 500):
        state.publish(tick)
    seen = state.wait_for_new(Seen(), 0)
    assert seen is not None
    (lane,) = seen.lanes
    assert HISTORY_ROWS * 3 // 4 <= len(lane.rows) <= HISTORY_ROWS
    assert lane.rows[0][COLUMNS.index("seq")] == 1, "the beginning of the road stays"
    assert len(lane.events) <= 300
    seqs = [row[COLUMNS.index("seq")] for row in state._lanes[0].since(1000, 0).rows]
    assert seqs[0] > 1000 and seqs == sorted(set(seqs)), "nothing comes twice"


def test_numbers_that_are_not_finite_become_nothing(server: LiveServer) -> None:
    viewer = join(server)
    server.publish(make_tick(0, speed_mps=float("nan"), reward=float("inf")))
    (row,) = rows_until(viewer, 0)
    assert row["speed_mps"] is None
    assert row["reward"] is None


def test_large_neuron_arrays_travel_as_bytes_between_their_bounds() -> None:
    values = np.linspace(-3, 5, 5000, dtype=np.float32).reshape(10, 500)
    packed = pack(make_tick(0, neurons={"inter": values}), 1)
    (part,) = [part for part in packed.parts if part["name"] == "neurons.inter"]
    assert (part["kind"], part["lo"], part["hi"], part["shape"]) == ("u8", -3.0, 5.0, [10, 500])


def test_missed_ticks_are_counted_for_all_viewers_alike(server: LiveServer) -> None:
    for step in range(5):
        server.publish(make_tick(step, circuit=False, decision_ms=80.0 if step in (0, 1, 3) else 5.0))
    # The last one of a simulator that has gone was in time: no picture came after it.
    server.publish(make_tick(5, circuit=False, decision_ms=5.0, budget_ms=None, done=True))
    # The first decision of a drive waits for what is loaded with it.
    assert rows_until(join(server), 5)[-1]["missed"] == 2


def test_hello_tells_the_names_of_the_choices() -> None:
    with LiveServer(port=0, title="x", choices=CHOICES) as server:
        hello = join(server).receive(2)
        assert isinstance(hello, str)
        assert json.loads(hello)["choices"] == list(CHOICES)


def test_a_port_in_use_is_one_sentence_that_names_the_option() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UserError, match=r"port \d+ is in use.*--page-port"):
            LiveServer(port=taken.getsockname()[1]).start()


def test_a_foreign_address_is_one_sentence() -> None:
    with pytest.raises(UserError, match="--host"):
        LiveServer(host="192.0.2.1", port=0).start()


def test_a_server_can_be_started_again_on_its_port() -> None:
    first = LiveServer(port=lasting_port())
    first.start()
    viewer = join(first)
    first.stop()
    assert viewer.receive(2) is not None
    second = LiveServer(port=first.port)
    second.start()
    second.stop()


def test_a_held_decision_gives_numbers_but_neither_a_frame_nor_a_decision_time(server: LiveServer) -> None:
    viewer = join(server)
    server.publish(make_tick(0, decision_ms=4.5))
    server.publish(make_tick(1, decision_ms=0.0, held=True, frame=np.zeros((96, 96, 3), np.uint8)))
    rows: list[dict[str, Any]] = []
    shown = []
    while len(rows) < 2:
        message = viewer.receive(5)
        if isinstance(message, bytes):
            said = head(message)
            rows += [dict(zip(COLUMNS, row, strict=True)) for row in said["lanes"][0]["rows"]]
            shown += [dict(zip(COLUMNS, tick["row"], strict=True))["step"] for tick in said["ticks"]]
            viewer.send("a")
    assert [row["decision_ms"] for row in rows] == [4.5, None]
    assert [row["held"] for row in rows] == [0, 1]
    assert shown == [0]


def test_the_last_frame_stays_on_the_page_where_a_decision_was_made_before_the_next_one_came() -> None:
    lane = Lane()
    lane.add(make_tick(0))
    lane.add(make_tick(1, frame=np.zeros((96, 96, 3), np.uint8), between_frames=True))
    assert len(lane.rows) == 2 and lane.shown is not None and lane.shown.tick.step == 0
    lane.add(make_tick(2))
    assert lane.shown.tick.step == 2


@pytest.mark.parametrize(("shape", "kind"), [((96, 96, 3), "png"), ((160, 320, 3), "jpeg")])
def test_small_frames_travel_without_loss(shape: tuple[int, ...], kind: str) -> None:
    import cv2

    frame = np.random.default_rng(0).integers(0, 255, shape, dtype=np.uint8)
    packed = pack(make_tick(0, frame=frame, circuit=False, saliency=False), 1)
    assert packed.parts[0]["kind"] == kind
    image = cv2.imdecode(np.frombuffer(packed.body[: packed.parts[0]["bytes"]], np.uint8), cv2.IMREAD_COLOR_RGB)
    assert image is not None and image.shape == shape
    assert np.array_equal(image, frame) == (kind == "png")


def test_a_drive_can_wait_for_its_first_viewer(server: LiveServer) -> None:
    assert not server.wait_for_viewer(0.05)
    viewers: list[Client] = []
    threading.Timer(0.2, lambda: viewers.append(join(server))).start()
    began = time.monotonic()
    assert server.wait_for_viewer(600)
    assert time.monotonic() - began < 120
    while not viewers:
        time.sleep(0.01)
    viewers[0].close()


def test_the_last_words_of_a_drive_reach_the_viewer_before_the_goodbye() -> None:
    server = LiveServer(port=0)
    server.start()
    viewer = join(server)
    server.publish(make_tick(0))
    rows_until(viewer, 0)
    server.publish(make_tick(1, done=True))
    server.result(DriveResult(700, "lap finished", 12.5, episode_return=float("nan")))
    server.stop()
    heard: list[Any] = []
    try:
        while (message := viewer.receive(2)) is not None:
            heard.append(head(message) if isinstance(message, bytes) else json.loads(message))
    except ConnectionClosed:
        pass
    assert heard[-1] == {"kind": "bye"}
    results = [said["about"]["result"] for said in heard if "about" in said]
    result = results[-1]
    assert (result["track"], result["time_s"], result["episode_return"]) == (700, 12.5, None)
    assert any(row[COLUMNS.index("step")] == 1 for said in heard if "lanes" in said for row in said["lanes"][0]["rows"])


def test_a_server_that_stops_waits_for_who_still_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nacdrive.web.server.GOODBYE_S", 120.0)
    server, watching, left = LiveServer(port=0), threading.Event(), threading.Event()

    def watch() -> None:
        with server._state.viewer():
            watching.set()
            with server._state._changed:
                server._state._changed.wait_for(lambda: server._state.closed)
            time.sleep(0.3)
            left.set()

    threading.Thread(target=watch, daemon=True).start()
    watching.wait()
    server.start()
    server.stop()
    assert left.is_set()


def test_how_sure_a_decision_is_stands_in_its_row() -> None:
    scores = np.array([0.0, 1.0, -2.0], dtype=np.float32)
    assert sureness(Action(0.0, 0.0, 0.0, 1, scores)) == pytest.approx(np.exp(1) / np.exp(scores).sum())
    assert sureness(Action(0.0, 0.0, 0.0)) is None
    assert sureness(Action(0.0, 0.0, 0.0, 0, np.array([np.nan, 1.0], dtype=np.float32))) is None
    tick = make_tick(3)
    assert columns(tick, 1, 0.0, 0, 0.0)["sure"] == sureness(tick.action)
