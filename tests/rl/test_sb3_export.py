from __future__ import annotations

import base64
import io
import json
import zipfile
from pathlib import Path

import cloudpickle
import cv2
import numpy as np
import pytest
import torch
from gymnasium import Env, spaces
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.policies import ActorCriticCnnPolicy

from nacdrive.common.errors import UserError
from nacdrive.common.paths import shipped
from nacdrive.drivers import load_expert
from nacdrive.rl.sb3 import VisionExtractor, export, read_sb3, to_net
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
    train(tiny(timesteps=128), folder)
    return folder


def test_exported_policy_acts_as_the_sb3_model(run: Path, tmp_path: Path) -> None:
    expert = load_expert(export(run / SB3, tmp_path / "p.pt"))
    theirs, _ = PPO.load(run / SB3).predict(stacks(128), deterministic=True)
    np.testing.assert_array_equal(expert.logits(stacks(128)).argmax(1), theirs)  # type: ignore[attr-defined]
    assert expert.repeat == 4
    with pytest.raises(UserError, match="holds its actions for 4 frames: leave out --repeat 9"):
        export(run / SB3, tmp_path / "p.pt", repeat=9)


def test_zip_acts_as_the_best_policy_of_its_run(run: Path) -> None:
    theirs, _ = PPO.load(run / SB3).predict(stacks(128), deterministic=True)
    np.testing.assert_array_equal(load_expert(run / "best.pt").logits(stacks(128)).argmax(1), theirs)  # type: ignore[attr-defined]


@pytest.mark.skipif(not (SHIPPED / "ppo.zip").exists(), reason="the SB3 model is not shipped in a wheel")
def test_shipped_policy_acts_as_the_shipped_sb3_model() -> None:
    zipped = read_sb3(SHIPPED / "ppo.zip")
    seen = spaces.Box(0, 255, zipped.observation_shape, dtype=np.uint8)
    own = {"net_arch": [], "features_extractor_class": VisionExtractor}
    policy = ActorCriticCnnPolicy(seen, zipped.actions, lambda _: 0.0, **own)
    policy.load_state_dict(zipped.tensors)
    theirs, _ = policy.predict(stacks(256), deterministic=True)
    ours = load_expert("ppo").logits(stacks(256)).argmax(1)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(ours, theirs)


def test_file_that_is_no_zip_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"no zip")
    with pytest.raises(UserError, match="no model of stable-baselines3"):
        read_sb3(tmp_path / "a.zip")


def test_zip_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(UserError, match="no model of stable-baselines3"):
        read_sb3(tmp_path / "a.zip")


def test_model_of_another_environment_is_refused(tmp_path: Path) -> None:
    PPO("MlpPolicy", Other(spaces.Box(-1, 1, (4,)), spaces.Discrete(2))).save(tmp_path / "a.zip")
    with pytest.raises(UserError, match="another environment"):
        to_net(read_sb3(tmp_path / "a.zip"))


def test_model_of_another_action_space_is_refused(tmp_path: Path) -> None:
    seen = spaces.Box(0, 255, (4, 48, 48), np.uint8)
    PPO("CnnPolicy", Other(seen, spaces.Discrete(7)), n_steps=64).save(tmp_path / "a.zip")
    with pytest.raises(UserError, match="action space"):
        to_net(read_sb3(tmp_path / "a.zip"))


def test_model_of_another_network_is_refused(tmp_path: Path) -> None:
    seen = spaces.Box(0, 255, (4, 48, 48), np.uint8)
    PPO("MlpPolicy", Other(seen, spaces.Discrete(5)), n_steps=64).save(tmp_path / "a.zip")
    with pytest.raises(UserError, match="network is not the one of CnnPolicy"):
        export(tmp_path / "a.zip", tmp_path / "p.pt")


def test_model_of_another_algorithm_is_refused(tmp_path: Path) -> None:
    seen = spaces.Box(0, 255, (4, 48, 48), np.uint8)
    A2C("CnnPolicy", Other(seen, spaces.Discrete(5))).save(tmp_path / "a.zip")
    with pytest.raises(UserError):
        export(tmp_path / "a.zip", tmp_path / "p.pt")
    assert not (tmp_path / "p.pt").exists()
    with pytest.raises(UserError, match="another algorithm than PPO"):
        read_sb3(tmp_path / "a.zip")


def frames(count: int) -> np.ndarray:
    return np.random.default_rng(2).integers(0, 256, (count, 96, 96, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("actions", "shape", "kwargs"),
    [
        (spaces.Discrete(5), (2, 64, 64), {}),
        (spaces.Box(np.array([-1, 0, 0], np.float32), 1.0), (3, 96, 96), {"net_arch": [32, 16]}),
    ],
)
def test_an_agent_of_another_acts_on_frames_as_in_stable_baselines3(
    actions: spaces.Space, shape: tuple, kwargs: dict, tmp_path: Path
) -> None:
    seen = spaces.Box(0, 255, shape, np.uint8)
    model = PPO("CnnPolicy", Other(seen, actions), n_steps=64, policy_kwargs=kwargs)
    model.save(tmp_path / "a.zip")
    with pytest.raises(UserError, match="give --repeat"):
        export(tmp_path / "a.zip", tmp_path / "p.pt")
    expert = load_expert(export(tmp_path / "a.zip", tmp_path / "p.pt", repeat=2), discrete_only=False)
    assert expert.repeat == 2 and expert.continuous == isinstance(actions, spaces.Box)
    expert.reset()
    stack = np.zeros(shape, np.uint8)
    for frame in frames(3):
        if shape[0] == 3:
            stack = np.moveaxis(frame, 2, 0)
        else:
            # VecFrameStack: the frames before the first are black.
            small = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
            stack = np.stack([stack[1], cv2.resize(small, (64, 64), interpolation=cv2.INTER_AREA)])
        theirs, _ = model.predict(stack, deterministic=True)
        action = expert.act(frame)
        ours = [action.steering, action.throttle, action.brake] if expert.continuous else action.choice
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


class Tripwire:
    """Whoever unpickles it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


def test_nothing_of_a_zip_is_unpickled(run: Path, tmp_path: Path) -> None:
    trap = base64.b64encode(cloudpickle.dumps(Tripwire(tmp_path / "sprung"))).decode()
    weights = io.BytesIO()
    torch.save({"a": torch.zeros(1), "b": Tripwire(tmp_path / "sprung")}, weights)
    with zipfile.ZipFile(run / SB3) as theirs:
        data = json.loads(theirs.read("data"))
        good = theirs.read("policy.pth")
    for value in data.values():
        if isinstance(value, dict) and ":serialized:" in value:
            value[":serialized:"] = trap
    for name, held in (("good.zip", good), ("bad.zip", weights.getvalue())):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("data", json.dumps(data))
            archive.writestr("policy.pth", held)
    export(tmp_path / "good.zip", tmp_path / "p.pt")
    with pytest.raises(UserError, match="weights are damaged, or more than tensors"):
        export(tmp_path / "bad.zip", tmp_path / "q.pt")
    assert not (tmp_path / "sprung").exists() and not (tmp_path / "q.pt").exists()
