"""Files are whole or absent."""

from __future__ import annotations

import errno
import json
import tempfile
from pathlib import Path

import pytest

from nacdrive.common.errors import UserError
from nacdrive.common.files import atomic_path, os_error_sentence, read_json, write_json, write_text


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


def test_a_file_that_grew_too_large_is_named(tmp_path: Path) -> None:
    # Writes raise this without a name: past ``ulimit -f``, or past what the file system takes.
    large = OSError(errno.EFBIG, "File too large")
    assert (os_error_sentence(large) or "").startswith("a file grew too large")
    with pytest.raises(OSError, match="too large") as caught, atomic_path(tmp_path / "x"):
        raise large
    assert (os_error_sentence(caught.value) or "").startswith(f"cannot use {tmp_path / 'x'}: a file grew too large")
    assert not list(tmp_path.iterdir())


def test_a_machine_without_room_for_temporary_files_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nowhere"])
    with pytest.raises(FileNotFoundError) as caught:
        tempfile.gettempdir()
    assert "TMPDIR" in (os_error_sentence(caught.value) or "")


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
