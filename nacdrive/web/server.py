"""``LiveServer``: one object that a loop publishes its Ticks to, and browsers watch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from flask import Response, abort, request

from nacdrive.drivers.human import HumanControl
from nacdrive.drivers.tick import Tick
from nacdrive.web.card import Card
from nacdrive.web.control_socket import serve_controller
from nacdrive.web.http_server import HttpServer, UpgradedResponse, require_origin
from nacdrive.web.stream import DriveResult, StreamState, finite
from nacdrive.web.stream_socket import Encoder, serve_viewer

GOODBYE_S = 1.0
"""So long the end of a run waits for the viewers to be told of it."""


class LiveServer(HttpServer):
    """Shows the Ticks of one drive, or of several side by side, each in a lane of its own.

    Closing the browser, opening five of them or freezing one changes nothing for the loop: ``publish`` only keeps the
    newest Tick. Bound to this machine unless ``host`` says otherwise; then a one-time token is needed to look.
    Strictly read-only without ``control``; with it, whoever may look may also pause, start over and drive.

    Args:
        host: Address to serve on.
        port: Port to serve on; 0 takes a free one.
        title: What is driven by whom.
        circuit: Wiring of the policy's sequence layer.
        choices: Names of the discrete actions.
        announce: Called with a sentence when a viewer from elsewhere has come in.
        control: What people at browsers may do.
        network_input: What the network gets of a ``frame`` of [rows, columns]: ``rows`` [from, to) that are kept,
            ``masked`` rows [from, to) or None, ``size`` [rows, columns] after resizing, ``colours`` ("RGB" or "YUV");
            None if not known.
        names: Of the lanes, where several drive.
        people: Those of ``names`` that a person drives; of a drive alone a person may always take the wheel.
        cards: Further parts of the page.
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
        network_input: Mapping[str, Any] | None = None,
        names: Sequence[str] = (),
        people: Sequence[str] = (),
        cards: Sequence[Card] = (),
    ) -> None:
        self._state = StreamState(max(1, len(names)))
        if control is not None:
            self._state.set(control=control.state)
            control.on_change = lambda: self._state.set(control=control.state)
        hello = {
            "title": title,
            # Its synapses are many, and wanted where the neurons are looked at.
            "circuit": circuit and {name: part for name, part in circuit.items() if name != "edges"},
            "choices": list(choices),
            "control": control is not None,
            "network_input": network_input,
            "names": list(names),
            "people": [list(names).index(name) for name in people],
            "cards": {card.name: card.describe() for card in cards},
        }
        super().__init__(host, port, "several" if names else "live", announce, cards)
        self._app.get("/edges")(lambda: {"edges": circuit["edges"] if circuit else []})
        self._add_sockets(hello, control)
        for card in cards:
            card.attach(self)

    @property
    def viewers(self) -> int:
        """How many browsers are watching now: without one, costly neuron states need not be read."""
        return self._state.viewers

    def wait_for_viewer(self, timeout_s: float | None = None) -> bool:
        """Wait until somebody watches; False if nobody has come within ``timeout_s`` seconds (None: wait on)."""
        return self._state.wait_for_viewers(True, timeout_s)

    def begin(self, **about: Any) -> None:
        """All lanes begin a track, or begin it anew; ``about``: as for ``set``."""
        self._state.begin(**about)

    def publish(self, tick: Tick, lane: int = 0) -> None:
        """Show ``tick``; returns at once, and the newest Tick wins."""
        seq = self._state.publish(tick, lane)
        for card in self._cards:
            card.publish(tick, seq)

    def set(self, **about: Any) -> None:
        """Show what is known of all lanes together, as plain JSON: what cards add, by their own words."""
        self._state.set(**about)

    def status(self, text: str) -> None:
        """Show a sentence in place of the stream's state ('Waiting for the simulator ...'); '' takes it back."""
        self._state.set(status=text)

    def note(self, text: str) -> None:
        """Say what has happened beside the drive, on the terminal and among the events of all lanes."""
        super().note(text)
        self._state.note(text)

    def result(self, result: DriveResult) -> None:
        """Show what came of an episode, until the next one begins; it also stands after the end of the run."""
        about = {name: finite(value) if isinstance(value, float) else value for name, value in asdict(result).items()}
        self._state.set(result=about)

    def stop(self) -> None:
        self._state.close()
        self._state.wait_for_viewers(False, GOODBYE_S)
        super().stop()

    def _add_sockets(self, hello: dict[str, Any], control: HumanControl | None) -> None:
        """The stream, what came before it, and a way in for commands where there is a ``control``."""
        state, encoder = self._state, Encoder(max(1, len(hello["names"])))
        wheel = not hello["names"] or bool(hello["people"])
        commands = {name: command for card in self._cards for name, command in card.commands.items()}

        @self._app.route("/stream", websocket=True)
        def stream() -> Response:
            require_origin()
            with state.viewer():
                serve_viewer(request.environ, state, encoder, hello)
            return UpgradedResponse()

        self._app.get("/past")(state.past)

        @self._app.route("/control", websocket=True)
        def controller() -> Response:
            require_origin()
            if control is None:
                abort(403, "This drive can only be watched: it was started without --allow-control.")
            serve_controller(request.environ, state, control, commands, wheel=wheel)
            return UpgradedResponse()
