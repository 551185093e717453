"""Where the data of each task lie under one folder; made up where they are absent and a smoke run may do without."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nacdrive.common.errors import UserError
from nacdrive.common.paths import shipped
from nacdrive.datasets.synthetic import GENERATORS, generate, is_synthetic
from nacdrive.tasks import load_task

EVALUATED_FOLDERS: dict[str, tuple[str, ...]] = {
    "xjtu-sy": ("xjtu-sy", "xjtu_sy", "xjtu_features"),
    "hust": ("hust", "hust_features"),
}
"""Folders of tasks that are tested with the model of another."""


def folder_names(task: str) -> tuple[str, ...]:
    """Names that a task's folder, or its archive NAME.tar.xz, may have, the usual one first; () if it needs none."""
    if task in EVALUATED_FOLDERS:
        return EVALUATED_FOLDERS[task]
    names = load_task(task).data_folders
    return (task.rpartition(":")[2],) if names is None else names


def find_data_dirs(tasks: Sequence[str], data: Path, made_up: Path | None) -> dict[str, Path]:
    """Folder of each task's data; a task that needs none has none.

    Args:
        tasks: what is asked for.
        data: folder that holds them.
        made_up: where to make up what is absent; None: absent data are a mistake.

    Raises:
        UserError: if data are absent; the sentence names all of them.
    """
    folders, absent = {}, []
    for task in tasks:
        names = folder_names(task)
        candidates = [data / f"{name}{ending}" for name in names for ending in ("", ".tar.xz")]
        place = next((candidate for candidate in candidates if filled(candidate)), None)
        sample = load_task(task).sample_recording
        if place is not None:
            folders[task] = place
        elif made_up is not None and task in GENERATORS:
            generate(task, made_up / task)
            folders[task] = made_up / task
        elif made_up is not None and sample is not None:
            folders[task] = shipped("recordings") / sample
        elif names:
            absent.append(f"{data / names[0]} ({task})")
    if absent:
        raise UserError(
            f"there are no data in {', '.join(absent)}: put them there, name their folder with --data, or drop the "
            "task."
        )
    return folders


def filled(place: Path) -> bool:
    """Whether a folder holds anything; an archive does."""
    return place.is_file() or (place.is_dir() and any(place.iterdir()))


def describe(data_dirs: dict[str, Path]) -> list[str]:
    """One line per task: where its data come from, and whether they are any."""
    return [
        f"{task}: MADE-UP DATA, not {task}" if is_synthetic(folder) else f"{task}: {folder}"
        for task, folder in data_dirs.items()
    ]
