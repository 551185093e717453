"""Tensor files: what was written comes back, and nothing else is taken for it."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.common.paths import shipped
from nacdrive.common.tensor_file import check_archive, checksum, read_tensor_file, write_tensor_file
from tests.helpers.nightly import daily

KIND = "nacdrive test file"
WEIGHTS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(0), "c": torch.tensor(3, dtype=torch.int64)}
CONTENT: dict[str, Any] = {
    "meta": '{"seed": 1}',
    "state": {0: [1, 2.5, None, True], "x": (torch.ones(2, dtype=torch.bool),)},
}
SHIPPED = sorted(shipped("agents").rglob("*.pt"))


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    write_tensor_file(tmp_path / "f.pt", KIND, 2, CONTENT, WEIGHTS)
    data = read_tensor_file(tmp_path / "f.pt", KIND, 2)
    assert checksum(data) == checksum({"kind": KIND, "version": 2, **CONTENT, "tensors": WEIGHTS})
    assert torch.equal(data["tensors"]["a"], WEIGHTS["a"])


def without_checksum(path: Path, **changes: Any) -> None:
    content = torch.load(path, weights_only=True) | changes
    del content["sha256"]
    torch.save(content, path)


def test_files_from_before_there_were_checksums_are_read(tmp_path: Path) -> None:
    write_tensor_file(tmp_path / "f.pt", KIND, 2, CONTENT, WEIGHTS)
    without_checksum(tmp_path / "f.pt")
    assert torch.equal(read_tensor_file(tmp_path / "f.pt", KIND, 2)["tensors"]["a"], WEIGHTS["a"])


@pytest.mark.parametrize(
    "change",
    [
        {"tensors": WEIGHTS | {"a": WEIGHTS["a"] + 1e-3}},
        {"tensors": WEIGHTS | {"a": WEIGHTS["a"].reshape(3, 2)}},
        {"tensors": WEIGHTS | {"a": WEIGHTS["a"].double()}},
        {"tensors": {("d" if name == "a" else name): value for name, value in WEIGHTS.items()}},
        {"meta": '{"seed": 2}'},
        {"more": 1},
    ],
    ids=["value", "shape", "type", "name", "text", "more"],
)
def test_any_change_of_the_content_is_found(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "f.pt"
    write_tensor_file(path, KIND, 2, CONTENT, WEIGHTS)
    torch.save(torch.load(path, weights_only=True) | change, path)
    with pytest.raises(UserError, match=r"f\.pt is damaged \(its checksum does not match\): copy it anew\."):
        read_tensor_file(path, KIND, 2, advice="copy it anew")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    write_tensor_file(tmp_path / "f.pt", KIND, 2, {}, WEIGHTS | {"a": torch.tensor([1.0, value])})
    with pytest.raises(UserError, match=r"not finite numbers \(in a\)"):
        read_tensor_file(tmp_path / "f.pt", KIND, 2)


def name_of(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


@pytest.mark.parametrize("path", daily(SHIPPED, ["carracing-nac_steady", "udacity-pilotnet"], name_of))
def test_no_flipped_bit_of_a_shipped_model_changes_what_is_loaded(path: Path, tmp_path: Path) -> None:
    data, draw = path.read_bytes(), random.Random(0)
    kind, version = (torch.load(path, weights_only=True)[key] for key in ("kind", "version"))
    good, loaded = checksum(read_tensor_file(path, kind, version)), 0
    for case in range(40):
        damaged = bytearray(data)
        if case == 0:
            damaged[len(data) // 3 : len(data) // 3 + 4096] = bytes(4096)
        for _ in range(1 if case % 2 else 50):
            bit = draw.randrange(8 * len(data))
            damaged[bit // 8] ^= 1 << bit % 8
        (tmp_path / "m.pt").write_bytes(damaged)
        try:
            # A bit of the padding between two tensors says nothing.
            assert checksum(read_tensor_file(tmp_path / "m.pt", kind, version)) == good
            loaded += 1
        except UserError as error:
            assert "m.pt" in str(error) and "\n" not in str(error)
    assert loaded <= 4


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 damaged", b"PK\x05\x06" + bytes(18)])
def test_another_kind_of_file_is_told_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f.pt").write_bytes(content)
    with pytest.raises(UserError, match="truncated or of another kind"):
        read_tensor_file(tmp_path / "f.pt", KIND, 2)


def test_kind_and_version_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "f.pt"
    write_tensor_file(path, KIND, 2, {}, {})
    with pytest.raises(UserError, match="is no policy of nacdrive: it is a nacdrive test file"):
        read_tensor_file(path, "nacdrive policy", 2)
    with pytest.raises(UserError, match="has version 2, and this nacdrive reads version 3"):
        read_tensor_file(path, KIND, 3)
    torch.save({"weights": torch.zeros(3)}, path)
    with pytest.raises(UserError, match="written by another program"):
        read_tensor_file(path, KIND, 2)
    with pytest.raises(UserError, match=r"there is no test file .*none\.pt"):
        read_tensor_file(tmp_path / "none.pt", KIND, 2)


def test_a_write_that_fails_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "f.pt"
    write_tensor_file(path, KIND, 2, {}, WEIGHTS)
    before = path.read_bytes()
    with pytest.raises(TypeError, match="cannot hold a set"):
        write_tensor_file(path, KIND, 2, {"x": {1}}, WEIGHTS)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_an_archive_is_bounded_before_it_is_inflated(tmp_path):
    path = tmp_path / "over.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(1 << 20))
    with zipfile.ZipFile(path) as archive, pytest.raises(ValueError, match="inflated to much more"):
        check_archive(archive, path.stat().st_size)
    with pytest.raises(UserError, match="truncated or of another kind"):
        read_tensor_file(path, None, None)
    write_tensor_file(tmp_path / "sound.pt", "nacdrive test", 1, {}, {"w": torch.zeros(100_000)})
    with zipfile.ZipFile(tmp_path / "sound.pt") as archive:
        check_archive(archive, (tmp_path / "sound.pt").stat().st_size)
