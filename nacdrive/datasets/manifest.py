"""``recording.json``: what a recording folder says of itself and of its episodes."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nacdrive.common.errors import MISFITS, UserError, named, quoted
from nacdrive.common.files import read_json, write_json
from nacdrive.common.result_folder import BOOKKEEPING, COMPLETE, locked, partial_target, publish, refuse_special_place
from nacdrive.common.runs import package_versions
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.episode_file import SCHEMA_VERSION, UNITS, NotAnEpisodeError, from_parquet

MANIFEST = "recording.json"
KIND = "nacdrive recording"
EPISODE_GLOB = "episode-*.parquet"
EPISODE_NAME = re.compile(r"episode-\d{7,}(-[\w.-]+)?\.parquet")
"""What nacdrive calls the files of episodes: their seed, then a track or a number."""
SET_ASIDE = "damaged"
"""Folder inside a recording for files that ``recordings check --set-aside`` has moved away."""
DRIVES = "drives"
"""Folder of an evaluation that holds its filmed drives as a recording."""
CARD = "README.md"
"""What a recording says of itself to people and to the Hub: written by ``nacdrive recordings card``."""
CARD_MARK = "<!-- nacdrive recordings card "
LICENSE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}")
"""An SPDX identifier, such as CC-BY-4.0, or one of the Hub, such as cc-by-4.0."""


@dataclass(frozen=True)
class EpisodeInfo:
    """What ``recording.json`` knows of one episode."""

    path: Path
    seed: int
    steps: int
    duration_s: float
    """Simulated seconds from the first frame to the last."""
    episode_return: float
    driver: str
    size_bytes: int
    """Length of the file when it was written."""
    sha256: str
    """Checksum of the file when it was written."""

    @staticmethod
    def of(path: Path, episode: Episode, data: bytes) -> EpisodeInfo:
        """The entry for ``episode`` whose file holds ``data``."""
        return EpisodeInfo(
            path=path,
            seed=episode.seed,
            steps=len(episode),
            duration_s=float(episode.t_s[-1] - episode.t_s[0]),
            episode_return=episode.episode_return,
            driver=episode.driver,
            size_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
        )

    def to_json(self) -> dict[str, Any]:
        """The entry with the file's name alone, so that a folder can be moved."""
        return {"file": self.path.name, **{key: value for key, value in vars(self).items() if key != "path"}}

    @staticmethod
    def from_json(folder: Path, entry: Mapping[str, Any]) -> EpisodeInfo:
        name = entry["file"]
        if not isinstance(name, str) or Path(name).name != name:
            raise ValueError(f"'{name}' is not the name of a file in the folder")
        kinds: dict[str, type] = {"seed": int, "steps": int, "duration_s": float, "episode_return": float}
        kinds |= {"driver": str, "size_bytes": int, "sha256": str}
        return EpisodeInfo(folder / name, **{key: kind(entry[key]) for key, kind in kinds.items()})


