"""Made-up data: the same for everybody, in the published formats, and never taken for data."""

import hashlib
import itertools

import numpy as np
import pytest
from PIL import Image
from scipy.io import loadmat

from nacdrive.datasets.par import ACTIVITIES, TAGS, read_par
from nacdrive.datasets.synthetic import GENERATORS, MARKER, SENTENCE, generate, is_synthetic, vibration
from nacdrive.datasets.udacity_log import read_log
from nacdrive.extras.bearings.layouts import open_bearings


@pytest.fixture(scope="module")
def made(made_up):
    """A folder of each kind."""
    (root,) = {made_up(name).parent for name in GENERATORS}
    return root


@pytest.mark.parametrize("name", GENERATORS)
def test_made_up_data_say_so_and_are_made_once(made, name):
    folder = made / name
    assert is_synthetic(folder) and (folder / MARKER).read_text() == SENTENCE and "made up" in SENTENCE
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    generate(name, folder)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert not is_synthetic(made)


def test_folders_on_the_way_are_made_too(tmp_path):
    generate("emnist", tmp_path / "a" / "b")
    assert is_synthetic(tmp_path / "a" / "b") and not is_synthetic(tmp_path / "a")


@pytest.mark.parametrize(
    ("name", "pattern", "count", "sha256"),
    [
        ("par", "readings.txt", 1, "35b165432bb515467f7049e0b99e0dc7757f1f64f1de6e73229bdc5f0c0e8182"),
        (
            "pronostia",
            "Full_Test_Set/*/acc_*.csv",
            130,
            "7613e4e883781355ab5ac197774a83e11dc90af659d9c16bebaf05c31f5c1c0a",
        ),
        (
            "xjtu-sy",
            "35Hz12kN/Bearing1_1/*.csv",
            30,
            "71a0a58c2a26411393821283d3d824145e4c740aae7fadf7fa86bd09248fe999",
        ),
    ],
)
def test_numbers_on_made_up_data_can_be_compared_between_machines(made, name, pattern, count, sha256):
    """Another digit would be another data set: whoever compares smoke tests compares these."""
    files = sorted(made.glob(f"{name}/{pattern}"))
    assert len(files) == count
    digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in files)).hexdigest()
    assert digest == sha256


def test_digits_are_bars_whose_place_and_length_tell_the_class(made):
    with np.load(made / "emnist" / "digits.npz") as content:
        images, labels = content["images"], content["labels"]
    assert images.shape == (1200, 28, 28) and labels.dtype == images.dtype == np.uint8 and set(labels) == set(range(10))
    offsets = set()
    for image, label in zip(images, labels, strict=True):
        rows, columns = np.flatnonzero(image.any(1)), np.flatnonzero(image.any(0))
        assert len(rows) == 3 and len(columns) == 6 + label and (image[image > 0] == 255).all()
        assert image.sum() == 255 * 3 * (6 + int(label))
        offsets.add((int(rows[0]) - 4 - 2 * int(label), int(columns[0])))
    assert offsets == set(itertools.product((0, 1), range(2, 8)))


