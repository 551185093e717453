"""Drives on which a policy is made to leave the road, and what it saw and did: what a monitor is fitted to."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.common.files import atomic_path
from nacdrive.common.parallel import run_jobs
from nacdrive.drivers.base import Driver, DriverWrapper
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.drivers.speed_control import at_speed
from nacdrive.drivers.steering_noise import SteeringNoise
from nacdrive.envs.base import Frame, Info
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.registry import UDACITY_TRACK
from nacdrive.envs.seeds import MONITOR_TEST, MONITOR_TRAINING, MONITOR_VALIDATION
from nacdrive.models.files import load_policy
from nacdrive.models.policy import Policy
from nacdrive.rollout.environment import make_env
from nacdrive.rollout.rollout import rollout

Part = Literal["training", "validation", "test"]
SEEDS = {"training": MONITOR_TRAINING, "validation": MONITOR_VALIDATION, "test": MONITOR_TEST}
DECISIONS = 400
"""Decisions of a drive: 32 s of four frames of 0.02 s each."""
REPEAT = 4
"""Frames for which an action is held."""
ASIDE = ("brightness", "lost frames")
"""Disturbances that no monitor is fitted to: on these it is judged as on what nobody thought of."""
USUAL = "usual"
"""Undisturbed drives on roads of the usual difficulty at 25 miles per hour: there an alarm is a false one."""


@dataclass(frozen=True)
class Conditions:
    """What makes a drive hard."""

    speed_mph: float = 25.0
    """Speed to keep."""
    steering_noise: float = 0.0
    """Strength of disturbances of the wheel."""
    camera: CameraNoise = field(default_factory=CameraNoise)
    """What is wrong with the camera."""
    road_difficulty: float = 0.5
    """Of the random road."""
    missing_marks: float | None = None
    """Share of the lap without lines and kerbs."""


Draw = Callable[[np.random.Generator], Conditions]
KINDS: dict[str, Draw] = {
    USUAL: lambda rng: Conditions(),
    "fast and difficult": lambda rng: Conditions(30.0, road_difficulty=float(rng.uniform(0.7, 1.0))),
    "marks gone": lambda rng: Conditions(
        float(rng.uniform(20, 30)), road_difficulty=float(rng.uniform(0.5, 1.0)), missing_marks=1.0
    ),
    "noise": lambda rng: Conditions(
        float(rng.uniform(15, 30)), camera=CameraNoise(noise=float(rng.uniform(0.15, 0.7)))
    ),
    "blackout": lambda rng: Conditions(
        float(rng.uniform(15, 30)), camera=CameraNoise(blackout=float(rng.uniform(0.3, 0.9)))
    ),
    "delay": lambda rng: Conditions(
        float(rng.uniform(20, 30)), camera=CameraNoise(delay_steps=int(rng.integers(4, 12)))
    ),
    "kicks": lambda rng: Conditions(
        float(rng.uniform(20, 30)), road_difficulty=float(rng.uniform(0.5, 1.0)), steering_noise=2.0
    ),
    "brightness": lambda rng: Conditions(
        float(rng.uniform(15, 30)),
        camera=CameraNoise(brightness=float(rng.uniform(0.02, 0.3) if rng.random() < 0.5 else rng.uniform(2.0, 6.0))),
    ),
    "lost frames": lambda rng: Conditions(
        float(rng.uniform(15, 30)),
        camera=CameraNoise(dropped=float(rng.uniform(0.8, 0.95)), late=int(rng.integers(0, 9))),
    ),
}
"""Disturbances by name, each of a strength drawn anew for every drive."""


@dataclass(frozen=True)
class DriveJob:
    """One drive."""

    part: Part
    """What it is for."""
    kind: str
    """Of ``KINDS``."""
    seed: int
    """Of the road, of the disturbance and of its strength."""
    file: Path
    """Where its ``Trace`` is kept."""
    compare: bool = False
    """Whether the label-free candidates are computed too, which takes several times as long."""


@dataclass(frozen=True)
class Trace:
    """A drive as a monitor would have seen it, and what came of it; T decisions."""

    kind: str
    """Disturbance, of ``KINDS``."""
    seed: int
    """Of the road."""
    features: NDArray[np.float32]
    """Of the last convolution, [T, features]."""
    summary: NDArray[np.float32]
    """Output of the sequence layer, [T, d_model]."""
    steering: NDArray[np.float32]
    """What the policy wanted, [T]."""
    speed_mps: NDArray[np.float32]
    """[T]"""
    t_s: NDArray[np.float64]
    """When it was decided, [T]."""
    age_s: NDArray[np.float32]
    """How old the frame was as far as the policy was told, [T]."""
    off_road: NDArray[np.bool_]
    """Whether a wheel stood beyond the edge, [T]."""
    put_back: NDArray[np.bool_]
    """Whether the car was put back on the road after the decision, [T]."""
    offset_m: NDArray[np.float32]
    """Metres from the middle of the road, [T]."""
    half_width_m: float
    """From the middle of the road to its edge."""
    candidates: dict[str, NDArray[np.float32]]
    """Label-free signals by name, each [T]; empty where they were not asked for."""

    @property
    def departures(self) -> NDArray[np.intp]:
        """Decisions at which the car has just left the road."""
        before = np.concatenate([[False], self.off_road[:-1]])
        return np.flatnonzero(self.off_road & ~before)

    def to_departure_s(self) -> NDArray[np.float64]:
        """[T]: seconds from each decision to the next departure; infinite where there is none any more."""
        times = self.t_s[self.departures]
        following = np.searchsorted(times, self.t_s, side="left")
        return np.append(times, np.inf)[following] - self.t_s


def save_trace(trace: Trace, path: Path) -> None:
    """Keep a drive; features as half floats."""
    content: dict[str, Any] = {f"candidate {name}": values for name, values in trace.candidates.items()}
    for name, value in vars(trace).items():
        if name != "candidates":
            content[name] = value.astype(np.float16) if name in ("features", "summary") else np.asarray(value)
    with atomic_path(path) as partial, partial.open("wb") as handle:
        np.savez(handle, **content)


def load_trace(path: Path) -> Trace:
    """What ``save_trace`` kept."""
    with np.load(path) as kept:
        names = [name for name in kept.files if not name.startswith("candidate ")]
        found: dict[str, Any] = {name: kept[name] for name in names}
        found |= {name: found[name].astype(np.float32) for name in ("features", "summary")}
        found |= {"kind": str(found["kind"]), "seed": int(found["seed"])}
        found["half_width_m"] = float(found["half_width_m"])
        candidates = {name.partition(" ")[2]: kept[name] for name in kept.files if name not in names}
    return Trace(**found, candidates=candidates)


class Witness(DriverWrapper):
    """Writes down what a policy saw and wanted, decision by decision.

    Args:
        driver: The policy.
        candidates: Called after each decision with its frame and time; numbers by name.
    """

    def __init__(self, driver: PolicyDriver, candidates: Candidates | None) -> None:
        super().__init__(driver)
        self.policy = driver.policy
        self.candidates = candidates
        self.rows: list[dict[str, Any]] = []

    def act(self, frame: Frame, info: Info) -> Action:
        """The policy's decision."""
        action = self.driver.act(frame, info)
        taken_s = float(info.get("frame_t_s", info["t_s"]))
        assert isinstance(self.policy, Policy)
        features, summary = self.policy.inside()
        row = {"features": features.numpy(), "summary": summary.numpy(), "steering": action.steering}
        row["age_s"] = float(info["t_s"]) - taken_s
        row["candidates"] = {} if self.candidates is None else self.candidates(frame, taken_s, action.steering)
        self.rows.append(row)
        return action


