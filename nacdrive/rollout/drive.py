"""One way of driving, put together in one place: environment, driver, expert, and what stands around them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nacdrive.common.action import KEYBOARD, Action
from nacdrive.common.errors import UserError, quoted
from nacdrive.common.files import file_checksum
from nacdrive.common.plugins import load_object
from nacdrive.common.runs import plain
from nacdrive.drivers import DRIVERS, driver_checksum, load_expert
from nacdrive.drivers.base import Driver, DriverWrapper, FollowExpert
from nacdrive.drivers.exported import AnyPolicy, load_any_policy
from nacdrive.drivers.human import HumanControl, HumanOverride, Nobody
from nacdrive.drivers.mixture import Mixture
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.drivers.safety_stop import SafetyStop
from nacdrive.drivers.speed_control import at_speed
from nacdrive.drivers.steering_noise import SteeringNoise
from nacdrive.drivers.tick import Tick
from nacdrive.envs.base import DrivingEnv, Frame, Info
from nacdrive.envs.camera_noise import CameraNoise, NoisyCamera
from nacdrive.envs.registry import EnvSpec, env_spec
from nacdrive.envs.start import LAP_RULES, LapRule
from nacdrive.rollout.rollout import Probes, rollout

SLOWEST_TOP_SPEED_MPS = 5.0
"""Of a random start with a driver whose top speed is not known."""


@dataclass(frozen=True)
class Drive:
    """One way of driving; plain data, so that it travels to any process and into any file.

    Without ``model`` and ``driver`` the expert drives.
    """

    env: str = "carracing"
    model: Path | None = None
    """File of the policy that drives."""
    driver: str | None = None
    """Who drives instead of a policy: an expert, ``module:MyDriver``, or ``keyboard``: a person."""
    expert: str | None = None
    """Name or file of the expert that rides along; None for none."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the environment, such as ``renderer``, ``laps``, ``repeat``; those that are None count as not given."""
    camera: CameraNoise = field(default_factory=CameraNoise)
    """What is wrong with the driver's camera; the expert sees the true frames."""
    speed_mph: float | None = None
    """Speed that is kept for policies and for experts that the environment knows by name, in miles per hour; None
    leaves the pedals to them. A driver of one's own has its own pedals."""
    device: str = "cpu"
    track: str | None = None
    """On which of the environment's tracks; on all in turn if not given."""
    roads: int | None = None
    """Of random roads, so many different ones; each episode has its own if not given."""
    steering_noise: float = 0.0
    beta: float | None = None
    """Share of the decisions that the expert takes (DAgger); None where it only looks on."""
    recover: bool = True
    """Whether a car that has left the road is put back on it and pays for that, where the environment can."""
    safety_stop: bool = True
    """Whether a safety stop takes over from a driver that fails."""
    random_start: bool = False
    """Whether episodes begin anywhere on the road, with an expert in any hurry, so that recovering is learnt."""
    every_frame: bool = False
    """Whether every frame is looked at, though the expert decides only once in its own number of frames."""
    pace_s: float | None = None
    """In real time: least seconds between two decisions; as the policy was trained, or 0 without a memory, if None."""
    around: tuple[str, ...] = ()
    """Wrappers of one's own around the driver, ``module:MyWrapper``, the innermost first; each is called with it."""

    @classmethod
    def of(cls, config: Any, model: Path | None, usual: Mapping[str, Any], **more: Any) -> Drive:
        """What a verb's ``config`` of ``World``, ``Driving`` and ``CameraOptions`` describes; ``usual``: options of the
        environment where they are not given, ``more``: fields that the verb decides itself.
        """
        speed_mph = config.speed or config.spec.speed_mph
        given = {"options": config.options(**usual), "camera": config.disturbance, "device": config.device}
        return cls(config.env, model, config.driver, speed_mph=speed_mph, **given, **more)

    @property
    def env_spec(self) -> EnvSpec:
        return env_spec(self.env)

    @property
    def name(self) -> str:
        return self.model.name if self.model is not None else str(self.driver or self.expert)

    @property
    def checksum(self) -> str | None:
        """SHA-256 of who drives; None of a driver that is part of nacdrive."""
        return file_checksum(self.model) if self.model is not None else driver_checksum(str(self.driver))

    @property
    def rule(self) -> LapRule | None:
        """When a lap is finished; None where the environment has no such rule."""
        return self.options.get("rule") or LAP_RULES[0] if self.env_spec.honours("rule") else None

    def load(self) -> LoadedDrive:
        return LoadedDrive(self)

    def open(self, seed: int, control: HumanControl | None = None) -> OpenDrive:
        """The episode of ``seed``, ready to be driven; who drives many loads once and opens often."""
        return self.load().open(seed, control=control)

    def to_json(self) -> dict[str, Any]:
        """What is not as usual, as plain JSON; of the model the file's name alone, for folders move."""
        usual = vars(Drive())
        changed = {name: value for name, value in vars(self).items() if value != usual[name]}
        return {"env": self.env, **plain(changed), **({"model": self.model.name} if self.model is not None else {})}

    @classmethod
    def from_json(cls, about: Mapping[str, Any]) -> Drive:
        """The drive that ``to_json`` described; ``UserError`` if another nacdrive described it."""
        with quoted("this drive was described by another nacdrive (", ").", TypeError, ValueError):
            known = dict(about)
            known["camera"] = CameraNoise(**known.get("camera", {}))
            known["around"] = tuple(known.get("around", ()))
            known["model"] = Path(known["model"]) if "model" in known else None
            return cls(**known)


