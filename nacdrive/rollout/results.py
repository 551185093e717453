"""Numbers of driven episodes: summed up from Ticks, kept as rows, one JSON line each."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from nacdrive.common.files import open_log, read_json, write_text
from nacdrive.common.paths import shipped
from nacdrive.drivers import SHIPPED
from nacdrive.drivers.tick import Tick
from nacdrive.envs.start import LAP_RULES

SHIPPED_ENV = "carracing"
SHIPPED_OPTIONS = {"renderer": "official", "max_frames": 1000, "rule": LAP_RULES[0]}
"""What the shipped experts' evaluations drove with; all of them the environment's usual ones."""


@dataclass(frozen=True)
class EpisodeResult:
    """How one driven episode went."""

    episode: int
    """Number of the episode in this run, from 0."""
    seed: int
    episode_return: float
    decisions: int
    simulated_s: float
    progress: float
    """Laps driven, as a fraction; of CarRacing the share of the tiles."""
    finished_lap: bool
    wheels_off: float
    """Mean share of the four wheels beside the road."""
    mean_speed_mps: float
    decision_ms_median: float
    decision_ms_p99: float
    late_decisions: int
    """Decisions that took longer than the time between two decisions."""
    expert_agreement: float | None
    """Share of decisions in which the expert riding along chose the same; None without one or choices."""
    failure: str | None
    """Why the safety stop took over; None if it did not."""


class EpisodeMetrics:
    """Sums up one episode while it is driven; an episode that a person starts over counts from its last start.

    ``actions`` is the number of discrete actions; 0 where control is continuous.
    """

    def __init__(self, actions: int = 0) -> None:
        self._choices = actions
        self._begin()

    def _begin(self) -> None:
        self.points: list[list[float]] = []
        """[seconds, return so far]."""
        self.actions = [0] * self._choices
        """How often each discrete action was taken."""
        self.ending = ""
        self._every = CURVE_EVERY
        self._last: Tick | None = None
        self._latencies: list[float] = []
        self._speeds: list[float] = []
        self._wheels_off: list[float] = []
        self._agreed: list[bool] = []
        self._late = 0

    def add(self, tick: Tick) -> None:
        if tick.step == 0:
            self._begin()
        self._last = tick
        self._latencies.append(tick.decision_ms)
        self._speeds.append(tick.speed_mps or 0.0)
        self._wheels_off.append(float(tick.next_info.get("wheels_off", 0.0)))
        self._late += tick.is_late
        if tick.expert is not None and tick.expert.choice is not None and tick.action.choice is not None:
            self._agreed.append(tick.expert.choice == tick.action.choice)
        if tick.action.choice is not None and self.actions:
            self.actions[tick.action.choice] += 1
        if tick.step % self._every == 0 or tick.done:
            self.points.append([round(tick.t_s, 2), round(tick.episode_return, 1)])
            if len(self.points) > MOST_POINTS:
                self.points, self._every = self.points[::2], 2 * self._every
        if tick.done:
            self.ending = tick.events[-1]

    def result(self) -> EpisodeResult:
        if self._last is None:
            raise ValueError("an episode without a decision has no result")
        tick, info = self._last, self._last.next_info
        return EpisodeResult(
            episode=tick.episode,
            seed=tick.seed,
            episode_return=round(tick.episode_return, 6),
            decisions=len(self._latencies),
            simulated_s=float(info["t_s"]),
            progress=float(info.get("progress", 0.0)),
            finished_lap=info.get("laps", 0) >= 1,
            wheels_off=float(np.mean(self._wheels_off)),
            mean_speed_mps=float(np.mean(self._speeds)),
            decision_ms_median=float(np.median(self._latencies)),
            decision_ms_p99=float(np.percentile(self._latencies, 99)),
            late_decisions=self._late,
            expert_agreement=float(np.mean(self._agreed)) if self._agreed else None,
            failure=tick.failure,
        )


Row = dict[str, Any]
CURVE_EVERY = 5
"""Decisions between two points of a row's curve of returns, ..."""
MOST_POINTS = 400
"""... and twice as many, and so on, where the curve would have more points than this."""


def drive_name(seed: int, track: str) -> str:
    """Name of the file of a filmed drive, in the evaluation's folder ``drives``."""
    return f"episode-{seed:07d}{f'-{slug(track)}' if track else ''}.parquet"


