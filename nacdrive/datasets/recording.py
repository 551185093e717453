"""A folder of recorded episodes, or several as one, to read, and to add one's own from arrays or frame by frame."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from operator import ne
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nacdrive.common.errors import UserError, quoted, unknown_name
from nacdrive.common.paths import find_recording
from nacdrive.datasets.episode import COLUMNS, OPTIONAL, Episode, content_problem, unknown_columns
from nacdrive.datasets.episode_file import NotAnEpisodeError, from_parquet
from nacdrive.datasets.images import encode_png
from nacdrive.datasets.manifest import DRIVES, EpisodeInfo, is_other_fps, read_manifest, size_problem, unlisted_episodes
from nacdrive.datasets.staging import staged_recording
from nacdrive.datasets.writer import RecordingWriter

__all__ = ["DamagedEpisode", "Episode", "EpisodeInfo", "Recording", "RecordingWriter", "load_episode"]
OWN = "own"
KNOWN = (*COLUMNS, *OPTIONAL)
LEAST = {"steering": -1, "throttle": 0, "brake": 0, "expert_steering": -1, "expert_pedal": -1}
"""Where columns begin that end at 1."""


@dataclass(frozen=True)
class DamagedEpisode:
    """A file that cannot be used, and why."""

    path: Path
    why: str
    """Half a sentence that goes behind the file's name."""


def sort_out(
    listed: Iterable[EpisodeInfo], problem: Callable[[EpisodeInfo], str | None]
) -> tuple[list[EpisodeInfo], list[DamagedEpisode]]:
    """The episodes that have no ``problem``, and the others with theirs."""
    judged = [(info, problem(info)) for info in listed]
    damaged = [DamagedEpisode(info.path, why) for info, why in judged if why is not None]
    return [info for info, why in judged if why is None], damaged


@dataclass(frozen=True, repr=False)
class Recording:
    """Recorded episodes in one folder. Files that are missing or truncated are left out and listed in ``damaged``."""

    folder: Path
    meta: dict[str, Any]
    episodes: list[EpisodeInfo]
    """The usable episodes, in order of their seeds."""
    damaged: list[DamagedEpisode]
    """Listed files that are missing or have another length than when they were written."""

    @classmethod
    def open(cls, folder: Path | str, *, source: str | None = None) -> Recording:
        """Open a recording; ``source`` is what it must have been recorded in, such as ``carracing``.

        Warns of damaged files and goes on with the others. An episode that a crash kept from being listed counts.
        Checksums are compared when an episode is loaded.

        Raises:
            UserError: if there is no recording with at least one usable episode, or it is of another source.
        """
        folder = find_recording(Path(folder))
        meta, listed = read_manifest(folder)
        if source is not None and meta["source"] != source:
            raise UserError(f"{folder} was recorded in '{meta['source']}', not in '{source}': give another --data.")
        usable, damaged = sort_out(listed, size_problem)
        usable = sorted(usable + unlisted_episodes(folder, meta["source"], listed), key=lambda info: info.seed)
        if damaged:
            names = "; ".join(f"{item.path.name} {item.why}" for item in damaged)
            warnings.warn(f"{folder}: {names}. Going on with the other {len(usable)} episodes.", stacklevel=2)
        if not usable:
            state = "no usable episode" if damaged else "no complete episode yet"
            raise UserError(f"{folder} holds {state}: record some with 'nacdrive record --out {folder} --resume'.")
        return cls(folder, meta, usable, damaged)

    @classmethod
    def from_arrays(
        cls, frames: Iterable[Any], t_s: ArrayLike, *, folder: Path | str, source: str = OWN, **columns: ArrayLike
    ) -> Recording:
        """The recording in ``folder`` with one more episode, of frames [N, height, width, 3], RGB, and their times.

        ``columns``, [N] each: ``steering``, ``throttle``, ``brake``, ``choice``, ... as ``Appender.append`` takes them.

        Raises:
            UserError: for another column or length, or a folder that holds something else.
        """
        appender = Appender(folder, source=source)
        with quoted("frames, times and columns do not fit each other: ", ".", ValueError, TypeError):
            for values in zip(frames, np.asarray(t_s), *map(np.asarray, columns.values()), strict=True):
                appender.append(dict(zip(("frame", "t_s", *columns), values, strict=True)))
        appender.end_episode()
        return cls.open(folder)

    @staticmethod
    def append_to(folder: Path | str, **about: Any) -> Appender:
        """To add episodes frame by frame: ``with Recording.append_to(folder) as episode: episode.append({...})``."""
        return Appender(folder, **about)

    def __len__(self) -> int:
        return len(self.episodes)

    def load(self, index: int) -> Episode:
        """Episode ``index``, its file compared with the checksum."""
        return load_episode(self.episodes[index])

    def __repr__(self) -> str:
        return (
            f"Recording({self.folder}: {self.meta['source']}, expert {self.meta['expert']}, {len(self)} episodes, "
            f"{sum(info.steps for info in self.episodes)} frames at {self.meta['fps']:g} a second)"
        )


