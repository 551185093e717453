"""Wear of a bearing over its life, and the remaining life that follows from it: always a number, with an interval.

Before any wear shows, the remaining life is that of a bearing of this age whose life is drawn as those of other
bearings were (``SurvivalPrior``), asked for at a random moment of it. While wear shows, Bayes' rule weighs that with
the wear: with a life of x left, a ramp that began e seconds ago would stand at e / (e + x), and the network is known to
err about it by so much; where the vibration alone has risen, a random moment of a worn span of any length is taken.

The paper calls its labels "physically plausible" without a formula; its published files carry a ramp over the whole
life. The first prediction time follows the 3-sigma rule of Li, Lei, Lin and Ding, "An improved exponential model for
predicting remaining useful life of rolling element bearings" (2015).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from nacdrive.common.errors import UserError
from nacdrive.extras.bearings.features import FEATURES, FeatureTable
from nacdrive.tasks.sample import Sample
from nacdrive.tasks.splits import field_of, joined

Array = NDArray[np.float64]
HEALTHY_SHARE = 0.25
"""Part of the life, from its begin, that counts as healthy for the rule."""
SIGMAS = 3.0
MOMENT_S = 1e-9
"""Shortest span that is divided by."""
WORN = 0.1
"""Predicted wear that counts as its beginning."""
IN_A_ROW = 5
"""Snapshots in a row that must show it."""
RISEN, NEAR_END = 1.5, 3.0
"""Vibration, as a multiple of the bearing's own beginning, that counts as worn, and as close to the end."""
SHAPE = 1.5
"""Weibull slope of lives, as in the reliability factors of ISO 281; the 17 lives of PRONOSTIA have 1.8 (maximum
likelihood), over three speeds and loads."""
WEAR_ERROR = 0.35
"""Error of the wear after its onset that is assumed where none is known of a model: the mean over ten bearings
(Bearing1_4 and 2_7 of PRONOSTIA, eight of XJTU-SY) that the shipped model never saw."""
LOW, HIGH = 0.1, 0.9
"""Quantiles that bound an interval, which so holds 80 %."""
SHORTEST_S = 1.0
"""Shortest remaining life that is told apart."""
CELLS = 400
"""Of the grid of remaining lives that Bayes' rule is computed on; neighbours differ by about 3 %."""
ROWS = 4096
"""Snapshots that are computed at once."""
INK, TRUE, PREDICTED = "#1f2933", "#8a94a0", "#c2410c"
HOURS = "hours since the first snapshot"


def first_prediction_time(table: FeatureTable) -> float:
    """Time in seconds at which wear first shows.

    It is the first of ``IN_A_ROW`` snapshots in a row whose root mean square or kurtosis, of either axis, lies more
    than ``SIGMAS`` standard deviations above its mean over the healthy part; the last snapshot if there is none.
    """
    indicators = np.concatenate([table.rms, table.kurtosis], axis=1)
    healthy = min(max(2, round(HEALTHY_SHARE * len(indicators))), len(indicators))
    usual = indicators[:healthy]
    beyond = indicators > usual.mean(axis=0) + SIGMAS * usual.std(axis=0)
    beyond[:healthy] = False
    return float(table.t_s[min(first_run(column, IN_A_ROW) for column in beyond.T)])


def first_run(shown: NDArray[np.bool_], length: int) -> int:
    """Where ``length`` in a row of ``shown`` [N] begin for the first time; the last place if they never do."""
    begins = np.flatnonzero(np.convolve(shown, np.ones(length), "valid") == length)
    return int(begins[0]) if len(begins) else len(shown) - 1


def fpt_label(t_s: ArrayLike, first_s: float) -> NDArray[np.float32]:
    """Label [N] that is 0 up to the first prediction time and then grows linearly to 1 at the last snapshot."""
    t = np.asarray(t_s, np.float64)
    label: NDArray[np.float32] = np.clip((t - first_s) / max(t[-1] - first_s, MOMENT_S), 0, 1).astype(np.float32)
    # A bearing that showed nothing before its end is worn at its end all the same.
    label[-1] = 1
    return label


