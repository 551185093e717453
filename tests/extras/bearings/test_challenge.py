"""The PHM 2012 challenge as it was posed, on small files in its format and on the real bearings that are there."""

import math
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.common.files import write_text
from nacdrive.extras.bearings import challenge
from nacdrive.extras.bearings.challenge import (
    LEARNING_FILES,
    QUESTIONS,
    Question,
    best_constant,
    challenge_references,
    challenge_scores,
    mean_life,
    read_challenge,
)
from nacdrive.extras.bearings.layouts import open_bearings
from nacdrive.extras.bearings.wear import SurvivalPrior, phm2012_score, posterior, quantiles_of
from nacdrive.models.series import load_series
from nacdrive.tasks import load_task
from nacdrive.tasks.splits import field_of
from nacdrive.training.predict import outputs

torch.set_num_threads(1)
REAL = Path(__file__).resolve().parents[4] / "shared/data/pronostia"
LIVES = {"Bearing1_1": 40, "Bearing1_2": 25, "Bearing2_1": 30}
ASKED = {
    "Bearing1_3": Question(20, 32, 120.0),
    "Bearing1_4": Question(12, 20, 339.0),
    "Bearing2_3": Question(9, 15, 60.0),
}


def write_bearing(folder: Path, files: int, ends: int) -> None:
    """Files of 1200 rows whose vibration grows from half of ``ends`` files on; semicolons, as Bearing1_4 has."""
    random = np.random.default_rng(files)
    for i in range(files):
        wear = max(0.0, 2 * i / ends - 1)
        signal = random.normal(0, 0.4 + 3 * wear, (1200, 2))
        clock = 9 * 3600 + 10 * i
        stamp = f"{clock // 3600};{clock // 60 % 60};{clock % 60}"
        values = np.column_stack([39.0 * np.arange(len(signal)), signal])
        lines = f"{stamp};%.1f;%.3f;%.3f\n" * len(values) % tuple(values.ravel().tolist())
        write_text(folder / f"acc_{i + 1:05d}.csv", lines)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Learning_set, Test_set (truncated) and Full_Test_Set, on another clock: a few files each."""
    folder = tmp_path_factory.mktemp("challenge")
    for name, files in LIVES.items():
        write_bearing(folder / "Learning_set" / name, files, files)
    for name in ("Bearing1_3", "Bearing1_4"):
        write_bearing(folder / "Full_Test_Set" / name, ASKED[name].full_files, ASKED[name].full_files)
    write_bearing(folder / "Test_set/Bearing2_3", ASKED["Bearing2_3"].files, ASKED["Bearing2_3"].full_files)
    return folder


@pytest.fixture
def short(monkeypatch):
    """The challenge's own numbers, for those small files."""
    monkeypatch.setattr(challenge, "LEARNING_FILES", {**dict.fromkeys(LEARNING_FILES, 1), **LIVES})
    monkeypatch.setattr(challenge, "QUESTIONS", {**QUESTIONS, **ASKED})


@pytest.fixture
def fold(small, short):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_task("pronostia", "challenge").folds({"pronostia": small}, 1, 0)[0]


def test_every_bearing_is_cut_where_the_challenge_asks(fold):
    known = {name: len(t) for name, t in field_of(fold.tests["pronostia"], "t").items()}
    assert known == {"Bearing1_3": 20, "Bearing1_4": 12, "Bearing2_3": 9}
    assert set(field_of(fold.train, "t")) == set(LIVES)
    assert not fold.valid
    left = challenge.label_of(fold.tests["pronostia"], "remaining_s")
    assert {name: float(value) for name, value in left.items()} == {
        "Bearing1_3": 120,
        "Bearing1_4": 80,
        "Bearing2_3": 60,
    }
    lives = challenge.label_of(fold.tests["pronostia"], "lives_s")["Bearing1_3"]
    assert lives.tolist() == [390.0, 240.0, 290.0]