class LoadedDrive:
    """A drive whose networks and drivers are in memory, to be opened for one episode after the other.

    ``driver`` and ``expert`` are given where they are not to be loaded by their names, and ``repeat``, the frames for
    which an action is held, where it is not the driver's pace that counts. Whoever is first asked for a policy, driver
    or expert that is not there or does not fit raises ``UserError``.
    """

    def __init__(
        self, drive: Drive, *, driver: Driver | None = None, expert: Driver | None = None, repeat: int | None = None
    ) -> None:
        self.drive, self.spec = drive, drive.env_spec
        self._asked: int | None = drive.options.get("repeat")
        self._repeat = repeat
        if driver is not None:
            self.driver = driver
        if expert is not None:
            self.expert = expert

    @cached_property
    def driver(self) -> Driver:
        """Who drives, with nothing around."""
        drive, spec = self.drive, self.spec
        if drive.driver == KEYBOARD:
            return Nobody()
        if drive.model is None and drive.driver is None:
            assert self.expert is not None
            return FollowExpert(self.expert.name, self.expert.needs)
        if drive.driver is not None:
            driver = load_expert(drive.driver, device=drive.device, discrete_only=False)
        else:
            assert drive.model is not None
            policy = load_any_policy(drive.model, device=drive.device, expect_task=spec.task or None)
            pace_s = policy.config.gap_s * (policy.config.window > 1) if drive.pace_s is None else drive.pace_s
            driver = PolicyDriver(policy, pace_s if spec.realtime else 0.0)
        check_repeat(spec, driver, self._asked)
        return driver

    @property
    def policy(self) -> PolicyDriver | None:
        return self.driver if isinstance(self.driver, PolicyDriver) else None

    @cached_property
    def expert(self) -> Driver | None:
        if self.drive.expert is None:
            return None
        alone = self.drive.model is None and self.drive.driver is None
        return load_expert(self.drive.expert, discrete_only=not (alone or self.driver.needs.continuous))

    @cached_property
    def repeat(self) -> int:
        return self._repeat or action_repeat(self.spec, self.driver, self._asked)

    @property
    def expert_repeat(self) -> int | None:
        """Frames for which the expert's actions are held; None without one."""
        return None if self.expert is None else action_repeat(self.spec, self.expert, self.repeat)

    @property
    def companion(self) -> Driver | None:
        """Who rides along; None where nobody does, or where the expert decides at another rate than the driver."""
        # Who is to be learnt from is asked at any rate.
        if self.expert is None or (self.drive.beta is None and self.expert_repeat != self.repeat):
            return None
        return Hold(self.expert, self.repeat) if self.drive.every_frame else self.expert

    @property
    def fps(self) -> float:
        """Frames that are looked at per simulated second; a whole number where it is one."""
        if self.spec.frames_per_second is not None:
            fps = self.spec.frames_per_second / self._env_repeat
        else:
            env = self.make_env(0)
            fps = 1 / env.step_s
            env.close()
        return int(fps) if fps == int(fps) else fps

    @property
    def actions(self) -> tuple[str, ...]:
        env = self.make_env(0)
        env.close()
        return env.actions

    @property
    def _env_repeat(self) -> int:
        return 1 if self.drive.every_frame else self.repeat

    def make_env(
        self,
        seed: int,
        *,
        track: str | None = None,
        camera: CameraNoise | None = None,
        more: Mapping[str, Any] | None = None,
        between_frames: bool | None = None,
    ) -> DrivingEnv:
        """The environment of the episode of ``seed``, on the ``track`` that the seed chooses if none is given.

        ``camera`` asks for one that can be made worse on the way, and says how it begins; ``more`` are options of the
        environment that are no plain data; ``between_frames`` is as the driver needs it if not given.
        """
        drive, spec = self.drive, self.spec
        options = {**drive.options, **(more or {})}
        options["track"] = (spec.track_of(drive.track, seed, drive.roads) if track is None else track) or None
        if spec.frames_per_second is not None:
            options["repeat"] = self._env_repeat
        env = spec.make(options | driver_options(spec, self.driver, recover=drive.recover))
        noise = drive.camera if camera is None else camera
        if noise.rate is not None and drive.every_frame:
            raise UserError("--every-frame looks at every frame, and --rate at some: leave one of them out.")
        between = self.driver.needs.between_frames if between_frames is None else between_frames
        return NoisyCamera(env, noise, between) if noise.active or camera is not None else env

    def wrap(
        self,
        env: DrivingEnv,
        *,
        driver: Driver | None = None,
        rng: np.random.Generator | None = None,
        control: HumanControl | None = None,
    ) -> Driver:
        """The driver (in the place of the drive's own the one given) with all that stands around it, the innermost
        first: the expert's share, the speed that is kept, noise of the wheel, wrappers of one's own, the safety stop,
        people. ``rng`` draws the expert's share and the noise.
        """
        drive = self.drive
        whole = own = self.driver if driver is None else driver
        rng = rng or np.random.default_rng()
        if drive.beta is not None:
            first = True if drive.random_start else None
            whole = Mixture(whole, drive.beta, rng, expert_first=first, pedals=own.needs.pedals)
        if drive.driver is None or drive.driver in self.spec.experts:
            whole = at_speed(whole, drive.speed_mph)
        if drive.steering_noise:
            if env.actions:
                raise UserError(f"--steering-noise turns a wheel, and {env.name} has none: leave it out.")
            whole = SteeringNoise(whole, drive.steering_noise, env.step_s, rng)
        for reference in drive.around:
            whole = load_object(reference)(whole)
        if drive.safety_stop and drive.driver != KEYBOARD:
            whole = SafetyStop(whole)
        return HumanOverride(whole, control) if control is not None else whole

    def open(
        self,
        seed: int,
        *,
        episode: int = 0,
        track: str | None = None,
        camera: CameraNoise | None = None,
        env: DrivingEnv | None = None,
        rng: np.random.Generator | None = None,
        control: HumanControl | None = None,
        probes: Probes | None = None,
        realtime: bool = False,
    ) -> OpenDrive:
        """The episode of ``seed``, ready to be driven; see ``make_env`` and ``rollout`` for what is not said here.

        An ``env`` that is given is open already and stays open. ``rng`` is drawn from in the order of the decisions, by
        start, expert's share and wheel; of the seed alone if not given. ``UserError`` if the driver does not fit the
        environment.
        """
        made = self.make_env(seed, track=track, camera=camera) if env is None else env
        opened = OpenDrive(made, seed, episode, probes, realtime, keep=env is not None)
        rng = rng or np.random.default_rng([seed, 7])
        try:
            if self.drive.random_start:
                opened.meta = self.expert.vary(rng) if self.expert is not None else {}
                top_speed = opened.meta.get("top_speed_mps", SLOWEST_TOP_SPEED_MPS)
                unwrapped: Any = opened.env.unwrapped
                opened.start = unwrapped.random_start(rng, top_speed)
            opened.expert = self.companion
            opened.driver = self.wrap(opened.env, rng=rng, control=control)
        except BaseException:
            opened.close()
            raise
        return opened


