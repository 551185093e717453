"""A worse camera than the true one: noise, blackouts, delay, rate; experts that ride along see the true frames."""

from __future__ import annotations

from collections import deque
from dataclasses import fields
from typing import Annotated, Any, SupportsFloat

import numpy as np
from annotated_types import Interval

from nacdrive.common.errors import UserError, instead_of
from nacdrive.common.options import LARGEST, Options, Share
from nacdrive.envs.base import DrivingEnv, DrivingWrapper, Frame

WANDER = 0.1
"""Standard deviation of what a camera's rate changes by from one frame to the next, as a share of it."""


class CameraNoise(Options):
    """What is wrong with the camera."""

    noise: Annotated[float, Interval(ge=0, le=LARGEST)] = 0.0
    """Standard deviation of Gaussian noise of every pixel and channel, of full scale (0.1 is 25.5 of 255 levels)."""
    blackout: Share = 0.0
    """Probability, drawn anew at every decision, that the frame is wholly black (or that a longer blackout begins)."""
    delay_steps: Annotated[int, Interval(ge=0, le=10_000)] = 0
    """Decisions by which frames come late; until the first has arrived, the first frame of the episode stands."""
    brightness: Annotated[float, Interval(ge=0, le=LARGEST)] = 1.0
    """Factor on all pixels, clipped to white: 0.5 is dusk, 1.5 is glare, 1 changes nothing."""
    dropped: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    """Probability, drawn at every decision, that the frame is lost: the one before stands, and its age is known."""
    late: Annotated[int, Interval(ge=0, le=50)] = 0
    """Most decisions by which a frame comes late, each by another number drawn from 0 to this; frames never overtake
    each other, and the policy is told when the newest was taken."""
    blackout_steps: Annotated[int, Interval(ge=1, le=1000)] = 1
    """Decisions that each --blackout lasts; one that begins within another makes it longer."""
    rate: tuple[Annotated[float, Interval(ge=0.1, le=1000)], Annotated[float, Interval(ge=0.1, le=1000)]] | None = None
    """Lowest and highest frames per second of a camera whose rate is drawn for each episode and wanders between them; a
    decision is taken, and its action held, for each frame (some policies decide in between, too, while none is lost or
    late). If not given, they come at the driver's own pace."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rate is not None:
            sentence = f"--rate is {self.rate}: give two numbers of frames a second, such as 5 20."
            with instead_of((TypeError, ValueError), sentence):
                low, high = map(float, self.rate)
            object.__setattr__(self, "rate", tuple(self.rate))
            if low > high:
                raise UserError(f"--rate is {low:g} {high:g}: give the lowest rate first.")

    @property
    def irregular(self) -> bool:
        """Whether frames come at times of their own, so that the driver must be told when one was taken."""
        return self.dropped > 0 or self.late > 0

    @property
    def active(self) -> bool:
        return self != CameraNoise()

    def draw(self, rng: np.random.Generator) -> CameraNoise:
        """What is wrong in one drive of many: each disturbance with probability 1/3, for more of them at once lose a
        car so early that there is little to learn, and at most as much as here.
        """
        drawn: dict[str, Any] = {}
        for one in fields(self):
            usual, most = one.default, getattr(self, one.name)
            present, share = rng.random() < 1 / 3, rng.random()
            if not present or most is None:
                continue
            value = most if one.name == "rate" else usual + (most - usual) * share
            drawn[one.name] = round(value) if isinstance(usual, int) else value
        return CameraNoise(**drawn)

    def __str__(self) -> str:
        black = f"{100 * self.blackout:g}% of the frames black"
        if self.blackout_steps > 1:
            black = f"a blackout of {self.blackout_steps} decisions begins with probability {self.blackout:g}"
        parts = {
            f"noise {self.noise:g} of full scale": self.noise,
            black: self.blackout,
            f"frames {self.delay_steps} decisions late": self.delay_steps,
            f"{100 * self.dropped:g}% of the frames lost": self.dropped,
            f"frames up to {self.late} decisions late": self.late,
            f"brightness x {self.brightness:g}": self.brightness != 1,
            "{:g} to {:g} frames a second".format(*self.rate or (0, 0)): self.rate,
        }
        return ", ".join(part for part, is_so in parts.items() if is_so) or "none"


def check_rate(noise: CameraNoise, name: str, fastest: float | None) -> None:
    """Refuse a camera whose rate the environment ``name`` cannot keep.

    It has ``fastest`` frames a second; None where it has a pace of its own.
    """
    if noise.rate is not None and fastest is None:
        raise UserError(f"--rate changes how long an action is held, and {name} has its own: leave it out.")
    if noise.rate is not None and fastest is not None and noise.rate[1] > fastest * (1 + 1e-9):
        raise UserError(f"--rate goes up to {noise.rate[1]:g}, and {name} has {fastest:g} frames a second.")


class Camera:
    """Applies a ``CameraNoise`` frame by frame; a seed gives the same disturbance again, None another one each time."""

    def __init__(self, disturbance: CameraNoise) -> None:
        self.disturbance = disturbance
        self.reset(0)

    def reset(self, seed: int | None) -> None:
        self._random = np.random.default_rng(None if seed is None else (seed, 0xCA3E7A))
        self._late: deque[tuple[float, float, Frame]] = deque(maxlen=self.disturbance.delay_steps + 1)
        # Of their own: whether frames are lost leaves noise and blackouts as they are.
        self._losses = np.random.default_rng(None if seed is None else (seed, 0xD20))
        self._under_way: deque[tuple[int, float, Frame]] = deque()
        self._arrived: tuple[float, Frame] | None = None
        self._rates = np.random.default_rng(None if seed is None else (seed, 0x4A7E))
        self._place = float(self._rates.random())
        self._step = self._black_left = 0
        self.taken_s = self.due_s = 0.0
        """When the frame that is shown was taken, by the clock of the calls; and when the one that was due."""

    def change(self, disturbance: CameraNoise) -> None:
        """Go on with another disturbance from the next frame on; a shorter delay skips frames, a longer one waits."""
        if disturbance != self.disturbance:
            self.disturbance = disturbance
            self._late = deque(self._late, maxlen=disturbance.delay_steps + 1)

    def __call__(self, frame: Frame, t_s: float = 0.0) -> Frame:
        """The disturbed frame at ``t_s`` seconds; ``frame`` itself is left as it is."""
        d = self.disturbance
        self._late.append((t_s, *(self._arriving(frame, t_s) if d.irregular else (t_s, frame))))
        self.due_s, self.taken_s, seen = self._late[0]
        # Drawn at every decision, so that one setting leaves the random numbers of the other alone.
        if self._random.random() < d.blackout:
            self._black_left = d.blackout_steps
        if self._black_left > 0:
            self._black_left -= 1
            return np.zeros_like(seen)
        if d.brightness == 1 and d.noise == 0:
            return seen
        picture = seen.astype(np.float32) * d.brightness
        if d.noise:
            picture += self._random.standard_normal(seen.shape, dtype=np.float32) * (d.noise * 255)
        return np.asarray(np.clip(np.rint(picture), 0, 255), dtype=np.uint8)

    def wait_s(self) -> float | None:
        """Seconds from the frame that is shown to the next one; None where the camera has no rate of its own."""
        if self.disturbance.rate is None:
            return None
        low, high = np.log(self.disturbance.rate)
        step = WANDER / (high - low) * float(self._rates.standard_normal()) if high > low else 0.0
        # Reflected at both ends.
        self._place = abs((self._place + step + 1) % 2 - 1)
        return float(np.exp(-(low + self._place * (high - low))))

    def _arriving(self, frame: Frame, t_s: float) -> tuple[float, Frame]:
        """When it was taken and the newest frame that has arrived: some are lost, others late, never the first."""
        d = self.disturbance
        # Both are drawn at every decision, so that one setting leaves the random numbers of the other alone.
        lost, behind = self._losses.random() < d.dropped, int(self._losses.integers(d.late + 1))
        if self._arrived is None:
            self._arrived = t_s, frame
        elif not lost:
            last_due = self._under_way[-1][0] if self._under_way else 0
            self._under_way.append((max(self._step + behind, last_due), t_s, frame))
        while self._under_way and self._under_way[0][0] <= self._step:
            self._arrived = self._under_way.popleft()[1:]
        self._step += 1
        return self._arrived


class NoisyCamera(DrivingWrapper):
    """A driving environment seen through a worse camera; the same seed of ``reset`` gives the same disturbance.

    Whoever drives sees the disturbed frame; the true one is in ``info["clean_frame"]``, for experts and recordings.
    Where frames are lost or late, ``info["frame_t_s"]`` says when the one that is shown was taken. A camera with a rate
    of its own sets how many simulated frames the environment holds an action (``UserError`` where it cannot); a driver
    ``between_frames`` is asked no less often than usual, with a black frame until the next one comes; and in the place
    of one that is lost, where none is late, for a late one is not known to be under way.
    """

    def __init__(self, env: DrivingEnv, noise: CameraNoise, between_frames: bool = False) -> None:
        super().__init__(env)
        self.camera = Camera(noise)
        self._simulated: Any = env.unwrapped
        self._usual = getattr(self._simulated, "repeat", None)
        self._fraction, self._until_frame = 0.0, 0
        self._between = between_frames
        check_rate(noise, self.name, None if self._usual is None or self.realtime else self._usual / self.step_s)
        self.t_s = 0.0
        """When the newest frame was taken, or last waited for, in simulated seconds."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, Any]:
        self.camera.reset(seed)
        self._fraction, self._until_frame = 0.0, 0
        return self._seen(*self.env.reset(seed=seed, options=options))

    def step(self, action: Any) -> tuple[Frame, SupportsFloat, bool, bool, Any]:
        if self._usual is not None:
            self._until_frame = self._until_frame or self._frames()
            # Lost and late frames are told by when they were taken, before what would be decided in between.
            between = self._between and not self.camera.disturbance.irregular
            held = min(self._until_frame, self._usual) if between else self._until_frame
            self._simulated.repeat = held
            self._until_frame -= held
        frame, reward, terminated, truncated, info = self.env.step(action)
        seen, info = self._seen(frame, info)
        return seen, reward, terminated, truncated, info

    def _frames(self) -> int:
        assert self._usual is not None
        wait_s = self.camera.wait_s()
        if wait_s is None:
            return int(self._usual)
        # What is rounded off is carried on, so that the rate is kept on average.
        exact = wait_s * self._usual / self.step_s + self._fraction
        frames: int = max(1, round(exact))
        self._fraction = exact - frames
        return frames

    def _seen(self, frame: Frame, info: Any) -> tuple[Frame, Any]:
        self.t_s = float(info.get("t_s", 0.0))
        if self._until_frame:
            return np.zeros_like(frame), {**info, "clean_frame": frame, "between_frames": True}
        seen, camera = self.camera(frame, self.t_s), self.camera
        taken: dict[str, Any] = {"frame_t_s": camera.taken_s} if camera.disturbance.irregular else {}
        if self._between and not camera.disturbance.late and camera.taken_s < camera.due_s:
            seen, taken = np.zeros_like(frame), {"frame_t_s": camera.due_s, "between_frames": True}
        return seen, {**info, "clean_frame": frame, **taken}
