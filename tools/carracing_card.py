r"""Ship a trained policy: copy it to agents/carracing/ with its training log and a model card made from the numbers.

nacdrive train --task carracing --model nac-steady --data recordings/carracing-expert --dagger 3
nacdrive eval --model runs/carracing-nac-steady/nac_steady.pt
nacdrive record --episodes 8 --seed 3002000 --out recordings/carracing-unseen
python tools/carracing_card.py --run runs/carracing-nac-steady --eval runs/eval-nac_steady \
    --unseen recordings/carracing-unseen

``--name`` ships it under another name than that of its layer, ``--rows`` adds rows to the table (a file of Markdown).
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

import torch
from hub_metadata import with_front_matter
from policy_window import taught_otherwise

from nacdrive.common.files import read_json, write_text
from nacdrive.common.paths import shipped
from nacdrive.datasets.recording import Recording
from nacdrive.models import Policy, load_policy
from nacdrive.tasks import load_task
from nacdrive.tasks.carracing import CLOSE
from nacdrive.training.log import read_rows

CARD = """# {file}

A CarRacing-v3 policy: three convolutions (10-20-30), dropout 0.2, {layer} over the last {window}
frames with their times{taught}, dense 64-{outputs}.
{parameters:,} parameters. It sees the official 96x96x3 frame{blind} and
{decides} every {repeat} frames ({hz:g} times a simulated second).

| | |
|---|---|
| return over {tracks} unseen tracks (seeds {first} to {last}) | **{mean:.1f}** ± {std:.1f}, least {least:.1f} |
| 95 % interval of the mean | {low:.1f} to {high:.1f} |
| the expert on the same tracks | {expert_mean:.1f} ± {expert_std:.1f}, least {expert_least:.1f} |
| expert fraction | **{fraction:.1%}**, 95 % interval {fraction_low:.1%} to {fraction_high:.1%} |
| laps finished | {laps} of {tracks} |
{more}| offline: decides as the expert{closely} in {unseen} | {accuracy:.1%} |
{agreement}| recorded | {recorded} |
| learnt from | {train_frames} frames; {episodes} episodes altogether, those of DAgger included |
| wall time of the training | {minutes:.1f} minutes on {machine} |
| seed | {seed} |

Trained with

    {train_command}

and judged with

    {eval_command}

