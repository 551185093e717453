"""Bearings: vibration recordings in their published formats, features of them, labels of remaining life."""

from nacdrive.data.bearings.bearing import Bearing
from nacdrive.data.bearings.folders import open_bearings
from nacdrive.data.bearings.published import PublishedBearing, read_published_features

__all__ = ["Bearing", "PublishedBearing", "open_bearings", "read_published_features"]
