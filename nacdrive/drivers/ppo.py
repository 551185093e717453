"""The trained expert: drives, and labels frames in batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.drivers.ppo_network import SIDE, STACK, FrameStack, PolicyNet, load_policy
from nacdrive.envs.base import DrivingEnv, Frame, Info
from nacdrive.envs.carracing.env import to_action


class PpoExpert:
    """An exported PPO policy, driven deterministically: the action with the highest logit, or the mean of the
    continuous one.
    """

    def __init__(self, net: PolicyNet, *, repeat: int = 4, name: str = "ppo", device: str = "cpu") -> None:
        self.net = net
        self.name, self.repeat, self.device = name, repeat, device
        self.continuous = net.head.out_features == 2
        self._stack = FrameStack()

    @classmethod
    def load(cls, path: Path, device: str = "cpu") -> PpoExpert:
        """Read an exported policy.

        Raises:
            UserError: if the file is missing, damaged or of another environment.
        """
        net, about = load_policy(path, device)
        return cls(net, repeat=int(about["repeat"]), device=device)

    def reset(self, env: DrivingEnv | None = None) -> None:
        """Forget the episode."""
        self._stack = FrameStack()

    def act(self, frame: Frame, info: Info | None = None) -> Action:
        """Decide on a frame uint8 [96, 96, 3]; the three before it are remembered.

        Raises:
            UserError: for a frame of another shape.
        """
        if frame.shape != (96, 96, 3) or frame.dtype != np.uint8:
            raise UserError(f"the expert sees frames uint8 [96, 96, 3], not {frame.dtype} {list(frame.shape)}.")
        return self.act_batch(self._stack.push(frame)[None])[0]

    @torch.inference_mode()
    def logits(self, stacks: NDArray[np.uint8]) -> NDArray[np.float32]:
        """uint8 [N, 4, 48, 48] (oldest frame first) -> float32 [N, 5], or [N, 2] of a continuous expert."""
        if stacks.ndim != 4 or stacks.shape[1:] != (STACK, SIDE, SIDE) or stacks.dtype != np.uint8:
            raise UserError(
                f"the expert sees uint8 [N, {STACK}, {SIDE}, {SIDE}], not {stacks.dtype} {list(stacks.shape)}: "
                "make stacks with nacdrive.drivers.ppo_network.FrameStack."
            )
        scores: NDArray[np.float32] = self.net(torch.from_numpy(stacks).to(self.device)).cpu().numpy()
        return scores

    def act_batch(self, stacks: NDArray[np.uint8]) -> list[Action]:
        """What the expert would do in each of N situations, uint8 [N, 4, 48, 48]; logits included."""
        scores = self.logits(stacks)
        return [steering_and_pedal(row) if self.continuous else to_action(int(row.argmax()), row) for row in scores]


def split_pedal(action: Any) -> NDArray[np.float64]:
    """(steering, pedal) in [-1, 1] -> the environment's (steering, gas, brake); the pedal brakes below zero."""
    steering, pedal = (float(np.clip(value, -1, 1)) for value in action)
    return np.array([steering, max(pedal, 0.0), max(-pedal, 0.0)])


def steering_and_pedal(row: NDArray[np.float32]) -> Action:
    """The continuous expert's (steering, pedal) in nacdrive's units; the pedal brakes below zero."""
    steering, gas, brake = split_pedal(row).tolist()
    return Action(steering, gas, brake)
