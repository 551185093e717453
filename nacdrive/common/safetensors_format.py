"""What a ``.pt`` file holds, as safetensors: the format that model hubs and programs in other languages read.

A file is the length of a JSON header (8 bytes, little-endian), the header with name, type, shape and place of each
tensor, and the tensors' bytes. Text of one's own stands in the header under ``__metadata__``: our ``kind``,
``version``, ``config``, ``meta`` and checksum, all as strings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

METADATA = "__metadata__"
FORMAT = {"format": "pt"}
"""What other libraries want to find in a file of torch's tensors; nothing of ours depends on it."""


def encode(content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bytes:
    """The bytes of a file; the same for the same content, in whatever order it comes. The tensors are on the CPU.

    Raises:
        TypeError: if a value is neither text nor an integer, or safetensors has no such type of tensor.
    """
    for key, value in content.items():
        if not isinstance(value, (str, int)):
            raise TypeError(f"safetensors keeps text beside the tensors, and {key} is a {type(value).__name__}")
    try:
        # Copies: it refuses tensors that share memory.
        data = save(
            {name: tensors[name].clone(memory_format=torch.contiguous_format) for name in sorted(tensors)},
            {**{key: str(value) for key, value in content.items()}, **FORMAT},
        )
    except KeyError as error:
        raise TypeError(f"safetensors has no numbers of type {error}") from error
    header, numbers = split(data)
    # Its own order of the metadata changes from run to run.
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + numbers


def decode(data: bytes, device: str | torch.device = "cpu") -> tuple[dict[str, str], dict[str, Tensor]]:
    """What stands beside the tensors of a file, and the tensors on ``device``.

    Raises:
        Exception: of many types, if ``data`` is no sound safetensors file.
    """
    tensors = load(data)
    metadata = split(data)[0].get(METADATA, {})
    content = {key: value for key, value in metadata.items() if key not in FORMAT}
    return content, {name: value.to(device) for name, value in tensors.items()}


def split(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a sound file, and the bytes behind it."""
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end]), data[end:]
