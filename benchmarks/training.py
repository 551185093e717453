"""Is data loading a bottleneck? One training step from the recordings in memory against the same step on a ready batch.

    python benchmarks/training.py --data recordings/carracing-sample

Prints CPU and wall time per step (medians, interleaved) and their ratio; exit code 1 if the ratio of CPU times exceeds
--most. The step from the recordings gathers the chunks of a batch, augments them, and trains; the other one trains on
a batch that was made before the clock started. Reading and decoding the recordings happens once per training and is
printed beside it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

from nacdrive.models import Policy
from nacdrive.tasks import load_driving_task
from nacdrive.training.config import FitConfig
from nacdrive.training.fit import Fitting


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, nargs="+", default=[Path("recordings/carracing-sample")])
    parser.add_argument("--model", default="nac-steady")
    parser.add_argument("--window", type=int, default=4)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--most", type=float, default=1.15)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    task = load_driving_task("carracing")
    began = time.perf_counter()
    samples = task.load(options.data)
    loading = time.perf_counter() - began
    torch.manual_seed(0)
    policy = Policy.new(task.policy_config(options.model, options.window, samples))
    with tempfile.TemporaryDirectory() as folder:
        config = FitConfig()
        fitting = Fitting(policy.network, task, samples, [], config, Path(folder), 0, torch.device(options.device))
        # Only full batches, so that every step has as many frames.
        batches = [chunks for epoch in range(50) for chunks in fitting.train.epoch(epoch, 0)]
        full = [c for c in batches if len(c) == config.batch_size and all(x.stop - x.start == config.chunk for x in c)]
        chunks = full[: options.steps] or batches[: options.steps]
        ready = task.augment(fitting.train.load(chunks[0]), torch.Generator().manual_seed(0))
        own_load, own_augment = fitting.train.load, task.augment
        times: dict[str, list[tuple[float, float]]] = {"from recordings": [], "batch in memory": []}
        for i, batch in enumerate(chunks):
            for kind, rows in times.items():
                if kind == "batch in memory":
                    fitting.train.load = lambda chunks: ready  # type: ignore[method-assign]
                    task.augment = lambda batch, generator: batch  # type: ignore[method-assign]
                else:
                    fitting.train.load, task.augment = own_load, own_augment  # type: ignore[method-assign]
                if options.device != "cpu":
                    torch.cuda.synchronize()
                wall, cpu = time.perf_counter(), time.process_time()
                fitting.step(batch, i, 1e-4)
                if options.device != "cpu":
                    torch.cuda.synchronize()
                if i >= 3:
                    rows.append((time.process_time() - cpu, time.perf_counter() - wall))
        fitting.log.close()
    cpu_ms = {kind: 1e3 * statistics.median(row[0] for row in rows) for kind, rows in times.items()}
    wall_ms = {kind: 1e3 * statistics.median(row[1] for row in rows) for kind, rows in times.items()}
    frames = config.batch_size * config.chunk
    print(
        f"{options.model}, window {options.window}, {frames} frames a step, "
        f"{options.threads} thread(s), {options.device}"
    )
    for kind in times:
        print(f"{kind:16} {cpu_ms[kind]:7.1f} ms CPU {wall_ms[kind]:7.1f} ms wall a step")
    ratio = cpu_ms["from recordings"] / cpu_ms["batch in memory"]
    print(f"ratio of CPU times {ratio:.3f} (at most {options.most} allowed)")
    count = sum(map(len, samples))
    print(f"reading and decoding {count} frames once: {loading:.1f} s ({1e3 * loading / count:.2f} ms a frame)")
    return int(ratio > options.most)


if __name__ == "__main__":
    raise SystemExit(main())
