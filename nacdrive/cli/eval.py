"""``nacdrive eval``: many unseen tracks, numbers with intervals, a report, three videos."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from nacdrive.common.errors import UserError, unknown_name
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.seeds import POLICY_TEST

if TYPE_CHECKING:
    from nacdrive.rollout.results import Row
    from nacdrive.rollout.workers import Job

ENVIRONMENTS = ("carracing", "udacity")


@dataclass(frozen=True)
class EvalConfig:
    """Drive many unseen tracks: metrics, report, videos."""

    env: Annotated[str, tyro.conf.arg(aliases=["--sim"])] = "carracing"
    """What is driven: carracing, or the built-in tracks of udacity."""
    model: str = "nac_steady.pt"
    """The policy: a file, or the name of a shipped one."""
    episodes: int = 20
    """Number of tracks; of udacity, skies under which each of its tracks is driven."""
    seed: int = POLICY_TEST.start
    """Seed of the first track; the others have the following seeds. No training touches the default ones."""
    out: Path | None = None
    """Folder of the result; runs/eval-MODEL if not given, with the disturbance in its name."""
    workers: int = 0
    """Processes that drive; 0 means one per core."""
    expert: str = "ppo"
    """Whose returns on the same tracks are the measure: ppo, geometric, an exported PPO policy, or none."""
    renderer: Literal["official", "fast"] = "official"
    """Pixels of the simulator: the official ones, or the quicker grey ones."""
    watch: bool = False
    """Drive in this process alone and show it on the live page."""
    host: str = "127.0.0.1"
    """Address of that page."""
    port: int = 8090
    """Port of that page; 0 takes a free one."""
    videos: bool = True
    """Film the worst, the median and the best drive; of udacity, the worst on each track."""
    track: Literal["both", "lake", "mountain"] = "both"
    """Track of udacity."""
    laps: float = 3
    """udacity: laps of a drive."""
    speed: float = 20.0
    """udacity: speed to keep, in miles per hour; slower in bends."""
    repeat: int = 4
    """udacity: steps of 0.02 s between two frames."""
    data: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="DIR [DIR ...]")] = ()
    """udacity: logs or recordings on which the steering is compared too."""
    device: str = "cpu"
    """Where the policy runs: cpu, cuda or cuda:N."""
    disturbance: Annotated[CameraNoise, tyro.conf.arg(name="")] = field(default_factory=CameraNoise)
    """What is wrong with the policy's camera; the expert sees the true frames."""
    resume: bool = False
    """Drive only the tracks that --out does not hold yet."""
    overwrite: bool = False
    """Delete the result in --out first."""

    def __post_init__(self) -> None:
        if self.env not in ENVIRONMENTS:
            raise unknown_name("environment", self.env, ENVIRONMENTS)
        if self.episodes < 1:
            raise UserError(f"--episodes is {self.episodes}: it must be at least 1.")
        if self.seed < 0:
            raise UserError(f"--seed is {self.seed}: it must not be negative.")
        if self.workers < 0:
            raise UserError(f"--workers is {self.workers}: give 0 (one per core) or more.")
        if self.laps <= 0 or self.repeat < 1:
            raise UserError("--laps must be above 0, and --repeat at least 1.")
        if not 0 < self.speed <= 30:
            raise UserError(f"--speed is {self.speed:g}: give 1 to 30 miles per hour, the car goes no faster.")
        if self.data and self.env != "udacity":
            raise UserError("--data goes with --sim udacity.")

    @property
    def folder(self) -> Path:
        """Folder of the result."""
        if self.out is not None:
            return self.out
        d = self.disturbance
        parts = {"noise": d.noise, "blackout": d.blackout, "delay": d.delay_steps}
        named = [f"{name}-{value:g}" for name, value in parts.items() if value]
        named += [f"brightness-{d.brightness:g}"] if d.brightness != 1 else []
        sim = ["udacity"] if self.env == "udacity" else []
        return Path("runs") / "-".join(["eval", *sim, Path(self.model).stem, *named])


CONFIG = EvalConfig


