"""The simulator's own logs as recordings of nacdrive, and back."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np

from nacdrive.common.errors import instead_of, quoted
from nacdrive.common.units import MPH_PER_MPS
from nacdrive.datasets.episode import Episode, unknown_columns
from nacdrive.datasets.episode_file import JPEG
from nacdrive.datasets.images import decode_image, encode_jpeg
from nacdrive.datasets.recording import Recording
from nacdrive.datasets.staging import Converted, Progress, staged_folder, unseen, write_recording
from nacdrive.datasets.udacity_log import IMAGES, LOG, LogRow, UdacityLog, read_log

CAMERAS = ("center", "left", "right")
DRIVEN = ("steering", "throttle", "brake", "speed_mps")


class UdacityLogWriter:
    """Writes rows of a log into an empty folder, with paths relative to it (``IMG/...``), so that it can be moved."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / IMAGES).mkdir()
        self._log = (folder / LOG).open("x", encoding="utf-8", newline="")

    def add(
        self,
        images: tuple[bytes, bytes | None, bytes | None],
        taken: datetime,
        *,
        steering: float,
        throttle: float,
        brake: float,
        speed_mps: float,
    ) -> None:
        """Add one row: JPEG bytes of the centre, left and right camera (None without one), ``taken`` then."""
        stamp = f"{taken:%Y_%m_%d_%H_%M_%S}_{taken.microsecond // 1000:03d}"
        names = [f"{IMAGES}/{camera}_{stamp}.jpg" if data else "" for camera, data in zip(CAMERAS, images, strict=True)]
        numbers = (steering, throttle, brake, speed_mps * MPH_PER_MPS)
        twice = f"two frames were taken at {stamp}, by which a log names its pictures: export to another format."
        with instead_of(FileExistsError, twice):
            for name, data in zip(names, images, strict=True):
                if data:
                    with (self.folder / name).open("xb") as file:
                        file.write(data)
        self._log.write(",".join([*names, *map(plain_number, numbers)]) + "\n")

    def close(self) -> None:
        self._log.close()


def plain_number(value: float) -> str:
    """Up to seven digits, as .NET writes a float: ``0``, ``-0.3744849``, ``7.9E-05``."""
    return f"{value:.7G}" if value else "0"


SOURCE = "udacity"
FIRST_DAY = datetime(2000, 1, 1, tzinfo=UTC)
"""Where nothing tells when an episode was driven; each begins an hour after the one before, or when that has ended."""


def import_log(folder: Path, out: Path, *, overwrite: bool = False, progress: Progress = unseen) -> Converted:
    """Make a recording in ``out`` of the log in ``folder``, one episode for each drive; images stay byte for byte.

    ``progress`` is told the frames so far.
    """
    log = read_log(folder)
    header = {
        "source": SOURCE,
        "fps": round(1 / log.gap_s, 3),
        "expert": "log",
        "recipe": {"imported": log.folder.name, "left_out": log.skipped},
    }
    seeds = range(len(log.drives()))
    return write_recording(out, header, seeds, episodes_of(log), overwrite=overwrite, progress=progress)


def episodes_of(log: UdacityLog) -> Iterator[Episode]:
    """An episode for each drive of a log."""
    return (episode_of(rows, number) for number, rows in enumerate(log.drives()))


def episode_of(rows: list[LogRow], number: int) -> Episode:
    """The rows of one drive as an episode whose seed is the drive's number; who drove, and for what, is unknown."""
    cameras = {"left": [row.left for row in rows if row.left], "right": [row.right for row in rows if row.right]}
    return Episode(
        frames=read_images([row.center for row in rows]),
        t_s=np.round([row.t_s - rows[0].t_s for row in rows], 3),
        **unknown_columns(len(rows)) | {name: np.array([getattr(row, name) for row in rows]) for name in DRIVEN},
        seed=number,
        source=SOURCE,
        driver="log",
        episode_return=0.0,
        meta={"began": datetime.fromtimestamp(rows[0].t_s, UTC).replace(tzinfo=None).isoformat()},
        side_frames={side: read_images(paths) for side, paths in cameras.items() if len(paths) == len(rows)},
    )


