r"""Ship a trained policy: copy it to agents/udacity/ with its training log and a model card made from the numbers.

nacdrive record --sim udacity --episodes 56 --no-sides
nacdrive train --task udacity --model nac-steady --data recordings/udacity-geometric DIR --window 4
nacdrive eval --sim udacity --model runs/udacity-nac-steady/nac_steady.pt --episodes 10
python tools/udacity_card.py --run runs/udacity-nac-steady --eval runs/eval-udacity-nac_steady
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from hub_metadata import with_front_matter

from nacdrive.cli.eval import with_interval
from nacdrive.common.files import read_json, write_text
from nacdrive.common.paths import shipped
from nacdrive.models import Policy, load_policy

CARD = """# {file}

A policy for the Udacity simulator: five convolutions (24-36-48-64-64, ELU) on rows 60 to 135 of the 320x160 frame,
resized to 66x200 YUV, dropout 0.5, {model} (100-d, 20 heads) over the last {window} frames with their times, dense
64-1. {parameters:,} parameters. It steers; a controller holds the speed.

Driving the two built-in tracks for {laps} at {speed:g} mph, {hz:g} frames a second, under {skies} skies that no
training saw (seeds {first} to {last}; light, shadows, colours, what stands beside the road and the start differ, the
two roads are those of the training):

| | lake | mountain |
|---|---|---|
{rows}

| | |
|---|---|
| learnt from | {data}: {train_frames} frames |
| validation MAE of the steering, on blocks kept aside | {mae:.4f} |
| wall time of the training | {minutes:.0f} minutes on a quarter of a core (a busy two-core machine) |
| seed | {seed} |

The geometric driver reads the road's course; its wheel was disturbed, and its way back is the label. `udacity_track` is
1,800 rows that a person recorded in the real simulator (three cameras, not shipped). How these policies drive the real
simulator was not measured: no Unity build was run here.

Trained with

    {train_command}

and judged with

    {eval_command}

on nacdrive {nacdrive}, torch {torch}. The log of the training is [{log}]({log}).
"""
ROWS = {
    "drives that never left the road": lambda n: (
        f"**{n['flawless']['count']} of {n['drives']}** (95 %: {n['flawless']['interval95'][0]:.0%} to "
        f"{n['flawless']['interval95'][1]:.0%})"
    ),
    "autonomy (6 s an intervention), %": lambda n: with_interval(n["autonomy"], 1),
    "times off the road a lap": lambda n: with_interval(n["off_road_per_lap"], 2),
    "laps without a wheel off the road": lambda n: f"{n['clean_laps']} of {n['laps']:.0f}",
    "from the middle, mean, m": lambda n: with_interval(n["offset_mean_m"], 2),
    "from the middle, most, m": lambda n: with_interval(n["offset_max_m"], 2),
    "steering moves a second": lambda n: with_interval(n["jitter_per_s"], 2),
    "speed, m/s": lambda n: with_interval(n["speed_mps"], 1),
}
"""Title of each row, and how it is made from a track's numbers."""


def card(policy: Policy, file: Path, metrics: dict[str, Any]) -> str:
    """The text of the card."""
    meta, course = policy.meta, metrics["model"]
    seeds = sorted({row["seed"] for row in metrics["episodes"]})
    tracks = [metrics["tracks"][name] for name in ("lake", "mountain")]
    values: dict[str, Any] = {
        "file": file.name,
        "model": policy.config.model,
        "window": policy.config.window,
        "parameters": sum(p.numel() for p in policy.network.parameters()),
        "laps": "1 lap" if course["laps"] == 1 else f"{course['laps']:g} laps",
        "speed": course["speed_mph"],
        "hz": 50 / course["repeat"],
        "skies": len(seeds),
        "first": seeds[0],
        "last": seeds[-1],
        "rows": "\n".join(f"| {title} | {' | '.join(map(tell, tracks))} |" for title, tell in ROWS.items()),
        "data": " and ".join(Path(folder).name for folder in meta["config"]["data"]),
        "train_frames": meta["train_frames"],
        "mae": meta["valid_mae"],
        "minutes": meta["session_s"] / 60,
        "seed": meta["config"]["seed"],
        "train_command": meta["command"],
        "eval_command": metrics["run"]["command"],
        "log": f"{file.stem}.metrics.jsonl",
        **{name: meta["versions"][name] for name in ("nacdrive", "torch")},
    }
    return CARD.format(**values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="folder of nacdrive train")
    parser.add_argument("--eval", type=Path, required=True, help="folder of nacdrive eval --sim udacity")
    options = parser.parse_args()
    file = options.run / f"{read_json(options.run / 'run.json')['config']['model'].replace('-', '_')}.pt"
    target = shipped("agents") / "udacity"
    written = target / f"{file.stem}.md"
    text = card(load_policy(file), file, read_json(options.eval / "metrics.json"))
    write_text(written, with_front_matter(written, text))
    shutil.copyfile(file, target / file.name)
    shutil.copyfile(options.run / "metrics.jsonl", target / f"{file.stem}.metrics.jsonl")
    print(f"{target / file.name}: card and log beside it")


if __name__ == "__main__":
    main()
