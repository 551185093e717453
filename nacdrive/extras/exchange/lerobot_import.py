"""A recording from a LeRobot data set (v3.x) whose frames are images: one of ours without loss, a stranger's checked.

Nothing of the data set is run or unpickled, no path in it is followed: files are looked for where the layout has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nacdrive.common.errors import MISFITS, UserError, instead_of, named, quoted
from nacdrive.common.foreign_json import parse_object, read_object
from nacdrive.datasets.episode import Episode, unknown_columns
from nacdrive.datasets.images import check_size
from nacdrive.datasets.staging import Converted, Progress, unseen, write_recording
from nacdrive.extras.exchange import limits
from nacdrive.extras.exchange.lerobot_export import (
    ACTION,
    CAMERAS,
    DATA,
    EPISODES,
    INFO,
    LABEL,
    LOGITS,
    NUMBERS,
    OPTIONAL,
    OURS,
    PLAIN,
    STATE,
    STATE_NAMES,
    is_list,
)

VERSION = re.compile(r"v(\d+)\.(\d+)(?:\.\d+)?")
MAJOR = 3
BATCH = 64
"""Frames that are read at a time."""
WHOLE = ("episode_index", "frame_index", PLAIN["choice"], PLAIN["expert_choice"])
"""Columns of whole numbers."""
SINGLE_CAMERAS = ("observation.images.front", "observation.image")
"""Names that are taken for the centre camera where there are several cameras and none is called that."""


@dataclass(frozen=True)
class EpisodeRow:
    """What ``meta/episodes`` says of one episode."""

    length: int
    chunk: int
    """Of the data file."""
    file: int
    """Of the data file, in its chunk."""
    tasks: tuple[str, ...]
    """What was done, in words."""
    ours: dict[str, Any] = field(default_factory=dict)
    """``seed``, ``driver``, ``return``, ``columns`` and ``meta``, where nacdrive wrote the data set."""


@dataclass(frozen=True)
class LeRobotSet:
    """A LeRobot data set whose description has been read and makes sense."""

    folder: Path
    fps: float
    source: str
    features: dict[str, dict[str, Any]]
    cameras: dict[str, str]  # center, left, right -> name of the feature
    shapes: dict[str, tuple[int, int]]
    actions: dict[str, int]  # where steering and pedals stand in action
    episodes: list[EpisodeRow]
    header: dict[str, Any] | None  # what the recording said of itself, where nacdrive wrote the data set

    @classmethod
    def open(cls, folder: Path, source: str | None = None) -> LeRobotSet:
        if not (folder / INFO).is_file():
            raise UserError(f"there is no LeRobot data set in {folder} (no {INFO}): check the path and --from.")
        info = read_object(limits.within(folder, INFO))
        check_version(folder, info)
        with quoted(f"{folder / INFO} is damaged (", "): get it again.", *MISFITS, AttributeError, say=named):
            features = {str(name): dict(feature) for name, feature in info["features"].items()}
            fps, total = float(info["fps"]), int(info["total_frames"])
            expected = int(info["total_episodes"])
            if not 0 < fps < 10**6:
                raise ValueError(f"fps is {fps:g}")
            actions = action_columns(folder, features)
            cameras, shapes = camera_features(folder, features)
        if info.get("data_path", DATA) != DATA:
            raise UserError(f"{folder / INFO} names another place for its data than {DATA}: it cannot be read.")
        ours = folder / OURS
        header = limits.own_header(ours, read_object(limits.within(folder, OURS))) if ours.is_file() else None
        episodes = read_episodes(folder, header is not None)
        frames = sum(row.length for row in episodes)
        if frames != total or len(episodes) != expected or not 0 < frames <= limits.MAX_FRAMES:
            raise UserError(
                f"{folder / INFO} speaks of {total} frames in {expected} episodes, and meta/episodes lists {frames} in "
                f"{len(episodes)}: the data set is incomplete, get it again."
            )
        driven = header["source"] if header else (source or str(info.get("robot_type") or "lerobot"))
        return cls(folder, fps, driven, features, cameras, shapes, actions, episodes, header)


def import_lerobot(
    folder: Path, out: Path, *, source: str | None = None, overwrite: bool = False, progress: Progress = unseen
) -> Converted:
    """Make a recording in ``out`` of the LeRobot data set in ``folder``; one episode is held at a time.

    ``source`` is what was driven, such as ``udacity``, where the data set is none of ours; its robot type if not given.
    """
    data_set = LeRobotSet.open(folder, source)
    seeds = [int(row.ours.get("seed", i)) for i, row in enumerate(data_set.episodes)]
    header = data_set.header or limits.strangers_header(data_set.folder, data_set.source, data_set.fps, "lerobot")
    return write_recording(out, header, seeds, read_data(data_set, seeds), overwrite=overwrite, progress=progress)


def check_version(folder: Path, info: Mapping[str, Any]) -> None:
    """Refuse other versions of the layout."""
    version = str(info.get("codebase_version"))[:40]
    match = VERSION.fullmatch(version)
    if match is None or int(match[1]) != MAJOR:
        older = match is not None and int(match[1]) < MAJOR
        hint = ": convert it with LeRobot's own lerobot.datasets.v30.convert_dataset_v21_to_v30" if older else ""
        raise UserError(
            f"{folder} is a LeRobot data set of version {version}, and this nacdrive reads v{MAJOR}.x{hint}."
        )


def action_columns(folder: Path, features: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Where steering and pedals stand in the data set's ``action``."""
    if ACTION not in features:
        raise UserError(f"{folder} is a LeRobot data set without actions: there is nothing to learn from in it.")
    names = features[ACTION].get("names")
    while isinstance(names, dict):
        inner = list(names.values())
        names = inner[0] if inner and isinstance(inner[0], (list, dict)) else list(names)
    named = [str(name) for name in names] if isinstance(names, list) else []
    columns = limits.columns_of_action(named)
    form = features[ACTION].get("dtype"), list(features[ACTION].get("shape", []))
    if form != ("float32", [len(named)]) or not columns:
        listed = ", ".join(named[:8]) or "nothing"
        what = f"the actions of {folder} are named {listed[:200]}, and driving takes steering, throttle and brake"
        raise UserError(f"{what}: only data sets with a float32 action of these names can be imported.")
    return columns


