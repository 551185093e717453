"""A policy drives step by step as its network sees a whole sequence, and survives its file."""

import json

import numpy as np
import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.models import Policy, PolicyConfig, load_policy, save_policy

ACTIONS = ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (-1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 0.8))


def new_policy(model="nac-steady", window=3, **more):
    torch.manual_seed(0)
    return Policy.new(PolicyConfig("carracing", model, ACTIONS, window=window, strides=(3, 2, 2), **more))


def frames_of(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 96, 96, 3), dtype=np.uint8)


@pytest.mark.parametrize("model", ["nac-exact", "nac-euler", "nac-steady", "lstm", "mha"])
def test_driving_step_by_step_equals_the_network_on_the_sequence(model):
    policy, frames = new_policy(model), frames_of(7)
    t = np.arange(7) * 0.08
    for _ in range(2):  # a second episode must not remember the first
        policy.reset()
        driven = np.stack([policy.step(frame, t_s).logits for frame, t_s in zip(frames, t, strict=True)])
    with torch.no_grad():
        whole = policy.network(torch.from_numpy(frames)[None], torch.from_numpy(t)[None])[0].numpy()
    np.testing.assert_allclose(driven, whole, atol=1e-4)


def test_the_action_is_that_of_the_best_score():
    policy = new_policy()
    action = policy.step(frames_of(1)[0], 0.0)
    assert action.choice == int(np.argmax(action.logits))
    assert (action.steering, action.throttle, action.brake) == ACTIONS[action.choice]


def test_neurons_are_those_of_the_last_decision():
    policy, frames = new_policy(), frames_of(5)
    assert policy.neurons() == {}
    for i, frame in enumerate(frames):
        policy.step(frame, i * 0.08)
    states = policy.neurons()
    assert set(states) >= {"phi", "omega", "t", "logits", "weights", "q", "k", "v", "inter", "command"}
    assert states["phi"].shape == (16, 3)
    np.testing.assert_allclose(states["weights"].sum(axis=-1), 1.0, atol=1e-5)
    assert new_policy("lstm").neurons() == {}
    assert new_policy("lstm").circuit() is None
    json.dumps(policy.circuit(), allow_nan=False)


def test_scores_can_be_differentiated_down_to_the_last_convolution():
    policy, seen = new_policy(), []
    policy.last_conv.register_forward_hook(lambda module, inputs, output: seen.append(output))
    frames = torch.from_numpy(frames_of(3)).float()[None].requires_grad_()
    policy.network(frames, torch.tensor([[0.0, 0.08, 0.16]]))[0, -1, 2].backward()
    assert frames.grad is not None
    assert frames.grad.abs().sum() > 0
    assert seen[0].shape[:2] == (3, 30)


def test_masked_rows_are_not_seen():
    policy, frame = new_policy(masked_rows=(84, 96)), frames_of(1)[0]
    one = policy.step(frame, 0.0).logits
    other = frame.copy()
    other[84:] = 255 - other[84:]
    policy.reset()
    np.testing.assert_array_equal(policy.step(other, 0.0).logits, one)


def test_a_frame_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"\(96, 96, 3\)"):
        new_policy().step(np.zeros((48, 48, 3), np.uint8), 0.0)
    with pytest.raises(ValueError, match=r"frames of uint8 \(96, 96, 3\), this one is float64 \(96"):
        new_policy().act(np.zeros((96, 96, 3)), {})


@pytest.mark.parametrize("t_s", [float("nan"), float("inf"), None, "late"])
@pytest.mark.parametrize("model", ["nac-key", "nac-lag"])
def test_a_time_that_is_none_is_refused_before_it_is_remembered(model, t_s):
    policy, other, frames = new_policy(model), new_policy(model), frames_of(3)
    for i in range(2):
        for one in (policy, other):
            one.act(frames[i], {"t_s": i * 0.08})
    for call in (lambda: policy.step(frames[0], t_s), lambda: policy.act(frames[0], {"t_s": t_s})):
        with pytest.raises(
            UserError, match=rf"^policy: the time is {t_s}: give the seconds since the episode began\.$"
        ):
            call()
    np.testing.assert_array_equal(policy.act(frames[2]).logits, other.act(frames[2]).logits)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"yuv": True}, "crop=None; allowed is some of the rows, or a resize, with yuv or upright"),
        ({"yuv": True, "crop": (0, 96)}, r"crop=\(0, 96\); allowed is some of the rows"),
        ({"upright": True, "height": 160, "width": 320}, "crop=None; allowed is some of the rows"),
        ({"upright": True, "crop": (10, 90)}, r"upright=True; allowed is False but for frames of \(160, 320\)"),
        ({"crop": (10, 97)}, r"crop=\(10, 97\); allowed is \(first, end\) within 96 rows"),
        ({"crop": (20, 20)}, r"crop=\(20, 20\); allowed is \(first, end\) within 96 rows"),
    ],
)
def test_what_cannot_be_done_to_a_picture_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        Policy.new(PolicyConfig(task="own", model="dense", actions=(), d_model=8, num_heads=2, **options), "own")


