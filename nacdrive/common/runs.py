"""Seeds, and the record of how a result was made."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import platform
import random
import shlex
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from nacdrive.common.errors import UserError
from nacdrive.common.files import write_json
from nacdrive.common.foreign_json import read_object
from nacdrive.common.version import __version__

RUN = "run.json"
"""Beside every result: how it was made."""
RECORDED_PACKAGES = (
    "torch", "numpy", "gymnasium", "panda3d", "stable-baselines3", "opencv-python-headless", "pyarrow", "pillow",
)  # fmt: skip


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and, if it is installed, PyTorch."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    with suppress(ModuleNotFoundError):
        import torch

        torch.manual_seed(seed)


def package_versions() -> dict[str, str]:
    """Versions of nacdrive, Python and the packages that shape a result."""
    versions = {"nacdrive": __version__, "python": platform.python_version()}
    for name in RECORDED_PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def run_record(config: Any, **more: Any) -> dict[str, Any]:
    """JSON-ready record of a run: the command, the resolved config (a dataclass), versions and machine."""
    return {
        "command": shlex.join([Path(sys.argv[0]).name.replace("__main__.py", "nacdrive"), *sys.argv[1:]]),
        "config": plain(config),
        "versions": package_versions(),
        "machine": f"{platform.system()} {platform.machine()}",
        **more,
    }


def check_resumable(
    folder: Path, config: Any, free_to_change: Collection[str], data: Mapping[str, str] = {}, *, write: bool = True
) -> None:
    """Compare ``config`` (a dataclass) with ``folder``'s run.json, if a run is to be resumed, and ``write`` that anew;
    ``UserError`` if that was begun with other options than those ``free_to_change``, or other ``data``: fingerprints.
    """
    path, known = folder / RUN, dict[str, Any]()
    if path.exists():
        run = read_object(path)
        stored, known = run.get("config"), run.get("data", known)
        if not isinstance(stored, dict) or not isinstance(known, dict):
            raise UserError(f"{path} does not say with which options it was begun: it is damaged, give another --out.")
        changed = [
            f"--{name.replace('_', '-')} {stored[name]} instead of {value}"
            for name, value in plain(config).items()
            # An option that did not exist yet is no other choice.
            if name not in free_to_change and name in stored and stored[name] != value
        ]
        # Of more data others are kept aside, and those of before would be learnt from.
        changed += [f"other data of {name}" for name in data if known.get(name, data[name]) != data[name]]
        if changed:
            raise UserError(
                f"{folder} was begun with {', '.join(changed)}: resume with the same options and data, or give another "
                "--out, or --overwrite to begin anew."
            )
    if write:
        write_json(path, run_record(config, data={**known, **data}))


def plain(value: Any) -> Any:
    """``value`` with dataclasses, paths and tuples turned into what JSON knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value.item() if isinstance(value, np.generic) else value


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_method() -> str:
    """How worker processes begin: the quickest way that is safe beside threads, where the system has it."""
    return "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
