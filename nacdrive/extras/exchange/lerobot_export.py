"""A recording in LeRobot's layout (v3.0): ``meta/``, and frames beside numbers in ``data/chunk-*/file-*.parquet``.

Written with pyarrow alone, after ``lerobot.datasets.lerobot_dataset`` 0.6: images are of its type ``image``, which
keeps their bytes in Parquet (the type ``video`` is lossy).

The statistics, by which its policies scale what goes in and out, are those of ``lerobot.datasets.compute_stats``:
minimum, maximum, mean, standard deviation, count and five quantiles of each feature in each episode; those of the whole
are the weighted means of the episodes', its quantiles too. Ours differ in two ways: quantiles of an episode are exact
(theirs come from histograms of 5000 bins), and what is unknown (NaN) does not count.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nacdrive.common.errors import UserError, quoted
from nacdrive.common.files import write_json
from nacdrive.datasets.episode import COLUMNS, PLACES, SEEN, SIDES, Episode
from nacdrive.datasets.episode import OPTIONAL as KINDS
from nacdrive.datasets.episode_file import image_column, list_column
from nacdrive.datasets.images import decode_image, image_header
from nacdrive.datasets.recording import Recording
from nacdrive.datasets.staging import Converted, Progress, staged_folder, unseen
from nacdrive.extras.exchange.limits import ACTION_NAMES, as_rgb, own_part

CODEBASE_VERSION = "v3.0"
INFO = "meta/info.json"
STATS = "meta/stats.json"
TASKS = "meta/tasks.parquet"
EPISODES = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
OURS = "meta/nacdrive.json"
"""What a recording says of itself beside; LeRobot passes it by."""
FILES_PER_CHUNK = 1000
FILE_MB = 100
ROWS_PER_GROUP = 500

CAMERAS = {"center": "observation.images.center", **{side: f"observation.images.{side}" for side in SIDES}}
STATE, ACTION = "observation.state", "action"
STATE_NAMES = ("speed_mps", "gap_s")
"""Metres a second, and seconds since the frame before (0 at first). LeRobot hands a feature of one number to policies
without its axis, which they do not take: hence two."""
PLAIN = {"choice": "choice", "expert_choice": "expert.choice", "reward": "next.reward", "t_s": "t_s"}
"""Columns of ours with one number a frame, and their names there. Names that begin with 'action' or 'observation' are
what LeRobot's policies put out and take in."""
LABEL, LOGITS = "expert.steering", "expert.logits"
INDICES = ("frame_index", "episode_index", "index", "task_index")
NUMBERS = {"expert_pedal": "expert.pedal"} | {name: f"place.{name}" if name in PLACES else name for name in SEEN}
"""Columns of numbers that are NaN where an episode has none, and their names there."""
OPTIONAL = {"expert_steering": LABEL, "expert_logits": LOGITS, **{side: CAMERAS[side] for side in SIDES}, **NUMBERS}
"""Columns that not every episode has, and their names there."""
QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
SHRINK_FROM = 300
"""Images of this many pixels a side and more are thinned out to about ``SHRUNK``."""
SHRUNK = 150

Stats = dict[str, NDArray[Any]]
"""``min``, ``max``, ``mean``, ``std``, ``count`` and the quantiles of one feature."""


@dataclass(frozen=True)
class Layout:
    """What all episodes of a data set have in common."""

    shapes: dict[str, tuple[int, int]]  # height and width of each camera's frames
    label: bool  # whether any episode has expert_steering
    logits: int  # width of expert_logits; 0 where no episode has them
    numbers: tuple[str, ...] = ()  # those of NUMBERS that any episode has

    @classmethod
    def of(cls, recording: Recording) -> Layout:
        """The layout of a recording, from the headers of its files."""
        columns: dict[str, pa.DataType] = {}
        widths: set[int] = set()
        shapes: dict[str, tuple[int, int]] = {}
        for index, info in enumerate(recording.episodes):
            try:
                schema = pq.read_schema(info.path)
            except (pa.ArrowException, OSError):
                # Loading says in a sentence what is wrong with it.
                recording.load(index)
                raise
            columns |= {field.name: field.type for field in schema}
            if "expert_logits" in schema.names:
                widths.add(schema.field("expert_logits").type.list_size)
            if any(camera not in shapes for camera in CAMERAS if camera in ("center", *schema.names)):
                for camera, frames in recording.load(index).cameras.items():
                    shapes.setdefault(camera, image_header(frames[0])[:2])
        if len(widths) > 1:
            raise UserError(
                f"{recording.folder} holds scores of {' and '.join(map(str, sorted(widths)))} actions, and a LeRobot "
                "column has one width: export its parts apart."
            )
        numbers = tuple(name for name in NUMBERS if name in columns)
        return cls(shapes, "expert_steering" in columns, max(widths, default=0), numbers)

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        def numbers(dtype: str, names: tuple[str, ...] | None = None, width: int = 1) -> dict[str, Any]:
            return {"dtype": dtype, "shape": [width], "names": list(names) if names else None}

        features: dict[str, dict[str, Any]] = {
            CAMERAS[camera]: {"dtype": "image", "shape": [*shape, 3], "names": ["height", "width", "channel"]}
            for camera, shape in self.shapes.items()
        }
        features[STATE] = numbers("float32", STATE_NAMES, 2)
        features[ACTION] = numbers("float32", tuple(ACTION_NAMES), 3)
        features |= {name: numbers(np.dtype(COLUMNS[ours]).name) for ours, name in PLAIN.items()}
        features |= {LABEL: numbers("float32")} if self.label else {}
        if self.logits:
            features[LOGITS] = numbers("float32", tuple(map(str, range(self.logits))), self.logits)
        features |= {NUMBERS[name]: numbers(np.dtype(KINDS[name]).name) for name in self.numbers}
        features["next.done"] = numbers("bool")
        features["timestamp"] = numbers("float32")
        return features | {name: numbers("int64") for name in INDICES}


