"""A camera with a rate of its own: decisions come with its frames, at true times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.common.options import Options
from nacdrive.common.paths import shipped
from nacdrive.drivers.base import Driver, Needs
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.camera_noise import Camera, CameraNoise, NoisyCamera
from nacdrive.envs.carracing.env import CarRacingEnv
from nacdrive.extras.hunt.config import HuntConfig
from nacdrive.rl.config import ExpertImitateConfig, ImitateConfig
from nacdrive.rollout.drive import Drive, LoadedDrive
from nacdrive.rollout.eval_config import EvalConfig
from nacdrive.rollout.record_config import RecordConfig
from nacdrive.rollout.train_config import TrainConfig


class OwnPace(DrivingEnv):
    """An environment whose decisions last as long as they last."""

    name, step_s = "mine", 0.1


def rates(noise: CameraNoise, seed: int, count: int = 300) -> np.ndarray:
    camera = Camera(noise)
    camera.reset(seed)
    return 1 / np.array([camera.wait_s() for _ in range(count)])


def test_it_is_drawn_for_each_episode_and_wanders_between_its_ends() -> None:
    noise = CameraNoise(rate=(5, 20))
    drawn = np.stack([rates(noise, seed) for seed in range(40)])
    assert drawn.min() >= 5 - 1e-9 and drawn.max() <= 20 + 1e-9
    assert np.ptp(drawn[:, 0]) > 10 and np.ptp(drawn[0]) > 3
    assert np.abs(np.diff(np.log(drawn))).max() < 0.5  # it wanders, and does not jump
    np.testing.assert_array_equal(drawn[3], rates(noise, 3))
    np.testing.assert_allclose(rates(CameraNoise(rate=(8, 8)), 0), 8)


class Asked(Driver):
    """Keeps what it is asked with, and accelerates."""

    def __init__(self, between_frames: bool) -> None:
        self._needs = Needs(repeat=4, between_frames=between_frames)
        self.times: list[float] = []
        self.blank: list[bool] = []

    @property
    def needs(self) -> Needs:
        return self._needs

    def act(self, frame: np.ndarray, info: Any) -> Action:
        self.times.append(info["t_s"])
        assert info.get("between_frames", False) is not bool(frame.any()) and info["clean_frame"].any()
        self.blank.append(not frame.any())
        return Action(0.0, 1.0, 0.0, 3)


def asked(between_frames: bool, camera: CameraNoise) -> tuple[list[float], list[bool], float]:
    """When, whether with a black frame, and what the drive returned."""
    driver = Asked(between_frames)
    drive = Drive(options={"renderer": "fast", "max_frames": 300}, camera=camera, expert=None, safety_stop=False)
    with LoadedDrive(drive, driver=driver).open(1) as opened:
        for tick in opened:
            last = tick
    return driver.times, driver.blank, last.episode_return


def test_who_decides_between_frames_is_asked_at_the_usual_pace_with_black_frames_until_the_next_one() -> None:
    held, seen, _ = asked(False, CameraNoise(rate=(5, 20)))
    times, blank, _ = asked(True, CameraNoise(rate=(5, 20)))
    assert not any(seen) and max(np.diff(held)) > 0.15
    np.testing.assert_allclose([t for t, b in zip(times, blank, strict=True) if not b], held)
    assert any(blank) and max(np.diff(times)) < 0.0801
    # Of a decision in between, the next is never earlier than the usual pace or the next frame.
    for k in np.flatnonzero(blank):
        assert times[k] - times[k - 1] == pytest.approx(0.08)


@pytest.mark.parametrize(("name", "decides"), [("nac_steady", True), ("nac_steady_continuous", False)])
def test_of_the_shipped_policies_those_decide_between_frames_whose_config_says_so(name: str, decides: bool) -> None:
    model, slow = shipped("agents") / "carracing" / f"{name}.pt", CameraNoise(rate=(5, 5))
    drive = Drive(model=model, options={"renderer": "fast", "max_frames": 60}, camera=slow)
    with drive.open(1) as opened:
        assert {bool(tick.info.get("between_frames")) for tick in opened} == ({False, True} if decides else {False})


def test_deciding_between_frames_changes_nothing_where_they_come_at_the_usual_pace_or_faster_or_late() -> None:
    for camera in (
        CameraNoise(noise=0.1),
        CameraNoise(rate=(12.5, 20)),
        CameraNoise(rate=(5, 20), dropped=0.3, late=1),
    ):
        assert asked(True, camera) == asked(False, camera)


@pytest.mark.parametrize("delay", [0, 2])
def test_who_decides_between_frames_sees_a_black_one_in_the_place_of_each_that_is_lost(delay: int) -> None:
    camera = CameraNoise(dropped=0.3, delay_steps=delay)
    times, blank, _ = asked(True, camera)
    held, seen, _ = asked(False, camera)
    assert times == held and not any(seen) and 0.2 < np.mean(blank) < 0.4
    frames = [NoisyCamera(CarRacingEnv(renderer="fast", repeat=4), camera, between) for between in (False, True)]
    start_s, _ = (env.reset(seed=1)[1]["t_s"] for env in frames)
    for _ in range(40):
        (plain, *_, info), (black, *_, other) = (env.step(3) for env in frames)
        due_s = max(start_s, info["t_s"] - 0.08 * delay)
        is_lost = info["frame_t_s"] < due_s - 0.01
        assert other.get("between_frames", False) is is_lost
        np.testing.assert_array_equal(black, 0 if is_lost else plain)
        # Of a lost one the time when it was due, so that a policy's clock goes on evenly.
        assert other["frame_t_s"] == pytest.approx(due_s)


def test_a_decision_is_held_until_the_next_frame_and_both_are_told_the_true_time() -> None:
    env = NoisyCamera(CarRacingEnv(renderer="fast", repeat=4, max_frames=200), CameraNoise(rate=(5, 20)))
    _, info = env.reset(seed=1)
    times, done = [info["t_s"]], False
    while not done:
        _, _, terminated, truncated, info = env.step(3)
        done = terminated or truncated
        times.append(info["t_s"])
    gaps = np.diff(times)[:-1]
    assert set(np.rint(gaps * 50)) <= set(range(2, 12)) and len(set(np.rint(gaps * 50))) > 1
    assert np.abs(gaps * 50 - np.rint(gaps * 50)).max() < 1e-6
    env.camera.change(CameraNoise())
    start = env.reset(seed=1)[1]["t_s"]
    assert env.step(3)[-1]["t_s"] == pytest.approx(start + 0.08)  # its usual pace again


def test_a_rate_that_simulated_frames_do_not_divide_is_kept_on_average() -> None:
    env = NoisyCamera(CarRacingEnv(renderer="fast", repeat=4, max_frames=200), CameraNoise(rate=(15, 15)))
    times = [env.reset(seed=1)[1]["t_s"], *(env.step(3)[-1]["t_s"] for _ in range(30))]
    # 3 1/3 of 50 frames a second.
    assert set(np.rint(np.diff(times) * 50)) == {3, 4}
    assert times[-1] - times[0] == pytest.approx(30 / 15)


def test_an_episode_begins_with_a_frame_whatever_was_waited_for_in_the_one_before() -> None:
    env = NoisyCamera(CarRacingEnv(renderer="fast", repeat=4, max_frames=200), CameraNoise(rate=(6, 6)), True)

    def drive() -> list[tuple[float, bool]]:
        infos = [env.reset(seed=1)[1], *(env.step(3)[-1] for _ in range(4))]
        return [(info["t_s"], "between_frames" in info) for info in infos]

    first = drive()
    assert not first[0][1] and first[-1][1], "left while the next frame is waited for"
    assert drive() == first


def test_the_rate_leaves_other_disturbances_as_they_are() -> None:
    frame = np.full((8, 8, 3), 128, np.uint8)
    shown = []
    for rate in (None, (5.0, 20.0)):
        camera = Camera(CameraNoise(noise=0.1, blackout=0.3, dropped=0.3, late=2, rate=rate))
        camera.reset(3)
        shown.append([(camera(frame, 0.1 * k).copy(), camera.taken_s, camera.wait_s())[:2] for k in range(20)])
    for one, other in zip(*shown, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        assert one[1] == other[1]


@pytest.mark.parametrize("rate", [(20.0, 5.0), (0.0, 5.0), (5.0, float("nan")), (5,), 7, ("x", 5)])
def test_a_rate_that_no_camera_has_is_refused(rate: tuple[float, float]) -> None:
    with pytest.raises(UserError, match="--rate"):
        CameraNoise(rate=rate)


def test_a_rate_that_the_environment_cannot_give_is_refused_in_one_sentence() -> None:
    with pytest.raises(UserError, match="goes up to 60, and carracing has 50 frames a second"):
        Drive(driver="constant", camera=CameraNoise(rate=(5, 60))).open(0)
    with pytest.raises(UserError, match="leave one of them out"):
        Drive(expert="ppo", camera=CameraNoise(rate=(5, 20)), every_frame=True).open(0)
    with pytest.raises(UserError, match="mine has its own: leave it out"):
        NoisyCamera(OwnPace(), CameraNoise(rate=(5, 20)))


@pytest.mark.parametrize("config", [EvalConfig, RecordConfig, HuntConfig, ExpertImitateConfig, TrainConfig])
def test_every_verb_refuses_such_a_rate_before_it_begins(config: type[Options]) -> None:
    learning: dict[str, Any] = {"dagger": 1, "task": "carracing"} if config is TrainConfig else {}
    with pytest.raises(UserError, match="--rate goes up to 60, and carracing has 50 frames a second"):
        config(disturbance=CameraNoise(rate=(5, 60)), **learning)


def test_a_drive_keeps_its_rate_in_its_file() -> None:
    drive = Drive(camera=CameraNoise(rate=(5, 20), late=2))
    assert Drive.from_json(drive.to_json()) == drive
    assert str(drive.camera) == "frames up to 2 decisions late, 5 to 20 frames a second"


def test_drives_that_are_learnt_from_draw_at_most_what_is_given() -> None:
    most = CameraNoise(noise=0.1, delay_steps=2, brightness=0.5, blackout=0.2, blackout_steps=4, rate=(5, 20))
    drawn = [most.draw(np.random.default_rng(seed)) for seed in range(200)]
    assert all(0 <= one.noise <= 0.1 and 0.5 <= one.brightness <= 1 and one.late == 0 for one in drawn)
    assert {one.delay_steps for one in drawn} == {0, 1, 2} and {one.blackout_steps for one in drawn} == {1, 2, 3, 4}
    assert np.mean([one.rate == (5, 20) for one in drawn]) == pytest.approx(1 / 3, abs=0.1)
    assert np.mean([one.noise > 0 for one in drawn]) == pytest.approx(1 / 3, abs=0.1)
    assert most.draw(np.random.default_rng(7)) == drawn[7]
    assert not CameraNoise().draw(np.random.default_rng(0)).active
    with pytest.raises(UserError, match="--vary-camera"):
        ImitateConfig(vary_camera=True)
