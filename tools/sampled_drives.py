"""Drives whose actions are sampled, to learn from: CarRacing and the random roads of the Udacity track.

What is driven, what a critic reads of the world, and what is rewarded. ``tools/policy_reinforcement.py`` learns from
them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from nacdrive.common.action import Action
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.udacity_track.traffic import apart
from nacdrive.extras.hunt.search import KNOBS
from nacdrive.models import Policy, load_policy
from nacdrive.rollout.dagger import begin_badly
from nacdrive.rollout.drive import Drive, LoadedDrive

GAP_S = 0.08
"""Usually, between decisions."""
FRAMES = 1000
"""Of a drive in CarRacing, at most."""
LOST_S, RECOVERY_S = 4.8, 8.0
"""A drive in CarRacing ends after so long without progress, in seconds because pictures may be rare; later after a bad
start."""
MISSED_TILE = 20.0
"""Taken from CarRacing's reward for the first tile that no wheel has touched: the lap will not end before the frames
do."""
LAP_POINTS = 72.0
"""What the frames of a usual lap cost in CarRacing."""
WHOLE_LAP = 0.95
"""Share of the tiles from which on CarRacing lets a lap be finished."""
AHEAD = np.array([2, 4, 7, 10, 14, 19, 25, 32])
"""Tiles ahead whose direction the critic reads."""
SECONDS = 15.0
"""Of a drive on the Udacity track, at most."""
OFFSET_COST, LOST_COST = 3.0, 15.0
"""Points there, for each metre from the middle of the road and second, and for a drive that ends before its time."""
PASSING_M = -14.0, 20.0
"""So near to a slow car, along the road, the distance from the middle costs nothing."""
BESIDE_M, ROOM_M, ROOM_COST = 5.0, 2.5, 6.0
"""So near to it, along the road, it costs so many points a second for each metre that there is less room between the
two middles, across the road: cars touch at 1.9 m."""
AHEAD_M = np.array([0.0, 4.0, 8.0, 12.0, 17.0, 23.0, 30.0, 40.0])
"""Metres ahead of which the critic reads the curvature."""


@dataclass
class Trajectory:
    """A drive: of every decision what it was made from and what came of it."""

    features: list[NDArray[np.float16]] = field(default_factory=list)
    """Of the convolutions, before the projection."""
    t: list[float] = field(default_factory=list)
    """When the frame was taken, seconds."""
    made_s: list[float] = field(default_factory=list)
    """When it was decided, seconds; one more than decisions in the end, the last of which is when the drive ended."""
    actions: list[Any] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    """But for a constant."""
    states: list[NDArray[np.float32]] = field(default_factory=list)
    """Of the world, for the critic."""
    rewards: list[float] = field(default_factory=list)
    carried_out: list[bool] = field(default_factory=list)
    """Where a car is led off the road the policy decides, nothing is done, and nothing is learnt."""
    kind: str = ""
    """Of the ``TrainingDrives.kinds``."""
    episode_return: float = 0.0


class World(ABC):
    """The simulator in a drive of a kind: what a critic reads of it, and what is rewarded."""

    def __init__(self, inner: Any, kind: str) -> None:
        self.inner, self.kind = inner, kind
        self.last_s, self.usual_gap_s = 0.0, GAP_S

    def gap_s(self, t_s: float) -> float:
        """Since the decision before; ``usual_gap_s`` follows it."""
        gap_s, self.last_s = t_s - self.last_s, t_s
        self.usual_gap_s += 0.2 * (gap_s - self.usual_gap_s)
        return gap_s

    @abstractmethod
    def read(self) -> NDArray[np.float32]:
        """[states], as many as its ``TrainingDrives`` says."""

    @abstractmethod
    def reward(self, tick: Any) -> float: ...

    def is_given_up(self, tick: Any) -> bool:
        return False

    def last_reward(self, tick: Any) -> float:
        """For how the drive ended."""
        return 0.0

    def episode_return(self, tick: Any, rewards: list[float]) -> float:
        """What is said of a drive: the sum of ``rewards``."""
        return sum(rewards)


class CarRacingWorld(World):
    """Gymnasium's CarRacing."""

    def __init__(self, inner: Any, kind: str) -> None:
        super().__init__(inner if hasattr(inner, "track") else inner.world, kind)
        self.road, self.at, self.is_whole = np.array(self.inner.track), -1, True
        self.furthest, self.gained_s = -1.0, 0.0

    def read(self) -> NDArray[np.float32]:
        """Speeds, the car's place on the road, where that leads, how much is left, how often pictures come, whether it
        began badly and whether no tile is missed.
        """
        world, road = self.inner, self.road
        hull = world.car.hull
        (x, y), (east, north), angle = hull.position, hull.linearVelocity, hull.angle
        near = np.arange(len(road)) if self.at < 0 else (self.at + np.arange(-6, 14)) % len(road)
        self.at = at = int(near[np.argmin(((road[near, 2:] - (x, y)) ** 2).sum(axis=1))])
        direction, right, up = road[at, 1], x - road[at, 2], y - road[at, 3]
        gap_s = self.gap_s(world.t)
        left = 1 - world.tile_visited_count / len(road)
        ahead, aside = turned(north, east, angle)
        along, beside = turned(up, right, direction)
        bends = (road[(at + AHEAD) % len(road), 1] - direction + math.pi) % (2 * math.pi) - math.pi
        values = (
            ahead / 50, aside / 20, hull.angularVelocity / 3, world.car.wheels[0].joint.angle, along / 7, beside / 7,
            math.sin(angle - direction), math.cos(angle - direction), *bends,
            1 - left, min(1.0, 5 * left), sum(bool(wheel.tiles) for wheel in world.car.wheels) / 4,
            5 * gap_s, 5 * self.usual_gap_s, self.kind == "bad start", self.is_whole,
        )  # fmt: skip
        return np.array(values, np.float32)

    def misses_a_tile(self) -> bool:
        """Whether one was left behind untouched, said once a lap."""
        behind = [self.inner.road[k].road_visited for k in range(max(0, self.at - 12), max(0, self.at - 4))]
        first = self.is_whole and not all(behind)
        self.is_whole = self.is_whole and not first
        return first

    def reward(self, tick: Any) -> float:
        return float(tick.reward - MISSED_TILE * self.misses_a_tile())

    def is_given_up(self, tick: Any) -> bool:
        if (tick.progress or 0.0) > self.furthest:
            self.furthest, self.gained_s = tick.progress or 0.0, tick.t_s
        return bool(tick.t_s - self.gained_s > LOST_S + RECOVERY_S * (self.kind == "bad start"))

    def episode_return(self, tick: Any, rewards: list[float]) -> float:
        """That of the environment."""
        return float(tick.episode_return)


