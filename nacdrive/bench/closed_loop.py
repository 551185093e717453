"""A trained policy at the wheel of its simulator: what a table of errors cannot tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.seeds import POLICY_TEST
from nacdrive.models import load_policy
from nacdrive.rollout.evaluate import Evaluation, evaluate
from nacdrive.rollout.lake_evaluation import LakeCourse, evaluate_lake
from nacdrive.rollout.workers import Course

LAKE_HZ = 50
SPEED_MPH = 20.0


def drive(task: str, model: Path, drives: int, out: Path, device: str) -> dict[str, float]:
    """Drive ``drives`` tracks that no training touched.

    Returns:
        CarRacing: ``return`` and ``expert_fraction`` (of the PPO expert's return on the same tracks). Udacity, on the
        built-in lake track: ``autonomy`` in percent, ``off_road_per_lap``, ``offset_mean_m`` and ``offset_max_m`` from
        the lane's middle, ``jitter_per_s`` of the steering.
    """
    if task == "carracing":
        course = Course(model, "ppo", device=device)
        found = evaluate(Evaluation(course, POLICY_TEST.start, drives, films=False), out, workers=0)
        share = found["expert_fraction"]
        return {"return": found["return"]["mean"]} | ({"expert_fraction": share["value"]} if share else {})
    repeat = max(1, round(load_policy(model).config.gap_s * LAKE_HZ))
    lake = LakeCourse(model, laps=1.0, speed_mph=SPEED_MPH, repeat=repeat, disturbance=CameraNoise(), device=device)
    found = evaluate_lake(lake, ("lake",), range(drives), out, workers=0, films=False)
    numbers: dict[str, Any] = found["tracks"]["lake"]
    kept = ("autonomy", "off_road_per_lap", "offset_mean_m", "offset_max_m", "jitter_per_s")
    return {name: float(numbers[name]["mean"]) for name in kept}
