"""What the figures and tables of ``explain`` show: the right numbers at the right places, in words for people."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nacdrive.common.action import Action
from nacdrive.common.statistics import proportion
from nacdrive.drivers.tick import Tick
from nacdrive.extras.explain.effect import COLOURS, count_parts, effect_figure, report
from nacdrive.extras.explain.figures import action_name, decision, neurons_figure, saliency_figure, telling_moments
from nacdrive.extras.explain.sides import Separation
from nacdrive.extras.explain.sides import report as sides_report
from nacdrive.models.effects import Effects, Part, frame_part
from nacdrive.viz.trace import Trace
from tests.helpers.ticks import make_tick

CHOICES = ((-1.0, 0.0, 0.0), (1.0, 0.0, 0.0))


def effects(head: float, frame: float, region: float = 0.0) -> Effects:
    """A decision to steer left, and how far each part speaks for it."""
    parts = (Part("head", 1, "head 2"), frame_part(3, 0.24), Part("region", 0, "upper left of the picture"))
    base = np.array([2.0, 0.0], np.float32)
    muted = np.array([[2.0 - head, 0], [2.0 - frame, 0], [2.0 - region, 0]], np.float32)
    return Effects(parts, base, muted, CHOICES, "nothing is left out")


MEASURED = [effects(4.0, 1.0), effects(4.0, 5.0), effects(1.0, 0.5), effects(0.5, 0.0)]


def test_parts_are_counted_by_how_often_they_decide_and_how_often_none_changes_more() -> None:
    head, frame, region = count_parts(MEASURED)
    assert (head.name, head.measured, head.decides, head.first) == ("head 2", 4, 2, 3)
    assert (frame.name, frame.measured, frame.decides, frame.first) == ("frame 3 back", 4, 1, 1)
    assert (region.decides, region.first, region.mean) == (0, 0, 0.0)
    assert head.mean == pytest.approx(np.mean([one.changes()[0] for one in MEASURED]))
    rarer = [replace(effects(0.0, 4.0), parts=(Part("head", 0, "head 1"), frame_part(1, 0.1), Part("time", 0, "time"))),
             *MEASURED]  # fmt: skip
    assert [one.name for one in count_parts(rarer)][:2] == ["frame 1 back", "head 2"], "by share, not by number"


def test_the_table_has_shares_of_the_decisions_in_which_a_part_was_there() -> None:
    lines = report(MEASURED).splitlines()
    low, high = proportion(2, 4)
    mean = np.mean([one.changes()[0] for one in MEASURED])
    assert [cell.strip() for cell in lines[2].strip("|").split("|")] == [
        "head 2", "50.0%", f"{low:.1%} to {high:.1%}", "75.0%", f"{mean:.3f}",
    ]  # fmt: skip
    assert lines[-2:] == ["In 2 of 4 decisions some part alone changes the decision.", "nothing is left out"]
    assert not report([replace(MEASURED[0], missing="")]).endswith("nothing is left out")


def test_bars_are_shares_in_percent_with_their_intervals_the_first_on_top() -> None:
    figure = effect_figure(MEASURED, "who decides")
    (axis,) = figure.axes
    assert [bar.get_width() for bar in axis.patches] == [50, 25, 0]
    assert [text.get_text() for text in axis.get_yticklabels()] == [
        "head 2",
        "frame 3 back",
        "upper left of the picture",
    ]
    (whiskers,) = axis.collections
    ends = [segment[:, 0].tolist() for segment in whiskers.get_segments()]
    for end, count in zip(ends, (2, 1, 0), strict=True):
        assert end == pytest.approx([100 * bound for bound in proportion(count, 4)], abs=1e-9)
    low, high = axis.get_ylim()
    assert low > high and axis.get_xlabel().startswith("% of 4 decisions") and axis.get_title() == "who decides"
    kinds = [tuple(round(255 * part) for part in bar.get_facecolor()[:3]) for bar in axis.patches]
    assert kinds == [tuple(bytes.fromhex(COLOURS[kind][1:])) for kind in ("head", "frame", "region")]
    assert figure.get_size_inches().tolist() == pytest.approx([8, 0.26 * 3 + 1.4])
    many = Effects(
        tuple(Part("head", k, f"head {k}") for k in range(30)), np.zeros(2), np.zeros((30, 2)), CHOICES
    )  # fmt: skip
    assert (
        len(effect_figure([many], "x").axes[0].patches) == 24
        and len(effect_figure([many], "x", 5).axes[0].patches) == 5
    )


@pytest.mark.parametrize(
    ("action", "word"),
    [
        (Action(-0.06, 1.0, 0.0), "left"),
        (Action(0.06, 0.0, 1.0), "right"),
        (Action(0.05, 1.0, 1.0), "brake"),
        (Action(-0.05, 1.0, 0.05), "gas"),
        (Action(0.0, 0.05, 0.0), "straight"),
    ],
)
def test_an_action_has_the_word_of_its_side_or_of_its_pedal(action: Action, word: str) -> None:
    assert action_name(action) == word


def test_a_decision_says_how_sure_it_was_and_what_the_expert_would_have_done_otherwise() -> None:
    sure = Action(-1.0, 0.0, 0.0, 0, np.log(np.array([0.75, 0.25], np.float32)))
    tick = replace(make_tick(0), action=sure, expert=Action(-0.5, 0.0, 0.0))
    assert decision(tick) == "left 75%", "the expert steers left too"
    assert decision(replace(tick, expert=Action(0.5, 0.0, 0.0))) == "left 75%\nexpert: right"
    assert decision(replace(tick, expert=None, action=replace(sure, choice=None))) == "left"
    assert decision(replace(tick, expert=None, action=replace(sure, logits=None))) == "left"


def test_each_moment_has_its_frame_above_and_what_was_looked_at_over_it_below() -> None:
    ticks = [replace(make_tick(4), expert=None), replace(make_tick(9, saliency=False), expert=None)]
    figure = saliency_figure(ticks, "where it looks")
    above, below = figure.axes[:2], figure.axes[2:4]
    assert [axis.get_title() for axis in above] == [f"{t.t_s:.2f} s\n{decision(t)}" for t in ticks]
    for axis, tick in zip(above, ticks, strict=True):
        np.testing.assert_array_equal(axis.images[0].get_array(), tick.frame)
    assert [len(axis.images) for axis in below] == [2, 1]
    seen = ticks[0].saliency
    assert seen is not None
    np.testing.assert_array_equal(below[0].images[1].get_array(), seen)
    np.testing.assert_allclose(below[0].images[1].get_alpha(), np.clip(1.2 * seen, 0, 0.85))
    assert below[0].images[1].get_clim() == (0, 1), "the same colour is the same everywhere"
    assert all(not axis.get_xticks().size and not axis.get_yticks().size for axis in (*above, *below))
    scale = figure.axes[4]
    assert scale.get_ylim() == (0, 1)
    assert [text.get_text() for text in scale.get_yticklabels()] == ["least", "most"]
    assert figure.get_suptitle() == "where it looks"
    assert figure.get_size_inches().tolist() == pytest.approx([2 * 1.75 + 0.3, 0.9 + 2 * 1.75])
    wide = [replace(tick, frame=tick.frame[:48], saliency=None) for tick in ticks[:1]]
    assert saliency_figure(wide, "x").get_size_inches().tolist() == pytest.approx([2.9, 0.9 + 2.6])


def test_the_neurons_of_a_head_are_maps_and_lines_over_seconds_above_the_steering() -> None:
    steering = np.array([-0.5, 0.0, 0.5, 0.5], np.float32)
    inter = np.array([[1.0, -4.0], [0.0, 0.0], [2.0, -2.0], [2.0, -2.0]], np.float32)
    trace = Trace(
        np.array([1.0, 1.5, 2.0, 2.5]), steering, {"inter": inter, "phi": steering + 1, "omega": steering + 2}
    )
    figure = neurons_figure(trace, "head 1")
    shown, phi, omega, last, bar = figure.axes
    assert [axis.get_ylabel() for axis in (shown, phi, omega, last)] == ["inter\n(2)", "φ", "ω  1/s", "steering"]
    (image,) = shown.images
    # The second neuron is 2 higher in right turns, the first 1: it stands below.
    np.testing.assert_array_equal(image.get_array(), inter.T)
    assert image.get_clim() == (-4, 4) and image.get_extent() == [1.0, 2.5, 2.0, 0.0]
    assert [text.get_text() for text in bar.get_yticklabels()] == ["-4", "0", "4"]
    assert phi.lines[0].get_xydata().tolist() == np.stack([trace.t_s, steering + 1], 1).tolist()
    assert last.get_ylim() == (-1.15, 1.15) and last.get_xlim() == (1.0, 2.5) and last.get_xlabel() == "seconds"
    assert [text.get_text() for text in last.get_yticklabels()] == ["left", "right"]
    assert figure.get_suptitle() == "head 1"
    assert figure.get_size_inches().tolist() == pytest.approx([9, 1.1 * (1.6 + 3 * 0.8) + 0.6])
    other = np.ascontiguousarray(inter[:, ::-1])
    turned = neurons_figure(replace(trace, states={"inter": other}), "x").axes[0].images[0]
    np.testing.assert_array_equal(turned.get_array(), inter.T, err_msg="sorted by what tells the sides")
    asleep = replace(trace, steering=np.abs(steering), states={"inter": 0 * other})
    assert neurons_figure(asleep, "x").axes[0].images[0].get_clim() == (-1, 1)


def test_of_moments_without_scores_the_sharpest_turns_come_first() -> None:
    ticks = [
        Tick(0, 1, k, 0.5 * k, np.zeros((2, 2, 3), np.uint8), Action(steering, 0.0, 0.0))
        for k, steering in enumerate((0.04, -0.3, 0.06, -0.9, 0.0))
    ]
    assert telling_moments(ticks, 1) == [3] and telling_moments(ticks, 2) == [1, 3]
    assert telling_moments(ticks, 4) == [0, 1, 2, 3], "moments half a second apart are apart"
    close = [replace(tick, t_s=0.9 * tick.t_s) for tick in ticks]
    assert telling_moments(close, 2) == [1, 3] and telling_moments(close, 9) == [1, 3]


@pytest.mark.parametrize(
    ("auc", "words"),
    [(0.9, "separates"), (0.1, "separates"), (0.89, "partly"), (0.72, "partly"), (0.31, "does not"), (0.5, "does not")],
)
def test_the_report_of_sides_says_how_well_the_most_telling_omega_separates_them(auc: float, words: str) -> None:
    best = Separation(2, "omega", 0.9504, 1.2, 1.4506, auc)
    gates = [best, Separation(0, "omega", 1, 1, 1, 0.5), *[Separation(1, "phi", 0, 0, 0, 0.5)] * 9]
    lines = sides_report(gates).split("\n")
    assert len(lines) == 1 + 8 + 1
    assert lines[1] == f"   3  omega     0.950    1.200    1.451  {auc:5.2f}"
    assert f"head (3) {words}" in lines[-1] and lines[-1].endswith(f"AUC {auc:.2f}, medians 0.950 and 1.451.")
    assert len(sides_report([Separation(1, "phi", 0, 0, 0, 0.5)]).split("\n")) == 2


def test_a_picture_in_which_nothing_speaks_for_the_decision_says_so() -> None:
    blank = np.zeros(make_tick(0).frame.shape[:2], np.float32)
    ticks = [replace(make_tick(k), saliency=one) for k, one in enumerate((blank, blank + 1, None))]
    labels = [axis.get_xlabel() for axis in saliency_figure(ticks, "x").axes]
    assert labels.count("nothing speaks for it") == 1 and labels[3] == "nothing speaks for it"
