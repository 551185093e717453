"""What nacdrive computes, as checksums: run before and after a change that must not alter any result.

    python tools/checksums.py write before.json          # about five minutes
    python tools/checksums.py compare before.json       # runs all again and prints what differs, with exit code 1

Each job is a command line of its own with fixed seeds. Of Parquet episodes the bytes count, of model files the tensors,
of results in JSON every value but times, paths and versions. Checksums belong to one machine and one set of packages:
arithmetic differs in its last bits between processors, so none are committed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
SAMPLE = "carracing-sample"
CAR = "--max-frames 160"
TRACK = "--env udacity-track --laps 0.03 --no-videos --workers 1"
LOG = "--env udacity-track --episodes 2 --max-frames 160 --workers 1"
NOISE = "--noise 0.1 --blackout 0.2 --delay-steps 1 --brightness 0.8"
# In order: a job may read what an earlier one wrote.
JOBS = {
    "record-ppo": f"record --episodes 2 {CAR} --min-return -999 --workers 2 --out record-ppo",
    "record-continuous": f"record --expert continuous --episodes 2 {CAR} --min-return -999 --out record-continuous",
    "record-racing-line": f"record --expert racing-line --episodes 1 {CAR} --min-return -999 --out record-racing-line",
    "record-noisy": f"record --episodes 1 {CAR} --min-return -999 {NOISE} --out record-noisy",
    "record-lake": f"record {LOG} --track lake --out record-lake",
    "record-random": f"record {LOG} --track random --road-difficulty 0.6 --slow-cars 2 --out record-random",
    "record-example": "record --env my_env:make_env --driver my_driver:MyDriver --episodes 2 --out record-example",
    "eval-steady": f"eval --model nac_steady.pt --episodes 2 {CAR} --no-videos --workers 1 --out eval-steady",
    "eval-noisy": f"eval --model nac_exact.pt --episodes 1 {CAR} {NOISE} --no-videos --workers 1 --out eval-noisy",
    "eval-continuous": f"eval --model nac_steady_continuous.pt --expert continuous --episodes 1 {CAR} --renderer fast "
    "--no-videos --workers 1 --out eval-continuous",
    "eval-driver": f"eval --driver racing-line --episodes 1 {CAR} --no-videos --workers 1 --out eval-driver",
    "eval-lake": f"eval --model nac_steady.pt --episodes 1 --track lake {TRACK} --out eval-lake",
    "eval-random": f"eval --model nac_exact.pt --episodes 1 --track random --speed 25 {TRACK} --out eval-random",
    "eval-filmed": f"eval --model nac_euler.pt --episodes 1 {CAR} --workers 1 --out eval-filmed",
    "train-choices": f"train --data {SAMPLE} --model nac-steady --epochs 1 --dagger 1 --dagger-episodes 1 "
    "--dagger-epochs 1 --max-frames 160 --workers 1 --out train-choices",
    "train-gru": f"train --data {SAMPLE} --model gru --epochs 1 --out train-gru",
    "train-pedals": "train --data record-continuous --model nac-exact --epochs 1 --out train-pedals",
    "train-udacity": "train --task udacity --data record-lake --model nac-steady --epochs 1 --chunk 8 "
    "--out train-udacity",
    "train-imitation": "train --task imitation --data record-example --model nac-lag --epochs 1 --out train-imitation",
    "imitate": "expert imitate --rounds 2 --episodes 1 --steps 3 --last-steps 2 --max-frames 60 --batch-size 16 "
    "--eval-episodes 1 --out imitate",
    "arena": f"arena --models nac_steady.pt --drivers ppo --headless --fast {CAR} --out arena",
}
VERBS = (
    *("demo", "record", "train", "drive", "arena", "eval", "replay", "share", "predict", "doctor"),
    *("explain saliency", "explain neurons", "data list", "recordings info", "recordings merge", "sim udacity"),
    *("hunt", "playground"),
    *("expert train", "expert imitate", "expert eval", "bench table", "bench plan", "bench run", "export"),
)
WIRE = """
import hashlib
from itertools import islice
from nacdrive.common.paths import find_model
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.envs.registry import env_spec
from nacdrive.models import load_policy
from nacdrive.rollout.rollout import Probes, rollout
from nacdrive.web.protocol import pack
driver = PolicyDriver(load_policy(find_model("nac_steady.pt", "carracing")))
ticks = rollout(env_spec("carracing").make({"repeat": 4}), driver, 4000000, probes=Probes(driver.neurons, 1))
whole = hashlib.sha256()
for number, tick in enumerate(islice(ticks, 100)):
    packed = pack(tick, number)
    whole.update(repr(packed.parts).encode() + packed.body)