def camera_features(
    folder: Path, features: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, str], dict[str, tuple[int, int]]]:
    """The features that are the centre, left and right camera, and the sizes of their frames."""
    images = [name for name, feature in features.items() if feature.get("dtype") == "image"]
    if not images:
        videos = [name for name, feature in features.items() if feature.get("dtype") == "video"]
        what = f"only videos ({', '.join(videos)[:200]}), which are lossy" if videos else "no camera"
        raise UserError(f"{folder} holds {what}: record or convert it with images (use_videos=False) to import it.")
    cameras = {camera: name for camera, name in CAMERAS.items() if name in images}
    if "center" not in cameras:
        single = images if len(images) == 1 else [name for name in SINGLE_CAMERAS if name in images]
        if not single:
            raise UserError(
                f"{folder} has several cameras ({', '.join(images)[:200]}), and none is called {CAMERAS['center']}: "
                "rename the one that looks ahead."
            )
        cameras = {"center": single[0], **{side: name for side, name in cameras.items() if name != single[0]}}
    return cameras, {camera: image_shape(folder, name, features[name]) for camera, name in cameras.items()}


def image_shape(folder: Path, name: str, feature: Mapping[str, Any]) -> tuple[int, int]:
    """Height and width of a camera's frames, whichever way round its shape is given."""
    given = str(feature.get("shape"))[:80]
    sentence = f"{folder} says that {name} has the shape {given}: frames are height x width x 3."
    with instead_of((KeyError, TypeError, ValueError, IndexError, OverflowError), sentence):
        shape = [int(side) for side in feature["shape"]]
        names = [str(item)[:1].lower() for item in feature.get("names") or []]
        first = names[0] == "c" if len(names) == 3 else shape[0] == 3 and shape[2] != 3
        channels, (height, width) = (shape[0], shape[1:]) if first else (shape[2], shape[:2])
        check_size(height, width)
        if len(shape) != 3 or channels != 3:
            raise ValueError("no colour image")
    return height, width


