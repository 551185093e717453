"""Localisation data for person activity (PAR, UCI 196): positions of four worn tags, one reading a line."""

from __future__ import annotations

import codecs
import hashlib
import json
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray
from pyarrow import csv

from nacdrive.common.errors import UserError, unknown_name

FILE_NAME = "ConfLongDemo_JSI.txt"
SIZE = 21_546_346
MD5 = "280a677ae0d673ec9a50ada480d8a529"
_NAMES = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
TAGS: dict[str, str] = _NAMES["tags"]
"""Names of the tags; a reading's ``tag`` counts them in this order."""
ACTIVITIES: tuple[str, ...] = tuple(_NAMES["activities"])
"""A reading's ``activity`` counts them in this order."""
COLUMNS = ("sequence", "tag", "ticks", "date", "x", "y", "z", "activity")
PUBLIC_COLUMNS = ("id", *COLUMNS[:3], *COLUMNS[4:])
"""Of a public copy, whose first line names them."""
TICK_S = 1e-7
RECORDING_NAME = re.compile(r"[A-Za-z]+\d+")
"""Letters and a number."""


@dataclass(frozen=True)
class ParRecording:
    """One run of one person, in order of time."""

    name: str  # person and run, such as A01
    person: str
    t_s: NDArray[np.float64]  # [N] seconds since the first reading; the tags report one after another, at uneven gaps
    tag: NDArray[np.int64]  # [N] which tag reported: index into TAGS
    xyz: NDArray[np.float32]  # [N, 3] its position in metres
    activity: NDArray[np.int64]  # [N] what the person did: index into ACTIVITIES

    def __len__(self) -> int:
        return len(self.t_s)


def read_par(path: Path) -> list[ParRecording]:
    """Recordings of a PAR file, or of the official one in a folder, in order of names; ``UserError`` if there is none,
    it is a damaged copy of the official one, or a line is not of the format.

    A file as long as the official one must be it to the bit; files of one's own in its format, or in that of a public
    copy with a header, are read as they are. Readings whose time goes back are sorted, with a warning.
    """
    if path.is_dir():
        path = path / FILE_NAME
    if not path.is_file():
        raise UserError(f"{path} does not exist: 'nacdrive data fetch par' gets it, or name the file.")
    data = path.read_bytes()
    check_official(path, data)
    data = data.removeprefix(codecs.BOM_UTF8)
    columns = PUBLIC_COLUMNS if data.startswith(b"id,") else COLUMNS
    header = data.partition(b"\n")[0].decode(errors="replace").strip()
    if columns != COLUMNS and [name.strip()[:1] for name in header.split(",")[4:7]] != ["x", "y", "z"]:
        raise UserError(f"{path} has the columns {header}: those that are read are {','.join(columns)}.")
    try:
        table = csv.read_csv(
            pa.BufferReader(data),
            csv.ReadOptions(column_names=columns, skip_rows=int(columns != COLUMNS), use_threads=False),
            convert_options=csv.ConvertOptions(
                column_types={
                    **dict.fromkeys(("id", "sequence", "tag", "date", "activity"), pa.string()),
                    **dict.fromkeys("xyz", pa.float64()),
                    "ticks": pa.int64(),
                }
            ),
        )
    except pa.ArrowInvalid as error:
        raise line_error(path, data) from error
    sequence, tag = table["sequence"].to_numpy(), index_of(table["tag"], tuple(TAGS))
    activity = index_of(table["activity"], ACTIVITIES)
    xyz = np.column_stack([table[axis].to_numpy() for axis in "xyz"])
    names = np.unique(sequence.astype(str))
    whole = len(names) and np.isfinite(xyz).all() and not table["ticks"].null_count
    if (tag < 0).any() or (activity < 0).any() or not whole or not all(map(RECORDING_NAME.fullmatch, names)):
        raise line_error(path, data)
    ticks = table["ticks"].to_numpy()
    recordings = []
    for name in names:
        rows = np.flatnonzero(sequence == name)
        back = rows[1:][np.diff(ticks[rows]) < 0]
        if len(back):
            line = back[0] + 1 + (columns != COLUMNS)
            warnings.warn(
                f"{path} line {line}: time goes back within {name} (times: {len(back)}): sorted.", stacklevel=2
            )
        rows = rows[np.argsort(ticks[rows], kind="stable")]
        t_s, person = (ticks[rows] - ticks[rows[0]]) * TICK_S, re.sub(r"\d+", "", name)
        recordings.append(ParRecording(str(name), person, t_s, tag[rows], xyz[rows].astype(np.float32), activity[rows]))
    return recordings


def index_of(column: pa.ChunkedArray, names: tuple[str, ...]) -> NDArray[np.int64]:
    """Index of each text in ``names``, -1 where it is none of them."""
    return np.asarray(pa.compute.index_in(column, pa.array(names)).fill_null(-1), np.int64)


def check_official(path: Path, data: bytes) -> None:
    """Refuse a damaged copy of the official file; warn of one that bears its name only."""
    if len(data) == SIZE:
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if md5 != MD5:
            what = f"{path} is a damaged copy of {FILE_NAME}"
            raise UserError(f"{what}: its md5 is {md5}, expected was {MD5}; delete it and fetch it again.")
    elif path.name == FILE_NAME:
        warnings.warn(f"{path} is not the official file ({len(data)} bytes instead of {SIZE}).", stacklevel=3)


def line_error(path: Path, data: bytes) -> UserError:
    """What is wrong with the first line that is not of the format."""
    for number, line in enumerate(data.decode(errors="replace").splitlines(), start=1):
        fields = line.split(",")
        if not line or (number == 1 and fields[0] == "id"):
            continue
        if data.startswith(b"id,"):
            fields[:] = [*fields[1:4], "", *fields[4:]]
        if len(fields) != len(COLUMNS):
            return UserError(
                f"{path} line {number} has {len(fields)} columns where {len(COLUMNS)} belong: mend the file."
            )
        where = f"{path} line {number}"
        if not RECORDING_NAME.fullmatch(fields[0]):
            return UserError(f"{where} names the recording '{fields[0]}' where a name such as A01 belongs.")
        if fields[1] not in TAGS:
            return unknown_name(f"tag in {where}", fields[1], TAGS)
        if fields[-1] not in ACTIVITIES:
            return unknown_name(f"activity in {where}", fields[-1], ACTIVITIES)
        try:
            finite = bool(np.isfinite([int(fields[2]), *map(float, fields[4:7])]).all())
        except ValueError:
            finite = False
        if not finite:
            return UserError(f"{where} holds no finite time and position: mend the file.")
    return UserError(f"{path} holds no readings: it is empty or another kind of file.")
