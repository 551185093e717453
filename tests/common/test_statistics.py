from __future__ import annotations

import numpy as np
import pytest

from nacdrive.common.statistics import fraction, summary


def test_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    hits = []
    for _ in range(120):
        low, high = summary(list(random.normal(900, 50, 20)))["interval95"]
        hits.append(low < 900 < high)
    assert 0.86 < np.mean(hits) <= 1


def test_summary_of_known_numbers() -> None:
    found = summary([1.0, 2.0, 6.0])
    assert found["mean"] == 3 and found["std"] == pytest.approx(np.sqrt(7)) and found["median"] == 2
    assert found["min"] == 1 and found["max"] == 6
    low, high = found["interval95"]
    assert 1 <= low < 3 < high <= 6
    assert summary([1.0, 2.0, 6.0]) == found, "the same returns give the same interval"


def test_one_episode_has_no_interval() -> None:
    assert summary([5.0])["interval95"] is None and summary([5.0])["std"] is None
    assert fraction([5.0], [10.0]) == {"value": 0.5, "interval95": None}


def test_fraction_is_a_ratio_of_means_and_pairs_tracks() -> None:
    expert = [100.0, 900.0, 500.0, 700.0]
    found = fraction([0.9 * value for value in expert], expert)
    assert found is not None and found["value"] == pytest.approx(0.9)
    # Paired: easy and hard tracks cancel out, so nothing is left to be unsure of.
    assert found["interval95"] == pytest.approx([0.9, 0.9])
    assert fraction([1.0, 1.0], [-5.0, 1.0]) is None
    with pytest.raises(ValueError, match="same tracks"):
        fraction([1.0], [1.0, 2.0])
