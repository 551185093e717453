"""Whatever is reported, and by whomever: the server lives, keeps answering the simulator, and says little."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nacdrive.envs.udacity import UdacityEnv
from nacdrive.extras.simulator.client import PATH
from nacdrive.extras.simulator.number_format import NUMBER_FORMATS
from nacdrive.extras.simulator.websocket_sharp import WebSocketSharp
from tests.helpers.udacity_loop import drive
from tests.helpers.udacity_simulators import PICTURE, Simulator, jpeg, steer_by_speed, until

IMAGE = base64.b64encode(PICTURE).decode()
numbers = st.one_of(
    st.builds(
        lambda culture, value: culture.n4(value),
        st.sampled_from(list(NUMBER_FORMATS.values())),
        st.floats(-1e6, 1e6),
    ),
    st.sampled_from(
        ["", "NaN", "nan", "Infinity", "-inf", "1e-05", "1e999", " 0.5 ", "0.25", "\u0661\u0662", "9" * 4000]
    ),
    st.text(max_size=20),
    st.none(),
    st.booleans(),
    st.floats(),
    st.lists(st.integers(), max_size=2),
)
images = st.one_of(
    st.sampled_from(
        [
            IMAGE,
            IMAGE[:-7],
            IMAGE[: len(IMAGE) // 2],
            "%%%" + IMAGE,
            base64.b64encode(jpeg(64, 64)).decode(),
            base64.b64encode(b"GIF89a" + bytes(300)).decode(),
        ]
    ),
    st.text(max_size=50),
    st.none(),
    st.binary(max_size=50).map(lambda data: base64.b64encode(data).decode()),
)
reports = st.fixed_dictionaries(
    {},
    optional={
        "steering_angle": numbers,
        "throttle": numbers,
        "speed": numbers,
        "image": images,
        "extra": st.text(max_size=5),
        "cte": numbers,
    },
)
arguments = st.one_of(reports, st.none(), st.booleans(), st.text(max_size=20), st.lists(reports, max_size=2))
names = st.sampled_from(["telemetry", "telemetry", "telemetry", "connect", "disconnect", "status", "message", "x", ""])
events = st.builds(lambda name, rest: "42" + json.dumps([name, *rest]), names, st.lists(arguments, max_size=3))
packets = st.one_of(
    events,
    st.sampled_from(
        [
            "2",
            "3",
            "4",
            "40",
            "41",
            "42",
            "42[",
            "42{}",
            "42[]",
            "42[1]",
            "43[]",
            "44",
            "45",
            '451-["telemetry",{"_placeholder":true,"num":0}]',
            "46",
            "49",
            "5",
            "6",
            "7",
            "x",
            "420[1,2]",
            "42/other,[]",
        ]
    ),
    st.text(max_size=8),
)


class Healthy:
    """An environment with a simulator that must be driven all the time."""

    def __init__(self, env: UdacityEnv, car: Simulator, lines: list[str]) -> None:
        self.env, self.car, self.lines = env, car, lines


@pytest.fixture(scope="module")
def healthy() -> Iterator[Healthy]:
    lines: list[str] = []
    with (
        drive(UdacityEnv(port=0, on_event=lines.append), steer_by_speed) as loop,
        Simulator(loop.env.port) as car,
    ):
        assert car.drives()
        yield Healthy(loop.env, car, lines)
        assert car.drives() and car.client.connections == 1 and car.client.lost == 0


def rough(port: int, packets: list[str]) -> None:
    """Another client says ``packets``; it may be disconnected for them."""
    link = WebSocketSharp("127.0.0.1", port, PATH)
    try:
        for text in packets:
            link.send(text)
    except OSError:
        pass
    finally:
        link.abort()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=st.lists(packets, max_size=6))
def test_a_rough_client_harms_nobody(healthy: Healthy, sent: list[str]) -> None:
    # It opens as a modern client, so that the simulator stays the one that is driven.
    rough(healthy.env.port, ["40", *sent])
    assert healthy.car.drives(2) and not any("Fault" in line for line in healthy.lines)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reported=st.lists(events, max_size=4))
def test_the_simulators_own_nonsense_is_got_over(healthy: Healthy, reported: list[str]) -> None:
    car = healthy.car
    for text in reported:
        car.client._send(text)
    # Unless it was woken, which takes a second, its loop goes on at once.
    assert car.drives(2) and not any("Fault" in line for line in healthy.lines)


def test_said_at_most_once_a_second_of_each_kind(healthy: Healthy) -> None:
    healthy.lines.clear()
    began = time.monotonic()
    healthy.car.picture = b"no picture"
    sent = healthy.car.client.steers
    for _ in range(40):
        rough(healthy.env.port, ["40", '42["x"]', "42["])
        healthy.car.picture = PICTURE if healthy.car.picture == b"no picture" else b"no picture"
    healthy.car.picture = PICTURE
    seconds = time.monotonic() - began
    kinds = ("Safety", "Sound", "A Socket.IO client", "A client sends", "Socket.IO:", "Engine.IO:")
    for kind in kinds:
        count = sum(line.startswith(kind) for line in healthy.lines)
        assert count <= seconds + 1, (kind, healthy.lines)
    assert all("\n" not in line for line in healthy.lines) and len(healthy.lines) <= 6 * (seconds + 1)
    assert healthy.car.client.steers > sent


@pytest.mark.nightly
def test_an_image_of_20_megabytes_is_answered(healthy: Healthy) -> None:
    healthy.lines.clear()
    # As the picture of the simulator's own report: one that comes unasked may be dropped for its twin.
    healthy.car.picture = bytes(20_250_000)
    try:
        assert until(lambda: any("27.0 MB" in line for line in healthy.lines))
    finally:
        healthy.car.picture = PICTURE
    assert healthy.car.drives(5)
