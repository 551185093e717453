"""``nacdrive doctor``: what works on this machine, by doing on a small scale what a drive does."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Annotated

from annotated_types import Interval

from nacdrive.common.errors import UserError, quoted
from nacdrive.common.optional import EXTRAS, missing_extra
from nacdrive.common.options import OutOption, Page
from nacdrive.common.paths import shipped
from nacdrive.common.runs import package_versions

ROOM_GB = 1.0
"""Free disk space that a demo and its neighbours take, generously."""


class DoctorConfig(Page, OutOption):
    """Say what works on this machine, and how to mend what does not.

    --out is where results will be written to: is it writable, is there room?
    """

    simulator_port: Annotated[int, Interval(ge=1, le=65535)] = 4567
    """Port that the Udacity simulator connects to."""


def run(config: DoctorConfig) -> tuple[int, list[Check]]:
    """Print one line per check; 1 if something essential does not work."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from nacdrive.common.progress import progress_console

    table = Table("", "what", "found", box=None, pad_edge=False)
    with progress_console().status("looking ..."):
        checks = list(run_checks(config.out or Path(), config.host, config.page_port, config.simulator_port))
    for check in checks:
        colour = "green" if check.works else "red" if check.essential else "yellow"
        word = "OK" if check.works else "BAD" if check.essential else "note"
        table.add_row(f"[{colour}]{word}[/]", check.name, escape(check.detail))
    Console().print(table)
    if broken := [check.name for check in checks if check.essential and not check.works]:
        print(UserError(f"does not work: {', '.join(broken)}. Each line above says how to mend it."))
        return 1, checks
    print("Ready: nacdrive demo")
    return 0, checks


@dataclass(frozen=True)
class Check:
    """What one check found."""

    name: str
    works: bool
    detail: str
    """What was found; where it does not work, what to do."""
    essential: bool = True
    """Whether nothing can be driven without it."""


def run_checks(out: Path, host: str, port: int, simulator_port: int = 4567) -> Iterator[Check]:
    """All checks, one after another; one that fails does not stop the others."""
    from nacdrive.extras.simulator import checks as checks_of_simulator

    checks: list[tuple[str, Callable[[], str], bool]] = [
        ("Python", check_python, True),
        ("packages", check_packages, True),
        ("extras", check_extras, False),
        ("CarRacing", check_carracing, True),
        ("ffmpeg", check_ffmpeg, True),
        ("PPO expert", check_expert, True),
        ("shipped policies", check_policies, True),
        ("live page", lambda: check_page(host, port), False),
        ("Udacity: server", checks_of_simulator.check_server_versions, True),
        ("Udacity: port", lambda: checks_of_simulator.check_port(host, simulator_port), False),
        ("Udacity: link", checks_of_simulator.check_link, False),
        ("results", lambda: check_results(out), True),
        ("CUDA", check_cuda, False),
    ]
    for name, look, essential in checks:
        try:
            yield Check(name, True, look())
        except UserError as error:
            yield Check(name, False, str(error), essential)
        except ModuleNotFoundError as error:
            missing = missing_extra(error)
            yield Check(name, False, str(missing or error), essential=missing is None)
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error).strip()}".split("\n")[0]
            yield Check(name, False, f"{reason}. Reinstall with pip install --force-reinstall nacdrive.", essential)


def check_python() -> str:
    """Version, and whether it is one that is supported."""
    if not (3, 11) <= sys.version_info[:2] <= (3, 14):
        raise UserError(f"{platform.python_version()} is not supported: install Python 3.11 to 3.14.")
    return f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def check_packages() -> str:
    """Versions of what shapes results."""
    import cv2  # noqa: F401 - a missing system library shows here
    import gymnasium  # noqa: F401
    import torch  # noqa: F401

    versions = package_versions()
    return ", ".join(
        f"{name} {versions[name]}" for name in ("nacdrive", "torch", "gymnasium", "numpy") if name in versions
    )


def check_extras() -> str:
    """Which extras are installed whole, which build of torch, and whether there is a Chromium for the tests."""
    import torch

    there = [extra for extra, modules in EXTRAS.items() if all(map(find_spec, modules))]
    lacking = [extra for extra in EXTRAS if extra not in there]
    more = f"; pip install 'nacdrive[{','.join(lacking)}]' adds the others" if lacking else ""
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or "no Chromium"
    return f"{', '.join(there)}{more}; torch {torch.__version__} ({torch.version.cuda or 'CPU'}); {chromium}"


def check_carracing() -> str:
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


def check_ffmpeg() -> str:
    """The ffmpeg that videos are written with."""
    from nacdrive.viz.video import ffmpeg_version

    return f"{ffmpeg_version()}, writes H.264"


def check_expert() -> str:
    """The shipped expert loads and decides."""
    import numpy as np

    from nacdrive.drivers import load_expert

    loaded = load_expert("ppo")
    loaded.act(np.zeros((96, 96, 3), np.uint8), {"t_s": 0.0})
    return f"loads, decides every {loaded.needs.repeat} frames"


def check_policies() -> str:
    """Every shipped policy loads."""
    from nacdrive.models import load_policy

    folder = shipped("agents") / "carracing"
    names = [load_policy(path).name for path in sorted(folder.glob("*.pt"))]
    if not names:
        raise UserError(f"none in {folder}: get the whole repository again, or train one with nacdrive train.")
    return ", ".join(names)


def check_page(host: str, port: int) -> str:
    """Whether the page's port is free and its files are there."""
    if not (shipped("www") / "index.html").is_file():
        raise UserError(f"its files are missing from {shipped('www')}: get the whole repository again.")
    from nacdrive.common.net import listen

    listen(host, port).close()
    return f"port {port} is free on {host}"


def check_results(out: Path) -> str:
    """Whether results can be written, and how much room there is."""
    if out.is_symlink() and not out.exists():
        raise UserError(f"{out} is a link that leads nowhere: remove it, or give another --out.")
    place = out.resolve()
    while not place.exists():
        place = place.parent
    advice, why = "): work in a folder of your own, or give --out.", attrgetter("strerror")
    with quoted(f"cannot write in {out} (", advice, OSError, say=why), tempfile.TemporaryFile(dir=place) as probe:
        probe.write(b"nacdrive")
    free = shutil.disk_usage(place).free / 1e9
    if free < ROOM_GB:
        raise UserError(f"only {free:.1f} GB free at {out}, {ROOM_GB:.0f} GB are needed: free some space.")
    return f"{out} is writable, {free:.0f} GB free"


def check_cuda() -> str:
    """A CUDA device, where there is one."""
    import torch

    if not torch.cuda.is_available():
        raise UserError("no CUDA device that this PyTorch can use: everything runs on the CPU, training takes longer.")
    return f"{torch.cuda.get_device_name()}, use it with --device cuda"
