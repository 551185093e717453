"""JSON and pictures of strangers: bounded before anything is done with them."""

from __future__ import annotations

import json
import os
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from nacdrive.common.errors import UserError
from nacdrive.common.foreign_json import MAX_DEPTH, parse, parse_object, read_json
from nacdrive.datasets import images
from nacdrive.datasets.episode_file import METADATA_KEY, NotAnEpisodeError, from_parquet, to_parquet
from nacdrive.datasets.images import ImageError, decode_image
from nacdrive.extras.bench.report import read_results
from nacdrive.training.log import read_rows
from tests.helpers.episodes import make_episode

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize("text", [DEEP, "1e999", '{"a": NaN}', "[-Infinity]", "{", b"\xff", None, 3])
def test_what_is_no_sound_json(text: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(text)


def test_depth_is_bounded_exactly() -> None:
    for depth in (1, MAX_DEPTH - 1, MAX_DEPTH):
        text = "[" * depth + "]" * depth
        assert json.dumps(parse(text)) == text
    with pytest.raises(ValueError, match="nested deeper"):
        parse("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
    assert parse_object('{"a": [1, 2.5, "x", null]}') == {"a": [1, 2.5, "x", None]}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(UserError, match="is no regular file"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe", b"[1]", b'{"key": "a", "status": "done", "asked": []}',
        b'{"key": 1, "status": "done", "asked": 3, "task": [], "scores": 1, "record": []}',
    ],
)  # fmt: skip
def test_results_that_are_none(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(UserError, match=r"results\.jsonl"):
        read_results([path])


def test_a_torn_or_deep_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"a": 1}\n' + DEEP + '\n{"a": 2')
    assert read_rows(path) == [{"a": 1}]


@pytest.mark.parametrize(
    "change", [{"schema_version": 1e999}, {"seed": 1e999}, {"seed": "x"}, {"meta": DEEP}, {"meta": [1]}, {"seed": None}]
)
def test_metadata_of_an_episode_that_is_none(change: dict[str, object]) -> None:
    table = pq.read_table(BytesIO(to_parquet(make_episode())))
    header = json.dumps(json.loads(table.schema.metadata[METADATA_KEY]) | change)
    header = header.replace(json.dumps(DEEP), DEEP)
    buffer = BytesIO()
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: header.encode()}), buffer)
    with pytest.raises(NotAnEpisodeError):
        from_parquet(buffer.getvalue())


@pytest.mark.parametrize("column", ["frame", "null frame", "expert_logits", "text"])
def test_columns_of_an_episode_that_are_none(column: str) -> None:
    table = pq.read_table(BytesIO(to_parquet(make_episode())))
    rows = len(table)
    if "frame" in column:
        data = pa.array([1] * rows) if column == "frame" else pa.array([None] * rows, pa.binary())
        made = pa.StructArray.from_arrays([data, pa.array(["x"] * rows)], names=["bytes", "path"])
        column = "frame"
    elif column == "text":
        made, column = pa.array(["x"] * rows), "steering"
    else:
        made = pa.array([None, *[[0.0] * 5] * (rows - 1)], pa.list_(pa.float32(), 5))
    buffer = BytesIO()
    pq.write_table(table.set_column(table.column_names.index(column), column, made), buffer)
    with pytest.raises(NotAnEpisodeError):
        from_parquet(buffer.getvalue())


def test_a_picture_is_measured_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = BytesIO()
    Image.new("1", (9500, 9500)).save(buffer, "PNG")
    with pytest.raises(ImageError, match="9500 x 9500 pixels are no frame"):
        decode_image(buffer.getvalue())
    monkeypatch.setattr(images, "MAX_PIXELS", 12)
    small = BytesIO()
    Image.fromarray(np.zeros((3, 4, 3), np.uint8)).save(small, "PNG")
    assert decode_image(small.getvalue()).shape == (3, 4, 3)
    monkeypatch.setattr(images, "MAX_PIXELS", 11)
    with pytest.raises(ImageError):
        decode_image(small.getvalue())
    gif = BytesIO()
    Image.new("L", (2, 2)).save(gif, "GIF")
    for data in (gif.getvalue(), b"", b"x"):
        # An ImageError is a sentence for people, wherever it ends.
        with pytest.raises(UserError, match="not a readable image"):
            decode_image(data)
