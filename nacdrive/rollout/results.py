"""Results of episodes, one JSON line each, appended while an evaluation runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from nacdrive.common.files import write_text
from nacdrive.drivers.tick import Tick
from nacdrive.envs.carracing.env import ACTIONS
from nacdrive.rollout.metrics import EpisodeResult

Row = dict[str, Any]
CURVE_EVERY = 5
"""Decisions between two points of a row's curve of returns."""


class Trace:
    """Listener that keeps what a report shows of an episode: the curve of returns, how often which action was taken."""

    def __init__(self) -> None:
        self.curve: list[list[float]] = []
        self.actions = [0] * len(ACTIONS)
        self.ending = ""

    def __call__(self, tick: Tick) -> None:
        """Take in one decision."""
        if tick.action.choice is not None:
            self.actions[tick.action.choice] += 1
        if tick.step % CURVE_EVERY == 0 or tick.done:
            self.curve.append([round(tick.t_s, 2), round(tick.episode_return, 1)])
        if tick.done:
            self.ending = tick.events[-1]

    def row(self, result: EpisodeResult) -> Row:
        """``result`` and the trace as one row."""
        numbers = {k: round(v, 6) if isinstance(v, float) else v for k, v in dataclasses.asdict(result).items()}
        return {**numbers, "ending": self.ending, "actions": self.actions, "curve": self.curve}


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
                    self.rows[row["seed"]] = row
                except (json.JSONDecodeError, KeyError, TypeError):
                    continue
            sound = "".join(json.dumps(row) + "\n" for row in self.rows.values())
            if sound != text:
                write_text(path, sound)

    def add(self, row: Row) -> None:
        """Append one row and make sure it is on the disk."""
        self.rows[row["seed"]] = row
        with self.path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(row) + "\n")
            handle.flush()
