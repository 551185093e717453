"""One drive from start to end: what was seen, what was done, what the expert would have done.

The expert's pedal is kept only where another's was driven: a learner that holds its own pedals in DAgger needs a label
of them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.datasets.images import decode_frames

COLUMNS: dict[str, type[np.generic]] = {
    "t_s": np.float64,
    "choice": np.int64,
    "steering": np.float32,
    "throttle": np.float32,
    "brake": np.float32,
    "reward": np.float32,
    "speed_mps": np.float32,
    "expert_choice": np.int64,
}
"""Columns of one number a frame, and their types. ``expert_logits`` [frames, choices] comes beside them."""
PLACES = ("x_m", "y_m", "heading_rad", "progress")
"""Columns of where the car was, which an episode has if its environment said so: float32, NaN where unknown."""
SEEN = (*PLACES, "frame_t_s", "between_frames")
"""Columns of what the environment said with a frame; a Tick has them under the same names."""
LABELS = ("expert_steering", "expert_pedal")
"""Columns of what a continuous expert would do, which an episode has where that is not what was driven: float32."""
SIDES = ("left", "right")
"""Cameras beside the one that ``frames`` are from."""
OPTIONAL = dict.fromkeys((*LABELS, "expert_logits", *PLACES, "between_frames"), np.float32) | {"frame_t_s": np.float64}
"""Columns of numbers that not every episode has, and their types."""


def unknown_columns(steps: int) -> dict[str, Any]:
    """Columns of an episode of ``steps`` frames of which nothing is known but these."""
    unknown, zero = np.full(steps, -1), np.zeros(steps)
    driven = {"choice": unknown, "steering": zero, "throttle": zero, "brake": zero, "reward": zero}
    return {**driven, "speed_mps": np.full(steps, np.nan), "expert_choice": unknown, "expert_logits": None}


@dataclass(frozen=True, repr=False)
class Episode:
    """One episode of N recorded frames. Row i: frame i was seen at ``t_s[i]``, then the action of row i was taken."""

    frames: list[bytes]
    """N encoded images (PNG or JPEG)."""
    t_s: NDArray[np.float64]
    """[N] simulated time at which each frame was taken, seconds since the episode began, strictly increasing."""
    choice: NDArray[np.int64]
    """[N] the action that was driven; -1 where the driver is continuous."""
    steering: NDArray[np.float32]
    """[N] -1 full left .. 1 full right."""
    throttle: NDArray[np.float32]
    """[N] 0 .. 1."""
    brake: NDArray[np.float32]
    """[N] 0 .. 1."""
    reward: NDArray[np.float32]
    """[N] reward from this frame to the next one recorded."""
    speed_mps: NDArray[np.float32]
    """[N] speed at the frame's time; NaN where unknown."""
    expert_choice: NDArray[np.int64]
    """[N] what the expert would do here: the label. Equals ``choice`` where the expert drove; -1 where unknown."""
    expert_logits: NDArray[np.float32] | None
    """[N, choices] the expert's scores, or None."""
    seed: int
    source: str
    """What was driven, such as ``carracing``."""
    driver: str
    """Who drove: an expert's or a policy's name."""
    episode_return: float
    """Sum of the rewards, kept in double precision."""
    meta: dict[str, Any] = field(default_factory=dict)
    """What else is known: plain JSON."""
    expert_steering: NDArray[np.float32] | None = None
    """[N] the steering that the expert would take: the label of a continuous driver; None where it is ``steering``."""
    expert_pedal: NDArray[np.float32] | None = None
    """[N] the throttle minus brake that the expert would take; None where it is ``throttle - brake``."""
    side_frames: dict[str, list[bytes]] = field(default_factory=dict)
    """``left`` and ``right``: N encoded images each of the cameras beside, at the same instants; empty without."""
    x_m: NDArray[np.float32] | None = None
    """[N] place of the car at each frame's time, metres to the east; NaN where unknown, None where never known."""
    y_m: NDArray[np.float32] | None = None
    """[N] the same, metres to the north."""
    heading_rad: NDArray[np.float32] | None = None
    """[N] direction of the car, counter-clockwise from east."""
    progress: NDArray[np.float32] | None = None
    """[N] laps driven, as a fraction (of CarRacing: the share of the tiles)."""
    frame_t_s: NDArray[np.floating] | None = None
    """[N] time at which each frame was taken, where some were lost or late; NaN or None where that is ``t_s``."""
    between_frames: NDArray[np.float32] | None = None
    """[N] 1 where no frame had come and the policy decided from a black one; NaN or None where not."""

    def __post_init__(self) -> None:
        for name, kind in COLUMNS.items():
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=kind))
        for name, values in self.optional.items():
            object.__setattr__(self, name, np.ascontiguousarray(values, dtype=OPTIONAL[name]))
        steps = len(self.frames)
        if steps == 0:
            raise ValueError("an episode has at least one frame")
        wrong = {name: shape for name in COLUMNS if (shape := getattr(self, name).shape) != (steps,)}
        for name, values in self.optional.items():
            if values.ndim != (2 if name == "expert_logits" else 1) or len(values) != steps:
                wrong[name] = values.shape
        wrong |= {name: (len(images),) for name, images in self.side_frames.items() if len(images) != steps}
        if wrong:
            raise ValueError(f"an episode of {steps} frames cannot have columns of shape {wrong}")
        if not (np.isfinite(self.taken_s).all() and np.isfinite(self.t_s).all() and (np.diff(self.t_s) > 0).all()):
            raise ValueError("the times of an episode's frames must increase")

    def __len__(self) -> int:
        return len(self.frames)

    def __repr__(self) -> str:
        logits = "None" if self.expert_logits is None else str(list(self.expert_logits.shape))
        return (
            f"Episode({self.source} seed {self.seed}, driver {self.driver}, {len(self)} frames over "
            f"{self.t_s[-1] - self.t_s[0]:.1f} s, return {self.episode_return:.1f}, expert_logits {logits})"
        )

    def decoded(self, camera: str = "center") -> NDArray[np.uint8]:
        """All frames as uint8 [N, height, width, 3]; of the camera ``left`` or ``right`` where there is one."""
        return decode_frames(self.cameras[camera])

    @property
    def cameras(self) -> dict[str, list[bytes]]:
        """The encoded images of each camera, those of ``center`` first."""
        return {"center": self.frames, **{side: self.side_frames[side] for side in SIDES if side in self.side_frames}}

    @property
    def fingerprint(self) -> str:
        """The same for the same frames at the same times, whatever file or log they come from."""
        digest = hashlib.sha256(self.t_s.tobytes())
        for frame in self.frames:
            digest.update(hashlib.sha256(frame).digest())
        return digest.hexdigest()

    @property
    def taken_s(self) -> NDArray[np.float64]:
        """[N] when the frame of each row was taken: the time that a policy is given."""
        return self.t_s if self.frame_t_s is None else np.where(np.isnan(self.frame_t_s), self.t_s, self.frame_t_s)

    @property
    def is_new(self) -> NDArray[np.bool_]:
        """[N] whether the frame is newer than all before: a policy is asked then, and else its last decision holds."""
        return np.diff(np.maximum.accumulate(self.taken_s), prepend=-np.inf) > 0

    @property
    def optional(self) -> dict[str, NDArray[Any]]:
        """Those of ``OPTIONAL`` that it has."""
        return {name: values for name in OPTIONAL if (values := getattr(self, name)) is not None}

    @property
    def places(self) -> dict[str, NDArray[np.float32]]:
        """Those of ``PLACES`` that are known, [N] each."""
        return {name: values for name, values in self.optional.items() if name in PLACES}

    @property
    def label(self) -> NDArray[np.float32]:
        """[N] the steering to learn: the expert's where it is known, or else that which was driven."""
        return self.steering if self.expert_steering is None else self.expert_steering

    @property
    def pedal_label(self) -> NDArray[np.float32]:
        """[N] the throttle minus brake to learn, -1 .. 1: the expert's where it is known, or else what was driven."""
        return self.throttle - self.brake if self.expert_pedal is None else self.expert_pedal


def content_problem(episode: Episode) -> str | None:
    """What is impossible in an episode, or None."""
    try:
        for camera in episode.cameras:
            episode.decoded(camera)
    except ValueError as error:
        return f"has an unreadable frame ({error})"
    if not ((np.abs(episode.steering) <= 1).all() and (np.abs(episode.label) <= 1).all()):
        return "steers beyond -1 .. 1"
    for name in ("throttle", "brake"):
        values = getattr(episode, name)
        if not ((values >= 0) & (values <= 1)).all():
            return f"has a {name} outside 0 .. 1"
    if not (np.abs(episode.pedal_label) <= 1).all():
        return "has an expert's pedal outside -1 .. 1"
    if not np.isfinite(episode.reward).all():
        return "has rewards that are no numbers"
    for name, values in episode.places.items():
        if np.isinf(values).any():
            return f"has an infinite {name}"
    logits = episode.expert_logits
    if logits is not None and not (np.isfinite(logits).all() and (episode.expert_choice < logits.shape[1]).all()):
        return "has labels that do not fit their logits"
    return None
