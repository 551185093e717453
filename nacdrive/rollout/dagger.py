"""DAgger (Ross, Gordon & Bagnell, 2011): the policy drives, the expert says of every frame what it would have done."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from nacdrive.common.errors import UserError
from nacdrive.common.parallel import run_jobs
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.writer import RecordingWriter
from nacdrive.drivers import load_expert
from nacdrive.drivers.base import Driver
from nacdrive.drivers.mixture import Mixture
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.drivers.steering_noise import SteeringNoise
from nacdrive.drivers.tick import Tick
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.lap_rules import LapRule
from nacdrive.envs.registry import EnvSpec, env_spec
from nacdrive.envs.seeds import POLICY_RECORDING
from nacdrive.envs.udacity_track.options import RoadOptions
from nacdrive.models import Policy, PolicyConfig, load_policy
from nacdrive.rollout.environment import action_repeat, driver_options, make_env, recorded_fps, step_options
from nacdrive.rollout.record import Start
from nacdrive.rollout.recorder import EpisodeBuffer, expert_action
from nacdrive.rollout.rollout import rollout
from nacdrive.rollout.train_config import SEEDS_PER_ROUND

FIRST_SEED = (POLICY_RECORDING.start + POLICY_RECORDING.stop) // 2
"""Tracks of DAgger come from the second half of those for recording."""
LOST_AFTER = 30
"""Decisions without progress after which an episode ends: the expert's advice out there teaches nothing."""
STEERING_NOISE = 0.3
"""Of environments that are recorded with a disturbed wheel: the policy's own errors are what there is to learn from,
a little more shows it their neighbours."""


@dataclass(frozen=True)
class DaggerRound:
    """One round: which policy drives which tracks, and how often the expert does; plain data."""

    policy: Path
    """The policy's file."""
    expert: str
    """Name or file of the expert."""
    round: int
    """Number of the round, from 1."""
    episodes: int
    """Tracks to drive."""
    beta: float
    """Share of decisions that the expert drives."""
    seed: int
    """Seeds who drives when, and which tracks are driven."""
    env: str = "carracing"
    """What is driven."""
    max_frames: int = 1000
    """Simulated frames after which an episode ends."""
    track: str | None = None
    """On which of the environment's tracks; on all in turn if not given."""
    roads: int | None = None
    """Of random roads, so many different ones; each episode has its own if not given."""
    road: RoadOptions = field(default_factory=RoadOptions)
    """How random roads are, and what is wrong with a road."""
    rule: LapRule | None = None
    """When a lap of CarRacing is finished; as Gymnasium has it if not given."""
    disturbance: CameraNoise = field(default_factory=CameraNoise)
    """What is wrong with the policy's camera on every second track, so that it learns with a good one too."""

    @property
    def env_spec(self) -> EnvSpec:
        """What there is to know of the environment."""
        return env_spec(self.env)

    @property
    def tracks(self) -> range:
        """Seeds of the tracks."""
        slot = self.seed % 20 * 25 + (self.round - 1) % 25
        first = FIRST_SEED + slot * SEEDS_PER_ROUND
        return range(first, first + self.episodes)


def collect(
    round_: DaggerRound,
    out: Path,
    workers: int,
    on_episode: Callable[[Episode], None] = lambda episode: None,
    *,
    ray: str | None = None,
) -> None:
    """Drive the round's tracks and keep them as a recording in ``out``; tracks that are there already are not driven.

    ``workers`` processes drive; with one it is done here.

    Raises:
        UserError: if expert and policy decide at different rates, or a driving process dies.
    """
    here = MixtureWorker(round_)
    asked = {"track": round_.track, "roads": round_.roads, "rule": round_.rule}
    roads = {name: value for name, value in asked.items() if value is not None} | round_.road.given
    camera = {"camera": str(round_.disturbance)} if round_.disturbance.active else {}
    writer = RecordingWriter(
        out,
        source=round_.env_spec.source,
        fps=recorded_fps(round_.env_spec, here.repeat),
        expert=here.expert.name,
        recipe={"dagger_round": round_.round, "beta": round_.beta, "seed": round_.seed, **roads, **camera},
        resume=True,
    )
    there = {info.seed for info in writer.episodes}
    missing = [track for track in round_.tracks if track not in there]
    if ray is None and min(workers, len(missing)) <= 1:
        done = run_jobs(here.drive, missing, workers=0)
    else:
        done = run_jobs(_drive_track, missing, workers=workers, initializer=_start_worker, initargs=(round_,), ray=ray)
    with closing(done):
        for _, episode in done:
            writer.add(episode)
            on_episode(episode)


