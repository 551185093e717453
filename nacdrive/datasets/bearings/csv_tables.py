"""Tables of numbers as measuring programs write them: commas or semicolons, header or none, any newline."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from nacdrive.common.errors import UserError


def read_table(path: Path, columns: int, *, cut: bool = False) -> NDArray[np.float64]:
    """Numbers of a text file, [rows, columns].

    Args:
        path: The file.
        columns: Columns it must have.
        cut: Leave out a last line that was cut off while it was written.

    Raises:
        UserError: if the file is empty, or a line has another number of columns or no finite numbers (line named).
    """
    data = path.read_bytes()
    if cut and not data.endswith(b"\n"):
        whole, _, last = data.rpartition(b"\n")
        data = data if len(fields(last)) == columns else whole
    first = data.partition(b"\n")[0]
    header = int(not is_number(fields(first)[0]))
    try:
        table = csv.read_csv(
            pa.BufferReader(data),
            csv.ReadOptions(use_threads=False, autogenerate_column_names=True, skip_rows=header),
            csv.ParseOptions(delimiter=delimiter(first), quote_char=False),
            csv.ConvertOptions(column_types={f"f{i}": pa.float64() for i in range(columns)}),
        )
    except pa.ArrowInvalid as error:
        raise line_error(path, data, columns, header) from error
    if table.num_columns != columns:
        raise line_error(path, data, columns, header)
    values = np.column_stack([column.to_numpy() for column in table.columns])
    if not np.isfinite(values).all():
        raise line_error(path, data, columns, header)
    return values


def line_error(path: Path, data: bytes, columns: int, header: int) -> UserError:
    """What is wrong with the first line that is not ``columns`` finite numbers."""
    lines = data.splitlines()
    for number, line in enumerate(lines[header:], start=1 + header):
        found = fields(line)
        if line and len(found) != columns:
            return UserError(f"{path} line {number} has {len(found)} columns where {columns} belong: mend the file.")
        for field in found if line else []:
            if not (is_number(field) and np.isfinite(float(field))):
                text = field.decode(errors="replace").strip()
                return UserError(f"{path} line {number} holds '{text}' where a finite number belongs: mend the file.")
    return UserError(f"{path} holds no rows of {columns} numbers: it is empty or another kind of file.")


def delimiter(line: bytes) -> str:
    """Sign between the columns of a line."""
    return next((sign for sign in (";", "\t") if sign.encode() in line), ",")


def fields(line: bytes) -> list[bytes]:
    """Fields of a line."""
    return line.rstrip(b"\r\n").split(delimiter(line).encode())


def is_number(field: bytes) -> bool:
    """Whether a field reads as a number (``nan`` does)."""
    try:
        float(field)
    except ValueError:
        return False
    return True
