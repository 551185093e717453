"""Results of episodes, one JSON line each, appended while an evaluation runs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nacdrive.common.files import write_text
from nacdrive.drivers.tick import Tick
from nacdrive.rollout.metrics import EpisodeResult

Row = dict[str, Any]
DRIVES = "drives"
"""Folder of a result that holds the filmed drives as a recording."""
CURVE_EVERY = 5
"""Decisions between two points of a row's curve of returns, ..."""
MOST_POINTS = 400
"""... and twice as many, and so on, where the curve would have more points than this."""


class EpisodeCurve:
    """What a report shows of an episode: its return over time, how often which action was taken, how it ended.

    Args:
        actions: Number of discrete actions; 0 where control is continuous.
    """

    def __init__(self, actions: int) -> None:
        self._choices = actions
        self._begin()

    def _begin(self) -> None:
        self.points: list[list[float]] = []
        """[seconds, return so far]."""
        self.actions = [0] * self._choices
        """How often each discrete action was taken."""
        self.ending = ""
        self._every = CURVE_EVERY

    def add(self, tick: Tick) -> None:
        """Take in one decision."""
        if tick.step == 0:
            self._begin()
        if tick.action.choice is not None and self.actions:
            self.actions[tick.action.choice] += 1
        if tick.step % self._every == 0 or tick.done:
            self.points.append([round(tick.t_s, 2), round(tick.episode_return, 1)])
            if len(self.points) > MOST_POINTS:
                self.points, self._every = self.points[::2], 2 * self._every
        if tick.done:
            self.ending = tick.events[-1]


def row_of(result: EpisodeResult, curve: EpisodeCurve, metrics: Mapping[str, float], track: str = "") -> Row:
    """One episode as plain JSON: its result, the environment's own ``metrics`` where they say more, its curve."""
    numbers = {k: round(v, 6) if isinstance(v, float) else v for k, v in dataclasses.asdict(result).items()}
    row = {**numbers, "ending": curve.ending, "actions": curve.actions, "curve": curve.points}
    return {**row, **({"track": track} if track else {}), **{k: v for k, v in metrics.items() if k not in row}}


class ResultsFile:
    """Rows of one driver by seed; a line torn by a crash is dropped when the file is opened again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[int, Row] = {}
        if path.exists():
            text = path.read_text(encoding="utf-8", errors="replace")
            for line in text.splitlines():
                try:
                    row = json.loads(line)
                    # Rows of the built-in tracks had no return once: such drives are driven again.
                    if "episode_return" in row:
                        self.rows[row["seed"]] = row
                except (json.JSONDecodeError, KeyError, TypeError):
                    continue
            sound = "".join(json.dumps(row) + "\n" for row in self.rows.values())
            if sound != text:
                write_text(path, sound)

    def add(self, row: Row) -> None:
        """Append one row and make sure it is on the disk."""
        self.rows[row["seed"]] = row
        if not self.path.exists():
            # The way that notes it as one of the result's own files.
            write_text(self.path, "")
        with self.path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(row) + "\n")
            handle.flush()
