"""Between nacdrive's policies and stable-baselines3: the features extractor, and agents out of its zips.

Nothing that a zip has pickled is unpickled: what it says of itself is read as the JSON that stands beside the pickles,
its weights as tensors alone.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor

from nacdrive.common.errors import UserError, first_line, instead_of, quoted
from nacdrive.common.foreign_json import parse_object
from nacdrive.common.plugins import check_trusted
from nacdrive.models.agents import nature
from nacdrive.models.agents.memory import MemorySpec
from nacdrive.models.agents.network import CARRACING, FEATURES, PolicyNet, Vision, actor_tensors, save_policy
from nacdrive.models.agents.view import View

LARGEST_BYTES = 2**30
"""A part of a zip is not unpacked beyond this."""
ABOUT = "nacdrive_about"
"""Where zips of ours say what they are."""


class VisionExtractor(BaseFeaturesExtractor):
    """``Vision`` where stable-baselines3 expects a features extractor; it scales the bytes to [0, 1] itself."""

    def __init__(self, observation_space: spaces.Box) -> None:
        super().__init__(observation_space, FEATURES)
        self.vision = Vision()

    def forward(self, observations: Tensor) -> Tensor:
        """[N, 4, 48, 48] float in [0, 1] -> [N, 256]."""
        features: Tensor = self.vision(observations)
        return features


@dataclass(frozen=True)
class Sb3Zip:
    """A PPO model of stable-baselines3, read without executing anything of it."""

    path: Path
    data: dict[str, Any]
    """What it says of itself, by the names of its attributes."""
    tensors: dict[str, Tensor]
    """The ``state_dict`` of its policy."""

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """[channels, height, width]; () where it sees no pictures."""
        shape = _described(self.data.get("observation_space"), "_shape")
        return tuple(shape) if isinstance(shape, list) and all(isinstance(n, int) for n in shape) else ()

    @property
    def actions(self) -> spaces.Space[Any]:
        about = self.data.get("action_space")
        if "Discrete'" in str(_described(about, ":type:")) and str(_described(about, "n")) == "5":
            return spaces.Discrete(5)
        shape = _described(about, "_shape")
        if ".Box'" in str(_described(about, ":type:")) and shape in ([2], [3]):
            return spaces.Box(-1, 1, tuple(shape), np.float32)
        kind = re.sub(r".*\.|'>", "", str(_described(about, ":type:")))
        size = _described(about, "n") or shape
        raise UserError(
            f"{self.path} has the action space {kind}({size}): nacdrive knows the five actions of CarRacing, "
            "(steering, gas, brake) and (steering, pedal)."
        )


def _described(about: Any, key: str) -> Any:
    return about.get(key) if isinstance(about, dict) else None


def read_sb3(path: Path) -> Sb3Zip:
    """Read a zip of stable-baselines3's PPO, or of ``nacdrive expert train``; ``UserError`` for any other file."""
    if not path.is_file():
        raise UserError(f"{path} does not exist: check the path.")
    try:
        with zipfile.ZipFile(path) as archive:
            if not {"data", "policy.pth"} <= set(archive.namelist()):
                raise UserError(f"{path} is a zip, but no model of stable-baselines3: give one of its save().")
            if max(archive.getinfo(name).file_size for name in ("data", "policy.pth")) > LARGEST_BYTES:
                raise UserError(f"{path} is no model of stable-baselines3 that drives: it unpacks to over 1 GiB.")
            data = parse_object(archive.read("data"))
            known = data.get("num_timesteps") or 0
            if isinstance(known, bool) or not isinstance(known, int):
                raise ValueError(f"num_timesteps is {known!r}")
            weights = archive.read("policy.pth")
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError) as error:
        raise UserError(f"{path} is no model of stable-baselines3: its models are zip files.") from error
    except (ValueError, RuntimeError) as error:
        # Encrypted parts and unknown methods of compression are a RuntimeError.
        raise UserError(f"{path} is no model of stable-baselines3 ({error}): its data is no JSON object.") from error
    policy = str(_described(data.get("policy_class"), "__module__"))
    if "clip_range" not in data or "n_epochs" not in data:
        raise UserError(f"{path} is a model of another algorithm than PPO: give one that PPO trained.")
    if policy.startswith("sb3_contrib"):
        raise UserError(f"{path} is a model of sb3-contrib ({policy}): give one of stable-baselines3's own PPO.")
    with instead_of(Exception, f"{path} cannot be read: its weights are damaged, or more than tensors."):
        tensors = torch.load(io.BytesIO(weights), map_location="cpu", weights_only=True)
    if not isinstance(tensors, dict) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise UserError(f"{path} cannot be read: its weights are no tensors by name.")
    return Sb3Zip(path, data, tensors)


