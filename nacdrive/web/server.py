"""``LiveServer``: one object that a loop publishes its Ticks to, and browsers watch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nacdrive.drivers.human import HumanControl
from nacdrive.drivers.tick import Tick
from nacdrive.web.app import live_app
from nacdrive.web.auth import Guard
from nacdrive.web.http_server import Serving
from nacdrive.web.stream import Stage


class LiveServer(Serving):
    """Shows a stream of Ticks on a page.

    Closing the browser, opening five of them or freezing one changes nothing for the loop: ``publish`` only keeps the
    newest Tick. Bound to this machine unless ``host`` says otherwise; then a one-time token is needed to look.
    Strictly read-only without ``control``; with it, whoever may look may also pause, start over and take the wheel.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8090,
        title: str = "nacdrive",
        circuit: Mapping[str, Any] | None = None,
        choices: Sequence[str] = (),
        announce: Callable[[str], None] = print,
        control: HumanControl | None = None,
    ) -> None:
        self._stage = Stage()
        if control is not None:
            self._stage.steer(control.state)
            control.on_change = lambda: self._stage.steer(control.state)
        hello = {
            "title": title,
            "circuit": dict(circuit) if circuit is not None else None,
            "choices": list(choices),
            "control": control is not None,
        }
        guard = Guard(host, announce)
        super().__init__(host, port, live_app(self._stage, guard, hello, control), guard)

    @property
    def viewers(self) -> int:
        """How many browsers are watching now: without one, costly neuron states need not be read."""
        return self._stage.viewers

    def publish(self, tick: Tick) -> None:
        """Show ``tick``; returns at once, and the newest Tick wins."""
        self._stage.publish(tick)

    def status(self, text: str) -> None:
        """Show a sentence in place of the stream's state ('Waiting for the simulator ...'); '' takes it back."""
        self._stage.say(text)

    def stop(self) -> None:
        """Say goodbye to the viewers and free the port."""
        self._stage.close()
        super().stop()
