"""Small convolutions learn what large ones see; what is behind them stays, and mistakes are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nacdrive.common.paths import shipped
from nacdrive.models import Policy, load_policy, save_policy
from nacdrive.models.driving_step import DrivingStep
from nacdrive.training.log import read_rows
from tools import policy_distillation as distillation
from tools import sampled_drives

NAMES = ("nac_steady", "nac_exact")
LARGE: dict[str, Any] = {"channels": (6, 8), "kernels": (5, 5), "strides": (4, 4), "projection": 64}
"""Teachers that judge quickly; what they see is learnt all the same."""


@pytest.fixture(autouse=True)
def short_drives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled_drives, "SECONDS", 3.0)


@pytest.fixture
def teachers(tmp_path: Path) -> list[Path]:
    """Two policies of other circuits behind the same convolutions."""
    torch.manual_seed(0)
    paths, vision = [], None
    for name in NAMES:
        policy = Policy.new(replace(load_policy(f"udacity/{name}").config, **LARGE), name)
        vision = vision or policy.network.vision.state_dict()
        policy.network.vision.load_state_dict(vision)
        save_policy(policy, tmp_path / f"{name}.pt")
        paths.append(tmp_path / f"{name}.pt")
    return paths


def run(policies: list[Path], out: Path, *more: str) -> list[dict[str, Any]]:
    words = [*map(str, policies), "--out", str(out), "--drives", "4", "--epochs", "3", "--workers", "0", *more]
    distillation.main(words)
    return read_rows(out / "metrics.jsonl")


def test_a_pupil_sees_more_of_what_its_teachers_see_with_every_epoch(teachers: list[Path], tmp_path: Path) -> None:
    rows = run(teachers, tmp_path / "out", "--epochs", "6")
    assert rows[-1]["valid_features"] < 0.9 * rows[0]["valid_features"] and len(rows) == 6
    assert len(rows[0]["valid_steering"]) == len(NAMES)
    pupils = [load_policy(tmp_path / "out" / path.name) for path in teachers]
    same = [{k: v for k, v in p.network.state_dict().items() if k.startswith("vision.")} for p in pupils]
    assert all(torch.equal(value, same[1][name]) for name, value in same[0].items())
    for path, pupil in zip(teachers, pupils, strict=True):
        assert pupil.config.channels == distillation.SMALL["channels"] and pupil.meta["distilled"]["epoch"] == 5
        assert DrivingStep.of(pupil.network, None) is not None, "small enough for NumPy"
        before, after = load_policy(path).network.state_dict(), pupil.network.state_dict()
        behind = [name for name in before if name.startswith(("sequence.", "head."))]
        assert behind and all(torch.equal(before[name], after[name]) for name in behind)
    config = json.loads((tmp_path / "out" / "run.json").read_text())
    assert config["config"]["drives"] == 4


def test_pictures_of_another_run_are_learnt_from_again(teachers: list[Path], tmp_path: Path) -> None:
    run(teachers, tmp_path / "first")
    before = np.load(tmp_path / "first" / "pictures.npy")
    run(teachers, tmp_path / "second", "--pictures", str(tmp_path / "first"), "--seed", "1")
    assert not (tmp_path / "second" / "pictures.npy").exists()
    assert len(before) % 2 == 0 and before.shape[1:] == (66, 200, 3)
    a, b = (load_policy(tmp_path / run / "nac_steady.pt").network.projection for run in ("first", "second"))
    assert a is not None and b is not None and not torch.equal(a.weight, b.weight)
    with pytest.raises(SystemExit):
        run(teachers[:1], tmp_path / "third", "--pictures", str(tmp_path / "first"))


def test_real_pictures_are_learnt_from_too(teachers: list[Path], tmp_path: Path) -> None:
    real = Path(__file__).parents[2] / "shared/data/udacity_track"
    if not real.exists():
        pytest.skip("../shared/data is absent")
    run(teachers, tmp_path / "without")
    small = tmp_path / "real" / "IMG"
    small.mkdir(parents=True)
    for path in sorted((real / "IMG").glob("*.jpg"))[:5]:
        (small / path.name).write_bytes(path.read_bytes())
    run(teachers, tmp_path / "with", "--real", str(small.parent))
    counts = [len(np.load(tmp_path / name / "pictures.npy", mmap_mode="r")) for name in ("with", "without")]
    assert counts[0] == counts[1] + 10


def test_what_cannot_be_taught_is_refused(
    teachers: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for policies, more, what in (
        ([*teachers, shipped("agents") / "udacity/nac_exact.pt"], (), "other convolutions than the first"),
        ([shipped("agents") / "carracing/nac_steady.pt"], (), "no NAC of Udacity"),
        (teachers, ("--drives", "0"), "roads of each"),
        (teachers, ("--seed", "9"), "seeds 0 to 8"),
        (teachers, ("--learning-rate", "0"), "above 0"),
    ):
        with pytest.raises(SystemExit) as stopped:
            run(list(policies), tmp_path / "out", *more)
        assert stopped.value.code == 2 and what in capsys.readouterr().err
    assert not (tmp_path / "out").exists(), "nothing half-written"