def phm2012_score(actual_s: ArrayLike, predicted_s: ArrayLike) -> float:
    """Score of the IEEE PHM 2012 challenge: mean accuracy over test bearings, 1 is perfect, 0 is worst.

    Er = 100 (actual - predicted) / actual; the accuracy of a bearing is exp(-ln(0.5) Er / 5) where Er <= 0 (life was
    overestimated) and exp(ln(0.5) Er / 20) where Er > 0. Both are [bearings] remaining seconds, the actual above 0.
    """
    return float(phm2012_accuracy(actual_s, predicted_s).mean())


def phm2012_accuracy(actual_s: ArrayLike, predicted_s: ArrayLike) -> Array:
    """Accuracy of each prediction of ``phm2012_score``, in the shape that both arguments broadcast to."""
    actual = np.asarray(actual_s, np.float64)
    error = 100 * (actual - np.asarray(predicted_s, np.float64)) / actual
    return np.asarray(np.exp(np.log(0.5) * np.where(error <= 0, -error / 5, error / 20)))


@dataclass(frozen=True)
class SurvivalPrior:
    """How long bearings like this one live: Weibull of known slope, its scale learnt from a few lives ("Weibayes").

    With the scale's posterior under Jeffreys' prior integrated out, a life exceeds t with probability
    (S / (S + t^b))^n, where S is the sum of n known lives to the power of the slope b. One life is enough; few lives
    make wide intervals.
    """

    lives_s: tuple[float, ...]
    shape: float = SHAPE

    def __post_init__(self) -> None:
        if not self.lives_s or not all(np.isfinite(life) and life > 0 for life in self.lives_s):
            raise UserError("lives of bearings must be numbers above 0, and one at least is needed.")

    @property
    def total(self) -> float:
        return float(np.sum(np.power(self.lives_s, self.shape)))

    def survival(self, age_s: ArrayLike, left_s: ArrayLike) -> Array:
        """Probability that a bearing of ``age_s`` runs for more than ``left_s`` further seconds; both broadcast."""
        age, left = np.asarray(age_s, np.float64), np.asarray(left_s, np.float64)
        now, then = self.total + age**self.shape, self.total + (age + left) ** self.shape
        return np.asarray((now / then) ** len(self.lives_s), np.float64)

    def remaining_s(self, age_s: ArrayLike, share: float) -> Array:
        """Quantile ``share`` of the remaining seconds of a bearing of ``age_s``; like ``age_s``."""
        age = np.asarray(age_s, np.float64)
        then = (self.total + age**self.shape) * (1 - share) ** (-1 / len(self.lives_s)) - self.total
        return np.asarray(then ** (1 / self.shape) - age, np.float64)


@dataclass(frozen=True)
class RemainingLife:
    """Remaining life of one bearing at each of N snapshots."""

    low_s: Array  # [N] seconds that remain with 90 % probability
    median_s: Array  # [N] seconds that remain with 50 % probability
    high_s: Array  # [N] seconds that remain with 10 % probability
    worn: NDArray[np.bool_]  # [N] whether wear shows at present; where not, age alone speaks

    def sureness(self, i: int) -> str:
        """How sure the answer at snapshot ``i`` is, in a word: by the ratio of the interval's ends."""
        ratio = self.high_s[i] / max(self.low_s[i], SHORTEST_S)
        return "fairly sure" if ratio <= 2 else "rough" if ratio <= 5 else "a guess"

    def basis(self, i: int) -> str:
        """What the answer at snapshot ``i`` rests on, in words."""
        return "by wear and age" if self.worn[i] else "no wear shows, so by age alone"


