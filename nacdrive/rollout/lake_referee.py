"""Watches a drive on a built-in track, puts a car that is lost back on the road, and keeps the score."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.envs.udacity_track.env import UdacityTrackEnv
from nacdrive.rollout.results import Row

INTERVENTION_S = 6.0
"""What an intervention counts, in seconds (Bojarski et al., 2016)."""
RESTART_MPS = 3.0
"""Speed at which a car is put back."""


class Referee:
    """A lake environment that counts: off the road is any wheel beyond the asphalt, an intervention is all four.

    ``env`` must have been made with ``recover``, so that a car that is stuck or far out is put back by it too.
    """

    def __init__(self, env: UdacityTrackEnv) -> None:
        self.env = env
        self.action_space = env.action_space

    def reset(self, *, seed: int | None = None) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start the drive of ``seed``, with a clean sheet."""
        frame, info = self.env.reset(seed=seed)
        self.info = info
        self.offsets: list[float] = []
        self.steering: list[float] = []
        self.speeds: list[float] = []
        self.off_road_events = self.interventions = self.clean_laps = 0
        self._spoilt = False
        return frame, info

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.uint8], Any, bool, bool, dict[str, Any]]:
        """Carry out one decision and judge it."""
        frame, reward, lost, late, info = self.env.step(action)
        self.offsets.append(abs(float(info["lane_offset_m"])))
        self.steering.append(float(action[0]))
        self.speeds.append(float(info["speed_mps"]))
        left = bool(info["off_road"]) and not self.info["off_road"]
        out = bool(info["put_back"]) or info["wheels_off"] == 1.0
        self.off_road_events += left
        self.interventions += out
        self._spoilt |= left or out
        if info["laps"] > self.info["laps"]:
            self.clean_laps += not self._spoilt
            self._spoilt = False
        if info["wheels_off"] == 1.0:
            self.env.put_back(RESTART_MPS)
        self.info = info
        return frame, reward, lost, late, info

    def row(self) -> Row:
        """The score of the drive."""
        seconds = float(self.info["t_s"])
        gap_s = seconds / len(self.steering)
        driven = float(self.info["progress"])
        return {
            "track": self.env.course.name,
            "laps": driven,
            "clean_laps": self.clean_laps,
            "off_road_events": self.off_road_events,
            "off_road_per_lap": self.off_road_events / max(driven, 1e-6),
            "interventions": self.interventions,
            "autonomy": 100 * max(0.0, 1 - self.interventions * INTERVENTION_S / seconds),
            "offset_mean_m": float(np.mean(self.offsets)),
            "offset_max_m": float(np.max(self.offsets)),
            "jitter_per_s": float(np.abs(np.diff(self.steering)).mean() / gap_s) if len(self.steering) > 1 else 0.0,
            "speed_mps": float(np.mean(self.speeds)),
            "seconds": seconds,
        }
