"""A monitor tells the risk of what a policy does, says so once per event, and may take speed away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from nacdrive.cli.drive import DriveConfig
from nacdrive.cli.eval import EvalConfig
from nacdrive.common.errors import UserError
from nacdrive.drivers.monitor import Monitor, monitor_file, with_monitor
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.drivers.safety_stop import SafetyStop
from nacdrive.drivers.speed_control import ALARMED, CALM, LEAST_SHARE, SpeedControl, SpeedController, share_of_speed
from nacdrive.envs.base import DrivingEnv
from nacdrive.models import Policy, save_policy
from nacdrive.models.failure import FailureConfig, FailurePredictor, RiskMeter, load_monitor, save_monitor
from tests.helpers.small_policies import small_policy, smooth_frames


class Road(DrivingEnv):
    name, step_s = "road", 0.08
    action_space = spaces.Box(-1, 1, (2,), np.float32)


def predictor_for(policy: Policy, **given: Any) -> FailurePredictor:
    """One whose logit goes up with the speed alone: 0 at 10 m/s, 1 more for each m/s."""
    seen = policy.network.sequence.d_model
    features = policy.network.features(torch.zeros(1, policy.config.height, policy.config.width, 3)).shape[1]
    predictor = FailurePredictor(FailureConfig(features, seen, components=4, hidden=8, **given))
    with torch.no_grad():
        for weight in predictor.parameters():
            weight.zero_()
        predictor.layers[1].weight[0, -2] = 0.1
        predictor.layers[1].bias[0] = 1.0
        predictor.layers[4].weight[0, 0] = 10.0
        predictor.layers[4].bias[0] = -20.0
        predictor.input_scale[-2] = 1.0
        predictor.input_mean[-2] = 0.0
        # Away from the edge at which inputs are cut off.
        predictor.input_scale[-2], predictor.layers[1].weight[0, -2] = 0.1, 1.0
    return predictor


@pytest.fixture
def policy() -> Policy:
    return small_policy("nac-steady-steers")


def drive(driver: Any, policy: Policy, speeds: list[float]) -> list[Any]:
    """Risk and events of each decision, 0.08 s apart."""
    frames, _ = smooth_frames(policy, len(speeds))
    driver.reset(Road())
    found = []
    for k, speed in enumerate(speeds):
        driver.act(frames[k], {"t_s": 0.08 * k, "speed_mps": speed})
        found.append((driver.risk, driver.take_events()))
    return found


def test_it_warns_once_per_event_and_changes_no_decision(policy: Policy) -> None:
    monitor = SafetyStop(Monitor(PolicyDriver(policy), predictor_for(policy)))
    speeds = [8.0] * 5 + [12.0] * 5 + [8.0] * 5 + [12.0] * 5 + [8.0] * 15 + [12.0]
    told = drive(monitor, policy, speeds)
    assert [risk > 0.5 for risk, _ in told] == [speed > 10 for speed in speeds]
    # A second calm is too short for another event, more than a second is not.
    assert [k for k, (_, events) in enumerate(told) if events] == [5, 35]
    assert told[5][1] == ("may leave the road (risk 0.88)",)
    alone = PolicyDriver(small_policy("nac-steady-steers"))
    alone.reset(Road())
    watched = Monitor(PolicyDriver(policy), predictor_for(policy))
    watched.reset(Road())
    frames, _ = smooth_frames(policy, 6)
    for k, frame in enumerate(frames):
        info: Any = {"t_s": 0.08 * k, "speed_mps": 9.0}
        assert watched.act(frame, info) == alone.act(frame, info)


def test_the_threshold_is_where_the_risk_is_a_half_and_logits_may_be_averaged(policy: Policy) -> None:
    shifted = Monitor(PolicyDriver(policy), predictor_for(policy, threshold=2.0))
    assert drive(shifted, policy, [12.0])[0][0] == pytest.approx(0.5, abs=1e-4)
    slow = Monitor(PolicyDriver(policy), predictor_for(policy, smoothing_s=0.4))
    risks = [risk for risk, _ in drive(slow, policy, [9.0] * 3 + [11.0] * 30)]
    assert risks[2] < risks[3] < 0.5 < risks[-1]


def test_speed_goes_down_as_the_risk_grows(policy: Policy) -> None:
    assert [share_of_speed(risk) for risk in (None, 0.0, CALM)] == [1.0, 1.0, 1.0]
    assert share_of_speed(ALARMED) == share_of_speed(1.0) == pytest.approx(LEAST_SHARE)
    assert LEAST_SHARE < share_of_speed(0.5) < 1
    throttles = {}
    for slow_down in (False, True):
        watched = Monitor(PolicyDriver(policy), predictor_for(policy))
        driver = SpeedControl(watched, SpeedController(13.0, bend=0.0), slow_down=slow_down)
        driver.reset(Road())
        frame = smooth_frames(policy, 1)[0][0]
        throttles[slow_down] = driver.act(frame, {"t_s": 0.0, "speed_mps": 12.5})
    assert throttles[False].throttle > 0 and throttles[False].brake == 0
    assert throttles[True].throttle == 0 and throttles[True].brake > 0
    assert throttles[True].steering == throttles[False].steering


def test_a_monitor_goes_with_its_policy_and_no_other(policy: Policy, tmp_path: Path) -> None:
    model = tmp_path / "mine.pt"
    save_policy(policy, model)
    driver = PolicyDriver(policy)
    assert with_monitor(driver, model, None) is driver, "none asked for"
    with pytest.raises(UserError, match=r"^mine\.pt has no monitor .*nacdrive monitor"):
        with_monitor(driver, model, "slow")
    kept = predictor_for(policy, threshold=0.5)
    save_monitor(kept, monitor_file(model), policy, {"seed": 1})
    watched = with_monitor(driver, model, "show")
    assert isinstance(watched, Monitor)
    assert with_monitor(driver, model, "off") is driver
    again = load_monitor(monitor_file(model), policy)
    assert again.config == kept.config
    for name, value in again.state_dict().items():
        assert torch.allclose(value, kept.state_dict()[name], atol=1e-3)
    other = PolicyDriver(small_policy("nac-euler-steers"))
    with pytest.raises(UserError, match="was fitted to another policy"):
        with_monitor(other, model, "show")
    monitor_file(model).write_bytes(monitor_file(model).read_bytes()[:400])
    with pytest.raises(UserError, match="cannot be read"):
        with_monitor(driver, model, "show")


@pytest.mark.parametrize("config", [DriveConfig, EvalConfig])
def test_where_no_speed_is_kept_or_no_policy_drives_a_monitor_is_refused(config: Any) -> None:
    with pytest.raises(UserError, match="--monitor is for udacity-track and udacity, and"):
        config(env="carracing", monitor="slow")
    with pytest.raises(UserError, match="--monitor looks into a policy"):
        config(env="udacity-track", driver="geometric", monitor="show")
    assert config(env="udacity-track", monitor="slow").monitor == "slow"


def test_a_held_decision_keeps_its_risk(policy: Policy) -> None:
    paced = Monitor(PolicyDriver(policy, pace_s=0.2), predictor_for(policy))
    told = drive(paced, policy, [8.0, 12.0, 12.0, 12.0])
    assert told[0][0] == told[1][0] < 0.5 < told[3][0]


def test_the_meter_forgets_the_episode_before(policy: Policy) -> None:
    meter = RiskMeter(predictor_for(policy, smoothing_s=0.4))
    frame = smooth_frames(policy, 1)[0][0]
    policy.reset()
    policy.step(frame, 0.0)
    first = meter(policy, 0.0, 0.0, 8.0, 0.0)
    assert meter(policy, 0.0, 0.08, 12.0, 0.0) < 0.88
    meter.reset()
    assert meter(policy, 0.0, 0.0, 8.0, 0.0) == first
    assert replace(meter.predictor.config, threshold=1.0).inputs == 18
