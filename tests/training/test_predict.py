"""Answers of a trained network: one row per step, or one per sequence, never padded and never cut."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nacdrive.training.predict import outputs
from tests.training.conftest import SmallNetwork, make_samples


class OneAnswer(SmallNetwork):
    """One row per sequence."""

    def forward(self, frames: Tensor, t: Tensor, padding: Tensor) -> Tensor:
        return super().forward(frames, t, padding).mean(dim=1)


def test_an_answer_per_step_has_as_many_rows_as_the_sequence(task, network: nn.Module) -> None:
    samples = make_samples(1, steps=3) + make_samples(1, steps=7, seed=1)
    together = outputs(network, task, samples)
    assert [tuple(y.shape) for y in together] == [(3, 5), (7, 5)]
    for y, sample in zip(together, samples, strict=True):
        torch.testing.assert_close(y, outputs(network, task, [sample])[0])


def test_an_answer_to_the_sequence_is_whole_however_short_it_is(task) -> None:
    torch.manual_seed(0)
    answers = outputs(OneAnswer(), task, make_samples(1, steps=2) + make_samples(1, steps=4, seed=1), batch=1)
    assert [tuple(y.shape) for y in answers] == [(5,), (5,)]


def test_answers_come_in_order_however_many_are_computed_together_and_dropout_rests(task, network: nn.Module) -> None:
    samples = [sample for k in range(5) for sample in make_samples(1, steps=2 + k, seed=k)]
    network.train()
    together = outputs(network, task, samples)
    assert [len(y) for y in together] == [2, 3, 4, 5, 6] and not any(y.requires_grad for y in together)
    for batch in (1, 2, 5):
        for one, other in zip(together, outputs(network, task, samples, batch=batch), strict=True):
            torch.testing.assert_close(one, other)
