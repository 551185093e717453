"""The one reader and writer of ``.pt`` files: whole or absent, nothing executable, damage found before use.

A name that ends with ``.safetensors`` means the same content in that format, which model hubs and programs in other
languages read: text of one's own stands in its JSON header under ``__metadata__``.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nacdrive.common.errors import UserError, instead_of, quoted
from nacdrive.common.files import atomic_path
from nacdrive.common.foreign_json import parse_object

CHECKSUM = "sha256"
"""Where a file keeps the checksum of all else that it holds."""
TENSORS = "tensors"
"""Where a file keeps a network's weights."""
SAFETENSORS = ".safetensors"
"""How the names of files in the format of that name end."""
FORMAT = {"format": "pt"}
"""What other libraries want to find in a safetensors file of torch's; nothing of ours depends on it."""


def write_tensor_file(
    path: Path, kind: str, version: int, content: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None
) -> None:
    """Write what ``read_tensor_file`` can read, atomically; ``TypeError`` if the format cannot hold it.

    ``kind`` names the format, such as ``nacdrive policy``. ``content`` holds plain values, lists, dicts and tensors;
    for safetensors, text alone. ``tensors`` are a network's weights by name, stored on the CPU.
    """
    stored: dict[str, Any] = {"kind": kind, "version": version, **content}
    if tensors is not None:
        stored[TENSORS] = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    data = to_safetensors(stored) if path.suffix == SAFETENSORS else to_pt(stored)
    with atomic_path(path) as partial:
        partial.write_bytes(data)


def read_tensor_file(
    path: Path,
    kind: str | None,
    version: int | None,
    *,
    device: str | torch.device = "cpu",
    name: str = "",
    advice: str = "train or copy it anew",
) -> dict[str, Any]:
    """What was written with ``write_tensor_file``; older files, which hold no checksum, by their zip archive's CRCs.

    ``kind`` and ``version`` are those of the format that is wanted, None for any of nacdrive's. A ``UserError`` about a
    file that is missing, damaged, of another kind or version, or holds a weight that is not finite calls it by
    ``name``, or the last words of ``kind``, and gives ``advice``.
    """
    what = "model file" if kind is None else kind.removeprefix("nacdrive ")
    name = name or what
    if not path.is_file():
        raise UserError(f"there is no {name} {path}: check the path.")
    if path.suffix == ".onnx":
        raise UserError(f"{path} was exported, to drive alone: give the .pt or .safetensors that it was made of.")
    data = path.read_bytes()
    # A damaged file can make zipfile, pickle, safetensors and torch raise almost anything.
    with instead_of(Exception, f"{path} cannot be read as a {name}: it is truncated or of another kind; {advice}."):
        content, sound = from_safetensors(data, device) if path.suffix == SAFETENSORS else from_pt(data, device)
    stored_kind = content.get("kind") if isinstance(content, dict) else None
    if stored_kind != kind if kind is not None else not str(stored_kind).startswith("nacdrive "):
        instead = f"it is a {stored_kind}" if isinstance(stored_kind, str) else "it was written by another program"
        drives = ", or this one as --model of drive or eval" if stored_kind == "nacdrive policy" else ""
        raise UserError(f"{path} is no {what} of nacdrive: {instead}; give another file{drives}.")
    if version is not None and content.get("version") != version:
        problem = f"{path} has version {content.get('version')}, and this nacdrive reads version {version}"
        raise UserError(f"{problem}: train it anew or install the matching nacdrive.")
    if not sound:
        raise UserError(f"{path} is damaged (its checksum does not match): {advice}.")
    weights = content.get(TENSORS, {})
    if not isinstance(weights, dict) or not all(isinstance(value, Tensor) for value in weights.values()):
        raise UserError(f"{path} is damaged (its weights are no tensors): {advice}.")
    for key, value in weights.items():
        if not value.isfinite().all():
            raise UserError(f"{path} holds weights that are not finite numbers (in {key}): {advice}.")
    return content


def to_pt(stored: dict[str, Any]) -> bytes:
    """The bytes of a ``.pt`` file, its checksum included."""
    # By way of memory: torch's own writer hides behind a RuntimeError that the disk is full.
    buffer = io.BytesIO()
    torch.save({**stored, CHECKSUM: checksum(stored)}, buffer)
    return buffer.getvalue()


