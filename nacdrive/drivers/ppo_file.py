"""The exported expert: tensors and a plain config in one file, loaded without unpickling anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from nacdrive.common.errors import UserError
from nacdrive.common.tensor_file import json_object, read_tensor_file, write_tensor_file
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
    write_tensor_file(path, KIND, VERSION, {"about": json.dumps(about)}, net.state_dict())


def load_policy(path: Path, device: str = "cpu") -> tuple[PolicyNet, dict[str, Any]]:
    """Read a policy; returns the network in evaluation mode and what is known about it.

    Raises:
        UserError: if the file is missing, damaged, another kind of file or of another environment.
    """
    advice = "train an expert with 'nacdrive expert train', or export it anew with 'nacdrive expert export'"
    content = read_tensor_file(path, KIND, VERSION, device=device, advice=advice)
    try:
        about = json_object(content, "about")
        if about["env"] != "CarRacing-v3":
            raise UserError(f"{path} was trained on {about['env']}, not on CarRacing-v3.")
        net = PolicyNet(outputs=2 if about["actions"] == "continuous" else 5)
        net.load_state_dict(content["tensors"])
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path} does not fit the expert's network ({first}): {advice}.") from error
    return net.to(device).to(memory_format=torch.channels_last).eval(), about  # type: ignore[call-overload]
