"""Seven features of each axis of each window of a vibration signal (paper, appendix D), kept beside the data.

Energy and dominant frequency come from a Morlet wavelet transform; entropy, kurtosis, skewness, mean and standard
deviation from the window itself. The paper does not say so; its published feature files do (docs/data.md): their
entropies are those of a histogram of three bins over 1000 samples.
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
import zipfile
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nacdrive.common.errors import UserError
from nacdrive.common.files import atomic_path
from nacdrive.common.paths import cache_folder
from nacdrive.common.progress import progress_bar
from nacdrive.extras.bearings.layouts import Bearing

CENTRAL_FREQUENCY = 0.8125
"""Cycles a sample of the wavelet at scale 1, as PyWavelets counts them (``pywt.central_frequency('morl')``)."""
SUPPORT = 8.0
"""The wavelet is taken as zero beyond minus and plus this."""
STILL = 1e-9
"""Standard deviation, in the data's unit, below which a window counts as constant."""
POINTS = 2**12
"""Points at which the wavelet is integrated (PyWavelets' ``precision=12``)."""


class MorletTransform:
    """Wavelet transform of many windows of one length.

    PyWavelets convolves a window with the integrated wavelet and differentiates; only taps within one window's length
    of the centre meet the signal, so that one circular convolution of twice the window's length is exact.
    """

    def __init__(self, scales: NDArray[np.float64], window: int, dtype: torch.dtype = torch.float32) -> None:
        """Prepare the filters; ``scales`` are [S] samples per unit of the wavelet's time, each at least 1."""
        self.window = window
        self.length = 2 * window
        taps = torch.from_numpy(np.stack([circular_taps(scale, window) for scale in scales]))
        self.filters = torch.fft.rfft(taps).to(torch.complex64 if dtype == torch.float32 else torch.complex128)

    def __call__(self, x: Tensor) -> Tensor:
        """Coefficients [B, S, window] of windows [B, window]."""
        coefficients: Tensor = torch.fft.irfft(torch.fft.rfft(x, self.length)[:, None] * self.filters, self.length)
        return coefficients[..., : self.window]


def circular_taps(scale: float, window: int) -> NDArray[np.float64]:
    """Filter [2 * window] of one scale: the tap for lag ``l`` stands at ``l`` modulo its length."""
    grid = np.linspace(-SUPPORT, SUPPORT, POINTS)
    step = grid[1] - grid[0]
    integral = np.cumsum(np.exp(-(grid**2) / 2) * np.cos(5 * grid)) * step
    points = (np.arange(scale * 2 * SUPPORT + 1) / (scale * step)).astype(int)
    response = integral[points[points < POINTS]][::-1]
    # Convolving and then differentiating is convolving with the differences.
    difference = -np.sqrt(scale) * np.diff(response, prepend=0, append=0)
    lags = np.arange(1 - window, window)
    # difference[k] belongs to k - 1 before the trim of floor((len(response) - 2) / 2) samples.
    places = lags + (len(response) - 2) // 2 + 1
    inside = (places >= 0) & (places < len(difference))
    taps = np.zeros(2 * window)
    taps[lags[inside]] = difference[places[inside]]
    return taps


FEATURES = ("log10 energy", "dominant frequency", "entropy", "kurtosis", "skewness", "mean", "standard deviation")
"""In this order for each axis; frequencies in Hz, the entropy in nats, the kurtosis of a normal signal is 0."""
AXES = 2
VERSION = 2
"""Part of the key of kept features: raise it when their values change."""
BATCH = 64
"""Windows transformed at once: more is slower, for their coefficients leave the processor's cache."""
TINY = 1e-20


@dataclass(frozen=True)
class FeatureOptions:
    """How features are computed."""

    window: int = 1000  # samples of a window, as in the published files
    step: int = 500  # samples from one window to the next of a snapshot
    lowest_hz: float = 100.0
    highest_hz: float = 10_000.0  # highest frequency of the wavelet transform; must be below half the sampling rate
    scales: int = 64  # frequencies of the wavelet transform, in a geometric series
    entropy_bins: int = 3  # bins of the histogram whose entropy is taken


class Kept:
    """Features that were computed before: kept beside the data, or in the user's cache where that cannot be written."""

    def __init__(self, bearing: Bearing, options: FeatureOptions) -> None:
        """Find the place: another one when a file of ``bearing`` has another size or time, or for other ``options``."""
        recipe = {"version": VERSION, **asdict(options)}
        files = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in dict.fromkeys(bearing.files)]
        key = [recipe, bearing.dataset, bearing.name, bearing.condition, files, bearing.rate_hz]
        name = f"features-{bearing.name}-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}.npz"
        self.snapshots = len(bearing)
        self.beside = bearing.files[0].parent / ".nacdrive" / name
        self.cached = cache_folder() / "features" / name

    def read(self) -> NDArray[np.float32] | None:
        for path in (self.beside, self.cached):
            try:
                with np.load(path) as content:
                    values: NDArray[np.float32] = content["features"]
            except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
                continue
            if values.ndim == 3 and len(values) == self.snapshots:
                return values
        return None

    def write(self, values: NDArray[np.float32]) -> None:
        """Keep features; says so where they cannot lie beside the data."""
        for path in (self.beside, self.cached):
            try:
                with atomic_path(path) as partial, partial.open("wb") as handle:
                    np.savez_compressed(handle, features=values)
                return
            except OSError:
                if path == self.cached:
                    raise
                folder = self.beside.parent.parent
                print(f"{folder} cannot be written: features are kept in {self.cached.parent}", file=sys.stderr)


