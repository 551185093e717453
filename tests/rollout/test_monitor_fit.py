"""A failure predictor is fitted to drives, warns before departures of others, and sees live what it was fitted to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.envs import seeds
from nacdrive.models.failure import FailureConfig, FailurePredictor, RiskMeter
from nacdrive.rollout import monitor_drives
from nacdrive.rollout.monitor_drives import ASIDE, KINDS, USUAL, DriveJob, Trace, drive, load_trace, save_trace
from nacdrive.rollout.monitor_fit import auroc, fit, inputs_of, judged, labels_of, risks_of, standardize, warnings_at
from nacdrive.rollout.monitor_report import MonitorPlan, drives_of, groups_of, measure
from tests.helpers.small_policies import small_policy, smooth_frames


def made_up(seed: int, kind: str = "noise", leaves: bool = True) -> Trace:
    """A drive of 12 s on which the first feature rises 2.5 s before the car leaves the road, at 8 s."""
    rng = np.random.default_rng(seed)
    t_s = 0.08 * np.arange(150)
    ends = [8.0] if leaves else []
    danger = np.array([any(end - 2.5 <= t < end for end in ends) for t in t_s])
    off = np.array([any(end <= t < end + 1 for end in ends) for t in t_s])
    features = rng.normal(size=(150, 12)).astype(np.float32)
    features[:, 0] += 8 * danger
    return Trace(
        kind=kind,
        seed=seed,
        features=features,
        summary=rng.normal(size=(150, 4)).astype(np.float32),
        steering=rng.normal(size=150).astype(np.float32),
        speed_mps=np.full(150, 11, np.float32),
        t_s=t_s,
        age_s=np.zeros(150, np.float32),
        off_road=off,
        put_back=np.zeros(150, bool),
        offset_m=np.where(off, 5.0, 2.9 * danger).astype(np.float32),
        half_width_m=4.0,
        candidates={},
    )


def test_departures_of_drives_that_were_not_learnt_from_are_told_of() -> None:
    training = [*map(made_up, range(4)), made_up(6, USUAL, leaves=False)]
    validation = [*map(made_up, range(10, 12)), made_up(13, USUAL, leaves=False)]
    test = [*map(made_up, range(20, 23)), made_up(23, USUAL, leaves=False)]
    predictor, score = fit(training, validation, epochs=20)
    assert score > 0.9
    groups = measure(predictor, test, resamples=50)
    whole = groups["all drives"]
    assert whole["auroc"]["value"] > 0.9 and whole["warnings"]["warned_share"] == 1.0
    low, high = whole["auroc"]["interval95"]
    assert low <= whole["auroc"]["value"] <= high
    assert groups[USUAL]["warnings"]["false_alarms"] == 0 and groups[USUAL]["auroc"] is None
    assert warnings_at(test, [np.zeros(150)] * 4, 0.5)["warned"] == 0
    with pytest.raises(UserError, match="no validation drive leaves the road"):
        fit(training, validation[-1:], epochs=1)


def test_labels_look_two_seconds_ahead() -> None:
    trace = made_up(0)
    labels = labels_of(trace)
    first = int(trace.departures[0])
    assert trace.t_s[first] == pytest.approx(8.0, abs=0.08)
    assert labels[first - 24] and not labels[first - 26]
    assert not labels_of(made_up(0, leaves=False)).any()
    assert auroc(np.arange(4.0), np.array([False, False, True, True])) == 1.0
    assert auroc(np.zeros(4), np.array([False, False, True, True])) == 0.5
    assert np.isnan(auroc(np.zeros(2), np.array([True, True])))
    assert len(judged([trace], [np.zeros(150)]).values[0]) < 150 - trace.off_road.sum()


def test_the_meter_sees_live_what_the_fit_saw() -> None:
    policy = small_policy("nac-steady-steers")
    frames, times = smooth_frames(policy, 30)
    policy.reset()
    rows, live = [], []
    for frame, t_s in zip(frames, times, strict=True):
        action = policy.step(frame, float(t_s))
        rows.append((*[part.numpy() for part in policy.inside()], action.steering))
    trace = Trace(
        kind="noise",
        seed=0,
        features=np.stack([row[0] for row in rows]),
        summary=np.stack([row[1] for row in rows]),
        steering=np.array([row[2] for row in rows], np.float32),
        speed_mps=np.full(30, 9.0, np.float32),
        t_s=times,
        age_s=np.zeros(30, np.float32),
        off_road=np.arange(30) > 20,
        put_back=np.zeros(30, bool),
        offset_m=np.zeros(30, np.float32),
        half_width_m=4.0,
        candidates={},
    )
    config = FailureConfig(
        trace.features.shape[1], trace.summary.shape[1], components=4, threshold=0.2, smoothing_s=0.3
    )
    predictor = FailurePredictor(config)
    standardize(predictor, [trace])
    meter = RiskMeter(predictor)
    policy.reset()
    for frame, t_s in zip(frames, times, strict=True):
        action = policy.step(frame, float(t_s))
        live.append(meter(policy, action.steering, float(t_s), 9.0, 0.0))
    assert live == pytest.approx(risks_of(predictor, [trace])[0].tolist(), abs=1e-4)
    assert inputs_of(predictor, trace).shape == (30, predictor.config.inputs)
    assert torch.isfinite(inputs_of(predictor, trace)).all()


def test_roads_to_fit_and_to_judge_on_are_different_ones_and_some_kinds_are_only_judged_on(tmp_path: Path) -> None:
    jobs = drives_of(MonitorPlan(2, 1, 2, 3, compare_drives=1), tmp_path)
    parts = {part: {job.seed for job in jobs if job.part == part} for part in ("training", "validation", "test")}
    assert sum(map(len, parts.values())) == len(jobs)
    for part, own in parts.items():
        assert own <= set(monitor_drives.SEEDS[part])  # type: ignore[index]
        assert not any(seed in range_ for seed in own for range_ in (seeds.POLICY_RECORDING, seeds.POLICY_TEST))
    assert {job.kind for job in jobs if job.part == "test"} == set(KINDS)
    assert {job.kind for job in jobs if job.part != "test"} == set(KINDS) - set(ASIDE)
    assert {job.kind for job in jobs if job.compare} == set(KINDS) - {USUAL}
    assert set(groups_of([made_up(0), made_up(1, ASIDE[0])])) > {"all drives", "disturbances kept from it"}


def test_a_drive_is_kept_with_all_that_a_monitor_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nacdrive.common.paths import find_model
    from nacdrive.models import load_policy

    monkeypatch.setattr(monitor_drives, "DECISIONS", 6)
    policy = load_policy(find_model("nac_steady.pt", "udacity"))
    job = DriveJob("test", "blackout", seeds.MONITOR_TEST.start, tmp_path / "drive.npz", compare=True)
    trace = drive(job, policy)
    assert trace.features.shape == (6, 1152) and trace.summary.shape == (6, 100)
    assert set(trace.candidates) == {"mirror", "shift", "light", "dropout"}
    assert all(len(values) == 6 and np.isfinite(values).all() for values in trace.candidates.values())
    assert 3 < trace.half_width_m < 8
    save_trace(trace, job.file)
    again = load_trace(job.file)
    assert (again.kind, again.seed) == ("blackout", job.seed) and np.allclose(again.features, trace.features, atol=2e-2)
    assert np.array_equal(again.off_road, trace.off_road) and set(again.candidates) == set(trace.candidates)
