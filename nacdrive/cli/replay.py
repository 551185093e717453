"""``nacdrive replay``: recorded episodes on the live page, with a player under it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nacdrive.common.errors import MISFITS, UserError, named, quoted
from nacdrive.common.files import read_json, refuse_existing
from nacdrive.common.options import Page, SaliencyOption, VideoOption
from nacdrive.common.paths import find_model
from nacdrive.datasets.options import EpisodeOption, RecordingsOption
from nacdrive.drivers.options import ModelIfGiven
from nacdrive.envs.registry import spec_of_source, task_of_source
from nacdrive.extras.arena.standings import ARENA
from nacdrive.rollout.results import scores_of_evaluation

if TYPE_CHECKING:
    from nacdrive.extras.export.card import Lap
    from nacdrive.extras.what_if import WhatIfSource
    from nacdrive.web.card import Card
    from nacdrive.web.episode_cache import ReplaySource


class ReplayConfig(
    RecordingsOption, ModelIfGiven, EpisodeOption, Page, SaliencyOption, VideoOption, defaults={"saliency_every": 4}
):
    """Watch recorded episodes again: play, pause, seek, step, compare two runs on one time axis.

    --model looks at the recorded frames: its decisions and neurons stand beside the recorded expert.
    Recordings, evaluations (their filmed drives) and arenas (all contestants' drives) can be laid over each other.
    With --video the episode is written there, and no page is opened.
    """

    positional = ("data", "model")
    wanted = "a recording to replay, such as recordings/carracing-sample"


def run(config: ReplayConfig) -> None:
    """Serve the page until Ctrl-C, or write the video."""
    from nacdrive.cli.share import playground_of
    from nacdrive.web.episode_cache import EpisodeCache
    from nacdrive.web.replay import ReplayServer, film

    if config.video is not None:
        refuse_existing(config.video, overwrite=config.overwrite, flag="--video")
    runs: list[ReplaySource] = []
    sources: dict[int, WhatIfSource] = {}
    laps: dict[int, Lap] = {}
    for part in (part for folder in config.data for part in parts_of(folder)):
        source, seen = open_run(part, config)
        if seen is not None:
            sources[len(runs)], laps[len(runs)] = seen
        runs.append(source)
    if config.video is None and config.episode:
        raise UserError("--episode is of --video: choose the episode on the page.")
    if config.video is not None:
        first, *more = runs
        if more:
            raise UserError("--video films one recording: name one alone.")
        if not 0 <= config.episode < len(first.labels):
            raise UserError(f"--episode is {config.episode}: this recording has episodes 0 to {len(first.labels) - 1}.")
        film(first.load(config.episode), config.video, first.name, first.caption(config.episode), first.choices)
        print(f"video: {config.video}")
        return
    cache = EpisodeCache(runs)
    cards: list[Card] = []
    if sources:  # of a model, which needs torch
        from nacdrive.extras.export.card import LapCard
        from nacdrive.extras.what_if import WhatIfCard

        cards = [WhatIfCard.of_recordings(cache, sources), LapCard(laps, playground_of)]
    with ReplayServer(cache, config.host, config.page_port, cards=cards) as server:
        server.stay(f"watch at {server.url}  (Ctrl-C ends it)")


def parts_of(folder: Path) -> list[Path]:
    """``folder`` itself, or the recordings of an arena's contestants."""
    if not (folder / ARENA).is_file():
        return [folder]
    with quoted(f"{folder / ARENA} is damaged (", "): drive the arena again.", *MISFITS, say=named):
        parts = [folder / str(one["drives"]) for one in read_json(folder / ARENA)["contestants"]]
    if (gone := next((part for part in parts if not part.is_dir()), None)) is not None:
        raise UserError(f"{gone} is not there, which {folder / ARENA} names: bring it back, or drive again.")
    return parts


def open_run(folder: Path, config: ReplayConfig) -> tuple[ReplaySource, tuple[WhatIfSource, Lap] | None]:
    """A recording as a run of the page; seen by the policy of ``--model``, it can be asked, and its lap be sent."""
    from nacdrive.datasets.recording import Recording, kept_in
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
    choices, task = (spec.actions if spec is not None else ()), task_of_source(source)
    expert = recording.meta.get("expert")
    if config.model is None:
        recorded = ReplaySource(
            folder.name, labels, lambda i: recorded_ticks(recording.load(i), i, expert), choices, expert=expert
        )
        return recorded, None

    import torch

    from nacdrive.cli.page import network_view
    from nacdrive.extras.what_if.recorded import what_if_of
    from nacdrive.models import load_policy
    from nacdrive.viz.recorded import driven_actions
    from nacdrive.viz.trace import retrace, why_of

    torch.set_num_threads(1)
    model = find_model(config.model, task)
    policy = load_policy(model, expect_task=task)
    retraced = ReplaySource(
        folder.name,
        labels,
        lambda i: retrace(policy, recording.load(i), number=i, saliency_every=config.saliency_every),
        choices,
        policy=policy.name,
        expert=expert,
        driven=lambda i: driven_actions(recording.load(i)),
        why=partial(why_of, policy.copy(), policy.meter(), names=choices),
        **network_view(policy),
    )
    return retraced, (what_if_of(kept_in(folder), str(config.model), policy), (model, recording.load))
