"""``nacdrive eval --sim udacity``: laps of the built-in tracks, and the steering on recorded drives."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from nacdrive.cli.eval import EvalConfig

if TYPE_CHECKING:
    from nacdrive.rollout.lake_evaluation import LakeJob
    from nacdrive.rollout.results import Row


def evaluate_udacity(config: EvalConfig) -> dict[str, Any]:
    """Evaluate as ``config`` says; prints progress and the result, returns the metrics."""
    from nacdrive.common.files import result_folder, write_json
    from nacdrive.common.paths import find_model
    from nacdrive.common.runs import usable_cores
    from nacdrive.models import load_policy
    from nacdrive.rollout.lake_evaluation import LakeCourse, evaluate_lake
    from nacdrive.rollout.offline_eval import errors_on
    from nacdrive.rollout.record_config import TRACKS
    from nacdrive.web import LiveServer

    model = find_model(config.model, config.env)
    # What can be refused is refused before a folder is made or deleted.
    policy = load_policy(model, device=config.device, expect_task=config.env)
    offline = errors_on(policy, config.data) if config.data else None
    tracks = TRACKS if config.track == "both" else (config.track,)
    seeds = range(config.seed, config.seed + config.episodes)
    course = LakeCourse(model, config.laps, config.speed, config.repeat, config.disturbance, config.device)
    with ExitStack() as stack:
        listeners = []
        if config.watch:
            page = LiveServer(config.host, config.port, f"{policy.name} on the built-in tracks", policy.circuit())
            print(f"watch at {page.start()}", flush=True)
            stack.callback(page.stop)
            listeners.append(page.publish)
        out = result_folder(config.folder, overwrite=config.overwrite, resume=config.resume)
        metrics = evaluate_lake(
            course,
            tracks,
            seeds,
            out,
            workers=0 if config.watch else config.workers or usable_cores(),
            films=config.videos,
            listeners=listeners,
            progress=stack.enter_context(Show(len(tracks) * len(seeds))),
            config=config,
        )
    if offline is not None:
        metrics["offline"] = offline
        write_json(out / "metrics.json", metrics)
    print(sentences(metrics, config.laps))
    print(f"numbers: {out / 'metrics.json'}")
    return metrics


class Show:
    """Progress on the terminal: how many drives are done, and how the last one went."""

    def __init__(self, drives: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("drives"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, TextColumn("{task.fields[last]}"))
        self._task = self._progress.add_task("", total=drives, last="")

    def __enter__(self) -> Show:
        """Begin to show."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last state on the screen."""
        self._progress.stop()

    def __call__(self, job: LakeJob, row: Row) -> None:
        """One more drive is done."""
        last = f"{job.track} {job.seed}: {row['off_road_events']} times off the road, autonomy {row['autonomy']:.0f} %"
        self._progress.update(self._task, advance=1, last=last)


def sentences(metrics: dict[str, Any], laps: float) -> str:
    """The result in a few lines."""
    lines = []
    for track, n in metrics["tracks"].items():
        low, high = n["flawless"]["interval95"]
        lines += [
            f"{track}: {n['flawless']['count']} of {n['drives']} drives of {laps:g} laps never left the road "
            f"(95 %: {low:.0%} to {high:.0%}); {n['interventions']} interventions in {n['laps']:.1f} laps",
            f"  autonomy {with_interval(n['autonomy'], 1)} %, off the road {with_interval(n['off_road_per_lap'], 2)} "
            f"times a lap, {n['clean_laps']} clean laps",
            f"  from the middle {with_interval(n['offset_mean_m'], 2)} m on average, "
            f"{with_interval(n['offset_max_m'], 2)} m at most; steering moves {with_interval(n['jitter_per_s'], 2)} a "
            f"second; {with_interval(n['speed_mps'], 1)} m/s",
        ]
    if (offline := metrics.get("offline")) is not None:
        lines.append(
            f"on {offline['frames']} recorded frames: MSE {offline['mse']['mean']:.4f}, "
            f"MAE {offline['mae']['mean']:.4f} "
            f"(predicting zero: {offline['zero_mse']['mean']:.4f}, {offline['zero_mae']['mean']:.4f})"
        )
    return "\n".join(lines)


def with_interval(numbers: dict[str, Any], digits: int) -> str:
    """A mean and its interval."""
    if numbers["interval95"] is None:
        return f"{numbers['mean']:.{digits}f}"
    low, high = numbers["interval95"]
    return f"{numbers['mean']:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