class WearCurve:
    """Predicted wear of one bearing over its life."""

    def __init__(self, t_s: Array, predicted: Array, truth: Array, level: Array | None = None) -> None:
        """Seconds, predicted and true wear (of a bearing at work: any), ``vibration_level`` if known: all [N]."""
        self.t_s, self.predicted, self.truth = t_s, np.clip(predicted, 0.0, 1.0), truth
        self.level = np.ones(len(t_s)) if level is None else level

    @property
    def rmse(self) -> float:
        return float(np.sqrt(np.mean((self.predicted - self.truth) ** 2)))

    @property
    def rmse_worn(self) -> float:
        """Root mean square error of the wear from its true onset on."""
        worn = self.truth > 0
        return float(np.sqrt(np.mean((self.predicted[worn] - self.truth[worn]) ** 2)))

    @property
    def onset_error_s(self) -> float:
        """Seconds between the onsets of predicted and true wear, both told alike; no onset counts as at the end."""
        predicted, true = (first_run(wear > WORN, IN_A_ROW) for wear in (self.predicted, self.truth))
        return abs(float(self.t_s[predicted] - self.t_s[true]))

    def share(self) -> Array:
        """[N] how far wear has gone from the value that counts as its beginning, 0, to failure, 1."""
        return np.clip((self.predicted - WORN) / (1 - WORN), 0.0, 1.0)

    def present_wear(self) -> tuple[Array, Array]:
        """[N] seconds since the wear that shows at each snapshot began, infinite where none shows; [N] how far it has
        gone by the network, NaN where only the vibration has risen. What has gone back counts no more.
        """
        since = self.since(self.predicted > WORN, IN_A_ROW)
        share = np.where(np.isfinite(since), self.share(), np.nan)
        risen = self.since(self.level > RISEN, 1)
        return np.where(np.isfinite(since) & np.isfinite(risen), np.maximum(since, risen), np.fmin(since, risen)), share

    def since(self, shown: NDArray[np.bool_], length: int) -> Array:
        """[N] seconds since the last snapshot before the present run of ``shown`` [N]; infinite where it is shorter."""
        index = np.arange(len(shown))
        before = np.maximum.accumulate(np.where(shown, -1, index))
        return np.where(index - before >= length, self.t_s - self.t_s[np.maximum(before, 0)], np.inf)

    def state(self, i: int) -> str:
        """How the bearing is at snapshot ``i``, against its own healthy beginning."""
        worn = np.isfinite(self.present_wear()[0][i])
        return "close to the end" if self.level[i] > NEAR_END else "worn" if worn else "healthy"

    def remaining_life(self, prior: SurvivalPrior, wear_error: float = WEAR_ERROR) -> RemainingLife:
        """Remaining life at each snapshot, from what was known at that time, with the wear's error after its onset."""
        since, share = self.present_wear()
        quantiles = np.empty((3, len(since)))
        for rows in np.split(np.arange(len(since)), range(ROWS, len(since), ROWS)):
            edges, weights = posterior(prior, self.t_s[rows], since[rows], share[rows], wear_error)
            quantiles[:, rows] = [quantiles_of(edges, weights, wanted) for wanted in (LOW, 0.5, HIGH)]
        return RemainingLife(quantiles[0], quantiles[1], quantiles[2], np.isfinite(since))

    def best_guess_s(self, prior: SurvivalPrior, wear_error: float = WEAR_ERROR) -> float:
        """The answer at the last snapshot that expects the highest score of the PHM 2012 challenge.

        That score halves with 5 % of overestimation but only with 20 % of underestimation: it lies below the median.
        """
        since, share = self.present_wear()
        edges, weights = posterior(prior, self.t_s[-1:], since[-1:], share[-1:], wear_error)
        middles = np.sqrt(edges[1:] * edges[:-1])
        return float(middles[(weights[0] @ phm2012_accuracy(middles[:, None], middles[None, :])).argmax()])


def posterior(
    prior: SurvivalPrior, age_s: Array, since_s: Array, share: Array, wear_error: float
) -> tuple[Array, Array]:
    """Probabilities of remaining lives: edges [cells + 1] in seconds, and weights [N, cells] that sum to 1.

    ``since_s`` [N] is infinite where no wear shows, and age alone counts; ``wear_error`` is the standard deviation of
    ``share`` [N], how far wear has gone, about the true ramp; NaN where that is not known.

    A question comes at a random moment of a life, so that an age is the less likely the longer the life: each life
    weighs as its inverse. Without that, the interval for a bearing that dies young would miss it all its life.
    """
    edges = np.geomspace(SHORTEST_S, float(prior.remaining_s(age_s, 0.999).max(initial=2 * SHORTEST_S)), CELLS + 1)
    beyond = prior.survival(age_s[:, None], edges)
    # What is shorter or longer than the grid belongs to its ends.
    beyond[:, 0], beyond[:, -1] = 1.0, 0.0
    middles = np.sqrt(edges[1:] * edges[:-1])
    weights = -np.diff(beyond, axis=1) / (age_s[:, None] + middles)
    shown = np.isfinite(since_s)
    if shown.any():
        since, known = np.maximum(since_s[shown, None], SHORTEST_S), share[shown, None]
        ramp = since / (since + middles)
        weights[shown] *= np.where(np.isnan(known), ramp, np.exp(-0.5 * ((known - ramp) / wear_error) ** 2))
    return edges, weights / weights.sum(axis=1, keepdims=True)


