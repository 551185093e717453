"""A simulator and modern clients together for a while: nobody is dropped, and the car is driven without a gap."""

from __future__ import annotations

import time

import pytest
import socketio

from tests.helpers.udacity_simulators import Simulator, steer_by_speed, until


@pytest.mark.parametrize("seconds", [3, pytest.param(600, marks=pytest.mark.soak)])
def test_nobody_is_dropped(driven, seconds: int) -> None:
    server = driven(steer_by_speed).env
    with (
        Simulator(server.port, "de-DE", frame_s=0.02) as car,
        socketio.SimpleClient() as polling,
        socketio.SimpleClient() as direct,
    ):
        gone: list[str] = []
        for client, transports in ((polling, ["polling", "websocket"]), (direct, ["websocket"])):
            client.connect(f"http://127.0.0.1:{server.port}", transports=transports)
            client.client.on("disconnect", lambda *_: gone.append("client"))
        assert until(lambda: car.client.steers)
        until_s = time.monotonic() + seconds
        asked = 0
        while time.monotonic() < until_s:
            steers = car.client.steers
            for client in (polling, direct):
                assert client.call("status", timeout=20)["simulator"] is True
                asked += 1
            time.sleep(0.2)
            assert until(lambda before=steers: car.client.steers > before, 5), "the car is driven all the time"
        assert car.client.connections == 1 and car.client.lost == 0 and not gone
        # Every command but those of the last instant was carried out.
        assert server.commands - car.client.steers <= 2
        print(f"{seconds} s: {car.client.steers} commands, {asked} calls, no drop")
