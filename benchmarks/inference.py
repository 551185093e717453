"""A decision without the simulator: eager torch, compiled torch, ONNX Runtime and C, on one core.

    OMP_NUM_THREADS=1 python benchmarks/inference.py [--decisions 1000] [--equal 10000] [--write FILE]

Every row is a process of its own with one thread. *Start* is from the first import to the first decision, *memory*
what the process holds in the end. Frames change from decision to decision. Two clocks: the wall's, which other jobs
of the machine slow down, and the CPU's, which they hardly touch. The first decisions are left out of the percentiles.
Speed does not depend on what the weights have learnt: LSTM, GRU, CfC and MHA are untrained, of the shipped size.
``--equal`` drives the shipped policies through so many decisions with resets in torch and in ONNX Runtime, side by
side.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

WARM_UP = 20
EPISODE = 250
"""Decisions between two resets."""
LAYERS = ("lstm", "gru", "cfc", "mha")
BACKENDS = {"torch": "torch, eager", "compiled": "torch.compile", "onnx": "ONNX Runtime", "c": "C (-O3)"}


def frames(height: int, width: int, count: int) -> Iterator[tuple[bool, np.ndarray, float]]:
    """Smooth moving pictures with noise, at uneven times: whether an episode begins, frame, seconds."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:height, :width].astype(np.float32)
    t_s = 0.0
    for i in range(count):
        t_s = 0.0 if i % EPISODE == 0 else t_s + float(rng.uniform(0.04, 0.12))
        waves = [np.sin(x / (9 + 3 * c) + i * 0.13 + c) * np.cos(y / (7 + 2 * c) - i * 0.07) for c in range(3)]
        picture = 128 + 90 * np.stack(waves, axis=-1) + rng.normal(0, 12, (height, width, 3))
        yield i % EPISODE == 0, picture.clip(0, 255).astype(np.uint8), t_s


def loaded(backend: str, model: Path, folder: Path) -> Any:
    """The policy in ``model`` (``.onnx`` for ONNX Runtime), with ``reset`` and ``step``."""
    if backend == "onnx":
        from nacdrive.drivers.onnx_runtime import Policy

        return Policy(model)
    if backend == "c":
        sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))
        from compiled_policy import CompiledPolicy

        return CompiledPolicy(model, folder)
    import torch

    from nacdrive.models import load_policy

    torch.set_num_threads(1)
    policy = load_policy(model)
    return Compiled(policy) if backend == "compiled" else policy


class Compiled:
    """``PolicyStep``, whose shapes stay, under ``torch.compile``."""

    def __init__(self, policy: Any) -> None:
        import torch

        from nacdrive.extras.export.onnx import PolicyStep

        self.torch, step = torch, PolicyStep(policy).eval()
        self.config, self.initial, self.outputs = policy.config, step.step.initial, len(step.outputs)
        self.run = torch.compile(step, fullgraph=True)

    def reset(self) -> None:
        self.state = list(self.initial().values())

    def step(self, frame: np.ndarray, t_s: float, speed_mps: float | None = None) -> None:
        torch = self.torch
        with torch.no_grad():
            outputs = self.run(torch.from_numpy(frame), torch.tensor([t_s]), torch.zeros(1), *self.state)
        self.state = list(outputs[self.outputs :])


def measure(backend: str, model: Path, shape: tuple[int, int], decisions: int, folder: Path) -> dict[str, Any]:
    """One row, in a process that has imported nothing but numpy."""
    pictures = list(frames(*shape, min(decisions, 200)))
    wall, cpu = time.perf_counter(), time.process_time()
    policy = loaded(backend, model, folder)
    policy.reset()
    policy.step(pictures[0][1], 0.0)
    row: dict[str, Any] = {"start_s": time.perf_counter() - wall, "start_cpu_s": time.process_time() - cpu}
    took = []
    for i in range(decisions + WARM_UP):
        if i % EPISODE == 0:
            policy.reset()
        picture = pictures[i % len(pictures)][1]
        wall, cpu = time.perf_counter(), time.thread_time()
        policy.step(picture, (i % EPISODE) * 0.08)
        took.append((time.perf_counter() - wall, time.thread_time() - cpu))
    for name, column in zip(("wall", "cpu"), np.array(took[WARM_UP:]).T, strict=True):
        row[f"{name}_ms"] = [float(np.percentile(column * 1e3, p)) for p in (50, 99)]
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    kib = next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), float("nan"))
    row["memory_mb"] = kib * 1024 / 1e6
    return row


