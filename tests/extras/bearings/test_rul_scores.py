from __future__ import annotations

import numpy as np
import pytest

from nacdrive.extras.bearings.task import paper_score
from nacdrive.extras.bearings.wear import phm2012_score


@pytest.mark.parametrize(("error", "score"), [(-10, 0.25), (20, 0.5), (0, 1), (-5, 0.5), (40, 0.25)])
def test_phm_score_has_the_values_of_the_challenge(error: float, score: float) -> None:
    assert phm2012_score([100.0], [100.0 - error]) == pytest.approx(score)
    assert phm2012_score([7.0, 100.0], [7.0, 100.0 - error]) == pytest.approx((1 + score) / 2)


def test_paper_score_equals_its_formula_batch_by_batch() -> None:
    generator = np.random.default_rng(0)
    prediction, truth = generator.normal(0, 20, (2, 150))
    sums = []
    for start in (0, 64, 128):
        total = 0.0
        for guess, true in zip(prediction[start : start + 64], truth[start : start + 64], strict=True):
            e = guess - true
            total += np.exp(-e / 13) - 1 if e < 0 else np.exp(e / 10) - 1
        sums.append(total)
    assert paper_score(prediction, truth) == pytest.approx(np.mean(sums))
    assert paper_score(truth, truth) == 0
    assert paper_score([5.0], [0.0]) > paper_score([-5.0], [0.0]), "predicting too late costs more"
