"""Model files: tensors and a plain-JSON config, nothing executable; every damage told in one sentence."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import torch

from nacdrive.common.errors import UserError
from nacdrive.common.files import atomic_path
from nacdrive.models.config import PolicyConfig
from nacdrive.models.driving import DrivingNetwork
from nacdrive.models.policy import Policy

KIND = "nacdrive policy"
VERSION = 1


def save_policy(policy: Policy, path: Path | str, meta: dict[str, Any] | None = None) -> None:
    """Write ``policy`` to ``path`` atomically.

    Args:
        policy: what to keep.
        path: the ``.pt`` file.
        meta: plain JSON about its training; the policy's own if not given.
    """
    content = {
        "kind": KIND,
        "version": VERSION,
        "config": json.dumps(policy.config.to_json()),
        "meta": json.dumps(policy.meta if meta is None else meta),
        "tensors": {name: value.detach().cpu().contiguous() for name, value in policy.network.state_dict().items()},
    }
    write_tensors(Path(path), content)


def write_tensors(path: Path, content: dict[str, Any]) -> None:
    """Write what ``torch.load(weights_only=True)`` can read, atomically.

    Raises:
        UserError: if the disk is full; what ``path`` held before is kept.
    """
    # By way of memory: torch's own writer hides behind a RuntimeError that the disk is full.
    buffer = io.BytesIO()
    torch.save(content, buffer)
    with atomic_path(path) as partial:
        partial.write_bytes(buffer.getvalue())


def load_policy(path: Path | str, *, device: str = "cpu", expect_task: str | None = None) -> Policy:
    """The policy in ``path``, on ``device``, ready to drive.

    Raises:
        UserError: if the file is missing, damaged, foreign, of a newer version, or made for another task than
            ``expect_task``; or if there is no such device.
    """
    path = Path(path)
    content = read_model_file(path)
    try:
        config = PolicyConfig.from_json(json.loads(content["config"]))
        meta = json.loads(content["meta"])
        if expect_task is not None and config.task != expect_task:
            raise UserError(f"{path} was trained for '{config.task}', not for '{expect_task}': give another --model.")
        network = DrivingNetwork(config)
        network.load_state_dict(content["tensors"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        first = str(error).splitlines()[0]
        raise UserError(
            f"{path} is damaged or was made by another nacdrive ({first}): train or copy it anew."
        ) from error
    return Policy(network.to(check_device(device)), path.stem, meta)


def read_model_file(path: Path, kind: str = KIND) -> dict[str, Any]:
    """The checked outer layer of a model file of ``kind``.

    Raises:
        UserError: if it is missing, truncated, foreign or of a newer version.
    """
    if not path.is_file():
        raise UserError(f"there is no model file {path}: check the path, or train one with 'nacdrive train'.")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, OSError) as error:
        raise UserError(
            f"{path} cannot be read as a model file: it is truncated or of another kind; train or copy it anew."
        ) from error
    if not isinstance(content, dict) or content.get("kind") != kind:
        told = content.get("kind") if isinstance(content, dict) else None
        found = f"it is a {told}" if told else "it was written by another program"
        raise UserError(f"{path} is no {kind.removeprefix('nacdrive ')} of nacdrive: {found}.")
    if content.get("version") != VERSION:
        raise UserError(
            f"{path} has version {content.get('version')}, and this nacdrive reads version {VERSION}: "
            "train it anew or install the matching nacdrive."
        )
    return content


def check_device(name: str) -> torch.device:
    """The device ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        UserError: if the name is unknown or the machine has no such device.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"there is no device '{name}': give cpu or cuda.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("there is no CUDA device that this PyTorch can use: give --device cpu.")
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"device '{name}' is not supported: give cpu or cuda.")
    return device
