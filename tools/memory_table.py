r"""Does a memory help where one frame does not tell enough? Agents of CarRacing with and without one, on unseen tracks.

    OMP_NUM_THREADS=1 python tools/memory_table.py

Each agent sees one small grey frame at a time, without instruments, through a camera with blackouts and frames that
are lost; ``nacdrive expert imitate`` trains it, ``nacdrive eval`` drives it over the same unseen tracks through
that camera and through better ones (``TASKS``). All is kept under --out, each agent as a line of --results as soon as
it is judged; the same command goes on where it was stopped. ``--show`` prints the tables of the lines that are there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from roads_curve import nacdrive, read

from nacdrive.common.files import read_json
from nacdrive.common.statistics import paired_difference, summary
from nacdrive.envs.seeds import EXPERT_TEST
from nacdrive.models.agents.network import load_policy

MEMORIES = ("none", "lstm", "nac-steady", "gru", "mha", "cfc")
BLACKOUTS, LOSSES = "--blackout 0.06 --blackout-steps 4", "--dropped 0.1"
TASKS = {
    "all": f"{BLACKOUTS} {LOSSES}",
    "blackouts": BLACKOUTS,
    "irregular times": LOSSES,
    "hidden speed": "",
}
"""What is wrong with the camera beside the hidden speed; agents learn with the first of them."""
TRAINING = (
    "--expert nacdrive.drivers.racing_line:cautious --repeat 4 --frames 1 --no-instruments --channels 16 32 32 "
    "--rounds 8 --episodes 16 --steps 400 --last-steps 800 --batch-size 128 --sequence-length 8 --memory-window 12 "
    "--beta 0.7 --steering-noise 0.2 --eval-every 4 --eval-episodes 24 --paper-form"
)
TRACKS = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/memory-table"))
    parser.add_argument("--results", type=Path, default=Path("docs/results/table/memory.jsonl"))
    parser.add_argument("--memories", nargs="+", default=list(MEMORIES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--show", action="store_true", help="print the tables, and do nothing else")
    options = parser.parse_args()
    cells = [(task, seed, memory) for task in options.tasks for seed in options.seeds for memory in options.memories]
    for cell in cells if not options.show else []:
        if cell not in {(row["task"], row["seed"], row["memory"]) for row in read(options.results)}:
            row = measured(options.out, *cell)
            with options.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            about = f"{row['memory']}, seed {row['seed']}, trained {row['seconds']:.0f} s"
            print(f"{about}, {row['task']}: {np.mean(row['returns']):.0f}", flush=True)
    print("\n".join(tables(read(options.results))))


def measured(out: Path, task: str, seed: int, memory: str) -> dict[str, Any]:
    """One agent, trained if it is not yet, over the tracks of one task."""
    run = out / f"{memory}-seed-{seed}"
    if not (run / "done").exists():
        training = ["--model", memory, "--seed", seed, *TRAINING.split(), *TASKS["all"].split()]
        nacdrive("expert", "imitate", *training, "--out", run, *(["--resume"] if (run / "run.json").exists() else []))
        (run / "done").touch()
    judged = run / f"eval-{task.replace(' ', '-')}"
    driven = ["--driver", run / "best.pt", "--renderer", "fast", "--expert", "none", "--no-videos", "--workers", 1]
    driven += ["--seed", EXPERT_TEST.start, "--episodes", TRACKS, *TASKS[task].split()]
    nacdrive("eval", *driven, "--out", judged, "--resume")
    rows = read_json(judged / "metrics.json")["episodes"]
    net, about = load_policy(run / "best.pt")
    last = read(run / "log.jsonl")[-1]
    return {
        "task": task, "memory": memory, "seed": seed, "parameters": sum(each.numel() for each in net.parameters()),
        **{name: last[name] for name in ("seconds", "decisions", "steps", "loss")},
        "chosen_after": about["round"], "validation": round(about["validation"]["mean"], 2),
        "returns": [round(row["episode_return"], 2) for row in rows],
        "finished": sum(row["finished_lap"] for row in rows),
    }  # fmt: skip


def laps(rows: Sequence[dict[str, Any]], memory: str, task: str) -> dict[int, list[float]]:
    """Training seed -> returns of the tracks."""
    return {row["seed"]: row["returns"] for row in rows if (row["memory"], row["task"]) == (memory, task)}


def compared(
    rows: Sequence[dict[str, Any]], ours: str, theirs: str, task: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """``paired_difference`` over the laps (track and seed) and over the training seeds that both have."""
    a, b = laps(rows, ours, task), laps(rows, theirs, task)
    seeds = sorted(a.keys() & b.keys())
    over_laps = paired_difference([x for s in seeds for x in a[s]], [x for s in seeds for x in b[s]])
    over_seeds = paired_difference([float(np.mean(a[s])) for s in seeds], [float(np.mean(b[s])) for s in seeds])
    return over_laps, over_seeds


def tables(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Markdown: returns of each task, and their differences."""
    lines: list[str] = []
    for task in [name for name in TASKS if name in {row["task"] for row in rows}]:
        there = {row["memory"] for row in rows if row["task"] == task}
        memories = [name for name in MEMORIES if name in there] + sorted(there - set(MEMORIES))
        lines += ["", f"**{task}** `{TASKS[task]}`", ""]
        lines += ["| memory | return [95 %] | each training seed | laps finished | parameters | seconds |"]
        lines += ["|---|---|---|---|---|---|"]
        for name in memories:
            found, of = laps(rows, name, task), [r for r in rows if (r["memory"], r["task"]) == (name, task)]
            told = summary([value for each in found.values() for value in each])
            low, high = told["interval95"]
            each = ", ".join(f"{np.mean(found[seed]):.0f}" for seed in sorted(found))
            done = f"{sum(row['finished'] for row in of)} of {sum(map(len, found.values()))}"
            seconds = np.mean([row["seconds"] for row in of])
            lines += [
                f"| {name} | {told['mean']:.0f} ({low:.0f} to {high:.0f}) | {each} | {done} | "
                f"{of[0]['parameters']:,} | {seconds:.0f} |"
            ]
        lines += ["", "| difference | over laps [95 %] | over training seeds [95 %] |", "|---|---|---|"]
        nac = [name for name in memories if name.startswith("nac")]
        pairs = [(a, b) for a in nac for b in memories if b not in nac]
        pairs += [(a, "none") for a in memories if a not in nac and a != "none" and "none" in memories]
        for a, b in pairs:
            shown = " | ".join(between(told) for told in compared(rows, a, b, task))
            lines += [f"| {a} - {b} | {shown} |"]
    return lines


def between(told: dict[str, Any]) -> str:
    """A difference with its interval."""
    if told["interval95"] is None:
        return f"{told['value']:+.0f}"
    low, high = told["interval95"]
    return f"{told['value']:+.0f} ({low:+.0f} to {high:+.0f})"


if __name__ == "__main__":
    main()