def export_lerobot(folder: Path, out: Path, *, overwrite: bool = False, progress: Progress = unseen) -> Converted:
    """Write the recording in ``folder`` as a LeRobot data set into ``out``; one episode is held at a time.

    ``action`` is what was driven: float32 [3], steering, throttle, brake. Frames keep their bytes.
    """
    recording = Recording.open(folder)
    layout = Layout.of(recording)
    with staged_folder(out, overwrite=overwrite, reads=folder) as staging:
        with closing(DataWriter(staging, layout)) as writer:
            for index in range(len(recording)):
                writer.add(recording.load(index))
                progress(writer.frames)
        writer.write_meta(recording.meta)
    return Converted(len(recording), writer.frames)


class DataWriter:
    """Appends episodes to the data files; begins another file before one is larger than ``FILE_MB``."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        self.folder, self.layout = folder, layout
        self.frames = 0
        """Frames written so far."""
        self._rows: list[dict[str, Any]] = []
        self._stats: list[dict[str, Stats]] = []
        self._file, self._in_file = -1, 0
        self._writer: pq.ParquetWriter | None = None

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def add(self, episode: Episode) -> None:
        table = self._table(episode)
        if self._writer is None or (self._in_file and self._in_file + table.nbytes > FILE_MB * 2**20):
            self._next_file(table.schema)
        assert self._writer is not None
        self._writer.write_table(table, row_group_size=ROWS_PER_GROUP)
        self._in_file += table.nbytes
        stats = self._statistics(episode, table)
        self._stats.append(stats)
        chunk, file = divmod(self._file, FILES_PER_CHUNK)
        row: dict[str, Any] = {
            "episode_index": len(self._rows),
            "tasks": [task_of(episode.source)],
            "length": len(episode),
            "data/chunk_index": chunk,
            "data/file_index": file,
            "dataset_from_index": self.frames,
            "dataset_to_index": self.frames + len(episode),
            "nacdrive/seed": episode.seed,
            "nacdrive/driver": episode.driver,
            "nacdrive/return": episode.episode_return,
            "nacdrive/columns": [*episode.optional, *(side for side in SIDES if side in episode.side_frames)],
            "nacdrive/meta": json.dumps(episode.meta, allow_nan=False),
        }
        row |= {f"stats/{feature}/{k}": v.tolist() for feature, values in stats.items() for k, v in values.items()}
        self._rows.append({**row, "meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0})
        self.frames += len(episode)

    def write_meta(self, meta: Mapping[str, Any]) -> None:
        """Write what describes the data; ``meta`` is what ``recording.json`` says."""
        fps = float(meta["fps"])
        info = {
            "codebase_version": CODEBASE_VERSION,
            "robot_type": meta["source"],
            "total_episodes": len(self._rows),
            "total_frames": self.frames,
            "total_tasks": 1,
            "chunks_size": FILES_PER_CHUNK,
            "data_files_size_in_mb": FILE_MB,
            "video_files_size_in_mb": 200,
            "fps": int(fps) if fps.is_integer() else fps,
            "splits": {"train": f"0:{len(self._rows)}"},
            "data_path": DATA,
            "video_path": None,
            "features": self.layout.features,
        }
        write_json(self.folder / INFO, info)
        total = aggregate(self._stats)
        write_json(self.folder / STATS, {f: {k: v.tolist() for k, v in s.items()} for f, s in total.items()})
        write_tasks(self.folder / TASKS, [task_of(meta["source"])])
        names = list(dict.fromkeys(name for row in self._rows for name in row))
        table = pa.table({name: [row.get(name) for row in self._rows] for name in names})
        path = self.folder / EPISODES.format(chunk_index=0, file_index=0)
        path.parent.mkdir(parents=True)
        pq.write_table(table, path, compression="snappy")
        write_json(self.folder / OURS, own_part(meta))

    def _next_file(self, schema: pa.Schema) -> None:
        self.close()
        self._file, self._in_file = self._file + 1, 0
        chunk, file = divmod(self._file, FILES_PER_CHUNK)
        path = self.folder / DATA.format(chunk_index=chunk, file_index=file)
        path.parent.mkdir(parents=True, exist_ok=True)
        images = {f"{CAMERAS[camera]}.bytes": "NONE" for camera in self.layout.shapes}
        leaves = {f"{CAMERAS[camera]}.path": "SNAPPY" for camera in self.layout.shapes}
        leaves |= {name: "SNAPPY" for name in schema.names if name not in CAMERAS.values()}
        leaves |= {f"{field.name}.list.element": leaves.pop(field.name) for field in schema if is_list(field.type)}
        plain = [name for name in (*INDICES, "choice", "expert.choice", "next.done") if name in schema.names]
        self._writer = pq.ParquetWriter(path, schema, compression={**images, **leaves}, use_dictionary=plain)

    def _table(self, episode: Episode) -> pa.Table:
        steps, number = len(episode), len(self._rows)
        columns: dict[str, Any] = {}
        for camera, shape in self.layout.shapes.items():
            frames = checked_frames(episode, camera, episode.cameras.get(camera, []), shape)
            empty = pa.nulls(steps, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
            columns[CAMERAS[camera]] = image_column(frames, f"{camera}-{number:06d}") if frames else empty
        gap_s = np.diff(episode.t_s, prepend=episode.t_s[:1])
        columns[STATE] = list_column(np.stack([episode.speed_mps, gap_s.astype(np.float32)], axis=1))
        columns[ACTION] = list_column(np.stack([getattr(episode, name) for name in ACTION_NAMES], axis=1))
        columns |= {name: pa.array(getattr(episode, ours)) for ours, name in PLAIN.items()}
        if self.layout.label:
            columns[LABEL] = pa.array(episode.label)
        if self.layout.logits:
            unknown = np.full((steps, self.layout.logits), np.nan, np.float32)
            columns[LOGITS] = list_column(unknown if episode.expert_logits is None else episode.expert_logits)
        for name in self.layout.numbers:
            columns[NUMBERS[name]] = pa.array(episode.optional.get(name, np.full(steps, np.nan, KINDS[name])))
        frame = np.arange(steps)
        columns["next.done"] = pa.array(frame == steps - 1)
        columns["timestamp"] = pa.array(episode.t_s.astype(np.float32))
        indices = frame, np.full(steps, number), self.frames + frame, np.zeros(steps, np.int64)
        columns |= {name: pa.array(index) for name, index in zip(INDICES, indices, strict=True)}
        features = {name: hub_feature(feature) for name, feature in self.layout.features.items()}
        hub = json.dumps({"info": {"features": features}}).encode()
        return pa.table(columns).replace_schema_metadata({b"huggingface": hub})

    def _statistics(self, episode: Episode, table: pa.Table) -> dict[str, Stats]:
        statistics: dict[str, Stats] = {}
        for camera, frames in episode.cameras.items():
            # Called before the next camera.
            statistics[CAMERAS[camera]] = image_stats(lambda i: decode_image(frames[i]), len(frames))  # noqa: B023
        for name in table.column_names:
            if name not in CAMERAS.values():
                column = table.column(name).combine_chunks()
                values = column.flatten() if is_list(column.type) else column
                statistics[name] = number_stats(values.to_numpy(zero_copy_only=False).reshape(len(table), -1))
        return statistics


def checked_frames(episode: Episode, camera: str, frames: list[bytes], shape: tuple[int, int]) -> list[bytes]:
    """The encoded frames of a camera, in RGB."""
    checked = []
    for index, data in enumerate(frames):
        frame = f"frame {index} ({camera}) of the episode of seed {episode.seed}"
        after = ", and a LeRobot data set has frames of one size: export its parts apart."
        with quoted(f"{frame} has ", after, ValueError):
            checked.append(data if image_header(data) == (*shape, "RGB") else as_rgb(data, shape))
    return checked


def task_of(source: str) -> str:
    """What is done, in words: LeRobot's policies may read it."""
    return f"drive along the road ({source})"


