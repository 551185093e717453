"""What ships for CarRacing drives on from where its teachers never are: at rest beside the road, or led off it."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

from nacdrive.common.paths import find_model

LEAST = {"bad starts": 20, "led off": 14}
"""Of 24 and 16, as registered before any of them shipped (docs/results/carracing.md)."""


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["nac_steady", "nac_exact", "nac_euler", "nac_steady_continuous"])
def test_a_car_beside_the_road_drives_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The drives name what leads them off by this module's name, as in the command.
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "tools"))
    cameras = importlib.import_module("carracing_cameras")
    away = dict.fromkeys(LEAST, 0)
    for place, seed, drive in cameras.test_jobs(0):
        if place in cameras.CAMERAS:
            continue
        mine = replace(drive, model=find_model(f"{name}.pt", "carracing"))
        away[place.partition(",")[0]] += cameras.return_and_progress(mine, seed)[1] >= cameras.WON
    assert all(away[place] >= least for place, least in LEAST.items()), away
