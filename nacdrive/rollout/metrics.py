"""The numbers of a driven episode, summed up from its Ticks: the same for every environment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nacdrive.drivers.tick import Tick


@dataclass(frozen=True)
class EpisodeResult:
    """How one driven episode went."""

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
    """Laps driven, as a fraction: of CarRacing the share of the tiles, of the others ``Info.progress``."""
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


class EpisodeMetrics:
    """Sums up one episode while it is driven; an episode that a person starts over counts from its last start."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._last: Tick | None = None
        self._latencies: list[float] = []
        self._speeds: list[float] = []
        self._grass: list[float] = []
        self._agreed: list[bool] = []
        self._late = 0

    def add(self, tick: Tick) -> None:
        """Take in one decision."""
        if tick.step == 0:
            self._begin()
        self._last = tick
        self._latencies.append(tick.decision_ms)
        self._speeds.append(tick.speed_mps or 0.0)
        self._grass.append(float(tick.next_info.get("wheels_off", 0.0)))
        self._late += tick.budget_ms is not None and tick.decision_ms > tick.budget_ms
        if tick.expert is not None and tick.expert.choice is not None:
            self._agreed.append(tick.expert.choice == tick.action.choice)

    def result(self) -> EpisodeResult:
        """The sum.

        Raises:
            ValueError: if there was no decision.
        """
        if self._last is None:
            raise ValueError("an episode without a decision has no result")
        tick, info = self._last, self._last.next_info
        return EpisodeResult(
            episode=tick.episode,
            seed=tick.seed,
            episode_return=round(tick.episode_return, 6),
            decisions=len(self._latencies),
            simulated_s=float(info["t_s"]),
            tiles_visited=float(info.get("progress", 0.0)),
            finished_lap=info.get("laps", 0) >= 1,
            grass_share=float(np.mean(self._grass)),
            mean_speed_mps=float(np.mean(self._speeds)),
            decision_ms_median=float(np.median(self._latencies)),
            decision_ms_p99=float(np.percentile(self._latencies, 99)),
            late_decisions=self._late,
            expert_agreement=float(np.mean(self._agreed)) if self._agreed else None,
            failure=tick.failure,
        )
