"""Continuous wavelet transform with the real Morlet wavelet, batched by FFT: ``pywt.cwt(x, scales, 'morl')``."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CENTRAL_FREQUENCY = 0.8125
"""Cycles a sample of the wavelet at scale 1, as PyWavelets counts them (``pywt.central_frequency('morl')``)."""
SUPPORT = 8.0
"""The wavelet is taken as zero beyond minus and plus this."""
POINTS = 2**12
"""Points at which the wavelet is integrated (PyWavelets' ``precision=12``)."""


class MorletTransform:
    """Wavelet transform of many windows of one length.

    PyWavelets convolves a window with the integrated wavelet and differentiates; only taps within one window's length
    of the centre meet the signal, so that one circular convolution of twice the window's length is exact.
    """

    def __init__(
        self,
        scales: NDArray[np.float64],
        window: int,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Prepare the filters.

        Args:
            scales: [S] samples per unit of the wavelet's time, each at least 1.
            window: Samples of a window.
            device: Where to compute.
            dtype: Of the computation.
        """
        self.window = window
        self.length = 2 * window
        taps = torch.from_numpy(np.stack([circular_taps(scale, window) for scale in scales]))
        self.filters = torch.fft.rfft(taps).to(device, torch.complex64 if dtype == torch.float32 else torch.complex128)

    def __call__(self, x: Tensor) -> Tensor:
        """Coefficients [B, S, window] of windows [B, window]."""
        spectrum = torch.fft.rfft(x, self.length)
        coefficients: Tensor = torch.fft.irfft(spectrum[:, None] * self.filters, self.length)
        return coefficients[..., : self.window]

    def energies(self, x: Tensor) -> Tensor:
        """Sum of the squared coefficients of each scale, [B, S]."""
        return self(x).square().sum(-1)


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
