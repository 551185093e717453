"""``nacdrive recordings info|check|merge|import|export``: look after recorded episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class InfoConfig:
    """Say what a recording holds."""

    folder: tyro.conf.Positional[Path]
    """Folder of the recording."""


@dataclass(frozen=True)
class CheckConfig:
    """Read every file of a recording to its end and name those that are truncated, foreign or altered."""

    folder: tyro.conf.Positional[Path]
    """Folder of the recording."""
    set_aside: bool = False
    """Move such files into the recording's folder 'damaged' and list only the sound episodes."""


@dataclass(frozen=True)
class MergeConfig:
    """Copy the episodes of several recordings of one environment into a new one."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of the recordings."""
    out: Path
    """Folder of the new recording."""
    overwrite: bool = False
    """Delete the recording in --out first."""


@dataclass(frozen=True)
class ImportConfig:
    """Make a recording of what the Udacity simulator recorded (driving_log.csv and IMG)."""

    folder: tyro.conf.Positional[Path]
    """Folder that the simulator recorded into."""
    out: Path
    """Folder of the new recording."""
    overwrite: bool = False
    """Delete the recording in --out first."""


@dataclass(frozen=True)
class ExportConfig:
    """Write a recording of the Udacity simulator in the simulator's own layout (driving_log.csv and IMG)."""

    folder: tyro.conf.Positional[Path]
    """Folder of the recording."""
    out: Path
    """Folder for driving_log.csv and IMG."""
    overwrite: bool = False
    """Delete what an earlier export wrote to --out first."""


def info(config: InfoConfig) -> int:
    """Print a table of the episodes."""
    from rich.console import Console
    from rich.table import Table

    from nacdrive.datasets.recording import Recording

    recording = Recording.open(config.folder)
    episodes = recording.episodes
    console = Console(highlight=False)
    console.print(repr(recording), soft_wrap=True, markup=False)
    table = Table("file", "seed", "driver", "frames", "seconds", "return", "kB", box=None)
    for column in table.columns[3:]:
        column.justify = "right"
    for item in episodes:
        table.add_row(
            item.path.name,
            str(item.seed),
            item.driver,
            str(item.steps),
            f"{item.duration_s:.1f}",
            f"{item.episode_return:.1f}",
            f"{item.size_bytes / 1000:.0f}",
        )
    console.print(table)
    returns = [item.episode_return for item in episodes]
    console.print(
        f"{len(episodes)} episodes, {sum(item.steps for item in episodes)} frames, "
        f"{sum(item.duration_s for item in episodes) / 60:.1f} minutes, "
        f"{sum(item.size_bytes for item in episodes) / 1e6:.1f} MB, return {sum(returns) / len(returns):.1f} on average"
    )
    for row in recording.meta["dropped"]:
        console.print(f"dropped when recording: seed {row['seed']} (return {row['episode_return']:.1f})")
    return 0


def check(config: CheckConfig) -> int:
    """Print one line per file that is not what was recorded; 0 if there is none, 1 if there is one."""
    from nacdrive.datasets.check import check_recording, keep_sound

    result = check_recording(config.folder)
    for problem in result.problems:
        print(f"{problem.path} {problem.why}")
    frames = sum(item.steps for item in result.sound)
    if not result.problems:
        print(f"{config.folder}: all {len(result.sound)} episodes ({frames} frames) are as they were recorded")
        return 0
    if config.set_aside:
        moved = keep_sound(config.folder, result)
        print(f"{len(moved)} files moved to {config.folder / 'damaged'}; {len(result.sound)} episodes remain")
    else:
        print(
            f"the other {len(result.sound)} episodes ({frames} frames) are as they were recorded and usable: "
            f"'nacdrive recordings check {config.folder} --set-aside' moves the files named above away"
        )
    return 1


def merge(config: MergeConfig) -> int:
    """Merge and say how many episodes came together."""
    from nacdrive.datasets.merge import merge_recordings

    result = merge_recordings(config.folders, config.out, overwrite=config.overwrite)
    twice = f" ({result.duplicates} found in more than one recording are kept once)" if result.duplicates else ""
    print(f"{config.out}: {result.episodes} episodes{twice}")
    return 0


def import_(config: ImportConfig) -> int:
    """Import and say how much it was."""
    from nacdrive.datasets.udacity_log_convert import import_log

    with counter("importing") as count:
        result = import_log(config.folder, config.out, overwrite=config.overwrite, progress=count)
    print(f"{config.out}: {result.episodes} drives, {result.frames} frames from {config.folder}")
    return 0


def export(config: ExportConfig) -> int:
    """Export and say how much it was."""
    from nacdrive.datasets.udacity_log_convert import export_log

    with counter("exporting") as count:
        result = export_log(config.folder, config.out, overwrite=config.overwrite, progress=count)
    print(f"{config.out}: driving_log.csv with {result.frames} rows of {result.episodes} drives, images in IMG")
    return 0


@contextmanager
def counter(what: str) -> Iterator[Callable[[int], None]]:
    """A line on the terminal that counts frames."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    with console.status(what) as status:
        yield lambda frames: status.update(f"{what}: {frames} frames")


VERBS = {
    "info": (InfoConfig, info),
    "check": (CheckConfig, check),
    "merge": (MergeConfig, merge),
    "import": (ImportConfig, import_),
    "export": (ExportConfig, export),
}
