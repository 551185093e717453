"""What a person reads of a bearing: its table, its sentence, its file; and the lives that it is compared with."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nacdrive.extras.bearings.challenge import learning_lives_s
from nacdrive.extras.bearings.life import BearingLife, document, prior_of, span, summary, table, write_files
from nacdrive.extras.bearings.wear import RemainingLife, WearCurve

HOUR = 3600.0


def life_of(snapshots: int = 5) -> BearingLife:
    """A bearing that is looked at once an hour, whose wear shows from the last snapshot but one on."""
    t_s = HOUR * np.arange(snapshots)
    wear = np.linspace(0, 0.5, snapshots)
    left = HOUR * np.arange(10.0, 10 - snapshots, -1)
    worn = np.arange(snapshots) >= snapshots - 2
    life = RemainingLife(left / 2, left, left * 4, worn)
    curve = WearCurve(t_s, wear, np.full(snapshots, np.nan), np.where(worn, 3.2, 1.1))
    return BearingLife(curve, life, "the 2 lives that were given", 2)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 h 00 min"), (29, "0 h 00 min"), (31, "0 h 01 min"), (3570.1, "1 h 00 min"), (90_061, "25 h 01 min")],
)
def test_a_span_is_told_in_hours_and_whole_minutes(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(50, 100, "fairly sure"), (50, 101, "rough"), (20, 100, "rough"), (20, 101, "a guess"), (0.1, 2, "fairly sure")],
)
def test_how_sure_an_answer_is_follows_from_how_far_its_ends_lie_apart(low: float, high: float, word: str) -> None:
    life = RemainingLife(np.array([low]), np.array([high]), np.array([high]), np.array([True]))
    assert life.sureness(0) == word


def test_a_table_shows_the_first_snapshot_the_last_and_some_between() -> None:
    shown = table("pump", life_of(), 3)
    assert shown.title == "pump: 5 snapshots"
    columns = {str(column.header): list(column.cells) for column in shown.columns}
    assert columns == {
        "running for": ["0 h 00 min", "2 h 00 min", "4 h 00 min"],
        "wear (0 new, 1 failed)": ["0.00", "0.25", "0.50"],
        "remaining life": ["-", "-", "6 h 00 min"],
        "80 % interval": [f"{a} h 00 min .. {b} h 00 min" for a, b in ((5, 40), (4, 32), (3, 24))],
        "state": ["healthy", "healthy", "close to the end"],
    }
    assert [column.justify for column in shown.columns] == [*["right"] * 4, "left"]
    assert len(table("pump", life_of(2), 9).rows) == 2


def test_the_sentence_is_about_the_last_snapshot() -> None:
    assert summary("pump", life_of()) == (
        "pump now: close to the end, vibration 3.2 times that of its beginning. About 6 h 00 min left, with 80 % "
        "probability 3 h 00 min to 24 h 00 min: a guess (by wear and age); half of such medians were off by a factor "
        "of 2.8 or more on six bearings of PRONOSTIA. Look again in 1 h 30 min. This rests on a model that learnt "
        "from 2 runs to failure; ages are compared with the 2 lives that were given."
    )


def test_a_bearing_that_shows_nothing_gets_no_median_of_its_own() -> None:
    one = life_of()
    flat = WearCurve(one.curve.t_s, np.zeros(5), one.curve.truth)
    quiet = replace(one, curve=flat, life=replace(one.life, worn=np.zeros(5, bool)), learnt=None)
    text = summary("pump", quiet)
    assert text.startswith(
        "pump now: healthy, vibration 1.0 times that of its beginning. Nothing shows yet, so nothing"
    )
    assert "By age alone, one bearing in ten of this age fails within 3 h 00 min, half within 6 h 00 min" in text
    assert " left" not in text and "Look again in 1 h 30 min" in text
    assert "learnt from an unknown number of runs to failure" in text
    told = document(quiet)
    assert told["state"] == "healthy" and told["look_again_s"] == 5400 and told["runs_learnt_from"] is None
    assert told["basis"] == "no wear shows, so by age alone; the 2 lives that were given"
    assert told["sureness"] == "a guess" and len(told["remaining_s"]) == 5


def test_the_file_has_a_row_for_every_snapshot_of_every_bearing(tmp_path: Path) -> None:
    write_files({"a": life_of(3), "b": life_of(2)}, tmp_path, "Wear")
    with (tmp_path / "wear.csv").open() as file:
        rows = list(csv.reader(file))
    assert [row[0] for row in rows] == ["bearing", "a", "a", "a", "b", "b"]
    assert rows[0][1:] == ["t_s", "wear", "remaining_s", "remaining_low_s", "remaining_high_s", "wear_shows"]
    assert rows[1] == ["a", "0.00", "0.0000", "36000", "18000", "144000", "0"]
    assert rows[3] == ["a", "7200.00", "0.5000", "28800", "14400", "115200", "1"]
    assert (tmp_path / "wear.png").is_file()


def test_a_bearing_is_compared_with_the_lives_that_were_given_else_with_those_that_the_model_knows() -> None:
    learnt = {"Bearing1_1": 100.0, "Bearing1_2": 300.0}
    for given, known, own, lives, basis in (
        ([5.0], learnt, "Bearing1_1", (5.0,), "the 1 life that was given"),
        ([5.0, 7.0], learnt, "Bearing1_1", (5.0, 7.0), "the 2 lives that were given"),
        ([], learnt, None, (100.0, 300.0), "the 2 lives that the model learnt from"),
        ([], learnt, "Bearing1_1", (300.0,), "the 1 life that the model learnt from"),
    ):
        prior, words = prior_of(given, known, own)
        assert (prior.lives_s, words) == (lives, basis)
    prior, words = prior_of([], {"Bearing1_1": 100.0}, "Bearing1_1")
    others = [life for name, life in learning_lives_s().items() if name != "Bearing1_1"]
    assert prior.lives_s == tuple(others)
    assert words == "5 lives of PRONOSTIA, for the model file tells none"
