"""One browser's connection for a person who controls the drive: commands come in, only its number goes out.

Commands are JSON texts: ``{"do": "pause"}``, ``resume``, ``reset``, ``take``, ``back``; and, again and again while the
person drives, ``{"keys": ["left", "up"]}``, with a gamepad also ``"axes": [steering, pedal]``, -1 .. 1 each (right
and accelerating are positive). Cards of the page may know more, each a text of one name, such as ``{"camera": {...}}``.
Anything else ends the connection; of too many commands a second to a card some are passed over.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from simple_websocket import ConnectionClosed

from nacdrive.drivers.human import KEYS, HumanControl
from nacdrive.web.card import Command
from nacdrive.web.stream import StreamState
from nacdrive.web.stream_socket import RECEIVE_TIMEOUT_S, Allowance, accept

numbers = itertools.count(1)
NO_COMMANDS: Mapping[str, Command] = {}


def serve_controller(
    environ: dict[str, Any],
    state: StreamState,
    control: HumanControl,
    commands: Mapping[str, Command] = NO_COMMANDS,
    *,
    wheel: bool = True,
) -> None:
    """Carry out what one browser wants until it leaves or the run ends; runs in its own thread.

    Without ``wheel`` nobody can take it, for no person drives here; ``commands`` are those of the cards.
    """
    socket, who, allowance = accept(environ), next(numbers), Allowance()
    try:
        socket.send(json.dumps({"you": who}))
        while not state.closed:
            text = socket.receive(timeout=RECEIVE_TIMEOUT_S)
            if text is not None and not handle_command(control, who, text, commands, allowance, wheel=wheel):
                socket.close(message="not a command")
                break
    except (ConnectionClosed, OSError):
        # The browser has gone, with or without a word.
        pass
    finally:
        control.release(who, "the browser has gone")


def handle_command(
    control: HumanControl,
    who: int,
    text: str | bytes,
    commands: Mapping[str, Command] = NO_COMMANDS,
    allowance: Allowance | None = None,
    *,
    wheel: bool = True,
) -> bool:
    """Carry out a command of browser ``who``; False if it is none. To cards no more go than ``allowance`` gives."""
    try:
        command = json.loads(text)
    except (ValueError, RecursionError):
        return False
    match command:
        case {"do": "pause" | "resume" | "reset"} if control.state["person"] not in (None, who):
            pass  # that is up to whoever drives
        case {"do": "pause"}:
            control.pause()
        case {"do": "resume"}:
            control.resume()
        case {"do": "reset"}:
            control.reset()
        case {"do": "take"} if wheel:
            control.acquire(who)
        case {"do": "back"} if wheel:
            control.release(who)
        case {"keys": list(keys), **more} if wheel and all(key in KEYS for key in keys) and more.keys() <= {"axes"}:
            axes = axes_of(more["axes"]) if "axes" in more else None
            if "axes" in more and axes is None:
                return False
            control.set_keys(who, keys, axes)
        case dict() if len(command) == 1 and command.keys() <= commands.keys():
            ((name, value),) = command.items()
            if (act := commands[name](value)) is None:
                return False
            if allowance is None or allowance.take(1.0):
                act()
        case _:
            return False
    return True


def axes_of(given: Any) -> tuple[float, float] | None:
    """Steering and pedal of a gamepad, -1 .. 1 each; None if they are none."""
    if not isinstance(given, list) or len(given) != 2:
        return None
    fit = all(type(value) in (int, float) and -1 <= value <= 1 for value in given)
    return (float(given[0]), float(given[1])) if fit else None
