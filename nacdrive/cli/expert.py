"""``nacdrive expert train|eval|export``: the PPO expert."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nacdrive.common.errors import UserError
from nacdrive.rl.config import ExpertTrainConfig

if TYPE_CHECKING:
    from nacdrive.rl.train import Progress
    from nacdrive.rollout.laps import Lap


@dataclass(frozen=True)
class EvalConfig:
    """Drive unseen tracks of the official environment: mean, interval, worst seeds, videos."""

    expert: str = "ppo"
    """Name (ppo, geometric) or file of an exported policy."""
    episodes: int = 100
    """Tracks to drive."""
    seed: int = 1_500_000
    """Seed of the first track. The final test uses 2000000 to 2000099, once."""
    renderer: Literal["official", "fast"] = "official"
    """Pixels that the expert sees."""
    device: str = "cpu"
    """Where the network runs."""
    workers: int = 1
    """Processes that drive."""
    out: Path | None = None
    """Folder for eval.json and the videos of the worst and the best track; none is written unless given."""
    resume: bool = False
    """Keep what the folder holds beside the new result."""
    overwrite: bool = False
    """Delete what the folder holds."""


@dataclass(frozen=True)
class ExportConfig:
    """Turn a stable-baselines3 zip of 'expert train' into a policy file that needs neither pickle nor its version."""

    source: Path
    """The zip, such as runs/expert-seed0/best.zip."""
    out: Path = Path("ppo.pt")
    """The policy file to write."""
    overwrite: bool = False
    """Replace the file if it exists."""


def checked_device(name: str) -> str:
    """``name`` if torch can compute there."""
    import torch

    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"unknown device '{name}': give cpu or cuda.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("there is no CUDA device here that torch can use: give --device cpu.")
    return name


def run_train(config: ExpertTrainConfig) -> int:
    """Train, with a line of progress."""
    from rich.progress import BarColumn, Progress, TextColumn

    from nacdrive.rl.train import train

    checked_device(config.device)
    settings, out = config.settings, config.folder
    columns = (BarColumn(), TextColumn("{task.percentage:.0f} %"), TextColumn("{task.description}"))
    try:
        with Progress(*columns) as bar:
            task = bar.add_task("starting the worker processes", total=settings.timesteps)

            def show(progress: Progress_) -> None:
                bar.update(task, completed=progress.decisions, description=progress_text(progress))
                if progress.evaluation is not None:
                    bar.console.print(evaluation_text(progress))

            best = train(settings, out, resume=config.resume, overwrite=config.overwrite, show=show)
    except KeyboardInterrupt:
        print(
            f"\nnacdrive: stopped; what was learnt until the last checkpoint is kept in {out}: "
            "the same command with --resume goes on.",
            file=sys.stderr,
        )
        return 130
    print(f"best policy: {best}\nSB3 model:   {best.with_suffix('.zip')}")
    print(f"next: nacdrive expert eval --expert {best} --episodes 100")
    return 0


if TYPE_CHECKING:
    Progress_ = Progress


def progress_text(progress: Progress) -> str:
    """Return, speed and time left, in one line."""
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    shown = "-" if math.isnan(progress.mean_return) else f"{progress.mean_return:.0f}"
    return f"return {shown} · {progress.frames_per_s:,.0f} frames/s · {minutes}:{seconds:02d} left"


def evaluation_text(progress: Progress) -> str:
    """One evaluation on the official environment, in one line."""
    found = progress.evaluation or {}
    return (
        f"{progress.decisions:>9,} decisions: official return {found['mean']:.1f} ± {found['std']:.1f}, "
        f"worst {found['min']:.0f} of {found['episodes']}"
    )


def run_eval(config: EvalConfig) -> None:
    """Drive, print the numbers, write them and two videos where asked to."""
    from rich.progress import track

    from nacdrive.common.files import result_folder, write_json
    from nacdrive.common.runs import plain, run_record
    from nacdrive.common.statistics import summary
    from nacdrive.rollout.laps import evaluate

    if config.episodes < 1:
        raise UserError(f"--episodes is {config.episodes}: give at least 1.")
    out = result_folder(config.out, resume=config.resume, overwrite=config.overwrite) if config.out else None
    device = checked_device(config.device)
    seeds = range(config.seed, config.seed + config.episodes)
    print(f"CarRacing-v3, gymnasium {version('gymnasium')}, expert {config.expert}, {config.renderer} renderer")
    bar = iter(track(seeds, description="driving"))
    next(bar)
    laps = evaluate(
        config.expert,
        seeds,
        renderer=config.renderer,
        device=device,
        workers=config.workers,
        show=lambda lap: next(bar, None),  # type: ignore[arg-type]
    )
    found = summary([lap.total for lap in laps])
    print(lines_of(laps, found))
    if out is None:
        return
    record = run_record(config, env="CarRacing-v3", seeds=[seeds.start, seeds.stop - 1], summary=found)
    write_json(out / "eval.json", record | {"laps": plain(laps)})
    ranked = sorted(laps, key=lambda lap: lap.total)
    for name, lap in (("worst", ranked[0]), ("best", ranked[-1])):
        film(config, device, lap.seed, out / f"{name}.mp4")
    print(f"written: {out}/eval.json, worst.mp4 (seed {ranked[0].seed}), best.mp4 (seed {ranked[-1].seed})")


def lines_of(laps: list[Lap], found: dict[str, Any]) -> str:
    """The result of an evaluation, for people."""
    spread = ""
    if found["std"] is not None:
        low, high = found["interval95"]
        spread = f" ± {found['std']:.1f}, 95 % interval of the mean {low:.1f} to {high:.1f}"
    worst = ", ".join(f"{lap.seed}: {lap.total:.1f}" for lap in sorted(laps, key=lambda lap: lap.total)[:5])
    return (
        f"return {found['mean']:.1f}{spread}\n"
        f"median {found['median']:.1f}, min {found['min']:.1f}, max {found['max']:.1f} over {len(laps)} tracks, "
        f"{sum(lap.finished for lap in laps)} laps finished\n"
        f"worst: {worst}"
    )


def film(config: EvalConfig, device: str, seed: int, target: Path) -> None:
    """Drive ``seed`` once more, into a video."""
    from nacdrive.drivers import load_expert
    from nacdrive.drivers.expert_driver import ExpertDriver
    from nacdrive.envs.carracing.env import make_carracing
    from nacdrive.envs.carracing.lazy import FPS
    from nacdrive.rollout.old_loop import drive_episode
    from nacdrive.viz.video import video

    expert = load_expert(config.expert, device=device)
    world: Any = make_carracing(renderer=config.renderer, repeat=expert.repeat)
    with video(target, f"expert {config.expert}, seed {seed}", FPS / expert.repeat) as listener:
        drive_episode(world, ExpertDriver(expert.new_episode, world), seed, listeners=(listener,))


def run_export(config: ExportConfig) -> None:
    """Export a policy."""
    from nacdrive.rl.sb3_export import export

    if config.out.exists() and not config.overwrite:
        raise UserError(f"{config.out} exists: give --overwrite or another --out.")
    print(f"written: {export(config.source, config.out)}")


VERBS = {
    "train": (ExpertTrainConfig, run_train),
    "eval": (EvalConfig, run_eval),
    "export": (ExportConfig, run_export),
}
