"""Recordings become samples; the loss and its weights are what they say."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.images import encode_png
from nacdrive.datasets.recording import Recording
from nacdrive.datasets.writer import RecordingWriter
from nacdrive.envs.carracing.env import to_action
from nacdrive.models.driving import DrivingNetwork
from nacdrive.tasks import load_driving_task, load_task
from nacdrive.tasks.sample import Sample

TASK = load_task("carracing")


def record(folder, *, fps=12.5, steps=20, episodes=2, logits=True, source="carracing"):
    writer = RecordingWriter(folder, source=source, fps=fps, expert="test")
    rng = np.random.default_rng(0)
    for seed in range(episodes):
        frames = rng.integers(0, 256, (steps, 96, 96, 3), dtype=np.uint8)
        scores = rng.normal(size=(steps, 5)).astype(np.float32)
        best, zeros = scores.argmax(axis=1), np.zeros(steps, np.float32)
        writer.add(
            Episode(
                frames=[encode_png(frame) for frame in frames], t_s=np.arange(steps) / fps, choice=(best + 1) % 5,
                steering=zeros, throttle=zeros, brake=zeros, reward=zeros, speed_mps=zeros, expert_choice=best,
                expert_logits=scores if logits else None, seed=seed, source=source, driver="test", episode_return=0.0,
            )
        )  # fmt: skip
    return folder


def test_a_sample_holds_an_episode_and_its_label_is_the_experts_choice(tmp_path):
    samples = TASK.load([record(tmp_path / "r")])
    assert [len(sample) for sample in samples] == [20, 20]
    fields = samples[0].fields
    assert fields["frames"].shape == (20, 96, 96, 3)
    assert fields["frames"].dtype == torch.uint8
    assert torch.equal(fields["target"], fields["teacher"].argmax(dim=1))
    assert fields["t"][1] == pytest.approx(0.08)


def test_the_network_is_that_of_the_papers_table_4_at_the_rate_of_the_recording(tmp_path):
    config = TASK.policy_config("nac-exact", 8, TASK.load([record(tmp_path / "r")]), instruments=False)
    assert (config.channels, config.kernels, config.dropout) == ((10, 20, 30), (5, 5, 3), 0.2)
    assert (config.d_model, config.num_heads, config.dense) == (64, 16, 64)
    assert (config.repeat, config.gap_s, config.window, config.masked_rows) == (4, 0.08, 8, (84, 96))
    assert config.actions[1] == (to_action(1).steering, 0.0, 0.0)


def test_under_paper_kernels_and_strides_are_those_of_its_scripts(tmp_path):
    task = load_task("carracing", "paper")
    config = task.policy_config("nac-exact", 1, task.load([record(tmp_path / "r")]), instruments=True)
    # "10-30@3-5": 96 pixels become 47, 22, 9.
    assert (config.kernels, config.strides) == ((3, 5, 5), (2, 2, 2))
    assert DrivingNetwork(config).vision(torch.zeros(1, 3, *config.input_size)).numel() == 30 * 9 * 9


def test_recordings_of_different_rates_are_not_mixed(tmp_path):
    folders = [record(tmp_path / "a"), record(tmp_path / "b", fps=50.0)]
    with pytest.raises(UserError, match=r"a at 12\.5/s, .*b at 50/s"):
        TASK.load(folders)


def test_a_recording_of_another_environment_is_refused(tmp_path):
    with pytest.raises(UserError, match="was recorded in 'lake'"):
        TASK.load([record(tmp_path / "r", source="lake")])


def test_no_data_and_an_empty_folder_are_told(tmp_path):
    with pytest.raises(UserError, match="--data"):
        TASK.load([])
    with pytest.raises(UserError, match="empty"):
        TASK.load([tmp_path])


def test_class_weights_average_to_one_and_favour_the_rare(tmp_path):
    samples = TASK.load([record(tmp_path / "r", steps=100)])
    targets = torch.cat([sample.fields["target"] for sample in samples])
    weights = TASK.class_weights(samples, 0.5)
    counts = torch.bincount(targets, minlength=5)
    assert weights[targets].mean() == pytest.approx(1.0)
    assert weights.argmax() == counts.argmin()
    assert torch.equal(TASK.class_weights(samples, 0.0), torch.ones(5))


def test_an_expert_s_scores_say_by_themselves_what_a_rare_action_is_worth():
    unscored = [Sample("a", {"teacher": torch.full((3, 5), torch.nan)})]
    scored = [*unscored, Sample("b", {"teacher": torch.zeros(3, 5)})]
    assert (TASK.balance(unscored), TASK.balance(scored)) == (0.5, 0.0)
    # Steering and pedal have no scores, and no classes.
    assert TASK.balance([Sample("c", {"target": torch.zeros(3, 2)})]) == 0.5


def batch_of(samples):
    fields = {name: torch.stack([s.fields[name] for s in samples]) for name in samples[0].fields}
    return {**fields, "padding": torch.zeros(fields["target"].shape, dtype=torch.bool)}


def test_padding_and_unknown_labels_do_not_count(tmp_path):
    batch, scores = batch_of(TASK.load([record(tmp_path / "r")])), torch.randn(2, 20, 5)
    even = torch.ones(5)
    batch["padding"][0, 10:] = True
    batch["target"][1, :5] = -1
    total, weight = TASK.loss(scores, batch, even, 1.0)
    assert weight == 25
    other = scores.clone()
    other[0, 10:], other[1, :5] = 9.0, -9.0
    assert TASK.loss(other, batch, even, 1.0)[0] == pytest.approx(float(total), rel=1e-6)


def test_the_loss_is_least_at_the_teachers_own_scores(tmp_path):
    batch = batch_of(TASK.load([record(tmp_path / "r")]))
    own = TASK.loss(batch["teacher"], batch, torch.ones(5), 1.0)[0]
    for other in (batch["teacher"] * 2, batch["teacher"] + torch.randn(2, 20, 5)):
        assert TASK.loss(other, batch, torch.ones(5), 1.0)[0] > own
    assert TASK.measure(batch["teacher"], batch) == (40, 40)


def test_without_the_teachers_scores_its_choice_alone_counts(tmp_path):
    batch, scores = batch_of(TASK.load([record(tmp_path / "r", logits=False)])), torch.randn(2, 20, 5)
    soft, hard = (TASK.loss(scores, batch, torch.ones(5), s)[0] for s in (1.0, 0.0))
    assert torch.isfinite(soft)
    assert soft == hard


def test_augmentation_follows_its_generator_and_leaves_the_batch_alone(tmp_path):
    batch = batch_of(TASK.load([record(tmp_path / "r")]))
    before = batch["frames"].clone()
    one, two = (TASK.augment(batch, torch.Generator().manual_seed(5))["frames"] for _ in range(2))
    assert torch.equal(one, two)
    assert torch.equal(batch["frames"], before)
    assert one.dtype == torch.uint8
    assert not torch.equal(one, before)


def test_each_sequence_is_moved_by_up_to_three_pixels_alike_in_all_frames_and_its_instruments_stay(
    tmp_path, monkeypatch
):
    batch = batch_of(TASK.load([record(tmp_path / "r", steps=3, episodes=12)]))
    # With light of its own no frame would be what it was anywhere.
    monkeypatch.setattr("nacdrive.tasks.carracing.relight", lambda frames, generator: frames.clone())
    new = TASK.augment(batch, torch.Generator().manual_seed(0))["frames"]
    assert torch.equal(new[:, :, 84:], batch["frames"][:, :, 84:])
    inner, shifts = new[:, :, 3:81, 3:93], []
    for moved, frames in zip(inner, batch["frames"], strict=True):
        shifts += [
            (down, right)
            for down, right in itertools.product(range(-3, 4), repeat=2)
            if torch.equal(moved, frames[:, 3 - down : 81 - down, 3 - right : 93 - right])
        ]
    assert len(shifts) == 12 and all(len({shift[k] for shift in shifts}) > 3 for k in (0, 1))


def test_an_unknown_task_suggests_the_nearest():
    with pytest.raises(UserError, match="did you mean 'carracing'"):
        load_task("carracng")


def test_a_config_survives_json(tmp_path):
    config = TASK.policy_config("lstm", 2, TASK.load([record(tmp_path / "r")]))
    assert type(config).from_json(config.to_json()) == config
    assert dataclasses.replace(config, window=3) != config


def record_continuous(folder, *, steps=20, episodes=2, first=0, pedals=None):
    """Episodes of a driver that steers: by far too much at times, in both directions."""
    writer = RecordingWriter(folder, source="carracing", fps=25.0, expert="continuous")
    rng = np.random.default_rng(1)
    for seed in range(first, first + episodes):
        frames = rng.integers(0, 256, (steps, 96, 96, 3), dtype=np.uint8)
        steering, unknown = np.linspace(-0.9, 0.9, steps, dtype=np.float32), np.full(steps, -1)
        pedal = rng.uniform(-1, 1, steps).astype(np.float32)
        writer.add(
            Episode(
                frames=[encode_png(frame) for frame in frames], t_s=np.arange(steps) / 25, choice=unknown,
                steering=np.zeros(steps), throttle=np.maximum(pedal, 0), brake=np.maximum(-pedal, 0),
                reward=np.zeros(steps), speed_mps=np.zeros(steps), expert_choice=unknown, expert_logits=None,
                seed=seed, source="carracing", driver="test", episode_return=0.0, expert_steering=steering,
                expert_pedal=pedals,
            )
        )  # fmt: skip
    return folder


def test_continuous_labels_are_steering_within_reach_and_pedal(tmp_path):
    driven, labelled = (
        TASK.load([record_continuous(tmp_path / name, pedals=pedals)])[0].fields
        for name, pedals in (("a", None), ("b", np.full(20, 0.25, np.float32)))
    )
    target = driven["target"]
    assert target.shape == (20, 2)
    assert "teacher" not in driven
    assert (float(target[:, 0].min()), float(target[:, 0].max())) == (-0.5, 0.5)
    assert target[10, 0] == pytest.approx(0.9 / 19)
    assert (target[:, 1] < 0).any()
    assert (target[:, 1] > 0).any()
    assert (labelled["target"][:, 1] == 0.25).all()
    assert torch.equal(labelled["target"][:, 0], target[:, 0])


def test_the_network_of_a_continuous_expert_gives_steering_and_pedal_at_its_pace(tmp_path):
    config = TASK.policy_config("nac-steady", 4, TASK.load([record_continuous(tmp_path / "r")]))
    assert (config.actions, config.pedal, config.outputs, config.repeat, config.gap_s) == ((), True, 2, 2, 0.04)


def test_choices_and_steering_are_not_mixed(tmp_path):
    with pytest.raises(UserError, match="driven by choices and others continuously"):
        TASK.load([record(tmp_path / "a", fps=25.0), record_continuous(tmp_path / "b", first=5)])


def test_the_continuous_loss_is_nothing_at_the_labels_and_steering_counts_five_times(tmp_path):
    batch, even = batch_of(TASK.load([record_continuous(tmp_path / "r")])), torch.ones(1)
    batch["padding"] = torch.zeros(2, 20, dtype=torch.bool)
    batch["padding"][0, 10:] = True
    right = batch["target"].clone()
    right[0, 10:] = 9.0
    assert [float(x) for x in TASK.loss(right, batch, even, 1.0)] == [0.0, 60.0]
    assert TASK.measure(right, batch) == (30, 30)
    steered, pressed = (right + 0.01 * torch.tensor(which) for which in ((1.0, 0.0), (0.0, 1.0)))
    losses = [float(TASK.loss(y, batch, even, 1.0)[0]) for y in (steered, pressed)]
    assert losses[0] == pytest.approx(25 * losses[1], rel=1e-3)
    assert TASK.measure(right + torch.tensor((0.06, 0.0)), batch)[0] == 0
    assert TASK.class_weights(TASK.load([tmp_path / "r"]), 1.0) == even


def test_continuous_frames_stay_where_they_are_and_some_are_noisy(tmp_path):
    batch = batch_of(TASK.load([record_continuous(tmp_path / "r", episodes=8)]))
    before = batch["frames"].clone()
    one, two = (TASK.augment(batch, torch.Generator().manual_seed(3))["frames"] for _ in range(2))
    assert torch.equal(one, two)
    assert torch.equal(batch["frames"], before)
    # Light alone gives every level one new level; noise gives it several.
    levels = [len(torch.unique(new[old == 128])) for new, old in zip(one, before, strict=True)]
    assert 1 in levels
    assert max(levels) > 5


def test_a_table_of_continuous_recordings_says_how_often_the_decision_is_the_experts(tmp_path):
    samples = TASK.load([record_continuous(tmp_path / "r", episodes=3)])
    right = [sample.fields["target"] for sample in samples]
    assert TASK.score("carracing", right, samples) == {"accuracy": 100.0}
    (middle,) = TASK.references("carracing", samples, samples).values()
    assert [y.shape for y in middle] == [(20, 2)] * 3
    assert 0 <= TASK.score("carracing", middle, samples)["accuracy"] < 50
    with pytest.raises(UserError, match="--expert ppo"):
        load_task("carracing", "paper").folds({"carracing": tmp_path / "r"}, 1, 0)


def test_driven_choices_beyond_the_five_are_refused(tmp_path):
    with Recording.append_to(tmp_path, source="carracing") as episode:
        for i in range(4):
            frame = np.zeros((96, 96, 3), np.uint8)
            episode.append({"frame": frame, "t_s": i / 10, "choice": 7, "expert_choice": -1})
    with pytest.raises(UserError, match="other actions than the five"):
        load_driving_task("carracing").load([tmp_path])
