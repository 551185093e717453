"""A trained network that drives: one frame in, one action out, its memory kept between the frames."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nacdrive.common.action import Action
from nacdrive.common.errors import UnfitFrameError
from nacdrive.models.config import PolicyConfig
from nacdrive.models.driving import DrivingNetwork
from nacdrive.models.driving_step import DrivingStep
from nacdrive.models.effects import EffectMeter, LastDecision
from nacdrive.models.frame_policy import FramePolicy


class Policy(FramePolicy):
    """Drives with a ``DrivingNetwork``, in evaluation mode from then on; each frame's convolutions are computed once.

    ``meta`` is what is known of its training, plain JSON.
    """

    hidden: Sequence[int] = ()
    """Frames of the window that are forgotten: how many decisions ago each was taken."""
    shift_s = 0.0
    """By how many seconds the frames before the present one are older than they were."""

    def __init__(self, network: DrivingNetwork, name: str = "policy", meta: dict[str, Any] | None = None) -> None:
        self.network = network.eval()
        self.config: PolicyConfig = network.config
        self.name = name
        self.meta: dict[str, Any] = dict(meta or {})
        self.device = next(network.parameters()).device
        self.reset()

    @classmethod
    def new(cls, config: PolicyConfig, name: str = "policy", device: str = "cpu") -> Policy:
        return cls(DrivingNetwork(config).to(device), name)

    def with_layer(self, model: str, **options: Any) -> Policy:
        """The same convolutions and head around another sequence layer, ``model`` with its ``options``: untrained."""
        network = DrivingNetwork(replace(self.config, model=model, options=options))
        kept = {name: part for name, part in self.network.state_dict().items() if not name.startswith("sequence.")}
        network.load_state_dict(kept, strict=False)
        return Policy(network.to(self.device), model)

    @property
    def last_conv(self) -> nn.Module:
        """The last convolution, for Grad-CAM; ``network(frames, t)`` is the differentiable forward pass."""
        return self.network.vision[-2]

    def reset(self, env: Any = None) -> None:
        super().reset()
        self.state = self.network.sequence.init_state(1)
        self._by_numpy: DrivingStep | None = None
        self._recent: deque[tuple[NDArray[np.uint8], float, Tensor]] = deque(maxlen=self.config.window + 1)

    @torch.inference_mode()
    def step(self, frame: NDArray[np.uint8], t_s: float, speed_mps: float | None = None) -> Action:
        """Decide on one frame, uint8 [height, width, 3] RGB; ``UserError`` for another one or a time that is none.

        The action chosen; or the steering, with the pedal of a network that gives one. If not, throttle and brake are
        left at 0 to whoever holds the speed, and ``speed_mps`` is not used.
        """
        shape = (self.config.height, self.config.width, 3)
        frame = np.ascontiguousarray(frame)
        if frame.shape != shape or frame.dtype != np.uint8:  # floats from 0 to 1 would pass for nearly black bytes
            what = f"{self.name} was trained on frames of uint8 {shape}, this one is {frame.dtype} {frame.shape}"
            raise UnfitFrameError(f"{what}: give a policy of this environment, or its own.")
        t_s = self.seconds(t_s)  # before anything is remembered
        by_numpy = self._by_numpy = DrivingStep.of(self.network, self._by_numpy)
        one = torch.from_numpy(frame).to(self.device).unsqueeze(0)
        features = self.network.features(one) if by_numpy is None else by_numpy.features(frame)
        # In doubles, or lags by the time of day are nothing or two minutes.
        t = torch.tensor([t_s], dtype=torch.float64, device=self.device)
        y, self.state = self.network.sequence.step(features, t, self.state)
        self._scores = self.network.head(y)[0].float().cpu().numpy() if by_numpy is None else by_numpy.outputs(y)
        self._recent.append((frame, t_s, features))
        return self.action(self._scores)

    def action(self, outputs: NDArray[np.float32]) -> Action:
        """What the head's ``outputs`` for a frame mean."""
        if self.config.continuous:
            steering, pedal = (*np.clip(outputs, -1.0, 1.0).tolist(), 0.0)[:2]
            return Action(steering, max(0.0, pedal), max(0.0, -pedal))
        choice = int(outputs.argmax())
        return Action(*self.config.actions[choice], choice, outputs)

    def replace_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Go on with other ``weights`` of the same network, which remembers the same frames."""
        self.network.load_state_dict(dict(weights))
        seen, next_t_s = [(frame, t_s) for frame, t_s, _ in self._recent], self._next_t_s
        self.reset()
        self._next_t_s = next_t_s
        for frame, t_s in seen:
            self.step(frame, t_s)

    def last_decision(self) -> LastDecision:
        frames, times, features = zip(*self._recent, strict=True)
        # Clones: what comes out of inference mode may not go into a gradient.
        past = [x.clone() for x in features[:-1]]
        return LastDecision(frames[-1], torch.cat(past) if past else None, np.asarray(times), self._scores)

    def copy(self) -> Policy:
        return Policy(self.network, self.name, self.meta)

    def meter(self) -> EffectMeter:
        return EffectMeter(self.network, self.hidden, self.shift_s)

    @torch.inference_mode()
    def neurons(self) -> dict[str, NDArray[np.float32]]:
        """Named neuron states of the last decision; empty before the first, and for layers without any.

        Of NAC: ``phi``, ``omega``, ``t``, ``logits``, ``weights`` [heads, keys], ``q`` [heads, d_head], ``k``, ``v``
        [heads, keys, d_head], ``inter`` and ``command`` [heads, keys, neurons]; keys in the order of time. Beside them
        ``frame_t_s`` [keys]: when the frames of the window were taken.
        """
        if not self._recent:
            return {}
        _, times, features = zip(*list(self._recent)[-self.config.window :], strict=True)
        x, t = torch.cat(features).unsqueeze(0), torch.tensor([times], dtype=torch.float64, device=self.device)
        arrays = {k: v.float().cpu().numpy() for k, v in self.network.sequence.neuron_states(x, t).items()}
        return {**arrays, "frame_t_s": t[0].float().cpu().numpy()} if arrays else {}

    def circuit(self) -> dict[str, Any] | None:
        """The wiring of the sequence layer as plain JSON; None for layers without one."""
        return self.network.sequence.circuit()
