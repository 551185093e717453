"""A trained policy drives its simulator: what a table of errors cannot tell."""

from __future__ import annotations

from pathlib import Path

from nacdrive.common.errors import UserError
from nacdrive.envs.seeds import POLICY_TEST
from nacdrive.envs.world import env_of_task
from nacdrive.models import load_policy
from nacdrive.rollout.environment import usual_expert
from nacdrive.rollout.evaluate import EvalSpec, evaluate

EXPERTS = "experts"
"""Folder beside the cells of a run, with what the expert drove: once for all of them."""
KEPT = ("autonomy", "off_road_per_lap", "offset_mean_m", "offset_max_m", "jitter_per_s")


def drive(task: str, model: Path, drives: int, out: Path, device: str) -> dict[str, float]:
    """Drive ``drives`` tracks that no training touched.

    Returns:
        CarRacing: ``return`` and ``expert_fraction`` (of its expert's return on the same tracks). Udacity, on the
        built-in lake track: ``autonomy`` in percent, ``off_road_per_lap``, ``offset_mean_m`` and ``offset_max_m`` from
        the lane's middle, ``jitter_per_s`` of the steering.
    """
    env = env_of_task(task)
    if env is None:
        raise UserError(f"no environment is known for the task '{task}': its policies cannot be driven.")
    if any(env.tracks):
        # The policy decides at the pace of the recordings that it was trained on.
        repeat = max(1, round(load_policy(model).config.gap_s * (env.frames_per_second or 1)))
        options = {"laps": 1.0, "repeat": repeat}
        spec = EvalSpec(env.name, model, options=options, speed_mph=env.speed_mph, device=device)
        found = evaluate(spec, range(drives), out, tracks=env.tracks[:1], workers=0, films=False)
        numbers = found["tracks"][env.tracks[0]]
        return {name: float(numbers[name]["mean"]) for name in KEPT}
    renderer = {"renderer": "official"} if env.honours("renderer") else {}
    expert = usual_expert(env, load_policy(model))
    spec = EvalSpec(env.name, model, expert=expert, options=renderer, device=device)
    seeds = range(POLICY_TEST.start, POLICY_TEST.start + drives)
    found = evaluate(spec, seeds, out, workers=0, films=False, expert_folder=out.parent.parent / EXPERTS)
    share = found["expert_fraction"]
    return {"return": found["return"]["mean"]} | ({"expert_fraction": share["value"]} if share else {})
