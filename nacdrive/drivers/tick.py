"""One control step as all who watch see it; below the loop that makes it, for films and reports know it too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.envs.base import Info


@dataclass(frozen=True)
class Tick:
    """One decision of the closed loop. The page, the recorder, the video and the evaluator all consume Ticks."""

    episode: int
    """Number of the episode in this run, from 0."""
    seed: int
    step: int
    """Decision within the episode, from 0."""
    t_s: float
    """Simulated time of the decision, in seconds since the episode began."""
    frame: NDArray[np.uint8]
    """What the policy saw, [height, width, 3] RGB."""
    action: Action
    """What was driven: the policy's decision, or that of a person who has taken over."""
    reward: float = 0.0
    episode_return: float = 0.0
    """Sum of rewards of the episode so far, this step included."""
    speed_mps: float | None = None
    """Speed in metres per second at the frame's time."""
    lane_offset_m: float | None = None
    """Metres from the middle of the road at the frame's time, right is positive; None where the world does not say."""
    x_m: float | None = None
    """Place of the car at the frame's time, metres to the east; None where the world does not say."""
    y_m: float | None = None
    """The same, metres to the north."""
    heading_rad: float | None = None
    """Direction of the car, counter-clockwise from east."""
    progress: float | None = None
    """Laps driven, as a fraction (of CarRacing: the share of the tiles); None where the world does not say."""
    frame_t_s: float | None = None
    """When the frame that was seen was taken, where frames are lost or late; None where that is ``t_s``."""
    between_frames: bool | None = None
    """Whether no frame had come and the policy decided from a black one."""
    decision_ms: float = 0.0
    """Wall-clock time that the policy took to decide, in milliseconds."""
    budget_ms: float | None = None
    """Time between decisions, of which a later one is a missed tick; None of the last before a simulator goes."""
    held: bool = False
    """Whether the decision before was repeated: the policy was not asked for this frame, which it never saw."""
    human: bool = False
    policy: Action | None = None
    """What the policy would have done, where a person drives in its stead."""
    expert: Action | None = None
    """What the expert would have done, where one rides along."""
    neurons: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """Neuron states of the sequence layer by name, and ``frame_t_s`` of its window's frames; {} where not asked for."""
    why: Mapping[str, Any] | None = None
    """What muting each part of the policy alone does to it: ``models.effects.Effects.explain``; None if not asked."""
    saliency: NDArray[np.float32] | None = None
    """Where the policy looked, [height, width] in 0 .. 1; None where not asked for."""
    events: tuple[str, ...] = ()
    """What happened at this step: 'started', 'lap finished', 'off road', 'safety stop', 'ended', ..."""
    done: bool = False
    failure: str | None = None
    """Why a safety stop drives; None while it does not."""
    info: Info = field(default_factory=lambda: Info())
    """All that the environment said with the frame."""
    next_info: Info = field(default_factory=lambda: Info())
    """What it said after the decision was carried out."""

    @property
    def taken_s(self) -> float:
        """When the frame was taken, in seconds: the time that a policy is given."""
        return self.t_s if self.frame_t_s is None else self.frame_t_s

    @property
    def is_late(self) -> bool:
        """Whether the decision took longer than its budget."""
        return self.budget_ms is not None and self.decision_ms > self.budget_ms


Listener = Callable[[Tick], None]
"""Whoever wants to know: called once per Tick, must return at once."""
