"""The page's HTTP face: the files of ``server/www`` and the stream of a drive, nothing else."""

from __future__ import annotations

from typing import Any

from flask import Flask, Response, abort, request, send_from_directory

from nacdrive.common.paths import shipped
from nacdrive.drivers.human import HumanControl
from nacdrive.web.auth import HEADERS, Guard
from nacdrive.web.control_socket import attend_person
from nacdrive.web.encoder import Encoder
from nacdrive.web.stream import Stage
from nacdrive.web.stream_socket import attend


def base_app(guard: Guard, mode: str) -> Flask:
    """An application that serves the page's files to whom ``guard`` lets in; ``mode`` tells the page what it shows."""
    app = Flask("nacdrive.web", static_folder=None)
    www = shipped("www")

    @app.before_request
    def check() -> Response | None:
        return guard.check(request)

    @app.after_request
    def protect(answer: Response) -> Response:
        answer.headers.update(HEADERS)
        return answer

    @app.errorhandler(403)
    def refused(error: Any) -> tuple[str, int, dict[str, str]]:
        return f"{error.description}\n", 403, {"Content-Type": "text/plain; charset=utf-8"}

    @app.get("/")
    def page() -> Response:
        return send_from_directory(www, "index.html")

    @app.get("/<path:name>")
    def file(name: str) -> Response:
        return send_from_directory(www, name)

    @app.get("/what")
    def what() -> dict[str, str]:
        return {"mode": mode}

    return app


def live_app(stage: Stage, guard: Guard, hello: dict[str, Any], control: HumanControl | None = None) -> Flask:
    """The application of a running drive: page and stream, and a way in for orders where there is a ``control``."""
    app = base_app(guard, "live")
    encoder = Encoder()

    @app.route("/stream", websocket=True)
    def stream() -> Response:
        page_only()
        with stage.viewer():
            attend(request.environ, stage, encoder, hello)
        return Hijacked()

    @app.route("/control", websocket=True)
    def person() -> Response:
        page_only()
        if control is None:
            abort(403, "This drive can only be watched: it was started without --allow-control.")
        attend_person(request.environ, stage, control)
        return Hijacked()

    return app


def page_only() -> None:
    """Refuse a socket that no browser's page opens: the guard has compared the origin of those that have one."""
    if request.headers.get("Origin") is None:
        abort(403, "This connection is for the page only.")


class Hijacked(Response):
    """The answer to a request whose connection the stream has taken over."""

    def __call__(self, *_: Any) -> Any:
        """Tell werkzeug that there is nothing left to answer on."""
        raise ConnectionError
