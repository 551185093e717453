"""What can be learned: each task says how its data are read, which network it takes, and what its loss is."""

from __future__ import annotations

from importlib import import_module

from nacdrive.common.errors import unknown_name
from nacdrive.tasks.base import DrivingTask, Sample, Task

__all__ = ["TASKS", "DrivingTask", "Sample", "Task", "load_task"]

TASKS = {"carracing": "nacdrive.tasks.carracing", "udacity": "nacdrive.tasks.udacity"}


def load_task(name: str) -> DrivingTask:
    """The task ``name``.

    Raises:
        UserError: if the name is unknown; the sentence suggests the nearest.
    """
    if name not in TASKS:
        raise unknown_name("task", name, TASKS)
    task: DrivingTask = import_module(TASKS[name]).TASK
    return task
