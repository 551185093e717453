"""Drives the episodes of a hunt: the policy, where that is needed the reference, and once more what failed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nacdrive.common.parallel import run_by_method
from nacdrive.datasets.episode import Episode
from nacdrive.drivers.tick import Listener, Tick
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.extras.hunt.judge import Lookout, failure, faults, needs_reference
from nacdrive.extras.hunt.search import Case
from nacdrive.rollout.drive import Drive, LoadedDrive
from nacdrive.rollout.evaluate import EvalJob, RolloutWorker
from nacdrive.rollout.recorder import EpisodeBuffer, executed_action, expert_action
from nacdrive.rollout.results import KINDS, OPTIONAL, ResultsFile, Row
from nacdrive.viz.video import video

BEFORE_S, AFTER_S = 10.0, 2.0
"""Simulated seconds that are recorded around a failure."""
LEFT_OUT = ("curve", "actions")
"""Of a row of an evaluation, what a list of failures has no use for."""
ROW_KINDS: dict[str, Any] = {
    **{name: kind for name, kind in KINDS.items() if name not in LEFT_OUT},
    **{"number": int, "area": str, "near": int | None, "knobs": dict, "road": dict},
    **{"failed": bool, "fault": str | None, "failed_s": float | None, "reference_return": float | None, "unfair": bool},
}
"""What ``HuntWorker.judge`` writes of an episode, ..."""
OPTIONAL_KINDS = {**OPTIONAL, "command": str, "repeats": bool, "film": str | None}
"""... and what the search adds, then the drive once more."""


@dataclass(frozen=True)
class Replay:
    """A failure to be driven once more; plain data."""

    case: Case
    failed_s: float
    film: Path | None = None


def hunt_results(path: Path) -> ResultsFile:
    """Rows of episodes that were judged, by their seeds."""
    return ResultsFile(path, ROW_KINDS, OPTIONAL_KINDS)


class HuntWorker:
    """Drives cases in one process; below ``least_share`` of the return of ``drive``'s expert a drive has failed."""

    def __init__(self, drive: Drive, least_share: float) -> None:
        self.drive, self.least_share = drive, least_share
        # Who cuts the episodes short asks for no lap: then the return alone counts.
        self.laps = 0.0 if drive.options.get("max_frames") else drive.options.get("laps") or 1.0
        self.loaded = LoadedDrive(replace(drive, expert=None))
        self.reference = LoadedDrive(replace(drive, model=None, driver=drive.expert, expert=None, camera=CameraNoise()))

    @property
    def labels(self) -> bool:
        """Whether the reference can say at each decision of the policy what it would have done."""
        mine, theirs = self.loaded.driver.needs, self.reference.driver.needs
        alike = not self.loaded.spec.actions or mine.continuous == theirs.continuous
        return alike and self.loaded.repeat == self.reference.repeat

    def judge(self, case: Case) -> Row:
        """The policy's row, with whether it failed what the reference passed."""
        lookout = Lookout()
        row, road, _ = episode_of(LoadedDrive(case.of(self.loaded.drive), driver=self.loaded.driver), case, lookout)
        failed: str | None = None
        unfair, reference = False, None
        if needs_reference(row, self.laps, self.least_share, self.loaded.spec.best_return):
            # The reference sees well, whatever is wrong with the policy's camera.
            drive = replace(case.of(self.reference.drive), camera=CameraNoise())
            reference, *_ = episode_of(LoadedDrive(drive, driver=self.reference.driver), case)
            failed = failure(row, reference, self.laps, self.least_share)
            laps = self.laps if reference["progress"] > 0 or reference.get("laps") else 0.0
            unfair = failed is None and bool(faults(row, laps))
        return {
            **{name: value for name, value in row.items() if name not in LEFT_OUT},
            **{name: getattr(case, name) for name in ("number", "area", "near")},
            "knobs": dict(case.knobs), "road": road, "failed": failed is not None, "fault": failed,
            "failed_s": lookout.when_s(failed) if failed is not None else None,
            "reference_return": None if reference is None else reference["episode_return"], "unfair": unfair,
        }  # fmt: skip

    def keep(self, case: Case) -> Episode:
        """The policy's drive, labelled by what it does itself: to learn on without unlearning it."""
        loaded = LoadedDrive(case.of(self.loaded.drive), driver=self.loaded.driver)
        buffer = EpisodeBuffer(executed_action, loaded.spec.image_format)

        def decided(tick: Tick) -> None:
            if not tick.held:
                buffer(replace(tick, t_s=tick.taken_s, frame_t_s=None))

        row, _, meta = episode_of(loaded, case, decided)
        buffer.ended = row["ending"]
        meta |= {"hunt": {"area": case.area, **case.knobs}}
        return buffer.episode(source=loaded.spec.source, driver=loaded.driver.name, meta=meta)

    def replay(self, replay: Replay) -> tuple[Row, Episode | None]:
        """Drive a failure again: its row, and what came before, labelled if that can be; None if it ends earlier."""
        case, loaded, name = replay.case, self.loaded, self.loaded.driver.name
        drive, expert = case.of(self.drive), self.reference.driver
        again = LoadedDrive(drive if self.labels else replace(drive, expert=None), driver=loaded.driver, expert=expert)
        buffer = EpisodeBuffer(expert_action, loaded.spec.image_format)
        first, last = replay.failed_s - BEFORE_S, replay.failed_s + AFTER_S

        def before(tick: Tick) -> None:
            if first <= tick.t_s <= last:
                buffer(tick)

        with ExitStack() as stack:
            listeners: list[Callable[[Tick], None]] = [before]
            if replay.film is not None:
                film = video(replay.film, f"{name}, seed {case.seed}", loaded.fps, actions=loaded.spec.actions)
                listeners.append(stack.enter_context(film))
            row, _, meta = episode_of(again, case, *listeners)
        meta |= {"hunt": {"area": case.area, "failed_s": replay.failed_s, **case.knobs}}
        buffer.ended = row["ending"] if row["simulated_s"] <= last else "after the failure"
        return row, buffer.episode(source=loaded.spec.source, driver=name, meta=meta) if len(buffer) else None


@dataclass(frozen=True)
class Work:
    """What is driven, and by how many processes."""

    drive: Drive
    least_share: float
    workers: int
    ray: str | None

    def do(self, method: str, jobs: Any) -> Any:
        """Results of ``HuntWorker``'s method, each with its job, as they come."""
        made = self.drive, self.least_share
        return closing(run_by_method(HuntWorker, made, method, jobs, workers=self.workers, ray=self.ray))


def episode_of(
    loaded: LoadedDrive, case: Case, *listeners: Listener
) -> tuple[Row, dict[str, float | str], dict[str, Any]]:
    """How a case is driven, what its road is like, and what else the environment says of it to a recording."""
    with closing(loaded.make_env(case.seed)) as env:
        job = EvalJob("policy", case.number, case.seed, loaded.drive.track or "")
        return RolloutWorker(loaded, env=env).drive(job, listeners), env.road_features(), env.episode_meta()
