"""A folder of recorded episodes, opened for writing: every episode is whole or absent."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any

from nacdrive.common.errors import UserError
from nacdrive.common.files import atomic_path
from nacdrive.common.result_folder import clear_staging, is_own, lock_folder, note_own, staged
from nacdrive.datasets import manifest as manifests
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.episode_file import to_parquet
from nacdrive.datasets.manifest import MANIFEST, SET_ASIDE, EpisodeInfo, read_manifest, settle, write_manifest


class RecordingWriter:
    """Adds episodes to a recording. A crash at any moment loses at most what was not yet handed to ``add``."""

    def __init__(
        self,
        folder: Path | str,
        *,
        source: str,
        fps: float,
        expert: str,
        recipe: Mapping[str, Any] | None = None,
        license: str | None = None,
        drive: Mapping[str, Any] | None = None,
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        """Start a recording, or go on with one.

        ``source`` is what is driven, such as ``carracing``, ``fps`` counts recorded frames per simulated second, and
        ``expert`` gives the labels. ``recipe`` is what must be the same when the recording is resumed, ``drive`` how it
        is driven, for those who drive it once more (plain JSON). Without ``license`` it keeps the one that it has.
        ``UserError`` if the folder holds a recording and neither ``resume`` nor ``overwrite`` is given, holds something
        else, or was recorded with another recipe.
        """
        self.folder = Path(folder)
        if overwrite and resume:
            raise UserError("--overwrite and --resume contradict each other: give one of them.")
        lock_folder(self.folder, self)
        clear_staging(self.folder)
        settle(self.folder)
        exists, full = (self.folder / MANIFEST).exists(), manifests.holds_something(self.folder)
        # What is replaced stays until the first new episode is whole.
        self._replaces = full and overwrite
        if self._replaces:
            manifests.own_files(self.folder)
        elif full:
            if not resume:
                raise UserError(
                    f"{self.folder} already holds "
                    + ("a result: give --resume, --overwrite, or" if exists else "files: give")
                    + " another folder."
                )
            if not exists:
                raise UserError(f"{self.folder} holds no recording that could be resumed: give another folder.")
        manifest = manifests.new_manifest(
            source=source, fps=fps, expert=expert, recipe=recipe or {}, license=license, drive=drive
        )
        listed: list[EpisodeInfo] = []
        if exists and resume:
            stored, listed = read_manifest(self.folder)
            refuse_other_recipe(self.folder, stored, manifest)
            manifest = manifests.with_license(stored, license, self.folder)
            if recipe is None and stored.get("drive") != drive:
                manifest.pop("drive", None)  # each was driven in its own way
        for path in manifests.own_partials(self.folder):
            path.unlink()
        self._manifest = manifest
        self._episodes = {info.path.name: info for info in listed if not set_aside_if_broken(info)}
        self.adopt_unlisted()

    @property
    def episodes(self) -> list[EpisodeInfo]:
        """What is in the folder, in order of seeds."""
        return sorted(self._episodes.values(), key=lambda info: (info.seed, info.path.name))

    @property
    def dropped(self) -> dict[int, float]:
        """Seeds that were driven and not kept, and their returns."""
        return {int(row["seed"]): float(row["episode_return"]) for row in self._manifest["dropped"]}

    def add(self, episode: Episode) -> Path:
        """Write one episode and list it; ``UserError`` if the disk is full, or it is of another source."""
        if episode.source != self._manifest["source"]:
            what = f"{self.folder} is a recording of '{self._manifest['source']}'"
            raise UserError(f"{what}: an episode of '{episode.source}' cannot go into it.")
        data = to_parquet(episode)
        return self.keep(data, EpisodeInfo.of(self.folder, episode, data))

    def drop(self, seed: int, episode_return: float) -> None:
        """Note that ``seed`` was driven and not kept."""
        rows = [row for row in self._manifest["dropped"] if row["seed"] != seed]
        rows.append({"seed": seed, "episode_return": episode_return})
        self._manifest["dropped"] = sorted(rows, key=lambda row: int(row["seed"]))
        self._save()

    def _save(self) -> None:
        if not self._replaces:
            write_manifest(self.folder, self._manifest, self._episodes.values())

    def keep(self, data: bytes, info: EpisodeInfo) -> Path:
        """List an episode as ``episode-SEED.parquet``, with a number behind it where that seed was driven before."""
        with staged(self.folder) if self._replaces else nullcontext(self.folder) as folder:
            path = free_path(folder / f"episode-{info.seed:07d}.parquet")
            with atomic_path(path) as partial:
                partial.write_bytes(data)
            self._episodes[path.name] = replace(info, path=self.folder / path.name)
            write_manifest(folder, self._manifest, self._episodes.values())
        settle(self.folder)
        self._replaces = False
        return self.folder / path.name

    def adopt_unlisted(self) -> None:
        """List episodes that were renamed into place just before a stop; leave alone what is not ours."""
        if self._replaces:
            return
        for info in manifests.unlisted_episodes(self.folder, self._manifest["source"], self._episodes.values()):
            self._episodes[info.path.name] = info
        self._save()


def set_aside_if_broken(info: EpisodeInfo) -> bool:
    """Move a truncated file out of the way, so that its seed is driven again; True if the episode is lost."""
    why = manifests.size_problem(info)
    if why is None:
        return False
    if info.path.is_file():
        set_aside(info.path)
    warnings.warn(f"{info.path} {why}: its seed is driven again.", stacklevel=3)
    return True


def set_aside(path: Path) -> Path:
    """Move a file of a recording into its folder for damaged ones; returns where it lies now."""
    folder = path.parent / SET_ASIDE
    folder.mkdir(exist_ok=True)
    target = free_path(folder / path.name)
    if is_own(path):
        note_own(target)
    return path.replace(target)


def free_path(path: Path) -> Path:
    """``path``, with a number behind its name where that is taken, or was before its file was set aside."""
    numbered = (path.with_stem(f"{path.stem}-{k}") for k in count(2))
    places = ((free, path.parent / SET_ASIDE / free.name) for free in chain([path], numbered))
    return next(free for free, aside in places if not (free.exists() or aside.exists()))


def refuse_other_recipe(folder: Path, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """A recording is only resumed with what it was begun with."""

    def flat(manifest: Mapping[str, Any]) -> dict[str, Any]:
        return {"source": manifest["source"], "expert": manifest["expert"], **manifest["recipe"]}

    old, new = flat(stored), flat(wanted)
    different = [f"{key} {old.get(key)} instead of {new.get(key)}" for key in old | new if old.get(key) != new.get(key)]
    if manifests.is_other_fps(stored["fps"], wanted["fps"]):
        different.append(f"fps {stored['fps']:g} instead of {wanted['fps']:g}")
    if different:
        problem = f"{folder} was recorded with {', '.join(different)}"
        raise UserError(f"{problem}: resume with the same options, or give another folder.")
