"""Ways to hold data out: even, by class; and how rare classes weigh."""

import math

import numpy as np
import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.tasks import Sample
from nacdrive.tasks.driving import inverse_frequency
from nacdrive.tasks.splits import (
    BLOCK_S,
    GAP_S,
    Block,
    block_folds,
    blocks_of,
    evenly,
    field_of,
    fingerprint,
    held_out,
    hold_out,
    mix,
    rotate,
    seeded,
    segments,
    split_samples,
    stratified,
    stretches,
    true_intervals,
)


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


def test_the_ends_of_a_drive_are_drawn_as_often_as_its_middle():
    drives = [Sample("a", {"x": torch.arange(40)}), Sample("b", {"x": torch.arange(40, 200)})]
    drawn = torch.cat([part.fields["x"] for part in stretches(drives, 30_000, seeded(0))])
    counts = torch.bincount(drawn, minlength=200).float() / 150
    assert float(counts.min()) > 0.7 and float(counts.max()) < 1.3


def test_few_frames_that_a_person_has_shown_are_not_learnt_by_heart():
    old, few = [Sample("old", {"x": torch.zeros(5_000)})], [Sample("new", {"x": torch.ones(20)})]
    assert 40 <= sum(int(part.fields["x"].sum()) for part in mix(old, few, 2_000, 0)) <= 60
    many = [Sample("new", {"x": torch.ones(3_000)})]
    drawn = torch.cat([part.fields["x"] for part in mix(old, many, 2_000, 0)])
    assert float(drawn.mean()) == pytest.approx(0.5, abs=0.05)
    assert mix(old, few, 0) == [*old, *few]


def numbered(name, steps, step_s=1.0):
    return Sample(name, {"t": torch.arange(steps) * step_s, "x": torch.arange(steps)})


def test_thinning_keeps_the_ends_and_as_many_as_asked_for():
    assert evenly(range(10), 1) == [0] and evenly(range(10), 2) == [0, 9]
    assert evenly(range(10), 9)[0] == 0 and len(set(evenly(range(10), 9))) == 9
    assert evenly("abc", 3) == ["a", "b", "c"] and evenly(range(4), 5) == [0, 1, 2, 3]


@pytest.mark.parametrize(("count", "parts", "sizes"), [(10, 3, [4, 3, 3]), (2, 5, [1, 1]), (5, 1, [5])])
def test_each_part_is_held_out_once_and_none_is_empty(count, parts, sizes):
    folds = rotate(count, parts, 0)
    assert sorted((len(held) for _, held in folds), reverse=True) == sizes
    assert sorted(i for _, held in folds for i in held) == list(range(count))
    for learnt, held in folds:
        assert sorted(learnt + held) == list(range(count)) and learnt == sorted(learnt) and held == sorted(held)
    assert rotate(10, 3, 0) == rotate(10, 3, 0) != rotate(10, 3, 1)


def test_every_class_is_spread_over_all_parts():
    labels = np.array([3] * 10 + [8] * 5 + [9] * 2)
    folds = stratified(labels, 5, 1)
    for label, least, most in ((3, 2, 2), (8, 1, 1), (9, 0, 1)):
        counts = [int((labels[held] == label).sum()) for _, held in folds]
        assert min(counts) == least and max(counts) == most
    assert sorted(i for _, held in folds for i in held) == list(range(17))
    assert all(sorted(learnt + held) == list(range(17)) for learnt, held in folds)
    assert stratified(labels, 5, 1) == folds != stratified(labels, 5, 2)


def test_what_is_held_out_is_in_order_and_the_rest_too():
    assert held_out(np.arange(6), np.array([4, 1])) == ([0, 2, 3, 5], [1, 4])


@pytest.mark.parametrize(("share", "held"), [(0.0, 0), (0.01, 1), (0.1, 1), (0.26, 3), (0.9, 9)])
def test_the_share_for_validation_is_rounded_and_at_least_one(share, held):
    samples = [numbered(f"drive {i}", 2) for i in range(10)]
    train, valid = split_samples(samples, share, 0)
    assert (len(train), len(valid)) == (10 - held, held)
    # Both keep the order in which they came.
    for part in (train, valid):
        assert [s.name for s in part] == [s.name for s in samples if s in part]


def test_at_least_one_episode_is_left_to_learn_from():
    samples = [numbered(f"drive {i}", 2) for i in range(3)]
    assert len(split_samples(samples, 0.6, 0)[0]) == 1
    with pytest.raises(UserError, match=r"3 episodes cannot be split with --valid-share 0\.9: record more of them"):
        split_samples(samples, 0.9, 0)
    assert split_samples(samples[:1], 0.0, 0)[0] == samples[:1]


def test_a_drive_is_cut_into_about_as_many_blocks_as_its_time_asks_for():
    assert (BLOCK_S, GAP_S) == (8.0, 1.0)
    assert blocks_of([numbered("a", 33)]) == [Block(0, 0, 8), Block(0, 8, 16), Block(0, 16, 25), Block(0, 25, 33)]
    # 11 seconds are nearer to one block than to two, 13 to two; whatever its length, a drive is one block at least.
    assert [len(blocks_of([numbered("a", n + 1)])) for n in (0, 1, 11, 13)] == [1, 1, 1, 2]
    # More blocks than steps: no block is empty.
    sparse = Sample("a", {"t": torch.tensor([0.0, 100.0])})
    assert blocks_of([sparse]) == [Block(0, 0, 1), Block(0, 1, 2)]
    late = Sample("a", {"t": torch.arange(17.0) + 5000})
    assert len(blocks_of([late])) == 2, "it is the time that passes that counts"