@dataclass
class OpenDrive(AbstractContextManager["OpenDrive"]):
    """One episode, ready to be driven: iterating it drives, and yields its Ticks; leaving it closes the environment."""

    env: DrivingEnv
    seed: int
    episode: int
    probes: Probes | None
    realtime: bool
    keep: bool
    """Whether the environment stays open."""
    driver: Driver = field(init=False)
    """Who drives, with all that stands around it."""
    expert: Driver | None = None
    start: dict[str, Any] | None = None
    """How the episode begins: for the environment's ``reset``."""
    meta: dict[str, Any] = field(default_factory=dict)
    """What a recording shall say of how the expert drives."""

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if not self.keep:
            self.env.close()

    def __iter__(self) -> Iterator[Tick]:
        return rollout(
            self.env, self.driver, self.seed, episode=self.episode, options=self.start, expert=self.expert,
            probes=self.probes, realtime=self.realtime,
        )  # fmt: skip


class Hold(DriverWrapper):
    """Holds each action of another driver for ``steps`` frames; it sees the first of them alone."""

    def __init__(self, driver: Driver, steps: int) -> None:
        super().__init__(driver)
        self._steps, self._count = steps, 0

    def reset(self, env: DrivingEnv) -> None:
        super().reset(env)
        self._count = 0

    def act(self, frame: Frame, info: Info) -> Action:
        if self._count % self._steps == 0:
            self._action = self.driver.act(frame, info)
        self._count += 1
        return self._action


