"""One contestant of an arena: its own environment and driver, driven through the one rollout in a process of its own.

The main process (``arena.py``) says how far in simulated time it may drive; before each decision beyond that
the contestant waits. What changes on the way (the camera, a person's keys) travels with that permission, so that it
holds for all contestants from the same simulated moment on, however fast their processes are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from nacdrive.common.action import FULL_BRAKE, KEYBOARD, Action
from nacdrive.common.errors import UserError
from nacdrive.datasets.recording import Recording
from nacdrive.drivers.base import SAME_MPS, Driver, DriverState, DriverWrapper, Needs, Rerun
from nacdrive.drivers.discrete import nearest_action
from nacdrive.drivers.human import Keyboard
from nacdrive.drivers.override import Override
from nacdrive.drivers.tick import Tick
from nacdrive.envs.base import DrivingEnv, Frame, Info
from nacdrive.envs.camera_noise import CameraNoise, NoisyCamera
from nacdrive.envs.registry import EnvSpec
from nacdrive.rollout.drive import Drive, LoadedDrive
from nacdrive.rollout.rollout import Probes
from nacdrive.viz.recorded import driven_actions

WHY_EVERY = 5
"""Decisions between two measurements of why, while somebody watches."""
LARGE = ("clean_frame", "jpeg", "cameras")
"""Of ``Info``: pictures that nobody in the main process looks at."""


@dataclass(frozen=True)
class Contestant:
    """Who drives in what; plain data, so that it can travel to another process."""

    name: str
    """For people; of each contestant another."""
    drive: Drive
    """How it drives; ``keyboard`` where a person does."""
    top_speed_mps: float | None = None
    """Above it there is no gas, so that a person can win."""
    head_start_s: float = 0.0
    """So long it stands before it drives: a person's head start."""
    ghost: Path | None = None
    """Recording whose drives it drives once more."""

    @property
    def person(self) -> bool:
        return self.drive.driver == KEYBOARD

    def load(self) -> LoadedDrive:
        """How it drives, with its networks in memory once they are asked for."""
        if self.ghost is not None:
            driver = Ghost(Recording.open(self.ghost), self.drive.env_spec)
            return LoadedDrive(self.drive, driver=driver, repeat=driver.needs.repeat)
        return LoadedDrive(self.drive, driver=Person() if self.person else None)


@dataclass(frozen=True)
class Begin:
    """Drive an episode."""

    episode: int
    seed: int
    track: str = ""
    noise: CameraNoise = field(default_factory=CameraNoise)


@dataclass(frozen=True)
class Go:
    """Permission to decide at simulated times before ``until_s``; the rest holds from then on until the next one."""

    until_s: float
    noise: CameraNoise = field(default_factory=CameraNoise)
    keys: frozenset[str] = frozenset()
    axes: tuple[float, float] | None = None
    events: tuple[str, ...] = ()
    watched: bool = False


@dataclass(frozen=True)
class Abandon:
    """Give up the episode; sent back when nothing of it will come any more."""


@dataclass(frozen=True)
class Ready:
    """The contestant has been loaded."""

    step_s: float
    """Simulated seconds between its decisions."""


@dataclass(frozen=True)
class Ended:
    """The episode is over; ``metrics`` are the environment's own."""

    metrics: dict[str, float]


@dataclass(frozen=True)
class Failed:
    """The contestant cannot drive on, in a sentence; ``mistake``: whether it is the user's."""

    sentence: str
    mistake: bool = True


class AbandonedEpisode(Exception):  # noqa: N818 - a signal to the loop, no error
    """Nobody wants the rest of the episode."""


class Handicap(Override):
    """Keeps another driver standing for some seconds, and takes its gas above a speed."""

    def __init__(self, driver: Driver, contestant: Contestant) -> None:
        super().__init__(driver, (contestant.head_start_s - 1e-9, FULL_BRAKE))
        self._top_mps = contestant.top_speed_mps or math.inf

    def act(self, frame: Frame, info: Info) -> Action:
        action = super().act(frame, info)
        if float(info.get("speed_mps") or 0.0) < self._top_mps or not action.throttle:
            return action
        return replace(nearest_action(self._env, replace(action, throttle=0.0)), logits=action.logits)


def whole_drives(recording: Recording) -> list[int]:
    """Numbers of a recording's drives, without attempts that were started over: another on their track is whole."""
    seeds = [info.seed for info in recording.episodes]
    several = [i for i, seed in enumerate(seeds) if seeds.count(seed) > 1]
    cut = {i for i in several if recording.load(i).meta.get("ended") == "interrupted"}
    whole = {seeds[i] for i in several if i not in cut}
    return [i for i, seed in enumerate(seeds) if i not in cut or seed not in whole]


