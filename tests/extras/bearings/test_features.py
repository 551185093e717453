from __future__ import annotations

import os
import stat
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.extras.bearings.features import (
    CENTRAL_FREQUENCY,
    FeatureOptions,
    FeatureTable,
    Kept,
    MorletTransform,
    WindowFeatures,
    features,
)
from nacdrive.extras.bearings.layouts import Bearing, open_bearings
from nacdrive.extras.bearings.wear import first_prediction_time, fpt_label
from tests.helpers import bearings as made_bearings

pywt = pytest.importorskip("pywt", reason="the oracle is in the extra 'dev'")

RATE = 25_600.0
REAL = Path(__file__).resolve().parents[4] / "shared/data/pronostia/Bearing2_7.tar.xz"
SMALL = FeatureOptions(window=32, step=16, lowest_hz=2000, scales=5)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NACDRIVE_CACHE", str(tmp_path / "cache"))


def naive_features(window: np.ndarray, options: FeatureOptions, rate_hz: float) -> list[float]:
    """The same from PyWavelets, NumPy and SciPy, for one window."""
    from scipy.stats import entropy, kurtosis, skew

    scales = CENTRAL_FREQUENCY * rate_hz / np.geomspace(options.highest_hz, options.lowest_hz, options.scales)
    coefficients, frequencies = pywt.cwt(window, scales, "morl", sampling_period=1 / rate_hz)
    power = (np.abs(coefficients) ** 2).sum(axis=1)
    counts, _ = np.histogram(window, bins=options.entropy_bins)
    return [
        np.log10(power.sum()),
        frequencies[power.argmax()],
        entropy(counts),
        kurtosis(window),
        skew(window),
        window.mean(),
        window.std(),
    ]