class Candidates:
    """Monitors that need no labels, as raw signals: disagreement of the policy with itself.

    ``mirror``: |steering + steering on the mirrored picture|; ``shift`` and ``light``: change of the steering where the
    picture is moved sideways by 8 pixels, or made brighter by a fifth; each variant keeps a memory of its own.
    ``dropout``: standard deviation of the steering over ``SAMPLES`` masks of the dropout of the training on the
    features, which the convolutions are computed once for (Monte Carlo dropout; Gal and Ghahramani, 2016).
    """

    SAMPLES = 8

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.state = policy.network.sequence.init_state(3)
        self.past: list[tuple[torch.Tensor, float]] = []
        self.generator = torch.Generator().manual_seed(0)
        self.last: dict[str, float] = {}

    @torch.inference_mode()
    def __call__(self, frame: Frame, t_s: float, steering: float) -> dict[str, float]:
        """The signals of one decision."""
        if self.past and t_s <= self.past[-1][1]:
            return self.last
        network = self.policy.network
        light = np.clip(frame.astype(np.float32) * 1.2, 0, 255).astype(np.uint8)
        variants = np.stack([frame[:, ::-1], np.roll(frame, 8, axis=1), light])
        x = network.features(torch.from_numpy(variants))
        y, self.state = network.sequence.step(x, torch.full((3,), t_s), self.state)
        mirrored, shifted, lit = network.head(y)[:, 0].clamp(-1, 1).tolist()
        self.past = [*self.past, (self.policy.inside()[0], t_s)][-self.policy.config.window :]
        window = torch.stack([features for features, _ in self.past])
        t = torch.tensor([[taken_s for _, taken_s in self.past]]).expand(self.SAMPLES, -1)
        keep = 1 - self.policy.config.dropout
        masks = torch.rand((self.SAMPLES, *window.shape), generator=self.generator) < keep
        sampled = network.head(network.sequence.last(window * masks / keep, t))[:, 0]
        self.last = {
            "mirror": abs(mirrored + steering),
            "shift": abs(shifted - steering),
            "light": abs(lit - steering),
            "dropout": float(sampled.std()),
        }
        return self.last


