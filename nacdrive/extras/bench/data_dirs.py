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


def find_data_dirs(tasks: Sequence[str], data: Path, made_up: Path | None) -> dict[str, Path]:
    """Folder of each task's data within ``data``; a task that needs none has none.

    What is absent is made up in ``made_up``, or a mistake without that; the sentence names all of it.
    """
    folders, absent = {}, []
    for task in tasks:
        loaded = load_task(task)
        # The usual name first; it may be that of an archive NAME.tar.xz.
        names = EVALUATED_FOLDERS.get(task, loaded.data_folders)
        names = (task.rpartition(":")[2],) if names is None else names
        candidates = [data / f"{name}{ending}" for name in names for ending in ("", ".tar.xz")]
        place = next((candidate for candidate in candidates if filled(candidate)), None)
        if place is not None:
            folders[task] = place
        elif made_up is not None and task in GENERATORS:
            generate(task, made_up / task)
            folders[task] = made_up / task
        elif made_up is not None and loaded.sample_recording is not None:
            folders[task] = shipped("recordings") / loaded.sample_recording
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
