"""DAgger (Ross, Gordon & Bagnell, 2011): the policy drives, the expert says of every frame what it would have done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nacdrive.common.action import FULL_BRAKE, Action
from nacdrive.common.errors import UserError
from nacdrive.common.parallel import run_by_method
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.writer import RecordingWriter
from nacdrive.drivers import load_expert
from nacdrive.drivers.base import Driver
from nacdrive.drivers.mixture import Mixture
from nacdrive.drivers.override import Override
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.drivers.speed_control import SpeedControl, SpeedController
from nacdrive.drivers.tick import Tick
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.registry import EnvSpec
from nacdrive.envs.seeds import POLICY_RECORDING
from nacdrive.envs.start import BESIDE_M, bad_start
from nacdrive.models import Policy, PolicyConfig, load_policy
from nacdrive.rollout.drive import Drive, LoadedDrive, OpenDrive, action_repeat
from nacdrive.rollout.recorder import EpisodeBuffer, expert_action
from nacdrive.rollout.train_config import SEEDS_PER_ROUND

FIRST_SEED = (POLICY_RECORDING.start + POLICY_RECORDING.stop) // 2
"""Tracks of DAgger come from the second half of those for recording."""
LOST_AFTER = 30
"""Decisions without progress after which an episode ends: the expert's advice out there teaches nothing."""
RECOVERY_S = 8.0
"""Of a bad start: until then the car may get nowhere."""
BRAKED_S = 3.0
"""For how long the brake is on at most, whatever the policy decides, at a bad start or where the car was led off."""
LED_AT_S, LED_S = (2.0, 6.0), (0.4, 1.5)
"""When a car is led off the road at the earliest and latest, and for how long, the wheel to one side."""
STEERING_NOISE = 0.3
"""Of environments that are recorded with a disturbed wheel: the policy's own errors are what there is to learn from,
a little more shows it their neighbours."""