class Appender(AbstractContextManager["Appender"]):
    """Adds episodes to the recording in ``folder``, which is made when the first of them is whole.

    A context manager: leaving it without an error ends the episode. Frames are uint8 [height, width, 3], RGB, or
    images that are encoded already (PNG, JPEG).

    ``source`` is what was driven, of which whoever trains on several recordings needs one; ``driver`` is who drove.
    """

    def __init__(self, folder: Path | str, *, source: str = OWN, driver: str = OWN) -> None:
        self.folder, self.source, self.driver = Path(folder), source, driver
        self._rows: list[dict[str, Any]] = []

    def append(self, row: Mapping[str, Any]) -> None:
        """Take in one frame: ``frame``, ``t_s`` (seconds, increasing), and of ``steering`` (-1 left .. 1 right),
        ``throttle``, ``brake``, ``choice``, ``reward``, ``speed_mps``, ... what is known, the same in every frame.

        Raises:
            UserError: for a key that a recording does not know, or other keys than those of the first frame.
        """
        for name in row.keys() - {"frame", *KNOWN}:
            raise unknown_name("column of a recording", name, ("frame", *KNOWN))
        if {"frame", "t_s"} - row.keys() or (self._rows and row.keys() != self._rows[0].keys()):
            problem = f"a frame has {', '.join(self._rows[0] if self._rows else ('frame', 't_s'))}"
            raise UserError(f"{problem}: give them all.")
        frame = row["frame"]
        self._rows.append({**row, "frame": frame if isinstance(frame, bytes) else encode_png(np.asarray(frame))})

    def end_episode(self, seed: int | None = None, **meta: Any) -> Path:
        """Write what was appended; ``seed`` is its number if not given, ``meta`` plain JSON that the episode keeps.

        Raises:
            UserError: if nothing was appended, it does not fit together, or the folder holds something else.
        """
        if len(self._rows) < 2:
            raise UserError("an episode has at least two frames: append them first.")
        if not (seed is None or (isinstance(seed, int | np.integer) and seed >= 0)):
            raise UserError(f"an episode's seed is a whole number from 0 on, and {seed!r} is none.")
        with quoted("this is no episode: ", "; no episode was written.", ValueError):
            columns = {name: np.array([row[name] for row in self._rows]) for name in self._rows[0] if name != "frame"}
        given = unknown_columns(len(self._rows)) | columns
        # Who drove is to be learnt from.
        given["expert_choice"] = columns.get("expert_choice", given["choice"])
        # Dates would pass for their nanoseconds.
        numbers = columns["t_s"].dtype.kind in "iuf"
        gap_s = float(np.median(np.diff(columns["t_s"].astype(np.float64)))) if numbers else 0.0
        if not gap_s > 0:
            raise UserError("t_s does not increase in numbers: give the seconds since the episode began.")
        if not columns.keys() & {"steering", "choice"}:
            raise UserError("nothing says what was driven: give steering, or choice.")
        for name, values in columns.items():
            if values.dtype.kind not in "biuf":
                raise UserError(f"{name} is not a number in every frame: give one.")
            if "choice" in name and not ((values >= -1) & (np.floor(values) == values) & (values < 2**31)).all():
                raise UserError(f"{name} is the number of an action, from 0 on, or -1 where there is none: give that.")
        for name, least in LEAST.items():
            if name in columns and not ((columns[name] >= least) & (columns[name] <= 1)).all():
                raise UserError(f"{name} lies between {least} and 1 (full right, full pedal): divide it by its most.")
        with quoted("this is no episode: ", "; no episode was written.", ValueError, TypeError):
            episode = Episode(
                frames=[row["frame"] for row in self._rows],
                **given,
                seed=int(seed or 0),
                source=self.source,
                driver=self.driver,
                episode_return=float(np.sum(given["reward"], dtype=np.float64)),
                meta=meta,
            )
            if problem := content_problem(episode):
                raise ValueError(f"it {problem}")
            json.dumps(meta, allow_nan=False)
            writer = RecordingWriter(self.folder, source=self.source, fps=1 / gap_s, expert=self.driver, resume=True)
            path = writer.add(replace(episode, seed=len(writer.episodes)) if seed is None else episode)
        self._rows = []
        return path

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._rows:
            self.end_episode()


