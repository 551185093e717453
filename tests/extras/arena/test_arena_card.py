"""The arena's server: nothing is lost, a late viewer sees the whole track, and nobody moves what may not be moved."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from simple_websocket import Client

from nacdrive.drivers.human import HumanControl
from nacdrive.envs.base import Info
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.extras.arena.card import CAMERA, ArenaCard, camera_of
from nacdrive.web.control_socket import handle_command
from nacdrive.web.stream import COLUMNS, TRACK_ROWS, Seen, StreamState
from nacdrive.web.stream_socket import BURST, Allowance
from tests.helpers.arenas import ArenaPage, arena_tick
from tests.helpers.web_clients import WholeClient
from tests.web.test_auth import UPGRADE, ask
from tests.web.test_control import holds


def head(message: bytes) -> dict[str, Any]:
    (length,) = struct.unpack("<I", message[:4])
    found: dict[str, Any] = json.loads(message[4 : 4 + length])
    return found


def hear(viewer: Client, counts: tuple[int, int]) -> tuple[list[list[list[Any]]], list[dict[str, Any]]]:
    """Messages until so many rows of each have come: the rows, and the headers."""
    rows: list[list[list[Any]]] = [[], []]
    heads = []
    while (len(rows[0]), len(rows[1])) != counts:
        message = viewer.receive(5)
        assert message is not None
        if isinstance(message, bytes):
            heads.append(head(message))
            for all_rows, lane in zip(rows, heads[-1]["lanes"], strict=True):
                all_rows.extend(lane["rows"])
            viewer.send("a")
    return rows, heads


def join(server: ArenaPage, path: str = "stream") -> Client:
    return WholeClient(f"ws://127.0.0.1:{server.port}/{path}", headers={"Origin": "http://127.0.0.1"})


@pytest.fixture
def server() -> Iterator[ArenaPage]:
    with ArenaPage() as found:
        yield found


def test_rows_of_all_reach_a_viewer_and_one_that_comes_late_gets_the_whole_track(server: ArenaPage) -> None:
    server.arena.begin(0, 7, "lake")
    early = join(server)
    for step in range(30):
        server.arena.tick(0, arena_tick(step))
        if step < 20:
            server.arena.tick(1, arena_tick(step, 1))
    rows, heads = hear(early, (30, 20))
    station = COLUMNS.index("station_m")
    assert [row[station] for row in rows[0]] == [2.0 * k for k in range(30)]
    # The first message may have gone out before the first frame.
    parts = [part for one in heads for part in one.get("parts", [])]
    assert heads[-1]["parts"][0]["kind"] == "png" and {part["lane"] for part in parts} == {0, 1}
    late_rows, late_heads = hear(join(server), (30, 20))
    assert late_rows == rows and len(late_heads) == 1
    assert late_heads[0]["about"]["place"] == {"episode": 0, "seed": 7, "track": "lake"}
    server.arena.begin(1, 8, "lake")
    server.arena.tick(1, arena_tick(0, 1))
    rows, heads = hear(early, (0, 1))
    assert heads[-1]["attempt"] > late_heads[0]["attempt"]


def test_a_very_long_track_stays_small() -> None:
    state = StreamState(2)
    state.begin()
    tick = arena_tick(5)
    for _ in range(16_000):
        state.publish(tick)
    seen = state.wait_for_new(Seen(), 0)
    assert seen is not None and 7_000 < len(seen.lanes[0].rows) <= TRACK_ROWS and seen.seen.rows == (16_000, 0)


def test_the_share_off_the_road_is_the_mean_of_all_decisions_of_the_track() -> None:
    state = StreamState(2)
    state.begin()
    for step, wheels_off in enumerate((1.0, 0.5, 0.0, 0.5)):
        state.publish(arena_tick(step, next_info=Info(t_s=step * 0.05, wheels_off=wheels_off)), 1)
    seen = state.wait_for_new(Seen(), 0)
    assert seen is not None
    column = COLUMNS.index("off_share")
    assert [row[column] for row in seen.lanes[1].rows] == [1.0, 0.75, 0.5, 0.5]


def test_without_the_flag_nobody_reaches_the_camera(server: ArenaPage) -> None:
    status, _, said = ask(server, "/control", Origin=f"http://127.0.0.1:{server.port}", **UPGRADE)
    assert status == 403 and "--allow-control" in said
    with_flag = ArenaPage(control=HumanControl())
    with with_flag:
        assert ask(with_flag, "/control", Origin="http://evil.example", **UPGRADE)[0] == 403
        assert ask(with_flag, "/control", **UPGRADE)[0] == 403


def test_a_slider_moves_what_it_names_and_leaves_the_rest_as_it_was() -> None:
    wished: list[CameraNoise] = []
    with ArenaPage(control=HumanControl(), set_camera=wished.append) as server:
        server.arena.camera(CameraNoise(dropped=0.2, noise=0.1), 0.0)
        client = join(server, "control")
        client.send(json.dumps({"camera": {"brightness": 0.5, "delay_steps": 3}}))
        holds(lambda: wished == [CameraNoise(dropped=0.2, noise=0.1, brightness=0.5, delay_steps=3)])
        client.send(json.dumps({"do": "take"}))  # nobody drives here who could be relieved
        holds(lambda: not client.connected)


@pytest.mark.parametrize(
    "camera",
    [
        {}, {"brightness": 0.05}, {"brightness": 3.1}, {"brightness": True}, {"brightness": "1"}, {"noise": -0.1},
        {"noise": 0.6}, {"noise": float("nan")}, {"blackout": 1.5}, {"delay_steps": 1.0}, {"delay_steps": 13},
        {"delay_steps": -1}, {"dropped": 0.5}, {"late": 3}, {"brightness": 1, "more": 1}, {"noise": None},
    ],
    ids=str,
)  # fmt: skip
def test_what_no_slider_can_say_ends_the_connection(camera: dict[str, Any]) -> None:
    wished: list[Any] = []
    card = ArenaCard(wished.append)
    assert not handle_command(HumanControl(), 1, json.dumps({"camera": camera}), card.commands)
    assert wished == []


@pytest.mark.parametrize(
    "camera",
    [{name: end for name, (_, *ends) in CAMERA.items() if (end := ends[k]) is not None} for k in (0, 1)]
    + [{"brightness": 1}],
    ids=str,
)
def test_a_slider_may_stand_at_both_of_its_ends(camera: dict[str, Any]) -> None:
    wished: list[CameraNoise] = []
    card = ArenaCard(wished.append)
    assert handle_command(HumanControl(), 1, json.dumps({"camera": camera}), card.commands)
    assert wished == [CameraNoise(**camera)]
    assert {name: type(value) for name, value in (camera_of(camera) or {}).items()} == {
        name: CAMERA[name][0] for name in camera
    }


def test_in_a_drive_there_is_no_camera_to_set() -> None:
    assert not handle_command(HumanControl(), 1, json.dumps({"camera": {"noise": 0.1}}))


def test_who_moves_a_slider_too_often_is_passed_over() -> None:
    wished: list[Any] = []
    card, allowance = ArenaCard(wished.append), Allowance()
    for _ in range(500):
        assert handle_command(HumanControl(), 1, '{"camera": {"noise": 0.1}}', card.commands, allowance)
    assert BURST <= len(wished) < 2 * BURST + 20


def test_ten_thousand_malformed_messages_set_no_camera_beyond_its_ends() -> None:
    draw = random.Random(7)
    odd: list[Any] = [None, True, -1, 2, 1e308, float("inf"), float("nan"), "0.5", "\u202e", [], {}, [0.5], 2**70]
    names = [*CAMERA, "dropped", "late", "", "camera"]

    def mangled() -> str | bytes:
        camera: Any = {draw.choice(names): draw.choice([*odd, 0, 0.5, 1, 3]) for _ in range(draw.randrange(4))}
        order: Any = {"camera": camera if draw.random() < 0.9 else draw.choice(odd)}
        if draw.random() < 0.1:
            order[draw.choice(["do", "keys", "x"])] = draw.choice(odd)
        text = json.dumps(order)
        if draw.random() < 0.2:
            cut = draw.randrange(len(text) + 1)
            text = text[:cut] + draw.choice(["", "\x00", "}", "9" * 50]) + text[cut:]
        return text.encode("utf-8", "replace")[: draw.randrange(1, 200)] if draw.random() < 0.1 else text

    control, changes = HumanControl(), []

    def command(value: Any) -> Any:
        camera = camera_of(value)
        return None if camera is None else lambda: changes.append(camera)

    taken = sum(handle_command(control, 1, mangled(), {"camera": command}, wheel=False) for _ in range(10_000))
    assert 150 < taken == len(changes) < 9_000
    for camera in changes:
        assert camera == camera_of(camera)
        for name, value in camera.items():
            kind, least, most = CAMERA[name]
            assert type(value) is kind and least <= value <= most
        CameraNoise(**camera)
    assert control.state == {"paused": False, "person": None, "needs_person": False}