@dataclass(frozen=True)
class FeatureTable:
    """Features of one bearing: N snapshots of W windows."""

    name: str
    condition: str
    features: NDArray[np.float32]
    """[N, W, 14] the seven ``FEATURES`` of the horizontal axis, then of the vertical one.

    A recording of one axis (HUST) has the same in both halves, as the published files do.
    """
    t_s: NDArray[np.float64]
    """[N] time of each snapshot in seconds since the first."""
    window_s: NDArray[np.float64]
    """[W] begin of each window in seconds since its snapshot."""
    temperature_c: NDArray[np.float32] | None
    """[N] degrees Celsius; None where not recorded."""

    @property
    def rms(self) -> NDArray[np.float32]:
        """[N, 2] root mean square of each snapshot and axis over its windows."""
        mean, deviation = self.features[..., 5::7], self.features[..., 6::7]
        return np.asarray(np.sqrt((mean**2 + deviation**2).mean(axis=1)))

    @property
    def kurtosis(self) -> NDArray[np.float32]:
        """[N, 2] kurtosis of each snapshot and axis, averaged over its windows."""
        return np.asarray(self.features[..., 3::7].mean(axis=1))


def features(bearing: Bearing, options: FeatureOptions = FeatureOptions()) -> FeatureTable:
    """Features of a bearing, from the kept ones if there are any; else computed, with a bar, and kept."""
    if options.window > bearing.samples:
        raise UserError(
            f"a window of {options.window} samples does not fit {bearing.name}, whose snapshots have "
            f"{bearing.samples}: choose one between 2 and that."
        )
    kept = Kept(bearing, options)
    values = kept.read()
    if values is None:
        values = compute(bearing, options)
        kept.write(values)
    if count := int((still := (values[..., 6::7] < STILL).all(axis=(1, 2))).sum()):
        where = f"{count} of {len(values)} snapshots of {bearing.name} are constant (first: {int(still.argmax())})"
        warnings.warn(f"{where}: a sensor that is dead or unplugged says nothing; leave them out.", stacklevel=2)
    window_s = np.arange(values.shape[1]) * options.step / bearing.rate_hz
    return FeatureTable(bearing.name, bearing.condition, values, bearing.snapshot_s, window_s, bearing.temperature_c)


def compute(bearing: Bearing, options: FeatureOptions) -> NDArray[np.float32]:
    """Features of all snapshots, [N, W, 14]."""
    extractor = WindowFeatures(options, bearing.rate_hz)
    with progress_bar() as bar:
        task = bar.add_task(f"features of {bearing.name}", total=len(bearing), state="")
        return np.stack([extractor.snapshot(bearing.read(i)) for i in bar.track(range(len(bearing)), task_id=task)])


class WindowFeatures:
    """Computes the features of windows."""

    def __init__(self, options: FeatureOptions, rate_hz: float) -> None:
        frequencies = np.geomspace(options.highest_hz, options.lowest_hz, options.scales)
        self.options = options
        self.frequencies = torch.from_numpy(frequencies).float()
        self.transform = MorletTransform(CENTRAL_FREQUENCY * rate_hz / frequencies, options.window)

    def snapshot(self, signal: NDArray[np.float32]) -> NDArray[np.float32]:
        """Features [W, 14] of a snapshot [samples, axes]."""
        options = self.options
        axes = torch.from_numpy(signal).T.contiguous()
        windows = axes.unfold(-1, options.window, options.step).reshape(-1, options.window)
        rows = torch.cat([self(windows[i : i + BATCH]) for i in range(0, len(windows), BATCH)])
        rows = rows.view(len(axes), -1, len(FEATURES)).expand(AXES, -1, -1)
        return rows.transpose(0, 1).flatten(1).numpy()

    def __call__(self, windows: Tensor) -> Tensor:
        """Features [B, 7] of windows [B, window]."""
        energies = self.transform(windows).square().sum(-1)
        dominant = self.frequencies[energies.argmax(-1)]
        exact = windows.double()
        mean = exact.mean(-1, keepdim=True)
        centred = exact - mean
        variance = centred.square().mean(-1)
        # A constant window has no shape: both measures are 0 there.
        scale = torch.where(variance > TINY, variance, torch.inf)
        skewness = centred.pow(3).mean(-1) / scale**1.5
        kurtosis = centred.pow(4).mean(-1) / scale**2 - 3 * (variance > TINY)
        energy = energies.sum(-1).clamp(min=TINY).log10()
        entropy = histogram_entropy(exact, self.options.entropy_bins)
        columns = (energy, dominant, entropy, kurtosis, skewness, mean[:, 0], variance.sqrt())
        return torch.stack([column.float() for column in columns], dim=-1)


def histogram_entropy(windows: Tensor, bins: int) -> Tensor:
    """Entropy [B] in nats of the histogram of each window over its own range, in bins of one width.

    Recorded values are steps of a converter and often lie on an edge: double precision puts them where NumPy does.
    """
    low, high = windows.aminmax(dim=-1, keepdim=True)
    at_least = [(windows >= low + k * ((high - low) / bins)).sum(-1) for k in range(1, bins)]
    total = torch.full_like(low[:, 0], windows.shape[-1])
    above = torch.stack([total, *at_least, torch.zeros_like(total)], dim=-1)
    terms: Tensor = torch.special.entr(-above.diff(dim=-1) / windows.shape[-1])
    return terms.sum(-1)
