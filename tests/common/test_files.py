"""Files are whole or absent."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from nacdrive.common.errors import UserError
from nacdrive.common.files import atomic_path, read_json, result_folder, write_json, write_text


def test_a_failed_write_keeps_the_old_content_and_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    write_text(target, "old")
    with pytest.raises(RuntimeError), atomic_path(target) as partial:
        partial.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_a_full_disk_is_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no space left on the disk.*kept"), atomic_path(tmp_path / "x") as partial:
        partial.write_text("half")
        raise OSError(errno.ENOSPC, "full")
    assert not list(tmp_path.iterdir())


def test_json_round_trip_and_nan_refused(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"x": [1, 2.5, None]})
    assert read_json(tmp_path / "a.json") == {"x": [1, 2.5, None]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", float("nan"))
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": [1, 2.5, None]}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe"], ids=["empty", "truncated", "not-utf8"])
def test_damaged_json_names_the_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.json is not readable as JSON"):
        read_json(tmp_path / "a.json")


def test_a_result_folder_is_never_overwritten_without_being_told(tmp_path: Path) -> None:
    result_folder(tmp_path)
    (tmp_path / "old").write_text("precious")
    with pytest.raises(UserError, match="already holds a result"):
        result_folder(tmp_path)
    assert result_folder(tmp_path, resume=True) == tmp_path
    assert (tmp_path / "old").read_text() == "precious"
    with pytest.raises(UserError, match="contradict"):
        result_folder(tmp_path, resume=True, overwrite=True)
    result_folder(tmp_path, overwrite=True)
    assert not (tmp_path / "old").exists()


def test_a_folder_of_somebody_else_is_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match="did not make"):
        result_folder(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_a_file_where_a_folder_belongs(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(UserError, match="is a file"):
        result_folder(tmp_path / "f", overwrite=True)
