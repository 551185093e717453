"""Episodes and recordings for the tests of this room."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nacdrive.datasets.episode import Episode
from nacdrive.datasets.images import encode_png
from nacdrive.datasets.recording import RecordingWriter


def make_episode(seed: int = 3_000_000, steps: int = 6, *, source: str = "carracing", logits: bool = True) -> Episode:
    """An episode of noise, which no image compression can hide a mistake in."""
    noise = np.random.default_rng(seed)
    choice = noise.integers(0, 5, steps)
    return Episode(
        frames=[encode_png(noise.integers(0, 256, (12, 16, 3), dtype=np.uint8)) for _ in range(steps)],
        t_s=np.arange(steps) * 0.08,
        choice=choice,
        steering=noise.uniform(-1, 1, steps).astype(np.float32),
        throttle=noise.uniform(0, 1, steps).astype(np.float32),
        brake=noise.uniform(0, 1, steps).astype(np.float32),
        reward=noise.normal(size=steps).astype(np.float32),
        speed_mps=noise.uniform(0, 70, steps).astype(np.float32),
        expert_choice=choice,
        expert_logits=noise.normal(size=(steps, 5)).astype(np.float32) if logits else None,
        seed=seed,
        source=source,
        driver="geometric",
        episode_return=float(noise.normal() * 900),
        meta={"ended": "lap finished", "repeat": 4},
    )


def begin(folder: Path, **options: object) -> RecordingWriter:
    """A writer with the options that do not matter filled in."""
    return RecordingWriter(folder, **{"source": "carracing", "fps": 12.5, "expert": "geometric", **options})  # type: ignore[arg-type]