def is_list(kind: pa.DataType) -> bool:
    """Whether a column has several numbers a row."""
    return bool(pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind))


def hub_feature(feature: Mapping[str, Any]) -> dict[str, Any]:
    """A feature of ``info.json`` in the words of ``datasets``."""
    if feature["dtype"] == "image":
        return {"_type": "Image"}
    value, width = {"dtype": feature["dtype"], "_type": "Value"}, feature["shape"][0]
    return value if width == 1 else {"feature": value, "length": width, "_type": "Sequence"}


def write_tasks(path: Path, tasks: list[str]) -> None:
    """The table of tasks as pandas writes it: the tasks are its index."""
    index = "__index_level_0__"

    def column(name: str | None, field: str | None, pandas: str, numpy: str) -> dict[str, Any]:
        return {"name": name, "field_name": field, "pandas_type": pandas, "numpy_type": numpy, "metadata": None}

    pandas = {
        "index_columns": [index],
        "column_indexes": [column(None, None, "unicode", "object") | {"metadata": {"encoding": "UTF-8"}}],
        "columns": [column("task_index", "task_index", "int64", "int64"), column(None, index, "unicode", "object")],
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.0.0",
    }
    table = pa.table({"task_index": pa.array(range(len(tasks)), pa.int64()), index: pa.array(tasks, pa.string())})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata({b"pandas": json.dumps(pandas).encode()}), path)


