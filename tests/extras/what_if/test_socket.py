"""What-if questions over the wire: anybody who may look may ask, nobody changes what drives, nonsense ends the call."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from typing import Any

import pytest
from simple_websocket import Client, ConnectionClosed

from nacdrive.extras.what_if import WhatIfCard, WhatIfSource
from nacdrive.extras.what_if.moments import MomentMemory, moment_of
from nacdrive.extras.what_if.process import answer_questions
from nacdrive.extras.what_if.socket import LARGEST_QUESTION, question_of
from nacdrive.extras.what_if.what_if import WhatIf
from nacdrive.web import LiveServer
from nacdrive.web.episode_cache import EpisodeCache, EpisodeLabel, ReplaySource
from nacdrive.web.replay import ReplayServer
from nacdrive.web.stream_socket import BURST
from tests.helpers.ticks import make_tick
from tests.helpers.web_clients import WholeClient
from tests.helpers.what_if import SEED, SOURCE, drive, small_policy
from tests.web.test_auth import UPGRADE, ask

DARK = [{"kind": "dim", "factor": 0.0}]


def connect(server: Any) -> Client:
    url = f"ws://127.0.0.1:{server.port}/what-if"
    return WholeClient(url, headers={"Origin": "http://127.0.0.1"})


def answers(client: Client, number: int, timeout_s: float = 240) -> list[dict[str, Any]]:
    """All answers to a question, up to the last."""
    found = []
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        text = client.receive(timeout=1)
        if text is None:
            continue
        answer = json.loads(text)
        assert answer["id"] == number
        found.append(answer)
        if answer.get("done"):
            return found
    raise AssertionError(f"no last answer within {timeout_s} s: {found}")


@pytest.fixture(scope="module")
def live() -> Iterator[LiveServer]:
    with LiveServer(port=0, title="small", cards=[WhatIfCard.of_drive(SOURCE, 128)]) as server:
        for tick in drive():
            server.publish(tick)
        yield server


def test_questions_are_answered_where_no_process_can_be_nice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.nice")  # as on Windows
    asking, answering = Pipe()
    asking.close()
    with pytest.raises(EOFError):
        answer_questions(answering, lambda: WhatIf(small_policy()))


def test_a_viewer_asks_and_the_decision_is_that_of_the_drive(live: LiveServer) -> None:
    client = connect(live)
    client.send(json.dumps({"id": 1, "ask": "decide", "moment": {"seq": 12}, "edits": DARK}))
    (found,) = answers(client, 1)
    logits = drive()[11].action.logits
    assert logits is not None
    assert found["base"]["logits"] == [float(x) for x in logits]
    assert found["edited"]["logits"] != found["base"]["logits"]
    client.send(json.dumps({"id": 2, "ask": "occlusion", "moment": {"seq": 12}}))
    assert len(answers(client, 2)[0]["map"]) == 12
    client.close()


def test_a_ghost_comes_piece_by_piece_and_decisions_are_answered_meanwhile(live: LiveServer) -> None:
    client = connect(live)
    client.send(json.dumps({"id": 3, "ask": "ghost", "moment": {"seq": 12}, "edits": DARK, "seconds": 1}))
    found = answers(client, 3)
    edited = [point for answer in found if answer.get("who") == "edited" for point in answer["points"]]
    assert (edited[0]["x_m"], edited[0]["y_m"]) == (drive()[11].x_m, drive()[11].y_m)
    assert found[-1]["effect"]["seconds"] == pytest.approx(1.04, abs=0.05)
    client.send(json.dumps({"id": 4, "ask": "ghost", "moment": {"seq": 12}, "edits": DARK, "seconds": 60}))
    client.send(json.dumps({"id": 5, "ask": "decide", "moment": {"seq": 12}, "edits": []}))
    while (answer := json.loads(client.receive(timeout=240)))["id"] != 5:
        assert not answer.get("done")
    client.send(json.dumps({"id": 4, "ask": "stop"}))
    client.send(json.dumps({"id": 6, "ask": "decide", "moment": {"seq": 13}, "edits": []}))
    while (answer := json.loads(client.receive(timeout=240)))["id"] != 6:
        assert not answer.get("done")
    client.close()


def test_what_cannot_be_answered_is_said_in_a_sentence(live: LiveServer) -> None:
    client = connect(live)
    for number, (asked, said) in enumerate(
        [
            ({"moment": {"seq": 9999}, "edits": []}, "not kept any more"),
            ({"moment": {"seq": 12}, "edits": [{"kind": "mute", "head": 400}]}, "no head 401"),
            ({"moment": {"seq": 12}, "edits": [{"kind": "fly"}]}, "an edit has a kind"),
            ({"moment": {"run": 5, "episode": 0, "seq": 1}, "edits": []}, "not kept any more"),
        ]
    ):
        client.send(json.dumps({"id": number, "ask": "decide", **asked}))
        assert said in answers(client, number)[-1]["error"]
    client.close()


def test_questions_beyond_the_allowance_are_refused_and_the_connection_stays(live: LiveServer) -> None:
    client = connect(live)
    for number in range(int(BURST) + 30):
        client.send(json.dumps({"id": number, "ask": "decide", "moment": {"seq": 9999}, "edits": []}))
    said = [json.loads(client.receive(timeout=120))["error"] for _ in range(int(BURST) + 30)]
    assert sum("too many" in text for text in said) >= 20
    time.sleep(0.3)
    client.send(json.dumps({"id": 999, "ask": "decide", "moment": {"seq": 12}, "edits": []}))
    assert "base" in answers(client, 999)[-1]
    client.close()


def test_asking_changes_nothing_that_is_shown_or_driven(live: LiveServer) -> None:
    (lane,) = live._state._lanes
    before = lane.seq, lane.rows[-1]
    client = connect(live)
    client.send(json.dumps({"id": 1, "ask": "ghost", "moment": {"seq": 3}, "edits": DARK, "seconds": 0.5}))
    answers(client, 1)
    client.close()
    assert (lane.seq, lane.rows[-1]) == before


@pytest.mark.parametrize(
    "text",
    [
        "", "pause", "[]", "{}", '{"do": "pause"}', '{"keys": ["left"]}', '{"id": 1}', '{"id": 1, "ask": "fly"}',
        '{"id": true, "ask": "stop"}', '{"id": 1e9, "ask": "stop"}', '{"id": -1, "ask": "stop"}', b"\xff\xfe",
        '{"id": 1, "ask": "decide", "moment": 3}', '{"id": 1, "ask": "decide", "moment": {"seq": "1"}, "edits": []}',
        '{"id": 1, "ask": "ghost", "moment": {"seq": 1}, "edits": [], "seconds": 1e6}', "[" * 3000,
        '{"id": 1, "ask": "ghost", "moment": {"seq": 1}, "edits": [], "seconds": NaN}',
        '{"id": 1, "ask": "lap", "moment": {"seq": 1}, "who": "me"}', '{"id": 1, "ask": "stop", "more": 1}',
    ],
)  # fmt: skip
def test_what_is_no_question_ends_the_connection(text: Any, live: LiveServer) -> None:
    client = connect(live)
    client.send(text)
    with pytest.raises(ConnectionClosed):
        client.receive(timeout=120)


def test_too_long_a_question_ends_the_connection(live: LiveServer) -> None:
    client = connect(live)
    client.send(json.dumps({"id": 1, "ask": "stop", "x": "y" * LARGEST_QUESTION}))
    with pytest.raises(ConnectionClosed):
        client.receive(timeout=120)


def test_ten_thousand_malformed_questions_raise_nothing_and_reach_nobody() -> None:
    rng = random.Random(17)
    good = {
        "id": 1, "ask": "ghost", "moment": {"run": 0, "episode": 0, "seq": 12}, "seconds": 5, "who": "expert",
        "edits": [{"kind": "mute", "head": 1}, {"kind": "paint", "left": 0, "top": 0, "right": 1, "bottom": 1}],
    }  # fmt: skip
    odd: list[Any] = [
        None, True, -1, 2**70, 1e308, float("inf"), float("nan"), "", "\u202e", "__class__", [], {}, [[]], "a" * 50,
        {"seq": {}}, [1, "x"], "../../etc/passwd", {"__proto__": 1}, b"".hex(), 0.1,
    ]  # fmt: skip

    def broken(value: Any, depth: int = 0) -> Any:
        if rng.random() < 0.15 or depth > 4:
            return rng.choice(odd)
        if isinstance(value, dict):
            changed = {rng.choice([key, key, key, key, "x"]): broken(one, depth + 1) for key, one in value.items()}
            return {key: one for key, one in changed.items() if rng.random() > 0.05}
        return [broken(one, depth + 1) for one in value] if isinstance(value, list) else value

    reached = []
    from nacdrive.extras.what_if.socket import Session

    class Process:
        def ask(self, question: Any, reply: Any) -> int:
            reached.append(question)
            return 1

        def cancel(self, ticket: int) -> None: ...

    memory = MomentMemory(4, 128 << 20)
    for step in range(20):
        memory.add(make_tick(step), step + 1)
    session = Session({0: (memory.find, Process())})  # type: ignore[dict-item]
    session.allowance.take = lambda cost: True  # type: ignore[method-assign]
    taken = 0
    for _ in range(10_000):
        text = json.dumps(broken(good))
        if rng.random() < 0.3:
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(["", "\x00", '"', "{", "]", "é", "9" * 400]) + text[at + rng.randrange(3) :]
        taken += session.receive(text)
        session._tickets.clear()
        while not session.answers.empty():
            json.loads(session.answers.get() or "{}")
    # Some stay whole, or are broken where it does not matter; what reached the process is sound.
    assert 0 < len(reached) < 3000
    assert taken >= len(reached)
    for question in reached:
        assert question.ask in ("decide", "occlusion", "ghost", "lap")
        assert 0 < question.seconds <= 60
        assert len(question.moment.frames) >= 1
    assert question_of(json.dumps(good)) is not None


def test_other_sites_and_pages_without_a_policy_get_no_answers(live: LiveServer) -> None:
    assert ask(live, "/what-if", **UPGRADE)[0] == 403
    assert ask(live, "/what-if", Origin="http://evil.example", **UPGRADE)[0] == 403
    with LiveServer(port=0, title="nobody") as server:
        assert ask(server, "/what-if", Origin=f"http://127.0.0.1:{server.port}", **UPGRADE)[0] in (400, 404)


def test_from_elsewhere_only_viewers_with_a_session_may_ask() -> None:
    with LiveServer(
        host="0.0.0.0", port=0, announce=lambda line: None, cards=[WhatIfCard.of_drive(SOURCE, 128)]
    ) as server:
        assert ask(server, "/what-if", Origin=f"http://127.0.0.1:{server.port}", **UPGRADE)[0] == 403


@pytest.mark.nightly
def test_a_process_that_dies_is_begun_anew(live: LiveServer) -> None:
    client = connect(live)
    client.send(json.dumps({"id": 1, "ask": "decide", "moment": {"seq": 12}, "edits": []}))
    answers(client, 1)
    (card,) = live._cards
    assert isinstance(card, WhatIfCard)
    process = card._runs[0][1]
    assert process._worker is not None
    process._worker.process.kill()
    deadline = time.monotonic() + 120
    while process._worker is not None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    client.send(json.dumps({"id": 2, "ask": "decide", "moment": {"seq": 12}, "edits": []}))
    assert "base" in answers(client, 2)[-1]
    client.close()


def test_the_memory_of_moments_keeps_to_its_bytes_and_to_one_attempt() -> None:
    frame = make_tick(0).frame.nbytes
    memory = MomentMemory(window=3, most_bytes=600 * frame)
    for step in range(1000):
        memory.add(make_tick(step), step + 1)
    assert memory.find({"seq": 400}) is None
    assert memory.find({"seq": 1001}) is None
    found = memory.find({"seq": 1000})
    assert found is not None
    assert len(found.frames) == 4
    assert len(found.past) == 999
    # Started over: the same step again, without what was before.
    memory.add(make_tick(0), 1001)
    memory.add(make_tick(1), 1002)
    begun = memory.find({"seq": 1002})
    assert begun is not None
    assert (len(begun.frames), len(begun.past)) == (2, 1)


def test_a_replay_answers_with_what_was_driven_as_the_past() -> None:
    ticks = drive()
    source = ReplaySource("run", [EpisodeLabel(SEED, len(ticks), 0.0, "small")], lambda _: ticks)
    cache = EpisodeCache([source])
    with ReplayServer(cache, port=0, cards=[WhatIfCard.of_recordings(cache, {0: SOURCE})]) as server:
        client = connect(server)
        moment = {"run": 0, "episode": 0, "seq": 12}
        client.send(json.dumps({"id": 1, "ask": "ghost", "moment": moment, "edits": [], "seconds": 0.5}))
        found = answers(client, 1)
        edited = [point for answer in found if answer.get("who") == "edited" for point in answer["points"]]
        assert [p["x_m"] for p in edited] == [tick.x_m for tick in ticks[11 : 11 + len(edited)]]
        client.close()
    by_others = [ticks[0].action] * len(ticks)
    moment_found = moment_of(ticks, by_others, 3, 4)
    assert moment_found is not None
    assert all(a == moment_found.past[0] for a in moment_found.past)


def test_a_source_tells_the_page_what_can_be_asked() -> None:
    assert WhatIfSource(SOURCE.load, 4, ghost=False).describe() == {"window": 4, "ghost": False, "expert": False}
