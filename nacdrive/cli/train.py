"""``nacdrive train``: a policy learns from recordings, and drives while the expert labels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nacdrive.rollout.train_config import TrainConfig

if TYPE_CHECKING:
    from nacdrive.datasets.episode import Episode
    from nacdrive.rollout.train_policy import TrainCallbacks
    from nacdrive.training.fit import FitResult, FitUpdate


def run(config: TrainConfig, also: TrainCallbacks | None = None) -> dict[str, Any]:
    """Train, with a bar that shows round, epoch and losses; ``also`` is called of steps and episodes too."""
    from nacdrive.common.progress import progress_bar, resumable
    from nacdrive.models import load_policy
    from nacdrive.rollout.train_policy import TrainCallbacks, train_policy
    from nacdrive.tasks import load_task

    also = also or TrainCallbacks()
    measure = load_task(config.task).measure_name
    with resumable(lambda: f"the last checkpoint is kept in {config.folder}"), progress_bar() as bar:
        shown = bar.add_task(f"training {config.model}", total=None, state="reading the recordings")
        returns: list[float] = []

        def on_step(update: FitUpdate) -> None:
            also.on_step(update)
            p = update.progress
            best = f", best {p.best_loss:.3f}" if math.isfinite(p.best_loss) else ""
            bar.update(
                shown,
                description=f"round {p.round}" if config.dagger else f"training {config.model}",
                total=update.steps * update.epochs,
                completed=update.steps * p.epoch + p.step,
                state=f"epoch {p.epoch + 1} of {update.epochs}, loss {update.train_loss:.3f}{best}",
            )

        def on_round(round_: int, result: FitResult) -> None:
            p = result.progress
            validated = "without validation"
            if math.isfinite(p.best_loss):
                validated = f"validation loss {p.best_loss:.3f}, {in_words(measure, p.best_measure)}"
            bar.console.print(
                f"round {round_}: {result.train_steps} frames, {p.epoch} epochs in {p.seconds:.0f} s, {validated}"
            )
            returns.clear()

        def on_episode(round_: int, episode: Episode) -> None:
            also.on_episode(round_, episode)
            returns.append(episode.episode_return)
            mean = sum(returns) / len(returns)
            bar.update(
                shown,
                description=f"round {round_}: driving",
                total=config.dagger_episodes,
                completed=len(returns),
                state=f"return {mean:.0f} on average",
            )
            if len(returns) == config.dagger_episodes:
                bar.console.print(f"round {round_}: drove {len(returns)} tracks, return {mean:.0f} on average")

        path = train_policy(config, TrainCallbacks(on_step, on_round, on_episode))
    meta = load_policy(path).meta
    validated = "no frames kept aside"
    if meta["valid_loss"] is not None:
        validated = f"{in_words(measure, meta[f'valid_{measure}'])} ({meta['valid_frames']} frames kept aside)"
    print(f"{path}: {meta['train_frames']} frames of {meta['episodes']} episodes, {validated}")
    numbers = ("episodes", "train_frames", "valid_frames", "valid_loss", f"valid_{measure}")
    return {"model": path, **{name: meta[name] for name in numbers if name in meta}}


def in_words(measure: str, value: float) -> str:
    """A task's measure in words."""
    if measure == "accuracy":
        return f"as the expert in {value:.1%} of the frames"
    return f"validation {measure if measure == 'error' else measure.upper()} {value:.4f}"
