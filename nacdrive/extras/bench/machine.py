"""What a number depends on beside its config: the code, the processor, the threads, and what else was running."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import torch

CPU_INFO = Path("/proc/cpuinfo")


def machine_state(device: str = "cpu") -> dict[str, Any]:
    """JSON-ready: ``commit`` of nacdrive's source (None outside of a checkout), ``processor``, ``threads``, ``load``.

    ``load`` is the system's load average over the last minute, None where it has none; ``instructions`` are the vector
    instructions that PyTorch uses: with others the last digits of a sum differ, and with them a Top-K selection.
    """
    state = {
        "commit": commit(),
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }
    return state | ({"gpu": torch.cuda.get_device_name(device)} if device.startswith("cuda") else {})


@cache
def commit() -> str | None:
    """The commit that nacdrive's source stands at, with ``+`` where files have been changed since."""
    source = Path(__file__).resolve().parents[3]
    if not (source / ".git").exists():
        return None
    # No name of a tag, but the whole checksum.
    command = ["git", "-C", str(source), "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


@cache
def processor() -> str:
    """The processor's name."""
    if CPU_INFO.exists():
        for line in CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
