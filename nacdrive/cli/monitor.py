"""``nacdrive monitor``: fit and measure what warns before a policy leaves the road."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nacdrive.common.errors import UserError

MOST_DRIVES = 1000


@dataclass(frozen=True)
class MonitorConfig:
    """Make a Udacity policy leave the road, learn when it will, and say how well that is told on other roads."""

    model: str = "nac_steady.pt"
    """The policy: a .pt file, or the name of a shipped one. Its monitor comes to lie beside it (MODEL.monitor)."""
    out: Path | None = None
    """Folder of the drives and of the result; runs/monitor-MODEL if not given. With --resume only what it lacks is
    driven."""
    train_drives: int = 9
    """Drives of 32 s to learn from, of each disturbance."""
    valid_drives: int = 3
    """Drives that choose the best, and the risk at which there is a warning, of each disturbance."""
    test_drives: int = 4
    """Drives to measure on, of each disturbance, those that were kept from the training too."""
    usual_drives: int = 6
    """Undisturbed drives, in each of the three: there an alarm is a false one."""
    compare_drives: int = 0
    """So many of the test drives of each disturbance are also judged by what needs no labels: disagreement over
    mirrored, shifted and brighter pictures, and Monte Carlo dropout. Three times as slow."""
    seeds: int = 3
    """Fits of different seeds; the best on the validation drives is kept, all are reported."""
    workers: int = 0
    """Processes that drive; 0 means one per core."""
    resume: bool = False
    """Go on with the drives in --out."""
    overwrite: bool = False
    """Delete the result in --out first, and replace the monitor that the model has."""

    def __post_init__(self) -> None:
        for name, least in (("train", 1), ("valid", 1), ("test", 1), ("usual", 1), ("compare", 0)):
            value = getattr(self, f"{name}_drives")
            if not least <= value <= MOST_DRIVES:
                raise UserError(f"--{name}-drives is {value}: give {least} to {MOST_DRIVES}.")
        if self.compare_drives > self.test_drives:
            raise UserError("--compare-drives counts some of --test-drives: give at most as many.")
        if not 1 <= self.seeds <= 100:
            raise UserError(f"--seeds is {self.seeds}: give 1 to 100.")
        if not 0 <= self.workers <= 1024:
            raise UserError(f"--workers is {self.workers}: give 0 (one per core) to 1024.")

    @property
    def folder(self) -> Path:
        """Of the result."""
        return self.out if self.out is not None else Path("runs") / f"monitor-{Path(self.model).stem}"


CONFIG = MonitorConfig


def run(config: MonitorConfig) -> int:
    """Drive, fit, measure; says what came of it.

    Raises:
        UserError: for an exported policy, one of another task, or a monitor that is there already.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from nacdrive.common.files import result_folder
    from nacdrive.common.paths import find_model
    from nacdrive.common.runs import check_resumable, usable_cores
    from nacdrive.drivers.monitor import monitor_file
    from nacdrive.envs.registry import UDACITY_TRACK
    from nacdrive.models.files import load_policy
    from nacdrive.rollout.monitor_drives import drive_all
    from nacdrive.rollout.monitor_report import MonitorPlan, drives_of, fit_and_measure

    model = find_model(config.model, UDACITY_TRACK.task)
    if model.suffix == ".onnx":
        raise UserError(f"{model} is an exported policy, whose inside no monitor sees: give the .pt.")
    policy = load_policy(model, expect_task=UDACITY_TRACK.task)
    target = monitor_file(model)
    if target.exists() and not (config.overwrite or config.resume):
        raise UserError(f"{target} exists: give --overwrite to replace it.")
    out = result_folder(config.folder, overwrite=config.overwrite, resume=config.resume)
    check_resumable(out, config, ("resume", "overwrite", "workers", "seeds", "out"))
    plan = MonitorPlan(
        config.train_drives,
        config.valid_drives,
        config.test_drives,
        config.usual_drives,
        config.compare_drives,
        config.seeds,
    )
    jobs = drives_of(plan, out)
    columns = [TextColumn("driving"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
    try:
        with Progress(*columns) as bar:
            missing = sum(not job.file.exists() for job in jobs)
            shown = bar.add_task("", total=len(jobs), completed=len(jobs) - missing)
            for _ in drive_all(model, jobs, config.workers or usable_cores()):
                bar.advance(shown)
        result = fit_and_measure(plan, policy, jobs, target)
    except KeyboardInterrupt:
        print(f"\nnacdrive: stopped; {out} keeps the drives: the same command with --resume goes on.", file=sys.stderr)
        return 130
    write(out, result)
    print(in_words(result))
    print(f"numbers: {out / 'metrics.json'}\nmonitor: {target}")
    return 0


def write(out: Path, result: dict[str, Any]) -> None:
    """Keep the result."""
    from nacdrive.common.files import write_json

    write_json(out / "metrics.json", result)


def in_words(result: dict[str, Any]) -> str:
    """What was measured, in a few lines."""
    lines = []
    for name, group in result["groups"].items():
        told = group["warnings"]
        area = "never left the road" if group["auroc"] is None else f"AUROC {with_interval(group['auroc'])}"
        share = (
            ""
            if told["warned_share"] is None
            else (f", warned at least 1 s before {told['warned']} of {told['departures']} departures")
        )
        lines.append(
            f"{name}, {group['drives']} drives: {area}{share}, {told['false_alarms_per_5_min']:.1f} false alarms in "
            "five minutes"
        )
    cost = result["cost"]
    lines.append(
        f"a risk takes {cost['risk_ms']:.2f} ms, {cost['share']:.0%} of a decision's {cost['decision_ms']:.1f}"
    )
    return "\n".join(lines)


def with_interval(value: dict[str, Any]) -> str:
    """A number with its 95 % interval."""
    if value["interval95"] is None:
        return f"{value['value']:.3f}"
    low, high = value["interval95"]
    return f"{value['value']:.3f} ({low:.3f} to {high:.3f})"
