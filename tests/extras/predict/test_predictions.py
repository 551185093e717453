"""What a picture of a digit is made into before a network sees it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nacdrive.datasets.images import decode_image
from nacdrive.extras.predict.predictions import read_picture


@pytest.mark.parametrize("side", ["top", "bottom", "left", "right"])
def test_all_four_edges_say_whether_the_paper_is_bright(side: str, tmp_path: Path) -> None:
    grey = np.full((28, 28), 140, np.uint8)
    rows = {"top": np.s_[0], "bottom": np.s_[-1], "left": np.s_[:, 0], "right": np.s_[:, -1]}
    # Three edges are a little brighter than the middle of the scale; one that is dark outweighs them.
    grey[rows[side]] = 60
    Image.fromarray(grey).save(tmp_path / "dark.png")
    np.testing.assert_array_equal(read_picture(tmp_path / "dark.png"), grey)
    grey[rows[side]] = 140
    Image.fromarray(grey).save(tmp_path / "bright.png")
    np.testing.assert_array_equal(read_picture(tmp_path / "bright.png"), 255 - grey)


def test_a_grey_picture_of_sixteen_bits_is_the_same_with_eight(tmp_path: Path) -> None:
    grey = np.zeros((28, 28), np.uint8)
    grey[8:20, 12:15], grey[4:6, 4:9] = 200, 100
    Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "sixteen.png")
    np.testing.assert_array_equal(read_picture(tmp_path / "sixteen.png"), grey)
    frame = decode_image((tmp_path / "sixteen.png").read_bytes())
    np.testing.assert_array_equal(frame, np.stack([grey] * 3, axis=2))


def test_black_ink_on_nothing_is_black_ink_on_paper(tmp_path: Path) -> None:
    stroke = np.zeros((28, 28), np.uint8)
    stroke[4:24, 12:15] = 255
    Image.fromarray(np.dstack([np.zeros((28, 28, 3), np.uint8), stroke])).save(tmp_path / "transparent.png")
    np.testing.assert_array_equal(read_picture(tmp_path / "transparent.png"), stroke)
