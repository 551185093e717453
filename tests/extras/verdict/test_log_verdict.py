"""What is said of a policy on a log that it never saw."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nacdrive.cli.eval import run as evaluate_verb
from nacdrive.common.errors import UserError
from nacdrive.common.foreign_json import read_object
from nacdrive.common.result_folder import release_folders
from nacdrive.datasets.udacity_log import is_log
from nacdrive.extras.verdict.log_verdict import (
    Drive,
    correlation,
    error_row,
    in_words,
    judge_logs,
    judgement,
    lag,
    sides,
    verdict,
)
from nacdrive.models import save_policy
from nacdrive.rollout.eval_config import EvalConfig
from tests.helpers.udacity_logs import make_log, numbers
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
    # A folder of drives, or of a verdict on other data, is no place for it; one of the same is.
    release_folders()
    assert evaluate_verb(replace(config, resume=True))["offline"] == metrics["offline"]
    release_folders()
    kept = (tmp_path / "out" / "metrics.json").read_bytes()
    claimed = read_object(tmp_path / "out" / "evaluation.json")
    (tmp_path / "out" / "evaluation.json").write_text(json.dumps({**claimed, "data": None, "laps": 1.0}))
    with pytest.raises(UserError, match="holds drives of another kind: give another --out"):
        evaluate_verb(replace(config, resume=True))
    (tmp_path / "out" / "evaluation.json").write_text(json.dumps({**claimed, "data": "of another checksum"}))
    with pytest.raises(UserError, match="holds drives of another data: give another --out"):
        evaluate_verb(replace(config, resume=True))
    assert (tmp_path / "out" / "metrics.json").read_bytes() == kept


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


def test_what_is_told_of_a_log_is_in_signed_numbers_with_their_intervals() -> None:
    def numbers(value: float, interval: tuple[float, float] | None = None) -> dict[str, Any]:
        return {"value": value, "mean": value, "interval95": interval}

    errors_ = {name: numbers(0.25) for name in ("mse", "mae", "zero_mae")}
    over = {"mse_over_zero": numbers(-0.5, (-0.75, 0.125)), "mse_over_mean": numbers(0.5)}
    track: dict[str, Any] = {
        "frames": 30, "transfer": "likely", "reasons": ["a", "b"], **errors_, **over, "bias": numbers(0.0625),
        "curves": {"frames": 12, **errors_, **over}, "correlation": 0.875, "lag_s": 0.14,
        "sides": {"left": numbers(0.1), "right": numbers(-0.2), "steered_back": numbers(0.995)},
    }  # fmt: skip
    errors_text = "MSE 0.2500 (-0.5000 [-0.7500 to +0.1250] over always 0, +0.5000 over always the mean), MAE 0.2500"
    assert in_words({"verdicts": {"lake": track}}) == [
        "lake: a guess, which no drive has checked: transfer likely, for a; b.",
        f"  30 pictures: {errors_text} (0: 0.2500); bias +0.062 (right is +)",
        f"  curves (|steering| > 0.1, 12 pictures): {errors_text} (0: 0.2500)",
        "  side cameras: the left one's pictures add +0.100, the right one's -0.200; in order in 99.5%",
        "  correlation 0.88 with the person's steering, and most alike 0.14 s later",
    ]
    bare = {**track, "curves": None, "sides": None}
    for lag_s, alike, line in (
        (-0.2, 0.5, "correlation 0.50 with the person's steering, and most alike 0.20 s earlier"),
        (0.0, 0.5, "correlation 0.50 with the person's steering, and in time"),
        (None, None, "no correlation with the person's steering"),
    ):
        lines = in_words({"verdicts": {"lake": {**bare, "lag_s": lag_s, "correlation": alike}}})
        assert lines[2:] == [f"  {line}"]


@pytest.mark.parametrize(
    ("share", "bias", "judged"),
    [
        (0.99, 0.0, "likely"),
        (0.989, 0.0, "not clear"),
        (0.95, 0.0, "not clear"),
        (0.949, 0.0, "unlikely"),
        (1.0, 0.1, "likely"),
        (1.0, -0.101, "not clear"),
        (1.0, 0.15, "not clear"),
        (1.0, -0.151, "unlikely"),
    ],
)
def test_where_likely_ends_and_unlikely_begins(share: float, bias: float, judged: str) -> None:
    over = {"value": 0.0, "interval95": None}
    numbers = {"bias": {"mean": bias}, "sides": {"steered_back": {"mean": share}}, "mse_over_mean": over}
    assert judgement(numbers)[0] == judged


@pytest.mark.parametrize(
    ("interval", "correlated", "judged", "reason"),
    [
        ((0.01, 0.02), 0.9, "unlikely", "above that of a constant"),
        ((0.0, 0.02), 0.9, "not clear", "no side cameras"),
        ((-0.02, 0.02), None, "unlikely", "nothing to do with the person's"),
        ((-0.02, 0.02), 0.09, "unlikely", "nothing to do with the person's"),
        ((-0.02, 0.02), 0.1, "not clear", "no side cameras"),
        ((-0.02, -0.01), 0.1, "likely", "below that of a constant"),
    ],
)
def test_without_side_cameras_the_error_says_what_it_can(
    interval: tuple[float, float], correlated: float | None, judged: str, reason: str
) -> None:
    over = {"value": 0.0, "interval95": interval}
    numbers = {"bias": {"mean": 0.0}, "sides": None, "mse_over_mean": over, "correlation": correlated}
    verdict_, reasons = judgement(numbers)
    assert verdict_ == judged and reason in "; ".join(reasons)


def test_one_block_is_judged_by_its_value_and_reasons_against_come_first() -> None:
    over = {"value": -0.01, "interval95": None}
    numbers = {"bias": {"mean": 0.12}, "sides": None, "mse_over_mean": over, "correlation": 0.9}
    assert judgement(numbers) == (
        "not clear",
        [
            "there are no side cameras, which would tell most",
            "it steers 0.12 too far to the right",
            "its error is below that of a constant, with certainty",
        ],
    )
    worse = judgement({**numbers, "bias": {"mean": -0.2}})
    assert worse[0] == "unlikely" and worse[1][0] == "it steers 0.20 too far to the left"


def test_a_lag_is_asked_of_drives_that_are_long_enough_and_up_to_a_second() -> None:
    def pulse(count: int, late: int, gap: float = 0.1) -> Drive:
        target = np.sin(np.arange(count) * 0.37) ** 3
        return Drive(gap * np.arange(count), target, np.roll(target, late), {}, [slice(0, count)])

    assert lag([pulse(60, 10)]) == pytest.approx(1.0)
    assert lag([pulse(12, 0)]) is None, "a second is ten pictures, and twelve are too few"
    assert lag([pulse(13, 0)]) == pytest.approx(0.0)
    assert lag([pulse(60, 0, gap=0.0)]) is None
    assert lag([pulse(5, 0), pulse(60, -3)]) == pytest.approx(-0.3), "a short drive beside it says nothing"


def test_curves_are_where_the_person_steers_beyond_a_tenth_to_either_side() -> None:
    target = np.array([0.0, 0.1, 0.11, -0.11, -0.1, 0.5])
    drive_ = Drive(0.1 * np.arange(6), target, target + 0.5, {}, [slice(0, 6)])
    judged = verdict([drive_])
    assert judged["curves"]["frames"] == 3 and judged["frames"] == 6 and judged["blocks"] == 1
    assert judged["curves"]["zero_mae"]["mean"] == pytest.approx(0.24)
    assert judged["bias"]["mean"] == pytest.approx(0.5) and judged["mae"]["mean"] == pytest.approx(0.5)
    assert judged["mean_mse"]["mean"] == pytest.approx(target.var())
    straight = Drive(drive_.t, np.zeros(6), drive_.steering, {}, drive_.blocks)
    assert verdict([straight])["curves"] is None
    assert error_row(straight, slice(0, 6), None, curves=True) == {}


def test_what_side_cameras_add_is_told_for_each_side_over_the_drives_that_have_them() -> None:
    zeros, blocks = np.zeros(4), [slice(0, 4)]
    with_sides = Drive(
        0.1 * np.arange(4), zeros, zeros, {"left": zeros + 0.3, "right": np.array([-1, 0, 0.3, 1])}, blocks
    )
    by_side = sides([with_sides, Drive(with_sides.t, zeros, zeros, {}, blocks)])
    assert by_side is not None
    assert [by_side[name]["mean"] for name in ("left", "right", "steered_back")] == pytest.approx([0.3, 0.075, 0.5])
    assert sides([Drive(with_sides.t, zeros, zeros, {}, blocks)]) is None


def test_a_second_log_is_judged_after_one_that_was_given_twice(log: Path, tmp_path: Path) -> None:
    other = make_log(tmp_path / "other", 20)
    judged = judge_logs(udacity_policy(window=2), [log, log, other])
    assert judged["frames"] == 50 and list(judged["verdicts"]) == ["mine", "other"]
    assert judged["blocks"] == 2


def test_logs_whose_folders_are_named_alike_get_a_verdict_each(log: Path, tmp_path: Path) -> None:
    one, two = (
        make_log(tmp_path / name / "data", count, rows=numbers(count)) for name, count in (("a", 20), ("b", 16))
    )
    policy = udacity_policy(window=2)
    for folders in ([one, two, log, one], [one / "driving_log.csv", two / "driving_log.csv", log / "driving_log.csv"]):
        assert list(judge_logs(policy, folders)["verdicts"]) == [str(one), str(two), "mine"]