def drive(job: DriveJob, policy: Policy) -> Trace:
    """Drive one job and keep what came of it."""
    rng = np.random.default_rng((job.seed, 0x5EED))
    conditions = KINDS[job.kind](rng)
    options = {
        "track": f"random:{job.seed}",
        "repeat": REPEAT,
        "max_frames": DECISIONS * REPEAT,
        "recover": True,
        "road_difficulty": conditions.road_difficulty,
        "missing_marks": conditions.missing_marks,
    }
    env = make_env(UDACITY_TRACK, options, conditions.camera)
    witness = Witness(PolicyDriver(policy), Candidates(policy) if job.compare else None)
    driver: Driver = at_speed(witness, conditions.speed_mph)
    if conditions.steering_noise:
        driver = SteeringNoise(driver, conditions.steering_noise, env.step_s, rng)
    try:
        ticks = list(rollout(env, driver, job.seed))
    finally:
        env.close()
    return trace_of(job, witness.rows, ticks)


def trace_of(job: DriveJob, rows: list[dict[str, Any]], ticks: Iterable[Any]) -> Trace:
    """What a ``Witness`` wrote down, with what the Ticks say of the same decisions."""
    said = [(tick.t_s, tick.info, tick.next_info) for tick in ticks]

    def column(name: str, dtype: Any = np.float32) -> NDArray[Any]:
        return np.array([row[name] for row in rows], dtype=dtype)

    return Trace(
        kind=job.kind,
        seed=job.seed,
        features=column("features"),
        summary=column("summary"),
        steering=column("steering"),
        age_s=column("age_s"),
        t_s=np.array([t_s for t_s, _, _ in said]),
        speed_mps=np.array([info["speed_mps"] for _, info, _ in said], dtype=np.float32),
        off_road=np.array([info["off_road"] for _, info, _ in said]),
        put_back=np.array([bool(later.get("put_back")) for _, _, later in said]),
        offset_m=np.array([info["lane_offset_m"] for _, info, _ in said], dtype=np.float32),
        half_width_m=float(said[0][1]["road_half_width_m"]),
        candidates={
            name: np.array([row["candidates"][name] for row in rows], dtype=np.float32)
            for name in rows[0]["candidates"]
        },
    )


_policy: Policy


def _load(model: Path) -> None:
    """Make this process ready to drive."""
    global _policy
    _policy = load_policy(model, expect_task=UDACITY_TRACK.task)


def _drive_and_keep(job: DriveJob) -> None:
    save_trace(drive(job, _policy), job.file)


def jobs_of(folder: Path, part: Part, counts: dict[str, int], *, compare: int = 0) -> list[DriveJob]:
    """So many drives of each kind, on roads of their own; the same road for the same number, whatever the counts.

    The label-free candidates are computed in the last ``compare`` of each kind but the undisturbed one.
    """
    found = []
    for kind, count in counts.items():
        # A thousand roads each, so that more drives of one kind leave the others' roads as they are.
        first = SEEDS[part].start + 1000 * list(KINDS).index(kind)
        files = [(seed, folder / f"{part}-{kind.replace(' ', '_')}-{seed}.npz") for seed in range(first, first + count)]
        found += [
            DriveJob(part, kind, seed, file, kind != USUAL and seed - first >= count - compare) for seed, file in files
        ]
    return found


def drive_all(model: Path, jobs: Iterable[DriveJob], workers: int) -> Generator[DriveJob, None, None]:
    """Drive what is not kept yet; yields each job when its drive is kept.

    Raises:
        UserError: if there is no such policy, or a driving process dies.
    """
    missing = [job for job in jobs if not job.file.exists()]
    for job, _ in run_jobs(_drive_and_keep, missing, workers=workers, initializer=_load, initargs=(model,)):
        yield job
