"""A recording as a tub of donkeycar's (version 2), and back: records in ``catalog_*.catalog``, pictures in ``images``.

After ``donkeycar.parts.tub_v2`` and ``datastore_v2`` 5.3, which read what is written here. What they do not know stands
beside, under names of nacdrive's own in the records and in ``nacdrive.json``, so that a recording comes back as it was.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from nacdrive.common.errors import MISFITS, UserError, named, quoted
from nacdrive.common.files import write_json, write_text
from nacdrive.common.foreign_json import MAX_JSON_BYTES, parse, parse_object, read_object
from nacdrive.datasets.episode import COLUMNS, OPTIONAL, SIDES, Episode, unknown_columns
from nacdrive.datasets.episode_file import JPEG
from nacdrive.datasets.images import image_header
from nacdrive.datasets.recording import Recording
from nacdrive.datasets.staging import Converted, Progress, staged_folder, unseen, write_recording
from nacdrive.datasets.udacity_log_convert import FIRST_DAY
from nacdrive.extras.exchange import limits

MANIFEST, IMAGES = "manifest.json", "images"
PER_CATALOG = 1000
"""Records in a catalog."""
IMAGE, ANGLE, THROTTLE, MODE = "cam/image_array", "user/angle", "user/throttle", "user/mode"
CAMERAS = {"center": IMAGE, **{side: f"nacdrive/{side}" for side in SIDES}}
OWN = {name: f"nacdrive/{name}" for name in (*COLUMNS, *OPTIONAL) if name != "steering"}
"""Columns of ours and their names in a record; ``steering`` is donkeycar's angle, to the right too."""
TYPES = {bool: "boolean", int: "int", float: "float", list: "list"}
CATALOG, PICTURE = re.compile(r"catalog_\d{1,6}\.catalog"), re.compile(r"[\w.-]{1,200}", re.ASCII)
PAUSE_S = 1.0
"""Seconds without a record after which another drive begins."""


def export_tub(folder: Path, out: Path, *, overwrite: bool = False, progress: Progress = unseen) -> Converted:
    """Write the recording in ``folder`` as a tub into ``out``, a session for each episode; frames keep their bytes."""
    recording = Recording.open(folder)
    with staged_folder(out, overwrite=overwrite, reads=folder) as staging:
        (staging / IMAGES).mkdir()
        writer = TubWriter(staging)
        for index in range(len(recording)):
            writer.add(recording.load(index))
            progress(writer.frames)
        writer.finish(recording.meta)
    return Converted(len(recording), writer.frames)


