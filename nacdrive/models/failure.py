"""A failure predictor: from what a policy saw and did to how likely it is to leave the road soon.

A learnt introspection of a frozen policy, as of Hecker et al. (2018, "Failure prediction for autonomous driving"):
a small network on the features that the policy computes anyway. Its file stands beside the model's and names the one
that it was fitted to.
"""

from __future__ import annotations

import json
import math
from collections import deque
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nacdrive.common.errors import UserError
from nacdrive.common.tensor_file import checksum, json_object, read_tensor_file, write_tensor_file
from nacdrive.models.files import wrong_content
from nacdrive.models.policy import Policy

KIND = "nacdrive monitor"
VERSION = 1
HISTORY_S = 1.0
"""Of the features and of the steering that is looked back at."""
MOTION = ("steering", "mean steering", "spread of the steering", "change of the steering", "speed", "age")
"""Numbers beside the features: steering now, its mean, its standard deviation and its mean change over the last second,
metres per second, and how old the frame is."""


@dataclass(frozen=True)
class FailureConfig:
    """What a failure predictor is made of."""

    features: int
    """Features of the policy's last convolution."""
    summary: int
    """Width of its sequence layer."""
    components: int = 16
    """Principal components that are kept of both."""
    hidden: int = 32
    """Neurons."""
    threshold: float = 0.0
    """Logit at which there is a warning: the risk is 0.5 there."""
    smoothing_s: float = 0.0
    """Time constant over which logits are averaged, in seconds; 0 takes each as it is."""

    @property
    def inputs(self) -> int:
        """Numbers that the network judges: components now, their mean and their spread over the last second, motion."""
        return 3 * self.components + len(MOTION)


class FailurePredictor(nn.Module):
    """[..., inputs] -> [...] logits of leaving the road soon; see ``Past`` for the inputs."""

    mean: Tensor
    scale: Tensor
    directions: Tensor
    input_mean: Tensor
    input_scale: Tensor

    def __init__(self, config: FailureConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        seen, inputs = config.features + config.summary, config.inputs
        self.register_buffer("mean", torch.zeros(seen))
        self.register_buffer("scale", torch.ones(seen))
        self.register_buffer("directions", torch.zeros(seen, config.components))
        self.register_buffer("input_mean", torch.zeros(inputs))
        self.register_buffer("input_scale", torch.ones(inputs))
        self.layers = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(inputs, config.hidden),
            nn.ELU(),
            nn.Dropout(dropout),
            nn.Linear(config.hidden, 1),
        )

    def components(self, seen: Tensor) -> Tensor:
        """[..., features + d_model] of ``Policy.inside`` -> [..., components]; outliers count as at the edge."""
        return ((seen - self.mean) * self.scale).clamp(-6, 6) @ self.directions

    def forward(self, inputs: Tensor) -> Tensor:
        """See the class; what is far from anything seen in training counts as at its edge."""
        logits: Tensor = self.layers(((inputs - self.input_mean) * self.input_scale).clamp(-5, 5))
        return logits[..., 0]


class Past:
    """The last second of a drive, as a predictor's inputs."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()
        self._rows: deque[Tensor] = deque()

    def __call__(self, components: Tensor, steering: float, t_s: float, speed_mps: float, age_s: float) -> Tensor:
        """[inputs] of the decision at ``t_s`` seconds, whose ``components`` [components] are on the CPU."""
        self._times.append(t_s)
        self._rows.append(torch.cat([components, components.new_tensor([steering])]))
        while self._times[0] < t_s - HISTORY_S:
            self._times.popleft()
            self._rows.popleft()
        past = torch.stack(tuple(self._rows))
        mean, spread = past.mean(dim=0), past.std(dim=0, correction=0)
        change = float(past[:, -1].diff().abs().mean()) if len(past) > 1 else 0.0
        motion = [steering, float(mean[-1]), float(spread[-1]), change, speed_mps, age_s]
        return torch.cat([components, mean[:-1], spread[:-1], components.new_tensor(motion)])


class RiskMeter:
    """Gives the risk of one decision after the other.

    Args:
        predictor: Fitted to the policy whose decisions these are.
    """

    def __init__(self, predictor: FailurePredictor) -> None:
        self.predictor = predictor.eval()
        self.reset()

    def reset(self) -> None:
        """Forget the episode before."""
        self._past = Past()
        self._logit: float | None = None
        self._t_s = 0.0

    @torch.inference_mode()
    def __call__(self, policy: Policy, steering: float, t_s: float, speed_mps: float, age_s: float) -> float:
        """Risk in 0 .. 1 of the decision that ``policy`` has just made, at ``t_s`` seconds."""
        components = self.predictor.components(torch.cat(policy.inside()).float().cpu())
        logit = float(self.predictor(self._past(components, steering, t_s, speed_mps, age_s)))
        share = share_of_new(t_s - self._t_s, self.predictor.config.smoothing_s)
        self._logit = logit if self._logit is None else self._logit + share * (logit - self._logit)
        self._t_s = t_s
        return risk_of(self._logit, self.predictor.config.threshold)


def share_of_new(gap_s: float, smoothing_s: float) -> float:
    """Weight of a new value ``gap_s`` after the one before, in an average over ``smoothing_s``."""
    return 1.0 if smoothing_s <= 0 else 1 - math.exp(-max(gap_s, 0.0) / smoothing_s)


def risk_of(logit: float, threshold: float) -> float:
    """Risk of a logit: 0.5 at the threshold."""
    return 1 / (1 + math.exp(min(max(threshold - logit, -60.0), 60.0)))


def fingerprint(policy: Policy) -> str:
    """SHA-256 of a policy's weights, whatever file they are in."""
    return checksum({name: value.cpu() for name, value in sorted(policy.network.state_dict().items())})


def save_monitor(predictor: FailurePredictor, path: Path, policy: Policy, meta: dict[str, Any]) -> None:
    """Write a predictor, the ``policy`` that it belongs to, and what is known of it (plain JSON), atomically."""
    content = {
        "config": json.dumps(asdict(predictor.config)),
        "meta": json.dumps({**meta, "policy": policy.name, "policy_sha256": fingerprint(policy)}),
    }
    tensors = {name: value.to(torch.float16) for name, value in predictor.state_dict().items()}
    write_tensor_file(path, KIND, VERSION, content, tensors)


def load_monitor(path: Path, policy: Policy) -> FailurePredictor:
    """The predictor in ``path``, on the CPU, ready to use with ``policy``.

    Raises:
        UserError: if the file is missing or damaged, or its predictor was fitted to another policy.
    """
    content = read_tensor_file(path, KIND, VERSION, advice="fit it anew with 'nacdrive monitor'")
    try:
        meta = json_object(content, "meta")
        given = json_object(content, "config")
        if set(given) != {field.name for field in fields(FailureConfig)}:
            raise ValueError(f"its config has the fields {sorted(given)}")
        predictor = FailurePredictor(FailureConfig(**given))
        predictor.load_state_dict({name: value.float() for name, value in content["tensors"].items()})
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise wrong_content(path, error) from error
    if meta.get("policy_sha256") != fingerprint(policy):
        raise UserError(
            f"{path} was fitted to another policy than {policy.name}: fit one with 'nacdrive monitor --model MODEL'."
        )
    return predictor
