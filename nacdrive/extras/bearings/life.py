"""Wear and remaining life of a person's own bearings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nacdrive.extras.bearings.challenge_data import learning_lives_s
from nacdrive.extras.bearings.runs import read_own
from nacdrive.extras.bearings.task import Bearings
from nacdrive.extras.bearings.wear import WEAR_ERROR, RemainingLife, SurvivalPrior, WearCurve, wear_curves
from nacdrive.models.files import wrong_content
from nacdrive.training.predict import TrainedSeries


@dataclass(frozen=True)
class BearingLife:
    """What a model says of one bearing."""

    curve: WearCurve
    """Wear at every snapshot; its truth means nothing while the bearing runs."""
    life: RemainingLife
    """Remaining life at every snapshot, from what was known then."""
    basis: str


def predict_lives(model: TrainedSeries, folder: Path, lives_s: Sequence[float] = ()) -> dict[str, BearingLife]:
    """Wear and remaining life of each bearing in ``folder``.

    ``lives_s`` are those of bearings of the same kind in seconds; if none are given, those that the model learnt from
    stand for them, or those of the PHM 2012 challenge where its file does not tell. A bearing of PRONOSTIA is never
    compared with its own life.

    Raises:
        UserError: if there are no bearings, a life is not above 0, or the model file holds something else.
    """
    runs = read_own(folder)
    samples = Bearings().cut(runs)
    curves = wear_curves(model.predict(samples), samples)
    try:
        learnt = {str(name): float(life) for name, life in model.network.config.about.get("lives_s", {}).items()}
        error = float(model.meta.get("scores", {}).get("pronostia", {}).get("rmse_worn", WEAR_ERROR))
    except (AttributeError, TypeError, ValueError) as wrong:
        raise wrong_content(model.path, wrong) from wrong
    if not 0 < error <= 1:
        error = WEAR_ERROR
    lives = {}
    for run in runs:
        own = run.name if run.dataset == "pronostia" else None
        prior, basis = prior_of(lives_s, learnt, own)
        lives[run.name] = BearingLife(curves[run.name], curves[run.name].remaining_life(prior, error), basis)
    return lives


def prior_of(given: Sequence[float], learnt: Mapping[str, float], own: str | None) -> tuple[SurvivalPrior, str]:
    """The lives that a bearing named ``own`` is compared with, and what they are, in words."""
    if given:
        return SurvivalPrior(tuple(given)), f"the {len(given)} lives that were given"
    others = tuple(life for name, life in learnt.items() if name != own)
    if others:
        noun = "life" if len(others) == 1 else "lives"
        return SurvivalPrior(others), f"the {len(others)} {noun} that the model learnt from"
    others = tuple(life for name, life in learning_lives_s().items() if name != own)
    return SurvivalPrior(others), f"{len(others)} lives of PRONOSTIA, for the model file tells none"
