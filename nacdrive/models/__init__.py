"""Steering policies: a vision front end, one sequence layer, a head; driven step by step, kept as files."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nacdrive.models.config import PolicyConfig

if TYPE_CHECKING:
    from nacdrive.models.files import convert_model, load_policy, save_policy
    from nacdrive.models.policy import Policy

__all__ = ["Policy", "PolicyConfig", "convert_model", "load_policy", "save_policy"]

FILES = {"Policy": "policy", "convert_model": "files", "load_policy": "files", "save_policy": "files"}


def __getattr__(name: str) -> Any:
    # An exported policy is described by a PolicyConfig too, and drives without torch.
    if name not in FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{FILES[name]}"), name)