def test_each_activity_has_a_place_and_a_height_of_its_own(made):
    recordings = read_par(made / "par" / "readings.txt")
    assert [r.name for r in recordings] == ["A01", "A02", "B01", "B02", "C01", "C02"]
    for recording in recordings:
        assert np.bincount(recording.activity).tolist() == [40] * len(ACTIVITIES) and (np.diff(recording.t_s) > 0).all()
        assert np.diff(recording.t_s).min() >= 0.02 and np.diff(recording.t_s).max() < 0.09
        assert np.bincount(recording.tag).tolist() == [110] * len(TAGS)
        for activity in range(len(ACTIVITIES)):
            mean = recording.xyz[recording.activity == activity].mean(0)
            assert mean == pytest.approx([activity % 4, activity // 4, activity / 10], abs=0.08)
            assert recording.xyz[recording.activity == activity].std(0) == pytest.approx([0.1] * 3, abs=0.05)


def test_the_made_up_road_bends_as_it_is_steered(made):
    log = read_log(made / "udacity")
    assert len(log.rows) == 240 and len(log.drives()) == 1 and log.gap_s == 0.25
    for i, row in enumerate(log.rows):
        assert row.steering == pytest.approx(np.sin(i / 12) / 2, abs=5e-5)
        assert (row.throttle, row.brake, row.speed_mps) == (0.3, 0.0, pytest.approx(6.7056))
    assert log.rows[-1].t_s - log.rows[0].t_s == 59.75
    for i in (0, 19, 57, 239):
        row = log.rows[i]
        for path, aside in ((row.center, 0), (row.left, 40), (row.right, -40)):
            frame = np.asarray(Image.open(path)).astype(int)
            grey = np.abs(frame - (120, 120, 120)).sum(2) < np.abs(frame - (90, 140, 70)).sum(2)
            assert not grey[:58].any()
            for y in (70, 100, 159):
                middle = 160 + aside * (y - 60) / 100 + 120 * row.steering * (160 - y) / 100
                columns = np.flatnonzero(grey[y])
                expected = (max(0, middle - y // 2), min(319, middle + y // 2))
                # JPEG blurs an edge by up to a few pixels.
                assert (columns[0], columns[-1]) == pytest.approx(expected, abs=5)
            assert grey[61].any()
            assert frame[20].mean(0) == pytest.approx([90, 140, 70], abs=3)


def test_bearings_wear_out_in_the_second_half_of_their_lives(made):
    bearings = {b.name: b for b in open_bearings("pronostia", made / "pronostia")}
    assert {name: len(b) for name, b in bearings.items()} == {"Bearing1_1": 60, "Bearing1_4": 40, "Bearing2_7": 30}
    (worn,) = open_bearings("xjtu-sy", made / "xjtu-sy")
    assert len(worn) == 30 and worn.samples == 32_768
    for bearing in (*bearings.values(), worn):
        first, middle, last = (float(bearing.read(i).std()) for i in (0, len(bearing) // 2, len(bearing) - 1))
        assert first == pytest.approx(0.4, rel=0.05) and middle == pytest.approx(0.4, rel=0.15) and last > 1.3
    assert all(b.samples == 2560 and np.diff(b.snapshot_s).tolist() == [10.0] * (len(b) - 1) for b in bearings.values())
    assert bearings["Bearing1_4"].files[0].read_text().startswith("9;0;0;0.0;")
    assert bearings["Bearing1_1"].files[1].read_text().splitlines()[2].startswith("9,0,10,78.0,")


def test_a_healthy_and_a_damaged_recording_last_four_seconds_each(made):
    healthy, damaged = (loadmat(made / "hust" / f"{fault}400.mat")["data"] for fault in "NB")
    assert healthy.shape == damaged.shape == (204_800, 1)
    assert healthy.std() == pytest.approx(0.4, rel=0.01)
    # Half worn: noise of 0.9 and shocks of up to 3.
    assert damaged.std() > 0.9 and np.abs(damaged).max() > np.abs(healthy).max() + 2


def test_shocks_come_ninety_times_a_second_and_ring_at_three_kilohertz():
    class Silent:
        def __init__(self, deviation):
            self.deviation = deviation

        def normal(self, mean, deviation, shape):
            assert (mean, deviation, shape) == (0, self.deviation, (25_600, 2))
            return np.zeros(shape)

    signal = vibration(25_600, 0.5, Silent(0.9), 25_600)
    np.testing.assert_array_equal(signal[:, 0], signal[:, 1])
    t = np.arange(25_600) / 25_600
    loud = np.abs(signal[:, 0]) > 0.1
    # Within 0.25 ms of the crests of a sine of 90 Hz, which come a quarter of a period after its zeros.
    phase = (90 * t[loud] - 0.25) % 1
    assert (np.minimum(phase, 1 - phase) < 0.0226).all() and len(set(np.floor(90 * t[loud]))) == 90
    assert np.abs(signal).max() == pytest.approx(3.0, rel=0.01)
    np.testing.assert_allclose(signal[loud, 0], 3.0 * np.sin(2 * np.pi * 3000 * t[loud]), atol=1e-9)
    assert not vibration(25_600, 0.0, Silent(0.4), 25_600).any(), "a healthy bearing makes noise alone"
