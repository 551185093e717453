"""Recordings of any environment become a policy: any size of pictures, choices or continuous control."""

import dataclasses

import numpy as np
import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.images import encode_png
from nacdrive.datasets.recording import Recording
from nacdrive.datasets.writer import RecordingWriter
from nacdrive.models import load_policy
from nacdrive.tasks import load_driving_task
from nacdrive.tasks.driving import seen_size
from nacdrive.training.config import FitConfig
from nacdrive.training.fit import fit

torch.set_num_threads(1)
TASK = load_driving_task("imitation")


def record(folder, *, size=(16, 20), kind="choices", episodes=4, steps=24, source="my_env:make", start=0):
    """Episodes in which the colour of the picture tells what the expert does."""
    writer = RecordingWriter(folder, source=source, fps=10.0, expert="rule")
    rng = np.random.default_rng(start)
    for seed in range(start, start + episodes):
        choice = rng.integers(0, 3, steps)
        colour = np.array([[20, 20, 20], [240, 30, 30], [30, 30, 240]], np.uint8)[choice]
        frames = [encode_png(np.tile(c, (*size, 1))) for c in colour]
        steering = np.array([0.0, 0.5, -0.5], np.float32)[choice]
        throttle = np.array([0.8, 0.0, 0.0], np.float32)[choice] if kind != "steering" else np.zeros(steps, np.float32)
        brake = np.array([0.0, 0.6, 0.0], np.float32)[choice] if kind != "steering" else np.zeros(steps, np.float32)
        known = choice if kind == "choices" else np.full(steps, -1)
        writer.add(
            Episode(
                frames=frames, t_s=np.arange(steps) / 10, choice=known, steering=steering, throttle=throttle,
                brake=brake, reward=np.zeros(steps), speed_mps=np.full(steps, np.nan), expert_choice=known,
                expert_logits=None, seed=seed, source=source, driver="rule", episode_return=0.0,
            )
        )  # fmt: skip
    return folder


def trained(folder, tmp_path, model="lstm"):
    """A policy that has learnt the recording, by way of its file."""
    samples = TASK.load([folder])
    torch.manual_seed(0)
    network = TASK.network(model, samples)
    train, valid = TASK.split(samples, 0.25, 0)
    config = FitConfig(**{**TASK.settings, "epochs": 10, "batch_size": 2, "learning_rate": 1e-2})
    (tmp_path / "fit").mkdir()
    result = fit(network, TASK, train, valid, config, tmp_path / "fit")
    TASK.save(network, tmp_path / "policy.pt", {})
    return load_policy(tmp_path / "policy.pt", expect_task="imitation"), result


@pytest.mark.parametrize("kind", ["choices", "steering"])
def test_a_frame_is_learnt_from_once_at_the_time_when_it_was_taken(tmp_path, kind):
    (whole,) = TASK.load([record(tmp_path / "whole", kind=kind, episodes=1, steps=6)])
    writer = RecordingWriter(tmp_path / "late", source="my_env:make", fps=10.0, expert="rule")
    taken_s = np.array([0.0, 0.0, 0.1, 0.1, 0.25, 0.5])
    writer.add(dataclasses.replace(Recording.open(tmp_path / "whole").load(0), frame_t_s=taken_s))
    (late,) = TASK.load([tmp_path / "late"])
    assert late.fields["t"].tolist() == [0.0, 0.1, 0.25, 0.5] and late.fields["t"].dtype == whole.fields["t"].dtype
    for name in whole.fields.keys() - {"t"}:
        torch.testing.assert_close(late.fields[name], whole.fields[name][[0, 2, 4, 5]], equal_nan=True)


def test_choices_are_learnt_with_the_units_that_they_were_driven_with(tmp_path):
    policy, result = trained(record(tmp_path / "r"), tmp_path)
    assert result.progress.best_measure < 0.1
    red = policy.step(np.tile(np.array([240, 30, 30], np.uint8), (16, 20, 1)), 0.0)
    assert red.choice == 1
    assert (red.steering, red.throttle) == (0.5, 0.0)
    assert red.brake == pytest.approx(0.6)


@pytest.mark.parametrize(("name", "share"), [("imitation", 0.25), ("carracing", 0.75)])
def test_frames_without_a_label_count_neither_as_right_nor_as_wrong(name, share):
    target = torch.tensor([[1, 1, 2, 1, -1, -1, 1]])
    batch = {"target": target, "teacher": torch.empty(0), "padding": torch.tensor([[False] * 6 + [True]])}
    scores = torch.tensor([0.0, 1.0, 0.0]).expand(1, 7, 3)
    total, count = load_driving_task(name).measure(scores, batch)
    assert (float(total / count), int(count)) == (share, 4)