class Ghost(Rerun):
    """Does what was done in a recording; its drive ends with that."""

    name, needs = "ghost", Needs()

    def __init__(self, recording: Recording, spec: EnvSpec) -> None:
        super().__init__(())
        self._recording, self._drives, self._first = recording, whole_drives(recording), 0
        first, rate = recording.load(0), spec.frames_per_second
        repeat = round(rate / recording.meta["fps"]) if rate is not None else None
        self.needs = Needs(continuous=bool((first.choice < 0).all()), repeat=repeat, any_pace=True)

    def take(self, seed: int, number: int) -> None:
        """Drive next what episode ``number`` of the arena has of its recording; number 0 is its first of ``seed``."""
        if number == 0:
            self._first = [self._recording.episodes[i].seed for i in self._drives].index(seed)
        episode = self._recording.load(self._drives[self._first + number])
        self.actions, self._speeds = driven_actions(episode), episode.speed_mps
        self.needs = replace(self.needs, between_frames=episode.between_frames is not None)

    def act(self, frame: Frame, info: Info) -> Action:
        if abs(float(info.get("speed_mps") or 0.0) - self._speeds[self._step]) > SAME_MPS:
            raise UserError(
                f"--ghost: driven once more, this drive is another one from {info['t_s']:.1f} s on (it was driven with "
                "other options, or by another version): give another recording."
            )
        return super().act(frame, info)


class Person(Driver):
    """A person whose keys are told by the main process; no key held is no pedal and no steering.

    Wheel and pedal are moved by degrees wherever they can be: gas may be held in a bend.
    """

    name, needs = KEYBOARD, Needs(continuous=True, repeat=2, any_pace=True)
    keys: frozenset[str] = frozenset()
    axes: tuple[float, float] | None = None

    def reset(self, env: DrivingEnv) -> None:
        self._env, self._keyboard = env, Keyboard()

    def act(self, frame: Frame, info: Info) -> Action:
        return replace(self._keyboard.action(self.keys, float(info["t_s"]), self._env, self.axes), human=True)


class Gate(DriverWrapper):
    """Waits before each decision until the main process lets it be taken, outside of the time that is measured."""

    def __init__(self, driver: Driver, pipe: Connection) -> None:
        super().__init__(driver)
        self._pipe = pipe
        self._events: list[str] = []

    def reset(self, env: DrivingEnv) -> None:
        super().reset(env)
        assert isinstance(env, NoisyCamera)
        self._env, self._until_s, self._watched = env, 0.0, False

    def before_decision(self) -> None:
        super().before_decision()
        while self._env.t_s >= self._until_s - 1e-9:
            order = self._pipe.recv()
            if not isinstance(order, Go):
                raise AbandonedEpisode(order)
            self._until_s = order.until_s
            self._env.camera.change(order.noise)
            self._events += order.events
            self._watched = order.watched
            if isinstance(self.driver, Person):
                self.driver.keys, self.driver.axes = order.keys, order.axes

    def is_watched(self) -> bool:
        """Whether anybody looked on when the last permission came."""
        return self._watched

    def act(self, frame: Frame, info: Info) -> Action:
        self._past_events, self._events = tuple(self._events), []
        return super().act(frame, info)

    def state(self) -> DriverState:
        state = super().state()
        return replace(state, events=(*self._past_events, *state.events))


def drive_contestant(pipe: Connection, contestant: Contestant) -> None:
    """A contestant's process: load, then drive whatever is asked for until the pipe closes."""
    try:
        _drive_all(pipe, contestant)
    except UserError as error:
        pipe.send(Failed(str(error)))
    except (EOFError, OSError):
        # The arena has closed.
        return
    except Exception as error:
        pipe.send(Failed(f"{contestant.name} failed: {type(error).__name__}: {error}", mistake=False))
        raise


def _drive_all(pipe: Connection, contestant: Contestant) -> None:
    loaded = contestant.load()
    _ = loaded.driver
    pipe.send(Ready(1 / loaded.fps))
    while True:
        order = pipe.recv()
        if isinstance(order, Abandon):
            pipe.send(order)
        if not isinstance(order, Begin):
            continue  # a permission that was on its way when the episode ended
        if isinstance(loaded.driver, Ghost):
            loaded.driver.take(order.seed, order.episode)
        with loaded.open(order.seed, episode=order.episode, track=order.track, camera=order.noise) as opened:
            driver = opened.driver
            if contestant.head_start_s or contestant.top_speed_mps is not None:
                driver = Handicap(driver, contestant)
            opened.driver = gate = Gate(driver, pipe)
            if loaded.policy is not None:
                opened.probes = Probes(neurons_every=WHY_EVERY, why=loaded.policy.why, watched=gate.is_watched)
            try:
                for tick in opened:
                    pipe.send(light(tick))
                pipe.send(Ended(opened.env.metrics()))
            except AbandonedEpisode as abandoned:
                pipe.send(abandoned.args[0])


def light(tick: Tick) -> Tick:
    """``tick`` without the pictures in its infos."""

    def kept(info: Info) -> Any:
        return {name: value for name, value in info.items() if name not in LARGE}

    return replace(tick, info=kept(tick.info), next_info=kept(tick.next_info))