def check_pace(spec: EnvSpec, expert: Driver, repeat: int) -> int:
    """Frames for which an action is held, of expert and policy alike.

    Args:
        spec: What is driven.
        expert: Who gives the labels.
        repeat: Frames for which the policy's actions are held.

    Raises:
        UserError: if they decide at different rates.
    """
    expected = action_repeat(spec, expert)
    if spec.drivers_pace and expected != repeat and expert.needs.repeat:
        raise UserError(
            f"the expert decides every {expected} frames and the policy every {repeat}: "
            "record with this expert, without --every-frame, and train on that."
        )
    return repeat if spec.drivers_pace else expected


def check_kind(spec: EnvSpec, expert: Driver, policy: PolicyConfig) -> None:
    """Refuse an expert that steers by degrees for a policy that chooses, and the other way round.

    Raises:
        UserError: for such a one.
    """
    steers = expert.needs.continuous
    if spec.actions and steers != policy.continuous:
        labels = "has continuous actions" if steers else f"chooses among {len(spec.actions)} actions"
        recorded = "steering and pedals" if policy.continuous else "choices"
        raise UserError(
            f"{expert.name} {labels}, and the recordings hold {recorded}: give the --expert who labelled them."
        )


class MixtureWorker:
    """A policy and its expert in one process.

    Args:
        round_: What they drive.
        policy: Who learns; read from the round's file if not given.
    """

    def __init__(self, round_: DaggerRound, policy: Policy | None = None) -> None:
        self.round = round_
        self.policy = policy or load_policy(round_.policy)
        self.expert = load_expert(round_.expert, discrete_only=False)
        check_kind(round_.env_spec, self.expert, self.policy.config)
        self.repeat = check_pace(round_.env_spec, self.expert, self.policy.repeat)

    def drive(self, track: int) -> Episode:
        """One episode on ``track``: the policy drives, at times the expert, which labels all of it.

        It depends on the round and the track alone. ``choice`` or ``steering`` of the episode is what was driven,
        ``expert_choice`` or ``expert_steering`` the label.
        """
        round_, spec = self.round, self.round.env_spec
        options = {"max_frames": round_.max_frames, "rule": round_.rule, **round_.road.given}
        options["track"] = spec.track_of(round_.track, track, round_.roads) or None
        learner = PolicyDriver(self.policy)
        options |= {**step_options(spec, self.repeat), **driver_options(spec, learner)}
        disturbance = round_.disturbance if track % 2 else CameraNoise()
        env = make_env(spec, options, disturbance)
        disturbed = spec.steering_noise is not None
        try:
            start = Start.of(spec, env, self.expert, track)
            # Where the wheel is disturbed, one generator draws the start and all that follows.
            rng = start.rng if disturbed else np.random.default_rng([round_.seed, round_.round, track])
            first = True if disturbed else None
            mixture = Mixture(learner, round_.beta, rng, expert_first=first, pedals=self.policy.config.pedal)
            driver: Driver = SteeringNoise(mixture, STEERING_NOISE, env.step_s, rng) if disturbed else mixture
            buffer = EpisodeBuffer(expert_action, spec.image_format)
            newest_s = -math.inf
            for tick in supervised(env, driver, self.expert, track, start.options):
                # Where no newer frame has come, the policy's last decision holds: there is nothing to learn.
                if (taken_s := float(tick.info.get("frame_t_s", tick.t_s))) > newest_s:
                    buffer(replace(tick, t_s=taken_s))
                    newest_s = taken_s
            buffer.ended = tick.events[-1] if tick.done else "time is up"
            # What these recordings have always said of themselves, so that they stay the same byte for byte.
            meta = dict(start.meta) if disturbed else {"expert_share": mixture.expert_share}
            meta |= {name: value for name, value in env.episode_meta().items() if name != "finished_lap"}
            meta |= {"camera": str(disturbance)} if disturbance.active else {}
            return buffer.episode(source=spec.source, driver=self.policy.name, meta=meta)
        finally:
            env.close()


def supervised(
    env: DrivingEnv, driver: Driver, expert: Driver, track: int, options: dict[str, Any] | None = None
) -> Iterator[Tick]:
    """A drive whose every decision bears the expert's label; it ends early, after a Tick that is not ``done``, where
    it gets nowhere for ``LOST_AFTER`` decisions.
    """
    furthest, last_gain = 0.0, 0
    for tick in rollout(env, driver, track, options=options, expert=expert):
        progress = float(tick.next_info.get("progress", tick.step + 1))
        if progress > furthest:
            furthest, last_gain = progress, tick.step + 1
        yield tick
        if not tick.done and tick.step + 1 - last_gain >= LOST_AFTER:
            return


_worker: MixtureWorker


def _start_worker(round_: DaggerRound) -> None:
    """Make this process ready to drive."""
    global _worker
    _worker = MixtureWorker(round_)


def _drive_track(track: int) -> Episode:
    return _worker.drive(track)
