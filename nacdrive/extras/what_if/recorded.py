"""What if, asked of recordings: the world of a recorded drive made again, as far as the recording tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from nacdrive.common.paths import find_model
from nacdrive.datasets.recording import Recording
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.registry import EnvSpec, spec_of_source, task_of_source
from nacdrive.extras.what_if.process import WhatIfSource
from nacdrive.extras.what_if.what_if import JPEG_LEVELS, Simulation, WhatIf
from nacdrive.models import load_policy
from nacdrive.models.policy import Policy
from nacdrive.rollout.drive import Drive, LoadedDrive


def what_if_of(folder: Path, model: str, policy: Policy) -> WhatIfSource:
    """Whom the page asks what would be if at a moment of the recording in ``folder``, in another process."""
    meta = Recording.open(folder).meta
    spec = spec_of_source(str(meta["source"]))
    # An episode recorded frame by frame says nothing of the rate at which its driver decided.
    again = spec is not None and not spec.realtime and not meta.get("recipe", {}).get("every_frame")
    load = partial(load_what_if, folder, model)
    return WhatIfSource(load, policy.config.window, again, again and spec is not None and spec.expert is not None)


def load_what_if(folder: Path, model: str) -> WhatIf:
    """Called in the process that answers: the policy, and the world of the recording as far as it is told."""
    recording = Recording.open(folder)
    source = str(recording.meta["source"])
    spec, task = spec_of_source(source), task_of_source(source)
    path = find_model(model, task)
    policy = load_policy(path, expect_task=task)
    if spec is None or spec.realtime:
        return WhatIf(policy)
    repeat = round(spec.frames_per_second / recording.meta["fps"]) if spec.frames_per_second is not None else None
    drive = drive_of(recording.meta, spec)
    # An expert that was recorded had its own pedals, a policy that steers alone has none.
    drive = replace(drive, model=path, driver=None, speed_mph=drive.speed_mph or spec.speed_mph)
    loaded = LoadedDrive(drive, driver=PolicyDriver(policy), repeat=repeat)
    places = {info.seed: i for i, info in enumerate(recording.episodes)}

    def make_env(seed: int) -> DrivingEnv:
        driven = recording.load(places[seed])
        return loaded.make_env(seed, track=driven.meta.get("track"), between_frames=driven.between_frames is not None)

    apart = JPEG_LEVELS if spec.image_format == "jpeg" else 0.0
    beside = (lambda: loaded.expert) if drive.expert is not None else None
    return WhatIf(policy, Simulation(make_env, lambda driver, env: loaded.wrap(env, driver=driver), beside, apart))


def drive_of(meta: Mapping[str, Any], spec: EnvSpec) -> Drive:
    """How the episodes of a recording were driven: as it says, or else as is usual."""
    recipe, expert = meta.get("recipe", {}), str(meta.get("expert") or spec.expert)
    known = expert if expert in spec.experts else None
    if "drive" in meta:
        # A file names no code that is run.
        plain = replace(Drive.from_json(meta["drive"]), env=spec.name, driver=None, expert=known)
        return replace(plain, steering_noise=0.0, beta=None, around=())
    options = {name: recipe.get(name) for name in ("renderer", "rule")}
    return Drive(spec.name, expert=known, options=options, speed_mph=spec.speed_mph, recover=False, safety_stop=False)
