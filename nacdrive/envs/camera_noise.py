"""A worse camera than the true one: noise, blackouts, delay, brightness; experts that ride along see the true one."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any, SupportsFloat

import numpy as np

from nacdrive.common.errors import UserError
from nacdrive.envs.base import DrivingEnv, DrivingWrapper, Frame


@dataclass(frozen=True)
class CameraNoise:
    """How much worse than the true picture the policy's picture is."""

    noise: float = 0.0
    """Standard deviation of Gaussian noise added to every pixel and channel, as a share of full scale
    (0.1 is 25.5 of 255 levels)."""
    blackout: float = 0.0
    """Probability, drawn anew at every decision, that the frame is wholly black."""
    delay_steps: int = 0
    """Decisions by which frames come late; until the first has arrived, the first frame of the episode stands."""
    brightness: float = 1.0
    """Factor on all pixels, clipped to white: 0.5 is dusk, 1.5 is glare, 1 changes nothing."""

    def __post_init__(self) -> None:
        if not 0 <= self.noise < math.inf:
            raise UserError(f"--noise {self.noise} is no strength: give a share of full scale, such as 0.1.")
        if not 0 <= self.blackout <= 1:
            raise UserError(f"--blackout {self.blackout} is no probability: give a number from 0 to 1.")
        if self.delay_steps < 0:
            raise UserError(f"--delay-steps {self.delay_steps} is negative: give a number of decisions, such as 2.")
        if not 0 <= self.brightness < math.inf:
            raise UserError(f"--brightness {self.brightness} is no factor: give a factor, such as 0.7.")

    @property
    def active(self) -> bool:
        """Whether anything is changed at all."""
        return self != CameraNoise()

    def __str__(self) -> str:
        parts = []
        if self.noise:
            parts.append(f"noise {self.noise:g} of full scale")
        if self.blackout:
            parts.append(f"{self.blackout:.0%} of the frames black")
        if self.delay_steps:
            parts.append(f"frames {self.delay_steps} decisions late")
        if self.brightness != 1:
            parts.append(f"brightness x {self.brightness:g}")
        return ", ".join(parts) or "none"


class Camera:
    """Applies a ``CameraNoise`` frame by frame; the same seed gives the same disturbance."""

    def __init__(self, disturbance: CameraNoise) -> None:
        self.disturbance = disturbance
        self.reset(0)

    def reset(self, seed: int | None) -> None:
        """Start the episode of ``seed``; without a seed the disturbance is another one each time."""
        self._random = np.random.default_rng(None if seed is None else (seed, 0xCA3E7A))
        self._late: deque[Frame] = deque(maxlen=self.disturbance.delay_steps + 1)

    def __call__(self, frame: Frame) -> Frame:
        """The disturbed frame; ``frame`` itself is left as it is."""
        d = self.disturbance
        self._late.append(frame)
        seen = self._late[0]
        # Drawn at every decision, so that one setting leaves the random numbers of the other alone.
        black = self._random.random() < d.blackout
        if d.brightness == 1 and d.noise == 0 and not black:
            return seen
        if black:
            return np.zeros_like(seen)
        picture = seen.astype(np.float32) * d.brightness
        if d.noise:
            picture += self._random.standard_normal(seen.shape, dtype=np.float32) * (d.noise * 255)
        return np.asarray(np.clip(np.rint(picture), 0, 255), dtype=np.uint8)


class NoisyCamera(DrivingWrapper):
    """A driving environment seen through a worse camera; the same seed of ``reset`` gives the same disturbance.

    Whoever drives sees the disturbed frame; the true one is in ``info["clean_frame"]``, for experts and recordings.
    All else is the environment's own.
    """

    def __init__(self, env: DrivingEnv, noise: CameraNoise) -> None:
        super().__init__(env)
        self.camera = Camera(noise)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, Any]:
        """Start the episode of ``seed``; without a seed the disturbance is another one each time."""
        self.camera.reset(seed)
        frame, info = self.env.reset(seed=seed, options=options)
        return self.camera(frame), {**info, "clean_frame": frame}

    def step(self, action: Any) -> tuple[Frame, SupportsFloat, bool, bool, Any]:
        """Carry out one decision; see ``DrivingEnv.step``."""
        frame, reward, terminated, truncated, info = self.env.step(action)
        return self.camera(frame), reward, terminated, truncated, {**info, "clean_frame": frame}
