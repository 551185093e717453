"""Bearings: vibration recordings in their published formats, features of them, labels of remaining life."""

from nacdrive.datasets.bearings.bearing import Bearing
from nacdrive.datasets.bearings.layouts import open_bearings
from nacdrive.datasets.bearings.published import PublishedBearing, read_published_features

__all__ = ["Bearing", "PublishedBearing", "open_bearings", "read_published_features"]
