"""A recording in Minari's layout: ``data/metadata.json`` and ``data/main_data.hdf5``, which the library itself opens.

Written with h5py, after ``minari`` 0.5.4, whose own writer needs an environment and holds whole episodes decoded.
Minari re-encodes images as JPEG unless told otherwise; here JPEG frames keep their bytes, and PNG frames are stored as
pixels (losslessly compressed) with ``jpeg_encoding`` false.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.errors import UserError, quoted
from nacdrive.common.files import write_json
from nacdrive.common.version import __version__
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.episode_file import JPEG
from nacdrive.datasets.images import decode_image, image_header
from nacdrive.datasets.recording import Recording
from nacdrive.datasets.staging import Converted, Progress, staged_folder, unseen
from nacdrive.envs.gym_spec import GymSpec
from nacdrive.extras.exchange.limits import own_part

METADATA = "data/metadata.json"
SCORES = {"carracing": (-40.6, 910.3)}
"""Mean return, each over 100 tracks: of actions drawn at random, one for four frames, and of the shipped ``ppo``."""
MAIN = "data/main_data.hdf5"
MINARI_VERSION = "0.5.4"
"""The first that knows ``jpeg_encoding``."""
NAME = re.compile(r"[-_\w]+-v\d+")
SMALLEST_IMAGE = 32
"""Minari takes no smaller array for an image."""
BATCH = 32
"""Frames that are decoded at a time."""
TERMINATED = ("lap finished", "left the field", "terminated")
"""Ends of an episode that are the environment's own; any other one is a truncation."""
INFOS = ("t_s", "choice", "steering", "throttle", "brake", "speed_mps", "expert_choice")
"""Columns that become ``infos``."""


@dataclass(frozen=True)
class Spaces:
    """Observations and actions of a whole data set."""

    shapes: dict[str, tuple[int, int]]  # height and width of each camera's frames
    jpeg: bool  # whether all frames are JPEG, and so keep their bytes
    choices: int  # number of discrete actions; 0 where actions are continuous
    pedals: int  # numbers for the pedals in continuous actions: 2 (throttle, brake) or 1 (throttle less brake)

    @classmethod
    def of(cls, recording: Recording, pedals: int) -> Spaces:
        """The spaces of a recording; every file is read once for it."""
        shapes: dict[str, tuple[int, int]] = {}
        jpeg, discrete, choices = True, True, 0
        cameras: set[frozenset[str]] = set()
        for index in range(len(recording)):
            episode = recording.load(index)
            cameras.add(frozenset(episode.side_frames))
            for camera, frames in episode.cameras.items():
                for i, data in enumerate(frames):
                    frame = f"frame {i} ({camera}) of the episode of seed {episode.seed}"
                    with quoted(f"{frame} is ", ".", ValueError):
                        size = image_header(data)[:2]
                    if shapes.setdefault(camera, size) != size:
                        what = f"{frame} has another size than the first, and a Minari data set has one"
                        raise UserError(f"{what}: export its parts apart.")
                    jpeg = jpeg and data[:2] == JPEG and min(size) >= SMALLEST_IMAGE
            discrete = discrete and bool((episode.choice >= 0).all())
            width = 0 if episode.expert_logits is None else episode.expert_logits.shape[1]
            choices = max(choices, width, int(episode.choice.max()) + 1)
        if len(cameras) > 1:
            raise UserError(
                f"{recording.folder} has side cameras in some episodes only, and a Minari data set has the same in "
                "all: export its parts apart."
            )
        return cls(shapes, jpeg, choices if discrete else 0, pedals)

    @property
    def observation(self) -> dict[str, Any]:
        """The observation space: a picture, or one of each camera."""
        boxes = {camera: box(np.zeros((*shape, 3), np.uint8), 255) for camera, shape in self.shapes.items()}
        return boxes["center"] if len(boxes) == 1 else {"type": "Dict", "subspaces": boxes}

    @property
    def action(self) -> dict[str, Any]:
        if self.choices:
            return {"type": "Discrete", "dtype": "int64", "start": 0, "n": self.choices}
        return box(np.array([-1, 0, 0] if self.pedals == 2 else [-1, -1], np.float32), 1)

    def actions_of(self, episode: Episode) -> NDArray[Any]:
        """What was driven, [frames] choices or [frames, 2 or 3] numbers, as members of the space."""
        if self.choices:
            return episode.choice
        pedals = (episode.throttle, episode.brake) if self.pedals == 2 else (episode.throttle - episode.brake,)
        return np.stack([episode.steering, *pedals], axis=1).astype(np.float32)


def box(low: NDArray[Any], high: float) -> dict[str, Any]:
    """A Gymnasium box as Minari writes it."""
    highs = np.full_like(low, high).tolist()
    return {"type": "Box", "dtype": str(low.dtype), "shape": list(low.shape), "low": low.tolist(), "high": highs}


def export_minari(
    folder: Path, out: Path, *, gym: GymSpec | None = None, overwrite: bool = False, progress: Progress = unseen
) -> Converted:
    """Write the recording in ``folder`` as a Minari data set into ``out``; one episode is held at a time.

    A Minari episode has one observation more than actions. Nobody recorded that last one: it repeats the one before.

    Minari finds it as ``NAME-v0`` where ``out`` lies in ``MINARI_DATASETS_PATH``. ``gym`` is the environment that its
    ``recover_environment`` shall make, where there is one; ``progress`` is told the frames so far.
    """
    import h5py

    recording = Recording.open(folder)
    spaces = Spaces.of(recording, gym.pedals or 2 if gym else 2)
    if gym is not None and (gym.pedals == 0) != (spaces.choices > 0):
        # A person may have driven continuously what an expert drives by choices.
        gym = None
    frames = 0
    with staged_folder(out, overwrite=overwrite, reads=folder) as staging:
        (staging / MAIN).parent.mkdir()
        # Minari reads it in the order in which it was written.
        with HDF5Bytes(staging / MAIN) as disk, h5py.File(disk, "w", track_order=True) as file:
            for index in range(len(recording)):
                episode = recording.load(index)
                write_episode(h5py, file.create_group(f"episode_{index}"), index, episode, spaces)
                file.flush()
                disk.check()
                frames += len(episode)
                progress(frames)
        size_mb = round((staging / MAIN).stat().st_size / 1e6, 1)
        write_json(staging / METADATA, metadata_of(recording, out, spaces, gym, frames, size_mb))
    return Converted(len(recording), frames)