def run(config: EvalConfig) -> None:
    """Evaluate and say how it went."""
    if config.env == "udacity":
        from nacdrive.cli.eval_udacity import evaluate_udacity

        evaluate_udacity(config)
    else:
        evaluate(config)


def evaluate(config: EvalConfig) -> dict[str, Any]:
    """Evaluate as ``config`` says; prints progress and the result, returns the metrics."""
    from nacdrive.cli.page import open_page
    from nacdrive.common.files import result_folder
    from nacdrive.common.paths import find_model
    from nacdrive.common.runs import usable_cores
    from nacdrive.drivers import load_expert
    from nacdrive.envs.carracing.env import ACTIONS
    from nacdrive.models import load_policy
    from nacdrive.rollout import evaluate as evaluation
    from nacdrive.rollout.workers import Course

    model = find_model(config.model, config.env)
    # What can be refused is refused before a folder is made or deleted.
    policy = load_policy(model, device=config.device, expect_task=config.env)
    expert = None if config.expert == "none" else config.expert
    if expert is not None:
        load_expert(expert)
    course = Course(model, expert, config.device, config.renderer, config.disturbance, config.env)
    with ExitStack() as stack:
        listeners = []
        if config.watch:
            what = {"circuit": policy.circuit(), "choices": ACTIONS}
            page = open_page(stack, config.host, config.port, f"{policy.name} on CarRacing", **what)
            listeners.append(page.publish)
        out = result_folder(config.folder, overwrite=config.overwrite, resume=config.resume)
        show = stack.enter_context(Show(config.episodes, expert is not None))
        metrics = evaluation.evaluate(
            evaluation.Evaluation(course, config.seed, config.episodes, films=config.videos),
            out,
            workers=0 if config.watch else config.workers or usable_cores(),
            listeners=listeners,
            progress=show,
            config=config,
        )
    print(sentence(metrics))
    print(f"report: {out / 'report.html'}")
    return metrics


class Show:
    """Progress on the terminal: how many tracks are driven, by whom, and the mean return so far."""

    def __init__(self, episodes: int, with_expert: bool) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description:<8}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[mean]}"),
        )
        names = ("policy", "expert") if with_expert else ("policy",)
        self._tasks = {name: self._progress.add_task(name, total=episodes, mean="") for name in names}
        self._returns: dict[str, list[float]] = {name: [] for name in names}

    def __enter__(self) -> Show:
        """Begin to show."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last state on the screen."""
        self._progress.stop()

    def __call__(self, job: Job, row: Row) -> None:
        """One more episode is driven, or driven again for a video."""
        if job.film is not None:
            self._progress.console.print(f"filmed track {job.seed}: {job.film}")
            return
        returns = self._returns[job.who]
        returns.append(row["episode_return"])
        mean = f"mean return {sum(returns) / len(returns):.0f}, last {returns[-1]:.0f}"
        self._progress.update(self._tasks[job.who], advance=1, mean=mean)


def sentence(metrics: dict[str, Any]) -> str:
    """The result in a few lines."""
    own, expert, share = metrics["return"], metrics["expert_return"], metrics["expert_fraction"]
    lines = [
        f"return {described(own)} over {len(metrics['episodes'])} tracks (min {own['min']:.0f}, max {own['max']:.0f})"
    ]
    if expert is not None:
        lines.append(f"expert {described(expert)} on the same tracks")
    if share is not None:
        interval = share["interval95"]
        sure = f" (95 %: {interval[0]:.1%} to {interval[1]:.1%})" if interval else ""
        lines.append(f"that is {share['value']:.1%} of the expert's return{sure}")
    if metrics["safety_stops"]:
        reasons = sorted({row["failure"] for row in metrics["episodes"] if row["failure"]})
        lines.append(f"safety stops: {metrics['safety_stops']} ({'; '.join(reasons)})")
    return "\n".join(lines)


def described(numbers: dict[str, Any]) -> str:
    """Mean, spread and interval."""
    if numbers["std"] is None:
        return f"{numbers['mean']:.1f}"
    low, high = numbers["interval95"]
    return f"{numbers['mean']:.1f} +- {numbers['std']:.1f} (95 %: {low:.1f} to {high:.1f})"
