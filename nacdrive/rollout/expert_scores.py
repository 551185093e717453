"""What an expert is known to have scored on a track: from an evaluation, or as shipped.

A score counts for one track under the very options that it was driven with; what is not known so is not guessed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nacdrive.common.files import read_json
from nacdrive.common.paths import shipped
from nacdrive.drivers import SHIPPED
from nacdrive.envs.start import LAP_RULES
from nacdrive.rollout.results import drive_name

SHIPPED_ENV = "carracing"
SHIPPED_OPTIONS = {"renderer": "official", "max_frames": 1000, "rule": LAP_RULES[0]}
"""What that evaluation drove with; all of them the environment's usual ones."""


def scores_of_evaluation(folder: Path) -> dict[str, float]:
    """Return of the expert on each track of the evaluation in ``folder``, by the name of the kept drive's file.

    Empty where it is no evaluation, or no expert drove.
    """
    path = folder / "metrics.json"
    if not path.is_file():
        return {}
    rows = read_json(path).get("expert_episodes") or ()
    return {drive_name(int(row["seed"]), str(row.get("track", ""))): float(row["episode_return"]) for row in rows}


def shipped_score(expert: str | None, env: str, seed: int, **options: Any) -> float | None:
    """What the shipped ``expert`` scored on the track of ``seed``; None where it was not measured under these options:
    ``renderer``, ``max_frames`` and ``rule``, None for the environment's usual one.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if expert not in SHIPPED or env != SHIPPED_ENV or not given.items() <= SHIPPED_OPTIONS.items():
        return None
    # Beside the expert, lap by lap.
    path = (shipped("agents") / SHIPPED[expert]).with_name("eval.json")
    if not path.is_file():
        return None
    return next((float(lap["total"]) for lap in read_json(path)["laps"] if lap["seed"] == seed), None)
