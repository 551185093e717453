"""Between nacdrive's policies and stable-baselines3: the features extractor, and the export of a zip."""

from __future__ import annotations

import json
import pickle
import sys
import zipfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor

from nacdrive.common.errors import UserError
from nacdrive.drivers import ppo_network
from nacdrive.drivers.ppo_network import FEATURES, SIDE, STACK, PolicyNet, Vision, actor_tensors, save_policy
from nacdrive.rl import config, training_env, vec_env


class VisionExtractor(BaseFeaturesExtractor):
    """``Vision`` where stable-baselines3 expects a features extractor; it scales the bytes to [0, 1] itself."""

    def __init__(self, observation_space: spaces.Box) -> None:
        super().__init__(observation_space, FEATURES)
        self.vision = Vision()

    def forward(self, observations: Tensor) -> Tensor:
        """[N, 4, 48, 48] float in [0, 1] -> [N, 256]."""
        features: Tensor = self.vision(observations)
        return features


OLD_MODULES = {
    "nacdrive.experts": sys.modules[__package__],
    "nacdrive.experts.sb3_policy": sys.modules[__name__],
    "nacdrive.experts.ppo_config": config,
    "nacdrive.experts.network": ppo_network,
    "nacdrive.experts.training_lap": training_env,
    "nacdrive.experts.workers": vec_env,
}
"""Where zips of older versions, the shipped one among them, look for what they pickled."""


def load_sb3(path: Path) -> PPO:
    """Read a PPO model that ``nacdrive expert train`` saved.

    stable-baselines3 unpickles what the zip holds: only read files you trust.

    Raises:
        UserError: for a file that is missing or no stable-baselines3 model, another environment or action space.
    """
    if not path.is_file():
        raise UserError(f"{path} does not exist: check the path.")
    about = sb3_about(path)
    seen = getattr(about.get("observation_space"), "get", lambda _: None)("_shape") or []
    if list(seen) != [STACK, SIDE, SIDE]:
        raise UserError(
            f"{path} was trained on another environment: it sees {list(seen)}, "
            f"and the expert for CarRacing sees {[STACK, SIDE, SIDE]}."
        )
    for name, module in OLD_MODULES.items():
        sys.modules.setdefault(name, module)
    try:
        model = PPO.load(path, device="cpu")
    except (
        pickle.UnpicklingError,
        RuntimeError,
        KeyError,
        ValueError,
        AttributeError,
        TypeError,
        ImportError,
    ) as error:
        raise UserError(f"{path} is no PPO model that 'nacdrive expert train' saved ({error}).") from error
    space = model.action_space
    discrete = isinstance(space, gymnasium.spaces.Discrete) and space.n == 5
    if not discrete and not (isinstance(space, gymnasium.spaces.Box) and space.shape == (2,)):
        raise UserError(f"{path} has the action space {space}: nacdrive knows Discrete(5) and (steering, pedal).")
    return model


def sb3_about(path: Path) -> dict[str, Any]:
    """What a stable-baselines3 zip says of itself, read without unpickling anything."""
    try:
        with zipfile.ZipFile(path) as archive:
            if not {"data", "policy.pth"} <= set(archive.namelist()):
                raise UserError(f"{path} is a zip, but no model of stable-baselines3.")
            data: dict[str, Any] = json.loads(archive.read("data"))
    except (zipfile.BadZipFile, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is no model of stable-baselines3: its models are zip files.") from error
    return data


def to_net(model: PPO) -> PolicyNet:
    """The actor of ``model`` as nacdrive's own network; equal actions (tested)."""
    discrete = isinstance(model.action_space, gymnasium.spaces.Discrete)
    net = PolicyNet(outputs=5 if discrete else 2)
    tensors = actor_tensors(model.policy)
    if set(tensors) != set(net.state_dict()):
        raise UserError("the model's network is not the one of 'nacdrive expert train': it cannot be exported.")
    net.load_state_dict(tensors)
    return net.eval()


def export(source: Path, target: Path, about: dict[str, Any] | None = None) -> Path:
    """Write the policy of the zip ``source`` to ``target``."""
    model = load_sb3(source)
    net = to_net(model)
    known = {
        "env": "CarRacing-v3",
        "actions": "discrete" if net.head.out_features == 5 else "continuous",
        "repeat": getattr(model, "nacdrive_repeat", 4),
        "decisions": model.num_timesteps,
    }
    check_equal(model, net)
    save_policy(target, net, known | (about or {}))
    return target


def check_equal(model: PPO, net: PolicyNet, samples: int = 256) -> None:
    """Refuse an export whose actions differ from stable-baselines3's."""
    stacks = np.random.default_rng(0).integers(0, 256, (samples, STACK, SIDE, SIDE), dtype=np.uint8)
    theirs, _ = model.predict(stacks, deterministic=True)
    with torch.inference_mode():
        ours = net(torch.from_numpy(stacks)).numpy()
    same = (
        (ours.argmax(1) == theirs).mean()
        if net.head.out_features == 5
        else np.isclose(ours.clip(-1, 1), theirs, atol=1e-4).all(axis=1).mean()
    )
    # Two logits may lie within rounding of each other on noise.
    if same < 0.99:
        raise UserError(f"the export chooses the model's action in {same:.1%} of {samples} cases only: not written.")
