"""``nacdrive recordings info|check|merge|import|export|card``: look after recorded episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from annotated_types import Interval

from nacdrive.common.errors import UserError
from nacdrive.common.options import Overwrite, Target
from nacdrive.datasets.options import LicenseOption, RecordingOption, RecordingsOption

if TYPE_CHECKING:
    from nacdrive.datasets.check import CheckResult
    from nacdrive.datasets.recording import Recording

Format = Literal["lerobot", "minari", "donkeycar", "udacity"]
IMPORTS: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "udacity": ("driving_log.csv", "datasets.udacity_log_convert", "import_log", ()),
    "lerobot": ("meta/info.json", "extras.exchange.lerobot_import", "import_lerobot", ("source",)),
    "minari": ("data/metadata.json", "extras.exchange.minari_import", "import_minari", ("source", "fps")),
    "donkeycar": ("manifest.json", "extras.exchange.tub", "import_tub", ("source",)),
}
"""Format -> the file by which it is known; who imports it (module and function), and what that needs to be told of a
data set that nacdrive did not write."""


class InfoConfig(RecordingOption):
    """Say what a recording holds."""


class CheckConfig(RecordingOption):
    """Read every file of a recording to its end and name those that are truncated, foreign or altered."""

    set_aside: bool = False
    """Move such episodes into the recording's folder 'damaged' and list only the sound ones; other files stay."""


class MergeConfig(RecordingsOption, Target):
    """Copy the episodes of several recordings of one environment into a new one."""


class ImportConfig(RecordingOption, Target):
    """Make a recording of a LeRobot or Minari data set, of a tub of donkeycar's, or of the Udacity simulator's log."""

    from_: Annotated[Format | None, tyro.conf.arg(name="from")] = None
    """lerobot (v3.x with images), minari (HDF5), donkeycar (a tub, version 2), udacity; if not given, by its files."""
    source: str | None = None
    """lerobot, minari, donkeycar: what was driven (carracing, udacity, ...) where nacdrive did not write the data."""
    fps: Annotated[float | None, Interval(ge=0.1, le=1000)] = None
    """minari: frames a second, where nacdrive did not write the data set and it does not tell."""


class ExportConfig(RecordingOption, Target):
    """Write a recording as a LeRobot or Minari data set, a tub of donkeycar's, or in the Udacity simulator's layout."""

    to: Format = "udacity"
    """lerobot (v3.0, images), minari (HDF5), donkeycar (tub, version 2), all lossless; udacity: of the simulator."""


class CardConfig(RecordingOption, LicenseOption, Overwrite):
    """Write README.md, a card of the recording for people and for the Hugging Face Hub."""


def info(config: InfoConfig) -> Recording:
    """Print a table of the episodes."""
    from rich.console import Console
    from rich.table import Table

    from nacdrive.datasets.recording import Recording

    recording = Recording.open(config.data)
    episodes = recording.episodes
    console = Console(highlight=False, markup=False)
    console.print(repr(recording), soft_wrap=True)
    table = Table("file", "seed", "driver", "frames", "seconds", "return", "kB", box=None)
    for column in table.columns[3:]:
        column.justify = "right"
    for item in episodes:
        numbers = (f"{item.duration_s:.1f}", f"{item.episode_return:.1f}", f"{item.size_bytes / 1000:.0f}")
        table.add_row(item.path.name, str(item.seed), item.driver, str(item.steps), *numbers)
    console.print(table)
    returns = [item.episode_return for item in episodes]
    console.print(
        f"{len(episodes)} episodes, {sum(item.steps for item in episodes)} frames, "
        f"{sum(item.duration_s for item in episodes) / 60:.1f} minutes, "
        f"{sum(item.size_bytes for item in episodes) / 1e6:.1f} MB, return {sum(returns) / len(returns):.1f} on average"
    )
    if recording.meta.get("license"):
        console.print(f"licence {recording.meta['license']}")
    for row in recording.meta["dropped"]:
        console.print(f"dropped when recording: seed {row['seed']} (return {row['episode_return']:.1f})")
    return recording


def check(config: CheckConfig) -> tuple[int, CheckResult]:
    """Print one line per file that is not what was recorded; 0 if there is none, 1 if there is one."""
    from nacdrive.datasets.check import check_recording, keep_sound

    result = check_recording(config.data)
    for problem in result.problems:
        print(f"{problem.path} {problem.why}")
    frames = sum(item.steps for item in result.sound)
    if not result.problems:
        print(f"{config.data}: all {len(result.sound)} episodes ({frames} frames) are as they were recorded")
        return 0, result
    if config.set_aside:
        result, moved = keep_sound(config.data)
        print(f"{len(moved)} files moved to {config.data / 'damaged'}; {len(result.sound)} episodes remain")
    else:
        print(
            f"the other {len(result.sound)} episodes ({frames} frames) are as they were recorded and usable: "
            f"'nacdrive recordings check {config.data} --set-aside' moves damaged episodes away"
        )
    return 1, result


