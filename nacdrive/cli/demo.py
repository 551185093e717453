"""``nacdrive demo``: record, train, drive and watch; every stage is the verb of that name."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nacdrive.common.errors import UserError
from nacdrive.envs.lap_rules import LapRule
from nacdrive.envs.seeds import POLICY_TEST

if TYPE_CHECKING:
    from nacdrive.cli.drive import DriveConfig
    from nacdrive.rollout.record_config import RecordConfig
    from nacdrive.rollout.train_config import TrainConfig

BATCH = 4
"""Sequences per step: so few laps make too few steps an epoch with more."""


@dataclass(frozen=True)
class DemoConfig:
    """Record, train, drive and watch on CarRacing: the whole job in one command."""

    episodes: int = 8
    """Episodes of the expert to learn from."""
    model: str = "nac-steady"
    """Sequence layer of the policy: nac-steady, nac-exact, nac-euler, lstm or mha."""
    epochs: int = 24
    """Most passes over the recordings, first and after the last round of practice."""
    dagger: int = 2
    """Rounds of practice under the expert's eyes."""
    dagger_episodes: int = 6
    """Episodes driven in each round of practice."""
    seed: int = POLICY_TEST.start
    """Seed of the track that is driven in the end; nothing was recorded or practised on it."""
    out: Path = Path("runs/demo")
    """Folder of everything that the demo makes; a finished stage in it is kept and not done again."""
    host: str = "127.0.0.1"
    """Address of the live page."""
    port: int = 8090
    """Port of the live page; 0 takes a free one."""
    fast: bool = False
    """Drive as fast as possible instead of in real time."""
    headless: bool = False
    """No page."""
    expert: str = "ppo"
    """Who teaches: ppo, geometric, or the path of an exported PPO policy."""
    rule: LapRule | None = None
    """When a lap is finished: as in Gymnasium 1.4 (if not given), or with 95 % of all tiles."""
    workers: int = 0
    """Environments driven in parallel; 0 means one per core."""
    device: str = "cpu"
    """Where the policy is trained: cpu or cuda."""
    overwrite: bool = False
    """Delete --out and begin anew."""

    def __post_init__(self) -> None:
        if self.seed not in POLICY_TEST:
            raise UserError(
                f"--seed is {self.seed}: the demo drives a track never learnt on, from {POLICY_TEST.start} on."
            )


CONFIG = DemoConfig


def run(config: DemoConfig) -> int:
    """Do all stages; those already done are only looked at."""
    from nacdrive.cli import drive, record, train
    from nacdrive.common.files import result_folder
    from nacdrive.rollout.evaluate import EvalJob, EvalSpec, drive_jobs

    began = time.perf_counter()
    recording, training, driving = stages(config)
    check(config, training)
    result_folder(config.out, overwrite=config.overwrite, resume=not config.overwrite)

    heading(1, f"the expert drives {config.episodes} tracks and is recorded")
    if code := record.run(recording):
        return code

    heading(2, f"{config.model} learns from it, and drives while the expert labels in {config.dagger} rounds")
    if code := train.run(training):
        return code

    heading(3, f"it drives track {config.seed}, which it has never seen")
    result = drive.drive(driving)[0]
    model = training.folder / training.file_name
    rule = {"rule": config.rule} if config.rule is not None else {}
    spec = EvalSpec(driving.env, model, expert=config.expert, options=rule)
    ((_, expert),) = drive_jobs(spec, [EvalJob("expert", 0, config.seed)], workers=0)

    print(
        f"\n{config.model}: return {result.episode_return:.1f} on track {config.seed}; "
        f"the expert on the same track: {expert['episode_return']:.1f}\n"
        f"video:  {driving.video}\n"
        f"policy: {model}\n"
        f"all of it took {time.perf_counter() - began:.0f} s.\n\n"
        f"next: nacdrive drive --model {model}\n"
        f"      nacdrive eval --model {model}"
    )
    return 1 if result.failure else 0


def stages(config: DemoConfig) -> tuple[RecordConfig, TrainConfig, DriveConfig]:
    """The verbs that the demo is made of.

    Raises:
        UserError: for options that one of them refuses.
    """
    from nacdrive.cli.drive import DriveConfig
    from nacdrive.rollout.record_config import RecordConfig
    from nacdrive.rollout.train_config import TrainConfig

    recording = RecordConfig(
        episodes=config.episodes,
        expert=config.expert,
        rule=config.rule,
        out=config.out / "recording",
        workers=config.workers,
        resume=True,
    )
    training = TrainConfig(
        model=config.model,
        data=(recording.folder,),
        epochs=config.epochs,
        batch=BATCH,
        dagger=config.dagger,
        dagger_episodes=config.dagger_episodes,
        dagger_epochs=max(1, config.epochs // 2),
        expert=config.expert,
        rule=config.rule,
        workers=config.workers,
        device=config.device,
        out=config.out / "training",
        resume=True,
    )
    driving = DriveConfig(
        model=str(training.folder / training.file_name),
        episodes=1,
        seed=config.seed,
        video=config.out / "drive.mp4",
        overwrite=True,
        headless=config.headless,
        fast=config.fast,
        host=config.host,
        port=config.port,
        hold="no",
        expert=config.expert,
        rule=config.rule,
    )
    return recording, training, driving


def check(config: DemoConfig, training: TrainConfig) -> None:
    """Find mistakes before minutes of work.

    Raises:
        UserError: for an unknown layer or expert, a device that is not there, or a port that is in use.
    """
    from nacdrive.common.net import listen
    from nacdrive.drivers import load_expert
    from nacdrive.layers import check_name
    from nacdrive.models.files import check_device

    check_name(training.model)
    check_device(training.device)
    load_expert(config.expert)
    if not config.headless:
        listen(config.host, config.port).close()


def heading(number: int, text: str) -> None:
    """Say which stage begins."""
    print(f"\n[{number}/3] {text}", flush=True)
