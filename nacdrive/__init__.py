"""nacdrive: small continuous-time attention networks that drive. These names are its public API (docs/api.md)."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from nacdrive.common.optional import named_extras
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
HOMES = {"NAC": "nacdrive.nac", "Recording": "nacdrive.datasets.recording", "rollout": "nacdrive.rollout.loading"}
"""Public name -> the module that it comes from, where that is not ``nacdrive.api``."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'nacdrive' has no attribute {name!r}")
    with named_extras():
        return getattr(import_module(HOMES.get(name, "nacdrive.api")), name)


def __dir__() -> list[str]:
    return __all__


class _AfterGymnasium:
    """A finder that registers our ids whenever Gymnasium, which reads no entry points, is imported after us."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: Any) -> None:
                execute(module)
                import_module("nacdrive.envs")

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


if "gymnasium" in sys.modules:
    # gymnasium.make("nacdrive:nacdrive/CarRacing-v0") comes here too.
    import_module("nacdrive.envs")
else:
    sys.meta_path.insert(0, _AfterGymnasium())