def unique_episodes(recordings: Sequence[Recording]) -> list[tuple[Recording, int]]:
    """Each episode of several recordings once, by the checksum of its file, as (recording, index); in their order.

    Warns of those that are left out: given twice, an episode would stand among what is learnt and what is judged by.
    """
    every = [(recording, index) for recording in recordings for index in range(len(recording))]
    unique: dict[str, tuple[Recording, int]] = {}
    for recording, index in every:
        unique.setdefault(recording.episodes[index].sha256, (recording, index))
    if len(every) > len(unique):
        warnings.warn(duplicates_sentence(len(every) - len(unique)), stacklevel=2)
    return list(unique.values())


def merge_recordings(folders: Sequence[Path], out: Path, *, overwrite: bool = False) -> tuple[int, int]:
    """Copy the episodes of several recordings, byte for byte, into a new one.

    Returns how many, and how many files were in more than one recording and are kept once.
    """
    if len(folders) < 2:
        raise UserError("a merge takes at least two recordings: name their folders.")
    if out.resolve() in [folder.resolve() for folder in folders]:
        raise UserError(f"{out} is one of the recordings to merge: give another --out.")
    parts = [Recording.open(folder) for folder in folders]
    first = parts[0]
    for part in parts[1:]:
        for key in ("source", "fps"):
            if (is_other_fps if key == "fps" else ne)(part.meta[key], first.meta[key]):
                what = f"{part.folder} has {key} {part.meta[key]} and {first.folder} has {first.meta[key]}"
                raise UserError(f"{what}: only recordings of one kind can be merged.")
    episodes = [info for part in parts for info in part.episodes]
    for info in episodes:
        load_episode(info)
    licenses = {part.meta.get("license") for part in parts}
    if len(licenses) > 1:
        named = ", ".join(sorted(name or "none" for name in licenses))
        warnings.warn(
            f"the recordings have different licences ({named}), so {out} names none: 'nacdrive recordings card {out} "
            "--license' sets one.",
            stacklevel=2,
        )
    unique = {info.sha256: info for info in episodes}
    with staged_recording(out, overwrite=overwrite) as staging:
        writer = RecordingWriter(
            staging,
            source=first.meta["source"],
            fps=first.meta["fps"],
            expert=" + ".join(dict.fromkeys(part.meta["expert"] for part in parts)),
            recipe={"merged": [{"expert": part.meta["expert"], "recipe": part.meta["recipe"]} for part in parts]},
            license=licenses.pop() if len(licenses) == 1 else None,
        )
        for info in unique.values():
            writer.keep(info.path.read_bytes(), info)
    return len(unique), len(episodes) - len(unique)


def duplicates_sentence(count: int) -> str:
    """What to say of ``count`` episodes that were given more than once."""
    what = "an episode was given more than once and is" if count == 1 else f"{count} episodes were given twice and are"
    return f"{what} used once."


def read_listed(info: EpisodeInfo) -> Episode:
    """The episode of a listed file; ``NotAnEpisodeError`` says in half a sentence what is wrong with it."""
    if (why := size_problem(info)) is not None:
        raise NotAnEpisodeError(why)
    data = info.path.read_bytes()
    if hashlib.sha256(data).hexdigest() != info.sha256:
        raise NotAnEpisodeError("has been altered since it was recorded (its checksum differs)")
    return from_parquet(data)


def load_episode(info: EpisodeInfo) -> Episode:
    """``read_listed`` for people: a ``UserError`` as there, and what to do."""
    advice = f"'nacdrive recordings check {info.path.parent} --set-aside' keeps the rest usable"
    with quoted(f"{info.path} ", f": {advice}.", NotAnEpisodeError):
        return read_listed(info)


def kept_in(folder: Path) -> Path:
    """The recording in ``folder``: itself, or the drives that an evaluation kept."""
    if not (folder / "evaluation.json").exists():
        return folder
    if not (folder / DRIVES).is_dir():
        raise UserError(f"{folder} kept no drives: evaluate with videos, and without --no-videos.")
    return folder / DRIVES