on nacdrive {nacdrive}, torch {torch}, gymnasium {gymnasium}. The log of the training is [{log}]({log}), one row per
epoch and round (round 0: the recordings alone; round k: with the frames of k rounds of DAgger); its validation columns
tell the epochs of a round apart rather than policies from each other, for the frames differ. Tracks that were recorded
or practised on begin at seed 3000000; tracks that policies are judged on at 2000000 and 4000000
(`nacdrive/envs/seeds.py`).
"""


def card(run: Path, evaluation: Path, unseen: Path, machine: str, name: str | None, more: str) -> tuple[str, Path]:
    """The text of the card, and the model file it is about.

    Args:
        run: Folder of the training.
        evaluation: Folder of the evaluation.
        unseen: Recording that the training did not see.
        machine: What it was trained on, in words.
        name: Of the shipped file, without ".pt"; that of the layer if not given.
        more: Further rows of the table, in Markdown.
    """
    model_file = run / f"{read_json(run / 'run.json')['config']['model'].replace('-', '_')}.pt"
    policy, metrics = load_policy(model_file), read_json(evaluation / "metrics.json")
    meta, result, expert = policy.meta, metrics["return"], metrics["expert_return"]
    seeds = [row["seed"] for row in metrics["episodes"]]
    agreement = metrics["expert_agreement"]
    steers, stem = policy.config.continuous, name or model_file.stem
    values: dict[str, Any] = {
        "file": f"{stem}.pt",
        "outputs": policy.config.outputs,
        "decides": "gives steering and pedal" if steers else f"chooses\none of {policy.config.outputs} actions",
        "closely": " (steering within {:g}, pedal within {:g})".format(*CLOSE) if steers else "",
        "more": more,
        "layer": f"{policy.config.model} ({', '.join(sizes(policy))})",
        "window": policy.config.window,
        "taught": taught_otherwise(policy),
        "blind": "" if policy.config.masked_rows is None else " without the rows of instruments",
        "repeat": policy.repeat,
        "hz": 1 / policy.config.gap_s,
        "parameters": sum(p.numel() for p in policy.network.parameters()),
        "tracks": len(seeds),
        "first": min(seeds),
        "last": max(seeds),
        "mean": result["mean"],
        "std": result["std"],
        "low": result["interval95"][0],
        "high": result["interval95"][1],
        "least": result["min"],
        "expert_mean": expert["mean"],
        "expert_std": expert["std"],
        "expert_least": expert["min"],
        "fraction": metrics["expert_fraction"]["value"],
        "fraction_low": metrics["expert_fraction"]["interval95"][0],
        "fraction_high": metrics["expert_fraction"]["interval95"][1],
        "laps": metrics["finished_laps"],
        "accuracy": agreement_on(policy, unseen),
        "unseen": recorded(unseen),
        "agreement": ""
        if agreement is None
        else f"| decides as the expert while driving itself | {agreement:.1%} of the frames |\n",
        "recorded": "; ".join(recorded(Path(folder)) for folder in meta["config"]["data"]),
        "train_frames": meta["train_frames"],
        "episodes": meta["episodes"],
        "minutes": meta["session_s"] / 60,
        "machine": machine,
        "seed": meta["config"]["seed"],
        "train_command": meta["command"],
        "eval_command": metrics["run"]["command"],
        "log": f"{stem}.metrics.jsonl",
        **{name: meta["versions"][name] for name in ("nacdrive", "torch", "gymnasium")},
    }
    return CARD.format(**values), model_file


def sizes(policy: Policy) -> list[str]:
    """What the sequence layer is like, in words."""
    options = policy.config.options
    named = [f"{policy.config.d_model}-d", f"{policy.config.num_heads} heads"]
    named += [f"{options['mode']} mode"] if "mode" in options else []
    return named + ([f"the {options['topk']} frames of the highest content"] if "topk" in options else [])


def agreement_on(policy: Policy, folder: Path) -> float:
    """Share of the frames of a recording that ``policy`` decides as the expert did."""
    agreed = total = 0
    task = load_task(policy.task)
    for sample in task.load([folder]):
        batch = {field: values[None] for field, values in sample.fields.items()}
        with torch.inference_mode():
            scores = policy.network(batch["frames"], batch["t"])
            right, count = task.measure(scores, {**batch, "padding": torch.zeros(1, len(sample), dtype=torch.bool)})
        agreed, total = agreed + int(right), total + int(count)
    return agreed / total


def recorded(folder: Path) -> str:
    """What a recording holds, in a line."""
    recording = Recording.open(folder)
    returns = [info.episode_return for info in recording.episodes]
    seeds = [info.seed for info in recording.episodes]
    return (
        f"{len(recording)} episodes of {recording.meta['expert']} (seeds {min(seeds)} to {max(seeds)}), "
        f"{sum(info.steps for info in recording.episodes)} frames, return {sum(returns) / len(returns):.1f} on average"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="folder of nacdrive train")
    parser.add_argument("--eval", type=Path, required=True, help="folder of nacdrive eval")
    parser.add_argument("--unseen", type=Path, required=True, help="recording that the training did not see")
    parser.add_argument("--machine", default="one core of two")
    parser.add_argument("--name", help="of the shipped file, without .pt")
    parser.add_argument("--rows", type=Path, help="Markdown file with further rows of the card's table")
    options = parser.parse_args()
    more = options.rows.read_text(encoding="utf-8") if options.rows else ""
    text, model_file = card(options.run, options.eval, options.unseen, options.machine, options.name, more)
    target, stem = shipped("agents") / "carracing", options.name or model_file.stem
    written = target / f"{stem}.md"
    write_text(written, with_front_matter(written, text))
    shutil.copyfile(model_file, target / f"{stem}.pt")
    rows = read_rows(options.run / "metrics.jsonl")
    shutil.copyfile(options.run / "metrics.jsonl", target / f"{stem}.metrics.jsonl")
    print(f"{target / stem}.pt: card and log of {len(rows)} epochs beside it")


if __name__ == "__main__":
    main()
