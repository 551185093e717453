"""``nacdrive expert train|imitate|eval|export``: trained experts."""

from __future__ import annotations

import math
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from nacdrive.common.errors import UserError
from nacdrive.common.files import refuse_existing, result_folder
from nacdrive.common.options import Device, Result, Target, Tracks, Workers
from nacdrive.drivers.options import ExpertOption, check_expert
from nacdrive.envs.start import LAP_RULES
from nacdrive.envs.world import EnvOption, RendererOption, RepeatOption, RuleOption
from nacdrive.rl.config import ExpertImitateConfig, ExpertTrainConfig, ImitateConfig, PpoConfig

if TYPE_CHECKING:
    from nacdrive.rl.imitate import Progress as RoundProgress
    from nacdrive.rl.train import Progress
    from nacdrive.rollout.results import Row


class EvalConfig(
    EnvOption, RuleOption, RendererOption, RepeatOption, ExpertOption, Device, Tracks, Result, Workers,
    defaults={"expert": "ppo", "episodes": 100, "seed": 1_500_000, "workers": 1},
):  # fmt: skip
    """Drive unseen tracks with an expert: mean, interval, worst seeds, a report, videos; nothing is kept without --out.

    The final test of an expert uses the seeds 2000000 to 2000099, once.
    """

    begins_episodes = True
    positional = ("expert",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.expert is None:
            raise UserError("nobody is named who drives: give --expert.")
        check_expert(self.spec, self.expert)
        if self.out is None and (self.resume or self.overwrite):
            raise UserError("--resume and --overwrite are of what --out holds: give --out.")


class ExportConfig(RepeatOption, Target, defaults={"out": Path("ppo.pt")}):
    """Turn a zip of stable-baselines3's PPO, of 'expert train' or of another's, into a policy file of tensors and JSON;
    nothing of the zip is unpickled. Zips of 'expert train' know their --repeat."""

    positional = ("agent",)

    agent: Path
    """The zip, such as runs/expert-seed0/best.zip."""
    grey: bool = False
    """Another's agent sees grey frames although their number divides by three."""


def run_train(config: ExpertTrainConfig) -> None:
    """Train, with a line of progress."""
    from nacdrive.common.progress import progress_bar, resumable
    from nacdrive.models.files import check_device
    from nacdrive.rl.train import train

    check_device(config.device)
    settings, out = PpoConfig.of(config), config.folder
    with resumable(lambda: f"what was learnt until the last checkpoint is kept in {out}"), progress_bar() as bar:
        task = bar.add_task("training", total=settings.timesteps, state="starting the worker processes")

        def show(progress: Progress) -> None:
            minutes, seconds = divmod(round(progress.seconds_left), 60)
            shown = "-" if math.isnan(progress.mean_return) else f"{progress.mean_return:.0f}"
            state = f"return {shown} · {progress.frames_per_s:,.0f} frames/s · {minutes}:{seconds:02d} left"
            bar.update(task, completed=progress.decisions, state=state)
            if (evaluation := progress.evaluation) is not None:
                bar.console.print(
                    f"{progress.decisions:>9,} decisions: official return {mean_text(evaluation)}, "
                    f"worst {evaluation['min']:.0f} of {evaluation['episodes']}"
                )

        best = train(settings, out, resume=config.resume, overwrite=config.overwrite, ray=config.ray, show=show)
    print(f"best policy: {best}\nSB3 model:   {best.with_suffix('.zip')}")
    print(f"next: nacdrive expert eval --expert {best} --env {config.env} --episodes 100")


def run_imitate(config: ExpertImitateConfig) -> None:
    """Teach, with a line for each round."""
    from nacdrive.common.progress import progress_console, resumable
    from nacdrive.rl.imitate import imitate

    console = progress_console()
    settings, out = ImitateConfig.of(config), config.folder
    again = {"resume": config.resume, "overwrite": config.overwrite}
    with resumable(lambda: f"whole rounds are kept in {out}"):
        best = imitate(settings, out, **again, show=lambda progress: console.print(round_text(progress)))
    print(f"best agent: {best}\nnext: nacdrive expert eval --expert {best} --episodes 100")


def round_text(progress: RoundProgress) -> str:
    """One round of imitation, in one line."""
    drives = "" if math.isnan(progress.mean_return) else f", return of the drives {progress.mean_return:.0f}"
    text = (
        f"round {progress.round} of {progress.rounds}: {progress.decisions:,} decisions labelled{drives}, "
        f"loss {progress.loss:.4f}, {progress.seconds / 60:.0f} min"
    )
    evaluation = progress.evaluation
    if evaluation is None:
        return text
    return (
        f"{text}\n  unseen tracks, fast renderer: {mean_text(evaluation)}, worst {evaluation['min']:.0f}, "
        f"{evaluation['finished']} of {evaluation['episodes']} laps finished"
    )


def mean_text(returns: dict[str, Any]) -> str:
    """Mean and, where there is one, the standard deviation."""
    return f"{returns['mean']:.1f}" + ("" if returns["std"] is None else f" ± {returns['std']:.1f}")


def run_eval(config: EvalConfig) -> dict[str, Any]:
    """Drive, print the numbers, write them, a report and videos where asked to."""
    from nacdrive.common.progress import progress_bar
    from nacdrive.models.files import check_device
    from nacdrive.rollout.drive import Drive
    from nacdrive.rollout.evaluate import evaluate

    check_device(config.device)
    env = config.spec
    renderer = {"renderer": config.renderer or "official"} if env.honours("renderer") else {}
    options: dict[str, Any] = {"laps": 1.0} if env.honours("laps") else {}
    options |= {"rule": config.rule or LAP_RULES[0]} if env.honours("rule") else {}
    options |= {"repeat": config.repeat} if config.repeat is not None else {}
    pace: dict[str, Any] = {"speed_mph": env.speed_mph, "device": config.device}
    drive = Drive(config.env, driver=config.expert, options=renderer | options, **pace)
    # What can be refused is refused before a folder is made or deleted.
    _ = drive.load().driver
    seeds = range(config.seed, config.seed + config.episodes)
    about = "".join(f", {value} renderer" for value in renderer.values())
    about += f", rule {drive.rule}" if drive.rule is not None else ""
    print(f"{env.title}, gymnasium {version('gymnasium')}, expert {config.expert}{about}")
    with TemporaryDirectory() as nowhere, progress_bar() as bar:
        out = Path(nowhere)
        if config.out is not None:
            again = {"resume": config.resume, "overwrite": config.overwrite}
            out = result_folder(config.out, **again, reads=[config.expert], own="evaluation.json")
        task = bar.add_task("driving", total=len(seeds) * len(env.tracks), state="")
        metrics = evaluate(
            drive, seeds, out, workers=0 if config.workers == 1 else config.at_once, films=config.out is not None,
            progress=lambda job, row: bar.advance(task), config=config, ray=config.ray,
        )  # fmt: skip
    print(lines_of(metrics["episodes"], metrics["return"]))
    if config.out is not None:
        print(f"report: {out / 'report.html'}")
    return {name: metrics[name] for name in ("return", "episodes")}


def lines_of(rows: list[Row], returns: dict[str, Any]) -> str:
    """The result of an evaluation, for people."""
    sure = mean_text(returns)
    if interval := returns["interval95"]:
        sure += f", 95 % interval of the mean {interval[0]:.1f} to {interval[1]:.1f}"
    ranked = sorted(rows, key=lambda row: row["episode_return"])
    worst = ", ".join(f"{row['seed']}: {row['episode_return']:.1f}" for row in ranked[:5])
    return (
        f"return {sure}\n"
        f"median {returns['median']:.1f}, min {returns['min']:.1f}, max {returns['max']:.1f} over {len(rows)} tracks, "
        f"{sum(row['finished_lap'] for row in rows)} laps finished\n"
        f"worst: {worst}"
    )


def run_export(config: ExportConfig) -> None:
    """Export a policy."""
    from nacdrive.rl.sb3 import export

    refuse_existing(config.out, overwrite=config.overwrite)
    print(f"written: {export(config.agent, config.out, repeat=config.repeat, grey=config.grey)}")


VERBS = {
    "train": (ExpertTrainConfig, run_train),
    "imitate": (ExpertImitateConfig, run_imitate),
    "eval": (EvalConfig, run_eval),
    "export": (ExportConfig, run_export),
}
