"""Fit a failure predictor to drives, choose when it warns, and measure it on drives of other roads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nacdrive.common.errors import UserError
from nacdrive.common.statistics import SEED, bounds
from nacdrive.models.failure import FailureConfig, FailurePredictor, Past, risk_of, share_of_new
from nacdrive.rollout.monitor_drives import USUAL, Trace
from nacdrive.rollout.warning_score import HORIZON_S, WarningScore, total

RESAMPLES = 1000
"""Bootstrap samples of drives."""
EPOCHS = 12
BATCH = 512
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 0.1
DROPOUT = 0.3
EVERY = 6
"""Decisions between two that principal components are taken of: neighbours are much alike."""
HALF_CAR_M = 1.0
"""From the middle of the car to the outer side of its wheels."""
CLOSE_M, SOFTNESS_M = 0.3, 0.4
"""So near the edge a decision counts half as one before a departure, and so gradually more or less."""
OFF_ROAD_M = -0.3
"""What counts for the distance to the edge of a car beyond it."""
SMOOTHINGS_S = (0.0, 0.2, 0.4, 0.8)
"""Averages that are tried."""
ALLOWED_PER_5_MIN = 0.5
"""False alarms on the usual validation drives; half of what is promised, for the test's roads are others."""


@dataclass(frozen=True)
class Judged:
    """Signals of some drives with what they are judged by; one entry per drive."""

    values: list[NDArray[np.float64]]
    """A signal of each decision that counts, higher for more danger."""
    labels: list[NDArray[np.bool_]]
    """Whether the road was left within ``HORIZON_S``."""


def seen_by(trace: Trace) -> Tensor:
    """[T, features + d_model]: what ``Policy.inside`` gave at each decision."""
    return torch.cat([torch.from_numpy(trace.features), torch.from_numpy(trace.summary)], dim=1)


@torch.inference_mode()
def inputs_of(predictor: FailurePredictor, trace: Trace) -> Tensor:
    """[T, inputs] of a drive; the same numbers as in ``RiskMeter``."""
    past = Past()
    components = predictor.components(seen_by(trace))
    told = zip(components, trace.steering, trace.t_s, trace.speed_mps, trace.age_s, strict=True)
    return torch.stack([past(row, float(a), float(b), float(c), float(d)) for row, a, b, c, d in told])


def nearest_edge_m(trace: Trace) -> NDArray[np.float64]:
    """[T]: metres that are left beside the car at the least within ``HORIZON_S``; below 0 off the road."""
    left = trace.half_width_m - np.abs(trace.offset_m) - HALF_CAR_M
    left = np.where(trace.off_road, OFF_ROAD_M, np.maximum(left, 0.0))
    ends = np.searchsorted(trace.t_s, trace.t_s + HORIZON_S, side="right")
    return np.array([left[begin:end].min() for begin, end in enumerate(ends)])


def targets_of(trace: Trace) -> NDArray[np.float32]:
    """[T]: how far each decision counts as one before a departure, 0 .. 1.

    Departures are few and close calls are many; so a predictor learns from these too, by how close they were.
    """
    return (1 / (1 + np.exp((nearest_edge_m(trace) - CLOSE_M) / SOFTNESS_M))).astype(np.float32)


def standardize(predictor: FailurePredictor, training: Sequence[Trace]) -> None:
    """Take mean, spread and principal components from what the policy saw in the training drives."""
    rows = torch.cat([seen_by(trace)[::EVERY] for trace in training])
    # A feature that hardly changes is not blown up.
    spread = rows.std(dim=0) + 1e-3
    predictor.mean.copy_(rows.mean(dim=0))
    predictor.scale.copy_(1 / spread)
    whitened = ((rows - predictor.mean) * predictor.scale).clamp(-6, 6)
    _, sizes, directions = torch.svd_lowrank(whitened, predictor.config.components, niter=2)
    predictor.directions.copy_(directions * (len(rows) ** 0.5 / sizes))


