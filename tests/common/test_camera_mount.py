"""Pictures are turned upright: the geometry by hand, the bytes by torch, the built-in camera by its own picture."""

from __future__ import annotations

import math

import cv2
import numpy as np
import torch

from nacdrive.common import camera_mount
from nacdrive.envs.udacity_track import make_udacity_track
from nacdrive.models.driving import Upright


def test_the_horizon_of_the_scenes_camera_stands_where_the_angles_put_it() -> None:
    # Far away on the level, straight ahead and to either side, seen by a camera that looks down, right, rolled.
    focal = 80 / math.tan(math.radians(30))
    for mount, lower_right, middle in (("straight", 0.0, 159.5), ("scene", 1.201, 159.5 - 0.723 / 57.3 * focal)):
        turn = camera_mount.rotation(*camera_mount.hpr(mount))
        seen = []
        for bearing in (-0.4, 0.0, 0.4):
            right, forward, up = turn.T @ np.array([math.sin(bearing), math.cos(bearing), 0.0])
            seen.append((159.5 + focal * right / forward, 79.5 - focal * up / forward))
        (x0, y0), (x1, y1), (x2, y2) = seen
        # The picture's rows run downwards: the horizon falls to the right by the roll.
        assert abs(math.degrees(math.atan2(y2 - y0, x2 - x0)) - lower_right) < 0.15
        assert abs(x1 - middle) < 1.0 and abs(y1 - (79.5 - focal * math.tan(math.radians(9.5)))) < 1.0


def test_the_turn_is_the_homography_pixel_by_pixel() -> None:
    rng = np.random.default_rng(0)
    frame = cv2.GaussianBlur(rng.integers(0, 256, (160, 320, 3), dtype=np.uint8), (0, 0), 1.5)
    turned = camera_mount.upright(frame)
    whole = cv2.warpPerspective(
        frame.astype(np.float32),
        camera_mount.homography(),
        (320, 160),
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_REPLICATE,
    )
    # Places are rounded to 32nds of a pixel.
    assert np.abs(turned[8:-8, 8:-8] - whole[8:-8, 8:-8]).max() < 2.5
    np.testing.assert_array_equal(camera_mount.upright(frame, 60, 135), turned[60:135])


def test_torch_turns_bytes_into_the_same_bytes() -> None:
    frames = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (2, 160, 320, 3), dtype=np.uint8))
    turn = Upright(60, 135)
    floats = frames.float().requires_grad_()
    turned = turn(floats)
    assert torch.equal(turn(frames), (turned + 0.5).floor().to(torch.uint8))
    turned.sum().backward()
    assert floats.grad is not None and floats.grad.abs().sum() > 0


def test_the_built_in_camera_hangs_as_the_scenes_do_and_its_picture_turned_is_the_straight_ones() -> None:
    pictures = {}
    for mount in (camera_mount.SCENE, camera_mount.STRAIGHT):
        env = make_udacity_track("lake", randomize=False, camera_mount=mount)
        env.reset(seed=3)
        pictures[mount] = cv2.GaussianBlur(env.look(), (0, 0), 2).astype(float)
        assert env.episode_meta()["camera_mount"] == mount
        pictures[f"{mount}, turned"] = cv2.GaussianBlur(camera_mount.upright(env.frames["center"]), (0, 0), 2)
        env.close()
    apart = np.abs(pictures["straight"] - pictures["scene, turned"])[30:130, 8:-8].mean()
    assert apart < 0.4 * np.abs(pictures["straight"] - pictures["scene"])[30:130, 8:-8].mean()