def number_stats(values: NDArray[Any]) -> Stats:
    """Statistics of [frames] or [frames, width] numbers: arrays of [1] or [width]; ``count`` is [1]."""
    rows = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
    # An unknown number becomes 0 only where a column knows none at all.
    known = [column[np.isfinite(column)] for column in rows.T]
    columns = [column if len(column) else np.zeros(1) for column in known]
    stats = {
        name: np.array([measure(column) for column in columns])
        for name, measure in (("min", np.min), ("max", np.max), ("mean", np.mean), ("std", np.std))
    }
    stats |= {name: np.array([np.quantile(column, q) for column in columns]) for name, q in QUANTILES.items()}
    return {**stats, "count": np.array([len(rows)])}


def sampled_frames(count: int) -> list[int]:
    """The frames whose pixels are looked at, of an episode of ``count``: about ``count ** 0.75``, at least 100."""
    return [int(i) for i in np.round(np.linspace(0, count - 1, max(min(100, count), min(int(count**0.75), 10_000))))]


def image_stats(decode: Callable[[int], NDArray[np.uint8]], count: int) -> Stats:
    """Statistics of the channels of an episode's ``count`` images, 0 .. 1: arrays of [3, 1, 1].

    ``decode`` makes of the number of a frame uint8 [height, width, 3]; one frame is held at a time.
    """
    chosen, levels = sampled_frames(count), np.zeros((3, 256), dtype=np.int64)
    for i in chosen:
        frame = decode(i)
        longest = max(frame.shape[:2])
        if longest >= SHRINK_FROM:
            step = int(longest / SHRUNK)
            frame = frame[::step, ::step]
        for channel in range(3):
            levels[channel] += np.bincount(frame[..., channel].reshape(-1), minlength=256)
    value, total = np.arange(256) / 255, levels.sum(1)
    mean, below = levels @ value / total, np.cumsum(levels, axis=1)
    stats = {
        "min": np.array([value[row.nonzero()[0][0]] for row in levels]),
        "max": np.array([value[row.nonzero()[0][-1]] for row in levels]),
        "mean": mean,
        "std": np.sqrt(np.maximum(levels @ value**2 / total - mean**2, 0)),
    }
    for name, q in QUANTILES.items():
        stats[name] = np.array([value[np.searchsorted(row, q * row[-1])] for row in below])
    return {**{name: array.reshape(3, 1, 1) for name, array in stats.items()}, "count": np.array([len(chosen)])}


def aggregate(episodes: Sequence[Mapping[str, Stats]]) -> dict[str, Stats]:
    """The statistics of a whole data set from those of its episodes; a feature may be absent from some."""
    features = dict.fromkeys(name for stats in episodes for name in stats)
    return {name: aggregate_feature([stats[name] for stats in episodes if name in stats]) for name in features}


def aggregate_feature(parts: Sequence[Stats]) -> Stats:
    """One feature's statistics from those of several episodes."""
    stacked = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    counts = stacked["count"].astype(np.float64)
    weights = counts.reshape(counts.shape[0], *[1] * (stacked["mean"].ndim - 1)) / counts.sum()

    def weighted(values: NDArray[Any]) -> NDArray[Any]:
        return np.asarray((values * weights).sum(0))

    mean = weighted(stacked["mean"])
    return {
        "min": stacked["min"].min(0),
        "max": stacked["max"].max(0),
        "mean": mean,
        "std": np.sqrt(weighted(stacked["std"] ** 2 + (stacked["mean"] - mean) ** 2)),
        **{name: weighted(stacked[name]) for name in QUANTILES},
        "count": stacked["count"].sum(0),
    }