def counted(trace: Trace) -> NDArray[np.bool_]:
    """[T]: decisions on the road of which it is known whether it was left within ``HORIZON_S``."""
    known = np.isfinite(trace.to_departure_s()) | (trace.t_s[-1] - trace.t_s >= HORIZON_S)
    return np.asarray(~trace.off_road & known)


def labels_of(trace: Trace) -> NDArray[np.bool_]:
    """[T]: whether the road is left within ``HORIZON_S``."""
    return np.asarray(trace.to_departure_s() <= HORIZON_S)


def judged(traces: Sequence[Trace], signals: Sequence[NDArray[Any]]) -> Judged:
    """``signals`` of ``traces`` where they count."""
    masks = [counted(trace) for trace in traces]
    return Judged(
        [np.asarray(signal, np.float64)[mask] for signal, mask in zip(signals, masks, strict=True)],
        [labels_of(trace)[mask] for trace, mask in zip(traces, masks, strict=True)],
    )


def auroc(values: NDArray[np.float64], labels: NDArray[np.bool_]) -> float:
    """Area under the ROC curve: how often a decision before a departure has the higher value; NaN without both."""
    from scipy.stats import rankdata

    yes = int(labels.sum())
    no = len(labels) - yes
    if not yes or not no:
        return math.nan
    return float((rankdata(values)[labels].sum() - yes * (yes + 1) / 2) / (yes * no))


def auroc_of(found: Judged, resamples: int = RESAMPLES) -> dict[str, Any]:
    """AUROC over all decisions, with a 95 % interval from drives drawn with replacement."""
    whole = auroc(np.concatenate(found.values), np.concatenate(found.labels))
    rng = np.random.default_rng(SEED)
    samples = []
    for _ in range(resamples):
        drawn = rng.integers(0, len(found.values), len(found.values))
        samples.append(
            auroc(np.concatenate([found.values[i] for i in drawn]), np.concatenate([found.labels[i] for i in drawn]))
        )
    kept = np.array([value for value in samples if not math.isnan(value)])
    return {"value": whole, "interval95": bounds(kept) if len(kept) else None}


def roc_points(found: Judged, shares: Sequence[float] = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)) -> list[list[float]]:
    """[share of the safe decisions called dangerous, share of the dangerous ones called so] at ``shares``."""
    values, labels = np.concatenate(found.values), np.concatenate(found.labels)
    if labels.all() or not labels.any():
        return []
    return [[share, float((values[labels] > np.quantile(values[~labels], 1 - share)).mean())] for share in shares]


