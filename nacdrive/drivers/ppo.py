"""The trained expert: drives, and labels frames in batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.drivers.base import Driver, DriverState, Needs
from nacdrive.envs.base import DrivingEnv, Frame, Info
from nacdrive.envs.carracing.env import to_action
from nacdrive.models.agents.cockpit import CockpitNet
from nacdrive.models.agents.memory import Actor
from nacdrive.models.agents.nature import NatureNet
from nacdrive.models.agents.network import CARRACING, PolicyNet, load_policy
from nacdrive.models.agents.view import ROWS, FrameStack, View


class PpoExpert(Driver):
    """An exported PPO policy, driven deterministically: the action of the highest logit, or the continuous mean.

    Args:
        net: The policy; one with a memory decides on frames in their order, and streams. One that stable-baselines3
            trained elsewhere brings its view of the frames along.
        repeat: Frames for which its actions are held.
        env: What it was trained on: CarRacing, or what ``--env`` calls it.
        continuous: Whether its outputs are (steering, pedal); two outputs are that if not given.
    """

    def __init__(
        self,
        net: PolicyNet | NatureNet | CockpitNet,
        *,
        repeat: int = 4,
        name: str = "ppo",
        device: str = "cpu",
        env: str = CARRACING,
        continuous: bool | None = None,
    ) -> None:
        self.net = net
        self.name, self.repeat, self.device, self.trained_on = name, repeat, device, env
        self._carracing = env == CARRACING
        self.continuous = net.head.out_features == 2 if continuous is None else continuous
        self._action_of: Callable[..., Action] = to_action
        own = net.view if isinstance(net, (NatureNet, CockpitNet)) else View(rows=ROWS if self._carracing else None)
        self._stack = FrameStack(own)
        self.instruments = own.instruments
        self._memory: Any = None
        self._t_s = 0.0
        self._held = False
        self._last: Action | None = None

    @classmethod
    def load(cls, path: Path, device: str = "cpu") -> PpoExpert:
        """Read an exported policy; ``UserError`` if the file is missing, damaged or of another environment."""
        net, about = load_policy(path, device)
        continuous = about["actions"] == "continuous"
        return cls(net, repeat=int(about["repeat"]), device=device, env=str(about["env"]), continuous=continuous)

    @property
    def needs(self) -> Needs:
        """It holds its actions as it did in training, also where others choose the pace."""
        return Needs(self.continuous, self.instruments, repeat=self.repeat, fixed_pace=True)

    def reset(self, env: DrivingEnv | None = None) -> None:
        """Forget the episode; ``UserError`` if ``env`` is another environment than the policy was trained on."""
        self._stack.reset()
        self._memory, self._last, self._held = None, None, False
        if env is None or self._carracing:
            return
        if env.name != self.trained_on:
            raise UserError(f"the expert was trained on {self.trained_on}, and cannot drive {env.name}.")
        outputs = self.net.head.out_features
        if self.continuous == bool(env.actions) or (env.actions and len(env.actions) != outputs):
            what = "continuous actions" if self.continuous else f"{outputs} actions"
            raise UserError(f"the expert has {what}, and {env.name} takes {len(env.actions) or 'continuous ones'}.")
        self._action_of = env.action_of

    def act(self, frame: Frame, info: Info | None = None) -> Action:
        """Decide on a frame uint8 [height, width, 3] (of CarRacing [96, 96, 3]); the three before it are remembered,
        and with a memory the features of its window. Where ``frame_t_s`` tells when a frame was taken, the decision is
        for that time, and while no newer one has come it is the last one again.
        """
        if frame.dtype != np.uint8 or frame.ndim != 3 or (self._carracing and frame.shape != (96, 96, 3)):
            size = "96, 96" if self._carracing else "height, width"
            raise UserError(f"the expert sees frames uint8 [{size}, 3], not {frame.dtype} {list(frame.shape)}.")
        known = info or {}
        usual = 0.0 if self._last is None or self.net.memory is None else self._t_s + self.net.memory.spec.gap_s
        t_s = float(known.get("frame_t_s", known.get("t_s", usual)))
        self._held = self._last is not None and "frame_t_s" in known and t_s <= self._t_s
        if self._last is None or not self._held:
            self._t_s = t_s
            stack = self._stack.push(frame)[None]
            self._last = self._action((self.logits(stack) if self.net.memory is None else self.remembered(stack))[0])
        return self._last

    def state(self) -> DriverState:
        return DriverState(held=self._held)

    @torch.inference_mode()
    def remembered(self, stack: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Scores [1, outputs] of the next decision of the episode, of an agent with a memory."""
        assert isinstance(self.net, Actor)
        state = self.net.init_state() if self._memory is None else self._memory
        now = torch.tensor([self._t_s], dtype=torch.float64, device=self.device)
        scores, self._memory = self.net.step(torch.from_numpy(stack).to(self.device), now, state)
        return scores.cpu().numpy()

    @torch.inference_mode()
    def logits(self, stacks: NDArray[np.uint8]) -> NDArray[np.float32]:
        """uint8 [N, 4, 48, 48] (oldest frame first, or as its view has them) -> float32 [N, 5], or the [N, 2] or [N, 3]
        numbers of a continuous expert; ``UserError`` of one with a memory, which judges none by itself.
        """
        seen = self._stack.view.shape
        if stacks.ndim != 4 or stacks.shape[1:] != seen or stacks.dtype != np.uint8:
            what = f"the expert sees uint8 [N, {', '.join(map(str, seen))}], not {stacks.dtype} {list(stacks.shape)}"
            raise UserError(f"{what}: make stacks with nacdrive.models.agents.network.FrameStack.")
        if self.net.memory is not None:
            raise UserError("an expert with a memory labels frames in their order: call reset(), then act(frame).")
        return np.asarray(self.net(torch.from_numpy(stacks).to(self.device)).cpu().numpy())

    def _action(self, row: NDArray[np.float32]) -> Action:
        return steering_and_pedal(row) if self.continuous else self._action_of(int(row.argmax()), row)


def split_pedal(action: Any) -> NDArray[np.float64]:
    """(steering, pedal) in [-1, 1], or steering alone -> (steering, gas, brake); the pedal brakes below zero."""
    steering, pedal = (*(float(np.clip(value, -1, 1)) for value in action), 0.0)[:2]
    return np.array([steering, max(pedal, 0.0), max(-pedal, 0.0)])


def steering_and_pedal(row: NDArray[np.float32]) -> Action:
    """A continuous expert's (steering, pedal), or (steering, gas, brake), in nacdrive's units."""
    if len(row) == 3:
        steering, gas, brake = (float(value) for value in np.clip(row, (-1, 0, 0), 1))
    else:
        steering, gas, brake = split_pedal(row).tolist()
    return Action(steering, gas, brake)
