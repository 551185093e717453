"""The page's server: publishes a stream of Ticks to any number of browsers without slowing the loop that makes them."""

from nacdrive.live.server import LiveServer

__all__ = ["LiveServer"]