def equality(model: Path, onnx: Path, decisions: int) -> tuple[float, int | None]:
    """Largest difference of the outputs over ``decisions`` with resets, and in how many the chosen action differs; None
    where none is chosen.
    """
    from nacdrive.drivers.onnx_runtime import Policy
    from nacdrive.models import load_policy

    own, exported, worst, other = load_policy(model), Policy(onnx), 0.0, 0
    for first, frame, t_s in frames(own.config.height, own.config.width, decisions):
        if first:
            own.reset()
            exported.reset()
        a, b = own.step(frame, t_s), exported.step(frame, t_s)
        answer = np.asarray([b.steering, b.throttle, b.brake] if b.logits is None else b.logits)
        expected = np.asarray([a.steering, a.throttle, a.brake] if a.logits is None else a.logits)
        worst = max(worst, float(np.abs(answer - expected).max()))
        other += a.choice != b.choice
    return worst, None if own.config.continuous else other


def subjects(folder: Path) -> dict[str, Path]:
    """The files that are measured, by what they are."""
    import torch

    from nacdrive.common.paths import shipped
    from nacdrive.envs.carracing.env import BRAKE, STEERING, THROTTLE
    from nacdrive.models import Policy, PolicyConfig, save_policy

    files = {f"{task}, nac-steady": shipped("agents") / task / "nac_steady.pt" for task in ("carracing", "udacity")}
    actions = tuple(zip(STEERING, THROTTLE, BRAKE, strict=True))
    for layer in LAYERS:
        torch.manual_seed(0)
        path = folder / f"{layer}.pt"
        config = PolicyConfig("carracing", layer, actions, window=4, strides=(3, 2, 2))
        save_policy(Policy.new(config, layer), path)
        files[f"carracing, {layer}"] = path
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=1000)
    parser.add_argument("--equal", type=int, default=0)
    parser.add_argument("--by", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    parser.add_argument("--policies", nargs="+", help="words of their names, such as lstm or udacity; all if not given")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--row", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row:
        backend, model, height, width, folder = given.row
        shape = (int(height), int(width))
        print(json.dumps(measure(backend, Path(model), shape, given.decisions, Path(folder))))
        return
    from nacdrive.common.files import write_text
    from nacdrive.common.paths import shipped
    from nacdrive.common.runs import package_versions
    from nacdrive.extras.bench.machine import processor
    from nacdrive.extras.export.onnx import export_onnx
    from nacdrive.models import load_policy

    has_c = shutil.which("cc") is not None
    load_before = os.getloadavg()[0]
    lines = [
        "| policy | by | decision p50 (ms) | p99 | CPU p50 (ms) | p99 | start (s) | CPU (s) | memory (MB) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for subject, model in subjects(folder).items():
            if given.policies and not any(word in subject for word in given.policies):
                continue
            config = load_policy(model).config
            graphs = {"onnx": folder / "policy.onnx"}
            export_onnx(model, graphs["onnx"])
            for backend in ["torch", "compiled", *graphs, *(["c"] if has_c else [])]:
                if backend not in given.by:
                    continue
                file = graphs.get(backend, model)
                row = [backend, str(file), str(config.height), str(config.width), name]
                command = [sys.executable, __file__, "--decisions", str(given.decisions), "--row", *row]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
                    lines.append(f"| {subject} | {BACKENDS[backend]} | not run: {why} | | | | | | |")
                else:
                    n = json.loads(done.stdout.splitlines()[-1])
                    (w50, w99), (c50, c99) = n["wall_ms"], n["cpu_ms"]
                    lines.append(
                        f"| {subject} | {BACKENDS[backend]} | {w50:.3f} | {w99:.3f} | "
                        f"{c50:.3f} | {c99:.3f} | {n['start_s']:.2f} | {n['start_cpu_s']:.2f} | {n['memory_mb']:.0f} |"
                    )
                print(lines[-1], flush=True)
        same = []
        if given.equal:
            same = ["", "| shipped policy | sha256 | decisions | largest difference | other action |"]
            same.append("|---|---|---|---|---|")
            for model in sorted(shipped("agents").glob("*/*.pt")):
                if model.parent.name not in ("carracing", "udacity"):
                    continue
                export_onnx(model, folder / "equal.onnx")
                worst, other = equality(model, folder / "equal.onnx", given.equal)
                name, digest = f"{model.parent.name}/{model.name}", hashlib.sha256(model.read_bytes()).hexdigest()[:8]
                choice = "–" if other is None else other
                same.append(f"| {name} | `{digest}` | {given.equal} | {worst:.1e} | {choice} |")
                print(same[-1], flush=True)
    versions = package_versions()
    threads = f"one thread, load {load_before:.1f} before and {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores"
    head = f"{processor()}; {threads}; Python {versions['python']}, torch {versions.get('torch')}; "
    head += f"{given.decisions} decisions"
    text = "\n".join([head, "", *lines, *same, ""])
    if given.write:
        write_text(given.write, text)


if __name__ == "__main__":
    main()