class CarRacingLap(CarRacingWorld):
    """What a whole lap returns, and not a few seconds' tiles, which discounted make speed worth more than it is: a tile
    brings no more than the frames cost that it usually takes, and who is lost pays for the tiles that are left.
    """

    progress = 0.0

    def reward(self, tick: Any) -> float:
        before, self.progress = self.progress, self.inner.tile_visited_count / len(self.road)
        return super().reward(tick) - (1000.0 - LAP_POINTS) * (self.progress - before)

    def last_reward(self, tick: Any) -> float:
        # A lap with a few tiles missed is not lost: each of them has brought nothing.
        return -(1000.0 - LAP_POINTS) * (1.0 - self.progress) * (self.progress < WHOLE_LAP)


class UdacityWorld(World):
    """A random road: what is rewarded is to be near its middle, and room beside slow cars."""

    def cars(self) -> NDArray[np.float64]:
        """How far ahead of the car the slow cars are, m."""
        world = self.inner
        cars = world.traffic.cars
        return np.asarray(apart(world.track, cars.s, world.track_position.s)) if len(cars.s) else np.empty(0)

    def read(self) -> NDArray[np.float32]:
        """Speed, the car's place on the road, the road's width and curvature, the wheel, how often pictures come, and
        the slow car that matters most.
        """
        world, place, track = self.inner, self.inner.track_position, self.inner.track
        gap_s, cars = self.gap_s(world.t_s), self.cars()
        ahead = (place.index + np.round(AHEAD_M / track.spacing).astype(int)) % len(track.line)
        car = (2.0, 0.0, 0.0)
        if len(cars):
            near = float(cars[np.argmin(np.abs(cars - 8))])
            car = (float(np.clip(near, -30, 30)) / 15, world.traffic.cars.offset / 3, 1.0)
        values = (
            world.car.speed / 10, place.offset / 2, abs(place.offset) / 2, 3 * place.heading_error(world.car.heading),
            track.half_width / 4, world.wheels_off(), *(-20 * track.curvature[ahead]), world._action[0], 5 * gap_s,
            *car, 5 * self.usual_gap_s,
        )  # fmt: skip
        return np.array(values, np.float32)

    def reward(self, tick: Any) -> float:
        cars, offset = self.cars(), tick.next_info["lane_offset_m"]
        if (abs(cars) < BESIDE_M).any():
            cost = ROOM_COST * max(0.0, ROOM_M - abs(self.inner.traffic.cars.offset - offset))
        else:
            is_passing = ((cars > PASSING_M[0]) & (cars < PASSING_M[1])).any()
            cost = 0.0 if is_passing else OFFSET_COST * abs(offset)
        return float(-cost * (tick.next_info["t_s"] - tick.t_s))

    def last_reward(self, tick: Any) -> float:
        return -LOST_COST * (tick.next_info["t_s"] < SECONDS - 1)


