"""What is learnt from is what drove: probabilities, advantages, a run that was stopped, and mistakes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from nacdrive.common.paths import shipped
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.models import Policy, load_policy, save_policy
from nacdrive.training.log import read_rows
from tools import policy_reinforcement as rl
from tools import sampled_drives

NOTHING = CameraNoise()
RATE = CameraNoise(rate=(5.0, 20.0), blackout=0.2)


@pytest.fixture(autouse=True)
def short_drives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled_drives, "FRAMES", 160)
    monkeypatch.setattr(sampled_drives, "SECONDS", 3.0)


def options_of(name: str, **more: object) -> rl.Options:
    usual = dict(
        out=Path("unused"), iterations=4, episodes=1, epochs=4, warm=0, temperature=0.5, learning_rate=1e-3,
        cameras=(), seed=0, workers=0, whole_lap=False,
    )  # fmt: skip
    return rl.Options(policy=Path(name), **{**usual, **more})  # type: ignore[arg-type]


def drives_of(name: str, *jobs: tuple[int, str, CameraNoise]) -> tuple[rl.Learner, list[rl.Trajectory]]:
    learner = rl.Learner(load_policy(name).network, options_of(name))
    weights = {name: value.numpy().copy() for name, value in learner.network.state_dict().items()}
    sampler = rl.Sampler(Path(name), weights, 0.5, 0)
    return learner, [sampler.drive(job) for job in jobs]


UDACITY, PILOTNET = (str(shipped("agents") / f"udacity/{name}.pt") for name in ("nac_steady", "pilotnet"))


@pytest.mark.parametrize("name", ["nac_steady.pt", "nac_steady_continuous.pt", UDACITY, PILOTNET])
def test_a_minibatch_finds_actions_as_probable_as_the_policy_that_drove(name: str) -> None:
    """Streaming and chunks, at even and uneven times, through a drive's first frames too."""
    learner, drives = drives_of(name, (3_700_000, "good", NOTHING), (3_700_001, "5 to 20 Hz", RATE))
    chunks = rl.cut([(drive, np.ones(len(drive.t), np.float32)) for drive in drives], learner.network.config.window)
    assert len(chunks.t) > 3 and chunks.counts.sum() == sum(len(drive.t) for drive in drives)
    with torch.no_grad():
        loss, kl = rl.policy_loss(learner.network, chunks, 0.5, learner.training.action_std)
    assert float(loss) == pytest.approx(-1.0, abs=1e-3)
    assert kl < 1e-6


def test_the_advantage_is_the_discounted_sum_of_surprises() -> None:
    rng = np.random.default_rng(0)
    times = [*sorted(rng.uniform(0, 4, 9)), 4.1]
    drive = rl.Trajectory(made_s=times, rewards=list(rng.normal(size=9)))
    values = rng.normal(size=9).astype(np.float32)
    ahead = [*values[1:], 0.0]
    for k, one in enumerate(rl.advantages(drive, values, 0.98)):
        total = 0.0
        for later in range(k, 9):
            discount = 0.98 ** ((times[later + 1] - times[later]) / rl.GAP_S)
            before = 0.98 ** ((times[later] - times[k]) / rl.GAP_S) * rl.GAE_LAMBDA ** (later - k)
            total += before * (drive.rewards[later] + discount * ahead[later] - values[later])
        assert one == pytest.approx(total, abs=1e-5)


def test_what_turned_out_well_is_done_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, drives = drives_of("nac_steady.pt", (3_700_000, "good", NOTHING))
    gas = np.array(drives[0].actions) == 3
    assert 0 < gas.sum() < len(gas)
    monkeypatch.setattr(rl, "advantages", lambda drive, values, gamma: np.where(gas, 1.0, -1.0).astype(np.float32))
    before = {name: value.clone() for name, value in learner.network.state_dict().items()}
    assert learner.learn(drives) > 1e-4
    chunks = rl.cut([(drives[0], np.zeros(len(gas), np.float32))], learner.network.config.window)
    with torch.no_grad():
        new = rl.log_probs(rl.decide(learner.network, chunks), chunks.actions, 0.5, ())
    change = ((new - chunks.log_probs) * chunks.counts)[chunks.counts > 0].numpy()
    assert change[gas].mean() > 0 > change[~gas].mean()
    assert all(
        torch.equal(value, before[name]) == name.startswith("vision.")
        for name, value in learner.network.named_parameters()
        if name.startswith(("vision.", "projection.", "head."))
    )


def test_on_the_udacity_track_metres_from_the_middle_cost_but_where_a_car_is_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, (drive,) = drives_of(UDACITY, (3_700_000, "good", NOTHING))
    assert len(drive.t) > 20 and all(-0.5 < reward < 0 for reward in drive.rewards[:-1])
    right = SimpleNamespace(traffic=SimpleNamespace(cars=SimpleNamespace(offset=1.7)))
    world = sampled_drives.UdacityWorld(right, "slow cars")
    tick = SimpleNamespace(t_s=1.0, next_info={"t_s": 1.1, "lane_offset_m": -0.5})
    for ahead_m, points in (([-20.0, 30.0], -0.15), ([-20.0, 12.0], 0.0), ([12.0, 4.0], -0.18), ([], -0.15)):
        monkeypatch.setattr(world, "cars", lambda ahead_m=ahead_m: np.array(ahead_m))
        assert world.reward(tick) == pytest.approx(points)
    assert world.last_reward(tick) == -sampled_drives.LOST_COST
    assert world.last_reward(SimpleNamespace(next_info={"t_s": sampled_drives.SECONDS})) == 0


