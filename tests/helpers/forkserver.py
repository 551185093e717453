"""The server that worker processes are forked from, itself forked from the process of the tests.

Started as Python starts it, it imports anew what that process has imported: seconds for each of xdist's.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from multiprocessing import connection, forkserver, resource_tracker

AS_KNOWN_HERE = sys.platform == "linux" and sys.version_info < (3, 14)
"""From Python 3.14 on the server and who asks it share a key."""


def fork_server(preload: Iterable[str]) -> None:
    """Make the server, with ``preload`` imported, while this process has no threads of its own beside xdist's."""
    for name in preload:
        # An extra that is missing is missed by the tests that need it.
        with suppress(ImportError):
            import_module(name)
    resource_tracker.ensure_running()
    address = connection.arbitrary_address("AF_UNIX")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        os.chmod(address, 0o600)
        listener.listen()
        alive, until = os.pipe()
        pid = os.fork()
        if pid == 0:
            serve(listener.fileno(), alive)
    os.close(alive)
    server = forkserver._forkserver  # type: ignore[attr-defined]
    server._forkserver_address, server._forkserver_alive_fd, server._forkserver_pid = address, until, pid


def serve(listener: int, alive: int) -> None:
    """Fork until nobody holds the other end of ``alive``; with no file of the tests open, and deaf to Ctrl-C."""
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
        first = 3
        for kept in sorted((listener, alive, resource_tracker.getfd())):
            os.closerange(first, kept)
            first = kept + 1
        os.closerange(first, max(map(int, os.listdir("/proc/self/fd"))) + 1)
        forkserver.main(listener, alive, [])
    finally:
        os._exit(0)
