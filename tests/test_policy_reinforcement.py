"""What is learnt from is what drove: likelihoods, advantages, and a run that was stopped."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.models import load_policy
from tools import policy_reinforcement as rl

NOTHING = CameraNoise()
RATE = CameraNoise(rate=(5.0, 20.0), blackout=0.2)


@pytest.fixture(autouse=True)
def short_drives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rl, "FRAMES", 160)
    monkeypatch.setattr(rl, "_policy", None)


def drives_of(name: str, *tracks: rl.Track) -> tuple[rl.Learner, list[tuple[str, float, rl.Drawn, float]]]:
    learner = rl.Learner(load_policy(name).network, 1e-3, 0, 4)
    weights = {name: value.clone() for name, value in learner.network.state_dict().items()}
    return learner, rl.drive((Path(name), weights, tracks, 2.0, 0))


@pytest.mark.parametrize("name", ["nac_steady.pt", "nac_steady_continuous.pt"])
def test_a_minibatch_finds_decisions_as_likely_as_the_policy_that_drove(name: str) -> None:
    """Streaming and pieces, at even and uneven times, through a drive's first frames too."""
    learner, drives = drives_of(name, rl.Track(3_700_000, NOTHING, "good"), rl.Track(3_700_001, RATE, "5 to 20 Hz"))
    window = learner.network.config.window
    pieces = rl.cut([(drawn, np.ones(len(drawn.t), np.float32)) for _, _, drawn, _ in drives], window)
    assert len(pieces.t) > 3 and pieces.counts.sum() == sum(len(drawn.t) for _, _, drawn, _ in drives)
    with torch.no_grad():
        loss, kl = rl.policy_loss(learner.network, pieces, 2.0)
    assert float(loss) == pytest.approx(-1.0, abs=1e-3)
    assert kl < 1e-6


def test_the_advantage_is_the_discounted_sum_of_surprises() -> None:
    rng = np.random.default_rng(0)
    drawn = rl.Drawn(made_s=sorted(rng.uniform(0, 4, 9)), reward=list(rng.normal(size=9)))
    values, end_s = rng.normal(size=9).astype(np.float32), 4.1
    times, ahead = [*drawn.made_s, end_s], [*values[1:], 0.0]
    for k, one in enumerate(rl.advantages(drawn, values, end_s)):
        total = 0.0
        for later in range(k, 9):
            share = rl.DISCOUNT ** ((times[later + 1] - times[later]) / rl.GAP_S)
            before = rl.DISCOUNT ** ((times[later] - times[k]) / rl.GAP_S) * rl.TRACE ** (later - k)
            total += before * (drawn.reward[later] + share * ahead[later] - values[later])
        assert one == pytest.approx(total, abs=1e-5)


def test_what_turned_out_well_is_done_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, drives = drives_of("nac_steady.pt", rl.Track(3_700_000, NOTHING, "good"))
    (drawn,) = (one for _, _, one, _ in drives)
    gas = np.array(drawn.actions) == 3
    assert 0 < gas.sum() < len(gas)
    monkeypatch.setattr(rl, "advantages", lambda drawn, values, end_s: np.where(gas, 1.0, -1.0).astype(np.float32))
    before = {name: value.clone() for name, value in learner.network.state_dict().items()}
    learner.iteration = 1
    assert learner.learn(drives, epochs=4, warm=0, sharp=2.0) > 1e-4
    window, rest = learner.network.config.window, np.zeros(len(gas), np.float32)
    pieces = rl.cut([(drawn, rest)], window)
    with torch.no_grad():
        outputs = learner.network.decide(learner.network.projection(pieces.features.float()), pieces.t, pieces.padding)
        new = rl.likelihoods(outputs[:, -rl.PIECE :], pieces.actions, 2.0)
    change = ((new - pieces.likelihood) * pieces.counts)[pieces.counts > 0].numpy()
    assert change[gas].mean() > 0 > change[~gas].mean()
    assert all(
        torch.equal(value, before[name]) == name.startswith("vision.")
        for name, value in learner.network.named_parameters()
        if name.startswith(("vision.", "projection.", "head."))
    )


def test_where_the_car_is_led_off_the_road_nothing_is_learnt() -> None:
    _, drives = drives_of("nac_steady.pt", rl.Track(3_700_002, NOTHING, "bad start"))
    free = np.array(drives[0][2].free)
    assert not free[0] and (np.diff(free.astype(int)) >= 0).all()


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["nac_steady.pt", "--episodes", "2", "--warm", "1", "--workers", "0", "--iterations", "3", "--out"]
    rl.main([*words, str(tmp_path / "whole")])
    drive, left = rl.drive, list(range(2 * rl.JOBS))

    def stopped(job):  # type: ignore[no-untyped-def]
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return drive(job)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(rl, "drive", stopped)
        rl.main([*words, str(tmp_path / "parts")])
    with pytest.raises(SystemExit, match="2"):
        rl.main([*words, str(tmp_path / "parts"), "--seed", "1"])
    rl.main([*words, str(tmp_path / "parts")])
    one, other = (load_policy(tmp_path / out / "policy-3.pt") for out in ("whole", "parts"))
    weights = other.network.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in one.network.state_dict().items())
    assert not all(
        torch.equal(value, weights[name]) for name, value in load_policy("nac_steady.pt").network.state_dict().items()
    )
    assert one.meta["reinforced"] == other.meta["reinforced"]
    assert one.meta["reinforced"]["policy"] == "nac_steady.pt" and one.meta["reinforced"]["iterations"] == 3
    rows = [json.loads(line) for line in (tmp_path / "parts/log.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [0, 1, 2]


def test_a_policy_without_a_projection_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        rl.main(["agents/udacity/nac_steady.pt", "--out", str(tmp_path)])
    assert "udacity" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())
