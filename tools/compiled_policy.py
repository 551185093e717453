"""A policy's exported C, compiled here and driven from Python, to compare it with torch: by frames, or on a track."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.extras.export.c_source import export_c, identifier
from nacdrive.models.config import PolicyConfig
from nacdrive.models.files import load_policy

LARGEST_STATE = 1 << 26
"""Bytes of the largest state; the library does not say how large its own is."""
FLAGS = ("-std=c99", "-O3")


def compiler() -> str | None:
    """The machine's C compiler; None without one."""
    return os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(sources: Sequence[Path], out: Path, flags: Sequence[str] = FLAGS) -> Path:
    """Compile and link ``sources`` with libm.

    Raises:
        UserError: if there is no compiler, or it refuses.
    """
    program = compiler()
    if program is None:
        raise UserError("there is no C compiler on this machine: install one (such as gcc), or name it in CC.")
    command = [program, *flags, *map(str, sources), "-o", str(out), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"'{' '.join(command)}' failed: {done.stderr.strip().splitlines()[0]}")
    return out


class CompiledPolicy:
    """The C of a policy in the place of ``Policy``: ``reset`` and ``step``; it has no neurons to show.

    Raises:
        UserError: if the policy has no C, or it cannot be compiled.
    """

    def __init__(self, model: Path, folder: Path, flags: Sequence[str] = FLAGS) -> None:
        self.name = f"{model.stem} in C"
        self.config: PolicyConfig = load_policy(model).config
        code, _, _ = export_c(model, folder)
        # A name of its own: the loader takes a library that it has under the same name already for the same one.
        mark = hashlib.sha256(code.read_bytes() + " ".join(flags).encode()).hexdigest()[:12]
        library = ctypes.CDLL(str(build([code], folder / f"{code.stem}-{mark}.so", [*flags, "-shared", "-fPIC"])))
        name = identifier(code.stem)
        self._outputs = self.config.outputs
        self._step = library[f"{name}_step"]
        self._step.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_double, ctypes.c_float, ctypes.c_void_p]
        self._reset = library[f"{name}_reset"]
        self._reset.argtypes = [ctypes.c_void_p]
        # sizeof is no part of the interface: the state is as large as the library's reset makes it.
        self._state = ctypes.create_string_buffer(LARGEST_STATE)
        self.reset()

    @property
    def repeat(self) -> int:
        """Frames of the simulator per decision that it was trained at."""
        return self.config.repeat

    def reset(self) -> None:
        self._reset(self._state)

    def step(self, frame: NDArray[np.uint8], t_s: float, speed_mps: float | None = None) -> Action:
        """Decide on one frame, as ``Policy.step``.

        Raises:
            ValueError: if the frame has another shape, or the time is none that can follow.
        """
        shape = (self.config.height, self.config.width, 3)
        if frame.shape != shape or frame.dtype != np.uint8:
            raise ValueError(f"{self.name} takes frames of {shape} bytes, this one has {frame.shape}")
        frame = np.ascontiguousarray(frame)
        # struct { float steering, throttle, brake; int choice; float outputs[]; }
        action = np.empty(4 + self._outputs, np.float32)
        if self._step(self._state, frame.ctypes.data, t_s, speed_mps or 0.0, action.ctypes.data):
            raise ValueError(f"{t_s:g} s is no time that can follow")
        steering, throttle, brake = action[:3].tolist()
        choice = int(action[3:4].view(np.int32)[0])
        self.outputs = action[4:]
        return Action(steering, throttle, brake, choice if choice >= 0 else None, None if choice < 0 else self.outputs)

    def neurons(self) -> Mapping[str, NDArray[np.float32]]:
        """None: C keeps no states to look at."""
        return {}
