"""What came of a driven episode, summed up while it is driven."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nacdrive.drivers.tick import Tick


@dataclass(frozen=True)
class EpisodeResult:
    """What came of one driven episode."""

    episode: int
    """Number of the episode in this run, from 0."""
    seed: int
    """Seed of the track."""
    episode_return: float
    """Sum of rewards."""
    decisions: int
    """Decisions taken."""
    simulated_s: float
    """Simulated seconds driven."""
    tiles_visited: float
    """Share of the road that the car has driven: CarRacing's tiles, the lake's progress."""
    finished_lap: bool
    """Whether a lap was driven to its end."""
    grass_share: float
    """Mean share of the four wheels beside the road."""
    mean_speed_mps: float
    """Mean speed over the decisions."""
    decision_ms_median: float
    """Median wall-clock time of a decision, in milliseconds."""
    decision_ms_p99: float
    """99th percentile of the same."""
    late_decisions: int
    """Decisions that took longer than the time between two decisions."""
    expert_agreement: float | None
    """Share of decisions in which the expert riding along chose the same action; None without one, or where the driver
    does not choose among a few."""
    failure: str | None
    """Why the safety stop took over; None if it did not."""


class Episode:
    """Sums up an episode while it is driven."""

    def __init__(self) -> None:
        self.total = 0.0
        self.latencies: list[float] = []
        self.speeds: list[float] = []
        self.grass: list[float] = []
        self.agreed: list[bool] = []
        self.late = 0

    def note(self, tick: Tick, info: Mapping[str, Any]) -> None:
        """Take in one decision and what the simulator said after it."""
        self.latencies.append(tick.decision_ms)
        self.speeds.append(tick.speed_mps or 0.0)
        self.grass.append(wheels_off(info))
        self.late += tick.budget_ms is not None and tick.decision_ms > tick.budget_ms
        if tick.expert is not None and tick.expert.choice is not None:
            self.agreed.append(tick.expert.choice == tick.action.choice)

    def result(self, episode: int, seed: int, info: Mapping[str, Any], failure: str | None) -> EpisodeResult:
        """The sum."""
        return EpisodeResult(
            episode=episode,
            seed=seed,
            episode_return=round(self.total, 6),
            decisions=len(self.latencies),
            simulated_s=float(info["t_s"]),
            tiles_visited=float(info.get("tiles_visited", info.get("progress", 0))),
            finished_lap=finished_lap(info),
            grass_share=float(np.mean(self.grass)),
            mean_speed_mps=float(np.mean(self.speeds)),
            decision_ms_median=float(np.median(self.latencies)),
            decision_ms_p99=float(np.percentile(self.latencies, 99)),
            late_decisions=self.late,
            expert_agreement=float(np.mean(self.agreed)) if self.agreed else None,
            failure=failure,
        )


def wheels_off(info: Mapping[str, Any]) -> float:
    """Share of the four wheels beside the road, 0 .. 1, as CarRacing (``wheels_on_grass``) or the lake says it."""
    return float(info.get("wheels_off", info.get("wheels_on_grass", 0)))


def off_road(info: Mapping[str, Any]) -> bool:
    """Whether the car has left the road: the world's own word where it gives one, else all four wheels."""
    return bool(info.get("off_road", wheels_off(info) >= 1))


def finished_lap(info: Mapping[str, Any]) -> bool:
    """Whether a lap was driven to its end."""
    return bool(info.get("finished_lap", False)) or int(info.get("laps", 0)) >= 1
