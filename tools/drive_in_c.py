"""Drive the same tracks with a policy in torch and with its exported C, and compare what comes of it.

    python tools/drive_in_c.py --env carracing --episodes 5
    python tools/drive_in_c.py --env udacity-track --episodes 2 --max-frames 3000

Of each track: the return, the number of decisions and the environment's own numbers, of both, and by how much their
steering differs at most, decision by decision.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from compiled_policy import FLAGS, CompiledPolicy

from nacdrive.common.paths import find_model
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.envs.registry import EnvSpec, env_spec
from nacdrive.envs.seeds import POLICY_TEST
from nacdrive.models import load_policy
from nacdrive.rollout.drive import Drive, LoadedDrive


@dataclass(frozen=True)
class Config:
    env: str = "carracing"
    """carracing or udacity-track."""
    model: str = "nac-steady"
    """File of the policy, or the name of a shipped one."""
    episodes: int = 5
    """Tracks, or drives."""
    seed: int = POLICY_TEST.start
    """Seed of the first."""
    max_frames: int | None = None
    """Simulated frames after which a drive ends."""


def drive(
    spec: EnvSpec, policy: Any, seed: int, track: str, max_frames: int | None
) -> tuple[dict[str, Any], list[float]]:
    """The numbers of a drive, and the steering of every decision."""
    options = {"max_frames": max_frames}
    drive = Drive(spec.name, options=options, speed_mph=spec.speed_mph)
    with LoadedDrive(drive, driver=PolicyDriver(policy)).open(seed, track=track) as opened:
        ticks = list(opened)
        metrics = {"return": round(ticks[-1].episode_return, 3), "decisions": len(ticks), **opened.env.metrics()}
    assert not any(tick.failure for tick in ticks), ticks[-1].failure
    return metrics, [tick.action.steering for tick in ticks]


def main(config: Config) -> None:
    spec = env_spec(config.env)
    model = find_model(config.model, spec.task)
    with tempfile.TemporaryDirectory() as folder:
        policies = (load_policy(model), CompiledPolicy(model, Path(folder), [*FLAGS]))
        for k in range(config.episodes):
            seed = config.seed + k
            track = spec.track_of(None, seed)
            (one, a), (other, b) = (drive(spec, policy, seed, track, config.max_frames) for policy in policies)
            n = min(len(a), len(b))
            apart = np.abs(np.array(a[:n]) - np.array(b[:n]))
            print(f"{spec.name} {track} seed {seed}: largest difference of the steering {apart.max():.1e}", flush=True)
            for name in one:
                print(f"  {name:<20} torch {one[name]!s:<22} C {other[name]}", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
