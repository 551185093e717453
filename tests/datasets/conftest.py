"""A small real recording."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.episodes import begin, make_episode


@pytest.fixture
def recording_folder(tmp_path: Path) -> Path:
    """A recording of three episodes."""
    folder = tmp_path / "recording"
    writer = begin(folder)
    for seed in (3_000_000, 3_000_001, 3_000_002):
        writer.add(make_episode(seed))
    return folder
