"""``ArenaServer``: an arena on a page of its own, for any number of browsers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from threading import Lock
from typing import Any

from flask import Flask, Response, abort, request

from nacdrive.drivers.human import HumanControl
from nacdrive.drivers.tick import Tick
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.web.arena_socket import FrameEncoder, serve_arena_viewer
from nacdrive.web.arena_state import ArenaState, result_of
from nacdrive.web.auth import AccessControl
from nacdrive.web.control_socket import serve_controller
from nacdrive.web.http_server import HttpServer, UpgradedResponse, base_app, require_origin
from nacdrive.web.server import GOODBYE_S


class ArenaServer(HttpServer):
    """Shows an arena; strictly read-only without ``control``, under the same rules as ``LiveServer``.

    Args:
        host: Address to serve on.
        port: Port to serve on; 0 takes a free one.
        title: Who drives on what.
        names: Of the contestants.
        people: Names of those that a person drives.
        announce: Called with a sentence when a viewer from elsewhere has come in.
        control: What people at browsers may do.
        set_camera: Called, where there is a ``control``, with what somebody made of everybody's camera.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8090,
        title: str = "nacdrive arena",
        *,
        names: Sequence[str],
        people: Sequence[str] = (),
        announce: Callable[[str], None] = print,
        control: HumanControl | None = None,
        set_camera: Callable[[CameraNoise], None] = lambda noise: None,
    ) -> None:
        self._state = ArenaState(len(names))
        self._camera, self._lock, self._set_camera = CameraNoise(), Lock(), set_camera
        if control is not None:
            self._state.set(control=control.state)
            control.on_change = lambda: self._state.set(control=control.state)
        hello = {
            "title": title,
            "names": list(names),
            "people": [list(names).index(name) for name in people],
            "control": control is not None,
        }
        access = AccessControl(host, announce)
        app = arena_app(self._state, access, hello, control, self._wish)
        super().__init__(host, port, app, access)

    @property
    def viewers(self) -> int:
        """How many browsers are watching now."""
        return self._state.viewers

    def wait_for_viewer(self, timeout_s: float | None = None) -> bool:
        """Wait until somebody watches; False if nobody has come within ``timeout_s`` seconds (None: wait on)."""
        return self._state.wait_for_viewers(True, timeout_s)

    def begin(self, episode: int, seed: int, track: str) -> None:
        """A track begins, or begins anew."""
        self._state.begin(episode, seed, track)

    def tick(self, index: int, tick: Tick) -> None:
        """Show a decision of contestant ``index``; returns at once."""
        self._state.publish(index, tick)

    def camera(self, noise: CameraNoise, since_s: float) -> None:
        """Say what holds for everybody's camera since when."""
        with self._lock:
            self._camera = noise
        self._state.set(camera=asdict(noise), since_s=round(since_s, 2))

    def result(
        self,
        seed: int,
        ranked: Sequence[Mapping[str, Any]],
        totals: Sequence[Mapping[str, Any]] = (),
        following: str = "",
    ) -> None:
        """Show who was best, until the next track begins."""
        self._state.set(result=result_of(seed, ranked, totals, following))

    def stop(self) -> None:
        """Say goodbye to the viewers and free the port."""
        self._state.close()
        if self._server is not None:
            self._state.wait_for_viewers(False, GOODBYE_S)
        super().stop()

    def _wish(self, camera: Mapping[str, Any]) -> None:
        """Somebody has moved sliders: all that is not on the page stays as it was at the start."""
        with self._lock:
            self._camera = replace(self._camera, **camera)
            wanted = self._camera
        self._set_camera(wanted)


def arena_app(
    state: ArenaState,
    access: AccessControl,
    hello: dict[str, Any],
    control: HumanControl | None,
    wish: Callable[[Mapping[str, Any]], None],
) -> Flask:
    """The application of an arena: page and stream, and a way in for commands where there is a ``control``."""
    app = base_app(access, "arena", page="arena.html")
    encoder = FrameEncoder(len(hello["names"]))

    @app.route("/stream", websocket=True)
    def stream() -> Response:
        require_origin()
        with state.viewer():
            serve_arena_viewer(request.environ, state, encoder, hello)
        return UpgradedResponse()

    @app.route("/control", websocket=True)
    def controller() -> Response:
        require_origin()
        if control is None:
            abort(403, "This arena can only be watched: it was started without --allow-control.")
        serve_controller(request.environ, state, control, wish, wheel=bool(hello["people"]))
        return UpgradedResponse()

    return app
