"""``nacdrive eval``: many unseen tracks, numbers with intervals, a report, videos."""

from __future__ import annotations

import math
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nacdrive.common.errors import UserError
from nacdrive.rollout.eval_config import EvalConfig

if TYPE_CHECKING:
    from rich.progress import Progress

    from nacdrive.rollout.evaluate import EvalJob
    from nacdrive.rollout.results import Row
    from nacdrive.web import LiveServer

COMMON = ("drives", "flawless", "safety_stops")
"""Of the numbers of a track, those that every environment has."""


def run(config: EvalConfig) -> dict[str, Any]:
    """Evaluate as ``config`` says; prints progress and the result, returns the metrics."""
    from nacdrive.cli.page import open_page
    from nacdrive.common.files import result_folder, write_json
    from nacdrive.common.paths import find_model
    from nacdrive.common.plugins import load_object
    from nacdrive.common.progress import progress_bar
    from nacdrive.common.runs import run_record
    from nacdrive.drivers.exported import ExportedPolicy
    from nacdrive.drivers.policy import PolicyDriver
    from nacdrive.rollout.drive import LoadedDrive, usual_expert, warn_of_pixels
    from nacdrive.rollout.evaluate import Report, claim, evaluate, identify
    from nacdrive.viz.report import write_report

    env = config.spec
    drive = config.driven(find_model(config.model, env.task) if config.driver is None else None)
    # What can be refused is refused before a folder is made or deleted.
    if config.videos:
        import imageio_ffmpeg  # noqa: F401
    driver = drive.load().driver
    policy = driver.policy if isinstance(driver, PolicyDriver) else None
    if policy is not None:
        drive = drive if config.expert is not None else replace(drive, expert=usual_expert(env, policy))
        warn_of_pixels(policy, config.renderer)
    loaded = LoadedDrive(drive, driver=driver)
    _ = loaded.expert
    if isinstance(policy, ExportedPolicy) and config.data:
        raise UserError("--data is for a .pt policy: compare the one that was exported, it steers the same.")
    reads = [drive.model, drive.driver, drive.expert, *config.data]
    again: dict[str, Any] = {"overwrite": config.overwrite, "resume": config.resume, "reads": reads}
    offline, verdict = None, ""
    if env.judge is not None and policy is not None and config.data:
        # Imported here, for it brings torch, without which exported policies drive.
        from nacdrive.extras.verdict.log_verdict import in_words as verdict_lines

        offline = load_object(env.judge)(policy, config.data)
        verdict = "\n".join(verdict_lines(offline))
    if offline is not None and not config.count:
        out = result_folder(config.folder, **again, own="evaluation.json")
        claim(out / "evaluation.json", identify(drive) | {"data": list(map(str, config.data))})
        judged = {"env": env.title, "model": identify(drive), "offline": offline, "run": run_record(config)}
        write_json(out / "metrics.json", judged)
        print(verdict)
        print(f"numbers: {out / 'metrics.json'}")
        return judged
    reports: list[Report] = [write_report]
    # An exported policy can be no page, and is driven without torch.
    if drive.model is not None and policy is not None and not isinstance(policy, ExportedPolicy):
        reports.insert(0, partial(write_laps, drive.model))
    tracks = env.tracks_of(config.track)
    seeds = range(config.seed, config.seed + config.count)
    with ExitStack() as stack:
        listeners = []
        show = Show(stack.enter_context(progress_bar()), len(tracks) * len(seeds), drive.expert is not None)
        if config.watch:
            what: dict[str, Any] = {"choices": loaded.actions}
            what |= {"circuit": policy.circuit()} if policy is not None else {}
            show.page = open_page(stack, config.host, config.page_port, f"{driver.name} on {env.title}", **what)
            listeners.append(show.page.publish)
        out = result_folder(config.folder, **again, own="evaluation.json")
        metrics = evaluate(
            drive,
            seeds,
            out,
            tracks=tracks,
            films=config.videos,
            workers=0 if config.watch else config.at_once,
            listeners=listeners,
            progress=show,
            config=config,
            ray=config.ray,
            reports=reports,
        )
    if offline is not None:
        metrics["offline"] = offline
        write_json(out / "metrics.json", metrics)
    print(in_words(metrics, drive.options.get("laps", math.nan)) + (f"\n{verdict}" if verdict else ""))
    print(f"report: {out / 'report.html'}")
    return metrics


def write_laps(model: Path, out: Path, metrics: dict[str, Any]) -> None:
    """Write each kept drive as a page to send, to which the report links; of a policy that can be one."""
    from nacdrive.datasets.manifest import DRIVES
    from nacdrive.extras.export.html import export_html

    for entry in metrics["films"].values():
        page = out / Path(entry["file"]).with_suffix(".html")
        with suppress(UserError):
            if not page.exists():
                export_html(model, out / DRIVES / entry["drive"], page)


