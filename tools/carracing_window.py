"""Which window should a policy have? Closed-loop return, not offline accuracy, decides.

    nacdrive record --episodes 20 --out recordings/window-study
    nacdrive record --episodes 8 --seed 3002000 --out recordings/carracing-unseen
    python tools/carracing_window.py --data recordings/window-study --unseen recordings/carracing-unseen

For each window: behaviour cloning on the recordings, then two rounds of DAgger, and after both the mean return over
20 tracks that neither training nor the final judgement uses, beside the accuracy on unseen episodes of the expert.
Everything is kept in --out, and what is there is not done again.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from carracing_card import agreement_on

from nacdrive.common.statistics import summary
from nacdrive.envs.seeds import POLICY_RECORDING
from nacdrive.models import load_policy
from nacdrive.rollout.drive import Drive
from nacdrive.rollout.evaluate import EvalJob, drive_jobs
from nacdrive.rollout.results import ResultsFile
from nacdrive.rollout.train_config import TrainConfig
from nacdrive.rollout.train_policy import round_path, train_policy

FIRST_TRACK = POLICY_RECORDING.stop - 1000
"""Tracks to choose by: not recorded, not practised on, and not those of the final judgement."""


def judge(policy: Path, tracks: int, workers: int) -> dict[str, Any]:
    """Mean return over the tracks with its 95 % interval; rows are kept beside the policy."""
    rows = ResultsFile(policy.with_name(f"{policy.stem}-tracks.jsonl"))
    seeds = range(FIRST_TRACK, FIRST_TRACK + tracks)
    jobs = [EvalJob("policy", i, seed) for i, seed in enumerate(seeds) if seed not in rows.rows]
    for _, row in drive_jobs(Drive("carracing", policy), jobs, workers):
        rows.add(row)
    return summary([rows.rows[seed]["episode_return"] for seed in seeds])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--unseen", type=Path, required=True, help="recording that no training sees")
    parser.add_argument("--windows", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--models", nargs="+", default=["nac-steady"])
    parser.add_argument("--blind", action="store_true", help="hide the instruments")
    parser.add_argument("--dagger", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--tracks", type=int, default=20)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--expert", default="ppo")
    parser.add_argument("--out", type=Path, default=Path("runs/window-study"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | window | instruments | rounds of DAgger | frames | offline accuracy | return [95 %] | least |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for model in options.models:
        for window in options.windows:
            seen = "hidden" if options.blind else "seen"
            out = options.out / f"{model}-{window}-{seen}"
            config = TrainConfig(
                model=model, paper_form=True, window=window, data=tuple(options.data), instruments=not options.blind,
                out=out,
                epochs=options.epochs, dagger=options.dagger, dagger_episodes=8, dagger_epochs=options.epochs // 2,
                expert=options.expert, workers=options.workers, resume=True,
            )  # fmt: skip
            train_policy(config)
            for round_ in sorted({0, options.dagger}):
                path = round_path(out, round_)
                meta, result = load_policy(path).meta, judge(path, options.tracks, options.workers)
                low, high = result["interval95"]
                accuracy = agreement_on(load_policy(path), options.unseen)
                print(
                    f"| {model} | {window} | {seen} | {round_} | {meta['train_frames']} | {accuracy:.1%} "
                    f"| {result['mean']:.0f} [{low:.0f}, {high:.0f}] | {result['min']:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
