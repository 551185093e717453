"""Logs and recordings become samples; blocks are held out with a gap; augmentation keeps picture and label together."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.datasets.images import decode_image, encode_jpeg, encode_png
from nacdrive.datasets.udacity_log_convert import import_log
from nacdrive.models import Policy, save_policy
from nacdrive.rollout.train_config import TrainConfig
from nacdrive.rollout.train_policy import read_data
from nacdrive.tasks import Sample, load_task
from nacdrive.tasks.images import Augmentation, augmented, prepare
from nacdrive.tasks.splits import block_folds, blocks_of
from nacdrive.tasks.udacity import bin_of, drive_sample, drives_in, with_sides
from tests.helpers.udacity_logs import make_log, numbers

TASK = load_task("udacity")


def drive(steps, fps=10.0, name="drive"):
    """A drive whose fields tell which step they are."""
    index = torch.arange(steps)
    fields = {"frames": index.clone(), "left": index + 10_000, "right": index + 20_000, "t": index.double() / fps}
    return Sample(name, {**fields, "speed": index.float(), "target": torch.linspace(-1, 1, steps)})


def test_a_log_and_its_recording_give_the_same_sample(tmp_path):
    log = make_log(tmp_path / "log", 5)
    import_log(log, tmp_path / "recording")
    (one,), (two,) = TASK.load([log]), TASK.load([tmp_path / "recording"])
    assert one.fields.keys() == two.fields.keys() == {"frames", "left", "right", "t", "speed", "target", "right_hand"}
    for name, value in one.fields.items():
        assert torch.equal(value, two.fields[name]), name
    assert one.fields["frames"].shape == (5, 66, 200, 3)
    np.testing.assert_allclose(one.fields["target"], numbers(5)[:, 0], atol=1e-6)
    assert one.fields["t"][1] == pytest.approx(0.07)


def test_prepared_frames_are_what_the_network_would_make_of_them(tmp_path):
    log = make_log(tmp_path / "log", 2)
    frame = decode_image(sorted((log / "IMG").glob("center*"))[0].read_bytes())
    network = Policy.new(TASK.policy_config("dense", 1, TASK.load([log]))).network
    own = network.preprocess(torch.from_numpy(frame.copy())[None])[0]
    np.testing.assert_allclose(prepare(frame, crooked=True).astype(int), own.numpy().astype(int), atol=1)


@pytest.mark.parametrize("seen", [{"crop": (46, 121)}, {"upright": False}])
def test_who_learns_on_gets_pictures_cut_as_its_own_network_cuts_them(tmp_path, seen):
    log = make_log(tmp_path / "log", 3)
    picture = np.random.default_rng(0).integers(0, 256, (20, 40, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
    for file in (log / "IMG").iterdir():
        file.write_bytes(encode_jpeg(picture))
    config = replace(TASK.policy_config("dense", 1, TASK.load([log])), **seen)
    save_policy(Policy.new(config, "dense"), tmp_path / "own.pt", {})
    first, _, train, _ = read_data(
        TrainConfig(task="udacity", data=(log,), model="dense", first=tmp_path / "own.pt", valid_share=0.0)
    )
    assert first is not None
    frame = decode_image(sorted((log / "IMG").glob("center*"))[0].read_bytes())
    own = first.network.preprocess(torch.from_numpy(frame.copy())[None])[0].numpy().astype(int)
    frames = next(s for s in train if "camera" not in s.name).fields["frames"]
    np.testing.assert_allclose(frames[0].numpy().astype(int), own, atol=1)
    assert np.abs(prepare(frame, crooked=True).astype(int) - own).max() > 10


def test_pictures_of_a_crooked_camera_are_turned_and_those_of_a_straight_one_are_not(tmp_path):
    episode = drives_in(make_log(tmp_path / "log", 2))[0]
    picture = np.random.default_rng(0).integers(0, 256, (20, 40, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
    episode = replace(episode, frames=[encode_png(picture)] * len(episode), side_frames={})
    frame = decode_image(episode.frames[0])
    cases = [({}, True), ({"track": "lake"}, False), ({"track": "lake", "camera_mount": "scene"}, True)]
    for meta, turned in [*cases, ({"track": "random:7", "camera_mount": "straight"}, False)]:
        found = drive_sample(replace(episode, meta=meta), "a drive").fields["frames"][0].numpy()
        np.testing.assert_array_equal(found, prepare(frame, crooked=turned))
    # A model of the first versions sees what the simulator sends.
    as_it_comes = replace(TASK.policy_config("dense", 1, [drive_sample(episode, "a drive")]), upright=False)
    as_sent = drive_sample(episode, "a drive", as_it_comes).fields["frames"][0].numpy()
    np.testing.assert_array_equal(as_sent, prepare(frame))
    assert np.abs(as_sent.astype(int) - prepare(frame, crooked=True)).max() > 10


def test_a_folder_of_neither_kind_and_images_of_another_size_are_told(tmp_path):
    with pytest.raises(UserError, match=r"neither a log .* nor a recording"):
        TASK.load([tmp_path])
    with pytest.raises(UserError, match="--data"):
        TASK.load([])
    log = make_log(tmp_path / "log", 2)
    from nacdrive.datasets.images import encode_jpeg

    next((log / "IMG").glob("center*")).write_bytes(encode_jpeg(np.zeros((80, 160, 3), np.uint8)))
    with pytest.raises(UserError, match=r"it has 160 x 80 pixels, the drive.s first one 320 x 160"):
        TASK.load([log])


def test_no_frame_is_near_one_that_is_held_out():
    samples = [drive(400, name="a"), drive(200, name="b")]
    assert {b.stop - b.start for b in blocks_of(samples)} == {80, 100}
    seen = []
    for train, test in block_folds(samples, 5):
        for sample in test:
            near = [s for s in train if s.name.split()[0] == sample.name.split()[0]]
            for other in near:
                gap = (sample.fields["t"][:, None] - other.fields["t"][None]).abs().min()
                assert gap > 1.0
        seen += [(s.name.split()[0], int(i)) for s in test for i in s.fields["frames"]]
    assert sorted(seen) == sorted([("a", i) for i in range(400)] + [("b", i) for i in range(200)])


def test_the_split_keeps_side_cameras_to_the_training_part():
    train, valid = TASK.split([drive(800)], 0.2, seed=1)
    held = torch.cat([s.fields["frames"] for s in valid])
    assert 100 <= len(held) <= 240
    learnt = torch.cat([s.fields["frames"] for s in train])
    assert not set(held.tolist()) & {int(i) % 10_000 for i in learnt}
    assert {int(i) // 10_000 for i in learnt} == {0, 1, 2}
    assert {tuple(s.fields) for s in train + valid} == {("frames", "t", "speed", "target")}
    again, _ = TASK.split([drive(800)], 0.2, seed=1)
    assert [s.name for s in again] == [s.name for s in train]
    with pytest.raises(UserError, match="too short"):
        TASK.split([drive(20)], 0.5, seed=0)


def test_each_fold_is_split_by_a_seed_of_its_own(monkeypatch):
    task, drives = load_task("udacity"), [drive(3000)]
    monkeypatch.setattr(task, "load", lambda folders: drives)
    for k, fold in enumerate(task.folds({"udacity": None}, 3, seed=7)):
        train, valid = task.split(block_folds(drives, 5)[k][0], 0.15, 7 + k)
        assert fold.name == f"blocks {k + 1} of 5" and {tuple(s.fields) for s in fold.tests["udacity"]} == {
            ("frames", "t", "speed", "target")
        }
        for ours, its in ((train, fold.train), (valid, fold.valid)):
            assert [s.fields["frames"].tolist() for s in ours] == [s.fields["frames"].tolist() for s in its]


def test_side_cameras_steer_back_to_the_line():
    center, left, right = with_sides([drive(11)])
    torch.testing.assert_close(left.fields["target"][:9], center.fields["target"][:9] + 0.2)
    torch.testing.assert_close(right.fields["target"][2:], center.fields["target"][2:] - 0.2)
    assert left.fields["target"].max() == 1
    assert right.fields["target"].min() == -1


def test_weights_average_to_one_and_favour_the_rare():
    sample = Sample("s", {"target": torch.cat([torch.zeros(95), torch.full((5,), 0.5)])})
    weights = TASK.class_weights([sample], 0.5)
    assert weights[bin_of(sample.fields["target"])].mean() == pytest.approx(1.0)
    ratio = weights[bin_of(torch.tensor(0.5))] / weights[bin_of(torch.tensor(0.0))]
    assert ratio == pytest.approx(19**0.5, rel=1e-4)
    assert bin_of(torch.tensor([-1.0, 1.0])).tolist() == [0, 20]


def batch_of(B=3, T=2):
    rng = torch.Generator().manual_seed(0)
    frames = torch.randint(0, 256, (B, 1, 66, 200, 3), generator=rng, dtype=torch.uint8).repeat(1, T, 1, 1, 1)
    target = torch.linspace(-0.5, 0.4, B)[:, None].repeat(1, T)
    t = 5 + torch.arange(T).double().repeat(B, 1) * 0.07
    return {"frames": frames, "target": target, "t": t, "padding": torch.zeros(B, T, dtype=torch.bool)}


STILL = Augmentation(sideways=0, upward=0, gain=(1, 1), offset=0, saturation=(1, 1), tint=0, shadow=0, pace=(1, 1))


def test_mirrored_pictures_have_mirrored_steering():
    batch = batch_of(32)
    new = augmented(batch, STILL, torch.Generator().manual_seed(1))
    flipped = new["target"][:, 0] != batch["target"][:, 0]
    assert 5 < flipped.sum() < 27
    for i in range(32):
        expected = batch["frames"][i].flip(2) if flipped[i] else batch["frames"][i]
        assert torch.equal(new["frames"][i], expected)
    assert torch.equal(new["target"].abs(), batch["target"].abs())
    batch["right_hand"] = torch.arange(32).unsqueeze(1) % 2 == 0
    new = augmented(batch, STILL, torch.Generator().manual_seed(1))
    still = flipped & ~batch["right_hand"][:, 0]
    assert torch.equal(new["target"][:, 0] != batch["target"][:, 0], still) and still.any()


def test_a_drive_among_slow_cars_says_that_they_keep_to_the_right(tmp_path):
    (alone,) = drives_in(make_log(tmp_path / "log", 4))
    among = replace(alone, meta={**alone.meta, "slow_cars": 6})
    assert drive_sample(among, "among").fields["right_hand"].all()
    assert not drive_sample(alone, "alone").fields["right_hand"].any()


def test_a_road_moved_to_the_right_asks_for_steering_to_the_right():
    batch = batch_of(16)
    how = Augmentation(sideways=12, upward=0, gain=(1, 1), offset=0, saturation=(1, 1), tint=0, shadow=0, pace=(1, 1))
    new = augmented(batch, how, torch.Generator().manual_seed(2))
    for i in range(16):
        for mirrored in (False, True):
            old = batch["frames"][i].flip(2) if mirrored else batch["frames"][i]
            for dx in range(-12, 13):
                a, b = (new["frames"][i][:, :, 12 + dx : 188 + dx], old[:, :, 12:188])
                if torch.equal(a, b):
                    expected = batch["target"][i, 0] * (-1 if mirrored else 1) + how.steering_per_pixel * dx
                    assert new["target"][i, 0] == pytest.approx(float(expected.clamp(-1, 1)), abs=1e-6)
                    break
            else:
                continue
            break
        else:
            raise AssertionError("no shift explains the picture")


def test_augmentation_is_alike_in_a_sequence_follows_the_seed_and_leaves_the_batch_alone():
    batch = batch_of(4, 3)
    before = {name: value.clone() for name, value in batch.items()}
    one, two = (TASK.augment(batch, torch.Generator().manual_seed(5)) for _ in range(2))
    for name, value in before.items():
        assert torch.equal(batch[name], value)
        assert torch.equal(one[name], two[name])
    assert one["frames"].dtype == torch.uint8
    assert torch.equal(one["frames"][:, 0], one["frames"][:, 2])
    assert (one["t"].diff(dim=1) > 0).all()
    assert one["target"].abs().max() <= 1


def test_the_papers_frames_are_of_a_side_camera_two_times_in_five():
    task = load_task("udacity", "paper")
    task.augmentation = STILL
    B = 4000
    batch = {
        **{name: torch.full((B, 1, 4, 4, 3), shade, dtype=torch.uint8) for name, shade in
           (("frames", 10), ("left", 20), ("right", 30))},
        "t": torch.zeros(B, 1), "target": torch.full((B, 1), 0.5), "padding": torch.zeros(B, 1, dtype=torch.bool),
    }  # fmt: skip
    new = task.augment(batch, torch.Generator().manual_seed(3))
    shade = new["frames"][:, 0, 0, 0, 0]
    for camera, share, steering in ((10, 0.6, 0.5), (20, 0.2, 0.7), (30, 0.2, 0.3)):
        rows = shade == camera
        assert float(rows.float().mean()) == pytest.approx(share, abs=0.03)
        # Mirrored or not.
        torch.testing.assert_close(new["target"][rows].abs(), torch.full((int(rows.sum()), 1), steering))
    assert (batch["frames"] == 10).all() and (batch["target"] == 0.5).all()
    # A recording without side cameras has the centre's alone.
    alone = {name: value for name, value in batch.items() if name not in ("left", "right")}
    assert (task.augment(alone, torch.Generator().manual_seed(3))["frames"] == 10).all()


def test_padding_counts_neither_in_loss_nor_measure():
    batch, outputs = batch_of(3, 4), torch.zeros(3, 4, 1)
    batch["padding"][0, 2:] = True
    even = torch.ones(21)
    total, weight = TASK.loss(outputs, batch, even, 1.0)
    assert weight == 10
    assert total == pytest.approx(float(batch["target"][~batch["padding"]].square().sum()))
    wrong = outputs.clone()
    wrong[0, 2:] = 7.0
    assert TASK.loss(wrong, batch, even, 1.0)[0] == total
    assert TASK.measure(wrong, batch) == TASK.measure(outputs, batch)
    wrong[1] = -9.0
    error, count = TASK.measure(wrong, batch)
    assert count == 10
    assert error < TASK.measure(outputs, batch)[0] + 4 * 1.5


def test_the_network_is_that_of_the_papers_table_4(tmp_path):
    config = TASK.policy_config("nac-steady", 4, TASK.load([make_log(tmp_path / "log")]), instruments=False)
    assert (config.channels, config.kernels, config.activation) == ((24, 36, 48, 64, 64), (5, 5, 5, 3, 3), "elu")
    assert (config.d_model, config.num_heads, config.dense, config.dropout) == (100, 20, 64, 0.5)
    assert (config.gap_s, config.actions, config.crop, config.resize) == (0.07, (), (60, 135), (66, 200))
    assert config.upright
