"""An expert in the driver's seat, and what tells one expert from another."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.base.control import Action
from nacdrive.driving.loop import Frame, Observer, World
from nacdrive.experts import Expert


class ExpertDriver:
    """Lets an expert that usually rides along drive itself."""

    def __init__(self, begin: Callable[[Any], Observer], world: World) -> None:
        self._begin, self._world = begin, world

    def reset(self) -> None:
        """Begin the episode whose track now stands."""
        self._observer = self._begin(self._world)

    def step(self, frame: Frame, t_s: float, speed_mps: float | None = None) -> Action:
        """What the expert does."""
        return self._observer.observe(frame)

    def neurons(self) -> Mapping[str, NDArray[np.float32]]:
        """None: an expert shows no neurons."""
        return {}


def fingerprint(expert: Expert) -> str:
    """Short hash of what the expert has learnt, or of its parameters where it is a formula."""
    digest = hashlib.sha256(f"{expert.name} {expert.repeat} {getattr(expert, 'pursuit', None)!r}".encode())
    net = getattr(expert, "net", None)
    for name, tensor in net.state_dict().items() if net is not None else ():
        digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:12]