class HDF5Bytes(io.FileIO):
    """A new file that takes no more once the disk is full, and says so when asked: HDF5 crashes where a write fails."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+")
        self._error: OSError | None = None

    def write(self, data: Any, /) -> int:
        rest = memoryview(data).cast("B")
        try:
            while rest and self._error is None:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self._error = error
        return len(memoryview(data).cast("B"))

    def truncate(self, size: int | None = None, /) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self._error = error
            return size or 0

    def __exit__(self, *raised: object) -> None:
        self.close()
        self.check()

    def check(self) -> None:
        if self._error is not None:
            raise self._error


def metadata_of(
    recording: Recording, out: Path, spaces: Spaces, gym: GymSpec | None, frames: int, size_mb: float
) -> dict[str, Any]:
    """What ``metadata.json`` says."""
    meta = recording.meta
    source, expert = meta["source"], meta["expert"]
    return {
        "total_episodes": len(recording),
        "total_steps": frames,
        "data_format": "hdf5",
        "jpeg_encoding": spaces.jpeg,
        "observation_space": json.dumps(spaces.observation),
        "action_space": json.dumps(spaces.action),
        **({"env_spec": gym.json} if gym else {}),
        **(dict(zip(("ref_min_score", "ref_max_score"), SCORES[source], strict=True)) if source in SCORES else {}),
        "dataset_id": dataset_id(out),
        "minari_version": MINARI_VERSION,
        "algorithm_name": expert,
        "description": f"Driving in '{source}' by '{expert}', recorded with nacdrive, {meta['fps']:g} frames a second.",
        "requirements": [f"nacdrive>={__version__}"],
        "dataset_size": size_mb,
        "nacdrive": own_part(meta),
    }


def dataset_id(out: Path) -> str:
    """The name by which Minari knows a data set in the folder ``out``: that of the folder, if it is such a name."""
    name = out.absolute().name
    return name if NAME.fullmatch(name) else (re.sub(r"[^-\w]+", "-", name).strip("-") or "recording") + "-v0"


def write_episode(h5py: Any, group: Any, index: int, episode: Episode, spaces: Spaces) -> None:
    """Write one episode of N frames into its group: N + 1 observations and infos, N of the rest."""
    N = len(episode)
    group.attrs["id"], group.attrs["seed"], group.attrs["total_steps"] = index, episode.seed, N
    if len(spaces.shapes) == 1:
        write_frames(h5py, group, "observations", episode.frames, spaces)
    else:
        for camera, frames in episode.cameras.items():
            write_frames(h5py, group.require_group("observations"), camera, frames, spaces)
    ended, last = str(episode.meta.get("ended")) in TERMINATED, np.arange(N) == N - 1
    write_numbers(group, "actions", spaces.actions_of(episode))
    write_numbers(group, "rewards", episode.reward)
    write_numbers(group, "terminations", last & ended)
    write_numbers(group, "truncations", last & (not ended))
    infos, optional = group.create_group("infos"), list(episode.optional)
    # Those of the observation after the last action: the same again, and a time after it.
    after = {"t_s": episode.t_s[-1:] + (np.median(np.diff(episode.t_s)) if N > 1 else 1.0)}
    for name in (*INFOS, *optional):
        values = getattr(episode, name)
        write_numbers(infos, name, np.concatenate([values, after.get(name, values[-1:])]))
    ours = {"driver": episode.driver, "return": episode.episode_return, "columns": optional, "meta": episode.meta}
    # An attribute holds 64 kB at most, and meta may be longer.
    group.create_dataset("nacdrive", data=json.dumps(ours, allow_nan=False), dtype=h5py.string_dtype())


def write_numbers(group: Any, name: str, values: NDArray[Any]) -> None:
    """Write a column, [rows] or [rows, width]; it may grow, as Minari's do."""
    group.create_dataset(
        name,
        data=np.ascontiguousarray(values),
        chunks=(min(len(values), 1024), *values.shape[1:]),
        maxshape=(None, *values.shape[1:]),
        compression="gzip",
    )


def write_frames(h5py: Any, group: Any, name: str, frames: Sequence[bytes], spaces: Spaces) -> None:
    """Write the frames of a camera and the last one again: as JPEG bytes, or as pixels."""
    rows = len(frames) + 1
    if spaces.jpeg:
        # In Minari's own files a column of images of one length is a plain array; of several, this.
        column = group.create_dataset(name, (rows,), dtype=h5py.vlen_dtype(np.uint8), chunks=True)
        for i, data in enumerate([*frames, frames[-1]]):
            column[i] = np.frombuffer(data, np.uint8)
        return
    shape = decode_image(frames[0]).shape
    column = group.create_dataset(
        name, (rows, *shape), np.uint8, chunks=(1, *shape), maxshape=(None, *shape), compression="gzip", shuffle=True
    )
    for start in range(0, len(frames), BATCH):
        part = frames[start : start + BATCH]
        column[start : start + len(part)] = np.stack([decode_image(data) for data in part])
    column[rows - 1] = decode_image(frames[-1])
