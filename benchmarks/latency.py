"""Decision latency of the closed loop on one core: how long a policy takes from a frame to an action.

    OMP_NUM_THREADS=1 python benchmarks/latency.py [--episodes 2] [--write FILE]

The four policies that ship, and the first with another layer in the place of its own (as wide, untrained: latency
does not depend on what weights have learnt), drive whole official CarRacing episodes, the simulator's drawing between
two decisions included, so that caches are as cold as in life. Two clocks: the wall's, which other jobs of the machine
slow down, and the CPU's, which they hardly touch. The first ten decisions (allocations) are left out. Exit code 1 if
the 99th percentile of CPU time of one that ships is above 1.5 ms.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
import torch

from nacdrive.common.action import Action
from nacdrive.common.files import write_text
from nacdrive.common.runs import package_versions
from nacdrive.envs.base import DrivingEnv, Frame, Info
from nacdrive.envs.carracing.env import make_carracing
from nacdrive.envs.seeds import EXPERT_VALIDATION
from nacdrive.models import Policy, load_policy
from nacdrive.rollout.rollout import rollout

SHIPPED = ("nac_steady", "nac_exact", "nac_euler", "nac_steady_continuous")
OTHERS = ("lstm", "mha")
WARM_UP = 10
LIMIT_MS = 1.5


@dataclass
class Clocked:
    """A policy with two stop watches."""

    policy: Policy
    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.policy.name

    def reset(self, env: DrivingEnv) -> None:
        self.policy.reset()

    def act(self, frame: Frame, info: Info) -> Action:
        wall, cpu = time.perf_counter(), time.thread_time()
        action = self.policy.step(frame, info["t_s"], info["speed_mps"])
        self.cpu_ms.append((time.thread_time() - cpu) * 1e3)
        self.wall_ms.append((time.perf_counter() - wall) * 1e3)
        return action


def measure(policy: Policy, episodes: int) -> Clocked:
    clocked = Clocked(policy)
    world = make_carracing(repeat=policy.repeat, continuous=policy.config.continuous)
    for episode in range(episodes):
        for _ in rollout(world, clocked, EXPERT_VALIDATION.start + episode):
            pass
    world.close()
    return clocked


def main() -> int:
    parser = argparse.ArgumentParser(description="Decision latency of the closed loop on one core.")
    parser.add_argument("--episodes", type=int, default=2)
    parser.add_argument("--write", type=Path, help="write the table to this markdown file, and nothing else")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    rows, slow = [], []
    torch.manual_seed(0)
    policies = [load_policy(f"carracing/{name}") for name in SHIPPED]
    policies += [policies[0].with_layer(layer) for layer in OTHERS]
    for policy in policies:
        clocked = measure(policy, options.episodes)
        cpu, wall = (np.array(clock[WARM_UP:]) for clock in (clocked.cpu_ms, clocked.wall_ms))
        numbers = [np.median(cpu), np.percentile(cpu, 99), np.median(wall), np.percentile(wall, 99)]
        about = f"| {policy.name} | {policy.config.window} | {len(cpu)} | "
        rows.append(about + " | ".join(f"{n:.2f}" for n in numbers) + " |")
        print(rows[-1], flush=True)
        if policy.name in SHIPPED and numbers[1] > LIMIT_MS:
            slow.append(f"{policy.name}: {numbers[1]:.1f} ms")

    versions = package_versions()
    load = f", load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores" if hasattr(os, "getloadavg") else ""
    text = "\n".join(
        [
            "# Decision latency",
            "",
            "From a frame to an action inside the closed loop on official CarRacing, one core, in milliseconds. "
            "A decision is due every 80 ms.",
            "",
            "| policy | window | decisions | CPU median | CPU p99 | wall median | wall p99 |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
            f"Command: `OMP_NUM_THREADS=1 python benchmarks/latency.py --episodes {options.episodes}`. "
            f"Machine: {platform.system()} {platform.machine()}, {processor()}{load}. The CPU columns leave out the "
            "time in which another job had the core; the wall columns include it. "
            f"Versions: Python {versions['python']}, torch {versions['torch']}, numpy {versions['numpy']}, "
            f"gymnasium {versions['gymnasium']}, nacdrive {versions['nacdrive']}.",
            "",
        ]
    )
    if options.write:
        write_text(options.write, text)
    if slow:
        print(f"99th percentile above {LIMIT_MS} ms: {'; '.join(slow)}", file=sys.stderr)
    return 1 if slow else 0


def processor() -> str:
    """Name of the processor where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


if __name__ == "__main__":
    sys.exit(main())