def merge(config: MergeConfig) -> None:
    """Merge and say how many episodes came together."""
    from nacdrive.datasets.recording import merge_recordings

    episodes, duplicates = merge_recordings(config.data, config.out, overwrite=config.overwrite)
    twice = f" ({duplicates} found in more than one recording are kept once)" if duplicates else ""
    print(f"{config.out}: {episodes} episodes{twice}")


def import_(config: ImportConfig) -> None:
    """Import and say how much it was."""
    marked = (name for name, (mark, *_) in IMPORTS.items() if (config.data / mark).is_file())
    # A log of the simulator may have any name, and its reader says what it misses in a folder.
    is_log = config.data.is_file() or any(config.data.glob("*/driving_log.csv"))
    name: str = config.from_ or next(marked, "udacity" if is_log else "")
    if not name:
        marks = " or ".join(mark for mark, *_ in IMPORTS.values())
        raise UserError(f"{config.data} is no data set that is known (no {marks}): check the path, or give --from.")
    given: dict[str, Any] = {"source": config.source, "fps": config.fps}
    _, module, function, known = IMPORTS[name]
    for option, value in given.items():
        if value is not None and option not in known:
            raise UserError(f"--{option} means nothing to an import from {name}: leave it out.")
    with counter("importing") as count:
        options = {option: given[option] for option in known}
        convert = getattr(import_module(f"nacdrive.{module}"), function)
        result = convert(config.data, config.out, overwrite=config.overwrite, progress=count, **options)
    print(f"{config.out}: {result.episodes} drives, {result.frames} frames from {config.data}")


def export(config: ExportConfig) -> None:
    """Export and say how much it was."""
    with counter("exporting") as count:
        how: dict[str, Any] = {"overwrite": config.overwrite, "progress": count}
        if config.to == "lerobot":
            from nacdrive.extras.exchange.lerobot_export import export_lerobot

            result = export_lerobot(config.data, config.out, **how)
            what = f"LeRobot v3.0 data set of {result.episodes} episodes, {result.frames} frames"
        elif config.to == "minari":
            from nacdrive.datasets.recording import Recording
            from nacdrive.envs.gym_spec import gym_spec_of
            from nacdrive.extras.exchange.minari_export import dataset_id, export_minari

            result = export_minari(config.data, config.out, gym=gym_spec_of(Recording.open(config.data).meta), **how)
            what = f"Minari data set {dataset_id(config.out)} of {result.episodes} episodes, {result.frames} steps"
        elif config.to == "donkeycar":
            from nacdrive.extras.exchange.tub import export_tub

            result = export_tub(config.data, config.out, **how)
            what = f"donkeycar tub of {result.episodes} sessions, {result.frames} records"
        else:
            from nacdrive.datasets.recording import Recording
            from nacdrive.datasets.udacity_log_convert import SOURCE, export_log

            if (source := Recording.open(config.data).meta["source"]) != SOURCE:
                raise UserError(
                    f"{config.data} was recorded in '{source}', and --to udacity is for recordings of the simulator: "
                    "give --to lerobot, minari or donkeycar."
                )
            result = export_log(config.data, config.out, **how)
            what = f"driving_log.csv with {result.frames} rows of {result.episodes} drives, images in IMG"
    print(f"{config.out}: {what}")


def card(config: CardConfig) -> None:
    """Write the card and say what it says of the licence."""
    from nacdrive.extras.exchange.card import write_card

    path, license = write_card(config.data, license=config.license, overwrite=config.overwrite)
    named = f"licence {license}" if license else "no licence: nobody else may use the recording (--license names one)"
    print(f"{path}: {named}")


@contextmanager
def counter(what: str) -> Iterator[Callable[[int], None]]:
    """A line on the terminal that counts frames."""
    from nacdrive.common.progress import progress_console

    with progress_console().status(what) as status:
        yield lambda frames: status.update(f"{what}: {frames} frames")


VERBS = {
    "info": (InfoConfig, info),
    "check": (CheckConfig, check),
    "merge": (MergeConfig, merge),
    "import": (ImportConfig, import_),
    "export": (ExportConfig, export),
    "card": (CardConfig, card),
}
