"""``nacdrive demo``: record, train, drive and watch; every stage is the verb of that name."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nacdrive.common.errors import UserError
from nacdrive.common.files import result_folder
from nacdrive.common.options import Device, DrivenPage, Options, Output, Processes, Tracks
from nacdrive.common.runs import RUN, check_resumable
from nacdrive.drivers.options import ExpertOption, check_expert
from nacdrive.envs.registry import env_spec
from nacdrive.envs.seeds import POLICY_TEST
from nacdrive.envs.world import RuleOption
from nacdrive.rollout.record_config import RecordConfig
from nacdrive.rollout.train_config import FREE_TO_CHANGE, DaggerOptions, LayerOption, TrainConfig
from nacdrive.training.config import EpochsOption

if TYPE_CHECKING:
    from nacdrive.cli.drive import DriveConfig
    from nacdrive.datasets.episode import Episode

FILMS = "none: pip install 'nacdrive[viz]' adds films"
BATCH = 4
"""Sequences per step: so few laps make too few steps an epoch with more."""


class DemoConfig(
    LayerOption, EpochsOption, DaggerOptions, ExpertOption, RuleOption, Tracks, DrivenPage, Device, Processes, Output,
    defaults={
        "episodes": 8,
        "epochs": 18,
        "dagger": 2,
        "dagger_episodes": 6,
        "seed": POLICY_TEST.start,
        "out": Path("runs/demo"),
        "expert": "ppo",
    },
):  # fmt: skip
    """Record, train, drive and watch on CarRacing: the whole job in one command.

    --seed is that of the track that is driven in the end; nothing was recorded or practised on it. A finished stage in
    --out is kept and not done again.
    """

    if TYPE_CHECKING:
        # Never None, as of other verbs.
        out: Path
        expert: str

    def __post_init__(self) -> None:
        super().__post_init__()
        check_expert(env_spec("carracing"), self.expert)
        if self.seed not in POLICY_TEST:
            what = f"--seed is {self.seed}"
            raise UserError(f"{what}: the demo drives a track never learnt on, from {POLICY_TEST.start} on.")


def run(config: DemoConfig) -> int:
    """Do all stages; those already done are only looked at."""
    from nacdrive.cli import drive
    from nacdrive.rollout.drive import Drive
    from nacdrive.rollout.evaluate import EvalJob, drive_jobs

    began = time.perf_counter()
    recording, training, driving = stages(config)
    check(config, training)
    result_folder(config.out, overwrite=config.overwrite, resume=not config.overwrite, own=recording.folder.name)
    driving = replace(driving, page_port=record_and_train(config, recording, training))

    print(f"\n[3/3] it drives track {config.seed}, which it has never seen", flush=True)
    result = drive.drive(driving)[0]
    model = training.folder / training.file_name
    rule = {"rule": config.rule} if config.rule is not None else {}
    watched = Drive(driving.env, model, expert=config.expert, options=rule)
    ((_, expert),) = drive_jobs(watched, [EvalJob("expert", 0, config.seed)], workers=0)

    print(
        f"\n{config.model}: return {result.episode_return:.1f} on track {config.seed}; "
        f"the expert on the same track: {expert['episode_return']:.1f}\n"
        f"video:  {driving.video or FILMS}\n"
        f"policy: {model}\n"
        f"all of it took {time.perf_counter() - began:.0f} s.\n\n"
        f"next: nacdrive drive --model {model}\n"
        f"      nacdrive eval --model {model}"
    )
    return 1 if result.failure else 0


def record_and_train(config: DemoConfig, recording: RecordConfig, training: TrainConfig) -> int:
    """The first two stages, watched on a page; the port of it, where the page of the third stage takes its place."""
    from nacdrive.cli import record, train
    from nacdrive.cli.page import open_page, show_in_browser
    from nacdrive.extras.learning.card import LearningCard
    from nacdrive.rollout.train_policy import TrainCallbacks

    card, port = LearningCard(), config.page_port

    def heading(number: int, text: str) -> None:
        print(f"\n[{number}/3] {text}", flush=True)
        card.stage(text)

    def show_recorded(episode: Episode, path: Path | None) -> None:
        if path is not None:
            card.lap(episode, config.expert)

    with ExitStack() as stack:
        if not config.headless:
            title = f"{config.model} learns from {config.expert} on {recording.spec.title}"
            page = open_page(stack, config.host, port, title, [card], choices=recording.spec.actions)
            port = page.port
            show_in_browser(page.url)
        heading(1, f"the expert drives {config.episodes} tracks and is recorded")
        record.run(recording, show_recorded)
        heading(2, f"{config.model} learns from it, and drives while the expert labels {config.dagger} times")
        train.run(training, TrainCallbacks(card.step, on_episode=lambda _, episode: card.lap(episode, config.expert)))
    return port


def stages(config: DemoConfig) -> tuple[RecordConfig, TrainConfig, DriveConfig]:
    """The verbs that the demo is made of."""
    from nacdrive.cli.drive import DriveConfig

    def given(*groups: type[Options]) -> dict[str, Any]:
        """What these groups of options are in the demo's own config."""
        return {name: value for group in groups for name, value in vars(group.of(config)).items()}

    driven = given(ExpertOption, RuleOption)
    done = {**driven, "workers": config.workers, "resume": True}
    recording = RecordConfig(**done, episodes=config.episodes, out=config.out / "recording")
    training = TrainConfig(
        **done,
        **given(EpochsOption, DaggerOptions, Device),
        model=config.model,
        paper_form=config.paper_form,
        data=(recording.folder,),
        batch_size=BATCH,
        dagger_epochs=max(1, config.epochs // 2),
        out=config.out / "training",
    )
    driving = DriveConfig(
        **driven,
        **given(DrivenPage),
        model=str(training.folder / training.file_name),
        episodes=1,
        seed=config.seed,
        video=config.out / "drive.mp4" if find_spec("imageio_ffmpeg") else None,
        overwrite=True,
        hold="no",
    )
    return recording, training, driving


def check(config: DemoConfig, training: TrainConfig) -> None:
    """Find mistakes before minutes of work."""
    from nacdrive.common.net import listen
    from nacdrive.drivers import load_expert
    from nacdrive.layers import check_name
    from nacdrive.models.files import check_device

    if config.episodes < 2:
        raise UserError("--episodes is 1: give 2 or more, one of which is kept to choose by.")
    check_name(training.model)
    check_device(training.device)
    load_expert(config.expert)
    if not config.overwrite and (training.folder / RUN).exists():
        # The epochs of a round follow from --epochs.
        free = {*FREE_TO_CHANGE, "dagger_epochs"} - {"epochs"}
        check_resumable(training.folder, training, free, write=False)
        if (kept := len([*training.data[0].glob("*.parquet")])) != config.episodes:
            problem = f"{training.folder} has learnt from {kept} laps, and --episodes is {config.episodes}"
            raise UserError(f"{problem}: give another --out, or --overwrite.")
    if not config.headless:
        listen(config.host, config.page_port).close()
