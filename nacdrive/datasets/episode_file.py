"""One episode, one Parquet file that is enough by itself: columns, images, and everything else in its metadata."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nacdrive.common.errors import instead_of, quoted
from nacdrive.common.foreign_json import parse_object
from nacdrive.datasets.episode import COLUMNS, OPTIONAL, SIDES, Episode

SCHEMA_VERSION = 1
METADATA_KEY = b"nacdrive"
JPEG = b"\xff\xd8"
"""The first bytes of every JPEG."""
UNITS = {
    "t_s": "seconds since the episode began",
    "steering": "-1 full left .. 1 full right",
    "throttle": "0 .. 1",
    "brake": "0 .. 1",
    "reward": "the environment's own, summed until the next frame",
    "speed_mps": "metres per second",
    "choice": "index of the driven action, -1 where the driver is continuous",
    "expert_choice": "index of the expert's action, -1 where unknown",
    "expert_logits": "the expert's score of each action",
}
"""Of the columns of every recording."""
OPTIONAL_UNITS = {
    "expert_steering": "-1 full left .. 1 full right, what the expert would do",
    "expert_pedal": "throttle minus brake, what the expert would do",
    "x_m": "metres to the east, NaN where unknown",
    "y_m": "metres to the north, NaN where unknown",
    "heading_rad": "radians counter-clockwise from east, NaN where unknown",
    "progress": "laps driven, as a fraction; of CarRacing the share of the tiles",
    "frame_t_s": "seconds since the episode began when the frame was taken, where frames were lost or late",
    "between_frames": "1 where no frame had come and the policy decided from a black one, NaN where not",
}
"""Of those that most recordings lack."""


class NotAnEpisodeError(ValueError):
    """A file that is no episode of ours; the message says in which way, without the file's name."""


def to_parquet(episode: Episode) -> bytes:
    """The whole file, byte for byte the same for the same episode."""
    columns: dict[str, Any] = {
        "frame": image_column(episode.frames, f"{episode.seed}"),
        **{name: pa.array(getattr(episode, name)) for name in COLUMNS},
    }
    features: dict[str, Any] = {"frame": {"_type": "Image"}}
    features |= {name: {"dtype": np.dtype(kind).name, "_type": "Value"} for name, kind in COLUMNS.items()}
    for side, encoded in episode.side_frames.items():
        columns[side] = image_column(encoded, f"{episode.seed}-{side}")
        features[side] = {"_type": "Image"}
    value = {"dtype": "float32", "_type": "Value"}
    for name, values in episode.optional.items():
        if name != "expert_logits":
            columns[name], features[name] = pa.array(values), {**value, "dtype": values.dtype.name}
    if (logits := episode.expert_logits) is not None:
        columns["expert_logits"] = list_column(logits)
        features["expert_logits"] = {"feature": value, "length": logits.shape[1], "_type": "Sequence"}
    header = {
        "schema_version": SCHEMA_VERSION,
        "source": episode.source,
        "seed": episode.seed,
        "driver": episode.driver,
        "episode_return": episode.episode_return,
        "steps": len(episode),
        "units": {**UNITS, **{name: unit for name, unit in OPTIONAL_UNITS.items() if name in columns}},
        "meta": episode.meta,
    }
    table = pa.table(columns).replace_schema_metadata(
        {
            METADATA_KEY: json.dumps(header, sort_keys=True, allow_nan=False).encode(),
            # So that Hugging Face `datasets` shows the frames as images.
            b"huggingface": json.dumps({"info": {"features": features}}).encode(),
        }
    )
    # The bytes of images do not shrink again, and neither a dictionary nor a minimum of them is of use.
    images = ["frame", *episode.side_frames]
    leaves = [*(f"{name}.path" for name in images), *COLUMNS, *(n for n in OPTIONAL_UNITS if n in columns)]
    leaves += ["expert_logits.list.element"] if "expert_logits" in columns else []
    buffer = io.BytesIO()
    pq.write_table(
        table,
        buffer,
        compression={**{f"{name}.bytes": "NONE" for name in images}, **dict.fromkeys(leaves, "ZSTD")},
        use_dictionary=["choice", "expert_choice", "steering", "throttle", "brake"],
        write_statistics=list(COLUMNS),
    )
    return buffer.getvalue()