def new_manifest(
    *,
    source: str,
    fps: float,
    expert: str,
    recipe: Mapping[str, Any],
    license: str | None = None,
    drive: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The manifest of a recording that holds no episode yet; what is None it does not name.

    ``drive`` says how its episodes are driven: ``Drive.to_json`` of ``rollout/drive.py``.
    """
    manifest = {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "source": source,
        "fps": fps,
        "expert": expert,
        "recipe": dict(recipe),
        "units": UNITS,
        "versions": package_versions(),
        "dropped": [],
        "episodes": [],
    }
    manifest |= {} if drive is None else {"drive": dict(drive)}
    return manifest if license is None else {**manifest, "license": check_license(license)}


def check_license(name: str) -> str:
    """``name``, if it can be the identifier of a licence."""
    if not LICENSE.fullmatch(name):
        what = f"--license '{name[:80]}' is no identifier of a licence"
        raise UserError(f"{what}: give one such as CC-BY-4.0, CC0-1.0 or MIT (letters, digits, dots, hyphens).")
    return name


def with_license(manifest: dict[str, Any], license: str | None, folder: Path) -> dict[str, Any]:
    """A manifest that names the licence too; another one stays: what was given away is not taken back in passing."""
    if license is None or manifest.get("license") == license:
        return manifest
    if manifest.get("license") is not None:
        raise UserError(
            f"{folder} is under {manifest['license']}, not {license}: leave --license out, or change the licence with "
            f"'nacdrive recordings card {folder} --license {license}'."
        )
    return {**manifest, "license": check_license(license)}


def sign_card(text: str) -> str:
    """A card with a last line by which it is known as ours for as long as nobody has edited it."""
    body = text.rstrip("\n") + "\n\n"
    return f"{body}{CARD_MARK}{hashlib.sha256(body.encode()).hexdigest()} -->\n"


def is_own_card(path: Path) -> bool:
    """Whether a file is a card that nacdrive wrote and nobody has edited since."""
    try:
        body, mark, _ = path.read_text(encoding="utf-8").rpartition(CARD_MARK)
        return bool(mark) and sign_card(body) == path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False


def write_manifest(folder: Path, manifest: Mapping[str, Any], episodes: Iterable[EpisodeInfo]) -> None:
    """Write ``recording.json`` atomically; episodes in order of their seeds, whatever order they came in."""
    rows = [info.to_json() for info in sorted(episodes, key=lambda info: (info.seed, info.path.name))]
    write_json(folder / MANIFEST, {**manifest, "episodes": rows})


def read_manifest(folder: Path) -> tuple[dict[str, Any], list[EpisodeInfo]]:
    """The manifest and its episodes; whether their files are there is not looked at. ``UserError`` if the folder is
    missing or empty, or holds no recording that this version can read.

    A recording that was to be replaced when the process was killed is replaced first.
    """
    settle(folder)
    return _read_manifest(folder)


def _read_manifest(folder: Path) -> tuple[dict[str, Any], list[EpisodeInfo]]:
    path = folder / MANIFEST
    if not folder.exists():
        raise UserError(f"there is no folder {folder}: check the path, or make a recording with 'nacdrive record'.")
    if not folder.is_dir():
        raise UserError(f"{folder} is a file: give the folder of a recording (the one that holds {MANIFEST}).")
    if not path.exists():
        is_full = any(folder.iterdir())
        advice = "give a folder that has one" if is_full else f"make one with 'nacdrive record --out {folder}'"
        raise UserError(f"{folder} {'holds no recording' if is_full else 'is empty'} (no {MANIFEST} in it): {advice}.")
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND:
        raise UserError(f"{path} is no recording of nacdrive: it was written by another program.")
    version = manifest.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        problem = f"{path} has schema {version}, and this nacdrive reads up to {SCHEMA_VERSION}"
        raise UserError(f"{problem}: install a newer nacdrive.")
    with quoted(f"{path} is damaged (", "): restore it from a copy.", *MISFITS, AttributeError, say=named):
        listed = [EpisodeInfo.from_json(folder, entry) for entry in manifest["episodes"]]
        missing = {"source", "fps", "expert", "recipe", "dropped"} - manifest.keys()
        if not missing:
            check_types(manifest)
    if missing:
        raise UserError(f"{path} is damaged (it lacks {', '.join(sorted(missing))}): restore it from a copy.")
    # A file that is listed twice is one episode.
    return manifest, list({info.path.name: info for info in listed}.values())


def check_types(manifest: Mapping[str, Any]) -> None:
    """Check what a manifest says of its recording: ``ValueError`` if a part has another type than it is written with,
    or the rate is no rate; ``TypeError`` or ``KeyError`` if an entry of ``dropped`` is none.
    """
    for name, kind in (("source", str), ("expert", str), ("recipe", dict), ("dropped", list)):
        if not isinstance(manifest[name], kind):
            raise ValueError(f"{name} is no {kind.__name__}")
    fps = manifest["fps"]
    if isinstance(fps, bool) or not isinstance(fps, (int, float)) or not 0 < fps < math.inf:
        raise ValueError(f"fps is {fps!r}")
    for row in manifest["dropped"]:
        int(row["seed"]), float(row["episode_return"])
    license = manifest.get("license")
    if license is not None and not (isinstance(license, str) and LICENSE.fullmatch(license)):
        raise ValueError(f"license is {license!r}")


def is_other_fps(one: float, two: float) -> bool:
    """Whether two rates are not one: those of logs of one simulator differ by a percent."""
    return abs(one - two) > 0.2 * max(one, two)


def size_problem(info: EpisodeInfo) -> str | None:
    """What is wrong with a listed file as far as its length tells, or None."""
    if not info.path.is_file():
        return "is missing"
    size = info.path.stat().st_size
    if size < info.size_bytes:
        return f"is truncated ({size} of {info.size_bytes} bytes)"
    if size > info.size_bytes:
        return f"has been altered since it was recorded ({size} bytes instead of {info.size_bytes})"
    return None


def unlisted_episodes(folder: Path, source: str, listed: Iterable[EpisodeInfo]) -> list[EpisodeInfo]:
    """Episodes that were renamed into place just before a crash kept them from being listed; nothing foreign."""
    known = {info.path.name for info in listed}
    unlisted = []
    for path in sorted(folder.glob(EPISODE_GLOB)):
        if path.name in known or not EPISODE_NAME.fullmatch(path.name) or not path.is_file():
            continue
        data = path.read_bytes()
        try:
            episode = from_parquet(data)
        except NotAnEpisodeError:
            continue
        if episode.source == source:
            unlisted.append(EpisodeInfo.of(path, episode, data))
    return unlisted


def holds_something(folder: Path) -> bool:
    """Whether there is anything in a folder but what nacdrive keeps its books with."""
    return any(path.name not in BOOKKEEPING for path in folder.iterdir())


def settle(folder: Path) -> None:
    """Finish the replacement of a recording by one that is complete; whoever was doing it may have been killed."""
    complete = folder / COMPLETE
    if not complete.is_dir():
        return
    with locked(folder):
        if (complete / MANIFEST).is_file():
            kept = {folder / info.path.name for info in _read_manifest(complete)[1]} | {folder / MANIFEST}
            for path in set(_own_files(folder)) - kept:
                path.unlink(missing_ok=True)
            with suppress(OSError):
                # Only where nothing else lies in it.
                (folder / SET_ASIDE).rmdir()
        publish(folder)


def own_partials(folder: Path) -> list[Path]:
    """Unfinished files that a killed process left in a recording."""
    names = {path: target.name for path in folder.iterdir() if (target := partial_target(path))}
    return [path for path, name in names.items() if name in (MANIFEST, CARD) or EPISODE_NAME.fullmatch(name)]


def own_files(folder: Path, *, refuse: bool = True) -> list[Path]:
    """The files of the recording in a folder; [] where it holds something else and that is not refused."""
    if refuse:
        refuse_special_place(folder)
    aside, own = folder / SET_ASIDE, _own_files(folder)
    there = [*folder.iterdir(), *(aside.iterdir() if aside.is_dir() else ())]
    foreign = sorted(path.name for path in there if path not in (*own, aside) and path.name not in BOOKKEEPING)
    if not foreign and own:
        return own
    if not refuse:
        return []
    unlisted = not own and all(map(EPISODE_NAME.fullmatch, foreign))
    what = f"no {MANIFEST}" if unlisted else f"files that are no recording ({', '.join(foreign[:3])})"
    raise UserError(f"{folder} holds {what}, so --overwrite leaves it alone: give another --out.")


def _own_files(folder: Path) -> list[Path]:
    """What is the recording's of a folder: the episodes that it lists, or that only a crash kept from being listed."""
    if not (folder / MANIFEST).is_file():
        return []
    manifest, listed = _read_manifest(folder)
    listed += unlisted_episodes(folder, manifest["source"], listed)
    aside = (folder / SET_ASIDE).iterdir() if (folder / SET_ASIDE).is_dir() else ()
    own = [path for path in (*(info.path for info in listed), *aside) if EPISODE_NAME.fullmatch(path.name)]
    own += [folder / CARD] if is_own_card(folder / CARD) else []
    return [*own, *own_partials(folder), folder / MANIFEST]