print(whole.hexdigest())
"""
UNSTABLE = re.compile(
    r"_ms|seconds|_at$|created|versions|machine|command|config|date|process|late_decisions|_s_per|^run$"
)


def values(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of JSON with its path, but times, versions and the command that made it."""
    if isinstance(node, dict):
        for key, child in node.items():
            if not UNSTABLE.search(key):
                yield from values(child, f"{path}.{key}")
    elif isinstance(node, list):
        for number, child in enumerate(node):
            yield from values(child, f"{path}[{number}]")
    else:
        yield path, node


def checksums(folder: Path) -> Iterator[tuple[str, Any]]:
    """What is compared of one result folder."""
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".parquet":
            yield name, hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.suffix == ".pt":
            yield name, tensors(path)
        elif path.suffix == ".json":
            yield from values(json.loads(path.read_text()), name)
        elif path.suffix == ".jsonl":
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            yield from values(rows, name)


def tensors(path: Path) -> str:
    """Checksum of the weights in a model file, by name."""
    import torch

    whole = hashlib.sha256()
    for name, tensor in sorted(leaves(torch.load(path, weights_only=True))):
        whole.update(name.encode() + tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return whole.hexdigest()


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor of nested dicts with its path."""
    import torch

    if isinstance(node, torch.Tensor) and node.ndim and node.is_floating_point():
        yield path, node.detach().flatten()
    elif isinstance(node, dict):
        for key, child in node.items():
            yield from leaves(child, f"{path}.{key}")


def run_all(only: str) -> dict[str, dict[str, Any]]:
    """Artefact -> what is compared of it, for the jobs whose name matches ``only``."""
    results: dict[str, dict[str, Any]] = {}
    path = os.pathsep.join(map(str, (ROOT, EXAMPLES)))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "120", "NO_COLOR": "1", "PYTHONPATH": path}
    with tempfile.TemporaryDirectory() as folder:

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, *arguments]
            return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)

        for name, line in JOBS.items():
            if not re.search(only, name):
                continue
            ended = run("-m", "nacdrive", *line.split())
            print(f"{name}: exit code {ended.returncode}", file=sys.stderr, flush=True)
            if ended.returncode:
                print(ended.stderr[-600:], file=sys.stderr)
            results[name] = {"exit code": ended.returncode, **dict(checksums(Path(folder) / name))}
        if re.search(only, "wire"):
            results["wire"] = {"100 Ticks": run("-c", WIRE).stdout.strip()}
        if re.search(only, "help"):
            results["help"] = {verb: run("-m", "nacdrive", *verb.split(), "--help").stdout for verb in VERBS}
    return results


def differences(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> Iterator[str]:
    """A line for each value that differs, is new or is gone."""
    for name in after:
        old, new = before.get(name, {}), after[name]
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                yield f"{name} {key}: {shorten(old.get(key))} -> {shorten(new.get(key))}"


def shorten(value: Any) -> str:
    """``value`` in at most 40 characters."""
    text = "(none)" if value is None else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def main() -> int:
    """Write or compare; exit code 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="regular expression: the jobs to run")
    asked = parser.parse_args()
    results = run_all(asked.only)
    if asked.what == "write":
        asked.file.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        return 0
    lines = list(differences(json.loads(asked.file.read_text()), results))
    print("\n".join(lines) if lines else f"all equal: {len(results)} artefacts")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
