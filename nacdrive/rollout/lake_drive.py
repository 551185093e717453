"""One drive on a built-in track under a geometric teacher's eyes: what was seen, what was steered, what was right."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.images import encode_jpeg
from nacdrive.drivers.pure_pursuit import PurePursuit
from nacdrive.drivers.roles import Driver
from nacdrive.drivers.tick import Listener, Tick
from nacdrive.envs.udacity_track import make_udacity_track
from nacdrive.rollout.old_loop import happened
from nacdrive.rollout.record_config import LakeDrive
from nacdrive.rollout.record_episode import REPORT_EVERY

REPEAT = 4
"""Steps of 0.02 s between two frames: 12.5 a second, near the simulator's own pace of recording."""
SIDES = ("left", "right")
ROOM = 1.2
"""Metres between the middle of the car and the edge of the road at the outermost start."""


class Kicks:
    """Now and then the wheel is held wrong for a moment, so that recovering from it can be learnt.

    A kick turns the car by up to 0.35 rad times the strength, whatever the speed; between them the wheel trembles.
    """

    EVERY_S = 3.0
    TURN_RAD = 0.35
    TREMBLE = 0.04

    def __init__(self, strength: float, gap_s: float, rng: np.random.Generator) -> None:
        self.strength, self.gap_s, self.rng = strength, gap_s, rng
        self.left, self.size, self.tremble = 0, 0.0, 0.0

    def __call__(self, speed_mps: float) -> float:
        """What is added to the steering now."""
        rng = self.rng
        self.tremble = 0.8 * self.tremble + 0.6 * self.TREMBLE * float(rng.normal())
        if self.left > 0:
            self.left -= 1
        elif rng.random() < self.gap_s / self.EVERY_S:
            self.left = int(rng.integers(4, 10))
            turn = float(rng.uniform(-self.TURN_RAD, self.TURN_RAD))
            # Yaw rate of a bicycle: v / wheelbase * tan(steering * 25 degrees), nearly linear here.
            self.size = float(np.clip(turn * 2.6 / (max(speed_mps, 3.0) * self.left * self.gap_s * 0.436), -0.8, 0.8))
        else:
            self.size = 0.0
        return self.strength * (self.size + self.tremble)


def drive_lake(
    drive: LakeDrive,
    seed: int,
    *,
    pupil: Driver | None = None,
    source: str = "udacity",
    driver: str = "geometric",
    on_frames: Callable[[int], None] = lambda frames: None,
    listeners: Iterable[Listener] = (),
) -> Episode:
    """Drive from a random pose until the time is up or the car is lost; it depends on the arguments alone.

    ``steering`` of the episode is what was driven, ``expert_steering`` the teacher's label; frames are JPEG, as the
    Udacity simulator sends them. The speed is the teacher's: a random top speed, bends slowly.
    """
    rng = np.random.default_rng([seed, 7])
    cameras = ("center", *SIDES) if drive.sides else ("center",)
    env = make_udacity_track(drive.track_of(seed), repeat=REPEAT, cameras=cameras, laps=1000, max_seconds=drive.seconds)
    try:
        return LakeEpisode(env, drive, seed, rng, pupil, tuple(listeners)).run(source, driver, on_frames)
    finally:
        env.close()


class LakeEpisode:
    """A drive under way."""

    def __init__(
        self,
        env: Any,
        drive: LakeDrive,
        seed: int,
        rng: np.random.Generator,
        pupil: Driver | None,
        listeners: tuple[Listener, ...] = (),
    ) -> None:
        self.env, self.drive, self.seed, self.rng, self.pupil, self.listeners = env, drive, seed, rng, pupil, listeners
        self.teacher = PurePursuit()
        self.top_speed = self.teacher.vary(rng)["top_speed_mps"]
        self.teacher.reset(env)
        self.kicks = Kicks(drive.noise, REPEAT * 0.02, rng)
        self.images: dict[str, list[bytes]] = {"center": []}
        self.rows: list[tuple[float, ...]] = []
        self.by_teacher = True

    def run(self, source: str, driver: str, on_frames: Callable[[int], None]) -> Episode:
        """Drive to the end."""
        room = self.env.track.half_width - ROOM
        start = {
            "offset": float(self.rng.uniform(-room, room)),
            "heading": float(self.rng.uniform(-0.2, 0.2)),
            "speed": float(self.rng.uniform(2.0, self.top_speed)),
        }
        frame, info = self.env.reset(seed=self.seed, options=start)
        if self.pupil is not None:
            self.pupil.reset()
        done, total, lost = False, 0.0, False
        while not done:
            command, row = self.decide(frame, info)
            for camera, picture in info.get("cameras", {"center": frame}).items():
                self.images.setdefault(camera, []).append(encode_jpeg(picture))
            seen, before = frame, info
            frame, reward, lost, late, info = self.env.step(command)
            self.rows.append((*row, float(reward)))
            total += float(reward)
            done = lost or late
            if self.listeners:
                self.tell(seen, before, info, total, done)
            if done or len(self.rows) % REPORT_EVERY == 0:
                on_frames((len(self.rows) - 1) % REPORT_EVERY + 1)
        return self.episode(source, driver, total, "left the field" if lost else "time is up")

    def decide(self, frame: NDArray[np.uint8], info: dict[str, Any]) -> tuple[NDArray[np.float32], tuple[float, ...]]:
        """The command, and the row of this frame without its reward."""
        right = self.teacher.act()
        t_s, speed = float(info["t_s"]), float(info["speed_mps"])
        steering = right.steering
        if self.pupil is not None:
            own = self.pupil.step(frame, t_s, speed).steering
            if self.rng.random() < 0.1:
                self.by_teacher = bool(self.rng.random() < self.drive.beta)
            steering = right.steering if self.by_teacher else own
        steering = float(np.clip(steering + self.kicks(speed), -1, 1))
        command = np.array([steering, right.throttle - right.brake], dtype=np.float32)
        return command, (t_s, steering, right.throttle, right.brake, speed, right.steering)

    def tell(
        self, frame: NDArray[np.uint8], before: dict[str, Any], after: dict[str, Any], total: float, done: bool
    ) -> None:
        """Let those who watch know of the decision that was just carried out."""
        t_s, steering, throttle, brake, speed, label, reward = self.rows[-1]
        step = len(self.rows) - 1
        tick = Tick(
            episode=0,
            seed=self.seed,
            step=step,
            t_s=t_s,
            frame=frame,
            action=Action(steering, throttle, brake),
            reward=reward,
            episode_return=total,
            speed_mps=speed,
            lane_offset_m=before["lane_offset_m"],
            expert=Action(label, throttle, brake),
            events=("started",) * (step == 0) + tuple(happened(before, after)) + ("ended",) * done,
            done=done,
        )
        for listener in self.listeners:
            listener(tick)

    def episode(self, source: str, driver: str, total: float, ended: str) -> Episode:
        """What was recorded."""
        t_s, steering, throttle, brake, speed, label, reward = np.array(self.rows).T
        unknown = np.full(len(self.rows), -1)
        return Episode(
            frames=self.images["center"],
            t_s=t_s,
            choice=unknown,
            steering=steering,
            throttle=throttle,
            brake=brake,
            reward=reward,
            speed_mps=speed,
            expert_choice=unknown,
            expert_logits=None,
            seed=self.seed,
            source=source,
            driver=driver,
            episode_return=total,
            meta={"track": self.env.track.name, "top_speed_mps": self.top_speed, "ended": ended},
            expert_steering=label,
            side_frames={side: self.images[side] for side in SIDES if side in self.images},
        )
