"""Whole or not at all: what is converted is made in a folder beside the wanted one, and moved when it is complete."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nacdrive.common.errors import UserError
from nacdrive.common.files import FULL
from nacdrive.common.result_folder import PARTIAL_SUFFIX, lock_folder, note_own, refuse_special_place, result_folder
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.episode_file import to_parquet
from nacdrive.datasets.manifest import EpisodeInfo, check_types, new_manifest, write_manifest
from nacdrive.datasets.writer import holds_something, own_files, remove_recording

HEADER = ("source", "fps", "expert", "recipe", "dropped", "versions", "license")
"""What a recording says of itself that another format must carry along."""


def header_of(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The part of ``recording.json`` that another format carries along."""
    return {name: meta[name] for name in HEADER if meta.get(name) is not None}


@contextmanager
def staged_folder(out: Path, *, overwrite: bool, last: str) -> Iterator[Path]:
    """Yield an empty folder whose files become those of ``out`` when the block ends well; else nothing is left of it.

    Args:
        out: The folder that is wanted; it must be empty, or an earlier result with ``overwrite``.
        overwrite: Replace an earlier result, when the new one is complete.
        last: Name of the file that makes the folder a data set; it is moved last.

    Raises:
        UserError: if ``out`` holds something else, or the disk is full.
    """
    result_folder(out, overwrite=overwrite)
    with made_beside(out) as staging:
        yield staging
        files = sorted(path for path in staging.rglob("*") if path.is_file())
        for path in sorted(files, key=lambda path: path.relative_to(staging).as_posix() == last):
            target = out / path.relative_to(staging)
            target.parent.mkdir(parents=True, exist_ok=True)
            note_own(target)
            path.replace(target)


@contextmanager
def made_beside(out: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``out``, on the same disk; it is removed in the end, whatever happens.

    Raises:
        UserError: if the disk is full.
    """
    parent = out.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=PARTIAL_SUFFIX, dir=parent))
    try:
        yield staging
    except OSError as error:
        if error.errno in FULL:
            raise UserError(
                f"no space left on the disk while writing {out}: nothing was written; free some space and run the "
                "same command again."
            ) from error
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


class _Owner:
    """Holds the lock of a folder while it lives."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from writing into ``folder``; if it was made for that and stays empty, it is removed."""
    owner = _Owner()
    lock_folder(folder, owner)
    try:
        yield
    finally:
        # Now, not when a traceback that holds this frame is thrown away.
        del owner


def write_recording(
    out: Path,
    header: Mapping[str, Any],
    seeds: Sequence[int],
    episodes: Iterable[Episode],
    *,
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda frames: None,
) -> tuple[int, int]:
    """Write a whole recording, or none: a recording that ``overwrite`` replaces stays until the new one is complete.

    Args:
        out: Folder of the recording; it must be empty, or a recording with ``overwrite``.
        header: See ``HEADER``; what is missing is filled in.
        seeds: Of the episodes, in their order, which the recording keeps.
        episodes: The episodes, one after the other; one of them is held at a time.
        overwrite: Replace the recording in ``out``.
        progress: Is told the frames so far.

    Returns:
        Episodes and frames.

    Raises:
        UserError: if ``out`` holds something else, the header makes no sense, or making an episode raises one.
    """
    with locked(out):
        if holds_something(out):
            if not overwrite:
                what = "a result: give --overwrite or" if own_files(out, refuse=False) else "files: give"
                raise UserError(f"{out} already holds {what} another --out.")
            refuse_special_place(out)
            own_files(out)
        manifest = manifest_of(header)
        infos: list[EpisodeInfo] = []
        frames = 0
        with made_beside(out) as staging:
            for name, episode in zip(episode_names(seeds), episodes, strict=True):
                data = to_parquet(episode)
                path = staging / name
                with path.open("wb") as file:
                    file.write(data)
                    os.fsync(file.fileno())
                infos.append(EpisodeInfo.of(path, episode, data))
                frames += len(episode)
                progress(frames)
            write_manifest(staging, manifest, infos)
            if overwrite:
                remove_recording(out)
            # Without recording.json it is no recording yet, so that comes last.
            for path in sorted(staging.iterdir(), key=lambda path: path.suffix == ".json"):
                path.replace(out / path.name)
    return len(infos), frames


def manifest_of(header: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest that a header stands for.

    Raises:
        UserError: if a part of it has another type than nacdrive writes.
    """
    try:
        manifest = new_manifest(
            source=header["source"], fps=header["fps"], expert=header["expert"], recipe=header["recipe"]
        )
        more = {name: header[name] for name in ("dropped", "versions", "license") if header.get(name) is not None}
        manifest = {**manifest, **more}
        check_types(manifest)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(
            f"what the data set says of its recording is damaged ({type(error).__name__}: {error}): export it again."
        ) from error
    return manifest


def episode_names(seeds: Sequence[int]) -> list[str]:
    """Names of files that keep the order of the episodes where several are of one seed: a recording sorts by name."""
    names: dict[int, Iterator[str]] = {}
    for seed, count in Counter(seeds).items():
        stem = f"episode-{seed:07d}"
        names[seed] = iter(sorted([f"{stem}.parquet", *(f"{stem}-{i}.parquet" for i in range(2, count + 1))]))
    return [next(names[seed]) for seed in seeds]
