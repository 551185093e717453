from __future__ import annotations

import errno
import shutil
import tarfile
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from nacdrive.common.errors import UserError
from nacdrive.extras.bearings.layouts import longest_increasing, open_bearings, snapshot_times
from nacdrive.extras.bearings.runs import read_published_features
from tests.helpers import bearings as made_bearings

REAL = Path(__file__).resolve().parents[4] / "shared/data"
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason="needs the real recordings in ../shared/data")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NACDRIVE_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("sign", [",", ";"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_pronostia_is_read_with_its_clock(tmp_path: Path, sign: str, newline: str) -> None:
    made_bearings.pronostia(tmp_path / "Learning_set", sign=sign, newline=newline)
    made_bearings.pronostia(tmp_path / "Full_Test_Set", "Bearing3_2", sign=sign, newline=newline)
    first, second = open_bearings("pronostia", tmp_path)
    assert (first.name, second.name, len(first)) == ("Bearing1_1", "Bearing3_2", 4)
    assert (first.condition, second.condition) == ("1800 rpm, 4000 N", "1500 rpm, 5000 N")
    signal = first.read(2)
    assert signal.shape == (64, 2) and signal.dtype == np.float32
    np.testing.assert_allclose(signal[5], [2.005, -2.005])
    np.testing.assert_allclose(first.snapshot_s, [0, 10, 20, 30])
    assert first.temperature_c is None


def test_one_bearings_own_folder_will_do(tmp_path: Path) -> None:
    folder = made_bearings.pronostia(tmp_path, "bearing1_4", temperature=True)
    (bearing,) = open_bearings("pronostia", folder)
    assert bearing.name == "Bearing1_4"
    # Measured from the 15th second on; before that the first value is held.
    np.testing.assert_allclose(bearing.temperature_c, [40, 40, 40.5, 41], atol=1e-5)


def test_bearings_stand_in_order_and_an_unknown_data_set_is_answered(tmp_path: Path) -> None:
    for name in ("Bearing1_2", "Bearing1_1"):
        made_bearings.pronostia(tmp_path, name)
    assert [b.name for b in open_bearings("pronostia", tmp_path)] == ["Bearing1_1", "Bearing1_2"]
    with pytest.raises(UserError, match="unknown bearing data set 'pronostja': did you mean 'pronostia'"):
        open_bearings("pronostja", tmp_path)


@pytest.mark.parametrize("dataset", ["pronostia", "xjtu-sy", "hust"])
def test_a_folder_without_bearings_says_what_it_should_hold(tmp_path: Path, dataset: str) -> None:
    with pytest.raises(UserError, match=f"holds no bearing of {dataset}: it should hold .* such as"):
        open_bearings(dataset, tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        open_bearings(dataset, tmp_path / "absent")


def test_the_longer_of_two_recordings_of_a_bearing_is_taken(tmp_path: Path) -> None:
    made_bearings.pronostia(tmp_path / "Full_Test_Set", "Bearing1_3", snapshots=5)
    made_bearings.pronostia(tmp_path / "Test_set", "Bearing1_3", snapshots=3)
    (bearing,) = open_bearings("pronostia", tmp_path)
    assert len(bearing) == 5 and bearing.files[0].parts[-3] == "Full_Test_Set"


def test_midnight_is_passed_over(tmp_path: Path) -> None:
    made_bearings.pronostia(tmp_path, start_s=86_400 - 15, temperature=True)
    (bearing,) = open_bearings("pronostia", tmp_path)
    np.testing.assert_allclose(bearing.snapshot_s, [0, 10, 20, 30])
    np.testing.assert_allclose(bearing.temperature_c, [40, 40, 40.5, 41], atol=1e-5)


def test_clocks_that_jump_are_not_believed_but_pauses_are() -> None:
    stamps = np.array([100, 110, 50, 50, 140, 150, 450, 460, 9000, 480.0])
    numbers = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    with pytest.warns(UserWarning, match="3 of 10 files runs backwards"):
        found = snapshot_times("Bearing9", stamps, numbers, 10)
    np.testing.assert_allclose(found, [0, 10, 20, 30, 40, 50, 350, 360, 370, 380])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(snapshot_times("B", [5.0, 15, 35], [1, 2, 4], 10), [0, 10, 30])


def test_longest_increasing_equals_trying_every_subset() -> None:
    generator = np.random.default_rng(0)
    for _ in range(50):
        values = generator.integers(0, 6, 7).astype(float)
        chain = longest_increasing(values)
        assert (np.diff(values[chain]) > 0).all() and (np.diff(chain) > 0).all()
        subsets = [[v for i, v in enumerate(values) if mask >> i & 1] for mask in range(1, 128)]
        assert len(chain) == max(len(s) for s in subsets if (np.diff(s) > 0).all())


@pytest.mark.parametrize("header", [True, False])
def test_xjtu_files_count_minutes_whatever_their_order(tmp_path: Path, header: bool) -> None:
    folder = made_bearings.xjtu(tmp_path, header=header)
    (folder / "4.csv").unlink()
    with pytest.warns(UserWarning, match=r"Bearing1_1 lacks 4.csv: the bearing is read without"):
        (bearing,) = open_bearings("xjtu-sy", tmp_path)
    assert (bearing.name, bearing.condition, bearing.rate_hz) == ("Bearing1_1", "35Hz12kN", 25_600)
    assert [path.stem for path in bearing.files] == ["1", "2", "3", "5", "6", "7", "8", "9", "10", "11", "12"]
    np.testing.assert_allclose(bearing.snapshot_s, [0, 60, 120, 240, 300, 360, 420, 480, 540, 600, 660])
    np.testing.assert_allclose(bearing.read(10)[[0, -1]], [[11, -11], [11.063, -11]])


def test_hust_recordings_are_cut_into_seconds_healthy_first(tmp_path: Path) -> None:
    second = 51_200
    for name, samples in (("B500.mat", 2 * second + 7), ("N500.mat", 3 * second - 1), ("io504.mat", second)):
        made_bearings.hust(tmp_path, name, samples)
    unloaded, loaded = open_bearings("hust", tmp_path)
    assert (unloaded.name, unloaded.condition, loaded.condition) == ("6205", "0 W", "400 W")
    assert [path.name for path in unloaded.files] == ["N500.mat", "N500.mat", "B500.mat", "B500.mat"]
    np.testing.assert_allclose(unloaded.snapshot_s, [0, 1, 2, 3])
    signal = unloaded.read(3)
    assert signal.shape == (second, 1) and signal[0, 0] == second


def test_a_last_file_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    folder = made_bearings.pronostia(tmp_path)
    last = folder / "acc_00004.csv"
    last.write_bytes(last.read_bytes()[:500])
    with pytest.warns(UserWarning, match=r"acc_00004.csv was cut off: it is left out"):
        (bearing,) = open_bearings("pronostia", tmp_path)
    assert len(bearing) == 3


def test_absent_files_are_named_the_first_five(tmp_path: Path) -> None:
    folder = made_bearings.pronostia(tmp_path, snapshots=12)
    for number in (1, 3, 4, 6, 8, 9, 11):
        (folder / f"acc_{number:05d}.csv").unlink()
    with pytest.warns(UserWarning, match=r"lacks acc_00001.csv, .*4.csv, .*6.csv, acc_00008.csv and 2 more"):
        (bearing,) = open_bearings("pronostia", tmp_path)
    np.testing.assert_allclose(bearing.snapshot_s, [0, 30, 50, 80, 100])


def test_a_file_cut_off_in_the_middle_is_named_when_read(tmp_path: Path) -> None:
    folder = made_bearings.xjtu(tmp_path)
    whole = (folder / "5.csv").read_text().splitlines(keepends=True)
    (folder / "5.csv").write_text("".join(whole[:30]))
    (bearing,) = open_bearings("xjtu-sy", tmp_path)
    with pytest.raises(UserError, match=r"5.csv has 29 rows where 64 belong \(as in 1.csv\)"):
        bearing.read(4)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("9,0,20,1e4,nan,0.5", "line 8 holds 'nan' where a finite number belongs"),
        ("9,0,20,1e4,,0.5", "line 8 holds '' where a finite number belongs"),
        ("9,0,20,1e4,0.1,inf", "line 8 holds 'inf' where a finite number belongs"),
        ("9,0,20,1e4,0.1,0.2,0.3", "line 8 has 7 columns where 6 belong"),
        ("9,0,20,1e4,0.1", "line 8 has 5 columns where 6 belong"),
        ("9,0,20,1e4,a word,0.1", "line 8 holds 'a word' where"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, why: str) -> None:
    path = made_bearings.pronostia(tmp_path) / "acc_00003.csv"
    lines = path.read_text().splitlines()
    lines[7] = line
    path.write_text("\n".join(lines) + "\n")
    (bearing,) = open_bearings("pronostia", tmp_path)
    with pytest.raises(UserError, match=f"acc_00003.csv {why}"):
        bearing.read(2)


def test_files_of_another_format_are_named(tmp_path: Path) -> None:
    folder = made_bearings.pronostia(tmp_path)
    (folder / "acc_00001.csv").write_text("0.1,0.2\n" * 64)
    with pytest.raises(UserError, match=r"acc_00001.csv line 1 has 2 columns where 6 belong"):
        open_bearings("pronostia", tmp_path)
    (folder / "acc_00001.csv").write_text("")
    with pytest.raises(UserError, match=r"acc_00001.csv holds no rows of 6 numbers"):
        open_bearings("pronostia", tmp_path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM" + bytes(400), "is a MATLAB 7.3 file"),
        (b"no MATLAB file at all", "cannot be read as a MATLAB file"),
        (b"", "cannot be read as a MATLAB file"),
    ],
)
def test_a_mat_file_that_cannot_be_read(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "B500.mat").write_bytes(content)
    with pytest.raises(UserError, match=f"B500.mat {why}"):
        open_bearings("hust", tmp_path)


def test_a_short_hust_recording_is_refused(tmp_path: Path) -> None:
    made_bearings.hust(tmp_path, "B500.mat", 100)
    with pytest.raises(UserError, match="no signal of a second or more"):
        open_bearings("hust", tmp_path)


def test_a_zip_is_unpacked_too(tmp_path: Path) -> None:
    made_bearings.xjtu(tmp_path / "made", snapshots=2)
    shutil.make_archive(str(tmp_path / "in/XJTU"), "zip", tmp_path / "made")
    (bearing,) = open_bearings("xjtu-sy", tmp_path / "in")
    assert len(bearing) == 2 and bearing.read(1).shape == (64, 2)


def test_an_archive_is_unpacked_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made_bearings.xjtu(tmp_path / "made", snapshots=2)
    archive = tmp_path / "in" / "Bearing1_1.tar.xz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:xz") as tar:
        tar.add(folder, arcname="35Hz12kN/Bearing1_1")
    for given in (archive, archive.parent):
        (bearing,) = open_bearings("xjtu-sy", given)
        assert bearing.read(1).shape == (64, 2)
    assert capsys.readouterr().err.count("unpacking") == 1
    archive.write_bytes(archive.read_bytes()[:200])
    with pytest.raises(UserError, match=r"Bearing1_1.tar.xz cannot be unpacked"):
        open_bearings("xjtu-sy", archive)
    assert not list((tmp_path / "cache/unpacked").glob(".*"))


def test_no_room_to_unpack_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_bearings.xjtu(tmp_path / "made", snapshots=2)
    shutil.make_archive(str(tmp_path / "XJTU"), "zip", tmp_path / "made")

    def full(self: zipfile.ZipFile, path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "extractall", full)
    with pytest.raises(UserError, match=r"No space left on device.*set \$NACDRIVE_CACHE"):
        open_bearings("xjtu-sy", tmp_path / "XJTU.zip")


@needs_real
def test_real_pronostia_archive_has_semicolons_and_temperatures() -> None:
    (bearing,) = open_bearings("pronostia", REAL / "pronostia/Bearing2_7.tar.xz")
    assert (len(bearing), bearing.samples) == (230, 2560)
    np.testing.assert_allclose(bearing.snapshot_s, 10 * np.arange(230), atol=1e-3)
    np.testing.assert_allclose(bearing.read(0)[0], [0.613, 0.188])
    assert bearing.temperature_c is not None and bearing.temperature_c[-1] == pytest.approx(86.064)


@needs_real
def test_real_published_features() -> None:
    (first, sixth) = read_published_features(REAL / "hust_features.tar.xz")
    assert (first.name, first.features.shape, sixth.features.shape) == ("Bearing1", (12387, 14), (10444, 14))
    assert first.remaining_min is None
    np.testing.assert_allclose(first.features[0, [0, 6]], [np.log10(5529830.1767), 4.4144180], rtol=1e-6)


FEATURE_ROW = '"[10.0, 1, 2, 3, 4, 5, 6]","[1000.0, 1, 2, 3, 4, 5, 6]"'


def test_published_features_of_xjtu(tmp_path: Path) -> None:
    path = tmp_path / "Bearing1_5_features_with_labels.csv"
    path.write_text(f"Horizontal,Vertical,RUL,Time\n{FEATURE_ROW},4,0.0\n{FEATURE_ROW},1,0.5\n")
    (bearing,) = read_published_features(tmp_path)
    assert (bearing.name, bearing.dataset) == ("Bearing1_5", "xjtu-sy")
    np.testing.assert_allclose(bearing.features[0], [1, 1, 2, 3, 4, 5, 6, 3, 1, 2, 3, 4, 5, 6])
    assert bearing.remaining_min is not None and bearing.remaining_min.tolist() == [4, 1]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Horizontal,Vertical,Time\n", "line 1 lacks the columns RUL"),
        ("Horizontal,Vertical,RUL,Time\n", "holds no rows"),
        (f"Horizontal,Vertical,RUL,Time\n{FEATURE_ROW},4\n", "line 2 is no row of published features"),
        ('Horizontal,Vertical,RUL,Time\n"[1, 2]","[1, 2]",4,0\n', "line 2 is no row of 7 finite features an axis"),
        (f"Horizontal,Vertical,RUL,Time\n{FEATURE_ROW},nan,0\n", "line 2 is no row of 7 finite features an axis"),
    ],
)
def test_damaged_published_features(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "Bearing1_5_features.csv").write_text(text)
    with pytest.raises(UserError, match=why):
        read_published_features(tmp_path)


def test_a_folder_without_published_features(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no file Bearing\*_features\*.csv"):
        read_published_features(tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        read_published_features(tmp_path / "absent")
