"""The socket.io server that the Udacity simulator connects to."""

from nacdrive.envs.udacity.server import Bridge
from nacdrive.envs.udacity.wheel import Decision

__all__ = ["Bridge", "Decision"]
