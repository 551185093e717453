"""What the IEEE PHM 2012 challenge asked: which bearings to learn from, where the others end, what they had left.

Numbers of files are those of the published folders ``Learning_set``, ``Test_set`` and ``Full_Test_Set``; the remaining
lives were printed after the challenge. With 10 s a file the two agree for ten of eleven bearings.
"""

from __future__ import annotations

from dataclasses import dataclass

PERIOD_S = 10.0

LEARNING_FILES = {
    "Bearing1_1": 2803,
    "Bearing1_2": 871,
    "Bearing2_1": 911,
    "Bearing2_2": 797,
    "Bearing3_1": 515,
    "Bearing3_2": 1637,
}
"""Files of each learning bearing, all of which ran to failure."""


@dataclass(frozen=True)
class Question:
    """One truncated bearing."""

    files: int
    """Files that a contestant was given."""
    full_files: int
    """Files until its failure, published later."""
    printed_s: float
    """Remaining life in seconds as it was printed."""

    @property
    def remaining_s(self) -> float:
        """Remaining life in seconds by the files themselves.

        It is the printed one but for Bearing1_4, for which 339 s were printed and 289 files, 2890 s, were left.
        """
        return PERIOD_S * (self.full_files - self.files)


QUESTIONS = {
    "Bearing1_3": Question(1802, 2375, 5730.0),
    "Bearing1_4": Question(1139, 1428, 339.0),
    "Bearing1_5": Question(2302, 2463, 1610.0),
    "Bearing1_6": Question(2302, 2448, 1460.0),
    "Bearing1_7": Question(1502, 2259, 7570.0),
    "Bearing2_3": Question(1202, 1955, 7530.0),
    "Bearing2_4": Question(612, 751, 1390.0),
    "Bearing2_5": Question(2002, 2311, 3090.0),
    "Bearing2_6": Question(572, 701, 1290.0),
    "Bearing2_7": Question(172, 230, 580.0),
    "Bearing3_3": Question(352, 434, 820.0),
}
"""The eleven test bearings in the challenge's order."""


def learning_lives_s() -> dict[str, float]:
    """Life of each learning bearing in seconds, from its first file to its last."""
    return {name: PERIOD_S * (files - 1) for name, files in LEARNING_FILES.items()}