def read_images(paths: Sequence[Path]) -> list[bytes]:
    """The bytes of a camera's images, each of which can be decoded to its end, and to the size of the first."""
    images, sizes = list[bytes](), list[tuple[int, ...]]()
    advice = "): delete the file, and the rows that name it are left out."
    for path in paths:
        with quoted(f"{path} is no readable image of its drive (", advice, OSError, ValueError):
            if not path.is_file():
                raise OSError("it is no regular file")
            images.append(path.read_bytes())
            sizes.append(decode_image(images[-1]).shape[1::-1])
            if sizes[-1] != sizes[0]:
                raise ValueError("it has {} x {} pixels, the drive's first one {} x {}".format(*sizes[-1], *sizes[0]))
    return images


def export_log(folder: Path, out: Path, *, overwrite: bool = False, progress: Progress = unseen) -> Converted:
    """Write the recording in ``folder`` as the simulator would have: ``driving_log.csv`` and ``IMG`` in ``out``.

    What was driven is written, not what an expert would have done; a log knows no unknown speed, so that is 0, and a
    warning says so. ``progress`` is told the frames so far.
    """
    recording = Recording.open(folder, source=SOURCE)
    durations = [timedelta(seconds=1 + info.duration_s) for info in recording.episodes]
    hours, frames, unknown = [FIRST_DAY.replace(tzinfo=None)], 0, 0
    for duration in durations[:-1]:
        hours.append(hours[-1] + max(duration, timedelta(hours=1)))
    # A damaged episode is found before the first row is written.
    began = [began_of(recording.load(index)) or hour for index, hour in enumerate(hours)]
    # Images are named by the time: drives of one time would overwrite each other's.
    spans = sorted((begin, begin + duration) for begin, duration in zip(began, durations, strict=True))
    began = began if all(a[1] < b[0] for a, b in pairwise(spans)) else hours
    with staged_folder(out, overwrite=overwrite, reads=folder) as staging, closing(UdacityLogWriter(staging)) as writer:
        for index in range(len(recording)):
            episode = recording.load(index)
            write_episode(writer, episode, began[index])
            frames += len(episode)
            unknown += int(np.isnan(episode.speed_mps).sum())
            progress(frames)
    if unknown:
        warnings.warn(f"the speed is unknown in {unknown} of {frames} frames: it is 0 in {out}.", stacklevel=2)
    return Converted(len(recording), frames)


def began_of(episode: Episode) -> datetime | None:
    """When an episode began, if it says so itself."""
    if (began := episode.meta.get("began")) is None:
        return None
    advice = "'began' in its meta is the time at which it began, such as 2026-11-29T12:00:00"
    with instead_of((TypeError, ValueError), f"episode {episode.seed} began at '{began}', which is no time: {advice}."):
        return datetime.fromisoformat(began).replace(tzinfo=None)


def write_episode(writer: UdacityLogWriter, episode: Episode, began: datetime) -> None:
    """Add the rows of an episode to a log; ``began`` is the time of its first frame."""
    left, right = (episode.side_frames.get(side) for side in ("left", "right"))
    for i in range(len(episode)):
        writer.add(
            (as_jpeg(episode.frames[i]), as_jpeg(left[i]) if left else None, as_jpeg(right[i]) if right else None),
            began + timedelta(milliseconds=round(1000 * float(episode.t_s[i] - episode.t_s[0]))),
            **{name: float(np.nan_to_num(getattr(episode, name)[i])) for name in DRIVEN},
        )


def as_jpeg(data: bytes) -> bytes:
    """JPEG bytes of an encoded image; what is JPEG already stays as it is."""
    return data if data[:2] == JPEG else encode_jpeg(decode_image(data))