def signals(count: int, window: int) -> np.ndarray:
    """Noise, tones, an offset, a spike, both ends of the band."""
    generator = np.random.default_rng(1)
    found = generator.standard_normal((count, window))
    t = np.arange(window) / RATE
    for i, hertz in enumerate((120, 1_500, 9_000)):
        found[i] = 0.1 * found[i] + np.sin(2 * np.pi * hertz * t)
    found[3] += 20
    found[4, window // 3] = 50
    return found


@pytest.mark.parametrize(("window", "scales"), [(1000, 64), (333, 7), (64, 3)])
def test_the_transform_equals_pywavelets(window: int, scales: int) -> None:
    x = signals(6, window)
    steps = CENTRAL_FREQUENCY * RATE / np.geomspace(10_000, 100, scales)
    expected = np.stack([pywt.cwt(row, steps, "morl")[0] for row in x])
    exact = MorletTransform(steps, window, dtype=torch.float64)(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(exact, expected, rtol=0, atol=1e-11)
    single = MorletTransform(steps, window)(torch.from_numpy(x).float()).numpy()
    np.testing.assert_allclose(single, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("options", [FeatureOptions(), FeatureOptions(window=256, entropy_bins=8, scales=20)])
def test_features_equal_one_window_at_a_time(options: FeatureOptions) -> None:
    x = signals(5, options.window).astype(np.float32)
    found = WindowFeatures(options, RATE)(torch.from_numpy(x)).numpy()
    expected = np.array([naive_features(row.astype(np.float64), options, RATE) for row in x])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_constant_window_has_features_without_nan() -> None:
    found = WindowFeatures(FeatureOptions(), RATE)(torch.full((1, 1000), 0.0)).numpy()
    assert np.isfinite(found).all() and (found[0, 2:] == 0).all()


def kept_of(bearing: Bearing, options: FeatureOptions = SMALL) -> Kept:
    return Kept(bearing, options)


def made_bearing(folder: Path) -> Bearing:
    made_bearings.pronostia(folder, temperature=True)
    return open_bearings("pronostia", folder)[0]


def test_a_table_has_every_window_of_every_snapshot(tmp_path: Path) -> None:
    bearing = made_bearing(tmp_path)
    table = features(bearing, SMALL)
    assert table.features.shape == (4, 3, 14) and table.features.dtype == np.float32
    np.testing.assert_allclose(table.window_s * RATE, [0, 16, 32])
    np.testing.assert_array_equal(table.t_s, bearing.snapshot_s)
    assert table.temperature_c is bearing.temperature_c
    vertical = bearing.read(2)[16:48, 1].astype(np.float64)
    np.testing.assert_allclose(table.features[2, 1, 7:], naive_features(vertical, SMALL, RATE), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(table.rms[2], [2.03, 2.03], atol=0.01)
    assert table.kurtosis.shape == (4, 2)


def test_snapshots_of_a_dead_sensor_are_counted(tmp_path: Path) -> None:
    made = made_bearing(tmp_path)
    dead = made.files[2]
    bearing = replace(made, read_file=lambda path: made.read_file(path) * (path != dead) + 0.3)
    with pytest.warns(UserWarning, match=r"1 of 4 snapshots of \w+ are constant \(first: 2\): a sensor that is dead"):
        features(bearing, SMALL)


def test_hust_repeats_its_one_axis(tmp_path: Path) -> None:
    made_bearings.hust(tmp_path, "N500.mat", 51_200)
    table = features(open_bearings("hust", tmp_path)[0], FeatureOptions(step=10_000, scales=4))
    assert table.features.shape == (1, 6, 14)
    np.testing.assert_array_equal(table.features[..., :7], table.features[..., 7:])


def test_features_are_kept_beside_the_data_until_anything_changes(tmp_path: Path) -> None:
    bearing = made_bearing(tmp_path)
    first = features(bearing, SMALL)
    beside = kept_of(bearing).beside
    assert beside.is_file() and beside.parent.name == ".nacdrive"
    written = beside.stat().st_mtime_ns
    np.testing.assert_array_equal(features(bearing, SMALL).features, first.features)
    assert beside.stat().st_mtime_ns == written, "computed once"
    others = [replace(SMALL, window=30), replace(SMALL, scales=4)]
    assert len({kept_of(bearing, options).beside for options in [SMALL, *others]}) == 3
    os.utime(bearing.files[2], ns=(1, 1))
    assert kept_of(bearing).beside != beside


def test_a_damaged_kept_file_is_computed_again(tmp_path: Path) -> None:
    bearing = made_bearing(tmp_path)
    first = features(bearing, SMALL)
    beside = kept_of(bearing).beside
    for damage in (b"", b"PK nonsense", beside.read_bytes()[:300]):
        beside.write_bytes(damage)
        np.testing.assert_array_equal(features(bearing, SMALL).features, first.features)


def test_features_of_a_read_only_folder_go_to_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bearing = made_bearing(tmp_path / "data")
    folder = bearing.files[0].parent
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    if os.access(folder, os.W_OK):
        # The superuser may write everywhere: a file where the folder would be stands in its way just the same.
        folder.chmod(stat.S_IRWXU)
        (folder / ".nacdrive").write_text("")
    features(bearing, SMALL)
    folder.chmod(stat.S_IRWXU)
    assert "cannot be written: features are kept in" in capsys.readouterr().err
    assert kept_of(bearing).cached.is_file()
    features(bearing, SMALL)
    assert not capsys.readouterr().err


def test_a_damaged_signal_is_named_and_nothing_is_kept(tmp_path: Path) -> None:
    bearing = made_bearing(tmp_path)
    lines = bearing.files[2].read_text().splitlines()
    lines[4] = lines[4].rpartition(",")[0] + ",nan"
    bearing.files[2].write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"acc_00003.csv line 5 holds 'nan'"):
        features(bearing, SMALL)
    assert not (bearing.files[0].parent / ".nacdrive").exists()


def test_snapshots_that_are_shorter_than_a_window(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a window of 1000 samples does not fit Bearing1_1, whose snapshots have 64"):
        features(made_bearing(tmp_path))


def table_of(rms: np.ndarray) -> FeatureTable:
    """Snapshots ten seconds apart whose signal has this root mean square on both axes."""
    values = np.zeros((len(rms), 1, 14), np.float32)
    values[..., 6] = values[..., 13] = rms[:, None]
    return FeatureTable("B", "", values, 10.0 * np.arange(len(rms)), np.zeros(1), None)


def test_wear_shows_where_the_signal_stays_beyond_three_sigma() -> None:
    generator = np.random.default_rng(0)
    rms = 1 + 0.01 * generator.uniform(-1, 1, 100)
    rms[40] = 9  # one loud snapshot is no wear
    rms[70:] += np.linspace(0.5, 3, 30)
    assert first_prediction_time(table_of(rms)) == 700
    assert first_prediction_time(table_of(rms[:60])) == 590, "nothing showed: the end"


def test_labels_grow_from_the_first_wear_to_the_end() -> None:
    t = np.array([0.0, 10, 20, 30, 40])
    np.testing.assert_allclose(fpt_label(t, 20), [0, 0, 0, 0.5, 1])
    np.testing.assert_allclose(fpt_label(t, 40), [0, 0, 0, 0, 1])


@pytest.mark.nightly
@pytest.mark.skipif(not REAL.is_file(), reason="needs the real recordings in ../shared/data")
def test_a_real_bearing_wears() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (bearing,) = open_bearings("pronostia", REAL)
    table = features(bearing, FeatureOptions(scales=16))
    assert table.features.shape == (230, 4, 14) and np.isfinite(table.features).all()
    expected = naive_features(bearing.read(7)[500:1500, 0].astype(np.float64), FeatureOptions(scales=16), RATE)
    np.testing.assert_allclose(table.features[7, 1, :7], expected, rtol=1e-4, atol=1e-5)
    assert first_prediction_time(table) == pytest.approx(2220, abs=1)