def to_net(model: Sb3Zip, grey: bool = False) -> tuple[PolicyNet | nature.NatureNet, dict[str, Any]]:
    """The actor of ``model`` as a network of nacdrive's, and what is known of it; ``UserError`` if it sees something
    else than pictures, or has other actions or another network.

    ``grey``: a stranger's frames are grey although their number divides by three.
    """
    shape = model.observation_shape
    if len(shape) != 3 or min(shape[1:]) < 36:
        problem = f"{model.path} was trained on another environment"
        raise UserError(f"{problem}: it sees {list(shape)}, and not pictures of [channels, height, width].")
    if any(name.startswith("features_extractor.vision.") for name in model.tensors):
        if grey:
            raise UserError(f"{model.path} is of 'nacdrive expert train', whose agents all see grey: leave out --grey.")
        return _own(model)
    about = _about_of(model.actions)
    colour = not grey and shape[0] % 3 == 0
    view = View(shape[0] // 3 if colour else shape[0], shape[1], shape[2], colour, rows=None, zeros=True)
    named = str(_described(model.data.get("policy_kwargs"), "activation_fn") or "Tanh")
    with quoted(f"{model.path}: its network is not the one of CnnPolicy (", "): it cannot be exported.", ValueError):
        net = nature.of_sb3(model.tensors, view, re.sub(r".*\.|'>", "", named))
    return net, {**about, "view": asdict(view), "network": net.about}


def _own(model: Sb3Zip) -> tuple[PolicyNet, dict[str, Any]]:
    """``to_net`` of a zip that 'nacdrive expert train' wrote; older ones are of CarRacing and do not say so."""
    written = model.data.get(ABOUT)
    if written is None:
        about = {**_about_of(model.actions), "repeat": model.data.get("nacdrive_repeat", 4)}
        del about["outputs"]
    else:
        about = dict(written) if isinstance(written, dict) else {}
    tensors = actor_tensors(model.tensors)
    check_trusted(model.path, about.get("env"), about.get("memory"))
    before = f"{model.path} is no agent that this version of nacdrive trained ("
    with quoted(before, ").", KeyError, TypeError, ValueError, RuntimeError, say=first_line):
        about["repeat"] = int(about["repeat"])
        net = PolicyNet(len(tensors["head.bias"]), MemorySpec(**about["memory"]) if about.get("memory") else None)
        net.load_state_dict(tensors)
    return net.eval(), about


def _about_of(actions: spaces.Space[Any]) -> dict[str, Any]:
    """What a file says of an agent of CarRacing with these actions."""
    kind = "continuous" if isinstance(actions, spaces.Box) else "discrete"
    return {"env": CARRACING, "actions": kind, "outputs": int(spaces.flatdim(actions))}


def export(
    source: Path, target: Path, about: dict[str, Any] | None = None, *, repeat: int | None = None, grey: bool = False
) -> Path:
    """Write the policy of the zip ``source`` (of ``nacdrive expert train``, or of stable-baselines3's PPO with its
    ``CnnPolicy``) to ``target``, with what more is known ``about`` it.

    ``repeat``: frames for which a stranger's actions are held, a ``UserError`` without; zips of ours know it. ``grey``:
    see ``to_net``.
    """
    model = read_sb3(source)
    net, known = to_net(model, grey)
    if known.setdefault("repeat", repeat) is None:
        problem = f"{source} does not say for how many frames its actions were held"
        raise UserError(f"{problem}: give --repeat (1 if its training skipped none).")
    if repeat not in (None, known["repeat"]):
        raise UserError(f"{source} holds its actions for {known['repeat']} frames: leave out --repeat {repeat}.")
    known["decisions"] = model.data.get("num_timesteps") or 0
    save_policy(target, net, known | (about or {}))
    return target
