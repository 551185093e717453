"""A port that a server of a test can come back to."""

from __future__ import annotations

import itertools
import os
import socket

_PORTS = itertools.count(20_000 + os.getpid() * 7 % 10_000)


def lasting_port() -> int:
    """A free port below those that systems give to outgoing connections: between two servers of a test none of another
    process takes it.
    """
    for port in _PORTS:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")
