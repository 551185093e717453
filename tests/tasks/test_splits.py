"""Ways to hold data out: even, by class; and how rare classes weigh."""

import numpy as np
import pytest
import torch

from nacdrive.tasks import Sample
from nacdrive.tasks.images import inverse_frequency
from nacdrive.tasks.splits import blocks_of, evenly, hold_out, stratified


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


def test_a_block_that_is_held_out_takes_its_neighbours_in_its_own_drive_alone():
    drives = [Sample(name, {"t": torch.arange(33.0), "x": torch.arange(33)}) for name in ("a", "b", "c")]
    blocks = blocks_of(drives, 8)
    assert [(b.sample, b.start, b.stop) for b in blocks[:2]] == [(0, 0, 8), (0, 8, 16)] and len(blocks) == 12
    kept, held = hold_out(drives, blocks, {5}, gap_s=1.0)
    assert [part.fields["x"].tolist() for part in held] == [list(range(8, 16))]
    # Steps within a second of it belong to neither side.
    left = [part.fields["x"].tolist() for part in kept]
    assert left == [list(range(33)), list(range(7)), list(range(17, 33)), list(range(33))]
