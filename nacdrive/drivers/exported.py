"""A policy from a file of either kind, with the face of ``Policy``: ``.pt`` with torch, ``.onnx`` without it."""

from __future__ import annotations

import copy
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.common.errors import UnfitFrameError, UserError, instead_of, quoted
from nacdrive.models.config import PolicyConfig
from nacdrive.models.effects import StepMeter, SteppedDecision
from nacdrive.models.frame_policy import FramePolicy

if TYPE_CHECKING:
    from nacdrive.models.policy import Policy


class ExportedPolicy(FramePolicy):
    """An ONNX file with the face of ``models.Policy``; what only torch can look into (neurons, saliency) is empty."""

    def __init__(self, path: Path | str) -> None:
        with instead_of(
            ModuleNotFoundError, f"{path} needs onnxruntime, which is not installed: pip install 'nacdrive[run]'."
        ):
            from nacdrive.drivers import onnx_runtime
        with quoted("", "", onnx_runtime.PolicyError):
            self._runtime = onnx_runtime.Policy(path)
        about = self._runtime.about
        with quoted(
            f"{path} was exported by another nacdrive (", "): export it anew.", KeyError, TypeError, ValueError
        ):
            self.config = PolicyConfig.from_json(about["config"])
        self.name = Path(path).stem
        self.meta: dict[str, Any] = about["training"]
        self.about: dict[str, Any] = about
        self._recent: deque[tuple[NDArray[np.uint8], float]] = deque(maxlen=self.config.window)

    def reset(self, env: Any = None) -> None:
        super().reset()
        self._runtime.reset()
        self._recent.clear()

    def step(self, frame: NDArray[np.uint8], t_s: float, speed_mps: float | None = None) -> Action:
        before = self._runtime.state
        with quoted("", "", ValueError, kind=UnfitFrameError):
            action = Action(*self._runtime.step(frame, t_s, speed_mps))
        self._recent.append((frame, t_s))
        self._last = before, action
        return action

    def last_decision(self) -> SteppedDecision:
        frames, times = zip(*self._recent, strict=True)
        return SteppedDecision(frames, times, *self._last)

    def meter(self) -> StepMeter:
        # The same graph with a memory of its own.
        runtime = copy.copy(self._runtime)

        def step(state: Any, frame: NDArray[np.uint8], t_s: float) -> tuple[Action, Any]:
            runtime.reset()
            if state is not None:
                runtime.state = state
            return Action(*runtime.step(frame, t_s)), runtime.state

        return StepMeter(self.config, step)

    # A graph shows no neurons and no wiring.

    def neurons(self) -> dict[str, NDArray[np.float32]]:
        return {}

    def circuit(self) -> None:
        return None


AnyPolicy: TypeAlias = "Policy | ExportedPolicy"


def load_any_policy(path: Path | str, *, device: str = "cpu", expect_task: str | None = None) -> AnyPolicy:
    """The policy in ``path``, ready to drive; torch is imported only for a ``.pt`` file."""
    if Path(path).suffix != ".onnx":
        from nacdrive.models.files import load_policy

        return load_policy(path, device=device, expect_task=expect_task)
    if device != "cpu":
        raise UserError(f"{path} runs on the CPU: leave --device out.")
    policy = ExportedPolicy(path)
    if expect_task is not None and policy.task != expect_task:
        raise UserError(f"{path} was trained for '{policy.task}', not for '{expect_task}': give another --model.")
    return policy