def action_repeat(spec: EnvSpec, driver: Driver, asked: int | None = None) -> int:
    """Frames for which an action of ``driver`` is held: as it was trained, else ``asked``, else as it or the
    environment has it. In some environments all but drivers with ``fixed_pace`` take time as it comes.
    """
    needs = driver.needs
    own = needs.repeat if spec.drivers_pace or needs.fixed_pace else None
    if own and not needs.any_pace:
        return own
    return asked or own or spec.repeat


def driver_options(spec: EnvSpec, driver: Driver, **also: bool) -> dict[str, bool]:
    """The switches of the environment that ``driver`` needs (see ``Needs``), and ``also`` others, of those it has."""
    needs = driver.needs
    wanted = {"continuous": needs.continuous, "instruments": needs.instruments, "colours": needs.colours, **also}
    known = inspect.signature(spec.build).parameters
    return {name: True for name, on in wanted.items() if on and name in known}


def check_repeat(spec: EnvSpec, driver: Driver, asked: int | None) -> None:
    """Refuse a pace that ``driver`` was not trained at."""
    own = action_repeat(spec, driver, asked)
    if asked is not None and own != asked:
        what = f"--repeat is {asked}, and {driver.name} was trained to decide every {own} frames"
        raise UserError(f"{what}: leave it out.")


def usual_expert(spec: EnvSpec, policy: AnyPolicy) -> str | None:
    """Who rides along with ``policy`` if nobody says otherwise: who labelled what it learnt, where that is an expert
    that the environment knows by name or a driver of nacdrive's own, or else the environment's usual one.
    """
    taught_by = DRIVERS.name_of(str((policy.meta.get("config") or {}).get("expert")))
    own = policy.task == spec.task and taught_by.startswith("nacdrive.drivers.")
    usual = (spec.steering_expert if policy.config.continuous else None) or spec.expert
    # The environment's chooser stands in the training of one that steers where nobody is known.
    is_known = taught_by in spec.experts and (taught_by != spec.expert or usual == spec.expert)
    return taught_by if own or is_known else usual


def warn_of_pixels(policy: AnyPolicy, renderer: str | None) -> None:
    """Say that ``policy`` sees other pictures than those it learnt from: recordings have the official pixels."""
    # Rewards are earned on fast pictures.
    is_used_to_it = "reinforced" in policy.meta or (policy.meta.get("config") or {}).get("renderer") == "fast"
    if renderer == "fast" and not is_used_to_it:
        warnings.warn(
            f"{policy.name} was not trained on the pictures of --renderer fast, which differ from the official ones by "
            "less than a level of 255 on average: leave --renderer out to see how well it drives.",
            stacklevel=2,
        )
