"""nacdrive: small continuous-time attention networks that drive. These names are its public API (docs/api.md)."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nacdrive.common.version import __version__

if TYPE_CHECKING:
    from nacdrive.api import Evaluation, evaluate, export_onnx, load_policy, make_env, record, train
    from nacdrive.datasets.recording import Recording
    from nacdrive.nac import NAC
    from nacdrive.rollout.loading import rollout

__all__ = [
    "NAC", "Evaluation", "Recording", "__version__", "evaluate", "export_onnx", "load_policy", "make_env", "record",
    "rollout", "train",
]  # fmt: skip
HOMES = {
    "NAC": "nacdrive.nac",
    "Recording": "nacdrive.datasets.recording",
    "rollout": "nacdrive.rollout.loading",
}
"""Public name -> the module that it comes from, where that is not ``nacdrive.api``."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'nacdrive' has no attribute {name!r}")
    return getattr(import_module(HOMES.get(name, "nacdrive.api")), name)


def __dir__() -> list[str]:
    return __all__


if "gymnasium" in sys.modules:
    # Registers its ids; gymnasium.make("nacdrive:nacdrive/CarRacing-v0") comes here too.
    import_module("nacdrive.envs")
