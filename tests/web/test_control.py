"""Control of a drive from a page: allowed only where it was asked for, one person at the wheel, nobody lost at it."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from simple_websocket import Client, ConnectionClosed

from nacdrive.common.action import Action
from nacdrive.drivers.human import SILENCE_S, HumanControl
from nacdrive.envs.carracing.env import to_action
from nacdrive.web import LiveServer
from nacdrive.web.control_socket import handle_command
from tests.helpers.ports import lasting_port
from tests.helpers.ticks import CHOICES, make_tick
from tests.helpers.web_clients import WholeClient
from tests.web.test_auth import UPGRADE, ask
from tests.web.test_page import shows, text, until
from tests.web.test_stream import rows_until

READY = "document.querySelector('#controls .take')?.disabled === false"
NO_ORDERS = [
    "", "pause", "[]", "{}", '{"do": "fly"}', '{"do": ["take"]}', '{"keys": "left"}', '{"keys": ["jump"]}',
    '{"keys": [], "axes": [0, 2]}', '{"keys": [], "axes": [NaN, 0]}', '{"keys": [], "axes": [true, 0]}',
    '{"keys": [], "axes": [0]}', '{"keys": [], "axes": null}', '{"keys": [], "more": 1}', '{"axes": [0, 0]}',
    b"\xff\xfe", '{"keys": [{}]}', "[" * 200, '{"keys": ["left"' + "," * 300,
]  # fmt: skip


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[LiveServer, HumanControl]]:
    # Four times as patient as a real drive: the machine that runs the tests may have other things to do.
    control = HumanControl(silence_s=4 * SILENCE_S)
    with LiveServer(port=0, title="nac_steady", choices=CHOICES, control=control) as server:
        yield server, control


@pytest.fixture
def control(shared: tuple[LiveServer, HumanControl]) -> Iterator[HumanControl]:
    control = shared[1]
    yield control
    control.resume()
    person = control.state["person"]
    if person is not None:
        control.release(person)
    while control.poll(wait=False).reset:
        pass


@pytest.fixture
def steered(shared: tuple[LiveServer, HumanControl], control: HumanControl) -> LiveServer:
    return shared[0]


class Loop(threading.Thread):
    """Ticks as a driven loop makes them: polls the control before each, and does what the person does.

    Without the circuit, which takes Chromium long to draw where there is no GPU.
    """

    def __init__(self, server: LiveServer, control: HumanControl, hz: float = 12) -> None:
        super().__init__(daemon=True)
        self.server, self.control, self.hz = server, control, hz
        self.keys: list[frozenset[str] | None] = []
        self.ending = threading.Event()

    def run(self) -> None:
        step = 0
        while not self.ending.is_set():
            orders = self.control.poll(wait=False)
            if not orders.paused:
                self.keys.append(orders.keys)
                by_person: dict[str, Any] = {"events": orders.events, "circuit": False, "saliency": False}
                if orders.keys is not None:
                    choice = 2 if "left" in orders.keys else 3 if "up" in orders.keys else 0
                    own = make_tick(step).action
                    by_person |= {"action": to_action(choice), "policy": own, "human": True}
                self.server.publish(make_tick(step, **by_person))
                step = 0 if orders.reset else step + 1
            self.ending.wait(1 / self.hz)

    def __enter__(self) -> Loop:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        self.join()


def join(server: LiveServer, path: str = "control", origin: str = "http://127.0.0.1") -> Client:
    return WholeClient(f"ws://127.0.0.1:{server.port}/{path}", headers={"Origin": origin})


def holds(condition: Callable[[], bool], timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_without_the_flag_a_hand_made_client_is_refused_and_the_page_has_no_controls(
    server: LiveServer, open_page: Callable[..., Any]
) -> None:
    status, _, body = ask(server, "/control", Origin=f"http://127.0.0.1:{server.port}", **UPGRADE)
    assert status == 403 and "--allow-control" in body
    viewer = join(server, "stream")
    server.publish(make_tick(0))
    rows_until(viewer, 0)
    for message in ('{"do": "pause"}', '{"do": "take"}', '{"keys": ["left"]}'):
        viewer.send(message)
    page = open_page(server.url)
    server.publish(make_tick(1))
    shows(page, make_tick(1))
    assert not page.is_visible("#controls")
    assert text(page, "#state") == "Live"


def test_another_sites_page_and_a_client_without_an_origin_are_refused(
    steered: LiveServer, control: HumanControl
) -> None:
    assert ask(steered, "/control", Origin="http://evil.example", **UPGRADE)[0] == 403
    assert ask(steered, "/control", **UPGRADE)[0] == 403
    assert ask(steered, "/control", Origin=f"http://127.0.0.1:{steered.port}", Host="evil.example", **UPGRADE)[0] == 403
    assert control.state == {"paused": False, "person": None, "needs_person": False}


def test_from_elsewhere_control_needs_the_token() -> None:
    control = HumanControl()
    with LiveServer(host="0.0.0.0", port=0, announce=lambda line: None, control=control) as server:
        origin = f"http://127.0.0.1:{server.port}"
        status, _, body = ask(server, "/control", Origin=origin, **UPGRADE)
        assert status == 403 and "token" in body


@pytest.mark.parametrize("message", NO_ORDERS)
def test_what_is_no_order_ends_the_connection_and_nothing_else(
    steered: LiveServer, control: HumanControl, message: str | bytes
) -> None:
    other, client = join(steered), join(steered)
    other.receive(2)
    client.receive(2)
    client.send(message)
    with pytest.raises(ConnectionClosed):
        client.receive(5)
        client.receive(5)
    assert control.state == {"paused": False, "person": None, "needs_person": False}
    other.send('{"do": "pause"}')
    holds(lambda: control.state["paused"])


def test_a_browser_that_disconnects_hands_back(steered: LiveServer, control: HumanControl) -> None:
    client = join(steered)
    assert json.loads(client.receive(2) or "")["you"] > 0
    client.send('{"do": "take"}')
    holds(lambda: control.state["person"] is not None)
    client.close()
    holds(lambda: control.state["person"] is None)
    assert control.poll().events == ("taken over", "handed back: the browser has gone")


def test_only_one_of_two_browsers_has_the_wheel(steered: LiveServer, control: HumanControl) -> None:
    first, second = join(steered), join(steered)
    me = json.loads(first.receive(2) or "")["you"]
    first.send('{"do": "take"}')
    holds(lambda: control.state["person"] == me)
    second.send('{"do": "take"}')
    second.send('{"keys": ["left"]}')
    first.send('{"keys": ["up"]}')
    holds(lambda: control.poll(wait=False).keys == {"up"})
    for wish in ("back", "pause", "reset"):
        assert handle_command(control, me + 1, json.dumps({"do": wish}))
        second.send(json.dumps({"do": wish}))
    first.send('{"keys": ["up", "left"]}')
    holds(lambda: control.poll(wait=False).keys == {"up", "left"})
    assert control.state == {"paused": False, "person": me, "needs_person": False}, "that is up to whoever drives"
    first.send('{"do": "pause"}')
    holds(lambda: control.state["paused"])


def test_pause_resume_and_start_over_by_key_and_button(
    steered: LiveServer, control: HumanControl, open_page: Callable[..., Any]
) -> None:
    with Loop(steered, control) as loop:
        page = open_page(steered.url)
        until(page, "document.getElementById('state').textContent === 'Live'")
        until(page, READY)
        page.keyboard.press("Space")
        until(page, "document.getElementById('state').textContent === 'Paused'")
        stood = len(loop.keys)
        page.wait_for_timeout(300)
        assert len(loop.keys) <= stood + 1
        page.click("#controls >> text=Resume")
        until(page, "document.getElementById('state').textContent === 'Live'")
        until(page, "Number(document.getElementById('step').textContent) > 8")
        page.click("#controls >> text=Start over")
        until(page, "Number(document.getElementById('step').textContent) < 8")
        until(page, "[...document.querySelectorAll('#events li')].some((e) => e.textContent.includes('started over'))")
        page.keyboard.press("Space")
        until(page, "document.getElementById('state').textContent === 'Paused'")
        assert page.faults == [], "space is the pause, whichever button was clicked before"


def test_arrow_keys_drive_after_taking_the_wheel_and_the_policy_stands_beside(
    steered: LiveServer, control: HumanControl, open_page: Callable[..., Any]
) -> None:
    with Loop(steered, control) as loop:
        page, other = open_page(steered.url), open_page(steered.url)
        until(page, "document.getElementById('state').textContent === 'Live'")
        page.keyboard.down("ArrowLeft")
        page.wait_for_timeout(150)
        page.keyboard.up("ArrowLeft")
        assert set(loop.keys) == {None}, "arrow keys alone take nothing over"
        until(page, READY)
        for key in ("?", "w", "Space", "Escape"):
            page.keyboard.press(key)
        page.wait_for_timeout(150)
        assert not page.is_visible("#words"), "Escape closes it"
        assert control.state == {"paused": False, "person": None, "needs_person": False}, "keys are the dialog's"
        page.keyboard.press("Shift+W")
        until(page, "document.getElementById('state').textContent === 'You drive'")
        until(other, "document.getElementById('state').textContent === 'A person drives'")
        assert other.is_disabled("#controls .take") and not other.is_visible(".pad")
        assert other.is_disabled("#controls >> text=Pause") and other.is_disabled("#controls >> text=Start over")
        assert not page.is_disabled("#controls >> text=Pause"), "who only watches cannot stop the person who drives"
        page.keyboard.press("?")
        page.keyboard.down("ArrowLeft")
        holds(lambda: loop.keys[-1] == {"left"})
        page.keyboard.press("Escape")
        page.wait_for_selector("#words", state="hidden")
        until(page, "document.getElementById('verb').textContent === 'Steers left'")
        until(page, "document.getElementById('sure').textContent.startsWith('policy: ')")
        assert text(page, ".choice[data-person=yes] span") == "left"
        page.wait_for_timeout(int(4.4e3 * SILENCE_S))
        assert loop.keys[-1] == {"left"}, "a key that is held stays held"
        page.keyboard.up("ArrowLeft")
        holds(lambda: loop.keys[-1] == frozenset())
        page.keyboard.press("Escape")
        holds(lambda: loop.keys[-1] is None)
        until(page, "document.getElementById('state').textContent === 'Live'")
        assert page.faults == [] and other.faults == []


@pytest.mark.nightly
def test_fingers_drive_on_a_phone(steered: LiveServer, control: HumanControl, open_page: Callable[..., Any]) -> None:
    with Loop(steered, control) as loop:
        page = open_page(steered.url, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
        until(page, READY)
        page.tap("#controls .take")
        until(page, "document.getElementById('state').textContent === 'You drive'")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        box = page.locator(".pad [aria-label='Steer left']").bounding_box()
        assert box["height"] >= 44 and box["width"] >= 44, "large enough for a thumb"
        touch = page.context.new_cdp_session(page)
        finger = {"x": box["x"] + 20, "y": box["y"] + 20}
        touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [finger]})
        holds(lambda: loop.keys[-1] == {"left"})
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        holds(lambda: loop.keys[-1] == frozenset())


def test_a_frozen_or_hidden_page_lets_go(
    steered: LiveServer, control: HumanControl, open_page: Callable[..., Any]
) -> None:
    with Loop(steered, control) as loop:
        page = open_page(steered.url)
        until(page, READY)
        page.keyboard.press("w")
        until(page, "document.getElementById('state').textContent === 'You drive'")
        page.keyboard.down("ArrowUp")
        holds(lambda: loop.keys[-1] == {"up"})
        # The page's script hangs for longer than the silence that is borne.
        page.evaluate(
            "(ms) => { const end = performance.now() + ms; while (performance.now() < end); }", 5500 * SILENCE_S
        )
        assert None in loop.keys[-40:]
        until(page, "document.getElementById('state').textContent === 'Live'")
        assert loop.keys[-1] is None, "a key that was held over the freeze does not drive"
        events = "[...document.querySelectorAll('#events li')].map((e) => e.textContent).join()"
        assert "nothing heard" in page.evaluate(events)


@pytest.mark.nightly
def test_a_drive_without_a_driver_says_that_it_waits(open_page: Callable[..., Any]) -> None:
    control = HumanControl(needs_person=True, silence_s=4 * SILENCE_S)
    with LiveServer(port=0, control=control, choices=CHOICES) as server, Loop(server, control) as loop:
        page = open_page(server.url)
        until(page, "document.getElementById('curtain').textContent.includes('waits for you')")
        until(page, READY)
        page.click("#controls .take")
        until(page, "document.getElementById('state').textContent === 'You drive'")
        page.wait_for_selector("#curtain", state="hidden")
        holds(lambda: bool(loop.keys) and loop.keys[-1] is not None)
        assert page.faults == []


@pytest.mark.nightly
def test_a_regression_policy_shows_steering_and_lane_offset_instead_of_probabilities(
    open_page: Callable[..., Any],
) -> None:
    import numpy as np

    frame = np.full((160, 320, 3), 120, np.uint8)
    with LiveServer(port=0, title="PilotNet on the lake", choices=()) as server:
        page = open_page(server.url)
        options: dict[str, Any] = {"frame": frame, "action": Action(-0.31, 0.4, 0.0), "circuit": False}
        tick = make_tick(7, **options, saliency=False, expert=Action(-0.2, 0.3, 0.0), lane_offset_m=-0.456)
        server.publish(tick)
        shows(page, tick)
        assert text(page, "#steering output") == "left 0.31"
        assert not page.is_visible("#choices")
        assert not page.is_visible("text=Show Grad-CAM"), "no network is known whose gradients could be shown"
        assert (text(page, "#return-name"), text(page, "#return")) == ("lane offset m", "0.46 L")
        assert text(page, "#agree") == "expert: steers left" or text(page, "#agree") == "the expert agrees"
        box = page.locator(".frame").bounding_box()
        assert box["width"] / box["height"] == pytest.approx(2, rel=0.02)
        assert page.faults == []


@pytest.mark.nightly
def test_who_has_moved_a_slider_takes_the_wheel_by_its_key_and_steers_by_the_arrows(
    steered: LiveServer, control: HumanControl, open_page: Callable[..., Any]
) -> None:
    with Loop(steered, control) as loop:
        page = open_page(steered.url)
        until(page, READY)
        until(page, "Number(document.getElementById('step').textContent) > 3")
        page.focus("#history input")
        page.keyboard.press("w")
        until(page, "document.getElementById('state').textContent === 'You drive'")
        page.keyboard.down("ArrowLeft")
        holds(lambda: loop.keys[-1] == {"left"})
        assert page.get_attribute("#dashboard", "data-held") == "no"


@pytest.mark.nightly
def test_a_new_drive_knows_nothing_of_who_drove_in_the_one_before(open_page: Callable[..., Any]) -> None:
    control = HumanControl(silence_s=60)
    first = LiveServer(port=lasting_port(), control=control, choices=CHOICES)
    page = open_page(first.start())
    first.publish(make_tick(0, circuit=False))
    until(page, READY)
    page.keyboard.press("w")
    until(page, "document.getElementById('state').textContent === 'You drive'")
    first.stop()
    with LiveServer(port=first.port, choices=CHOICES) as second:
        second.publish(make_tick(3, circuit=False))
        until(page, "document.getElementById('state').textContent === 'Live'")
        until(page, "document.getElementById('controls').hidden")


@pytest.mark.nightly
def test_the_bars_of_hold_and_of_control_do_not_lie_over_each_other(
    steered: LiveServer, open_page: Callable[..., Any]
) -> None:
    page = open_page(steered.url)
    steered.publish(make_tick(0, circuit=False, saliency=False))
    until(page, READY)
    until(page, "!document.getElementById('history').hidden")
    hold, bar = page.locator("#history .hold").bounding_box(), page.locator("#controls").bounding_box()
    assert hold["y"] + hold["height"] <= bar["y"] and bar["y"] + bar["height"] <= 800


STICK = """() => {
  const pad = {connected: true, mapping: 'standard', axes: [0, 0, 0, 0], buttons: []};
  for (let i = 0; i < 17; i++) pad.buttons.push({pressed: false, value: 0});
  window.pad = pad;
  navigator.getGamepads = () => [null, pad];
}"""


def plug_in(page: Any, **changes: Any) -> None:
    """A gamepad as the browser tells of it; there is none at the machine of the tests."""
    page.evaluate(STICK)
    page.evaluate("(changes) => Object.assign(pad, changes)", changes)
    page.evaluate("dispatchEvent(new Event('gamepadconnected'))")


def test_a_gamepad_takes_the_wheel_and_steers_by_degrees_and_hands_back(
    steered: LiveServer, control: HumanControl, open_page: Callable[..., Any]
) -> None:
    page = open_page(steered.url)
    steered.publish(make_tick(0, circuit=False, saliency=False))
    until(page, READY)
    plug_in(page)
    until(page, "document.querySelector('.say').textContent.includes('Start takes the wheel')")
    page.evaluate("pad.axes[0] = -0.55")
    page.wait_for_timeout(200)
    assert control.poll(wait=False).keys is None, "a stick alone takes nothing over"
    page.evaluate("pad.buttons[9].pressed = true")
    holds(lambda: control.state["person"] is not None)
    holds(lambda: control.poll(wait=False).axes == (-0.5, 0.0))
    page.evaluate("pad.buttons[9].pressed = false; pad.axes[0] = 0.05")
    page.evaluate("pad.buttons[7].value = 1; pad.buttons[6].value = 0.1")
    holds(lambda: control.poll(wait=False).axes == (0.0, 1.0))
    page.wait_for_timeout(int(4.4e3 * SILENCE_S))
    assert control.state["person"] is not None, "a stick that is held still is a person too"
    page.keyboard.down("ArrowLeft")
    holds(lambda: control.poll(wait=False).keys == {"left"} and control.poll(wait=False).axes is None)
    page.keyboard.up("ArrowLeft")
    page.evaluate("pad.buttons[9].pressed = true")
    holds(lambda: control.state["person"] is None)
    assert page.faults == []


@pytest.mark.nightly
def test_a_gamepad_that_is_pulled_out_lets_go_and_one_of_an_odd_layout_is_not_read(
    steered: LiveServer, control: HumanControl, open_page: Callable[..., Any]
) -> None:
    page = open_page(steered.url)
    until(page, READY)
    plug_in(page, mapping="")
    page.wait_for_timeout(100)
    assert "gamepad" not in text(page, ".say")
    page.evaluate("pad.mapping = 'standard'; dispatchEvent(new Event('gamepadconnected'))")
    page.keyboard.press("w")
    holds(lambda: control.state["person"] is not None)
    page.evaluate("pad.axes[0] = 1")
    holds(lambda: control.poll(wait=False).axes == (1.0, 0.0))
    page.evaluate("pad.connected = false; dispatchEvent(new Event('gamepaddisconnected'))")
    holds(lambda: control.poll(wait=False).axes is None)
    assert control.state["person"] is not None, "the keys are still there"


@pytest.mark.nightly
def test_without_the_flag_a_gamepad_reaches_nobody(server: LiveServer, open_page: Callable[..., Any]) -> None:
    page = open_page(server.url)
    server.publish(make_tick(1))
    shows(page, make_tick(1))
    plug_in(page)
    asked: list[str] = []
    page.on("websocket", lambda socket: asked.append(socket.url))
    page.evaluate("pad.axes[0] = 1; pad.buttons[9].pressed = true")
    page.wait_for_timeout(300)
    assert asked == [] and not page.is_visible("#controls")


def test_ten_thousand_malformed_orders_raise_nothing_and_move_nothing_beyond_its_end() -> None:
    draw = random.Random(5)
    odd: list[Any] = [None, True, -1, 2, 1e308, float("nan"), "left", "\u202e", [], {}, ["left"], [0, 0], [[0], 0]]
    good = [{"keys": ["left"], "axes": [0.5, -0.5]}, {"keys": []}, {"do": "take"}, {"do": "back"}, {"do": "pause"}]

    def mangled() -> str | bytes:
        order: Any = dict(draw.choice(good))
        for _ in range(draw.randrange(3)):
            order[draw.choice(["keys", "axes", "do", "who", ""])] = draw.choice(odd)
        text = json.dumps(order if draw.random() < 0.9 else draw.choice(odd))
        if draw.random() < 0.3:
            cut = draw.randrange(len(text) + 1)
            text = text[:cut] + draw.choice(["", "\x00", "]", "9" * 50]) + text[cut:]
        return text.encode("utf-8", "replace")[: draw.randrange(1, 200)] if draw.random() < 0.2 else text

    control = HumanControl(clock=lambda: 0.0)
    taken = refused = moved = 0
    for _ in range(10_000):
        good_one = handle_command(control, 1, mangled())
        taken, refused = taken + good_one, refused + (not good_one)
        control.resume()
        control.acquire(1)
        orders = control.poll(wait=False)
        assert orders.keys is None or orders.keys <= {"left", "right", "up", "down"}
        if orders.axes is not None:
            moved += 1
            assert len(orders.axes) == 2 and all(type(v) is float and -1 <= v <= 1 for v in orders.axes)
    assert taken > 1000 and refused > 3000 and moved > 30