class Show:
    """Progress on the terminal (episodes, by whom, mean return); on a page each drive beside the expert's score."""

    def __init__(self, progress: Progress, episodes: int, with_expert: bool) -> None:
        self._progress = progress
        names = ("policy", "expert") if with_expert else ("policy",)
        self._tasks = {name: progress.add_task(name, total=episodes, state="") for name in names}
        self._returns: dict[str, list[float]] = {name: [] for name in names}
        self._experts: dict[tuple[str, int], float] = {}
        self.page: LiveServer | None = None

    def __call__(self, job: EvalJob, row: Row) -> None:
        """One more episode is driven, or driven again for a video."""
        if job.film is not None:
            self._progress.console.print(f"filmed track {f'{job.track} '.lstrip()}{job.seed}: {job.film}")
            return
        returns = self._returns[job.who]
        returns.append(row["episode_return"])
        state = f"{len(returns)} driven, mean return {sum(returns) / len(returns):.0f}, last {returns[-1]:.0f}"
        self._progress.update(self._tasks[job.who], advance=1, state=state)
        if job.who == "expert":
            self._experts[job.track, job.seed] = row["episode_return"]
        elif self.page is not None:
            from nacdrive.cli.page import end_card

            self.page.result(end_card(row, row["ending"], self._experts.get((job.track, job.seed))))


def in_words(metrics: dict[str, Any], laps: float) -> str:
    """The result in a few lines; ``laps`` is how many each drive was to have."""
    lines = on_tracks(metrics, laps) if "tracks" in metrics else returns(metrics)
    for whose, rows in (("", metrics["episodes"]), ("the expert's ", metrics["expert_episodes"])):
        if reasons := [row["failure"] for row in rows if row["failure"]]:
            lines.append(f"{whose}safety stops: {len(reasons)} ({'; '.join(sorted(set(reasons)))})")
    if (offline := metrics.get("offline")) is not None:
        lines.append(
            f"on {offline['frames']} recorded frames: MSE {offline['mse']['mean']:.4f}, "
            f"MAE {offline['mae']['mean']:.4f} "
            f"(predicting zero: {offline['zero_mse']['mean']:.4f}, {offline['zero_mae']['mean']:.4f})"
        )
    return "\n".join(lines)


def returns(metrics: dict[str, Any]) -> list[str]:
    """Returns of the policy and of the expert."""
    own, expert, share = metrics["return"], metrics["expert_return"], metrics["expert_fraction"]
    rule = f", rule {metrics['rule']}" if "rule" in metrics else ""
    span = f"(min {own['min']:.0f}, max {own['max']:.0f}{rule})"
    lines = [f"return {described(own)} over {len(metrics['episodes'])} tracks {span}"]
    if expert is not None:
        lines.append(f"expert {described(expert)} on the same tracks")
    if share is not None:
        interval = share["interval95"]
        sure = f" (95 %: {interval[0]:.1%} to {interval[1]:.1%})" if interval else ""
        lines.append(f"that is {share['value']:.1%} of the expert's return{sure}")
    return lines


def on_tracks(metrics: dict[str, Any], laps: float) -> list[str]:
    """How well the policy kept to each track, and the expert beside it."""
    lines = []
    for track, n in metrics["tracks"].items():
        low, high = n["flawless"]["interval95"]
        of_laps = "" if math.isnan(laps) else f" of {laps:g} laps"
        how = "never left the road" if "off_road_events" in n else "needed no safety stop"
        drives = f"{n['flawless']['count']} of {n['drives']} drives{of_laps}"
        lines.append(f"{track}: {drives} {how} (95 %: {low:.0%} to {high:.0%})")
        if "autonomy" not in n:  # an environment of one's own
            own = [
                f"{name.replace('_', ' ')} {with_interval(value, 2) if isinstance(value, dict) else f'{value:g}'}"
                for name, value in n.items()
                if name not in COMMON
            ]
            lines += [f"  {', '.join(own)}"] * bool(own)
            continue
        lines[-1] += f"; {n['interventions']} interventions in {n['laps']:.1f} laps"
        lines += [
            f"  autonomy {with_interval(n['autonomy'], 1)} %, off the road {with_interval(n['off_road_per_lap'], 2)} "
            f"times a lap, {n['clean_laps']} clean laps",
            f"  from the middle {with_interval(n['offset_mean_m'], 2)} m on average, "
            f"{with_interval(n['offset_max_m'], 2)} m at most; steering moves {with_interval(n['jitter_per_s'], 2)} a "
            f"second; {with_interval(n['speed_mps'], 1)} m/s",
        ]
        if (expert := metrics.get("expert_tracks", {}).get(track)) is not None:
            lines.append(
                f"  the expert: autonomy {with_interval(expert['autonomy'], 1)} %, from the middle "
                f"{with_interval(expert['offset_mean_m'], 2)} m on average, {with_interval(expert['speed_mps'], 1)} m/s"
            )
    return lines


def described(numbers: dict[str, Any]) -> str:
    """Mean, spread and interval."""
    if numbers["std"] is None:
        return f"{numbers['mean']:.1f}"
    low, high = numbers["interval95"]
    return f"{numbers['mean']:.1f} +- {numbers['std']:.1f} (95 %: {low:.1f} to {high:.1f})"


def with_interval(numbers: dict[str, Any], digits: int) -> str:
    """A mean and its interval."""
    mean, interval = f"{numbers['mean']:.{digits}f}", numbers["interval95"]
    return mean if interval is None else f"{mean} ({interval[0]:.{digits}f} to {interval[1]:.{digits}f})"