def fit(
    training: Sequence[Trace],
    validation: Sequence[Trace],
    *,
    seed: int = 0,
    epochs: int = EPOCHS,
) -> tuple[FailurePredictor, float]:
    """A predictor with the weights of the epoch that did best on ``validation``, its threshold and smoothing chosen;
    and its AUROC there.

    Raises:
        UserError: if no drive of the training, or none of the validation, leaves the road.
    """
    for name, traces in (("training", training), ("validation", validation)):
        if not any((labels_of(trace) & counted(trace)).any() for trace in traces):
            raise UserError(f"no {name} drive leaves the road, so that there is nothing to learn from: drive more.")
    torch.manual_seed(seed)
    config = FailureConfig(training[0].features.shape[1], training[0].summary.shape[1])
    predictor = FailurePredictor(config, DROPOUT)
    standardize(predictor, training)
    inputs = torch.cat([inputs_of(predictor, trace)[counted(trace)] for trace in training]).clone()
    targets = torch.cat([torch.from_numpy(targets_of(trace)[counted(trace)]) for trace in training])
    predictor.input_mean.copy_(inputs.mean(dim=0))
    predictor.input_scale.copy_(1 / (inputs.std(dim=0) + 1e-4))
    checked = [inputs_of(predictor, trace) for trace in validation]
    optimizer = torch.optim.AdamW(predictor.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    loss = nn.BCEWithLogitsLoss()
    best, weights = -1.0, predictor.state_dict()
    for _ in range(epochs):
        predictor.train()
        for rows in torch.split(torch.randperm(len(inputs)), BATCH):
            optimizer.zero_grad()
            loss(predictor(inputs[rows]), targets[rows]).backward()
            optimizer.step()
        found = judged(validation, logits_of(predictor, checked))
        score = auroc(np.concatenate(found.values), np.concatenate(found.labels))
        if score > best:
            best, weights = score, {name: value.clone() for name, value in predictor.state_dict().items()}
    predictor.load_state_dict(weights)
    predictor.eval()
    predictor.config = choose_warning(predictor, validation, logits_of(predictor, checked))
    return predictor, best


@torch.inference_mode()
def logits_of(predictor: FailurePredictor, inputs: Sequence[Tensor]) -> list[NDArray[np.float64]]:
    """Of each drive, [T], from its inputs [T, inputs]; as they are, not averaged."""
    predictor.eval()
    return [predictor(rows).double().numpy() for rows in inputs]


def smoothed(logits: NDArray[np.float64], t_s: NDArray[np.float64], smoothing_s: float) -> NDArray[np.float64]:
    """What ``RiskMeter`` makes of the logits of one drive."""
    result = logits.copy()
    for i in range(1, len(logits)):
        result[i] = result[i - 1] + share_of_new(t_s[i] - t_s[i - 1], smoothing_s) * (logits[i] - result[i - 1])
    return result


def score_of(trace: Trace, risky: NDArray[np.bool_]) -> WarningScore:
    """How well the warnings at the decisions ``risky`` [T] told of the departures of a drive."""
    score = WarningScore()
    for k, t_s in enumerate(trace.t_s):
        score.add(float(t_s), bool(risky[k]), bool(trace.off_road[k]), bool(trace.put_back[k]))
    score.finish()
    return score


def warnings_at(
    traces: Sequence[Trace], signals: Sequence[NDArray[np.float64]], threshold: float
) -> dict[str, float | None]:
    """What the warnings of a signal are worth over all drives."""
    return total([score_of(trace, signal >= threshold).row() for trace, signal in zip(traces, signals, strict=True)])


def choose_warning(
    predictor: FailurePredictor, validation: Sequence[Trace], logits: Sequence[NDArray[np.float64]]
) -> FailureConfig:
    """The config with the threshold, and the average, that warn of most departures in time at few false alarms.

    Of thresholds with at most ``ALLOWED_PER_5_MIN`` false alarms on the undisturbed drives the one that warns of most
    departures of all drives at least a second before; among equals the highest.
    """
    usual = [i for i, trace in enumerate(validation) if trace.kind == USUAL]
    best: tuple[float, float, float] = (-1.0, 0.0, 0.0)
    for smoothing_s in SMOOTHINGS_S:
        signals = [smoothed(one, trace.t_s, smoothing_s) for one, trace in zip(logits, validation, strict=True)]
        for threshold in np.quantile(np.concatenate(signals), np.linspace(0.5, 0.999, 60)):
            calm = warnings_at([validation[i] for i in usual], [signals[i] for i in usual], threshold)
            if (calm["false_alarms_per_5_min"] or 0.0) > ALLOWED_PER_5_MIN:
                continue
            every = warnings_at(validation, signals, threshold)
            # Among those that warn alike the one with fewer false alarms on disturbed drives.
            worth = ((every["warned_share"] or 0.0) - 0.002 * (every["false_alarms_per_5_min"] or 0.0), threshold)
            best = max(best, (worth[0], worth[1], smoothing_s))
    return replace(predictor.config, threshold=float(best[1]), smoothing_s=best[2])


def risks_of(predictor: FailurePredictor, traces: Sequence[Trace]) -> list[NDArray[np.float64]]:
    """Risk of each decision of each drive, [T], as a ``Monitor`` tells it."""
    config = predictor.config
    logits = logits_of(predictor, [inputs_of(predictor, trace) for trace in traces])
    return [
        np.array([risk_of(value, config.threshold) for value in smoothed(one, trace.t_s, config.smoothing_s)])
        for one, trace in zip(logits, traces, strict=True)
    ]
