"""One browser's connection for a person who controls the drive: orders come in, nothing goes out but its number.

Orders are JSON texts: ``{"do": "pause"}``, ``resume``, ``reset``, ``take``, ``back``; and, again and again while the
person is at the wheel, ``{"keys": ["left", "up"]}``. Anything else ends the connection.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

from simple_websocket import ConnectionClosed

from nacdrive.drivers.human import KEYS, HumanControl
from nacdrive.web.stream import Stage
from nacdrive.web.stream_socket import PATIENCE_S, accept

numbers = itertools.count(1)


def attend_person(environ: dict[str, Any], stage: Stage, control: HumanControl) -> None:
    """Obey one browser until it leaves or the run ends; runs in its own thread."""
    socket, who = accept(environ), next(numbers)
    try:
        socket.send(json.dumps({"you": who}))
        while not stage.closed:
            said = socket.receive(timeout=PATIENCE_S)
            if said is not None and not obey(control, who, said):
                socket.close(message="not an order")
                break
    except (ConnectionClosed, OSError):
        # The browser has gone, with or without a word.
        pass
    finally:
        control.release(who, "the browser has gone")


def obey(control: HumanControl, who: int, said: str | bytes) -> bool:
    """Carry out an order of browser ``who``; False if it is none."""
    try:
        order = json.loads(said)
    except (ValueError, RecursionError):
        return False
    match order:
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
        case {"keys": list(keys)} if all(key in KEYS for key in keys):
            control.set_keys(who, keys)
        case _:
            return False
    return True