def test_the_end_of_a_bearing_is_known_to_nobody(small, short, tmp_path):
    """Inputs up to the truncation are the same whether the end is there or not; the true wear only where it is."""
    task = load_task("pronostia", "challenge")
    shutil.copytree(small / "Learning_set", tmp_path / "Learning_set")
    for name in ("Bearing1_3", "Bearing1_4"):
        cut = tmp_path / "Test_set" / name
        cut.mkdir(parents=True)
        for file in sorted((small / "Full_Test_Set" / name).glob("acc_*.csv"))[: ASKED[name].files]:
            shutil.copy(file, cut)
    with pytest.warns(UserWarning, match="bearings"):
        whole = field_of(task.folds({"pronostia": small}, 1, 0)[0].tests["pronostia"], "x")
    with pytest.warns(UserWarning, match="bearings"):
        truncated = task.folds({"pronostia": tmp_path}, 1, 0)[0].tests["pronostia"]
    for name, x in field_of(truncated, "x").items():
        torch.testing.assert_close(x, whole[name])
    assert all(y.isnan().all() for y in field_of(truncated, "target").values())


def test_the_task_says_which_bearings_are_missing(small, short):
    with pytest.warns(UserWarning) as said:
        read_challenge(small)
    texts = [str(warning.message) for warning in said]
    assert any("learning bearings Bearing2_2, Bearing3_1, Bearing3_2 are not in" in text for text in texts)
    assert any("test bearings Bearing1_5, Bearing1_6" in text for text in texts)


def test_a_bearing_that_ends_before_the_challenge_asks_is_left_out_with_a_word(small, short, monkeypatch):
    monkeypatch.setitem(challenge.QUESTIONS, "Bearing2_3", Question(10, 15, 50.0))
    monkeypatch.setitem(challenge.LEARNING_FILES, "Bearing1_2", 26)
    monkeypatch.delitem(challenge.QUESTIONS, "Bearing1_4")
    with pytest.warns(UserWarning) as said:
        learning, tests = read_challenge(small)
    texts = [str(warning.message) for warning in said]
    assert "Bearing2_3 ends before the challenge asks: it is left out." in texts
    assert "Bearing1_2 ends before its failure: it is not learnt from." in texts
    assert [run.name for run in learning] == ["Bearing1_1", "Bearing2_1"]
    assert "Bearing1_4 is no bearing of the challenge: it is left out." in texts
    assert [test.run.name for test in tests] == ["Bearing1_3"]


def test_one_bearing_to_learn_from_and_one_to_answer_for_are_the_least(small, short):
    with pytest.raises(UserError, match=r"holds 3 of the challenge's 6 learning bearings .* 0 of its 11 test bearings"):
        read_challenge(small / "Learning_set")


def test_the_score_is_the_official_one_of_one_answer_a_bearing(fold):
    samples = fold.tests["pronostia"]
    answers = {"Bearing1_3": 120.0, "Bearing1_4": 64.0, "Bearing2_3": 66.0}
    scores = challenge_scores(challenge.direct(answers, samples), samples)
    # Right, 20 % too short, 10 % too long.
    assert scores["challenge"] == pytest.approx((1 + 0.5 + 0.25) / 3)
    assert scores["challenge_printed"] == pytest.approx(phm2012_score([120, 339, 60], [120, 64, 66]))
    assert (scores["bearings"], scores["learnt"]) == (3, 3)
    assert scores["remaining_s Bearing1_4"] == pytest.approx(64)


def by_age(prior, age, share):
    """Quantile of the remaining life at a random moment of it."""
    return float(
        quantiles_of(*posterior(prior, np.array([age]), np.array([np.inf]), np.array([np.nan]), 0.35), share)[0]
    )


def silent(samples):
    """The same bearings, whose vibration never rises."""
    return [replace(s, fields=s.fields | {"x": torch.zeros_like(s.fields["x"])}) for s in samples]


def test_where_no_wear_shows_the_answer_is_the_priors(fold):
    samples = silent(fold.tests["pronostia"])
    none = [torch.zeros(len(sample), 1) for sample in samples]
    scores = challenge_scores(none, samples)
    prior = SurvivalPrior((390.0, 240.0, 290.0))
    assert scores["remaining_s Bearing1_3"] == pytest.approx(by_age(prior, 190.0, 0.5))
    references = challenge_references(fold.train, samples)
    alike = challenge_scores(references["median of the survival prior"], samples)
    assert alike["remaining_s Bearing1_3"] == pytest.approx(float(prior.remaining_s(190.0, 0.5)))


