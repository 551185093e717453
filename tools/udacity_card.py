r"""Ship a trained policy: copy it to agents/udacity/ with its training log and a model card made from the numbers.

nacdrive train --task udacity --model nac-steady --data A B C --dagger 4 --rate 5 20 --vary-camera --out RUN
nacdrive eval --sim udacity --track random --model RUN/nac_steady.pt --episodes 50 --speed 25 --out GOOD
nacdrive eval --sim udacity --track random --model RUN/nac_steady.pt --episodes 50 --speed 25 --blackout 0.3 --out BLACK
python tools/udacity_card.py --policy RUN/nac_steady.pt --log RUN/metrics.jsonl --evals GOOD BLACK

What it had learnt before it went on with ``--first``: ``--stages FIRST.pt SECOND.pt``.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hub_metadata import with_front_matter
from policy_window import taught_otherwise

from nacdrive.cli.eval import with_interval
from nacdrive.common.files import read_json, write_text
from nacdrive.common.paths import shipped
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.udacity_track.options import RANDOM
from nacdrive.models import Policy, load_policy, save_policy

CARD = """# {file}

A policy for the Udacity simulator: each picture turned upright (the simulator's camera hangs crooked),
{count} convolutions ({channels}, ELU) on rows {first} to {last} of the 320x160 frame, resized to 66x200 YUV,
dropout 0.5, {layer}, dense 64-1. {parameters:,} parameters. It steers; a controller holds the speed.

Driving one lap of roads that no training saw (`--track random`, seeds from 4000000), and of the two fixed tracks, which
are among those of the training, on other days; 12.5 decisions a second, or one for each frame where the camera's rate
wanders:

| | {columns} |
|---|{lines}|
{rows}

| | |
|---|---|
| learnt from | {data}: {train_frames} frames |
| validation MAE of the steering, on blocks kept aside | {mae:.4f} |
| seed, the median of three by validation | {seed} |

The geometric driver drove 100 random roads (`udacity-random`), 50 of difficulty 1 (`udacity-hard`), both fixed
tracks{among_cars}; its wheel was disturbed, and its way back is the label. `udacity_track` is 1,800 rows that a person
recorded in the real simulator (three cameras, not shipped). In the trainings below the policy drove {rounds} rounds of
random roads, each drive with its own draw of what is wrong with the camera, and the geometric driver
labelled them.{blind}
All three training seeds, what is compared with what, and the commands of rounds that are not below:
[docs/results/roads.md](../../docs/results/roads.md).
How the policy drives the real simulator was not measured: no Unity build was run here; how it steers on rows of
it stands in [docs/results/udacity.md](../../docs/results/udacity.md).

Recorded and trained with{not_kept}

{record_commands}
{train_commands}

and judged with

{eval_commands}

on nacdrive {nacdrive}, torch {torch}. The log of the training is [{log}]({log}).
"""
RECORDED = {
    "udacity-random": "--track random --roads 100 --episodes 100 --max-frames 600 --no-sides",
    "udacity-fixed": "--episodes 20 --seed 3500000 --max-frames 600 --no-sides",
    "udacity-dense": "--track random --slow-cars 14 --seed 3000300 --episodes 60",
    "udacity-eight": "--track random --slow-cars 8 --seed 3000600 --episodes 80 --no-sides",
    "udacity-near-hard": "--track random --road-difficulty 1 --slow-cars 4 --seed 3000500 --episodes 40 --no-sides",
    "udacity-lake": "--track lake --episodes 5",
    "udacity-mountain": "--track mountain --episodes 5",
}
"""How each recording was made, by the geometric driver."""
AMONG_CARS = {
    "udacity-dense": "60 roads among 14 slow cars",
    "udacity-eight": "80 roads among eight slow cars",
    "udacity-near-hard": "40 of difficulty 1 among four",
}
"""What the card says of the recordings among slow cars."""
BLIND = """ Much of what it learnt from last are drives of
policies that no training had shown a car, among cars and on roads without any, labelled by the same driver
([why](../../docs/results/roads.md#registered-rounds-by-drivers-who-do-not-see-cars))."""
"""Of a policy that learnt from such rounds."""
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


def card(policy: Policy, file: Path, evaluations: Sequence[dict[str, Any]], before: Sequence[dict[str, Any]]) -> str:
    """The text of the card, from the ``metrics.json`` of evaluations, and the metas of what it was before."""
    meta, config = policy.meta, policy.config
    stages = [*before, meta]
    data = {Path(folder).name for stage in stages for folder in stage["config"]["data"]}
    columns = {
        f"{'unseen roads' if track == RANDOM else track}, {metrics['model']['speed_mph']:g} mph"
        + camera_of(metrics): numbers
        for metrics in evaluations
        for track, numbers in metrics["tracks"].items()
    }
    first, end = config.crop or (0, config.height)
    frames = f"over the last {config.window} frames with their times{taught_otherwise(policy)}"
    values: dict[str, Any] = {
        "file": file.name,
        "layer": "a dense layer (100-d) on the present frame alone: PilotNet's way"
        if config.model == "dense"
        else f"{config.model} in {config.options['mode']} mode ({config.d_model}-d, {config.num_heads} heads) {frames}",
        "count": {4: "four", 5: "five"}[len(config.channels)],
        "channels": "-".join(map(str, config.channels)),
        "parameters": sum(p.numel() for p in policy.network.parameters()),
        "columns": " | ".join(columns),
        "lines": "---|" * (len(columns) - 1) + "---",
        "rows": "\n".join(f"| {title} | {' | '.join(map(tell, columns.values()))} |" for title, tell in ROWS.items()),
        "data": " and ".join(
            name for folder in meta["config"]["data"] if not (name := Path(folder).name).startswith("dagger-")
        )
        + (" and the rounds before" if before else ""),
        "first": first,
        "last": end - 1,
        "among_cars": "".join(f" and {what} (`{name}`)" for name, what in AMONG_CARS.items() if name in data),
        "blind": BLIND if "runs/blind-1/dagger-1" in meta["config"]["data"] else "",
        "not_kept": " (of `udacity-hard` the first command was not kept)" if "udacity-hard" in data else "",
        "train_frames": meta["train_frames"],
        "mae": meta["valid_mae"],
        "rounds": sum(stage["config"]["dagger"] for stage in stages),
        "seed": stages[0]["config"]["seed"],
        "record_commands": "\n".join(
            f"    nacdrive record --sim udacity {how} --out {name}" for name, how in RECORDED.items() if name in data
        ),
        "train_commands": "\n".join(f"    {portable(stage['command'])}" for stage in stages),
        "eval_commands": "\n".join(f"    {portable(metrics['run']['command'])}" for metrics in evaluations),
        "log": f"{file.stem}.metrics.jsonl",
        **{name: meta["versions"][name] for name in ("nacdrive", "torch")},
    }
    return CARD.format(**values)


def camera_of(metrics: dict[str, Any]) -> str:
    """What was wrong with the camera of an evaluation, behind a comma; nothing of a good one."""
    camera = CameraNoise(**metrics["model"]["disturbance"])
    return f", {camera}" if camera.active else ""


def portable(command: str) -> str:
    """A command, or a JSON text, with the last part of each absolute path: nobody else has this machine's folders."""
    return re.sub(r'(?<=[ "])/[^\s"]*/(?=[^\s"/])', "", command).replace("__main__.py ", "nacdrive ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", type=Path, required=True, help="file of nacdrive train")
    parser.add_argument("--log", type=Path, required=True, help="metrics.jsonl of nacdrive train")
    parser.add_argument("--evals", type=Path, nargs="+", required=True, help="folders of nacdrive eval --sim udacity")
    parser.add_argument("--stages", type=Path, nargs="*", default=(), help="what it was before, the first one first")
    parser.add_argument("--name", help="file's name without .pt; that of the model if not given")
    options = parser.parse_args()
    policy = load_policy(options.policy)
    name = options.name or policy.meta["config"]["model"].replace("-", "_")
    target = shipped("agents") / "udacity"
    written, file = target / f"{name}.md", target / f"{name}.pt"
    policy.meta = json.loads(portable(json.dumps(policy.meta)))
    save_policy(policy, file)
    before = [load_policy(path).meta for path in options.stages]
    text = card(policy, file, [read_json(folder / "metrics.json") for folder in options.evals], before)
    write_text(written, with_front_matter(written, text))
    shutil.copyfile(options.log, target / f"{name}.metrics.jsonl")
    print(f"{file}: card and log beside it")


if __name__ == "__main__":
    main()
