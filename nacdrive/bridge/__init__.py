"""The socket.io server that the Udacity simulator connects to."""

from nacdrive.bridge.server import Bridge
from nacdrive.bridge.wheel import Decision

__all__ = ["Bridge", "Decision"]
