"""The network of a PPO agent: 154k parameters that see the last four small frames, and a memory if it has one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nacdrive.common.errors import UserError, first_line, quoted
from nacdrive.common.plugins import check_trusted
from nacdrive.common.tensor_file import json_object, read_tensor_file, write_tensor_file
from nacdrive.envs.registry import ENVIRONMENTS
from nacdrive.models.agents import cockpit
from nacdrive.models.agents.cockpit import CockpitNet
from nacdrive.models.agents.memory import Actor, Memory, MemorySpec
from nacdrive.models.agents.nature import NatureNet, rename
from nacdrive.models.agents.view import SIDE, STACK, View
from nacdrive.models.agents.view import FrameStack as FrameStack
from nacdrive.models.driving import convolutions

CARRACING = "CarRacing-v3"
"""What files of agents of CarRacing say as their environment; others say what ``--env`` takes."""
FEATURES = 256


class Vision(nn.Module):
    """Stacked grey frames in [0, 1], [N, 4, 48, 48] -> features [N, 256]."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(*convolutions(STACK, (16, 8, 4), (32, 4, 2), (32, 3, 1, 1)), nn.Flatten())
        side = ((SIDE - 8) // 4 + 1 - 4) // 2 + 1
        self.dense = nn.Sequential(nn.Linear(32 * side * side, FEATURES), nn.ReLU())

    def forward(self, stacks: Tensor) -> Tensor:
        features: Tensor = self.dense(self.convolutions(stacks.contiguous(memory_format=torch.channels_last)))
        return features


class PolicyNet(Actor):
    """The actor alone: uint8 stacks -> scores of the actions, or (steering, pedal) of a continuous agent."""

    def __init__(self, outputs: int = 5, memory: MemorySpec | None = None) -> None:
        super().__init__()
        self.vision = Vision()
        self.memory = Memory(memory, FEATURES) if memory is not None else None
        self.head = nn.Linear(FEATURES if self.memory is None else self.memory.out_features, outputs)

    def features(self, stacks: Tensor) -> Tensor:
        """Uint8 [N, 4, 48, 48] -> float32 [N, 256]."""
        features: Tensor = self.vision(stacks.float() / 255.0)
        return features


KIND = "nacdrive ppo policy"
VERSION = 1
NAMES = {"features_extractor.vision.": "vision.", "memory.": "memory.", "action_net.": "head."}


def actor_tensors(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The actor's tensors in the ``state_dict`` of a stable-baselines3 policy, under the names of ``PolicyNet``."""
    return rename(state, NAMES)


def sb3_name(name: str) -> str:
    """What stable-baselines3 calls the tensor ``name`` of ``PolicyNet``."""
    theirs, ours = next(pair for pair in NAMES.items() if name.startswith(pair[1]))
    return theirs + name.removeprefix(ours)


def save_policy(path: Path, net: PolicyNet | NatureNet | CockpitNet, about: dict[str, Any]) -> None:
    """Write the policy and what is known about it (JSON), atomically."""
    write_tensor_file(path, KIND, VERSION, {"about": json.dumps(about)}, net.state_dict())


def load_policy(path: Path, device: str = "cpu") -> tuple[Any, dict[str, Any]]:
    """Read a policy: its network in evaluation mode, and what is known of it; ``UserError`` for any other file."""
    advice = "train an expert with 'nacdrive expert train', or export it anew with 'nacdrive expert export'"
    content = read_tensor_file(path, KIND, VERSION, device=device, advice=advice)
    kinds = (KeyError, ValueError, TypeError, RuntimeError)
    with quoted(f"{path} does not fit the expert's network (", f"): {advice}.", *kinds, say=first_line):
        about = json_object(content, "about")
        env = str(about["env"])
        check_trusted(path, env, about.get("memory"))
        if env != CARRACING and ":" not in env and env not in ENVIRONMENTS:
            raise UserError(f"{path} was trained on {env}, not on {CARRACING} or what else this nacdrive knows.")
        memory = MemorySpec(**about["memory"]) if about.get("memory") else None
        outputs = int(about.get("outputs") or (2 if about["actions"] == "continuous" else 5))
        net: PolicyNet | NatureNet | CockpitNet = PolicyNet(outputs, memory)
        if "network" in about:
            sizes, view = dict(about["network"]), View(**about["view"])
            if sizes.pop("kind") == cockpit.KIND:
                net = CockpitNet(view, outputs, memory=memory, **sizes)
            else:
                net = NatureNet(view, outputs, **sizes)
        net.load_state_dict(content["tensors"])
    return net.to(device).to(memory_format=torch.channels_last).eval(), about  # type: ignore[call-overload]