def slug(track: str) -> str:
    """``track`` as part of a file's name: not every system takes the colon of ``random:7``."""
    return track.replace(":", "-")


def row_of(result: EpisodeResult, driven: EpisodeMetrics, metrics: Mapping[str, float], track: str = "") -> Row:
    """One episode as plain JSON: its result, what the environment's own ``metrics`` know besides, its curve."""
    numbers = {k: round(v, 6) if isinstance(v, float) else v for k, v in dataclasses.asdict(result).items()}
    row = {**numbers, "ending": driven.ending, "actions": driven.actions, "curve": driven.points}
    row |= {"track": track} if track else {}
    return {**row, **{k: v for k, v in metrics.items() if k not in row and math.isfinite(v)}}


def own_metrics(row: Row) -> list[str]:
    """Names of the environment's own numbers in a row of ``row_of``."""
    return [name for name in row if name not in KINDS | OPTIONAL]


KINDS: dict[str, Any] = {
    **get_type_hints(EpisodeResult),
    **{"ending": str, "actions": list, "curve": list},
}
OPTIONAL = {"track": str}
"""What only some rows have; all that is named nowhere are the environment's own numbers."""


def is_whole_row(row: Row, kinds: Mapping[str, Any] = KINDS, optional: Mapping[str, Any] = OPTIONAL) -> bool:
    """Whether a row has all of ``kinds``, and nothing of another kind; a damaged one is driven again."""
    expected = {name: optional.get(name, float) for name in row} | {**kinds}
    curve = row.get("curve", ())
    pairs = all(isinstance(point, list) and len(point) == 2 for point in curve)
    numbers = [*row.get("actions", ()), *(number for point in curve for number in point)]
    return pairs and all(map(_is_number, numbers)) and all(_is_of(row[name], kind) for name, kind in expected.items())


def _is_of(value: object, kind: Any) -> bool:
    return _is_number(value) if isinstance(value, float | int) and isinstance(0.0, kind) else isinstance(value, kind)


def _is_number(value: object) -> bool:
    # Infinite ones are written as 1e999 by nobody here, and could not be written again.
    return isinstance(value, float | int) and math.isfinite(value)


class ResultsFile:
    """Rows of one driver by seed; a line that is torn or damaged is dropped when the file is opened again.

    ``kinds`` and ``optional``: what a row must hold and may hold, where it is not ``row_of``'s alone.
    """

    def __init__(self, path: Path, kinds: Mapping[str, Any] = KINDS, optional: Mapping[str, Any] = OPTIONAL) -> None:
        self.path = path
        self.rows: dict[int, Row] = {}
        if path.exists():
            text = path.read_text(encoding="utf-8", errors="replace")
            for line in text.splitlines():
                with suppress(ValueError, KeyError, TypeError, RecursionError):
                    row = dict(json.loads(line))
                    if is_whole_row(row, kinds, optional):
                        self.rows[row["seed"]] = row
            sound = "".join(json.dumps(row) + "\n" for row in self.rows.values())
            if sound != text:
                write_text(path, sound)

    def add(self, row: Row) -> None:
        """Append one row, in the file at once."""
        self.rows[row["seed"]] = row
        with open_log(self.path) as handle:
            handle.write(json.dumps(row) + "\n")


def scores_of_evaluation(folder: Path) -> dict[str, float]:
    """Return of the expert on each track of the evaluation in ``folder``, by the file of the kept drive, or {}."""
    path = folder / "metrics.json"
    if not path.is_file():
        return {}
    rows = read_json(path).get("expert_episodes") or ()
    return {drive_name(int(row["seed"]), str(row.get("track", ""))): float(row["episode_return"]) for row in rows}


def shipped_score(expert: str | None, env: str, seed: int, **options: Any) -> float | None:
    """What the shipped ``expert`` scored on the track of ``seed``; None where it was not measured under these options:
    ``renderer``, ``max_frames`` and ``rule``, None for the environment's usual one.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if expert not in SHIPPED or env != SHIPPED_ENV or not given.items() <= SHIPPED_OPTIONS.items():
        return None
    # Beside the expert, lap by lap.
    path = (shipped("agents") / SHIPPED[expert]).with_name("eval.json")
    if not path.is_file():
        return None
    return next((float(lap["total"]) for lap in read_json(path)["laps"] if lap["seed"] == seed), None)
