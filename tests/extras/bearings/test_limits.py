"""Bearings by the details: clocks, tables, labels and features against numbers worked out by hand."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.datasets.inspect import contents
from nacdrive.datasets.mnist import Events, decode_idx, events, idx_rank, part_file
from nacdrive.extras.bearings.features import (
    FEATURES,
    FeatureOptions,
    FeatureTable,
    WindowFeatures,
    features,
    histogram_entropy,
)
from nacdrive.extras.bearings.layouts import (
    HUST_RATE_HZ,
    PRONOSTIA,
    XJTU_SY,
    Bearing,
    ClockWarning,
    delimiter,
    fields,
    first_stamp,
    is_number,
    longest_increasing,
    open_bearings,
    read_mat,
    read_table,
    recordings_of,
    snapshot_times,
    temperatures,
)
from nacdrive.extras.bearings.runs import read_published_features
from nacdrive.extras.bearings.wear import first_prediction_time, fpt_label
from tests.helpers import bearings as made

DAY = 86_400.0


# ---------------------------------------------------------------- clocks


def test_a_stamp_is_hours_minutes_seconds_and_microseconds(tmp_path):
    path = tmp_path / "acc_00001.csv"
    path.write_text("9,39,5,500000,0.1,0.2\n")
    assert first_stamp(path) == pytest.approx(9 * 3600 + 39 * 60 + 5.5)
    path.write_text("9;39;5;1e3\n")
    assert first_stamp(path) == pytest.approx(9 * 3600 + 39 * 60 + 5.001)
    for line in ("9,39,5", "9,39,5,x,1", ""):
        path.write_text(line + "\n")
        with pytest.raises(UserError, match="line 1 does not begin with hour, minute, second and microsecond"):
            first_stamp(path)


def test_midnight_is_half_a_day_back_or_more():
    assert snapshot_times("B", [DAY - 5, 5.0, 15.0], [1, 2, 3], 10.0).tolist() == [0.0, 10.0, 20.0]
    # Exactly half a day back is a clock that jumped, a second more a new day.
    with pytest.warns(ClockWarning, match="B: the clock of 1 of 3 files runs backwards"):
        snapshot_times("B", [DAY / 2, 0.0, 10.0 + DAY / 2], [1, 2, 3], 10.0)
    times = snapshot_times("B", [DAY / 2 + 1, 0.0, 10.0], [1, 2, 3], 10.0)
    assert times.tolist() == [0.0, DAY / 2 - 1, DAY / 2 + 9]


def test_between_believed_stamps_time_runs_evenly_and_beyond_them_at_the_usual_rate():
    stamps = [100.0, 110.0, 60.0, 160.0, 20.0]
    with pytest.warns(ClockWarning, match="of 2 of 5 files"):
        times = snapshot_times("B", stamps, [1, 2, 4, 6, 9], 10.0)
    # Believed: files 1, 2 and 6; from 2 to 6 it took 10 s more than usual, half of which fall to file 4.
    assert times.tolist() == [0.0, 10.0, 35.0, 60.0, 90.0]


@pytest.mark.parametrize(
    ("values", "chain"),
    [([], []), ([5], [0]), ([3, 2, 1], [2]), ([1, 1, 1], [2]), ([1, 5, 2, 3, 4], [0, 2, 3, 4]), ([2, 1, 3], [1, 2])],
)
def test_the_longest_increasing_series(values, chain):
    assert longest_increasing(np.array(values, float)).tolist() == chain


def temperature_file(folder, rows):
    path = folder / "temp_00001.csv"
    path.write_text("".join(";".join(map(str, row)) + "\n" for row in rows))
    return path


def test_a_snapshot_has_the_last_temperature_before_it_or_the_first(tmp_path):
    path = temperature_file(tmp_path, [(1, 2, 3, 5, 40.0), (1, 2, 4, 0, 41.0), (1, 2, 6, 9, 42.0)])
    second = 3600 + 2 * 60
    stamps = np.array([second, second + 3.4, second + 3.5, second + 4.0, second + 6.8, second + 6.9, second + 999])
    assert temperatures([path], stamps).tolist() == [40, 40, 40, 41, 41, 42, 42]
    assert temperatures([], stamps) is None


def test_temperatures_pass_midnight_with_the_snapshots(tmp_path):
    path = temperature_file(tmp_path, [(23, 59, 50, 0, 40.0), (0, 0, 10, 0, 41.0)])
    stamps = np.array([DAY - 5, DAY + 5, DAY + 15])
    assert temperatures([path], stamps).tolist() == [40, 40, 41]
    # Measured from after midnight on, of a bearing that began before it.
    path = temperature_file(tmp_path, [(0, 0, 10, 0, 41.0), (0, 0, 20, 0, 42.0)])
    assert temperatures([path], np.array([DAY - 5, DAY + 12, DAY + 25])).tolist() == [41, 41, 42]
    # A clock that goes back a little is taken to stand still.
    path = temperature_file(tmp_path, [(1, 0, 10, 0, 41.0), (1, 0, 5, 0, 42.0), (1, 0, 20, 0, 43.0)])
    assert temperatures([path], np.array([3600.0, 3611.0, 3621.0])).tolist() == [41, 42, 43]


# ---------------------------------------------------------------- tables


@pytest.mark.parametrize(
    ("line", "sign", "found"),
    [
        (b"1;2,5\n", ";", [b"1", b"2,5"]),
        (b"1\t2\r\n", "\t", [b"1", b"2"]),
        (b"1,2", ",", [b"1", b"2"]),
        (b"", ",", [b""]),
    ],
)
def test_the_sign_between_columns(line, sign, found):
    assert delimiter(line) == sign and fields(line) == found


def test_what_reads_as_a_number():
    assert [is_number(text) for text in (b"1", b"-2.5e3", b"nan", b" 7 ", b"", b"x")] == [True] * 4 + [False] * 2


def test_a_table_may_have_a_header_and_a_last_line_that_was_cut_off(tmp_path):
    path = tmp_path / "1.csv"
    path.write_text("h,v\n1,2\n3,4\n5")
    assert read_table(path, 2, cut=True).tolist() == [[1, 2], [3, 4]]
    path.write_text("1,2\n3,4")
    assert read_table(path, 2, cut=True).tolist() == read_table(path, 2).tolist() == [[1, 2], [3, 4]]
    path.write_text("1,2\n3,4\n")
    assert read_table(path, 2, cut=True).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,2\n3\n", "line 2 has 1 columns where 2 belong"),
        ("h,v\n1,2\n3,4,5\n", "line 3 has 3 columns where 2 belong"),
        ("1,2\n3,x\n", "line 2 holds 'x' where a finite number belongs"),
        ("h,v\n1,inf\n", "line 2 holds 'inf' where a finite number belongs"),
        ("1,2\nnan,3\n", "line 2 holds 'nan'"),
        ("h,v\n", "holds no rows of 2 numbers"),
        ("", "holds no rows of 2 numbers"),
        ("1,2,3\n4,5,6\n", "line 1 has 3 columns where 2 belong"),
    ],
)
def test_the_first_line_that_does_not_fit_is_named(tmp_path, text, said):
    path = tmp_path / "1.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=said):
        read_table(path, 2)


def test_the_layouts_are_those_of_the_publications():
    assert (PRONOSTIA.columns, PRONOSTIA.period_s, XJTU_SY.columns, XJTU_SY.period_s) == (6, 10.0, 2, 60.0)
    assert PRONOSTIA.file_format.format(7) == "acc_00007.csv" and XJTU_SY.file_format.format(7) == "7.csv"
    assert len(PRONOSTIA.conditions) == len(XJTU_SY.conditions) == 3 and HUST_RATE_HZ == 51_200


@pytest.mark.parametrize(("name", "condition"), [("Bearing1_3", 0), ("bearing2_7", 1), ("BEARING3_1", 2)])
def test_a_bearings_name_tells_its_condition(tmp_path, name, condition):
    made.pronostia(tmp_path, name)
    (bearing,) = open_bearings("pronostia", tmp_path)
    assert bearing.name == f"Bearing{name[-3:]}" and bearing.condition == PRONOSTIA.conditions[condition]
    assert (bearing.rate_hz, bearing.samples, len(bearing)) == (25_600.0, made.ROWS, 4)
    np.testing.assert_allclose(bearing.read(2)[5], [2.005, -2.005])


def test_of_two_recordings_as_long_as_each_other_the_first_is_taken(tmp_path):
    first = made.pronostia(tmp_path / "a")
    made.pronostia(tmp_path / "b")
    (bearing,) = open_bearings("pronostia", tmp_path)
    assert bearing.files[0].parent == first


@pytest.mark.parametrize(("absent", "said"), [(5, "and"), (6, "00006.csv and 1 more: the"), (1, "acc_00002.csv: the")])
def test_files_that_are_absent_are_counted(tmp_path, absent, said):
    folder = made.pronostia(tmp_path, snapshots=absent + 3)
    for i in range(absent):
        (folder / f"acc_{i + 2:05d}.csv").unlink()
    with pytest.warns(UserWarning, match="lacks acc_00002.csv") as caught:
        (bearing,) = open_bearings("pronostia", tmp_path)
    text = str(caught[0].message)
    assert (said in text) if absent != 5 else "more" not in text and text.count("acc_") == 5
    assert len(bearing) == 3
    # A bearing whose first files are absent lacks those too; the last ones nobody can know of.
    for path in sorted(folder.glob("acc_*.csv"))[:1]:
        path.unlink()
    with pytest.warns(UserWarning, match="lacks acc_00001.csv"):
        open_bearings("pronostia", tmp_path)


def test_one_file_alone_is_never_left_out(tmp_path):
    made.xjtu(tmp_path, snapshots=1)
    (bearing,) = open_bearings("xjtu-sy", tmp_path)
    assert len(bearing) == 1 and bearing.snapshot_s.tolist() == [0.0]


def test_minutes_are_counted_from_the_first_file_that_is_there(tmp_path):
    folder = made.xjtu(tmp_path, snapshots=4)
    (folder / "1.csv").unlink()
    with pytest.warns(UserWarning, match="lacks 1.csv"):
        (bearing,) = open_bearings("xjtu-sy", tmp_path)
    assert bearing.snapshot_s.tolist() == [0.0, 60.0, 120.0]


# ---------------------------------------------------------------- one snapshot


def bearing_of(lengths, samples=4, starts=None):
    files = tuple(Path(f"{i}.csv") for i in range(len(lengths)))
    rows = {path: np.arange(2.0 * n).reshape(n, 2).astype(np.float32) for path, n in zip(files, lengths, strict=True)}
    times = np.arange(len(lengths), dtype=float)
    return Bearing("B", "c", "hust", files, times, 100.0, samples, rows.__getitem__, starts)


def test_a_file_is_a_snapshot_or_holds_several():
    assert bearing_of([4, 4]).read(1).tolist() == np.arange(8.0).reshape(4, 2).tolist()
    for length in (3, 5):
        with pytest.raises(UserError, match=rf"1.csv has {length} rows where 4 belong \(as in 0.csv\)"):
            bearing_of([4, length]).read(1)
    cut = bearing_of([10, 10], starts=np.array([0, 6]))
    assert cut.read(1)[0].tolist() == [12.0, 13.0] and len(cut.read(1)) == 4
    with pytest.raises(UserError, match="has 10 rows where 11 belong"):
        bearing_of([10, 10], starts=np.array([0, 7])).read(1)


# ---------------------------------------------------------------- HUST


def test_hust_files_are_known_by_their_names_healthy_first():
    names = ["OB402.mat", "n402.MAT", "BI402.mat", "I804.mat", "N302.mat", "N403.mat", "X402.mat", "N402.csv"]
    found = recordings_of(Path(name) for name in names)
    assert {key: [path.name for path in paths] for key, paths in found.items()} == {
        ("6204", "200 W"): ["n402.MAT", "BI402.mat", "OB402.mat"],
        ("6208", "400 W"): ["I804.mat"],
    }


def test_hust_recordings_are_whole_seconds(tmp_path):
    for name, samples in (("N400.mat", 2 * 51_200), ("B400.mat", 2 * 51_200 - 1)):
        made.hust(tmp_path, name, samples)
    (bearing,) = open_bearings("hust", tmp_path)
    assert [path.name for path in bearing.files] == ["N400.mat", "N400.mat", "B400.mat"]
    assert bearing.starts.tolist() == [0, 51_200, 0] and bearing.snapshot_s.tolist() == [0.0, 1.0, 2.0]
    assert bearing.read(1)[0].tolist() == [51_200.0]


def test_a_gap_in_a_signal_is_named_by_its_sample(tmp_path):
    from scipy.io import savemat

    signal = np.zeros((51_200, 1))
    signal[41] = np.nan
    savemat(tmp_path / "N400.mat", {"data": signal})
    with pytest.raises(UserError, match="sample 42 is no finite number"):
        read_mat(tmp_path / "N400.mat")
    savemat(tmp_path / "B400.mat", {"other": np.ones((51_200, 1), np.int16), "fs": 24.0, "text": "abc"})
    assert read_mat(tmp_path / "B400.mat").shape == (51_200, 1)
    savemat(tmp_path / "I400.mat", {"data": np.zeros((51_199, 1))})
    with pytest.raises(UserError, match="no signal of a second or more"):
        read_mat(tmp_path / "I400.mat")


# ---------------------------------------------------------------- labels


def table_of(rms, kurtosis=None):
    values = np.zeros((len(rms), 1, 14), np.float32)
    values[..., 6] = np.asarray(rms)[:, None]
    if kurtosis is not None:
        values[..., 10] = np.asarray(kurtosis)[:, None]
    return FeatureTable("B", "", values, 10.0 * np.arange(len(rms)), np.zeros(1), None)


def test_wear_is_five_snapshots_in_a_row_beyond_three_deviations_of_the_first_quarter():
    # Of 20 snapshots the first 5 are healthy: mean 1, deviation sqrt(0.4) / 10 = 0.0632; limit 1.18974.
    healthy = [1.1, 0.9, 1.0, 0.95, 1.05]
    spread = float(np.std(healthy))
    limit = 1 + 3 * spread
    low, high = limit - 1e-4, limit + 1e-4
    assert first_prediction_time(table_of([*healthy, *[low] * 15])) == 190.0
    assert first_prediction_time(table_of([*healthy, *[high] * 15])) == 50.0, "right after the healthy part"
    assert first_prediction_time(table_of([*healthy, *[low] * 10, *[high] * 5])) == 150.0
    assert first_prediction_time(table_of([*healthy, *[low] * 11, *[high] * 4])) == 190.0, "four are too few"
    broken = [*healthy, *[high] * 4, low, *[high] * 4, low, *[high] * 5]
    assert first_prediction_time(table_of(broken)) == 150.0
    loud = [*healthy, *[1 + 2.5 * spread] * 15]
    assert first_prediction_time(table_of(loud)) == 190.0
    # The kurtosis of the other axis tells as well.
    assert first_prediction_time(table_of([1.0] * 20, [0.0, 0.1, 0.0, 0.1, 0.0, *[0.0] * 5, *[9.0] * 10])) == 100.0


def test_at_least_two_snapshots_are_healthy_and_never_more_than_there_are():
    # A quarter of 4 is 1, so 2 are healthy.
    assert first_prediction_time(table_of([1.0])) == 0.0


def test_labels_end_at_one_even_where_life_is_a_moment():
    assert fpt_label([0.0, 10.0], 10.0).tolist() == [0.0, 1.0] and fpt_label([0.0], 5.0).tolist() == [1.0]
    assert fpt_label([0.0, 5.0, 10.0, 20.0], 5.0).tolist() == [0.0, 0.0, pytest.approx(1 / 3), 1.0]
    assert fpt_label([0, 1], 0).dtype == np.float32


# ---------------------------------------------------------------- features


def test_a_features_value_by_hand():
    options = FeatureOptions(window=8, step=4, lowest_hz=10.0, highest_hz=40.0, scales=3, entropy_bins=2)
    window = np.array([1, 1, 1, 3, 1, 1, 1, 7], np.float32)
    found = dict(
        zip(
            FEATURES,
            WindowFeatures(options, 100.0)(torch.from_numpy(window)[None])[0].tolist(),
            strict=True,
        )
    )
    mean, centred = 2.0, window - 2.0
    variance = (centred**2).mean()
    assert found["mean"] == mean and found["standard deviation"] == pytest.approx(np.sqrt(variance))
    assert found["skewness"] == pytest.approx((centred**3).mean() / variance**1.5)
    assert found["kurtosis"] == pytest.approx((centred**4).mean() / variance**2 - 3)
    # Seven of eight in the lower of two bins.
    assert found["entropy"] == pytest.approx(-(7 / 8 * math.log(7 / 8) + 1 / 8 * math.log(1 / 8)))
    # From 40 to 10 Hz, each half of the one before.
    assert any(found["dominant frequency"] == pytest.approx(f) for f in (40, 20, 10))


@pytest.mark.parametrize(("hertz", "expected"), [(40, 40), (20, 20), (10, 10)])
def test_a_tone_is_its_own_dominant_frequency(hertz, expected):
    options = FeatureOptions(window=400, step=400, lowest_hz=10.0, highest_hz=40.0, scales=3)
    t = np.arange(400) / 400.0
    signal = np.sin(2 * np.pi * hertz * t).astype(np.float32)
    found = WindowFeatures(options, 400.0).snapshot(np.stack([signal, 3 * signal], 1))
    assert found.shape == (1, 14) and found[0, 1] == found[0, 8] == pytest.approx(expected)
    # Three times the signal has nine times the energy.
    assert found[0, 7] - found[0, 0] == pytest.approx(math.log10(9), abs=1e-4)


def test_the_entropy_of_a_histogram():
    def entropy(*counts):
        share = np.array(counts) / sum(counts)
        return float(-(share[share > 0] * np.log(share[share > 0])).sum())

    x = torch.tensor([[0.0, 1.0, 2.0, 3.0], [0.0, 0.0, 0.0, 3.0], [5.0, 5.0, 5.0, 5.0]], dtype=torch.float64)
    # A value on an edge belongs to the bin above it, the largest to the last.
    assert histogram_entropy(x, 3).tolist() == pytest.approx([entropy(1, 1, 2), entropy(3, 1), 0.0])
    assert histogram_entropy(x, 2).tolist() == pytest.approx([entropy(2, 2), entropy(3, 1), 0.0])
    assert histogram_entropy(x, 1).tolist() == [0.0, 0.0, 0.0]


def test_options_are_those_of_the_published_files_unless_given():
    assert FeatureOptions() == FeatureOptions(1000, 500, 100.0, 10_000.0, 64, 3)


def test_a_table_says_when_its_windows_begin_and_what_they_amount_to(tmp_path):
    made.pronostia(tmp_path)
    (bearing,) = open_bearings("pronostia", tmp_path)
    options = FeatureOptions(window=16, step=24, lowest_hz=2000.0, scales=2)
    table = features(bearing, options)
    assert table.features.shape == (4, 3, 14)
    assert table.window_s.tolist() == [0.0, 24 / 25_600, 48 / 25_600]
    mean, deviation = table.features[:, :, 5], table.features[:, :, 6]
    np.testing.assert_allclose(table.rms[:, 0], np.sqrt((mean**2 + deviation**2).mean(1)))
    np.testing.assert_allclose(table.kurtosis[:, 1], table.features[:, :, 10].mean(1))
    assert table.rms.shape == table.kurtosis.shape == (4, 2)


# ---------------------------------------------------------------- published features


def csv_of(folder, columns, rows):
    import csv

    path = folder / "Bearing1_1_features.csv"
    with path.open("w", newline="") as handle:
        csv.writer(handle).writerows([columns, *rows])
    return path


def test_published_features_are_read_with_energies_as_logarithms(tmp_path):
    axes = [json.dumps([100.0, 2, 3, 4, 5, 6, 7]), json.dumps([1000.0, 9, 10, 11, 12, 13, 14])]
    columns = ["Horizontal", "Vertical", "Time", "RUL"]
    (found,) = read_published_features(csv_of(tmp_path, columns, [[*axes, "0.5", "8"], [*axes, "0.75", "2"]]))
    assert (found.name, found.dataset, found.temperature_c) == ("Bearing1_1", "xjtu-sy", None)
    assert found.features[1].tolist() == [2, 2, 3, 4, 5, 6, 7, 3, 9, 10, 11, 12, 13, 14]
    assert found.t_s.tolist() == [0.5, 0.75] and found.remaining_min.tolist() == [8, 2]
    columns = ["Horizontal", "Vertical", "Time", "Degradation", "Temperature"]
    (found,) = read_published_features(csv_of(tmp_path, columns, [[*axes, "1", "0.25", "25"]]))
    assert (found.dataset, found.remaining_min, found.temperature_c.tolist()) == ("hust", None, [25.0])
    assert found.t_s.tolist() == [1.0]


@pytest.mark.parametrize(
    ("first", "second", "time", "said"),
    [
        ([1.0] * 6, [1.0] * 8, "1", "no row of 7 finite features an axis"),
        ([1.0] * 7, [1.0] * 6, "1", "no row of 7 finite features an axis"),
        ([0.0] + [1.0] * 6, [1.0] * 7, "1", "no row of 7 finite features an axis"),
        ([1.0] * 7, [0.0] + [1.0] * 6, "1", "no row of 7 finite features an axis"),
        ([1.0] * 7, [1.0] * 7, "nan", "no row of 7 finite features an axis"),
        ([1.0] * 7, [1.0] * 7, "soon", r"no row of published features \("),
    ],
)
def test_a_row_that_is_none_is_named_by_its_line(tmp_path, first, second, time, said):
    good, columns = json.dumps([1.0] * 7), ["Horizontal", "Vertical", "Time", "RUL"]
    path = csv_of(tmp_path, columns, [[good, good, "0", "2"], [json.dumps(first), json.dumps(second), time, "1"]])
    with pytest.raises(UserError, match=f"line 3 is {said}"):
        read_published_features(path)


# ---------------------------------------------------------------- data check and MNIST


def test_a_check_names_five_damaged_files_and_counts_the_others(tmp_path):
    folder = made.xjtu(tmp_path, snapshots=9)
    for i in range(2, 9):
        path = folder / f"{i}.csv"
        path.write_bytes(path.read_bytes().replace(b".001", b"x"))
    found = list(contents("xjtu-sy", tmp_path))
    kinds = [finding.kind for finding in found]
    assert kinds == ["sound", *["problem"] * 6] and found[-1].text == "2 more files of Bearing1_1 are damaged"
    assert found[0].text == "Bearing1_1 (35Hz12kN): 9 snapshots of 64 samples over 0.13 hours"
    path = folder / "2.csv"
    for i in (2, 3):
        made.write(folder / f"{i}.csv", [[i, 0]] * made.ROWS, ",", "\n")
    assert [f.kind for f in contents("xjtu-sy", tmp_path)] == ["sound", *["problem"] * 5]
    assert path.exists()


def test_an_image_is_read_row_by_row():
    image = np.zeros((1, 2, 3), np.uint8)
    image[0, 0, 2] = image[0, 1, 0] = 128
    image[0, 1, 2] = 127
    found = events(image)
    assert found.value.shape == (1, 256) and found.value.dtype == np.float32
    assert found.value[0, :4].tolist() == [0, 1, 0, 0] and found.duration[0, :4].tolist() == [2, 2, 2, 0]
    assert found.padding[0, :4].tolist() == [False, False, False, True]
    assert found.t_s[0, :5].tolist() == [2, 4, 6, 6, 6]
    assert events(image, length=2).duration.tolist() == [[2, 2]]
    assert isinstance(found, Events)


def test_the_files_of_mnist_under_their_usual_names(tmp_path):
    assert (idx_rank("train-images"), idx_rank("t10k-labels")) == (3, 1)
    for name in ("t10k-labels.idx1-ubyte.gz", "t10k-labels-idx1-ubyte.gz", "t10k-labels-idx1-ubyte"):
        (tmp_path / name).write_bytes(b"")
        assert part_file(tmp_path, "t10k-labels") == tmp_path / name
    assert part_file(tmp_path, "t10k-images") is None
    labels = decode_idx(b"\0\0\x08\x01" + (3).to_bytes(4, "big") + bytes([7, 8, 9]))
    assert labels.tolist() == [7, 8, 9]


def test_sentences_name_files_and_not_patterns(tmp_path):
    with pytest.raises(
        UserError, match=re.escape(f"{tmp_path} holds no bearing of hust: it should hold files such as B500.mat")
    ):
        open_bearings("hust", tmp_path)
