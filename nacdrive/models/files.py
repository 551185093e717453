"""Model files of driving policies: tensors and a plain-JSON config."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from nacdrive.common import plugins
from nacdrive.common.errors import UserError, first_line, instead_of, quoted
from nacdrive.common.files import refuse_existing
from nacdrive.common.paths import find_model
from nacdrive.common.tensor_file import SAFETENSORS, TENSORS, json_object, read_tensor_file, write_tensor_file
from nacdrive.models.config import PolicyConfig
from nacdrive.models.driving import DrivingNetwork
from nacdrive.models.policy import Policy

KIND = "nacdrive policy"
VERSION = 1


def save_policy(policy: Policy, path: Path | str, meta: dict[str, Any] | None = None) -> None:
    """Write ``policy`` to ``path``, a ``.pt`` file or one that ends with ``.safetensors`` for that format, atomically,
    with plain JSON about its training: its own ``meta`` if none is given.
    """
    content = {"config": json.dumps(policy.config.to_json()), "meta": json.dumps(policy.meta if meta is None else meta)}
    write_tensor_file(Path(path), KIND, VERSION, content, policy.network.state_dict())


def load_policy(
    path: Path | str, *, device: str = "cpu", expect_task: str | None = None, trust: Sequence[str] = ()
) -> Policy:
    """The policy in ``path``, a file or the name of a shipped one (``find_model``), on ``device``, ready to drive.

    A layer or task of somebody's own that the file names is imported only if the user has named it too: as
    ``module:Name`` in this process, or by its module in ``trust``.

    Raises:
        UserError: if the file is missing, damaged, foreign, of a newer version, made for another task than
            ``expect_task``, or names code that is not trusted; or if there is no such device.
    """
    path = find_model(path, expect_task)
    plugins.trust(*trust)
    content = read_tensor_file(path, KIND, VERSION, name="model file")
    with fitting(path):
        config = PolicyConfig.from_json(json_object(content, "config"))
        plugins.check_trusted(path, config.task, config.model, config.options)
        meta = json_object(content, "meta")
        if expect_task is not None and config.task != expect_task:
            raise UserError(f"{path} was trained for '{config.task}', not for '{expect_task}': give another --model.")
        network = DrivingNetwork(config)
        network.load_state_dict(content["tensors"])
    return Policy(network.to(check_device(device)), path.stem, meta)


def convert_model(source: Path | str, target: Path | str, *, overwrite: bool = False) -> None:
    """Write the model file ``source`` (a policy, an expert or a network for series) in the format of ``target``'s name.

    Nothing is lost on the way: the tensors, the config, what is known of the training and a checksum are in both.
    ``UserError`` if ``source`` is no model file, or ``target`` exists or ends otherwise.
    """
    source, target = Path(source), Path(target)
    if target.suffix not in (SAFETENSORS, ".pt"):
        raise UserError(f"{target} is of no format that is known by its ending: call it .safetensors or .pt.")
    refuse_existing(target, overwrite=overwrite)
    content = read_tensor_file(source, None, None)
    if TENSORS not in content:
        raise UserError(f"{source} holds no model but a {content['kind']}: give a model file.")
    kind, version, tensors = (content.pop(key) for key in ("kind", "version", TENSORS))
    with quoted(f"{source} cannot be written as {target.suffix}: ", ".", TypeError):
        write_tensor_file(target, kind, version, content, tensors)


def fitting(path: Path) -> AbstractContextManager[None]:
    """What a description of a network raises inside that does not fit it says that the file ``path`` is unsound."""
    misfits = (KeyError, TypeError, ValueError, RuntimeError, ArithmeticError, AttributeError)
    before, after = f"{path} is damaged or was made by another nacdrive (", "): train or copy it anew."
    return quoted(before, after, *misfits, say=first_line)


def check_device(name: str) -> torch.device:
    """The device ``cpu``, ``cuda`` or ``cuda:N``."""
    with instead_of(RuntimeError, f"there is no device '{name}': give cpu or cuda."):
        device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("there is no CUDA device that this PyTorch can use: give --device cpu.")
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"device '{name}' is not supported: give cpu or cuda.")
    return device
