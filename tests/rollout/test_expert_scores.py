"""What an expert is known to have scored: only of the very track, under the very options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nacdrive.common.paths import shipped
from nacdrive.envs.registry import env_spec
from nacdrive.rollout.results import drive_name, scores_of_evaluation, shipped_score

LAPS = json.loads((shipped("agents") / "carracing" / "ppo" / "eval.json").read_text())["laps"]


def test_the_shipped_experts_score_is_that_of_its_own_evaluation() -> None:
    assert env_spec("carracing").expert == "ppo" and env_spec("carracing").name == "carracing"
    assert shipped_score("ppo", "carracing", LAPS[3]["seed"]) == LAPS[3]["total"]
    assert shipped_score("ppo", "carracing", LAPS[3]["seed"], renderer="official", max_frames=1000) == LAPS[3]["total"]


@pytest.mark.parametrize(
    ("expert", "env", "seed", "options"),
    [
        ("ppo", "carracing", 4_000_000, {}),
        ("geometric", "carracing", LAPS[0]["seed"], {}),
        (None, "carracing", LAPS[0]["seed"], {}),
        ("ppo", "udacity-track", LAPS[0]["seed"], {}),
        ("ppo", "carracing", LAPS[0]["seed"], {"renderer": "fast"}),
        ("ppo", "carracing", LAPS[0]["seed"], {"max_frames": 500}),
        ("ppo", "carracing", LAPS[0]["seed"], {"rule": "all-tiles-95"}),
    ],
    ids=["another track", "another expert", "nobody", "another world", "other pictures", "a shorter drive", "a rule"],
)
def test_what_was_not_measured_is_not_known(expert: str | None, env: str, seed: int, options: dict) -> None:
    assert shipped_score(expert, env, seed, **options) is None


def test_an_evaluation_tells_the_experts_return_by_the_kept_drives_file(tmp_path: Path) -> None:
    rows = [{"seed": 7, "episode_return": 910.5}, {"seed": 7, "episode_return": 1.5, "track": "random:3"}]
    (tmp_path / "metrics.json").write_text(json.dumps({"expert_episodes": rows}))
    assert scores_of_evaluation(tmp_path) == {drive_name(7, ""): 910.5, drive_name(7, "random:3"): 1.5}
    assert drive_name(7, "random:3") == "episode-0000007-random-3.parquet"


def test_no_evaluation_and_one_without_an_expert_tell_nothing(tmp_path: Path) -> None:
    assert scores_of_evaluation(tmp_path) == {}
    (tmp_path / "metrics.json").write_text(json.dumps({"offline": {}}))
    assert scores_of_evaluation(tmp_path) == {}