def test_references_are_answers_for_every_bearing(fold):
    samples = fold.tests["pronostia"]
    found = load_task("pronostia", "challenge").references("pronostia", fold.train, samples)
    assert len(found) == 4
    scores = {name: challenge_scores(y, samples) for name, y in found.items()}
    assert all(math.isfinite(value) for values in scores.values() for value in values.values())
    mean = scores["mean life of the condition minus elapsed"]
    # 315 s, the mean of 390 and 240, less 190 s.
    assert mean["remaining_s Bearing1_3"] == pytest.approx(125)
    # No second learning bearing of the second condition.
    assert mean["remaining_s Bearing2_3"] == pytest.approx(290 - 80)
    assert scores["always 1000 s"]["remaining_s Bearing1_4"] == 1000


def test_mean_life_is_that_of_the_condition_and_of_all_where_none_is_known():
    lives = {"Bearing1_1": 100.0, "Bearing1_2": 300.0, "Bearing2_1": 50.0}
    assert mean_life("Bearing1_7", lives) == 200
    assert mean_life("Bearing3_3", lives) == 150


def test_the_best_constant_is_right_for_a_bearing_that_is_always_asked_at_one_time():
    assert best_constant([np.array([0.0, 1000.0])]) == pytest.approx(1000, rel=0.06)


def test_an_interval_that_the_life_lies_in_counts_as_covered(fold):
    samples = silent(fold.tests["pronostia"])
    none = [torch.zeros(len(sample), 1) for sample in samples]
    low, high = (
        {name: by_age(SurvivalPrior((390.0, 240.0, 290.0)), age, share) for name, age in ages.items()}
        for share in (0.1, 0.9)
        for ages in [{"Bearing1_3": 190.0, "Bearing1_4": 110.0, "Bearing2_3": 80.0}]
    )
    left = {"Bearing1_3": 120, "Bearing1_4": 80, "Bearing2_3": 60}
    inside = [low[name] <= left[name] <= high[name] for name in left]
    assert challenge_scores(none, samples)["covered"] == pytest.approx(100 * sum(inside) / 3)
    long = [replace(s, labels=s.labels | {"remaining_s": torch.tensor(1e6)}) for s in samples]
    assert challenge_scores(none, long)["covered"] == 0


def test_the_measures_of_the_challenge_say_which_way_is_better():
    assert all(metric.higher for metric in challenge.METRICS)
    assert [(metric.key, metric.digits, metric.compared) for metric in challenge.METRICS] == [
        ("challenge", 3, True),
        ("challenge_best", 3, True),
        ("covered", 0, True),
        ("bearings", 0, False),
        ("learnt", 0, False),
    ]


def test_the_challenge_is_about_one_task():
    from nacdrive.extras.bench.config import TableConfig
    from nacdrive.extras.bench.grid import left_out, rest_of_smoke, tasks_by_training

    config = TableConfig(protocol="challenge")
    assert tasks_by_training(config) == {"pronostia": ["pronostia"]}
    assert left_out(config) == {}
    assert rest_of_smoke(config) is None
    with pytest.raises(UserError, match="xjtu-sy has no place under --protocol challenge: The challenge was about"):
        tasks_by_training(TableConfig(protocol="challenge", tasks=("xjtu-sy",)))


def test_made_up_bearings_are_cut_at_the_same_share_of_their_lives(made_up):
    folder = made_up("pronostia")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learning, tests = read_challenge(folder)
    assert [run.name for run in learning] == ["Bearing1_1"]
    cut = {test.run.name: (test.seen, test.remaining_s) for test in tests}
    assert cut == {"Bearing1_4": (32, 80.0), "Bearing2_7": (22, 80.0)}


