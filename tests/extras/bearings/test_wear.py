"""Remaining life from wear and age."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from nacdrive.common.errors import UserError
from nacdrive.extras.bearings.challenge import LEARNING_FILES, QUESTIONS, learning_lives_s
from nacdrive.extras.bearings.wear import (
    HIGH,
    HOURS,
    LOW,
    RemainingLife,
    SurvivalPrior,
    WearCurve,
    first_run,
    phm2012_accuracy,
    plot_wear,
    posterior,
    quantiles_of,
    vibration_level,
)
from nacdrive.viz import figures as viz

LIVES = tuple(learning_lives_s().values())


def ramp(begin: float, end: float = 990.0, until: float = 990.0) -> WearCurve:
    t = np.arange(0.0, until + 1, 10.0)
    truth = np.clip((t - begin) / (end - begin), 0, 1)
    return WearCurve(t, truth, truth)


@given(
    lives=st.lists(st.floats(100, 1e6), min_size=1, max_size=6),
    age=st.floats(0, 1e6),
    share=st.floats(0.01, 0.99),
)
def test_quantiles_of_the_prior_are_where_its_survival_says(lives, age, share):
    prior = SurvivalPrior(tuple(lives))
    left = prior.remaining_s(age, share)
    assert left > 0
    assert float(prior.survival(age, left)) == pytest.approx(1 - share, abs=1e-6)
    # Surviving one part and then the other is surviving both.
    both = prior.survival(age, left) * prior.survival(age + left, 77.0)
    assert float(both) == pytest.approx(float(prior.survival(age, left + 77.0)), rel=1e-9)


def test_the_prior_is_the_average_over_the_scales_that_the_lives_allow():
    prior = SurvivalPrior((300.0, 800.0, 500.0))
    random = np.random.default_rng(0)
    rates = random.gamma(3, 1 / prior.total, 400_000)
    lives = (random.exponential(size=len(rates)) / rates) ** (1 / prior.shape)
    old = lives[lives > 400]
    for share in (LOW, 0.5, HIGH):
        assert float(prior.remaining_s(0.0, share)) == pytest.approx(np.quantile(lives, share), rel=0.02)
        assert float(prior.remaining_s(400.0, share)) == pytest.approx(np.quantile(old, share) - 400, rel=0.03)


@pytest.mark.parametrize("lives", [(), (0.0,), (float("nan"),), (100.0, -1.0)])
def test_lives_that_are_none_are_refused(lives):
    with pytest.raises(UserError, match="must be numbers above 0"):
        SurvivalPrior(lives)


def test_lives_of_few_bearings_leave_wider_intervals_than_those_of_many():
    few, many = SurvivalPrior((7200.0,)), SurvivalPrior((7200.0,) * 20)
    width = [float(p.remaining_s(0.0, HIGH) / p.remaining_s(0.0, LOW)) for p in (few, many)]
    assert width[0] > 2 * width[1]


def test_there_is_a_remaining_life_at_every_snapshot_and_before_wear_it_is_the_priors():
    prior = SurvivalPrior(LIVES)
    curve = ramp(400)
    life = curve.remaining_life(prior)
    for values in (life.low_s, life.median_s, life.high_s):
        assert np.isfinite(values).all()
        assert (values > 0).all()
    assert ((life.low_s < life.median_s) & (life.median_s < life.high_s)).all()
    # An age says the less for a long life the longer it is: the question comes at a random moment of it.
    assert (life.median_s[~life.worn] < prior.remaining_s(curve.t_s[~life.worn], 0.5)).all()
    assert life.worn.argmax() == first_run(curve.predicted > 0.1, 5) + 4
    assert life.basis(0) == "no wear shows, so by age alone"
    assert life.basis(-1) == "by wear and age"


def test_wear_that_is_known_exactly_gives_its_ramp_and_an_interval_that_says_so():
    curve = ramp(400)
    late = curve.t_s > 700
    actual = 990 - curve.t_s
    exact = curve.remaining_life(SurvivalPrior(LIVES), wear_error=0.01)
    np.testing.assert_allclose(exact.median_s[late][:-5], actual[late][:-5], rtol=0.2, atol=12)
    vague = curve.remaining_life(SurvivalPrior(LIVES), wear_error=1.0)
    i = int(np.flatnonzero(late)[0])
    assert exact.high_s[i] / exact.low_s[i] < 1.4 < 5 < vague.high_s[i] / vague.low_s[i]
    assert exact.sureness(i) == "fairly sure"
    assert vague.sureness(i) == "a guess"


def test_a_bearing_said_to_have_failed_that_runs_on_still_has_a_life_ahead():
    t = np.arange(0.0, 20_000.0, 10.0)
    wear = (t > 10_000).astype(float)
    curve = WearCurve(t, wear, wear)
    prior = SurvivalPrior(LIVES)
    life = curve.remaining_life(prior)
    assert life.low_s[-1] > 60
    # The wear is believed, and the less the longer the bearing runs on.
    by_age = prior.remaining_s(t, 0.5)
    assert life.median_s[1010] < 0.6 * by_age[1010]
    assert life.median_s[-1] > life.median_s[1010]


def test_the_past_alone_decides():
    whole, begun = ramp(400), ramp(400, until=800)
    N = len(begun.t_s)
    prior = SurvivalPrior(LIVES)
    a, b = whole.remaining_life(prior), begun.remaining_life(prior)
    np.testing.assert_allclose(a.median_s[:N], b.median_s, rtol=0.03)
    np.testing.assert_array_equal(a.worn[:N], b.worn)


def test_asked_at_random_moments_of_lives_the_interval_holds_what_it_promises():
    prior, random = SurvivalPrior(LIVES), np.random.default_rng(0)
    lives = prior.remaining_s(np.zeros(3000), random.random(3000))
    age = lives * random.random(3000)

    def quantile(since_s, share):
        return quantiles_of(*posterior(prior, age, np.full(3000, since_s), np.full(3000, np.nan), 0.35), share)

    low, high = quantile(np.inf, LOW), quantile(np.inf, HIGH)
    assert ((low <= lives - age) & (lives - age <= high)).mean() == pytest.approx(0.8, abs=0.03)
    # Vibration that has just risen makes the rest shorter than age alone does, the more the less ago.
    assert (quantile(60.0, HIGH) < quantile(600.0, HIGH)).all() and (quantile(600.0, HIGH) < high).all()


def test_wear_that_has_gone_back_counts_no_more_and_the_vibration_counts_beside_the_network():
    t = np.arange(0.0, 1000.0, 10.0)
    early = np.where((t >= 100) & (t < 200), 0.5, 0.0)
    curve = WearCurve(t, early, early)
    shown = curve.remaining_life(SurvivalPrior(LIVES)).worn
    np.testing.assert_array_equal(np.flatnonzero(shown), np.arange(14, 20))
    assert curve.present_wear()[0][14] == 50
    # The network sees nothing; the vibration rises at 600 s and is close to the end from 900 s on.
    level = np.where(t < 600, 1.0, np.where(t < 900, 2.0, 4.0))
    loud = WearCurve(t, np.zeros_like(t), t, level)
    by_age, life = (c.remaining_life(SurvivalPrior(LIVES)) for c in (curve, loud))
    np.testing.assert_array_equal(np.flatnonzero(life.worn), np.arange(60, 100))
    assert (life.high_s[60:] < by_age.high_s[60:]).all() and (life.low_s > 0).all()
    assert [loud.state(i) for i in (59, 60, 89, 90, -1)] == ["healthy", "worn", "worn", *["close to the end"] * 2]


def test_the_level_is_that_of_the_louder_axis_and_no_single_shock_raises_it():
    x = np.zeros((20, 14))
    x[7, 0] = 9.0
    x[12:, 7] = 2 * np.log10(3)
    x[:, 3] = 5.0
    np.testing.assert_allclose(vibration_level(x), [1.0] * 14 + [3.0] * 6)


def test_many_snapshots_at_once_are_each_computed_as_alone(monkeypatch):
    import nacdrive.extras.bearings.wear as wear

    prior, curve = SurvivalPrior(LIVES), ramp(300)
    at_once = curve.remaining_life(prior)
    monkeypatch.setattr(wear, "ROWS", 7)
    # Each piece has a grid of its own.
    np.testing.assert_allclose(curve.remaining_life(prior).median_s, at_once.median_s, rtol=0.03)


def test_bayes_rule_on_the_grid_is_that_of_a_fine_integral():
    prior = SurvivalPrior((2000.0, 900.0))
    age, since, share, error = 700.0, 200.0, 0.6, 0.3
    t = np.arange(0.0, 701.0, 10.0)
    wear = np.where(t >= age - since, 0.1 + 0.9 * share, 0.0)
    life = WearCurve(t, wear, wear).remaining_life(prior, error)
    x = np.linspace(0, 30_000, 3_000_001)
    density = -np.gradient(prior.survival(age, x), x)
    # Wear began after the last snapshot that did not show it; a long life is asked less often at one age.
    seen = since + 10
    density *= np.exp(-0.5 * ((share - seen / (seen + x)) / error) ** 2) / (age + x)
    below = density.cumsum() / density.sum()
    for quantiles, wanted in ((life.low_s, LOW), (life.median_s, 0.5), (life.high_s, HIGH)):
        assert float(quantiles[-1]) == pytest.approx(x[np.searchsorted(below, wanted)], rel=0.02)


def test_the_answer_for_the_score_expects_more_of_it_than_the_median():
    prior = SurvivalPrior(LIVES)
    t = np.arange(0.0, 3000.0, 10.0)
    curve = WearCurve(t, np.zeros_like(t), t)
    best, median = curve.best_guess_s(prior), float(prior.remaining_s(t[-1], 0.5))
    draws = np.array([float(prior.remaining_s(t[-1], u)) for u in (np.arange(4000) + 0.5) / 4000])
    weights = 1 / (t[-1] + draws)
    expected = [np.average(phm2012_accuracy(draws, answer), weights=weights) for answer in (best, median)]
    assert expected[0] > expected[1]
    assert best < median


def test_onset_and_wear_after_it_are_judged_apart():
    t = np.arange(0.0, 1000.0, 10.0)
    truth = np.clip((t - 400) / 590, 0, 1)
    late = np.clip((t - 520) / 590, 0, 1)
    same, later = WearCurve(t, truth, truth), WearCurve(t, late, truth)
    assert same.onset_error_s == same.rmse_worn == 0
    assert later.onset_error_s == pytest.approx(120, abs=10)
    worn = truth > 0
    assert later.rmse_worn == pytest.approx(float(np.sqrt(np.mean((late - truth)[worn] ** 2))))
    assert later.rmse_worn > later.rmse
    # An onset that is never told counts as told at the end.
    assert WearCurve(t, np.zeros_like(t), truth).onset_error_s == pytest.approx(990 - 460, abs=10)


def test_lives_of_the_challenge_agree_with_what_was_printed_but_for_one():
    printed = "5730 339 1610 1460 7570 7530 1390 3090 1290 580 820"
    assert [question.printed_s for question in QUESTIONS.values()] == [float(word) for word in printed.split()]
    differing = {name for name, q in QUESTIONS.items() if q.remaining_s != q.printed_s}
    assert differing == {"Bearing1_4"}
    assert QUESTIONS["Bearing1_4"].remaining_s == 2890
    assert len(LEARNING_FILES) == 6
    assert not LEARNING_FILES.keys() & QUESTIONS.keys()
    assert learning_lives_s()["Bearing1_1"] == 28_020


def test_a_panel_shows_a_bearings_wear_over_hours_and_its_error_only_where_that_is_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    figures: list[Figure] = []
    save = viz.save
    monkeypatch.setattr(viz, "save", lambda figure, path: (figures.append(figure), save(figure, path)))
    t_s, truth = np.array([0.0, 3600.0, 7200.0]), np.array([0.0, 0.5, 1.0])
    curves = {
        "mended": WearCurve(t_s, truth + 0.2, truth),
        "at work": WearCurve(t_s, truth, np.full(3, np.nan)),
        "third": WearCurve(t_s, truth, truth),
        "fourth": WearCurve(t_s, truth, truth),
    }
    plot_wear(curves, tmp_path / "wear.png", title="Wear", known=True)
    panels = figures[0].axes
    assert [panel.get_title() for panel in panels[:4]] == [
        "mended, RMSE 0.16",
        "at work",
        *(f"{name}, RMSE 0.00" for name in ("third", "fourth")),
    ]
    assert len(panels) == 6 and [panel.axison for panel in panels] == [True] * 4 + [False] * 2
    for panel in panels[:4]:
        assert panel.get_ylim() == (-0.05, 1.05) and panel.get_xlabel() == HOURS
    true, predicted = panels[0].lines
    assert list(true.get_xdata()) == [0, 1, 2] and list(true.get_ydata()) == list(truth)
    assert list(predicted.get_ydata()) == [0.2, 0.7, 1.0] and predicted.get_label() == "predicted"
    assert panels[0].get_legend() is not None and panels[0].get_ylabel() == "wear, 0 new .. 1 failed"
    assert all(not panel.get_ylabel() and panel.get_legend() is None for panel in panels[1:])
    # The true wear is drawn as the wider line, below; each panel has the same room.
    assert (true.get_linewidth(), predicted.get_linewidth()) == (1.6, 1.0)
    assert figures[0].get_size_inches().tolist() == pytest.approx([3 * 4.2, 2 * 2.9])
    assert figures[0].get_suptitle() == "Wear"
    plot_wear({"alone": curves["mended"]}, tmp_path / "alone.png", title="Wear", known=False, axis="s")
    alone = figures[1].axes[0]
    assert alone.get_xlabel() == "s" and figures[1].get_size_inches().tolist() == pytest.approx([4.2, 2.9])
    life = RemainingLife(t_s + 1, t_s + 2, t_s + 3600, np.zeros(3, bool))
    plot_wear({"a": curves["mended"]}, tmp_path / "fan.png", title="Wear", known=False, lives={"a": life})
    front, fan = figures[2].axes
    assert fan.get_yscale() == "log" and len(fan.collections) == 1 and front.get_zorder() > fan.get_zorder()
    assert list(fan.lines[0].get_ydata()) == pytest.approx((t_s + 2) / 3600)
    assert len(alone.lines) == 1 and list(alone.lines[0].get_xdata()) == list(t_s) and alone.get_title() == "alone"


def test_a_rest_of_life_that_is_shorter_than_the_grid_counts_at_its_begin() -> None:
    # A minute is nearly all that bearings of five seconds ever had: no weight is lost, no quantile is below a second.
    t = np.arange(0.0, 61.0, 10.0)
    life = WearCurve(t, np.ones(7), t).remaining_life(SurvivalPrior((5.0,) * 6), wear_error=0.05)
    assert life.worn.tolist() == [False] * 4 + [True] * 3
    assert 1 <= life.low_s[-1] < life.median_s[-1] < life.high_s[-1] < 60
