"""PhysioNet / Computing in Cardiology Challenge 2012, set a: what was read of 4,000 patients in intensive care."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.errors import UserError, unknown_name
from nacdrive.datasets.downloads import is_archive, unpacked

STAYS, OUTCOMES = "set-a", "Outcomes-a.txt"
HEADER = "Time,Parameter,Value"
DEATH = "In-hospital_death"
STATIC = ("Age", "Gender", "Height", "ICUType", "Weight")
"""What is written down once, at admission; the weight also later."""
MEASURED = (
    "ALP", "ALT", "AST", "Albumin", "BUN", "Bilirubin", "Cholesterol", "Creatinine", "DiasABP", "FiO2", "GCS",
    "Glucose", "HCO3", "HCT", "HR", "K", "Lactate", "MAP", "MechVent", "Mg", "NIDiasABP", "NIMAP", "NISysABP", "Na",
    "PaCO2", "PaO2", "Platelets", "RespRate", "SaO2", "SysABP", "Temp", "TroponinI", "TroponinT", "Urine", "WBC",
    "Weight", "pH",
)  # fmt: skip
PLACES = {name: place for place, name in enumerate(MEASURED)}
CLOCK = re.compile(r"(\d\d):([0-5]\d)")


@dataclass(frozen=True)
class Stay:
    """One stay in intensive care; a value that was not read is NaN."""

    name: str
    static: NDArray[np.float32]  # [5] of STATIC
    t_s: NDArray[np.float64]  # [N] seconds since admission of each reading, in order
    what: NDArray[np.int64]  # [N] which of MEASURED
    value: NDArray[np.float32]
    died: bool  # in hospital


def read_stays(folder: Path) -> list[Stay]:
    """The stays of a folder, or an archive, with ``set-a`` and ``Outcomes-a.txt`` as PhysioNet ships them;
    ``UserError`` if it is another set or a part of this one, or a line is not of the format (with file and line).
    """
    folder = unpacked(folder) if is_archive(folder) else folder
    if not (folder / STAYS).is_dir() or not (folder / OUTCOMES).is_file():
        what = f"{folder} has no {STAYS} and {OUTCOMES} beside each other"
        raise UserError(f"{what}: give set a of the PhysioNet challenge of 2012, no other set.")
    died = read_outcomes(folder / OUTCOMES)
    files = {path.stem: path for path in sorted((folder / STAYS).glob("*.txt"))}
    for absent, present, text in (
        (died.keys() - files.keys(), died, f"{folder / STAYS} lacks {{}} of the {len(died)} stays of {OUTCOMES}"),
        (files.keys() - died.keys(), files, f"{folder / OUTCOMES} lacks {{}} of the {len(files)} stays of {STAYS}"),
    ):
        if absent or not present:
            raise UserError(f"{text.format(len(absent))}, such as {min(absent, default='any')}: copy the whole set.")
    return [read_stay(path, died[name]) for name, path in files.items()]


def read_outcomes(path: Path) -> dict[str, bool]:
    """Stay -> whether the patient died in hospital."""
    first, *lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines() or [""]
    columns = first.split(",")
    if columns[0] != "RecordID" or DEATH not in columns:
        raise UserError(f"{path} line 1 does not name RecordID and {DEATH}: give the set's own outcomes.")
    died = {}
    for number, line in enumerate(lines, start=2):
        fields = line.split(",")
        if len(fields) != len(columns) or fields[columns.index(DEATH)] not in ("0", "1"):
            raise UserError(f"{path} line {number} is no line of outcomes: mend the file, or copy it again.")
        died[fields[0]] = fields[columns.index(DEATH)] == "1"
    return died


def read_stay(path: Path, died: bool) -> Stay:
    """One stay; -1 stands in the files for what is not known at admission."""
    first, *lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines() or [""]
    if first != HEADER:
        raise UserError(f"{path} line 1 is not '{HEADER}': give set a of the PhysioNet challenge of 2012.")
    readings: list[tuple[float, ...]] = []
    last, static = 0, dict.fromkeys(STATIC, np.nan)
    for number, line in enumerate(lines, start=2):
        clock, _, rest = line.partition(",")
        name, _, text = rest.partition(",")
        time = CLOCK.fullmatch(clock)
        try:
            value = float(text)
        except ValueError:
            value = np.nan
        if time is None or not np.isfinite(value):
            raise UserError(f"{path} line {number} is no 'hh:mm,Parameter,Value': mend the file, or copy it again.")
        minute = 60 * int(time[1]) + int(time[2])
        if name == "RecordID":
            continue
        if name not in PLACES and name not in STATIC:
            raise unknown_name(f"parameter in {path} line {number}", name, {*MEASURED, *STATIC})
        if name in STATIC and minute == 0:
            static[name] = np.nan if value < 0 else value
        if name in PLACES and value >= 0:
            readings.append((60 * minute, PLACES[name], value))
        if minute < last:
            raise UserError(f"{path} line {number} goes back in time, to {clock}: mend the file, or copy it again.")
        last = minute
    known = np.array(list(static.values()), np.float32)
    t_s, what, values = np.array(readings, np.float64).reshape(-1, 3).T
    return Stay(path.stem, known, t_s, what.astype(np.int64), values.astype(np.float32), died)