@dataclass(frozen=True)
class DaggerRound:
    """One round: which policy drives which tracks, and how often the expert does; plain data."""

    drive: Drive
    """The policy and its expert, who drives a share ``beta`` of the decisions; what is wrong with the camera is so on
    every second track, so that the policy learns with a good one too."""
    round: int
    """Number of the round, from 1."""
    episodes: int
    seed: int
    """Seeds who drives when, and which tracks are driven."""
    vary_camera: bool = False
    """Draw for every drive what is wrong with its camera, at most as much as there."""
    bad_starts: float = 0.0
    """Share of the drives that begin badly, or are led off the road on their way."""
    cases: tuple[tuple[int, Drive], ...] = ()
    """Episodes in the place of tracks in turn: the seed of each, and how it is driven. Its start is its own, its camera
    where anything is wrong with it, and the wheel is not disturbed."""

    @property
    def tracks(self) -> Sequence[int]:
        if self.cases:
            return [seed for seed, _ in self.cases]
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
    """
    here = MixtureWorker(round_)
    drive = round_.drive
    asked = {"track": drive.track, "roads": drive.roads, **drive.options}
    roads = {name: value for name, value in asked.items() if value is not None and name != "max_frames"}
    camera = {"camera": str(drive.camera)} if drive.camera.active else {}
    writer = RecordingWriter(
        out,
        source=drive.env_spec.source,
        fps=here.loaded(CameraNoise()).fps,
        expert=here.expert.name,
        recipe={"dagger_round": round_.round, "beta": drive.beta, "seed": round_.seed, **roads, **camera},
        resume=True,
    )
    there = {info.seed for info in writer.episodes}
    missing = [track for track in round_.tracks if track not in there]
    processes = 0 if ray is None and min(workers, len(missing)) <= 1 else workers
    with closing(run_by_method(MixtureWorker, (round_,), "drive", missing, workers=processes, ray=ray)) as done:
        for _, episode in done:
            writer.add(episode)
            on_episode(episode)


def check_pace(spec: EnvSpec, expert: Driver, repeat: int) -> int:
    """Frames that expert and policy hold an action for; ``UserError`` if they decide at different rates."""
    expected = action_repeat(spec, expert)
    if spec.drivers_pace and expected != repeat and expert.needs.repeat:
        what = f"the expert decides every {expected} frames and the policy every {repeat}"
        raise UserError(f"{what}: record with this expert, without --every-frame, and train on that.")
    return repeat if spec.drivers_pace else expected


def check_kind(spec: EnvSpec, expert: Driver, policy: PolicyConfig) -> None:
    """Refuse an expert that steers by degrees for a policy that chooses, and the other way round."""
    steers = expert.needs.continuous
    if spec.actions and steers != policy.continuous:
        labels = "has continuous actions" if steers else f"chooses among {len(spec.actions)} actions"
        recorded = "steering and pedals" if policy.continuous else "choices"
        what = f"{expert.name} {labels}, and the recordings hold {recorded}"
        raise UserError(f"{what}: give the --expert who labelled them.")


class MixtureWorker:
    """A policy and its expert in one process; the ``policy`` is read from the round's file if it is not given."""

    def __init__(self, round_: DaggerRound, policy: Policy | None = None) -> None:
        drive, spec = round_.drive, round_.drive.env_spec
        assert drive.model is not None and drive.expert is not None
        self.round = round_
        self.learner = PolicyDriver(policy or load_policy(drive.model))
        self.expert = load_expert(drive.expert, discrete_only=False)
        check_kind(spec, self.expert, self.learner.policy.config)
        self.repeat = check_pace(spec, self.expert, self.learner.policy.repeat)
        self.disturbed = spec.steering_noise is not None

    def loaded(self, camera: CameraNoise, case: Drive | None = None) -> LoadedDrive:
        """How the round is driven, or a ``case`` of its own, seen through ``camera``."""
        disturbed = self.disturbed and case is None
        drive = replace(
            self.round.drive if case is None else replace(case, beta=self.round.drive.beta),
            camera=camera,
            steering_noise=STEERING_NOISE if disturbed else 0.0,
            recover=False,
            safety_stop=False,
            random_start=disturbed,
        )
        return LoadedDrive(drive, driver=self.learner, expert=self.expert, repeat=self.repeat)

    def drive(self, track: int) -> Episode:
        """One episode on ``track``, by the round and the track alone: the policy drives, at times the expert, which
        labels all. ``choice`` or ``steering`` of the episode is what was driven, ``expert_choice`` or
        ``expert_steering`` the label.
        """
        round_ = self.round
        camera = round_.drive.camera if track % 2 else CameraNoise()
        if round_.vary_camera:
            camera = round_.drive.camera.draw(np.random.default_rng([round_.seed, round_.round, track, 1]))
        case = dict(round_.cases).get(track)
        camera = case.camera if case is not None and case.camera.active else camera
        loaded = self.loaded(camera, case)
        rng = None if loaded.drive.random_start else np.random.default_rng([round_.seed, round_.round, track])
        buffer = EpisodeBuffer(expert_action, loaded.spec.image_format)
        chosen = np.random.default_rng([round_.seed, round_.round, track, 2])
        is_bad = case is None and chosen.random() < round_.bad_starts
        with loaded.open(track, rng=rng) as opened:
            whole = opened.driver
            if (top_speed := opened.meta.get("top_speed_mps")) and not self.learner.needs.pedals:
                # As in a drive: slower where it steers, and nobody brakes before a bend.
                opened.driver = SpeedControl(whole, SpeedController(top_speed))
            if is_bad:
                begin_badly(opened, chosen, loaded.spec.lost_m)
            patience = LOST_AFTER + round(RECOVERY_S / opened.env.step_s) * (is_bad or case is not None)
            for tick in supervised(opened, patience):
                # Where no newer frame has come, the policy's last decision holds: there is nothing to learn.
                if not tick.held:
                    buffer(replace(tick, t_s=tick.taken_s, frame_t_s=None))
            meta = {"expert_share": whole.expert_share} if isinstance(whole, Mixture) else opened.meta
            meta |= {name: value for name, value in opened.env.episode_meta().items() if name != "finished_lap"}
        # What a held action brought counts, too.
        buffer.total, buffer.ended = tick.episode_return, tick.events[-1] if tick.done else "time is up"
        meta |= {"camera": str(camera)} if camera.active else {}
        return buffer.episode(source=loaded.spec.source, driver=self.learner.name, meta=meta)


def begin_badly(opened: OpenDrive, rng: np.random.Generator, lost_m: float) -> float:
    """Let a drive begin beside the road, or the car be led off it on its way; seconds from which on it is let go."""
    side, led_at_s = Action(float(rng.choice((-1.0, 1.0))), 0.0, 0.0), rng.uniform(*LED_AT_S)
    led_until_s = led_at_s + rng.uniform(*LED_S)
    # Where a drive ends a little beside the road, one that is led off it ends there.
    if rng.integers(2) or lost_m <= BESIDE_M:
        opened.start, led_at_s, led_until_s = bad_start(rng, lost_m), 0.0, 0.0
    free_s = led_until_s + float(rng.uniform(0, BRAKED_S))
    opened.driver = Override(opened.driver, (led_at_s, None), (led_until_s, side), (free_s, FULL_BRAKE))
    return free_s


def supervised(opened: OpenDrive, patience: int = LOST_AFTER) -> Iterator[Tick]:
    """A drive whose every decision bears the expert's label; it ends, not ``done``, where so many get it nowhere."""
    furthest, last_gain = 0.0, 0
    for tick in opened:
        progress = float(tick.next_info.get("progress", tick.step + 1))
        if progress > furthest:
            furthest, last_gain = progress, tick.step + 1
        yield tick
        if not tick.done and tick.step + 1 - last_gain >= patience:
            return