def test_an_action_that_the_environment_names_is_known_before_anybody_takes_it(tmp_path):
    recording = Recording.open(record(tmp_path / "r", episodes=1, steps=3))
    episode = recording.load(0)
    names = ["wait", "left", "right", "back"]
    one = (recording.episodes[0].path, episode)
    assert len(TASK.actions_of([one])) <= 3
    assert len(TASK.actions_of([one, (one[0], dataclasses.replace(episode, meta={"actions": names}))])) == 4


def test_continuous_control_gives_steering_and_pedal(tmp_path):
    policy, result = trained(record(tmp_path / "r", kind="pedals"), tmp_path)
    assert policy.config.pedal
    assert result.progress.best_measure < 0.15
    policy.reset()
    dark = policy.step(np.full((16, 20, 3), 20, np.uint8), 0.0)
    assert dark.throttle > 0.5 and dark.brake == 0.0 and abs(dark.steering) < 0.2
    policy.reset()
    red = policy.step(np.tile(np.array([240, 30, 30], np.uint8), (16, 20, 1)), 0.0)
    assert red.brake > 0.35 and red.throttle == 0.0 and red.steering > 0.3


def test_steering_alone_leaves_the_pedals_to_whoever_holds_the_speed(tmp_path):
    config = TASK.policy_config("lstm", 2, TASK.load([record(tmp_path / "r", kind="steering")]))
    assert (config.pedal, config.outputs, config.actions, config.gap_s) == (False, 1, (), 0.1)


@pytest.mark.parametrize("size", [(16, 20), (84, 84), (96, 96), (210, 160), (480, 640)])
def test_pictures_of_any_size_have_a_network(tmp_path, size):
    samples = TASK.load([record(tmp_path / "r", size=size, episodes=1, steps=3)])
    network = TASK.network("nac-steady", samples).eval()
    y = network(samples[0].fields["frames"][None], samples[0].fields["t"][None])
    assert y.shape == (1, 3, 3)
    assert bool(y.isfinite().all())
    rows, columns = seen_size(*size) or size
    assert max(rows, columns) <= 128


def test_what_does_not_belong_together_is_refused(tmp_path):
    one = record(tmp_path / "a", episodes=1)
    other = record(tmp_path / "b", episodes=1, source="other:make", start=9)
    with pytest.raises(UserError, match=r"different environments .*my_env:make.*other:make"):
        TASK.load([one, other])
    with pytest.raises(UserError, match="driven by choices and others continuously"):
        TASK.load([one, record(tmp_path / "c", episodes=1, kind="pedals", start=20)])
    # Of the same environment, by its name, and with other actions.
    writer = RecordingWriter(tmp_path / "e", source="my_env:make", fps=10.0, expert="rule")
    episode = Recording.open(record(tmp_path / "f", episodes=1, start=40)).load(0)
    writer.add(dataclasses.replace(episode, steering=-episode.steering))
    with pytest.raises(UserError, match=r"choice 1 is \[0.5 0.  0.6\] .* in .*a.episode.* and \[-0.5 .*: train on"):
        TASK.load([one, tmp_path / "e"])
    assert len(TASK.load([one, tmp_path / "f"])) == 2
    # A wheel that was measured says nothing of what a choice means.
    writer = RecordingWriter(tmp_path / "g", source="my_env:make", fps=10.0, expert="rule")
    writer.add(dataclasses.replace(episode, steering=np.linspace(-1, 1, len(episode))))
    assert len(TASK.load([one, tmp_path / "g"])) == 2
    with pytest.raises(UserError, match="different sizes"):
        TASK.load([one, record(tmp_path / "d", episodes=1, size=(48, 48), start=30)])
    with pytest.raises(UserError, match="--data"):
        TASK.load([])


def test_what_a_choice_means_is_not_what_was_measured_in_whatever_order(tmp_path):
    record(tmp_path / "clean", episodes=1)
    episode = Recording.open(record(tmp_path / "other", episodes=1, start=40)).load(0)
    writer = RecordingWriter(tmp_path / "measured", source="my_env:make", fps=10.0, expert="rule")
    noise = np.random.default_rng(0).uniform(-0.2, 0.2, len(episode))
    choice = np.where(np.arange(len(episode)) == 5, 3, episode.choice)
    writer.add(dataclasses.replace(episode, steering=episode.steering + noise, choice=choice, expert_choice=choice))
    for folders in (["clean", "measured"], ["measured", "clean"]):
        actions = TASK.load([tmp_path / name for name in folders])[0].fields["actions"][0]
        np.testing.assert_allclose(actions[:3], [[0, 0.8, 0], [0.5, 0, 0.6], [-0.5, 0, 0]], atol=1e-6)
        assert actions[3].any(), "of a choice that no other episode knows, what was measured is all there is"


def test_models_from_before_the_pedal_still_load(tmp_path):
    config = TASK.policy_config("lstm", 1, TASK.load([record(tmp_path / "r", episodes=1)]))
    old = {key: value for key, value in config.to_json().items() if key != "pedal"}
    assert dataclasses.replace(type(config).from_json(old)) == config