def test_what_is_within_the_gap_is_left_out_and_what_is_further_away_is_learnt_from():
    drive = numbered("a", 24)
    blocks = [Block(0, 0, 8), Block(0, 8, 16), Block(0, 16, 24)]
    kept, held = hold_out([drive], blocks, [1])
    # The block lasts from 8 to 15 s: 7 and 16 s are within a second of it.
    assert [part.fields["x"].tolist() for part in kept] == [list(range(7)), list(range(17, 24))]
    assert [part.name for part in held] == ["a from frame 8"] and [p.name for p in kept][1] == "a from frame 17"
    kept, _ = hold_out([drive], blocks, [1], gap_s=0.5)
    assert [part.fields["x"].tolist() for part in kept] == [list(range(8)), list(range(16, 24))]
    kept, held = hold_out([drive], blocks, {2, 0})
    assert [part.fields["x"].tolist() for part in kept] == [list(range(9, 15))]
    assert [int(part.fields["x"][0]) for part in held] == [0, 16], "in their order"


def test_block_folds_hold_every_block_out_once_and_need_one_for_each():
    drives = [numbered("a", 33), numbered("b", 17)]
    folds = block_folds(drives, 3)
    held = [(s.name, len(s)) for _, valid in folds for s in valid]
    assert len(held) == 6 and sum(length for _, length in held) == 50
    # Block i belongs to part i mod 3: neighbours are in different parts.
    assert [[s.name for s in valid] for _, valid in folds] == [
        ["a from frame 0", "a from frame 25"],
        ["a from frame 8", "b from frame 0"],
        ["a from frame 16", "b from frame 8"],
    ]
    assert len(block_folds(drives, 6)) == 6 and len(block_folds([numbered("a", 41)])) == 5
    with pytest.raises(UserError, match="6 blocks of 8 s, which cannot be cut into 7 parts"):
        block_folds(drives, 7)


def test_stretches_are_told_by_their_ends():
    assert true_intervals(np.array([True, True, False, True])) == [(0, 2), (3, 4)]
    assert true_intervals(np.zeros(3, bool)) == [] and true_intervals(np.ones(3, bool)) == [(0, 3)]


@pytest.mark.parametrize(("steps", "scored", "context"), [(10, 4, 3), (4, 4, 1), (5, 1, 2), (7, 3, 0), (3, 9, 5)])
def test_segments_show_their_context_and_score_every_step_once(steps, scored, context):
    x = torch.arange(steps)
    parts = segments("life", {"x": x, "y": x * 2}, scored=scored, context=context)
    assert len(parts) == -(-steps // scored)
    for k, part in enumerate(parts):
        first = k * scored
        seen = list(range(max(0, first - context), min(steps, first + scored)))
        assert part.name == "life" and part.fields["x"].tolist() == seen
        assert part.fields["scored"].tolist() == [i >= first for i in seen]
    assert field_of(parts, "y")["life"].tolist() == (x * 2).tolist()


def test_recordings_are_put_together_each_by_itself():
    parts = [p for name, n in (("a", 5), ("b", 3)) for p in segments(name, {"x": torch.arange(n)}, scored=2, context=2)]
    assert {name: x.tolist() for name, x in field_of(parts, "x").items()} == {"a": [0, 1, 2, 3, 4], "b": [0, 1, 2]}


SEEDS = [
    2177342782468422677,
    1926823440399703432,
    6396881678423097065,
    3796445472474470772,
    8651204266194245519,
    3499438645896693667,
]
HELD = ["1", "2", "8"]


def test_published_splits_stay_as_they_are():
    """Splits, batches and augmentation are drawn from these: another number would be another fold."""
    assert [seeded(*numbers).initial_seed() for numbers in ((), (0,), (1,), (0, 1), (1, 0), (7, 2, 0, 3, 5))] == SEEDS
    samples = [numbered(f"{i}", 2) for i in range(10)]
    assert [s.name for s in split_samples(samples, 0.3, 3)[1]] == HELD
    assert len({seeded(a, b).initial_seed() for a in range(30) for b in range(30)}) == 900


def test_a_fingerprint_is_of_the_values_too_but_not_of_pictures() -> None:
    def sample(x: float, target: int, grey: int) -> Sample:
        fields = {"x": torch.full((4, 2), x), "frames": torch.full((4, 8, 8, 3), grey, dtype=torch.uint8)}
        return Sample("a", fields, {"target": torch.tensor(target)})

    assert fingerprint([sample(1.0, 0, 3)]) == fingerprint([sample(1.0, 0, 9)])
    prints = {fingerprint([sample(*one)]) for one in ((1.0, 0, 3), (-9.0, 0, 3), (1.0, 1, 3), (math.nan, 0, 3))}
    assert len(prints) == 4
