from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from gymnasium import Env, spaces
from stable_baselines3 import A2C, PPO

from nacdrive.common.errors import UserError
from nacdrive.common.paths import shipped
from nacdrive.drivers import load_expert
from nacdrive.rl.sb3 import export, load_sb3
from nacdrive.rl.train import SB3, train
from tests.helpers.expert_cases import tiny

SHIPPED = shipped("agents") / "carracing" / "ppo"


class Other(Env):
    """An environment with any spaces."""

    def __init__(self, seen: spaces.Space, actions: spaces.Space) -> None:
        self.observation_space, self.action_space = seen, actions


def stacks(count: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (count, 4, 48, 48), dtype=np.uint8)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    train(tiny(timesteps=256), folder)
    return folder


def test_exported_policy_acts_as_the_sb3_model(run: Path, tmp_path: Path) -> None:
    expert = load_expert(export(run / SB3, tmp_path / "p.pt"))
    theirs, _ = PPO.load(run / SB3).predict(stacks(128), deterministic=True)
    np.testing.assert_array_equal(expert.logits(stacks(128)).argmax(1), theirs)  # type: ignore[attr-defined]
    assert expert.repeat == 4


def test_zip_acts_as_the_best_policy_of_its_run(run: Path) -> None:
    theirs, _ = PPO.load(run / SB3).predict(stacks(128), deterministic=True)
    np.testing.assert_array_equal(load_expert(run / "best.pt").logits(stacks(128)).argmax(1), theirs)  # type: ignore[attr-defined]


@pytest.mark.skipif(not (SHIPPED / "ppo.zip").exists(), reason="the SB3 model is not shipped in a wheel")
def test_shipped_policy_acts_as_the_shipped_sb3_model() -> None:
    theirs, _ = load_sb3(SHIPPED / "ppo.zip").predict(stacks(256), deterministic=True)
    ours = load_expert("ppo").logits(stacks(256)).argmax(1)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(ours, theirs)


def test_file_that_is_no_zip_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"no zip")
    with pytest.raises(UserError, match="no model of stable-baselines3"):
        load_sb3(tmp_path / "a.zip")


def test_zip_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(UserError, match="no model of stable-baselines3"):
        load_sb3(tmp_path / "a.zip")


def test_model_of_another_environment_is_refused(tmp_path: Path) -> None:
    PPO("MlpPolicy", Other(spaces.Box(-1, 1, (4,)), spaces.Discrete(2))).save(tmp_path / "a.zip")
    with pytest.raises(UserError, match="another environment"):
        load_sb3(tmp_path / "a.zip")


def test_model_of_another_action_space_is_refused(tmp_path: Path) -> None:
    seen = spaces.Box(0, 255, (4, 48, 48), np.uint8)
    PPO("CnnPolicy", Other(seen, spaces.Discrete(7)), n_steps=8).save(tmp_path / "a.zip")
    with pytest.raises(UserError, match="action space"):
        load_sb3(tmp_path / "a.zip")


def test_model_of_another_network_is_refused(tmp_path: Path) -> None:
    seen = spaces.Box(0, 255, (4, 48, 48), np.uint8)
    PPO("CnnPolicy", Other(seen, spaces.Discrete(5)), n_steps=8).save(tmp_path / "a.zip")
    with pytest.raises(UserError, match="network is not the one"):
        export(tmp_path / "a.zip", tmp_path / "p.pt")


def test_model_of_another_algorithm_is_refused(tmp_path: Path) -> None:
    seen = spaces.Box(0, 255, (4, 48, 48), np.uint8)
    A2C("CnnPolicy", Other(seen, spaces.Discrete(5))).save(tmp_path / "a.zip")
    with pytest.raises(UserError):
        export(tmp_path / "a.zip", tmp_path / "p.pt")
    assert not (tmp_path / "p.pt").exists()
