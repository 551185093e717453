"""Folders of made-up files: they carry a marker, and whoever reads one says so beside every number."""

from __future__ import annotations

from pathlib import Path

MARKER = "MADE-UP.txt"
SENTENCE = "Every file here was made up by nacdrive in the data set's format. Nothing here was measured.\n"


def is_made_up(folder: Path) -> bool:
    """Whether ``folder`` holds made-up files."""
    return (folder / MARKER).is_file()
