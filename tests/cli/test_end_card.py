"""What the end card of ``drive`` and ``eval --watch`` says of the expert: its score on this track, or nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nacdrive.cli.drive import DriveConfig, known_score, load
from nacdrive.cli.eval import Show
from nacdrive.common.paths import shipped
from nacdrive.common.progress import progress_bar
from nacdrive.rollout.evaluate import EvalJob
from nacdrive.web.stream import DriveResult

LAP = json.loads((shipped("agents") / "carracing" / "ppo" / "eval.json").read_text())["laps"][0]


@pytest.mark.parametrize(
    ("options", "known"),
    [
        ({}, True),
        ({"renderer": "fast"}, False),
        ({"max_frames": 100}, False),
        ({"rule": "all-tiles-95"}, False),
        ({"seed": 4_000_000}, False),
        ({"expert": "geometric"}, False),
    ],
    ids=["its track", "other pictures", "a shorter drive", "another rule", "another track", "another expert"],
)
def test_a_drive_knows_the_shipped_experts_score_on_the_tracks_that_it_was_measured_on(
    options: dict[str, Any], known: bool
) -> None:
    config = DriveConfig(**{"seed": LAP["seed"], "expert": "ppo", **options})
    name = load(config).drive.expert
    assert known_score(config, name, config.first_seed) == (LAP["total"] if known else None)
    assert known_score(config, None, config.first_seed) is None, "no expert rides along"


@pytest.mark.parametrize(
    ("model", "options", "name"),
    [
        ("nac_steady.pt", {}, "ppo-rescued"),
        ("nac_exact.pt", {}, "ppo-rescued"),
        ("nac_steady_continuous.pt", {}, "racing-line"),
        ("nac_steady_continuous.pt", {"expert": "continuous"}, "continuous"),
        ("nac_steady_continuous.pt", {"expert": "ppo"}, "ppo"),
        ("nac_steady.pt", {"expert": "none"}, None),
    ],
)
def test_the_score_is_that_of_the_expert_who_rides_along(model: str, options: dict[str, Any], name: str | None) -> None:
    config = DriveConfig(model=model, seed=LAP["seed"], **options)
    found = load(config).drive.expert
    assert found == name
    if name == "continuous":
        laps = json.loads((shipped("agents") / "carracing" / name / "eval.json").read_text())["laps"]
        score = {lap["seed"]: lap["total"] for lap in laps}[config.first_seed]
        assert known_score(config, found, config.first_seed) == score


def row(episode_return: float, seed: int = 7) -> dict[str, Any]:
    return {
        "seed": seed,
        "episode_return": episode_return,
        "ending": "lap finished",
        "simulated_s": 18.0,
        "progress": 1.0,
        "expert_agreement": 0.9,
    }


def test_an_evaluation_shows_the_experts_score_of_the_same_track_and_of_no_other() -> None:
    shown: list[DriveResult] = []

    class Page:
        def result(self, result: DriveResult) -> None:
            shown.append(result)

    bar = progress_bar()
    cards = Show(bar, 3, with_expert=True)
    cards.page = Page()  # type: ignore[assignment]
    cards(EvalJob("expert", 0, 7, "lake"), row(920.0))
    assert shown == [], "the expert's own drive has no card"
    cards(EvalJob("policy", 0, 7, "lake"), row(900.0))
    cards(EvalJob("policy", 1, 8, "lake"), row(901.0, seed=8))
    cards(EvalJob("policy", 0, 7, "mountain"), row(902.0))
    assert [(card.episode_return, card.expert_return) for card in shown] == [(900, 920), (901, None), (902, None)]
    assert {task.description: task.completed for task in bar.tasks} == {"policy": 3, "expert": 1}
