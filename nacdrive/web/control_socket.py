"""One browser's connection for a person who controls the drive: commands come in, only its number goes out.

Commands are JSON texts: ``{"do": "pause"}``, ``resume``, ``reset``, ``take``, ``back``; and, again and again while the
person drives, ``{"keys": ["left", "up"]}``, with a gamepad also ``"axes": [steering, pedal]``, -1 .. 1 each (right
and accelerating are positive). In an arena also ``{"camera": {"brightness": 0.5, "delay_steps": 2}}``, any of the four
of ``CAMERA``, which holds for all contestants. Anything else ends the connection; of too many cameras a second some are
passed over.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

from simple_websocket import ConnectionClosed

from nacdrive.drivers.human import KEYS, HumanControl
from nacdrive.web.allowance import Allowance
from nacdrive.web.stream_socket import RECEIVE_TIMEOUT_S, accept
from nacdrive.web.viewers import Viewers

CAMERA: dict[str, tuple[type, float, float]] = {
    "brightness": (float, 0.1, 3.0),
    "noise": (float, 0.0, 0.5),
    "blackout": (float, 0.0, 1.0),
    "delay_steps": (int, 0, 12),
}
"""What may be done to the cameras of an arena while it is driven: kind, least and most."""
SetCamera = Callable[[Mapping[str, float]], None]

numbers = itertools.count(1)


def serve_controller(
    environ: dict[str, Any],
    state: Viewers,
    control: HumanControl,
    set_camera: SetCamera | None = None,
    *,
    wheel: bool = True,
) -> None:
    """Carry out what one browser wants until it leaves or the run ends; runs in its own thread.

    Without ``wheel`` nobody can take it, for no person drives here; without ``set_camera`` there are no sliders.
    """
    socket, who = accept(environ), next(numbers)
    if set_camera is not None:
        set_camera = within(Allowance(), set_camera)
    try:
        socket.send(json.dumps({"you": who}))
        while not state.closed:
            text = socket.receive(timeout=RECEIVE_TIMEOUT_S)
            if text is not None and not handle_command(control, who, text, set_camera, wheel=wheel):
                socket.close(message="not a command")
                break
    except (ConnectionClosed, OSError):
        # The browser has gone, with or without a word.
        pass
    finally:
        control.release(who, "the browser has gone")


def within(allowance: Allowance, set_camera: SetCamera) -> SetCamera:
    """``set_camera``, called no more often than ``allowance`` gives."""

    def call(camera: Mapping[str, float]) -> None:
        if allowance.take(1.0):
            set_camera(camera)

    return call


def handle_command(
    control: HumanControl, who: int, text: str | bytes, set_camera: SetCamera | None = None, *, wheel: bool = True
) -> bool:
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
        case {"do": "take"} if wheel:
            control.acquire(who)
        case {"do": "back"} if wheel:
            control.release(who)
        case {"camera": dict(given), **more} if set_camera is not None and not more and given:
            camera = camera_of(given)
            if camera is None:
                return False
            set_camera(camera)
        case {"keys": list(keys), **more} if wheel and all(key in KEYS for key in keys) and more.keys() <= {"axes"}:
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


def camera_of(given: Mapping[str, Any]) -> dict[str, float] | None:
    """Settings of the cameras, each within the limits of ``CAMERA``; None if they are none."""
    found: dict[str, float] = {}
    for name, value in given.items():
        if name not in CAMERA:
            return None
        kind, least, most = CAMERA[name]
        known = (int,) if kind is int else (int, float)
        if type(value) not in known or not least <= value <= most:
            return None
        found[name] = kind(value)
    return found
