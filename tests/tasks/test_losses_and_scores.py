"""What is learnt from drives and series, in numbers worked out by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.tasks import load_driving_task, load_task
from nacdrive.tasks.base import Size
from nacdrive.tasks.driving import (
    agreement,
    choice_loss,
    chooses,
    frames_of,
    inverse_frequency,
    labels_of,
    seen_size,
    truncate,
)
from nacdrive.tasks.images import move, noisy, relight
from nacdrive.tasks.sample import Sample
from nacdrive.tasks.series import Classification, Regression, mean_gap, scale_of
from nacdrive.tasks.synthetic import TEST, TRAIN, VALID, times

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("size", "seen"),
    [((96, 96), None), ((128, 128), None), ((128, 129), (127, 128)), ((48, 47), (48, 48)), ((47, 48), (48, 48)),
     ((480, 640), (96, 128)), ((640, 480), (128, 96)), ((600, 100), (128, 48)), ((48, 128), None)],
)  # fmt: skip
def test_a_picture_is_seen_with_48_to_128_rows_and_columns(size: tuple[int, int], seen: Any) -> None:
    assert seen_size(*size) == seen


def drive(name: str, steps: int, gap: float = 0.1) -> Sample:
    return Sample(name, {"t": gap * torch.arange(steps, dtype=torch.float64), "n": torch.arange(steps)})


def test_a_smaller_budget_takes_the_first_steps_of_every_drive_and_sixteen_at_least() -> None:
    samples = [drive("a", 40), drive("b", 20)]
    assert list(map(len, truncate(samples, None))) == [40, 20]
    assert list(map(len, truncate(samples, 60))) == [30, 20] and list(map(len, truncate(samples, 2))) == [16, 16]
    first = truncate(samples, 2)[0]
    assert first.name == "a" and first.fields["n"].tolist() == list(range(16))


def test_each_frame_is_a_sample_that_knows_the_gap_of_its_drive() -> None:
    samples = frames_of([drive("a", 3), drive("b", 4, 0.5)], None)
    assert [sample.name for sample in samples] == [f"a frame {i}" for i in range(3)] + [
        f"b frame {i}" for i in range(4)
    ]
    assert [sample.fields["n"].tolist() for sample in samples] == [[0], [1], [2], [0], [1], [2], [3]]
    assert [float(sample.labels["gap_s"]) for sample in samples] == pytest.approx([0.1] * 3 + [0.5] * 4)
    assert [sample.name for sample in frames_of([drive("a", 5)], 3)] == ["a frame 0", "a frame 2", "a frame 4"]


def test_rare_choices_weigh_more_and_the_mean_over_the_frames_is_one() -> None:
    classes = torch.tensor([0] * 6 + [1] * 2)
    assert inverse_frequency(classes, 2, 0.0).tolist() == [1, 1]
    weights = inverse_frequency(classes, 2, 1.0)
    assert weights.tolist() == pytest.approx([2 / 3, 2]) and float(weights[classes].mean()) == pytest.approx(1)
    # What never occurs counts as a hundredth.
    assert float(inverse_frequency(classes, 3, 1.0)[2] / inverse_frequency(classes, 3, 1.0)[0]) == pytest.approx(75)


def test_a_loss_is_of_known_choices_alone_and_mixed_with_the_teachers_scores_where_it_gave_some() -> None:
    scores = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [0.0, 0.0], [0.0, 0.0]]])
    nan = float("nan")
    batch = {
        "target": torch.tensor([[0, 1, -1, 0]]),
        "padding": torch.tensor([[False, False, False, True]]),
        "teacher": torch.tensor([[[0.0, 0.0], [nan, nan], [0.0, 0.0], [0.0, 0.0]]]),
    }
    p = scores[0, :2].log_softmax(-1)
    hard, soft = -p[[0, 1], [0, 1]], -p[0].mean()
    total, count = choice_loss(scores, batch, torch.tensor([1.0, 3.0]), 0.25)
    assert float(total) == pytest.approx(float(0.75 * hard[0] + 0.25 * soft + 3 * hard[1])) and float(count) == 4
    assert [int(value) for value in agreement(scores, batch)] == [2, 2]
    assert [int(value) for value in agreement(scores.flip(-1), batch)] == [0, 2]


def test_what_an_expert_chose_counts_before_what_was_driven() -> None:
    def episode(choice: list[int], expert: list[int], steering: Any = None) -> Any:
        return SimpleNamespace(choice=np.array(choice), expert_choice=np.array(expert), expert_steering=steering)

    driven, taught = episode([0, 1], [-1, -1]), episode([0, 1], [-1, 2])
    assert labels_of(driven).tolist() == [0, 1] and labels_of(taught).tolist() == [-1, 2]
    assert chooses(driven) and chooses(taught) and chooses(episode([-1, -1], [0, -1]))
    assert not chooses(episode([-1, 1], [-1, -1])) and not chooses(episode([0, 1], [0, 1], np.zeros(2)))


def test_errors_of_control_are_of_what_the_network_gives_and_clipped_where_they_are_measured() -> None:
    task = load_driving_task("imitation")
    batch = {"target": torch.tensor([[[0.5, -1.0], [0.0, 0.0]]]), "padding": torch.tensor([[False, True]])}
    both, steering = torch.tensor([[[2.0, 0.0], [9.0, 9.0]]]), torch.tensor([[[2.0], [9.0]]])
    loss = task.loss(both, batch, torch.ones(1), 1.0)
    assert [float(value) for value in loss] == [1.5**2 + 1, 2]
    assert [float(value) for value in task.measure(both, batch)] == [0.5 + 1, 2]
    assert [float(value) for value in task.measure(steering, batch)] == [0.5, 1]
    sample = Sample("a", {"target": torch.tensor([[0.5, -1.0]]), "t": torch.zeros(1)})
    assert task.score("imitation", [torch.tensor([[2.0, 0.0]])], [sample]) == {"error": 0.75}
    assert task.class_weights([sample], 1.0).tolist() == [1]
    chosen = Sample("b", {"target": torch.tensor([1, -1, 0]), "teacher": torch.zeros(3, 2), "t": torch.zeros(3)})
    scores = task.score("imitation", [torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])], [chosen])
    assert scores == {"error": 0.5}


# ---------------------------------------------------------------- pictures


def test_a_sequence_is_lit_as_a_whole_within_a_fifth_and_fifteen_levels() -> None:
    frames = torch.full((64, 2, 2, 2, 3), 100, dtype=torch.uint8)
    frames[:, 1] = 0
    lit = relight(frames, torch.Generator().manual_seed(0)).float()
    grey, black = lit[:, 0].flatten(1), lit[:, 1].flatten(1)
    for part in (grey, black):
        assert (part == part[:, :1]).all(), "all of its frames alike"
    assert 65 <= grey.min() < 75 and 125 < grey.max() <= 135
    assert black.min() == 0 and 10 < black.max() <= 15 and (frames[:, 0] == 100).all()
    assert 25 <= relight(frames, torch.Generator().manual_seed(0), 0.4)[:, 0].float().min() < 45


def test_half_of_the_sequences_are_noisy_with_a_tenth_of_full_scale_at_most() -> None:
    frames = torch.full((200, 1, 8, 8, 3), 128, dtype=torch.uint8)
    spread = noisy(frames, torch.Generator().manual_seed(0)).flatten(1).double().std(dim=1)
    assert 0.35 < float((spread > 0).double().mean()) < 0.65
    assert 20 < float(spread.max()) < 29


@pytest.mark.parametrize("down", [-2, 0, 1])
@pytest.mark.parametrize("right", [-1, 0, 3])
def test_a_moved_picture_keeps_the_strip_that_is_left_free(down: int, right: int) -> None:
    before = torch.arange(6 * 7).view(1, 6, 7, 1).repeat(2, 1, 1, 3)
    after = before.clone()
    move(after, down, right)
    for row in range(6):
        for column in range(7):
            y, x = row - down, column - right
            kept = not (0 <= y < 6 and 0 <= x < 7)
            assert after[1, row, column, 0] == (before[1, row, column, 0] if kept else before[1, y, x, 0])


# ---------------------------------------------------------------- series


class Steps(Regression):
    name, read = "own", "steps"

    def folds(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


class Classes(Classification):
    name, read, outputs = "own", "last", 3

    def folds(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def test_steps_without_a_truth_without_a_score_or_beside_the_sequence_count_nowhere() -> None:
    task = Steps()
    nan = float("nan")
    batch = {
        "target": torch.tensor([[1.0, 2.0, nan, 4.0, 5.0]]),
        "padding": torch.tensor([[False] * 4 + [True]]),
        "scored": torch.tensor([[False, True, True, True, True]]),
    }
    outputs = torch.tensor([[[9.0], [4.0], [9.0], [3.0], [9.0]]])
    assert [float(value) for value in task.loss(outputs, batch, torch.ones(1), 1.0)] == [5, 2]
    assert [float(value) for value in task.measure(outputs, batch)] == [3, 2]
    del batch["scored"]
    assert [float(value) for value in task.measure(outputs, batch)] == [11, 3]
    samples = [
        Sample("a", {"x": torch.zeros(3, 1), "t": torch.arange(3.0), "target": torch.tensor([1.0, nan, 5.0])}),
        Sample("b", {"x": torch.zeros(1, 1), "t": torch.zeros(1), "target": torch.tensor([6.0])}),
    ]
    assert task.learnt_targets(samples).tolist() == [1, 5, 6]
    references = task.references("own", samples, samples)
    assert [y.flatten().tolist() for y in references["mean of the training part"]] == [[4, 4, 4], [4]]
    assert task.score("own", references["always 0"], samples) == pytest.approx({"rmse": (62 / 3) ** 0.5, "mae": 4})


def test_the_most_frequent_class_is_what_a_model_must_beat() -> None:
    task = Classes()
    samples = [Sample("", {"x": torch.zeros(2, 1)}, {"target": torch.tensor(k)}) for k in (1, 2, 2, -1)]
    majority = task.references("own", samples, samples)["most frequent class"]
    assert [y.tolist() for y in majority] == [[0, 0, 1]] * 4
    assert task.score("own", majority, samples) == pytest.approx({"accuracy": 200 / 3})
    batch = {"target": torch.tensor([1, -1, 2]), "padding": torch.zeros(3, 2, dtype=torch.bool)}
    right, count = task.measure(torch.eye(3)[[1, 1, 0]], batch)
    assert (int(right), int(count)) == (1, 2)
    total, count = task.loss(torch.zeros(3, 3), batch, torch.ones(3), 1.0)
    assert float(total) == pytest.approx(2 * np.log(3)) and int(count) == 2


def test_features_are_scaled_over_all_steps_and_a_constant_one_is_left_as_it_is() -> None:
    samples = [Sample("", {"x": torch.tensor(x), "t": torch.tensor(t)}) for x, t in (
        ([[0.0, 5.0], [2.0, 5.0]], [0.0, 1.0]), ([[4.0, 5.0]], [0.0]), ([[6.0, 5.0], [8.0, 5.0]], [2.0, 5.0]),
    )]  # fmt: skip
    mean, std = scale_of(samples)
    assert mean == (4, 5) and std == pytest.approx((8**0.5, 1))
    assert mean_gap(samples) == 2
    # Of one step each, or all at one moment, nothing is known.
    one = Sample("one", {"t": torch.tensor([3.0])}, {})
    still = Sample("still", {"t": torch.tensor([3.0, 3.0])}, {})
    assert mean_gap([one]) == mean_gap([one, still]) == 1


def test_an_answer_depends_on_its_window_and_on_what_the_convolutions_see() -> None:
    task = Steps()
    assert (task.window, task.kernels, task.context) == (32, (5, 3), 31 + 4 + 2)
    assert (task.channels, task.strides, task.d_model, task.num_heads, task.dense) == ((32, 32), (1, 1), 32, 4, (32,))


def test_made_up_sequences_are_split_as_they_are_in_all() -> None:
    task = load_task("synthetic-decay")
    assert (TRAIN, VALID, TEST) == (4096, 512, 2048)
    (fold,) = task.folds({}, 1, 3, Size(max_samples=18, max_tests=5))
    assert (len(fold.train), len(fold.valid), len(fold.tests["synthetic-decay"])) == (16, 2, 5)
    assert fold.name == "sequences of seed 3" and fold.train[1].name == "train sequence 1 of seed 3"
    (least,) = task.folds({}, 1, 0, Size(max_samples=2, max_tests=1))
    assert (len(least.train), len(least.valid)) == (1, 1)
    assert np.diff(times(np.random.default_rng(0), 20_000)).mean() == pytest.approx(1, rel=0.03)
    y = [torch.tensor([2.0]), torch.tensor([0.0])]
    samples = [Sample("", {"x": torch.zeros(1, 1)}, {"target": torch.tensor(value)}) for value in (1.0, -1.0)]
    assert task.score("synthetic-decay", y, samples) == {"r2": 0, "mae": 1}


def test_small_units_are_scaled_and_what_never_changes_is_not():
    x = torch.stack([torch.tensor([1e-10, -1e-10] * 3), torch.full((6,), 0.1), torch.zeros(6)], dim=1)
    assert scale_of([Sample("a", {"x": x, "t": torch.arange(6.0)})])[1] == pytest.approx((1e-10, 1.0, 1.0))


@pytest.mark.parametrize("name", ["x", "t"])
def test_what_is_no_number_is_named_before_anything_is_learnt(name):
    fields = {"x": torch.zeros(4, 2), "t": torch.arange(4.0)}
    fields[name][2] = math.nan
    with pytest.raises(UserError, match=f"{name} of b is no finite number at step 2: mend it, or leave it out"):
        scale_of([Sample("a", {"x": torch.zeros(4, 2), "t": torch.arange(4.0)}), Sample("b", fields)])


def test_a_task_of_its_users_with_two_sequences_is_too_few():
    class Two(Classification):
        name, read, outputs = "own", "last", 3

        def load(self, paths: Any) -> list[Sample]:
            return [Sample(name, {"x": torch.zeros(4, 2), "t": torch.arange(4.0)}) for name in "ab"]

    with pytest.raises(UserError, match="has 2 sequences: to learn from, to choose the epoch by and to test on"):
        Two().folds({}, 1, 0)
