"""Recordings become samples; the loss and its weights are what they say."""

import dataclasses

import numpy as np
import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.images import encode_png
from nacdrive.datasets.writer import RecordingWriter
from nacdrive.envs.carracing.env import to_action
from nacdrive.tasks import load_task
from nacdrive.tasks.base import LossOptions

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


def batch_of(samples):
    fields = {name: torch.stack([s.fields[name] for s in samples]) for name in samples[0].fields}
    return {**fields, "padding": torch.zeros(fields["target"].shape, dtype=torch.bool)}


def test_padding_and_unknown_labels_do_not_count(tmp_path):
    batch, scores = batch_of(TASK.load([record(tmp_path / "r")])), torch.randn(2, 20, 5)
    options, even = LossOptions(), torch.ones(5)
    batch["padding"][0, 10:] = True
    batch["target"][1, :5] = -1
    total, weight = TASK.loss(scores, batch, even, options)
    assert weight == 25
    other = scores.clone()
    other[0, 10:], other[1, :5] = 9.0, -9.0
    assert TASK.loss(other, batch, even, options)[0] == pytest.approx(float(total), rel=1e-6)


def test_the_loss_is_least_at_the_teachers_own_scores(tmp_path):
    batch = batch_of(TASK.load([record(tmp_path / "r")]))
    own = TASK.loss(batch["teacher"], batch, torch.ones(5), LossOptions(soft=1.0))[0]
    for other in (batch["teacher"] * 2, batch["teacher"] + torch.randn(2, 20, 5)):
        assert TASK.loss(other, batch, torch.ones(5), LossOptions(soft=1.0))[0] > own
    assert TASK.measure(batch["teacher"], batch) == (40, 40)


def test_without_the_teachers_scores_its_choice_alone_counts(tmp_path):
    batch, scores = batch_of(TASK.load([record(tmp_path / "r", logits=False)])), torch.randn(2, 20, 5)
    soft, hard = (TASK.loss(scores, batch, torch.ones(5), LossOptions(soft=s))[0] for s in (1.0, 0.0))
    assert torch.isfinite(soft)
    assert soft == hard


def test_augmentation_moves_the_scene_alike_in_all_frames_and_leaves_the_batch_alone(tmp_path):
    batch = batch_of(TASK.load([record(tmp_path / "r")]))
    before = batch["frames"].clone()
    one, two = (TASK.augment(batch, torch.Generator().manual_seed(5))["frames"] for _ in range(2))
    assert torch.equal(one, two)
    assert torch.equal(batch["frames"], before)
    assert one.dtype == torch.uint8
    assert not torch.equal(one, before)


def test_an_unknown_task_suggests_the_nearest():
    with pytest.raises(UserError, match="did you mean 'carracing'"):
        load_task("carracng")


def test_a_config_survives_json(tmp_path):
    config = TASK.policy_config("lstm", 2, TASK.load([record(tmp_path / "r")]))
    assert type(config).from_json(config.to_json()) == config
    assert dataclasses.replace(config, window=3) != config