def test_a_saved_policy_drives_as_before(tmp_path):
    policy, frames = new_policy("nac-euler", window=4), frames_of(3)
    save_policy(policy, tmp_path / "nac_euler.pt", {"seed": 7})
    loaded = load_policy(tmp_path / "nac_euler.pt", expect_task="carracing")
    assert (loaded.name, loaded.task, loaded.repeat, loaded.meta) == ("nac_euler", "carracing", 4, {"seed": 7})
    assert loaded.config == policy.config
    for i, frame in enumerate(frames):
        np.testing.assert_array_equal(loaded.step(frame, i * 0.08).logits, policy.step(frame, i * 0.08).logits)


def save_without_checksum(content, path):
    """As files were before they held one; with it, every change is refused before the content is looked at."""
    torch.save({key: value for key, value in content.items() if key != "sha256"}, path)


def damaged(path, kind):
    content = path.read_bytes()
    if kind == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("not a model")
    elif kind == "foreign":
        torch.save({"weights": torch.zeros(3)}, path)
    elif kind == "pickle":
        torch.save(PolicyConfig("carracing", "lstm", ACTIONS), path)
    elif kind == "old":
        torch.save({**torch.load(path, weights_only=True), "version": 0}, path)
    elif kind == "tensor missing":
        stored = torch.load(path, weights_only=True)
        stored["tensors"].popitem()
        save_without_checksum(stored, path)
    elif kind == "other config":
        stored = torch.load(path, weights_only=True)
        config = {**json.loads(stored["config"]), "wheels": 6}
        save_without_checksum({**stored, "config": json.dumps(config)}, path)
    elif kind in ("meta a list", "meta missing", "no config"):
        stored = torch.load(path, weights_only=True)
        stored |= {"meta a list": {"meta": "[]"}, "meta missing": {"meta": None}, "no config": {"config": "3"}}[kind]
        save_without_checksum(stored, path)
    elif kind == "not finite":
        stored = torch.load(path, weights_only=True)
        next(iter(stored["tensors"].values())).view(-1)[0] = float("nan")
        save_without_checksum(stored, path)
    elif kind == "weight changed":
        stored = torch.load(path, weights_only=True)
        next(iter(stored["tensors"].values())).view(-1)[0] += 1e-6
        torch.save(stored, path)
    elif kind == "bit flipped":
        flipped = bytearray(content)
        flipped[len(content) // 2] ^= 1
        path.write_bytes(flipped)
    elif kind == "missing":
        path.unlink()


@pytest.mark.parametrize(
    "kind",
    [
        *("truncated", "empty", "text", "foreign", "pickle", "old", "tensor missing", "other config", "missing"),
        *("meta a list", "meta missing", "no config", "not finite", "weight changed", "bit flipped"),
    ],
)
def test_a_bad_model_file_is_told_in_one_sentence(tmp_path, kind):
    path = tmp_path / "nac_steady.pt"
    save_policy(new_policy(), path)
    damaged(path, kind)
    with pytest.raises(UserError, match=r"nac_steady\.pt") as error:
        load_policy(path)
    assert "\n" not in str(error.value)


def test_a_model_of_another_task_is_refused(tmp_path):
    save_policy(new_policy(), tmp_path / "m.pt")
    with pytest.raises(UserError, match="trained for 'carracing', not for 'udacity'"):
        load_policy(tmp_path / "m.pt", expect_task="udacity")


@pytest.mark.parametrize("device", ["gpu", "meta"])
def test_an_unknown_device_is_told(tmp_path, device):
    save_policy(new_policy(), tmp_path / "m.pt")
    with pytest.raises(UserError, match="device"):
        load_policy(tmp_path / "m.pt", device=device)


def test_neurons_say_when_the_frames_of_the_window_were_taken() -> None:
    policy = new_policy("nac-steady", window=3)
    for t_s in (0.0, 0.08, 0.24, 0.32):
        policy.step(np.zeros((96, 96, 3), np.uint8), t_s)
    assert policy.neurons()["frame_t_s"] == pytest.approx([0.08, 0.24, 0.32])


@pytest.mark.parametrize("kind", [float, np.float64, np.float32])
@pytest.mark.parametrize("model", ["nac-steady", "nac-exact", "cfc"])
def test_a_drive_by_the_time_of_day_is_that_from_nought(model, kind):
    began = 2.0**30 if kind is not np.float32 else 0.0  # in single precision there is no time of day to the tenth
    policy, frames = new_policy(model, options={"time_features": 0} if model != "cfc" else {}), frames_of(6)
    drives = []
    for start in (0.0, began):
        policy.reset()
        drives.append([policy.step(frame, kind(start + i / 16)).logits for i, frame in enumerate(frames)])
        states = policy.neurons()
        if states:
            np.testing.assert_array_equal(np.diff(states["t"][0]) < 0, True)
    np.testing.assert_allclose(*drives, atol=1e-6)


def test_other_weights_go_on_at_the_time_of_day_that_it_is():
    policy, frames = new_policy(), frames_of(6)
    for frame in frames[:5]:
        policy.act(frame)
    twin = policy.copy()
    twin.reset()
    policy.replace_weights(policy.network.state_dict())
    for frame in frames[:5]:
        twin.act(frame)
    np.testing.assert_allclose(policy.act(frames[5]).logits, twin.act(frames[5]).logits, atol=1e-6)
