"""Ways to hold data out: even, by class; and how rare classes weigh."""

import numpy as np
import pytest
import torch

from nacdrive.tasks.images import inverse_frequency
from nacdrive.tasks.splits import evenly, stratified


def test_no_part_gets_the_remainder_of_every_class():
    # Each of five classes leaves two over: ten left-overs, two for each of the five parts.
    labels = np.repeat(np.arange(5), 12)
    sizes = [len(held) for _, held in stratified(labels, 5, 0)]
    assert sizes == [12] * 5


def test_what_hardly_ever_occurs_weighs_as_if_it_were_one_percent():
    often = torch.zeros(9_999, dtype=torch.long)
    weights = inverse_frequency(torch.cat([often, torch.ones(1, dtype=torch.long)]), 3, 1.0)
    assert float(weights[1] / weights[0]) == pytest.approx(99.99, rel=1e-3)
    # One that never occurs at all is no different.
    assert float(weights[2]) == float(weights[1])


def test_items_are_thinned_evenly():
    assert evenly(range(10), 4) == [0, 3, 6, 9]
    assert evenly(range(3), None) == evenly(range(3), 9) == [0, 1, 2]
