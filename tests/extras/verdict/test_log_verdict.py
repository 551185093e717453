"""What is said of a policy on a log that it never saw."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nacdrive.cli.eval import evaluate as evaluate_verb
from nacdrive.common.errors import UserError
from nacdrive.datasets.udacity_log import is_log
from nacdrive.extras.verdict.log_verdict import Drive, correlation, in_words, judge_logs, verdict
from nacdrive.models import save_policy
from nacdrive.rollout.eval_config import EvalConfig
from tests.helpers.udacity_logs import make_log
from tests.helpers.udacity_policy import udacity_policy

GAP = 0.07


def drive(kind: str, *, bias: float = 0.0, back: float = 1.0, side_cameras: bool = True, late: int = 0) -> Drive:
    """Two minutes of a person's steering, and a policy of a known kind on it."""
    rng = np.random.default_rng(0)
    count = 1700
    t = GAP * np.arange(count)
    target = 0.25 * np.sin(t / 3) * (np.sin(t / 11) > 0)
    own = {"good": target, "other": 0.25 * np.sin(t * 1.7 + 1), "zero": np.zeros(count)}[kind]
    steering = np.roll(own, late) + bias + rng.normal(0, 0.02, count)
    adds = np.where(rng.random(count) < back, 0.1, -0.1)
    sides = {"left": steering + adds, "right": steering - adds} if side_cameras else {}
    blocks = [slice(k, k + 115) for k in range(0, count - 114, 115)]
    return Drive(t, target, steering, sides, blocks)


def test_a_policy_that_steers_as_the_person_is_likely_to_drive_there() -> None:
    found = verdict([drive("good")])
    assert found["transfer"] == "likely" and found["correlation"] > 0.9 and found["lag_s"] == 0
    assert found["mse_over_zero"]["interval95"][1] < 0 and found["mse_over_mean"]["interval95"][1] < 0
    assert found["curves"]["mse"]["mean"] == pytest.approx(0.0004, abs=1e-4)
    assert found["curves"]["zero_mse"]["mean"] > found["zero_mse"]["mean"]
    assert abs(found["bias"]["mean"]) < 0.005 and found["sides"]["left"]["mean"] == pytest.approx(0.1)


def test_lag_is_told_in_seconds_with_its_sign() -> None:
    assert verdict([drive("good", late=4)])["lag_s"] == pytest.approx(4 * GAP)
    assert verdict([drive("good", late=-3)])["lag_s"] == pytest.approx(-3 * GAP)


@pytest.mark.parametrize(
    ("made", "judged", "reason"),
    [
        (drive("good", back=0.8), "unlikely", "steers back from the side cameras' pictures in"),
        (drive("good", back=0.97), "not clear", "steers back"),
        (drive("good", bias=-0.3), "unlikely", "0.30 too far to the left"),
        (drive("good", bias=0.12), "not clear", "0.12 too far to the right"),
        (drive("other", side_cameras=False), "unlikely", "above that of a constant"),
        (drive("zero", side_cameras=False), "unlikely", "constant|nothing to do"),
        (drive("good", side_cameras=False), "likely", "below that of a constant, with certainty"),
        (drive("other"), "likely", "steers back"),  # a person's steering says less than the side cameras
    ],
)
def test_the_verdict_goes_by_side_cameras_and_bias_before_errors(made: Drive, judged: str, reason: str) -> None:
    found = verdict([made])
    assert found["transfer"] == judged
    import re

    assert re.search(reason, "; ".join(found["reasons"]))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_log(tmp_path_factory.mktemp("logs") / "mine", 30)


def test_a_log_is_judged_with_its_side_cameras_and_each_drive_counts_once(log: Path) -> None:
    assert is_log(log)
    policy = udacity_policy(window=2)
    judged = judge_logs(policy, [log, log])
    assert judged["frames"] == 30 and set(judged["verdicts"]) == {"mine"}
    assert judged["verdicts"]["mine"]["sides"] is not None
    lines = in_words(judged)
    assert lines[0].startswith("mine: a guess, which no drive has checked: transfer ") and any(
        "side cameras" in line for line in lines
    )
    with pytest.raises(UserError, match="neither a log"):
        judge_logs(policy, [log.parent])


def test_the_verb_judges_a_log_without_driving(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.pt"
    save_policy(udacity_policy(window=2), file, {})
    config = EvalConfig(env="udacity", model=str(file), data=(log,), out=tmp_path / "out")
    assert config.count == 0
    metrics = evaluate_verb(config)
    assert "episodes" not in metrics and metrics["offline"]["frames"] == 30
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"metrics.json"}
    assert not list((tmp_path / "out").glob("*.jsonl"))
    assert "transfer " in capsys.readouterr().out


def test_laps_are_driven_beside_a_log_when_they_are_asked_for() -> None:
    log = (Path("log"),)
    assert EvalConfig(env="udacity").count == 20 and EvalConfig(env="udacity", data=log).count == 0
    assert EvalConfig(env="udacity", data=log, laps=1).count == 20
    assert EvalConfig(env="udacity", data=log, track="random").count == 20
    assert EvalConfig(env="udacity", data=log, episodes=3).count == 3
    assert EvalConfig(env="udacity", data=log).folder.name == "verdict-udacity-nac_steady"


@pytest.mark.parametrize(
    ("one", "two", "value"),
    [
        ([0.0, 1.0, 2.0], [1.0, 3.0, 5.0], 1.0),
        ([0.0, 1.0, 2.0], [5.0, 3.0, 1.0], -1.0),
        ([0.0, 1.0], [1.0, 3.0], None),
        ([0.0, 1.0, 2.0], [3.0, 3.0, 3.0], None),
        ([3.0, 3.0, 3.0], [0.0, 1.0, 2.0], None),
    ],
    ids=["alike", "opposed", "two points", "the second stands still", "the first stands still"],
)
def test_a_correlation_needs_three_points_of_two_that_move(
    one: list[float], two: list[float], value: float | None
) -> None:
    assert correlation(np.array(one), np.array(two)) == (None if value is None else pytest.approx(value))
