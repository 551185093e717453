"""Whole or not at all: what is converted is made in a folder beside the wanted one, and moved when it is complete."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from nacdrive.common.errors import MISFITS, UserError, named, quoted
from nacdrive.common.result_folder import locked, publish, result_folder, staged
from nacdrive.datasets import manifest as manifests
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.episode_file import to_parquet
from nacdrive.datasets.manifest import EpisodeInfo, check_types, holds_something, own_files, settle, write_manifest

Progress = Callable[[int], None]
"""Gets the frames so far."""


class Converted(NamedTuple):
    """What an import or export wrote."""

    episodes: int
    frames: int


HEADER = ("source", "fps", "expert", "recipe", "dropped", "versions", "license")
"""What a recording says of itself that another format must carry along."""


def unseen(frames: int) -> None:
    """The ``Progress`` that nobody looks at."""


def header_of(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The part of ``recording.json`` that another format carries along."""
    return {name: meta[name] for name in HEADER if meta.get(name) is not None}


@contextmanager
def staged_folder(out: Path, *, overwrite: bool, reads: Path | None = None) -> Iterator[Path]:
    """Yield an empty folder whose files become those of ``out`` when the block ends well; else nothing is left."""
    result_folder(out, overwrite=overwrite, reads=(reads,))
    with staged(out) as staging:
        yield staging
    publish(out)


@contextmanager
def staged_recording(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield an empty folder whose recording becomes that of ``out`` when the block ends well; else nothing is left."""
    with locked(out):
        settle(out)
        if holds_something(out):
            if not overwrite:
                what = "a result: give --overwrite or" if own_files(out, refuse=False) else "files: give"
                raise UserError(f"{out} already holds {what} another --out.")
            own_files(out)
        with staged(out) as staging:
            yield staging
        settle(out)


def write_recording(
    out: Path,
    header: Mapping[str, Any],
    seeds: Sequence[int],
    episodes: Iterable[Episode],
    *,
    overwrite: bool = False,
    progress: Progress = unseen,
) -> Converted:
    """Write a whole recording, or none: a recording that ``overwrite`` replaces stays until the new one is complete.
    ``UserError`` if ``out`` holds something else, the header makes no sense, or making an episode raises one.

    ``header`` has the names of ``HEADER``; ``seeds`` are those of the ``episodes``, in an order which the recording
    keeps, and one episode is held at a time.
    """
    with staged_recording(out, overwrite=overwrite) as staging:
        manifest = manifest_of(header)
        infos: list[EpisodeInfo] = []
        frames = 0
        for name, episode in zip(episode_names(seeds), episodes, strict=True):
            data, path = to_parquet(episode), staging / name
            with path.open("wb") as file:
                file.write(data)
                os.fsync(file.fileno())
            infos.append(EpisodeInfo.of(path, episode, data))
            frames += len(episode)
            progress(frames)
        write_manifest(staging, manifest, infos)
    return Converted(len(infos), frames)


def manifest_of(header: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest that a header stands for."""
    with quoted("what the data set says of its recording is damaged (", "): export it again.", *MISFITS, say=named):
        manifest = manifests.new_manifest(**{name: header[name] for name in HEADER[:4]})
        manifest |= {name: header[name] for name in HEADER[4:] if header.get(name) is not None}
        check_types(manifest)
    return manifest


def episode_names(seeds: Sequence[int]) -> list[str]:
    """Names of files that keep the order of the episodes where several are of one seed: a recording sorts by name."""
    names: dict[int, Iterator[str]] = {}
    for seed, count in Counter(seeds).items():
        stem = f"episode-{seed:07d}"
        names[seed] = iter(sorted([f"{stem}.parquet", *(f"{stem}-{i}.parquet" for i in range(2, count + 1))]))
    return [next(names[seed]) for seed in seeds]
