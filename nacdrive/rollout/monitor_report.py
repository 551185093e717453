"""A monitor from its drives: which are driven, fits of several seeds, what the kept one is worth, what it costs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nacdrive.common.runs import run_record
from nacdrive.common.statistics import SEED, bounds
from nacdrive.models.failure import FailurePredictor, RiskMeter, save_monitor
from nacdrive.models.policy import Policy
from nacdrive.rollout.monitor_drives import ASIDE, KINDS, USUAL, DriveJob, Trace, jobs_of, load_trace
from nacdrive.rollout.monitor_fit import auroc_of, fit, judged, risks_of, roc_points, score_of
from nacdrive.rollout.warning_score import total

RESAMPLES = 1000
STEPS = 100
"""Decisions over which the cost is measured."""


@dataclass(frozen=True)
class MonitorPlan:
    """How much is driven, and how often fitted."""

    train_drives: int = 9
    """Drives to learn from, of each disturbance of the training."""
    valid_drives: int = 3
    """Drives that choose, of each of these."""
    test_drives: int = 4
    """Drives to measure on, of each disturbance."""
    usual_drives: int = 6
    """Undisturbed drives, in each of the three."""
    compare_drives: int = 0
    """So many of them are judged by the label-free candidates too."""
    seeds: int = 3
    """Fits of different seeds."""


def drives_of(plan: MonitorPlan, folder: Path) -> list[DriveJob]:
    """All drives, in the order in which they are driven."""
    fitted = [kind for kind in KINDS if kind not in (*ASIDE, USUAL)]

    def counts(kinds: Iterable[str], count: int) -> dict[str, int]:
        return {**dict.fromkeys(kinds, count), USUAL: plan.usual_drives}

    return [
        *jobs_of(folder, "training", counts(fitted, plan.train_drives)),
        *jobs_of(folder, "validation", counts(fitted, plan.valid_drives)),
        *jobs_of(folder, "test", counts([*fitted, *ASIDE], plan.test_drives), compare=plan.compare_drives),
    ]


def fit_and_measure(plan: MonitorPlan, policy: Policy, jobs: Sequence[DriveJob], target: Path) -> dict[str, Any]:
    """Fit, keep the best monitor in ``target``, and measure it on the test drives; plain JSON.

    Raises:
        UserError: if no drive leaves the road.
    """
    parts = {
        part: [load_trace(job.file) for job in jobs if job.part == part] for part in ("training", "validation", "test")
    }
    fits = []
    for seed in range(plan.seeds):
        predictor, score = fit(parts["training"], parts["validation"], seed=seed)
        fits.append((score, seed, predictor))
    _, seed, kept = max(fits, key=lambda entry: entry[:2])
    groups = measure(kept, parts["test"])
    result = {
        "policy": policy.name,
        "groups": groups,
        "fits": [
            {"seed": number, "valid_auroc": score, **_in_short(measure(one, parts["test"], resamples=0))}
            for score, number, one in fits
        ],
        "kept_seed": seed,
        "predictor": asdict(kept.config),
        "candidates": candidates(kept, [trace for trace in parts["test"] if trace.candidates]),
        "drives": {
            part: {"drives": len(traces), "departures": sum(len(trace.departures) for trace in traces)}
            for part, traces in parts.items()
        },
        "cost": cost(policy, kept),
        "run": run_record(plan),
    }
    save_monitor(kept, target, policy, {"seed": seed, "groups": groups, "drives": result["drives"]})
    return result


def groups_of(traces: Sequence[Trace]) -> dict[str, list[int]]:
    """Which drives are told of together: all, disturbances of the training, those kept from it, and each by itself."""
    told = {
        "all drives": list(range(len(traces))),
        "disturbances of the training": [i for i, trace in enumerate(traces) if trace.kind not in (*ASIDE, USUAL)],
        "disturbances kept from it": [i for i, trace in enumerate(traces) if trace.kind in ASIDE],
        **{kind: [i for i, trace in enumerate(traces) if trace.kind == kind] for kind in KINDS},
    }
    return {name: chosen for name, chosen in told.items() if chosen}


def measure(predictor: FailurePredictor, traces: Sequence[Trace], resamples: int = RESAMPLES) -> dict[str, Any]:
    """By group: AUROC with its interval, points of the ROC curve, and what the warnings were worth."""
    risks = risks_of(predictor, traces)
    rows = [score_of(trace, risk >= 0.5).row() for trace, risk in zip(traces, risks, strict=True)]
    found = {}
    for name, chosen in groups_of(traces).items():
        told = judged([traces[i] for i in chosen], [risks[i] for i in chosen])
        area = auroc_of(told, resamples)
        found[name] = {
            "drives": len(chosen),
            "auroc": None if np.isnan(area["value"]) else area,
            "roc": roc_points(told),
            "warnings": total([rows[i] for i in chosen]),
            "intervals95": _intervals([rows[i] for i in chosen], resamples),
        }
    return found


def candidates(predictor: FailurePredictor, traces: Sequence[Trace]) -> dict[str, Any]:
    """AUROC of the label-free signals and of the predictor, on the same drives; empty where none was compared."""
    if not traces:
        return {}
    signals: dict[str, list[Any]] = {
        name: [trace.candidates[name] for trace in traces] for name in traces[0].candidates
    }
    # Of what says nothing about the future, how uneasy the wheel is.
    signals["change of the steering"] = [_unease(trace) for trace in traces]
    signals["failure predictor"] = risks_of(predictor, traces)
    return {name: auroc_of(judged(traces, values)) for name, values in signals.items()}


def cost(policy: Policy, predictor: FailurePredictor) -> dict[str, float]:
    """Milliseconds of processor time (medians) of a decision and of its risk, and their ratio."""
    meter = RiskMeter(predictor)
    frame = np.zeros((policy.config.height, policy.config.width, 3), np.uint8)
    took: list[tuple[float, float]] = []
    policy.reset()
    for step in range(STEPS):
        t_s = step * policy.config.gap_s
        began = time.process_time()
        action = policy.step(frame, t_s)
        decided = time.process_time()
        meter(policy, action.steering, t_s, 10.0, 0.0)
        took.append((decided - began, time.process_time() - decided))
    policy.reset()
    decision_ms, risk_ms = (1e3 * np.median(took, axis=0)).tolist()
    return {"decision_ms": decision_ms, "risk_ms": risk_ms, "share": risk_ms / decision_ms}


def _unease(trace: Trace) -> np.ndarray:
    """[T]: mean change of the steering over the last second."""
    changes = np.abs(np.diff(trace.steering, prepend=trace.steering[:1]))
    begins = np.searchsorted(trace.t_s, trace.t_s - 1.0)
    return np.array([changes[begin : end + 1].mean() for end, begin in enumerate(begins)])


def _intervals(rows: Sequence[dict[str, Any]], resamples: int) -> dict[str, list[float] | None]:
    """95 % intervals of share warned of and of false alarms, from drives drawn with replacement."""
    if resamples == 0:
        return {}
    rng = np.random.default_rng(SEED)
    drawn = [total([rows[i] for i in rng.integers(0, len(rows), len(rows))]) for _ in range(resamples)]
    found = {}
    for name in ("warned_share", "false_alarms_per_5_min"):
        values = np.array([sample[name] for sample in drawn if sample[name] is not None], dtype=np.float64)
        found[name] = bounds(values) if len(values) else None
    return found


def _in_short(groups: dict[str, Any]) -> dict[str, Any]:
    whole = groups["all drives"]
    return {"auroc": (whole["auroc"] or {}).get("value"), **whole["warnings"]}