def image_column(encoded: list[bytes], prefix: str) -> pa.StructArray:
    """Encoded images in Hugging Face's layout: their bytes, and a name that tells their kind."""
    names = [f"{prefix}-{i:05d}{'.jpg' if data[:2] == JPEG else '.png'}" for i, data in enumerate(encoded)]
    return pa.StructArray.from_arrays(
        [pa.array(encoded, pa.binary()), pa.array(names, pa.string())], names=["bytes", "path"]
    )


def list_column(rows: NDArray[np.float32]) -> pa.FixedSizeListArray:
    """[frames, width] numbers as a column."""
    flat = pa.array(np.ascontiguousarray(rows, dtype=np.float32).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])


def from_parquet(data: bytes) -> Episode:
    """The episode in a file; ``NotAnEpisodeError`` if it is truncated, damaged, foreign or of a newer schema."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        header = read_header(file.schema_arrow.metadata)
        # Threads of Arrow's that still work when the process ends abort it.
        table = file.read(use_threads=False)
        columns = {name: table.column(name).to_numpy() for name in COLUMNS}
        frames, sides = read_images(table, "frame"), [side for side in SIDES if side in table.column_names]
        side_frames = {side: read_images(table, side) for side in sides}
        optional = [name for name in OPTIONAL if name in table.column_names and name != "expert_logits"]
        columns |= {name: table.column(name).to_numpy() for name in optional}
        logits = None
        if "expert_logits" in table.column_names:
            nested = table.column("expert_logits").combine_chunks()
            logits = nested.flatten().to_numpy().reshape(len(table), nested.type.list_size)
    except (pa.ArrowException, OSError) as error:
        raise NotAnEpisodeError("is truncated or damaged, or no Parquet file") from error
    except (KeyError, AttributeError) as error:
        raise NotAnEpisodeError(f"lacks a column of a recording ({error})") from error
    except (ValueError, TypeError) as error:
        if isinstance(error, NotAnEpisodeError):
            raise
        raise NotAnEpisodeError(f"holds a column that is none of a recording ({error})") from error
    with (
        quoted("lacks ", " in its metadata", KeyError, kind=NotAnEpisodeError),
        quoted("contradicts itself (", ")", ValueError, TypeError, OverflowError, kind=NotAnEpisodeError),
    ):
        return Episode(
            frames=frames,
            **columns,
            expert_logits=logits,
            seed=int(header["seed"]),
            source=str(header["source"]),
            driver=str(header["driver"]),
            episode_return=float(header["episode_return"]),
            meta=dict(header["meta"]),
            side_frames=side_frames,
        )


def read_images(table: pa.Table, name: str) -> list[bytes]:
    """The encoded images of a column."""
    images: list[bytes] = table.column(name).combine_chunks().field("bytes").to_pylist()
    if not all(isinstance(data, bytes) for data in images):
        raise NotAnEpisodeError(f"holds a {name} that is no picture")
    return images


def read_header(metadata: dict[bytes, bytes] | None) -> dict[str, Any]:
    """Our part of a Parquet schema's metadata, checked for its version."""
    if not metadata or METADATA_KEY not in metadata:
        raise NotAnEpisodeError("is a Parquet file, but no recording of nacdrive")
    with instead_of((ValueError, KeyError, TypeError), "has unreadable nacdrive metadata", NotAnEpisodeError):
        header = parse_object(metadata[METADATA_KEY])
        version = int(header["schema_version"])
    if version > SCHEMA_VERSION:
        raise NotAnEpisodeError(
            f"was written by a newer nacdrive (schema {version}; this one reads up to {SCHEMA_VERSION})"
        )
    return dict(header)
