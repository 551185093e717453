"""``nacdrive data list|fetch|check``: the public data sets beside driving."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nacdrive.common.errors import UserError
from nacdrive.common.options import Options
from nacdrive.common.paths import data_folder

if TYPE_CHECKING:
    from nacdrive.datasets.inspect import Finding


class FolderOption(Options):
    """Where data sets lie."""

    folder: Path | None = None
    """Folder of the data sets, each in one of its name; if not given $NACDRIVE_DATA, or 'data' here."""


class ListConfig(FolderOption):
    """Say which data sets nacdrive knows, and which are there."""


class FetchConfig(FolderOption):
    """Download data sets and compare their checksums."""

    positional = ("names",)

    names: tuple[str, ...] = ()
    """Names of data sets, such as 'mnist'."""


class CheckConfig(Options):
    """Read a data set to its end and name what is missing or damaged."""

    positional = ("name", "folder")

    name: str
    """Of the data set, such as mnist or par (nacdrive data list has all); the first word without an option's name."""
    folder: Path | None = None
    """Where it lies; default is a folder of its name among the data sets."""


def list_(config: ListConfig) -> list[dict[str, Any]]:
    """Print what each data set is, how it is got, and where it lies."""
    from nacdrive.datasets.downloads import DATA_SETS

    root = config.folder or data_folder()
    if root.exists() and not root.is_dir():
        raise UserError(f"{root} is a file: give the folder of the data sets with --folder.")
    rows = []
    for name, data_set in DATA_SETS.items():
        place = root / name
        there = place.is_dir() and any(place.iterdir())
        print(f"{name:<10} {data_set.what}")
        print(f"{'':<10} {f'nacdrive data fetch {name}' if data_set.files else f'by hand from {data_set.home}'}")
        print(f"{'':<10} {'lies in' if there else 'not in'} {place}")
        rows.append({"name": name, "what": data_set.what, "home": data_set.home, "folder": place, "there": there})
    return rows


def fetch(config: FetchConfig) -> None:
    """Fetch one data set after another."""
    from rich.progress import DownloadColumn

    from nacdrive.common.progress import progress_bar
    from nacdrive.datasets import downloads

    if not config.names:
        raise UserError(f"name the data sets to fetch: known are {', '.join(downloads.DATA_SETS)}.")
    for data_set in [downloads.find_data_set(name) for name in config.names]:
        folder = (config.folder or data_folder()) / data_set.name
        with progress_bar(DownloadColumn()) as progress:
            paths = downloads.fetch(data_set, folder, bar=partial(FileBar, progress))
        print(f"{folder}: {len(paths)} file{'s' * (len(paths) != 1)} of {data_set.name}, as published")


class FileBar:
    """A bar of rich with the methods of tqdm's that pooch calls."""

    total = 0
    """Bytes of the file; pooch sets it when the server has said."""

    def __init__(self, progress: Any, name: str) -> None:
        self.progress = progress
        self.task = progress.add_task(name, total=None)

    def update(self, size: int) -> None:
        self.progress.update(self.task, advance=size, total=self.total or None)

    def reset(self) -> None:
        self.progress.update(self.task, completed=0)

    def close(self) -> None:
        """Nothing is left open."""


def check(config: CheckConfig) -> tuple[int, list[Finding]]:
    """Print one line per finding; 0 if all is sound, 1 if something is missing or damaged."""
    from nacdrive.datasets.downloads import find_data_set
    from nacdrive.datasets.inspect import contents

    data_set = find_data_set(config.name)
    folder = config.folder or data_folder() / data_set.name
    marks = {"sound": "", "note": "note: ", "problem": "PROBLEM: "}
    findings = []
    for finding in contents(data_set.name, folder):
        print(f"{marks[finding.kind]}{finding.text}")
        findings.append(finding)
    return int(any(finding.kind == "problem" for finding in findings)), findings


VERBS = {"list": (ListConfig, list_), "fetch": (FetchConfig, fetch), "check": (CheckConfig, check)}
