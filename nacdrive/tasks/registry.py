"""Names of tasks: those of nacdrive, those of installed packages, and ``module:Name``. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nacdrive.common.errors import UserError, unknown_name
from nacdrive.common.options import Options
from nacdrive.common.plugins import Registry

if TYPE_CHECKING:
    from nacdrive.models import PolicyConfig
    from nacdrive.tasks.base import ProtocolName, Task
    from nacdrive.tasks.driving import DrivingTask

TASKS: Registry[type[Task]] = Registry(
    "task",
    "nacdrive.tasks",
    {
        "emnist": "nacdrive.tasks.emnist:EMNIST",
        "par": "nacdrive.tasks.par:PAR",
        "carracing": "nacdrive.tasks.carracing:CarRacing",
        "udacity": "nacdrive.tasks.udacity:Udacity",
        "pronostia": "nacdrive.extras.bearings.task:Bearings",
        "physionet2012": "nacdrive.tasks.physionet2012:PhysioNet2012",
        "uea": "nacdrive.tasks.uea:UEA",
        "imitation": "nacdrive.tasks.driving:Imitation",
        "synthetic-decay": "nacdrive.tasks.synthetic:Decay",
        "synthetic-since": "nacdrive.tasks.synthetic:Since",
        "synthetic-recall": "nacdrive.tasks.synthetic:Recall",
        "synthetic-recall-decay": "nacdrive.tasks.synthetic:RecallDecay",
        "synthetic-xor": "nacdrive.tasks.synthetic:XOR",
    },
)
EVALUATED_WITH = {"xjtu-sy": "pronostia", "hust": "pronostia"}
"""Task without a training of its own -> the one whose model it is tested with."""
PAPER_TASKS = ("emnist", "par", "carracing", "udacity", "pronostia", "xjtu-sy", "hust")
"""Columns of the paper's table, in its order."""


def trained_on(task: str) -> str:
    """The task whose training ``task`` is reported for."""
    name = EVALUATED_WITH.get(task, task)
    if name not in TASKS and ":" not in name:
        raise unknown_name("task", task, [*TASKS.names(), *EVALUATED_WITH])
    return name


def load_task(task: str, protocol: ProtocolName = "sequence") -> Task:
    """The task ``task``, or the one that it is evaluated with, under a protocol.

    Raises:
        UserError: if the name is unknown, or what it names is no task.
    """
    from nacdrive.tasks.base import Task

    name = trained_on(task)
    kind = TASKS.load(name)
    if not (isinstance(kind, type) and issubclass(kind, Task)):
        raise UserError(f"'{name}' is no task: derive the class from nacdrive.tasks.Task.")
    if unfinished := sorted(getattr(kind, "__abstractmethods__", ())):
        raise UserError(f"the task '{name}' lacks {', '.join(unfinished)}: see nacdrive.tasks.Task.")
    made = kind("paper" if protocol == "scripts" else protocol)
    # A file of a model must tell where its task comes from.
    made.name = name
    if protocol == "scripts":
        from nacdrive.tasks.scripts import follow_script

        follow_script(made)
    return made


def load_driving_task(task: str, first: PolicyConfig | None = None) -> DrivingTask:
    """The task ``task``, of which a policy can be trained, and with ``first`` learn on."""
    from nacdrive.tasks.driving import DrivingTask

    loaded = load_task(task)
    if not isinstance(loaded, DrivingTask):
        what = f"the task '{task}' has no policy that drives"
        raise UserError(f"{what}: train a network for it with 'nacdrive bench table --tasks {task}'.")
    loaded.first = first
    return loaded


def task_of(folders: Sequence[Path]) -> str:
    """The built-in task that ``folders`` of recordings or logs belong to: ``imitation`` where no other knows them."""
    from nacdrive.tasks.driving import DrivingTask

    for name in PAPER_TASKS:
        task = load_task(name)
        if isinstance(task, DrivingTask) and folders and all(task.knows(folder) for folder in folders):
            return name
    return "imitation"


class MostOption(Options):
    """How it is learnt."""

    most: int = 0
    """About how many sequences (of driving: frames, of bearings: snapshots) to learn from, or pictures to look at; 0:
    all, of bench as the budget says."""


class TaskOption(Options):
    """How it is learnt."""

    task: str = "carracing"
    """What is learnt: carracing, udacity, imitation (of whoever drove in any environment), auto (what the recordings
    are of), or a task of your own as my_module:MyTask; what is predicted: pronostia, emnist or par."""
