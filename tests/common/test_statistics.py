from __future__ import annotations

import numpy as np
import pytest

from nacdrive.common.statistics import fraction, paired_difference, proportion, summary


def test_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    hits = []
    for _ in range(120):
        low, high = summary(list(random.normal(900, 50, 20)))["interval95"]
        hits.append(low < 900 < high)
    assert 0.86 < np.mean(hits) <= 1


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_few_episodes_are_no_surer_than_they_can_be(count: int) -> None:
    random = np.random.default_rng(count)
    means, ratios = [], []
    for _ in range(200):
        expert = random.normal(900, 100, count)
        low, high = summary(list(expert))["interval95"]
        means.append(low < 900 < high)
        ratio = fraction(list(0.9 * expert + random.normal(0, 50, count)), list(expert))
        assert ratio is not None
        low, high = ratio["interval95"]
        ratios.append(low < 0.9 < high)
    # Of the bootstrap: 51 to 90 %.
    assert np.mean(means) > 0.91 and np.mean(ratios) > 0.91


def test_summary_of_known_numbers() -> None:
    found = summary([1.0, 2.0, 6.0])
    assert found["mean"] == 3 and found["std"] == pytest.approx(np.sqrt(7)) and found["median"] == 2
    assert found["min"] == 1 and found["max"] == 6
    low, high = found["interval95"]
    # Student's t with two degrees of freedom.
    assert (low, high) == pytest.approx((3 - 4.302652729 * np.sqrt(7 / 3), 3 + 4.302652729 * np.sqrt(7 / 3)))
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


def test_numbers_stay_as_published() -> None:
    """The resampling is part of every published interval: scipy's own bootstrap draws otherwise."""
    returns = [910.0, 870.5, 933.25, 12.0, 899.0, 921.5, 640.0, 905.75, 917.0, 888.0]
    assert summary(returns)["interval95"] == [606.525, 910.2006250000001]
    ratio = fraction(returns, [920.0, 860.0, 930.0, 905.0, 890.0, 915.0, 700.0, 912.5, 909.0, 893.0])
    assert ratio is not None and ratio["interval95"] == [0.6894902711414649, 1.0039709364694527]


def test_resamples_whose_expert_mean_is_not_positive_say_nothing_of_a_ratio() -> None:
    # A good quarter of the resamples have a mean below zero, of which the ratio would be negative.
    found = fraction([100.0] * 10, [-100.0] * 5 + [150.0] * 5)
    assert found is not None and found["interval95"][0] > 0


def test_a_paired_difference_is_surer_than_two_means() -> None:
    easy_and_hard = np.random.default_rng(1).uniform(0, 900, 30)
    found = paired_difference(list(easy_and_hard + 5), list(easy_and_hard))
    assert found["value"] == pytest.approx(5) and found["interval95"] == pytest.approx([5, 5])
    low, high = paired_difference([1.0, 2.0, 6.0], [0.0, 3.0, 2.0])["interval95"]
    assert low < 4 / 3 < high
    # Three pairs: Student's t with two degrees of freedom.
    assert high - 4 / 3 == pytest.approx(4.302652729911275 * np.std([1, -1, 4], ddof=1) / np.sqrt(3))
    assert paired_difference([3.0], [1.0]) == {"value": 2.0, "interval95": None}
    with pytest.raises(ValueError, match="same tracks"):
        paired_difference([1.0], [])


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (10, 10), (3, 7), (1, 1), (498, 500)])
def test_a_share_has_wilsons_interval(successes: int, trials: int) -> None:
    z, share = 1.959963984540054, successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z * np.sqrt(share * (1 - share) / trials + z * z / (4 * trials**2)) / (1 + z * z / trials)
    assert proportion(successes, trials) == pytest.approx([max(0, centre - half), min(1, centre + half)], abs=1e-12)


def test_ten_pairs_are_enough_for_a_bootstrap_and_nine_are_not() -> None:
    differences = [3.0, -1.0, 4.0, 1.0, -5.0, 9.0, 2.0, -6.0, 5.0, 3.0]
    zeros = [0.0] * 10
    # Of ten the resampled interval, which is the very one of the mean.
    assert paired_difference(differences, zeros)["interval95"] == summary(differences)["interval95"]
    found = paired_difference(differences[:9], zeros[:9])["interval95"]
    # Student's t with eight degrees of freedom: 2.306004135.
    half = 2.306004135204166 * np.std(differences[:9], ddof=1) / 3
    assert found == pytest.approx([12 / 9 - half, 12 / 9 + half])
    # Two are as few as can be: 12.706.
    assert paired_difference([1.0, 3.0], [0.0, 0.0])["interval95"] == pytest.approx([2 - 12.7062, 2 + 12.7062], 1e-5)


@pytest.mark.parametrize(("ours", "theirs"), [([], []), ([1.0], [1.0, 2.0]), ([1.0, 2.0], [1.0])])
def test_values_that_are_not_of_the_same_tracks_are_not_compared(ours: list[float], theirs: list[float]) -> None:
    with pytest.raises(ValueError, match=f"{len(ours)} values against {len(theirs)}"):
        paired_difference(ours, theirs)


def test_two_episodes_have_an_interval() -> None:
    found = summary([1.0, 3.0])
    # Student's t with one degree of freedom: 12.706.
    assert found["interval95"] == pytest.approx([2 - 12.7062, 2 + 12.7062], 1e-5)
    assert found["std"] == pytest.approx(np.sqrt(2))
    ratio = fraction([1.0, 3.0], [2.0, 2.0])
    assert ratio is not None and ratio["value"] == 1
    assert ratio["interval95"] == pytest.approx([1 - 6.3531, 1 + 6.3531], 1e-5)


def test_an_expert_that_gains_nothing_has_no_fraction() -> None:
    assert fraction([1.0, 2.0], [-1.0, 1.0]) is None and fraction([1.0], [0.0]) is None
