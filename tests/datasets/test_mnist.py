from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacdrive.common.errors import UserError
from nacdrive.datasets.mnist import decode_idx, events, load_mnist

REAL = Path(__file__).resolve().parents[3] / "shared/data/mnist"
needs_mnist = pytest.mark.skipif(not REAL.is_dir(), reason="needs the real MNIST in ../shared/data/mnist")


def naive_events(image: np.ndarray, threshold: int) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for pixel in image.ravel():
        ink = int(pixel >= threshold)
        if runs and runs[-1][0] == ink:
            runs[-1] = (ink, runs[-1][1] + 1)
        else:
            runs.append((ink, 1))
    return runs


@given(seed=st.integers(0, 10_000), threshold=st.integers(1, 255), length=st.integers(1, 70))
def test_events_equal_the_naive_scan(seed: int, threshold: int, length: int) -> None:
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (4, 8, 8)).astype(np.uint8)
    images[0] = 0
    images[1] = 255
    result = events(images, threshold, length)
    for i, image in enumerate(images):
        runs = naive_events(image, threshold)[:length]
        kept = ~result.padding[i]
        assert list(zip(result.value[i][kept], result.duration[i][kept], strict=True)) == runs
        assert (np.diff(kept.astype(int)) <= 0).all(), "padding stands behind the events only"
        assert not result.value[i][~kept].any() and not result.duration[i][~kept].any()
        np.testing.assert_array_equal(result.t_s[i][kept], np.cumsum([n for _, n in runs]))


def test_no_image_gives_no_events() -> None:
    assert events(np.zeros((0, 28, 28), np.uint8)).value.shape == (0, 256)


def test_idx_files_are_big_endian() -> None:
    data = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (2, 1, 3)) + bytes(range(6))
    np.testing.assert_array_equal(decode_idx(data), [[[0, 1, 2]], [[3, 4, 5]]])


@needs_mnist
def test_the_real_files_give_digits_that_fit_the_sequence(tmp_path: Path) -> None:
    mnist = load_mnist(REAL)
    assert mnist.train_images.shape == (60_000, 28, 28) and mnist.test_images.shape == (10_000, 28, 28)
    assert mnist.test_labels[:5].tolist() == [7, 2, 1, 0, 4]
    result = events(mnist.test_images)
    assert (result.duration.sum(axis=1) == 784).all(), "no pixel is lost"
    assert (~result.padding).sum(axis=1).max() == 105
    # Other usual names, two of them unpacked.
    names = {
        "train-images-idx3-ubyte.gz": "train-images.idx3-ubyte.gz",
        "train-labels-idx1-ubyte.gz": "train-labels.idx1-ubyte",
        "t10k-images-idx3-ubyte.gz": "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte.gz": "t10k-labels-idx1-ubyte.gz",
    }
    for packed, name in names.items():
        data = (REAL / packed).read_bytes()
        (tmp_path / name).write_bytes(data if name.endswith(".gz") else gzip.decompress(data))
    np.testing.assert_array_equal(load_mnist(tmp_path).train_labels, mnist.train_labels)


def test_every_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train-images.*train-labels.*t10k-images.*t10k-labels.*fetch mnist"):
        load_mnist(tmp_path)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (gzip.compress(b"another data set", mtime=0), "expected was 6bbc9ace898e44ae57da46a324031adb"),
        (gzip.compress(bytes(5000), mtime=0)[:-9], "cannot be unpacked"),
    ],
)
def test_a_foreign_or_truncated_file_is_never_used(tmp_path: Path, data: bytes, why: str) -> None:
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (tmp_path / f"{name}-ubyte.gz").write_bytes(data)
    with pytest.raises(UserError, match=why):
        load_mnist(tmp_path)
