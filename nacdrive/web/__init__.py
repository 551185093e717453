"""The page's server: publishes a stream of Ticks to any number of browsers without slowing the loop that makes them."""

from nacdrive.web.server import LiveServer
from nacdrive.web.stream import DriveResult
from nacdrive.web.what_if_process import WhatIfSource

__all__ = ["DriveResult", "LiveServer", "WhatIfSource"]
