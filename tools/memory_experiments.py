"""Where the arms of ``memory_table.py`` drive: CarRacing with hidden speed, and roads of the Udacity track."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.drivers.ppo import steering_and_pedal
from nacdrive.drivers.tick import Tick
from nacdrive.envs.base import DrivingEnv, Frame
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.seeds import EXPERT_TEST, EXPERT_TRAINING, EXPERT_VALIDATION, POLICY_RECORDING, POLICY_TEST
from nacdrive.models.agents.view import View
from nacdrive.rl.imitate import label_of
from nacdrive.rollout.drive import Drive, LoadedDrive

REPEAT = 4
"""Frames for which an action is held."""
ALL = CameraNoise(blackout=0.06, blackout_steps=4, dropped=0.1)
UNEQUAL = CameraNoise(dropped=0.5, late=5)
STRETCH = 12
EVENTS = {
    **{f"{steps} black": (CameraNoise(blackout=1.0), steps) for steps in (1, 2, 4, 8)},
    "30 % lost": (CameraNoise(dropped=0.3), STRETCH),
    "50 % lost": (CameraNoise(dropped=0.5), STRETCH),
    "up to 4 late": (CameraNoise(late=4), STRETCH),
    "unequal gaps": (UNEQUAL, STRETCH),
}
"""What happens to the camera, and for how many decisions."""


@dataclass(frozen=True, eq=False)
class Experiment:
    """Where the arms drive, and how they are taught and judged there."""

    env: str
    options: dict[str, Any]
    teacher: str
    view: View
    rows: tuple[int, int | None]
    """Of a frame that are seen."""
    outputs: int
    """Steering, and the pedal where no speed is kept."""
    training: range
    validation: range
    test: range
    """Tracks; the first of the last two are those of the events."""
    laps: dict[str, CameraNoise]
    turns: tuple[float, float]
    """Radians by which the road turns within a second in a bend at least, on a straight at most."""
    farthest_m: float
    """Twins farther apart, and cars farther from the middle, count as so far."""
    results: str
    tracks: int = 50
    """Of the laps."""
    rounds: int = 8
    each: int = 20
    """Drives of a round."""
    steps: int = 400
    last_steps: int = 800
    """Minibatches after a round, and after the last one on top."""
    decisions: int = 250
    """Of a drive at most."""
    speed_mph: float | None = None
    """That is kept."""
    track: str | None = None
    digits: int = 2
    """Of the metres of an event."""

    def drive(self, **how: Any) -> Drive:
        """A drive of an agent; ``how`` are further fields."""
        options = {**self.options, "repeat": REPEAT, "max_frames": self.decisions * REPEAT}
        same = {"env": self.env, "track": self.track, "speed_mph": self.speed_mph, "options": options}
        return Drive(**same, safety_stop=False, recover=False, **how)

    def make_env(self) -> DrivingEnv:
        """Its environment, through a good camera."""
        return LoadedDrive(self.drive(expert=self.teacher)).make_env(0, track=self.track)

    def seen(self, frame: Frame) -> Frame:
        """The rows of ``frame`` that are seen."""
        return frame[slice(*self.rows)]

    def action(self, row: NDArray[np.float32]) -> Action:
        """What an agent's outputs mean."""
        return steering_and_pedal(row) if self.outputs == 2 else Action(float(np.clip(row[0], -1, 1)), 0.0, 0.0)

    def label(self, action: Action) -> tuple[float, ...]:
        """The outputs that ``action`` of the teacher asks for."""
        return label_of(action) if self.outputs == 2 else (action.steering,)

    def score(self, lap: Iterable[Tick]) -> float:
        """Its return or, where a speed is kept, the mean distance from the middle of the road, metres; a car that has
        left the field counts as farthest away from then on.
        """
        metres = np.full(self.decisions, self.farthest_m)
        for tick in lap:
            metres[tick.step] = min(abs(tick.next_info["lane_offset_m"]), self.farthest_m)
        return tick.episode_return if self.speed_mph is None else float(metres.mean())

    def decimals(self, what: str) -> str:
        """How a score is printed: returns are whole points."""
        return ".0f" if what == "laps" and self.speed_mph is None else f".{self.digits}f"


CARRACING = Experiment(
    env="carracing",
    options={"renderer": "fast"},
    teacher="nacdrive.drivers.racing_line:cautious",
    view=View(frames=1, height=42, width=48),
    rows=(0, None),
    outputs=2,
    training=EXPERT_TRAINING,
    validation=EXPERT_VALIDATION,
    test=EXPERT_TEST,
    laps={"all": ALL, "unequal gaps": UNEQUAL, "hidden speed": CameraNoise()},
    turns=(0.7, 0.15),
    farthest_m=13.3,
    results="memory_arms.jsonl",
)
UDACITY = Experiment(
    env="udacity-track",
    options={"start_speed": 11.0},
    teacher="geometric",
    view=View(frames=1, height=27, width=72, rows=None),
    rows=(60, 135),
    outputs=1,
    training=POLICY_RECORDING,
    validation=range(3_390_000, 3_391_000),
    test=range(POLICY_TEST.start + 7_000, POLICY_TEST.start + 8_000),
    laps={"all": ALL, "unequal gaps": UNEQUAL, "undisturbed": CameraNoise()},
    turns=(0.35, 0.05),
    farthest_m=4.5,
    results="memory_arms_udacity.jsonl",
    decisions=200,
    tracks=40,
    speed_mph=25.0,
    track="random",
    digits=3,
)
EXPERIMENTS = {experiment.env: experiment for experiment in (CARRACING, UDACITY)}
