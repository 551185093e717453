"""The page's server: publishes a stream of Ticks to any number of browsers without slowing the loop that makes them."""

from nacdrive.web.card import Card
from nacdrive.web.server import LiveServer
from nacdrive.web.stream import DriveResult

__all__ = ["Card", "DriveResult", "LiveServer"]
