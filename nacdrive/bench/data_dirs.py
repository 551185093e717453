"""Where the data of each task lie under one folder; made up where they are absent and a smoke run may do without."""

from __future__ import annotations

from pathlib import Path

from nacdrive.common.errors import UserError
from nacdrive.common.paths import shipped
from nacdrive.datasets.synthetic import make_up
from nacdrive.tasks.synthetic_marker import is_made_up

FOLDERS: dict[str, tuple[str, ...]] = {
    "emnist": ("mnist", "emnist"),
    "par": ("par",),
    "carracing": ("carracing", "carracing-expert"),
    "udacity": ("udacity", "udacity_track"),
    "pronostia": ("pronostia",),
    "xjtu-sy": ("xjtu-sy", "xjtu_sy", "xjtu_features"),
    "hust": ("hust", "hust_features"),
}
"""Names that a task's folder, or its archive NAME.tar.xz, may have; the first is the one that messages tell."""


def find_places(tasks: list[str], data: Path, made_up: Path | None) -> dict[str, Path]:
    """Folder of each task's data.

    Args:
        tasks: what is asked for.
        data: folder that holds them.
        made_up: where to make up what is absent; None: absent data are a mistake.

    Raises:
        UserError: if data are absent; the sentence names all of them.
    """
    places, absent = {}, []
    for task in tasks:
        candidates = [data / f"{name}{ending}" for name in FOLDERS[task] for ending in ("", ".tar.xz")]
        found = next((place for place in candidates if filled(place)), None)
        if found is None and task == "carracing" and made_up is not None:
            found = shipped("recordings") / "carracing-sample"
        if found is not None:
            places[task] = found
        elif made_up is not None:
            make_up(task, made_up / task)
            places[task] = made_up / task
        else:
            absent.append(task)
    if absent:
        wanted = ", ".join(f"{data / FOLDERS[task][0]} ({task})" for task in absent)
        raise UserError(
            f"there are no data in {wanted}: put them there, name their folder with --data, or drop the task."
        )
    return places


def filled(place: Path) -> bool:
    """Whether a folder holds anything; an archive does."""
    return place.is_file() or (place.is_dir() and any(place.iterdir()))


def told(places: dict[str, Path]) -> list[str]:
    """One line per task: where its data come from, and whether they are any."""
    return [f"{task}: MADE-UP DATA, not {task}" if is_made_up(at) else f"{task}: {at}" for task, at in places.items()]
