"""What the simulator's port says to browsers and to other programs that try it."""

from __future__ import annotations

from collections.abc import Callable

from flask import Flask, request

TEXT = (
    "This is nacdrive's port for the Udacity simulator, which connects to it by itself: start the simulator and choose "
    "Autonomous Mode. The page to watch is at the address that nacdrive printed.\n"
)


def web_app(say: Callable[[str, str], None]) -> Flask:
    """An application that explains itself, and tells ``say`` of who asked."""
    app = Flask("nacdrive.envs.udacity", static_folder=None)

    @app.before_request
    def explain() -> tuple[str, int, dict[str, str]]:
        agent = request.headers.get("User-Agent", "a program without a name")[:80]
        if request.headers.get("Upgrade", "").lower() == "websocket":
            say(
                "stranger",
                f"A plain websocket client ({agent}) asked for {request.path[:80]}: not the desktop simulator. "
                "The builds in Udacity's workspaces speak another protocol.",
            )
        else:
            say("stranger", f"Not the simulator, but {agent}, asked for {request.path[:80]}.")
        return TEXT, 200 if request.path == "/" else 404, {"Content-Type": "text/plain; charset=utf-8"}

    return app
