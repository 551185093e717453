"""The lines of docs/data.md that open recordings in other libraries do what they say."""

import re
from pathlib import Path

import pytest

from nacdrive.datasets.recording import Recording
from tests.helpers.exchange import SAMPLE

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/data.md").read_text(), re.DOTALL)


def run(library, monkeypatch, tmp_path):
    """The names that the block of ``library`` binds."""
    pytest.importorskip(library, reason=f"needs {library}")
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    block = next(block for block in BLOCKS if re.match(rf"(import|from) {library}\b", block))
    names = {}
    exec(block, names)
    return names


def test_pandas_opens_an_episode(monkeypatch, tmp_path):
    table = run("pandas", monkeypatch, tmp_path)["frame_by_frame"]
    assert table["speed_mps"].tolist() == Recording.open(SAMPLE).load(0).speed_mps.tolist()
    assert table["frame"][0]["bytes"] == Recording.open(SAMPLE).load(0).frames[0]


def test_polars_scans_all_episodes(monkeypatch, tmp_path):
    recording = Recording.open(SAMPLE)
    speed = [float(value) for i in range(3) for value in recording.load(i).speed_mps]
    assert run("polars", monkeypatch, tmp_path)["mean_speed"] == pytest.approx(sum(speed) / 647)


def test_duckdb_counts_choices(monkeypatch, tmp_path):
    assert sum(count for _, count in run("duckdb", monkeypatch, tmp_path)["counts"]) == 647


def test_datasets_shows_frames_as_images(monkeypatch, tmp_path):
    names = run("datasets", monkeypatch, tmp_path)
    assert len(names["rows"]) == 647
    assert names["picture"].size == (96, 96)


def test_each_library_of_the_page_has_its_lines():
    assert len(BLOCKS) == 4