def from_pt(data: bytes, device: str | torch.device) -> tuple[Any, bool]:
    """What a ``.pt`` file holds but for its checksum, and whether that is right."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        check_archive(archive, len(data))
        broken = archive.testzip()
    content: Any = torch.load(io.BytesIO(data), map_location=device, weights_only=True)
    expected = content.pop(CHECKSUM, None) if isinstance(content, dict) else None
    return content, broken is None and (expected is None or checksum(content) == expected)


def check_archive(archive: zipfile.ZipFile, size: int, most: float = 2.0) -> None:
    """Refuse an archive of ``size`` bytes that would be inflated to more than ``most`` times as many."""
    parts = archive.infolist()
    if sum(part.file_size for part in parts) > most * size + 4096:
        raise ValueError("it would be inflated to much more than it is")
    if any(part.flag_bits & 1 for part in parts):
        raise ValueError("it is encrypted")


def to_safetensors(stored: Mapping[str, Any]) -> bytes:
    """The bytes of a safetensors file, its checksum included; the same for the same content in whatever order.
    ``TypeError`` if a value beside the tensors is neither text nor an integer, or there is no such type of tensor.
    """
    from safetensors.torch import save

    beside = {**stored, CHECKSUM: checksum(in_order(stored))}
    tensors = sorted(beside.pop(TENSORS, {}).items())
    for key, value in beside.items():
        if not isinstance(value, (str, int)):
            raise TypeError(f"safetensors keeps text beside the tensors, and {key} is a {type(value).__name__}")
    metadata = {key: str(value) for key, value in beside.items()} | FORMAT
    with quoted("safetensors has no numbers of type ", "", KeyError, kind=TypeError):
        # Copies: it refuses tensors that share memory.
        data = save({name: x.clone(memory_format=torch.contiguous_format) for name, x in tensors}, metadata)
    header, numbers = split(data)
    # Its own order of the metadata changes from run to run.
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + numbers


def from_safetensors(data: bytes, device: str | torch.device) -> tuple[dict[str, Any], bool]:
    """What a safetensors file holds but for its checksum, and whether that is right; without one it never is."""
    from safetensors.torch import load

    tensors = {name: value.to(device) for name, value in load(data).items()}
    metadata = split(data)[0].get("__metadata__", {})
    content = {key: value for key, value in metadata.items() if key not in FORMAT} | {TENSORS: tensors}
    expected = content.pop(CHECKSUM, None)
    if str(content.get("version")).isdecimal():
        content["version"] = int(content["version"])
    return content, checksum(in_order(content)) == expected


def split(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a sound safetensors file, whose length is its first 8 bytes, and the bytes behind it."""
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end]), data[end:]


def in_order(content: Mapping[str, Any]) -> dict[str, Any]:
    """``content`` with its names and those of its tensors sorted: safetensors keeps no order of its own."""
    return {**dict(sorted(content.items())), TENSORS: dict(sorted(content.get(TENSORS, {}).items()))}


def json_object(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The JSON object that ``content`` holds as text under ``key``."""
    text = content.get(key)
    if not isinstance(text, str):
        raise ValueError(f"{key} is no JSON object")
    return parse_object(text)


def checksum(value: Any) -> str:
    """SHA-256 of ``value``: names, types and shapes as well as numbers."""
    digest = hashlib.sha256()
    _update(digest, value)
    return digest.hexdigest()


def _update(digest: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        digest.update(f"tensor {value.dtype} {tuple(value.shape)}:".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    elif isinstance(value, Mapping):
        digest.update(f"dict {len(value)}:".encode())
        for key, item in value.items():
            _update(digest, key)
            _update(digest, item)
    elif isinstance(value, (list, tuple)):
        digest.update(f"list {len(value)}:".encode())
        for item in value:
            _update(digest, item)
    elif value is None or isinstance(value, (bool, int, float, str)):
        text = repr(value).encode("utf-8", "surrogatepass")
        digest.update(f"{type(value).__name__} {len(text)}:".encode() + text)
    else:
        raise TypeError(f"a tensor file cannot hold a {type(value).__name__}")