class TrainingDrives(ABC):
    """What is driven to learn from, in kinds of drives."""

    kinds: dict[str, float]
    """Their usual shares."""
    states: int
    """Of its ``World``."""
    gamma: float
    """Discount of rewards for each ``GAP_S``."""
    return_scale: float
    """Of the critic: returns are divided by it."""
    action_std: tuple[float, ...]
    """Of steering (and pedal) while they are learnt, where they are not chosen from a few actions."""
    world: type[World]

    @abstractmethod
    def camera(self, kind: str, rng: np.random.Generator) -> CameraNoise: ...

    @abstractmethod
    def drive(self, kind: str, camera: CameraNoise, rng: np.random.Generator) -> Drive: ...

    @abstractmethod
    def begin(self, opened: Any, kind: str, lost_m: float, rng: np.random.Generator) -> float:
        """Where the car of a drive begins; until when, in seconds, it is led."""


def several_faults(rng: np.random.Generator) -> CameraNoise:
    """Faults of the cameras that ``nacdrive hunt`` searches: each with an even chance, one at least."""
    knobs = [knob for knob in KNOBS if knob.area == "cameras"]
    shares, on = rng.random(len(knobs)), rng.random(len(knobs)) < 0.5
    on[rng.integers(len(knobs))] = True
    faults: dict[str, Any] = {}
    for knob, share, is_on in zip(knobs, shares, on, strict=True):
        value = knob.low + share * (knob.high - knob.low)
        if is_on:
            faults[knob.option] = round(value) if knob.whole else value
    return CameraNoise(**faults)


class CarRacingDrives(TrainingDrives):
    kinds = {
        "good": 0.25, "5 to 20 Hz": 0.25, "noise, late": 0.1, "black": 0.2, "dusk": 0.1, "bad start": 0.1,
        "several faults": 0.0,
    }  # fmt: skip
    states, gamma, return_scale, world = 6 + 2 + len(AHEAD) + 7, 0.99, 100.0, CarRacingWorld
    action_std = (0.05, 0.15)

    def camera(self, kind: str, rng: np.random.Generator) -> CameraNoise:
        if kind == "several faults":
            return several_faults(rng)
        share = float(rng.random())
        bad = {
            "5 to 20 Hz": CameraNoise(rate=(5.0, 20.0)),
            "noise, late": CameraNoise(noise=0.12 * share, delay_steps=int(rng.integers(3))),
            "black": CameraNoise(blackout=0.3 * share),
            "dusk": CameraNoise(brightness=1 - 0.6 * share),
        }
        return bad.get(kind, CameraNoise())

    def drive(self, kind: str, camera: CameraNoise, rng: np.random.Generator) -> Drive:
        usual = {"renderer": "fast", "max_frames": FRAMES}
        return Drive(options=usual, camera=camera, safety_stop=False)

    def begin(self, opened: Any, kind: str, lost_m: float, rng: np.random.Generator) -> float:
        return begin_badly(opened, rng, lost_m) if kind == "bad start" else 0.0


class UdacityDrives(TrainingDrives):
    kinds = {"good": 0.4, "5 to 20 Hz": 0.2, "black": 0.15, "noise, late, dusk": 0.1, "slow cars": 0.15}
    states, gamma, return_scale, world = 6 + len(AHEAD_M) + 6, 0.97, 5.0, UdacityWorld
    action_std = (0.04,)

    def camera(self, kind: str, rng: np.random.Generator) -> CameraNoise:
        share = float(rng.random())
        dim = CameraNoise(noise=0.1 * share, delay_steps=int(rng.integers(2)), brightness=1 - 0.5 * float(rng.random()))
        bad = {
            "5 to 20 Hz": CameraNoise(rate=(5.0, 20.0)),
            "black": CameraNoise(blackout=0.3 * share),
            "noise, late, dusk": dim,
        }
        return bad.get(kind, CameraNoise())

    def drive(self, kind: str, camera: CameraNoise, rng: np.random.Generator) -> Drive:
        options = {"max_seconds": SECONDS, "road_difficulty": float(rng.choice([0.5, 0.5, 0.5, 1.0]))}
        if kind == "slow cars":
            options["slow_cars"] = 6
        mph = float(rng.choice([25.0, 25.0, 30.0]))
        return Drive(
            env="udacity-track", track="random", options=options, camera=camera, safety_stop=False, recover=False,
            speed_mph=mph,
        )  # fmt: skip

    def begin(self, opened: Any, kind: str, lost_m: float, rng: np.random.Generator) -> float:
        offset, heading, speed = rng.uniform(-0.7, 0.7), rng.uniform(-0.08, 0.08), rng.uniform(6, 11)
        opened.start = {"offset": float(offset), "heading": float(heading), "speed": float(speed)}
        return 0.0


