"""One browser's connection for a person who controls the drive: commands come in, only its number goes out.

Commands are JSON texts: ``{"do": "pause"}``, ``resume``, ``reset``, ``take``, ``back``; and, again and again while the
person drives, ``{"keys": ["left", "up"]}``, with a gamepad also ``"axes": [steering, pedal]``, -1 .. 1 each (right
and accelerating are positive). Anything else ends the connection.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

from simple_websocket import ConnectionClosed

from nacdrive.drivers.human import KEYS, HumanControl
from nacdrive.web.stream import StreamState
from nacdrive.web.stream_socket import RECEIVE_TIMEOUT_S, accept

numbers = itertools.count(1)


def serve_controller(environ: dict[str, Any], state: StreamState, control: HumanControl) -> None:
    """Carry out what one browser wants until it leaves or the run ends; runs in its own thread."""
    socket, who = accept(environ), next(numbers)
    try:
        socket.send(json.dumps({"you": who}))
        while not state.closed:
            text = socket.receive(timeout=RECEIVE_TIMEOUT_S)
            if text is not None and not handle_command(control, who, text):
                socket.close(message="not a command")
                break
    except (ConnectionClosed, OSError):
        # The browser has gone, with or without a word.
        pass
    finally:
        control.release(who, "the browser has gone")


def handle_command(control: HumanControl, who: int, text: str | bytes) -> bool:
    """Carry out a command of browser ``who``; False if it is none."""
    try:
        command = json.loads(text)
    except (ValueError, RecursionError):
        return False
    match command:
        case {"do": "pause"}:
            control.pause()
        case {"do": "resume"}:
            control.resume()
        case {"do": "reset"}:
            control.reset()
        case {"do": "take"}:
            control.acquire(who)
        case {"do": "back"}:
            control.release(who)
        case {"keys": list(keys), **more} if all(key in KEYS for key in keys) and more.keys() <= {"axes"}:
            axes = axes_of(more["axes"]) if "axes" in more else None
            if "axes" in more and axes is None:
                return False
            control.set_keys(who, keys, axes)
        case _:
            return False
    return True


def axes_of(given: Any) -> tuple[float, float] | None:
    """Steering and pedal of a gamepad, -1 .. 1 each; None if they are none."""
    if not isinstance(given, list) or len(given) != 2:
        return None
    if not all(type(value) in (int, float) and -1 <= value <= 1 for value in given):
        return None
    return float(given[0]), float(given[1])