class TubWriter:
    """Appends episodes to a tub."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.frames, self.episodes = folder, 0, list[dict[str, Any]]()
        self.types: dict[str, str] = {}
        self._lines: list[str] = []

    def add(self, episode: Episode) -> None:
        """Write one episode as a session of an hour of its own."""
        began = FIRST_DAY + timedelta(hours=len(self.episodes))
        session, columns = f"{began:%y-%m-%d}_{len(self.episodes)}", list(episode.optional)
        own = {OWN[name]: getattr(episode, name) for name in (*COLUMNS, *columns) if name in OWN}
        pedals = episode.throttle - episode.brake
        for i in range(len(episode)):
            numbers = {ANGLE: episode.steering[i], THROTTLE: pedals[i], **{name: own[name][i] for name in own}}
            record = {name: plain(value.tolist()) for name, value in numbers.items()}
            self.types |= {name: TYPES[type(value.tolist())] for name, value in numbers.items()} | {MODE: "str"}
            for camera, images in episode.cameras.items():
                key, kind = CAMERAS[camera], "jpg" if images[i][:2] == JPEG else "png"
                record[key] = f"{self.frames}_{key.replace('/', '_')}_.{kind}"
                (self.folder / IMAGES / record[key]).write_bytes(images[i])
                self.types[key] = "image_array"
            taken = round(1000 * (began.timestamp() + float(episode.t_s[i])))
            record |= {MODE: "user", "_index": self.frames, "_session_id": session, "_timestamp_ms": taken}
            self._lines.append(json.dumps(record, allow_nan=False, sort_keys=True) + "\n")
            self.frames += 1
            if self.frames % PER_CATALOG == 0:
                self._write_catalog()
        about = {"session": session, "frames": len(episode), "seed": episode.seed, "driver": episode.driver}
        about |= {"return": episode.episode_return, "columns": columns, "meta": episode.meta}
        self.episodes.append({**about, "sides": list(episode.side_frames)})

    def finish(self, meta: Mapping[str, Any]) -> None:
        """Write what describes the records; ``meta`` is what ``recording.json`` says."""
        if self._lines:
            self._write_catalog()
        ids = [row["session"] for row in self.episodes]
        sessions = {"all_full_ids": ids, "last_full_id": ids[-1], "last_id": len(ids) - 1}
        catalogs = [f"catalog_{number}.catalog" for number in range(math.ceil(self.frames / PER_CATALOG))]
        lines = [
            [*self.types],
            [*self.types.values()],
            {},
            {"created_at": FIRST_DAY.timestamp(), "sessions": sessions},
            {"paths": catalogs, "current_index": self.frames, "max_len": PER_CATALOG, "deleted_indexes": []},
        ]
        write_text(self.folder / MANIFEST, "".join(json.dumps(line) + "\n" for line in lines))
        write_json(self.folder / limits.OURS, {**limits.own_part(meta), "episodes": self.episodes})

    def _write_catalog(self) -> None:
        first = (self.frames - 1) // PER_CATALOG * PER_CATALOG
        name, lengths = f"catalog_{first // PER_CATALOG}", [len(line) for line in self._lines]
        about = {"created_at": FIRST_DAY.timestamp(), "line_lengths": lengths, "start_index": first}
        write_text(self.folder / f"{name}.catalog", "".join(self._lines))
        manifest = {**about, "path": f"{name}.catalog_manifest"}
        write_text(self.folder / f"{name}.catalog_manifest", json.dumps(manifest, sort_keys=True) + "\n")
        self._lines = []


def plain(value: Any) -> Any:
    """A number, or a list of them, as JSON holds it: what is not finite as text."""
    if isinstance(value, list):
        return [plain(part) for part in value]
    return value if math.isfinite(value) else str(value)


def import_tub(
    folder: Path, out: Path, *, source: str | None = None, overwrite: bool = False, progress: Progress = unseen
) -> Converted:
    """Make a recording in ``out`` of the tub in ``folder``: an episode for each drive, without what was deleted.

    A drive ends with its session, where records were deleted, and where for ``PAUSE_S`` none was made. Records of an
    autopilot count with what that did, and are left out where the tub does not tell. ``source`` is what was driven,
    where the tub is none of ours; ``donkeycar`` if not given.
    """
    records = read_records(folder)
    ours = read_object(limits.within(folder, limits.OURS)) if (folder / limits.OURS).is_file() else None
    with quoted(f"{folder} is damaged (", "): copy the tub again.", *MISFITS, say=named):
        header = limits.own_header(folder / limits.OURS, ours) if ours is not None else None
        about = {row["session"]: dict(row) for row in ours["episodes"]} if ours is not None else {}
        drives = split(records, math.inf if ours else PAUSE_S)
        gaps = [gap for drive in drives for gap in np.diff([record["_timestamp_ms"] for record in drive]) if gap > 0]
        if not (gaps if header is None else drives):
            raise UserError(f"{folder} holds no two records of one drive that can be used: there is nothing to learn.")
        if header is None:
            fps = round(1000 / float(np.median(gaps)), 3)
            header = limits.strangers_header(folder, source or "donkeycar", fps, "donkeycar")
        rows = [about.get(drive[0]["_session_id"], {"seed": i}) for i, drive in enumerate(drives)]
        seeds = [int(row["seed"]) for row in rows]
    episodes = (episode_of(folder, drive, row, header) for drive, row in zip(drives, rows, strict=True))
    return write_recording(out, header, seeds, episodes, overwrite=overwrite, progress=progress)


def read_records(folder: Path) -> list[dict[str, Any]]:
    """The records of a tub that were not deleted, each with its ``place`` among all."""
    if not (folder / MANIFEST).is_file():
        raise UserError(
            f"there is no donkeycar tub of version 2 in {folder} (no {MANIFEST}): check the path and --from, or "
            "convert an older one with donkeycar's scripts/convert_to_tub_v2.py."
        )
    path = limits.within(folder, MANIFEST)
    try:
        about = [parse(line) for line in read_lines(path)]
        names, deleted = list(about[4]["paths"]), set(about[4]["deleted_indexes"])
        wrong = [name for name in names if not CATALOG.fullmatch(name)]
        if len(about) != 5 or wrong or len(set(names)) != len(names):
            raise ValueError(f"it has {len(about)} lines, and its catalogs are {names}"[:200])
        records: list[dict[str, Any]] = []
        place = 0
        for name in names:
            path = limits.within(folder, name)
            lines = read_lines(path)
            for i, line in enumerate(lines):
                try:
                    record = parse_object(line)
                except ValueError:
                    if name == names[-1] and i == len(lines) - 1 and not path.read_bytes().endswith(b"\n"):
                        # The car was switched off in the middle of it.
                        break
                    raise
                if place not in deleted:
                    records.append(record | {"place": place})
                place += 1
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise UserError(f"{path} is damaged ({error}): copy the tub again.") from error
    return records


def read_lines(path: Path) -> list[bytes]:
    """The lines of a file that is no longer than a catalog can be, without empty ones."""
    if path.stat().st_size > MAX_JSON_BYTES:
        raise ValueError(f"it is longer than {MAX_JSON_BYTES >> 20} MiB")
    return [line for line in path.read_bytes().splitlines() if line.strip()]


def split(records: Sequence[dict[str, Any]], pause_s: float) -> list[list[dict[str, Any]]]:
    """The records of each drive with the ``steering`` and ``pedals`` that were driven, without those that tell none."""
    drives: list[list[dict[str, Any]]] = []
    last = None
    for record in records:
        mode = record.get(MODE, "user")
        steering = record.get(ANGLE if mode == "user" else "pilot/angle")
        pedals = record.get(THROTTLE if mode in ("user", "local_angle") else "pilot/throttle")
        if steering is None or pedals is None or record.get(IMAGE) is None:
            continue
        record |= {"steering": steering, "pedals": pedals}
        if missing := [name for name in ("_session_id", "_timestamp_ms") if name not in record]:
            raise UserError(f"record {record['place']} has no {missing[0]}, which tells when it was driven: add it.")
        session, taken, place = record["_session_id"], record["_timestamp_ms"], record["place"]
        if last is None or last[0] != session or taken - last[1] > 1000 * pause_s or last[2] + 1 != place:
            drives.append([])
        drives[-1].append(record)
        last = session, taken, place
    return drives


def episode_of(folder: Path, drive: list[dict[str, Any]], row: Mapping[str, Any], header: Mapping[str, Any]) -> Episode:
    """The episode of a drive; ``row`` has its seed and, in a tub of ours, what the recording says of it."""
    N, began = len(drive), drive[0]["_timestamp_ms"]
    before = f"the drive from record {drive[0]['place']} on in {folder} is damaged ("
    with quoted(before, "): delete its records in donkeycar, or copy the tub again.", *MISFITS, say=named):
        frames = {camera: pictures(folder, drive, CAMERAS[camera]) for camera in ("center", *row.get("sides", ()))}
        pedals, steering = (np.array([float(record[name]) for record in drive]) for name in ("pedals", "steering"))
        given = unknown_columns(N) | {"steering": steering, "throttle": pedals.clip(0), "brake": (-pedals).clip(0)}
        passed_ms = np.array([record["_timestamp_ms"] - began for record in drive])
        given["t_s"] = limits.clock(passed_ms / 1000, header["fps"])
        if "columns" in row:
            columns = (*COLUMNS, *(name for name in OPTIONAL if name in row["columns"]))
            kinds = {name: COLUMNS.get(name, np.float32) for name in columns if name in OWN}
            given |= {
                name: np.array([record[OWN[name]] for record in drive], np.float64 if kind is not np.int64 else kind)
                for name, kind in kinds.items()
            }
        limits.check_range(steering, given["throttle"], given["brake"])
        whole = "return" in row and row["frames"] == N
        return Episode(
            frames=frames.pop("center"),
            side_frames=frames,
            seed=int(row["seed"]),
            source=str(header["source"]),
            driver=str(row.get("driver", "donkeycar")),
            episode_return=float(row["return"]) if whole else float(given["reward"].sum()),
            meta=dict(row.get("meta", {"session": str(drive[0]["_session_id"])})),
            **given,
        )


def pictures(folder: Path, drive: list[dict[str, Any]], key: str) -> list[bytes]:
    """The encoded frames of a camera, of one size."""
    images: list[bytes] = []
    total = 0
    for record in drive:
        name = record[key]
        if not PICTURE.fullmatch(name):
            raise ValueError(f"record {record['place']} names the picture {name!r}"[:200])
        path = limits.within(folder, f"{IMAGES}/{name}")
        total += path.stat().st_size
        if total > limits.MAX_EPISODE_BYTES:
            raise ValueError(f"more than {limits.MAX_EPISODE_BYTES >> 30} GiB of pictures")
        data = path.read_bytes()
        with quoted(f"{path.name}: ", "", ValueError, kind=ValueError):
            images.append(limits.as_rgb(data, image_header(images[0] if images else data)[:2]))
    return images