def quantiles_of(edges: Array, weights: Array, share: float) -> Array:
    """The quantile ``share`` [N] of each row of probabilities [N, cells] between ``edges``."""
    below = np.concatenate([np.zeros((len(weights), 1)), weights.cumsum(axis=1)], axis=1)
    cell = np.clip((below <= share).sum(axis=1) - 1, 0, weights.shape[1] - 1)
    row = np.arange(len(weights))
    part = np.clip((share - below[row, cell]) / np.maximum(weights[row, cell], 1e-300), 0.0, 1.0)
    return np.asarray(edges[cell] + part * (edges[cell + 1] - edges[cell]))


def wear_curves(outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, WearCurve]:
    """Each bearing's curve from the answers to its segments."""
    predicted = joined(samples, [y[:, 0] for y in outputs])
    fields = [{n: v.double().numpy() for n, v in field_of(samples, key).items()} for key in ("t", "target", "x")]
    times, truth, x = fields
    return {
        name: WearCurve(times[name], y.double().numpy(), truth[name], vibration_level(x[name]))
        for name, y in predicted.items()
    }


def vibration_level(x: Array) -> Array:
    """[N] vibration at 100 Hz to 10 kHz as a multiple of the bearing's own beginning, of the axis that has risen more:
    median of five snapshots, from features [N, 14] relative to that beginning.
    """
    energy = x[:, :: len(FEATURES)].max(axis=1)
    padded = np.concatenate([np.full(IN_A_ROW - 1, energy[0]), energy])
    return np.asarray(10 ** (np.median(np.lib.stride_tricks.sliding_window_view(padded, IN_A_ROW), axis=1) / 2))


def plot_wear(
    curves: Mapping[str, WearCurve],
    path: Path,
    *,
    title: str,
    known: bool,
    axis: str = HOURS,
    lives: Mapping[str, RemainingLife] | None = None,
) -> None:
    """One panel per bearing: predicted wear over time, beside the true one where it is ``known`` (and finite), and
    behind it the fan of ``lives``: the 80 % interval and median of the remaining hours, on a scale of its own.
    """
    from matplotlib.figure import Figure

    from nacdrive.viz.figures import save

    columns = min(3, len(curves))
    rows = -(-len(curves) // columns)
    figure = Figure(figsize=(4.2 * columns, 2.9 * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False, sharey=True).flat)
    for panel, (name, curve) in zip(panels, curves.items(), strict=False):
        hours = curve.t_s / 3600 if axis == HOURS else curve.t_s
        if known:
            panel.plot(hours, curve.truth, color=TRUE, lw=1.6, label="true")
        panel.plot(hours, curve.predicted, color=PREDICTED, lw=1.0, label="predicted")
        if lives is not None:
            fan, life = panel.twinx(), lives[name]
            fan.fill_between(hours, life.low_s / 3600, life.high_s / 3600, color=TRUE, alpha=0.3, lw=0)
            fan.plot(hours, life.median_s / 3600, color=TRUE, lw=0.8)
            fan.set(yscale="log", ylabel="hours left, 80 %")
            panel.set(zorder=fan.get_zorder() + 1, frame_on=False)
        is_scored = known and math.isfinite(curve.rmse)
        panel.set_title(f"{name}, RMSE {curve.rmse:.2f}" if is_scored else name, fontsize=10, color=INK)
        panel.set(xlabel=axis, ylim=(-0.05, 1.05))
    for panel in panels[len(curves) :]:
        panel.axis("off")
    panels[0].set_ylabel("wear, 0 new .. 1 failed")
    panels[0].legend(frameon=False, fontsize=9, loc="upper left")
    figure.suptitle(title, fontsize=11, color=INK)
    save(figure, path)
