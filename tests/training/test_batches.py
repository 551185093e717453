"""Splits and batches: whole episodes, every frame once, determined by the seed."""

import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.tasks import Sample
from nacdrive.tasks.splits import split_samples
from nacdrive.training.batches import Batches


def numbered(lengths):
    """Samples whose only field counts all their steps."""
    total = torch.arange(sum(lengths))
    return [Sample(f"s{i}", {"n": part}) for i, part in enumerate(total.split(lengths))]


def test_an_episode_is_either_learnt_from_or_validated_on():
    samples = numbered([5] * 20)
    train, valid = split_samples(samples, 0.2, seed=3)
    assert len(valid) == 4
    assert not {s.name for s in train} & {s.name for s in valid}
    assert len(train) + len(valid) == 20
    again, _ = split_samples(samples, 0.2, seed=3)
    other, _ = split_samples(samples, 0.2, seed=4)
    assert [s.name for s in again] == [s.name for s in train] != [s.name for s in other]


def test_one_episode_cannot_be_split():
    with pytest.raises(UserError, match="record more"):
        split_samples(numbered([5]), 0.1, seed=0)


@pytest.mark.parametrize("epoch", [None, 0, 1])
def test_an_epoch_holds_every_step_once_and_no_batch_mixes_episodes_in_a_row(epoch):
    batches = Batches(numbered([7, 33, 16, 1]), chunk=8, size=3)
    seen = []
    for chunks in batches.epoch(epoch, seed=0):
        batch = batches.load(chunks)
        assert batch["n"].shape == batch["padding"].shape
        assert batch["n"].shape[1] <= 8
        for row, padding in zip(batch["n"], batch["padding"], strict=True):
            steps = row[~padding]
            assert (steps.diff() == 1).all()
            seen += steps.tolist()
    assert sorted(seen) == list(range(57))


def test_batches_follow_from_seed_and_epoch():
    batches = Batches(numbered([40, 40]), chunk=8, size=3)
    assert batches.epoch(1, seed=0) == batches.epoch(1, seed=0)
    assert batches.epoch(1, seed=0) != batches.epoch(2, seed=0)
    assert batches.epoch(1, seed=0) != batches.epoch(1, seed=1)


def test_labels_belong_to_whole_sequences_which_are_never_cut():
    samples = [
        Sample(f"s{i}", {"n": torch.full((length,), i)}, {"kind": torch.tensor(10 * i)})
        for i, length in enumerate([3, 9, 5, 1])
    ]
    batches = Batches(samples, chunk=2, size=3)
    loaded = [batches.load(chunks) for chunks in batches.epoch(0, seed=0)]
    assert [len(batch["kind"]) for batch in loaded] == [3, 1]
    for batch in loaded:
        for row, padding, kind in zip(batch["n"], batch["padding"], batch["kind"], strict=True):
            assert (row[~padding] * 10 == kind).all()
            assert int((~padding).sum()) == len(samples[int(kind) // 10])


def test_what_fits_into_one_chunk_is_never_cut_and_what_does_not_is_cut_elsewhere_each_time():
    batches = Batches(numbered([8, 9]), chunk=8, size=1)
    assert batches.steps == 17
    for epoch in range(12):
        assert sorted((c.start, c.stop) for c in batches.chunks(epoch, 0) if c.sample == 0) == [(0, 8)]
    firsts = {min(c.stop for c in batches.chunks(epoch, 0) if c.sample == 1) for epoch in range(60)}
    assert firsts == set(range(1, 9)), "the first cut falls anywhere within a chunk"
    assert [(c.sample, c.start, c.stop) for c in batches.chunks(None, 0)] == [(0, 0, 8), (1, 0, 8), (1, 8, 9)]


def test_padding_repeats_the_last_step():
    batches = Batches(numbered([3, 1]), chunk=8, size=2)
    batch = batches.load(batches.chunks(None, 0))
    assert batch["n"].tolist() == [[0, 1, 2], [3, 3, 3]]
    assert batch["padding"].tolist() == [[False, False, False], [False, True, True]]


def test_a_batch_is_described_by_its_first_four_pieces():
    batches = Batches(numbered([2] * 6), chunk=8, size=6)
    chunks = batches.chunks(None, 0)
    assert batches.describe(chunks[:1]) == "s0 frames 0-1"
    assert batches.describe(chunks[:4]) == "s0 frames 0-1, s1 frames 0-1, s2 frames 0-1, s3 frames 0-1"
    assert batches.describe(chunks).endswith("s3 frames 0-1 and 2 more")
