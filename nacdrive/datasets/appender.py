"""Episodes of one's own into a recording: from arrays, or one dict a frame."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nacdrive.common.errors import UserError, unknown_name
from nacdrive.datasets.episode import COLUMNS, LABELS, PLACES, Episode
from nacdrive.datasets.images import encode_png
from nacdrive.datasets.writer import RecordingWriter

OWN = "own"
USUAL: dict[str, float] = {
    "choice": -1, "steering": 0.0, "throttle": 0.0, "brake": 0.0, "reward": 0.0, "speed_mps": np.nan,
}  # fmt: skip
"""Values of the columns that are not given; ``expert_choice`` is then ``choice``: who drove is to be learnt from."""
KNOWN = (*COLUMNS, "expert_logits", *LABELS, *PLACES)


class Appender:
    """Adds episodes to the recording in ``folder``, which is made when the first of them is whole.

    A context manager: leaving it without an error ends the episode. Frames are uint8 [height, width, 3], RGB, or
    images that are encoded already (PNG, JPEG).

    Args:
        folder: Of the recording.
        source: What was driven; whoever trains on several recordings needs those of one source.
        driver: Who drove.
    """

    def __init__(self, folder: Path | str, *, source: str = OWN, driver: str = OWN) -> None:
        self.folder, self.source, self.driver = Path(folder), source, driver
        self._rows: list[dict[str, Any]] = []

    def append(self, row: Mapping[str, Any]) -> None:
        """Take in one frame: ``frame``, ``t_s`` (seconds, increasing), and of ``steering`` (-1 left .. 1 right),
        ``throttle``, ``brake``, ``choice``, ``reward``, ``speed_mps``, ... what is known, the same in every frame.

        Raises:
            UserError: for a key that a recording does not know, or other keys than those of the first frame.
        """
        for name in row.keys() - {"frame", *KNOWN}:
            raise unknown_name("column of a recording", name, ("frame", *KNOWN))
        if {"frame", "t_s"} - row.keys() or (self._rows and row.keys() != self._rows[0].keys()):
            raise UserError(
                f"a frame has {', '.join(self._rows[0] if self._rows else ('frame', 't_s'))}: give them all."
            )
        frame = row["frame"]
        image = frame if isinstance(frame, bytes) else encode_png(np.asarray(frame))
        self._rows.append({**row, "frame": image})

    def end_episode(self, seed: int | None = None, **meta: Any) -> Path:
        """Write what was appended; ``seed`` is its number if not given, ``meta`` plain JSON that the episode keeps.

        Raises:
            UserError: if nothing was appended, or the folder holds something else.
        """
        if len(self._rows) < 2:
            raise UserError("an episode has at least two frames: append them first.")
        columns = {name: np.array([row[name] for row in self._rows]) for name in self._rows[0] if name != "frame"}
        given: dict[str, Any] = {name: np.full(len(self._rows), value) for name, value in USUAL.items()} | columns
        given = {"expert_choice": given["choice"], "expert_logits": None, **given}
        gap_s = float(np.median(np.diff(np.asarray(columns["t_s"], dtype=np.float64))))
        if not gap_s > 0:
            raise UserError("t_s does not increase: give the seconds since the episode began.")
        writer = RecordingWriter(self.folder, source=self.source, fps=1 / gap_s, expert=self.driver, resume=True)
        episode = Episode(
            frames=[row["frame"] for row in self._rows],
            **given,
            seed=len(writer.episodes) if seed is None else seed,
            source=self.source,
            driver=self.driver,
            episode_return=float(np.sum(given["reward"], dtype=np.float64)),
            meta=meta,
        )
        self._rows = []
        return writer.add(episode)

    def __enter__(self) -> Appender:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._rows:
            self.end_episode()
