"""Checks of a machine, by doing on a small scale what a drive does: step the simulator, load the agents, film."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nacdrive.common.errors import UserError
from nacdrive.common.paths import shipped
from nacdrive.common.runs import package_versions

ROOM_GB = 1.0
"""Free disk space that a demo and its neighbours take, generously."""


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    name: str
    works: bool
    found: str
    """What was found; where it does not work, what to do."""
    essential: bool = True
    """Whether nothing can be driven without it."""


def examine(out: Path, host: str, port: int, simulator_port: int = 4567) -> Iterator[Finding]:
    """All checks, one after another; a failing one does not stop the others."""
    from nacdrive.cli.checks_simulator import driven, server_versions, waiting_place

    checks: list[tuple[str, Callable[[], str], bool]] = [
        ("Python", python, True),
        ("packages", packages, True),
        ("CarRacing", simulator, True),
        ("ffmpeg", film, True),
        ("PPO expert", expert, True),
        ("shipped policies", policies, True),
        ("live page", lambda: page(host, port), False),
        ("Udacity: server", server_versions, True),
        ("Udacity: port", lambda: waiting_place(host, simulator_port), False),
        ("Udacity: link", driven, False),
        ("results", lambda: writable(out), True),
        ("CUDA", cuda, False),
    ]
    for name, check, essential in checks:
        try:
            yield Finding(name, True, check())
        except UserError as error:
            yield Finding(name, False, str(error), essential)
        except (ImportError, OSError, RuntimeError) as error:
            said = f"{type(error).__name__}: {str(error).strip()}".split("\n")[0]
            yield Finding(name, False, f"{said}. Reinstall with pip install --force-reinstall nacdrive.", essential)


def python() -> str:
    """Version, and whether it is one that is supported."""
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        raise UserError(f"{platform.python_version()} is not supported: install Python 3.11, 3.12 or 3.13.")
    return f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def packages() -> str:
    """Versions of what shapes results."""
    import cv2  # noqa: F401 - a missing system library shows here
    import gymnasium  # noqa: F401
    import torch  # noqa: F401

    found = package_versions()
    return ", ".join(f"{name} {found[name]}" for name in ("nacdrive", "torch", "gymnasium", "numpy") if name in found)


def simulator() -> str:
    """Drive a few official frames and say how fast that is."""
    from nacdrive.envs.carracing.env import make_carracing

    world = make_carracing(repeat=4)
    world.reset(seed=0)
    steps, began = 20, time.perf_counter()
    for _ in range(steps):
        frame, *_ = world.step(3)
    rate = steps / (time.perf_counter() - began)
    world.close()
    if not frame.any():
        raise UserError("CarRacing draws black frames: reinstall pygame with pip install --force-reinstall pygame-ce.")
    return f"steps and draws without a display, {rate:.0f} decisions/s on one core"


def film() -> str:
    """The ffmpeg that videos are written with."""
    from nacdrive.viz.video import ffmpeg_version

    return f"{ffmpeg_version()}, writes H.264"


def expert() -> str:
    """The shipped expert loads and decides."""
    import numpy as np

    from nacdrive.drivers import load_expert

    loaded = load_expert("ppo")
    loaded.act(np.zeros((96, 96, 3), np.uint8))
    return f"loads, decides every {loaded.repeat} frames"


def policies() -> str:
    """Every shipped policy loads."""
    from nacdrive.models import load_policy

    folder = shipped("agents") / "carracing"
    found = [load_policy(path).name for path in sorted(folder.glob("*.pt"))]
    if not found:
        raise UserError(f"none in {folder}: get the whole repository again, or train one with nacdrive train.")
    return ", ".join(found)


def page(host: str, port: int) -> str:
    """Whether the page's port is free and its files are there."""
    if not (shipped("www") / "index.html").is_file():
        raise UserError(f"its files are missing from {shipped('www')}: get the whole repository again.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise UserError(
                f"{host}:{port} cannot be used ({error}): give another --port to drive, eval and demo."
            ) from error
    return f"port {port} is free on {host}"


def writable(out: Path) -> str:
    """Whether results can be written, and how much room there is."""
    place = out.resolve()
    while not place.exists():
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(b"nacdrive")
    except OSError as error:
        raise UserError(
            f"cannot write in {out} ({error.strerror}): work in a folder of your own, or give --out."
        ) from error
    free = shutil.disk_usage(place).free / 1e9
    if free < ROOM_GB:
        raise UserError(f"only {free:.1f} GB free at {out}, {ROOM_GB:.0f} GB are needed: free some space.")
    return f"{out} is writable, {free:.0f} GB free"


def cuda() -> str:
    """A CUDA device, where there is one."""
    import torch

    if not torch.cuda.is_available():
        raise UserError("no CUDA device that this PyTorch can use: everything runs on the CPU, training takes longer.")
    return f"{torch.cuda.get_device_name()}, use it with --device cuda"
