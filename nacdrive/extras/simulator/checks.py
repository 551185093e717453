"""Whether this machine is ready for the Udacity simulator, by doing on a small scale what a drive does.

Packages are imported in the checks: one that is missing or broken is what they are to find.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import takewhile
from threading import Thread
from typing import TYPE_CHECKING

from nacdrive.common.errors import UserError, instead_of
from nacdrive.common.net import listen

if TYPE_CHECKING:
    from nacdrive.envs.udacity import UdacityEnv

LOWEST = {
    "python-socketio": (5, 11),
    "python-engineio": (4, 9),
    "simple-websocket": (1, 0),
    "eventlet": (0, 40),
    "Flask": (3, 1),
}
"""Versions that the simulator's server was tried with, and newer ones."""
LINK_S = 1.0


def check_server_versions() -> str:
    """Versions of what serves the simulator; ``UserError`` if one is missing, too old, or another package."""
    import socketio

    versions = {}
    for name, lowest in LOWEST.items():
        wanted = ".".join(map(str, lowest))
        with instead_of(PackageNotFoundError, f"{name} is missing: run pip install '{name}>={wanted}'."):
            versions[name] = version(name)
        if release(versions[name]) < lowest:
            # What many drive.py pin: it cannot serve modern clients, and nacdrive needs the newer one's sessions.
            raise UserError(
                f"{name} {versions[name]} is too old (a drive.py may have pinned it): run pip install "
                f"'{name}>={wanted}', and keep the old program in an environment of its own."
            )
    if not hasattr(socketio, "WSGIApp"):
        problem = "'import socketio' finds another package of that name"
        raise UserError(f"{problem}: run pip uninstall socketio, then pip install --force-reinstall python-socketio.")
    return ", ".join(f"{name} {versions[name]}" for name in ("python-socketio", "python-engineio", "eventlet"))


def release(text: str) -> tuple[int, ...]:
    """The leading numbers of a version."""
    return tuple(map(int, takewhile(str.isdigit, text.split("."))))


def check_port(host: str, port: int) -> str:
    """Whether the simulator's port is free; ``UserError`` if not, which says who has it where that can be told."""
    try:
        listen(host, port).close()
    except UserError as error:
        raise UserError(f"{str(error).split(':')[0]}{who_is_there(port)}") from error
    return f"port {port} is free on {host}"


def who_is_there(port: int) -> str:
    """What is known of the program that has the port, and what to do."""
    from nacdrive.envs.udacity.server import LANDING_PAGE

    answer = b""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as connection:
        connection.settimeout(1.0)
        connection.sendall(b"GET / HTTP/1.0\r\nUser-Agent: nacdrive doctor\r\n\r\n")
        while part := connection.recv(4096):
            answer += part
    if LANDING_PAGE[:30].encode() in answer:
        return ": another 'nacdrive drive --sim udacity' is running; end it (Ctrl-C) before you start one more."
    if answer:
        return ": another server has it, perhaps a drive.py; end it. The simulator always connects to 4567."
    return ": end the program that has it. The simulator always connects to 4567."


def check_link() -> str:
    """Drive an emulated simulator for a second on a free port; ``UserError`` if it hardly gets through."""
    import numpy as np

    from nacdrive.datasets.images import encode_jpeg
    from nacdrive.envs.udacity import UdacityEnv
    from nacdrive.extras.simulator.client import Telemetry, UdacityClient

    state = Telemetry(0.0, 0.0, 0.0, encode_jpeg(np.full((160, 320, 3), 128, np.uint8)))
    with (
        UdacityEnv(port=0) as env,
        UdacityClient("127.0.0.1", env.port, lambda: state, lambda steering, throttle: None) as client,
    ):
        Thread(target=answer_all, args=(env,), daemon=True).start()
        began = time.monotonic()
        while time.monotonic() - began < LINK_S or (not client.steers and time.monotonic() - began < 5):
            client.wait(0.1)
            client.frame()
    if not client.connections:
        raise UserError(
            "a program here cannot connect to another one on 127.0.0.1: a firewall or security program forbids it; let "
            "Python accept connections (on Windows: Windows Security, Firewall, Allow an app)."
        )
    rate = client.steers / (time.monotonic() - began)
    if rate < 20:
        what = f"an emulated simulator got {rate:.0f} commands a second, 20 are too few"
        raise UserError(f"{what}: a proxy, a security program that reads along, or a busy machine; end what else runs.")
    return f"an emulated simulator gets {rate:.0f} commands a second"


def answer_all(env: UdacityEnv) -> None:
    """Drive straight on until the environment is closed."""
    from nacdrive.drivers.constant import Constant
    from nacdrive.envs.udacity import DriveInterruptedError
    from nacdrive.rollout.rollout import rollout

    with suppress(DriveInterruptedError):
        while True:
            for _ in rollout(env, Constant(throttle=0.1), 0):
                pass