def test_a_model_of_the_challenge_predicts_with_the_lives_it_learnt_from(fold, small, tmp_path):
    from nacdrive.extras.bearings.life import predict_lives
    from nacdrive.training.predict import TrainedSeries

    task = load_task("pronostia", "challenge")
    torch.manual_seed(0)
    task.save(task.network("lstm", fold.train), tmp_path / "model.pt", {})
    network, _ = load_series(tmp_path / "model.pt", task="pronostia")
    assert network.config.about["lives_s"] == {"Bearing1_1": 390.0, "Bearing1_2": 240.0, "Bearing2_1": 290.0}
    model = TrainedSeries.load(str(tmp_path / "model.pt"), "pronostia", "cpu")
    found = predict_lives(model, small / "Test_set")["Bearing2_3"]
    assert found.basis == "the 3 lives that the model learnt from"
    # What predict prints is what the bench scores.
    scores = task.score("pronostia", outputs(network, task, fold.tests["pronostia"]), fold.tests["pronostia"])
    assert found.life.median_s[-1] == pytest.approx(scores["remaining_s Bearing2_3"], rel=1e-3)
    # A learning bearing is not compared with its own life.
    own = predict_lives(model, small / "Learning_set/Bearing1_2")["Bearing1_2"]
    assert own.basis == "the 2 lives that the model learnt from"


@pytest.mark.nightly
@pytest.mark.skipif(not REAL.is_dir(), reason="PRONOSTIA is not on this machine")
def test_the_real_bearings_are_asked_at_the_official_points(tmp_path):
    for name in ("Bearing1_1", "Bearing1_4", "Bearing2_7"):
        (tmp_path / f"{name}.tar.xz").symlink_to(REAL / f"{name}.tar.xz")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        (fold,) = load_task("pronostia", "challenge").folds({"pronostia": tmp_path}, 1, 0)
    assert fold.name == "2 of 11 bearings"
    assert any("Bearing1_2, Bearing2_1, Bearing2_2, Bearing3_1, Bearing3_2" in str(w.message) for w in said)
    samples = fold.tests["pronostia"]
    known = {name: len(t) for name, t in field_of(samples, "t").items()}
    assert known == {"Bearing1_4": 1139, "Bearing2_7": 172}
    scores = {name: challenge_scores(y, samples) for name, y in challenge_references(fold.train, samples).items()}
    # Mean life of the first condition, 28,020 s of one bearing, less 11,380 s gone; 2,890 s were left.
    assert scores["mean life of the condition minus elapsed"]["remaining_s Bearing1_4"] == pytest.approx(16_640, abs=15)
    assert scores["always 1000 s"]["challenge"] == pytest.approx(phm2012_score([2890, 580], [1000, 1000]))
    # By the files themselves what remains is what the table says, to a file.
    for bearing in open_bearings("pronostia", tmp_path):
        if (question := QUESTIONS.get(bearing.name)) is None:
            continue
        left = bearing.snapshot_s[-1] - bearing.snapshot_s[question.files - 1]
        assert left == pytest.approx(question.remaining_s, abs=15)


@pytest.mark.nightly
@pytest.mark.skipif(not REAL.is_dir(), reason="PRONOSTIA is not on this machine")
def test_a_real_bearing_that_dies_young_is_looked_at_in_time_and_gets_no_false_median(tmp_path):
    from nacdrive.extras.bearings.life import predict_lives, summary
    from nacdrive.training.predict import TrainedSeries

    (tmp_path / "Bearing2_7.tar.xz").symlink_to(REAL / "Bearing2_7.tar.xz")
    one = predict_lives(TrainedSeries.load("nac_exact.pt", "pronostia", "cpu"), tmp_path)["Bearing2_7"]
    at = QUESTIONS["Bearing2_7"].files - 1
    # 580 s are left; before, the interval began at 36 min.
    assert one.life.low_s[at] == pytest.approx(QUESTIONS["Bearing2_7"].remaining_s, rel=0.05)
    assert one.curve.state(at) == "healthy" and not one.life.worn[at]
    assert one.look_again_s[at] < QUESTIONS["Bearing2_7"].remaining_s
    assert "now: close to the end" in summary("Bearing2_7", one)
