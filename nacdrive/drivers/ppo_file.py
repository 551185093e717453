"""The exported expert: tensors and a plain config in one file, loaded without unpickling anything."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import torch

from nacdrive.common.errors import UserError
from nacdrive.common.files import atomic_path
from nacdrive.drivers.ppo_network import PolicyNet

KIND = "nacdrive ppo policy"
VERSION = 1
NAMES = {"features_extractor.vision.": "vision.", "action_net.": "head."}


def actor_tensors(policy: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The actor's tensors of a stable-baselines3 policy under the names of ``PolicyNet``."""
    found = {}
    for name, value in policy.state_dict().items():
        for theirs, ours in NAMES.items():
            if name.startswith(theirs):
                found[ours + name.removeprefix(theirs)] = value
    return found


def sb3_name(name: str) -> str:
    """What stable-baselines3 calls the tensor ``name`` of ``PolicyNet``."""
    theirs, ours = next(pair for pair in NAMES.items() if name.startswith(pair[1]))
    return theirs + name.removeprefix(ours)


def save_policy(path: Path, net: PolicyNet, about: dict[str, Any]) -> None:
    """Write the policy and what is known about it (JSON), atomically."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in net.state_dict().items()}
    content = {"kind": KIND, "version": VERSION, "about": json.dumps(about), "tensors": tensors}
    with atomic_path(path) as partial:
        torch.save(content, partial)


def load_policy(path: Path, device: str = "cpu") -> tuple[PolicyNet, dict[str, Any]]:
    """Read a policy; returns the network in evaluation mode and what is known about it.

    Raises:
        UserError: if the file is missing, damaged, another kind of file or of another environment.
    """
    if not path.is_file():
        raise UserError(f"{path} does not exist: train an expert with 'nacdrive expert train', or check the path.")
    try:
        content = torch.load(path, map_location=device, weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise UserError(f"{path} is no exported policy, or it is damaged.") from error
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise UserError(f"{path} is no exported policy of 'nacdrive expert': make one with 'nacdrive expert export'.")
    if content["version"] != VERSION:
        raise UserError(f"{path} has format {content['version']}, this nacdrive reads {VERSION}: use the newer one.")
    about = json.loads(content["about"])
    if about["env"] != "CarRacing-v3":
        raise UserError(f"{path} was trained on {about['env']}, not on CarRacing-v3.")
    net = PolicyNet(outputs=2 if about["actions"] == "continuous" else 5)
    try:
        net.load_state_dict(content["tensors"])
    except RuntimeError as error:
        raise UserError(f"{path} holds tensors that do not fit the expert's network: it is damaged.") from error
    return net.to(device).to(memory_format=torch.channels_last).eval(), about  # type: ignore[call-overload]
