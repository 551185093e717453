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
