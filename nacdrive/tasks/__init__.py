"""What can be learned: each task says how its data are read, which network it takes, and what its loss is."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nacdrive.tasks.registry import TASKS, load_driving_task, load_task, task_of

if TYPE_CHECKING:
    from nacdrive.tasks.base import Task
    from nacdrive.tasks.sample import Sample

__all__ = ["TASKS", "Sample", "Task", "load_driving_task", "load_task", "task_of"]


def __getattr__(name: str) -> Any:
    # The names of tasks are wanted by the command line, which must answer before torch is imported.
    if name in ("Sample", "Task"):
        return getattr(import_module(f"nacdrive.tasks.{'sample' if name == 'Sample' else 'base'}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
