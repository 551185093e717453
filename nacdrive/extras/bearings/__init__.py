"""Bearings: vibration recordings in their published formats, features and labels of them, and their remaining life: the
task, runs to failure, wear and its prior, and the PHM-2012 challenge.
"""

from nacdrive.extras.bearings.bearing import Bearing
from nacdrive.extras.bearings.layouts import open_bearings
from nacdrive.extras.bearings.published import PublishedBearing, read_published_features

__all__ = ["Bearing", "PublishedBearing", "open_bearings", "read_published_features"]
