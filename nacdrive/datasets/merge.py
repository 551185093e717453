"""Several recordings of one environment in one folder."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from nacdrive.common.errors import UserError
from nacdrive.datasets.recording import EpisodeInfo, Recording, load_episode
from nacdrive.datasets.staging import staged_recording
from nacdrive.datasets.writer import RecordingWriter


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
            if part.meta[key] != first.meta[key]:
                raise UserError(
                    f"{part.folder} has {key} {part.meta[key]} and {first.folder} has {first.meta[key]}: "
                    "only recordings of one kind can be merged."
                )
    for part in parts:
        for info in part.episodes:
            load_episode(info)
    licenses = {part.meta.get("license") for part in parts}
    if len(licenses) > 1:
        named = ", ".join(sorted(name or "none" for name in licenses))
        warnings.warn(
            f"the recordings have different licences ({named}), so {out} names none: 'nacdrive recordings card {out} "
            "--license' sets one.",
            stacklevel=2,
        )
    episodes = [info for part in parts for info in part.episodes]
    unique: dict[str, EpisodeInfo] = {}
    for info in episodes:
        unique.setdefault(info.sha256, info)
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
            writer.add_file(info)
    return len(unique), len(episodes) - len(unique)
