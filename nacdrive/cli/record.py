"""``nacdrive record``: an expert drives, its episodes are kept."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from nacdrive.common.action import KEYBOARD
from nacdrive.rollout.record_config import RecordConfig

if TYPE_CHECKING:
    from nacdrive.datasets.episode import Episode
    from nacdrive.drivers.human import HumanControl
    from nacdrive.drivers.tick import Listener
    from nacdrive.rollout.record import OnEpisode, RecordProgress, RecordResult


def run(config: RecordConfig, also: OnEpisode = lambda episode, path: None) -> RecordResult:
    """Record, with a bar that shows episodes, frames per second and returns; ``also`` hears of each episode."""
    from nacdrive.common.progress import progress_bar, resumable
    from nacdrive.rollout.record import record_episodes

    began = time.perf_counter()
    returns: list[float] = []
    kept = 0
    with (
        resumable(lambda: f"{kept} of {config.episodes} episodes are complete and kept in {config.folder}"),
        ExitStack() as stack,
        progress_bar() as bar,
    ):
        task = bar.add_task(f"recording {config.env}", total=config.episodes, state="starting the simulators")

        def show_episode(episode: Episode, path: Path | None) -> None:
            also(episode, path)
            what = f"seed {episode.seed}: return {episode.episode_return:.1f}, {len(episode)} frames"
            if path is None:
                bar.console.print(f"{what}: dropped, below --min-return {config.min_return:g}")
                return
            returns.append(episode.episode_return)
            bar.console.print(f"{what} -> {path.name}")

        def show_progress(progress: RecordProgress) -> None:
            nonlocal kept
            kept = progress.kept
            speed = progress.frames / (time.perf_counter() - began)
            mean = f", return {sum(returns) / len(returns):.0f} on average" if returns else ""
            dropped = f", {progress.dropped} dropped" if progress.dropped else ""
            state = f"{kept}/{config.episodes} episodes, {progress.frames} frames, {speed:.0f}/s{mean}{dropped}"
            bar.update(task, completed=kept, state=state)

        listeners, control = watched(config, stack)
        result = record_episodes(config, show_episode, show_progress, listeners, control)
        bar.update(task, completed=len(result.episodes))
    seconds = time.perf_counter() - began
    all_returns = [info.episode_return for info in result.episodes]
    print(
        f"{config.folder}: {len(all_returns)} episodes, {sum(info.steps for info in result.episodes)} frames, "
        f"return {sum(all_returns) / len(all_returns):.1f} on average "
        f"(least {min(all_returns):.1f}, most {max(all_returns):.1f})"
    )
    if result.frames:
        print(f"recorded {result.frames} frames in {seconds:.1f} s ({result.frames / seconds:.0f} frames/s)")
    if config.log is not None:
        print(f"{config.log}: the same as driving_log.csv and IMG")
    if result.dropped:
        worst = ", ".join(f"{seed} ({value:.0f})" for seed, value in sorted(result.dropped.items()))
        print(f"dropped {len(result.dropped)} tracks below --min-return {config.min_return:g}: {worst}")
    return result


def watched(config: RecordConfig, stack: ExitStack) -> tuple[list[Listener] | None, HumanControl | None]:
    """Who hears of every decision, and the person's orders; None where nobody watches."""
    if not config.watch:
        return None, None
    from nacdrive.cli.page import open_page
    from nacdrive.drivers.human import HumanControl
    from nacdrive.rollout.drive import Drive

    control = HumanControl(needs_person=True) if config.by_hand else None
    who = "a person" if config.by_hand else config.driver or config.expert
    choices = Drive(config.env, driver=KEYBOARD).load().actions
    title = f"{who} on {config.spec.title}, recorded"
    return [open_page(stack, config.host, config.page_port, title, choices=choices, control=control).publish], control