def read_episodes(folder: Path, ours: bool) -> list[EpisodeRow]:
    """The episodes that ``meta/episodes`` lists, in their order."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.glob("meta/episodes/chunk-*/file-*.parquet"))
    if not names:
        raise UserError(f"{folder / EPISODES.format(chunk_index=0, file_index=0)} is missing: get the data set again.")
    wanted = ["episode_index", "length", "data/chunk_index", "data/file_index"]
    more = ["tasks", *(f"nacdrive/{name}" for name in ("seed", "driver", "return", "columns", "meta") if ours)]
    rows: dict[int, EpisodeRow] = {}
    for path in (limits.within(folder, name) for name in names):
        file = limits.open_parquet(path)
        there = [name for name in (*wanted, *more) if name in file.schema_arrow.names]
        missing = [name for name in (*wanted, *(more if ours else ())) if name not in there]
        if missing or file.metadata.num_rows > limits.MAX_FRAMES:
            raise UserError(f"{path} lacks {', '.join(missing) or 'an end'}: it is no list of LeRobot episodes.")
        with quoted(f"{path} is damaged (", "): get it again.", *MISFITS), limits.damaged_parquet(path):
            for batch in file.iter_batches(batch_size=256, columns=there):
                for row in batch.to_pylist():
                    rows[int(row["episode_index"])] = episode_row(row, ours)
    if sorted(rows) != list(range(len(rows))):
        raise UserError(f"{folder}/meta/episodes has gaps in its episodes: get the data set again.")
    return [rows[i] for i in range(len(rows))]


def episode_row(row: Mapping[str, Any], ours: bool) -> EpisodeRow:
    """One row of ``meta/episodes``."""
    length, chunk, file = (int(row[name]) for name in ("length", "data/chunk_index", "data/file_index"))
    if not (0 < length <= limits.MAX_FRAMES and 0 <= chunk < 10**6 and 0 <= file < 10**6):
        raise ValueError(f"episode {row['episode_index']} has {length} frames in file {chunk}/{file}")
    tasks = tuple(str(task) for task in row.get("tasks") or ())
    if not ours:
        return EpisodeRow(length, chunk, file, tasks)
    own = {name: row[f"nacdrive/{name}"] for name in ("driver", "columns")}
    own |= {"seed": int(row["nacdrive/seed"]), "return": float(row["nacdrive/return"])}
    return EpisodeRow(length, chunk, file, tasks, {**own, "meta": parse_object(row["nacdrive/meta"])})


def read_data(data_set: LeRobotSet, seeds: list[int]) -> Iterator[Episode]:
    """The episodes of a data set, one after the other."""
    files: dict[str, list[int]] = {}
    for index, row in enumerate(data_set.episodes):
        files.setdefault(DATA.format(chunk_index=row.chunk, file_index=row.file), []).append(index)
    if [index for group in files.values() for index in group] != list(range(len(data_set.episodes))):
        raise UserError(f"{data_set.folder} has its episodes in another order than its files: it cannot be read.")
    for name, indices in files.items():
        path = limits.within(data_set.folder, name)
        file, rows = limits.open_parquet(path), sum(data_set.episodes[index].length for index in indices)
        if file.metadata.num_rows != rows:
            raise UserError(f"{path} holds {file.metadata.num_rows} frames where {rows} are listed: get it again.")
        batches = Batches(path, file, columns_of(data_set, path, file))
        for index in indices:
            yield read_episode(data_set, index, seeds[index], batches)


def columns_of(data_set: LeRobotSet, path: Path, file: pq.ParquetFile) -> list[str]:
    """The columns of a data file that are read, each of the type that its name asks for."""
    schema = file.schema_arrow
    names = [*data_set.cameras.values(), ACTION, "episode_index", "frame_index", "timestamp"]
    optional = [STATE, *PLAIN.values(), LABEL, LOGITS, *NUMBERS.values()]
    if data_set.header is None:
        # What means in a stranger's data set what it means in ours.
        state = data_set.features.get(STATE, {}).get("names")
        speed = isinstance(state, list) and state[:2] == list(STATE_NAMES)
        optional = [STATE, "next.reward"] if speed else ["next.reward"]
    names += [name for name in optional if name in data_set.features]
    for name in names:
        kind = schema.field(name).type if name in schema.names else pa.null()
        if name in data_set.cameras.values():
            good = pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0
            good = good and kind.field("bytes").type in (pa.binary(), pa.large_binary())
        elif name in (ACTION, LOGITS, STATE):
            good = is_list(kind)
        else:
            good = pa.types.is_integer(kind) or (pa.types.is_floating(kind) and name not in WHOLE)
        if not good:
            what = "lacks" if name not in schema.names else f"has no usable ({kind})"
            raise UserError(f"{path} {what} column '{name}': it is no data of this LeRobot data set.")
    return names


class Batches:
    """Rows of a data file, a few at a time."""

    def __init__(self, path: Path, file: pq.ParquetFile, columns: list[str]) -> None:
        self.path, self.columns = path, columns
        self._batches = file.iter_batches(batch_size=BATCH, columns=columns)
        self._rest: pa.RecordBatch | None = None

    def take(self, rows: int) -> Iterator[pa.RecordBatch]:
        """The next ``rows`` rows, in parts."""
        while rows:
            with limits.damaged_parquet(self.path, StopIteration, ValueError):
                batch = self._rest if self._rest is not None and len(self._rest) else next(self._batches)
            yield batch.slice(0, rows)
            self._rest = batch.slice(rows)
            rows -= min(rows, len(batch))


def read_episode(data_set: LeRobotSet, index: int, seed: int, batches: Batches) -> Episode:
    """The episode that comes next in a data file."""
    row = data_set.episodes[index]
    numbers: dict[str, list[NDArray[Any]]] = {}
    frames: dict[str, list[bytes]] = {}
    size, there = 0, set(data_set.cameras)
    wanted = there if data_set.header is None else there & {"center", *row.ours["columns"]}
    before = f"episode {index} in {batches.path} "
    with quoted(before, ": get the data set again.", ValueError, TypeError, pa.ArrowException):
        for batch in batches.take(row.length):
            for camera in wanted:
                name = data_set.cameras[camera]
                for i, data in enumerate(batch.column(batch.schema.names.index(name)).field("bytes").to_pylist()):
                    if data is None:
                        raise ValueError(f"has no picture of {name} in frame {len(frames.get(camera, ()))}")
                    with quoted(f"has in row {i} of {name} ", "", ValueError, kind=ValueError):
                        frames.setdefault(camera, []).append(limits.as_rgb(data, data_set.shapes[camera]))
                    size += len(data)
            if size > limits.MAX_EPISODE_BYTES:
                raise ValueError(f"has more than {limits.MAX_EPISODE_BYTES >> 30} GiB of pictures")
            for name in batches.columns:
                if name not in data_set.cameras.values():
                    numbers.setdefault(name, []).append(as_numbers(batch, name))
        columns = {name: np.concatenate(parts) for name, parts in numbers.items()}
        if (columns["episode_index"] != index).any() or (columns["frame_index"] != np.arange(row.length)).any():
            raise ValueError("is made of other rows than those listed")
        return build_episode(data_set, row, seed, columns, frames)


def as_numbers(batch: pa.RecordBatch, name: str) -> NDArray[Any]:
    """A column as [rows] or, for lists, [rows, width] numbers."""
    column = batch.column(batch.schema.names.index(name))
    flat = column.flatten() if is_list(column.type) else column
    if column.null_count or flat.null_count or len(flat) % len(column):
        raise ValueError(f"has gaps in '{name}'")
    numbers = np.asarray(flat.to_numpy(zero_copy_only=False))
    return numbers if flat is column else numbers.reshape(len(column), -1)


def build_episode(
    data_set: LeRobotSet, row: EpisodeRow, seed: int, columns: dict[str, NDArray[Any]], frames: dict[str, list[bytes]]
) -> Episode:
    """An episode from its columns."""
    driven = limits.split_actions(columns[ACTION], data_set.actions)
    limits.check_range(**driven)
    own = row.ours
    names = PLAIN | {name: OPTIONAL[name] for name in own.get("columns", ()) if name in OPTIONAL}
    if data_set.header is not None:
        there = columns.keys() | {data_set.cameras[camera] for camera in frames}
        if missing := [name for name in (STATE, *names.values()) if name not in there]:
            raise ValueError(f"lacks {', '.join(missing)}")
    given = unknown_columns(row.length) | driven
    given |= {name: columns[theirs] for name, theirs in names.items() if theirs in columns}
    if STATE in columns:
        given["speed_mps"] = columns[STATE][:, 0]
    if "t_s" not in given:
        given["t_s"] = limits.clock(columns["timestamp"], data_set.fps)
    return Episode(
        frames=frames.pop("center"),
        side_frames={side: frames[side] for side in CAMERAS if side in frames},
        seed=seed,
        source=data_set.source,
        driver=str(own.get("driver", "lerobot")),
        episode_return=own["return"] if own else float(given["reward"].astype(np.float64).sum()),
        meta=own["meta"] if own else {"task": "; ".join(row.tasks)},
        **given,
    )
