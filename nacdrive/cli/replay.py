"""``nacdrive replay``: recorded episodes on the live page, with a player under it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from nacdrive.common.errors import UserError
from nacdrive.common.options import Page, SaliencyOption, VideoOption
from nacdrive.datasets.options import EpisodeOption, RecordingsOption
from nacdrive.drivers.options import ModelIfGiven
from nacdrive.extras.arena.standings import ARENA

if TYPE_CHECKING:
    from nacdrive.envs.base import DrivingEnv
    from nacdrive.envs.registry import EnvSpec
    from nacdrive.extras.what_if import WhatIfSource
    from nacdrive.extras.what_if.what_if import WhatIf
    from nacdrive.models.policy import Policy
    from nacdrive.rollout.drive import Drive
    from nacdrive.web.episode_cache import ReplaySource


@dataclass(frozen=True)
class ReplayConfig(
    RecordingsOption, ModelIfGiven, EpisodeOption, Page, SaliencyOption, VideoOption, defaults={"saliency_every": 4}
):
    """Watch recorded episodes again: play, pause, seek, step, compare two runs on one time axis.

    --model looks at the recorded frames: its decisions and neurons stand beside the recorded expert.
    Recordings, evaluations (their filmed drives) and arenas (all contestants' drives) can be laid over each other.
    With --video the episode is written there, and no page is opened.
    """

    positional = ("data", "model")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.data:
            raise UserError("name a recording to replay, such as recordings/carracing-sample.")


CONFIG = ReplayConfig


def run(config: ReplayConfig) -> int:
    """Serve the page until Ctrl-C, or write the video."""
    from nacdrive.common.files import refuse_existing
    from nacdrive.extras.what_if import WhatIfCard
    from nacdrive.web.episode_cache import EpisodeCache
    from nacdrive.web.replay import ReplayServer, film

    if config.video is not None:
        refuse_existing(config.video, overwrite=config.overwrite, flag="--video")
    runs: list[ReplaySource] = []
    sources: dict[int, WhatIfSource] = {}
    for part in (part for folder in config.data for part in parts_of(folder)):
        source, what_if = open_run(part, config)
        if what_if is not None:
            sources[len(runs)] = what_if
        runs.append(source)
    if config.video is not None:
        first = runs[0]
        if not 0 <= config.episode < len(first.labels):
            raise UserError(f"--episode is {config.episode}: this recording has episodes 0 to {len(first.labels) - 1}.")
        film(first.load(config.episode), config.video, first.name, first.caption(config.episode), first.choices)
        print(f"video: {config.video}")
        return 0
    cache = EpisodeCache(runs)
    cards = [WhatIfCard.of_recordings(cache, sources)] if sources else []
    server = ReplayServer(cache, config.host, config.page_port, cards=cards)
    print(f"watch at {server.start()}  (Ctrl-C ends it)", flush=True)
    try:
        Event().wait()
    except KeyboardInterrupt:
        print()
    finally:
        server.stop()
    return 0


def parts_of(folder: Path) -> list[Path]:
    """``folder`` itself, or the recordings of an arena's contestants.

    Raises:
        UserError: if one of those is not there.
    """
    from nacdrive.common.files import read_json

    if not (folder / ARENA).is_file():
        return [folder]
    parts = [folder / str(one["drives"]) for one in read_json(folder / ARENA)["contestants"]]
    gone = next((part for part in parts if not part.is_dir()), None)
    if gone is not None:
        raise UserError(f"{gone} is not there, which {folder / ARENA} names: bring it back, or drive again.")
    return parts


def kept_in(folder: Path) -> Path:
    """The recording in ``folder``: itself, or the drives that an evaluation kept.

    Raises:
        UserError: if it is an evaluation without drives.
    """
    from nacdrive.datasets.manifest import DRIVES

    if not (folder / "evaluation.json").exists():
        return folder
    if not (folder / DRIVES).is_dir():
        raise UserError(f"{folder} kept no drives: evaluate with videos, and without --no-videos.")
    return folder / DRIVES


def open_run(folder: Path, config: ReplayConfig) -> tuple[ReplaySource, WhatIfSource | None]:
    """A recording as a run of the page, seen by the policy of ``--model`` if there is one, whom one may ask then."""
    from nacdrive.datasets.recording import Recording
    from nacdrive.envs.registry import spec_of_source
    from nacdrive.rollout.expert_scores import scores_of_evaluation
    from nacdrive.viz.recorded import recorded_ticks
    from nacdrive.web.episode_cache import EpisodeLabel, ReplaySource

    recording = Recording.open(kept_in(folder))
    source = str(recording.meta["source"])
    scores = scores_of_evaluation(folder)
    labels = [
        EpisodeLabel(info.seed, info.steps, info.episode_return, info.driver, scores.get(info.path.name))
        for info in recording.episodes
    ]
    spec = spec_of_source(source)
    choices, task = (spec.actions, spec.task) if spec is not None else ((), source)
    expert = recording.meta.get("expert")
    if config.model is None:
        recorded = ReplaySource(
            folder.name, labels, lambda i: recorded_ticks(recording.load(i), i, expert), choices, expert=expert
        )
        return recorded, None

    import torch

    from nacdrive.cli.page import network_view
    from nacdrive.common.paths import find_model
    from nacdrive.models import load_policy
    from nacdrive.models.tuning import read_tuning
    from nacdrive.viz.recorded import driven_actions
    from nacdrive.viz.trace import retrace

    torch.set_num_threads(1)
    policy = load_policy(find_model(config.model, task), expect_task=task)
    every = config.saliency_every
    retraced = ReplaySource(
        folder.name,
        labels,
        lambda i: retrace(policy, recording.load(i), number=i, saliency_every=every),
        choices,
        policy=policy.name,
        expert=expert,
        tuning=read_tuning(find_model(config.model, task)),
        driven=lambda i: driven_actions(recording.load(i)),
        **network_view(policy),
    )
    return retraced, what_if_of(folder, config, policy)


def what_if_of(folder: Path, config: ReplayConfig, policy: Policy) -> WhatIfSource:
    """Whom the page asks what would be if at a recorded moment, in another process."""
    from functools import partial

    from nacdrive.datasets.recording import Recording
    from nacdrive.envs.registry import spec_of_source
    from nacdrive.extras.what_if import WhatIfSource

    meta = Recording.open(kept_in(folder)).meta
    spec = spec_of_source(str(meta["source"]))
    # An episode recorded frame by frame says nothing of the rate at which its driver decided.
    again = spec is not None and not spec.realtime and not meta.get("recipe", {}).get("every_frame")
    load = partial(load_what_if, folder, str(config.model))
    return WhatIfSource(load, policy.config.window, again, again and spec is not None and spec.expert is not None)


def load_what_if(folder: Path, model: str) -> WhatIf:
    """Called in the process that answers: the policy, and the world of the recording as far as it is told."""
    from nacdrive.common.paths import find_model
    from nacdrive.datasets.recording import Recording
    from nacdrive.drivers.policy import PolicyDriver
    from nacdrive.envs.registry import spec_of_source
    from nacdrive.extras.what_if.what_if import JPEG_LEVELS, Simulation, WhatIf
    from nacdrive.models import load_policy
    from nacdrive.rollout.drive import LoadedDrive

    recording = Recording.open(kept_in(folder))
    spec = spec_of_source(str(recording.meta["source"]))
    task = spec.task if spec is not None else str(recording.meta["source"])
    path = find_model(model, task)
    policy = load_policy(path, expect_task=task)
    if spec is None or spec.realtime:
        return WhatIf(policy)
    repeat = round(spec.frames_per_second / recording.meta["fps"]) if spec.frames_per_second is not None else None
    drive = drive_of(recording.meta, spec)
    # An expert that was recorded had its own pedals, a policy that steers alone has none.
    drive = replace(drive, model=path, driver=None, speed_mph=drive.speed_mph or spec.speed_mph)
    loaded = LoadedDrive(drive, driver=PolicyDriver(policy), repeat=repeat)
    places = {info.seed: i for i, info in enumerate(recording.episodes)}

    def make_env(seed: int) -> DrivingEnv:
        return loaded.make_env(seed, track=recording.load(places[seed]).meta.get("track"))

    apart = JPEG_LEVELS if spec.image_format == "jpeg" else 0.0
    beside = (lambda: loaded.expert) if drive.expert is not None else None
    return WhatIf(policy, Simulation(make_env, lambda driver, env: loaded.wrap(env, driver=driver), beside, apart))


def drive_of(meta: Mapping[str, Any], spec: EnvSpec) -> Drive:
    """How the episodes of a recording were driven: as it says, or else as is usual."""
    from nacdrive.rollout.drive import Drive

    recipe, expert = meta.get("recipe", {}), str(meta.get("expert") or spec.expert)
    known = expert if expert in spec.experts else None
    if "drive" in meta:
        # A file names no code that is run.
        plain = replace(Drive.from_json(meta["drive"]), env=spec.name, driver=None, around=())
        return replace(plain, expert=known, steering_noise=0.0, beta=None)
    options = {name: recipe.get(name) for name in ("renderer", "rule")}
    return Drive(spec.name, expert=known, options=options, speed_mph=spec.speed_mph, recover=False, safety_stop=False)