def test_a_whole_lap_rewards_what_it_returns_beside_what_a_usual_one_does() -> None:
    learner = rl.Learner(load_policy("nac_steady_continuous.pt").network, options_of("-", whole_lap=True))
    assert learner.training is sampled_drives.LAPS["carracing"]
    road = [(0.0, 0.0, 7.0 * k, 0.0) for k in range(100)]
    inner = SimpleNamespace(track=road, tile_visited_count=0, road=[SimpleNamespace(road_visited=True)] * 100)
    world, points = sampled_drives.CarRacingLap(inner, "good"), 0.0
    for tiles in (10, 10, 50):
        inner.tile_visited_count, gained = tiles, tiles - inner.tile_visited_count
        points += world.reward(SimpleNamespace(reward=10.0 * gained - 5.0))
    lost = points + world.last_reward(None)
    inner.tile_visited_count = 100
    whole = points + world.reward(SimpleNamespace(reward=500.0 - 5.0)) + world.last_reward(None)
    usual = 1000 - sampled_drives.LAP_POINTS
    assert whole == pytest.approx(1000 - 20 - usual) and lost == pytest.approx(500 - 15 - usual)


def test_where_the_car_is_led_off_the_road_nothing_is_learnt() -> None:
    learner, drives = drives_of("nac_steady.pt", (3_700_002, "bad start", NOTHING))
    carried_out = np.array(drives[0].carried_out)
    assert not carried_out[0] and (np.diff(carried_out.astype(int)) >= 0).all()
    losses = []
    for of_the_others in (0.0, 100.0):
        better = np.where(carried_out, 1.0, of_the_others).astype(np.float32)
        chunks = rl.cut([(drives[0], better)], learner.network.config.window)
        with torch.no_grad():
            losses.append(rl.policy_loss(learner.network, chunks, 0.5, learner.training.action_std)[0])
    assert chunks.counts.sum() == carried_out.sum() > 0 and losses[0] == losses[1]


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["nac_steady.pt", "--episodes", "2", "--warm", "1", "--workers", "0", "--iterations", "3", "--out"]
    rl.main([*words, str(tmp_path / "whole")])
    drive, left = rl.Sampler.drive, [1, 2, 3, 4]

    def stopped(self: rl.Sampler, job: tuple[int, str, CameraNoise]) -> rl.Trajectory:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return drive(self, job)

    with monkeypatch.context() as patch, pytest.raises(SystemExit, match=r"is kept in .*parts: the same command goes"):
        patch.setattr(rl.Sampler, "drive", stopped)
        rl.main([*words, str(tmp_path / "parts")])
    rl.main([*words, str(tmp_path / "parts")])
    one, other = (load_policy(tmp_path / out / "policy-3.pt") for out in ("whole", "parts"))
    weights, first = other.network.state_dict(), load_policy("nac_steady.pt").network.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in one.network.state_dict().items())
    assert not all(torch.equal(value, weights[name]) for name, value in first.items())
    assert one.meta["reinforced"] == other.meta["reinforced"]
    assert one.meta["reinforced"]["policy"] == "nac_steady.pt" and one.meta["reinforced"]["iteration"] == 3
    assert one.meta["reinforced"]["before"] == load_policy("nac_steady.pt").meta["reinforced"]
    assert [row["round"] for row in read_rows(tmp_path / "parts/metrics.jsonl")] == [0, 1, 2]
    assert "torch" in json.loads((tmp_path / "parts/run.json").read_text())["versions"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["own.pt"], "is of imitation: give one of carracing or udacity"),
        (["missing.pt"], "missing.pt"),
        (["nac_steady.pt", "--cameras", "1", "1", "0", "0", "0", "0"], "whose sum is 1"),
        (["nac_steady.pt", "--cameras", *["0.125"] * 8], "give up to 7 numbers from 0"),
        (["nac_steady.pt", "--cameras", "nan", "0", "0", "0", "0", "1"], "whose sum is 1"),
        (["nac_steady.pt", "--workers", "-1"], "--workers is -1: give 0 or more"),
        (["nac_steady.pt", "--episodes", "0"], "--episodes is 0: give 1 or more"),
        (["nac_steady.pt", "--temperature", "0"], "above 0"),
        ([UDACITY, "--whole-lap"], "is of udacity: give one of carracing."),
        (["nac_steady.pt", "--seed", "14"], "of the seeds 0 to 13"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    first = load_policy("nac_steady.pt")
    save_policy(Policy.new(replace(first.config, task="imitation")), tmp_path / "own.pt")
    with pytest.raises(SystemExit, match="2"):
        rl.main(["--iterations", "1", "--workers", "0", "--out", str(tmp_path / "out"), *words])
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_run_is_not_gone_on_with_by_other_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["nac_steady.pt", "--episodes", "1", "--warm", "1", "--workers", "0", "--out", str(tmp_path)]
    rl.main([*words, "--iterations", "1"])
    with pytest.raises(SystemExit, match="2"):
        rl.main([*words, "--iterations", "2"])
    assert "--iterations 1 instead of 2" in capsys.readouterr().err
