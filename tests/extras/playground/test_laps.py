"""A policy in the page drives as it does in Python: the network, the camera and the car in one loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nacdrive.envs.carracing.env import BRAKE, STEERING, THROTTLE
from nacdrive.extras.export.html import network_json
from nacdrive.extras.export.network_description import describe
from nacdrive.extras.playground.html import sprites
from nacdrive.models import Policy, save_policy
from nacdrive.rollout.drive import Drive

SEED, FRAMES = 4_000_007, 120


def test_steering_and_choices_drive_as_in_python(deno: Callable[..., Any], small: Policy, tmp_path: Path) -> None:
    torch.manual_seed(9)
    actions = tuple(zip(STEERING, THROTTLE, BRAKE, strict=True))
    chooses = Policy.new(replace(small.config, actions=actions, pedal=False, repeat=4), "chooses")
    jobs = []
    for policy in (small, chooses):
        description, weights = network_json(describe(policy))
        job = {"description": description, "weights": weights, "repeat": policy.repeat, "seeds": [SEED]}
        jobs.append({**job, "frames": FRAMES})
    for policy, (page,) in zip((small, chooses), deno("laps.js", sprites=sprites(), jobs=jobs), strict=True):
        save_policy(policy, tmp_path / "policy.pt")
        drive = Drive(
            model=tmp_path / "policy.pt", options={"renderer": "fast", "max_frames": FRAMES}, safety_stop=False
        )
        with drive.open(SEED) as opened:
            ticks = list(opened)
        page_rows = np.array(page["rows"])
        assert len(ticks) == len(page_rows) == FRAMES // policy.repeat
        # A Tick has the place where the decision was taken, the page's row the place where it has led to.
        places = np.array([[tick.x_m, tick.y_m] for tick in ticks])
        assert np.abs(places[-1] - places[0]).max() > 0.5
        np.testing.assert_allclose(page_rows[:-1, :2], places[1:], atol=0.02, rtol=0)
        decisions = [[tick.action.steering, tick.action.throttle] for tick in ticks]
        np.testing.assert_allclose(page_rows[:, 2:], decisions, atol=0.01, rtol=0)