class CarRacingLaps(CarRacingDrives):
    return_scale, world, action_std = 20.0, CarRacingLap, (0.02, 0.07)


TRAINING_DRIVES: dict[str, TrainingDrives] = {"carracing": CarRacingDrives(), "udacity": UdacityDrives()}
"""Of each task."""
LAPS: dict[str, TrainingDrives] = {"carracing": CarRacingLaps()}
"""Of each task where whole laps are rewarded."""


class SamplingPolicy(Policy):
    """Samples its actions, and keeps in ``drive`` what they were made from."""

    temperature = 1.0
    training: TrainingDrives
    drive: Trajectory
    rng: np.random.Generator
    world: World

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.network.dropout.register_forward_hook(self.keep_features)

    def keep_features(self, module: nn.Module, inputs: Any, features: Tensor) -> Tensor:
        """Half as long numbers are kept, and are what is decided from."""
        self.drive.features.append(features[0].half().numpy())
        return features.half().float()

    def action(self, outputs: NDArray[np.float32]) -> Action:
        drawn: Any
        if self.config.continuous:
            std = np.array(self.training.action_std, np.float32)
            drawn = meant = outputs + self.rng.standard_normal(len(std)).astype(np.float32) * std
        else:
            probs = torch.softmax(torch.from_numpy(outputs) / self.temperature, dim=0).double().numpy()
            drawn = int(self.rng.choice(len(probs), p=probs / probs.sum()))
            meant = np.eye(len(probs), dtype=np.float32)[drawn]
        kept, made = self.drive, (torch.from_numpy(outputs), torch.tensor(drawn))
        kept.t.append(self._recent[-1][1])
        kept.actions.append(drawn)
        kept.log_probs.append(float(log_probs(*made, self.temperature, self.training.action_std)))
        kept.states.append(self.world.read())
        return super().action(meant)


class SamplingDriver(PolicyDriver):
    """A ``SamplingPolicy`` that is told in which world it drives."""

    def reset(self, env: DrivingEnv) -> None:
        super().reset(env)
        assert isinstance(self.policy, SamplingPolicy)
        self.policy.world = self.policy.training.world(env.unwrapped, self.policy.drive.kind)


def turned(north: float, east: float, angle: float) -> tuple[float, float]:
    """A vector as seen by who looks along ``angle``, counter-clockwise from north: ahead, and to the right."""
    cos, sin = math.cos(angle), math.sin(angle)
    return cos * north - sin * east, cos * east + sin * north


def log_probs(outputs: Tensor, actions: Tensor, temperature: float, std: tuple[float, ...]) -> Tensor:
    """[..., choices] scores and [...] choices, or [..., 1 or 2] steering (and pedal) both -> [...], to a constant."""
    if actions.is_floating_point():
        return -0.5 * (((actions - outputs) / torch.tensor(std)) ** 2).sum(dim=-1)
    return F.log_softmax(outputs / temperature, dim=-1).gather(-1, actions[..., None])[..., 0]


class Sampler:
    """Drives with the policy of a file and other weights, in one process."""

    def __init__(
        self,
        path: Path,
        weights: dict[str, NDArray[Any]],
        temperature: float,
        seed: int,
        training: TrainingDrives | None = None,
    ) -> None:
        policy = load_policy(path)
        policy.network.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
        self.policy, self.seed = SamplingPolicy(policy.network, policy.name), seed
        self.policy.temperature = temperature
        self.policy.training = training or TRAINING_DRIVES[policy.config.task]

    def drive(self, job: tuple[int, str, CameraNoise]) -> Trajectory:
        """The drive of a track's seed, of a kind, through a camera."""
        track, kind, camera = job
        drive, training = Trajectory(kind=kind), self.policy.training
        self.policy.drive, self.policy.rng = drive, np.random.default_rng([self.seed, track])
        rng = np.random.default_rng([self.seed, track, 2])
        loaded = LoadedDrive(training.drive(kind, camera, rng), driver=SamplingDriver(self.policy))
        with loaded.open(track) as opened:
            free_s = training.begin(opened, kind, loaded.spec.lost_m, rng)
            for tick in opened:
                world = self.policy.world
                if len(drive.t) > len(drive.rewards):
                    drive.rewards.append(0.0)
                    drive.made_s.append(tick.t_s)
                    drive.carried_out.append(tick.t_s >= free_s)
                drive.rewards[-1] += world.reward(tick)
                if world.is_given_up(tick):
                    break
        drive.rewards[-1] += world.last_reward(tick)
        drive.made_s.append(float(tick.next_info["t_s"]))
        drive.episode_return = world.episode_return(tick, drive.rewards)
        return drive
