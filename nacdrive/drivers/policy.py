"""A trained policy that drives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.drivers.base import Driver, DriverState, Needs, Saliency
from nacdrive.envs.base import DrivingEnv, Frame, Info

if TYPE_CHECKING:
    from nacdrive.drivers.exported import AnyPolicy
    from nacdrive.models.effects import EffectMeter, StepMeter

SLACK_S = 0.01
"""Half a frame: a decision that is due before the next picture is taken now."""


class PolicyDriver(Driver):
    """Lets a ``Policy`` drive, or an exported one.

    Its memory may be read in another thread while it decides: ``neurons`` and ``look`` wait for a decision under way.
    Two decisions are at least ``pace_s`` seconds apart, and in between the last one holds: a memory of several frames
    is used to the pace of its training, and simulators send up to 60 pictures a second.
    """

    def __init__(self, policy: AnyPolicy, pace_s: float = 0.0) -> None:
        self.policy, self.pace_s = policy, pace_s
        self.name = policy.name
        self._memory = Lock()
        self._meter: EffectMeter | StepMeter | None = None
        self._state = DriverState()
        self._held, self._held_s = Action(0.0, 0.0, 0.0), -math.inf
        self._actions: tuple[str, ...] = ()

    @property
    def needs(self) -> Needs:
        """Colours, and instruments unless it does not look at them: so are the recordings that it learnt from."""
        config = self.policy.config
        return Needs(
            continuous=config.continuous,
            instruments=config.masked_rows is None,
            colours=True,
            pedals=config.pedal or not config.continuous,
            repeat=self.policy.repeat,
            between_frames=config.between_frames,
        )

    def reset(self, env: DrivingEnv) -> None:
        self._held_s, self._actions = -math.inf, env.actions
        with self._memory:
            self.policy.reset()

    def act(self, frame: Frame, info: Info) -> Action:
        """Decide on one frame; between two decisions ``pace_s`` apart, and while no newer frame has come, the last one
        again. Decisions are made for the time when the frame was taken, where that is told.
        """
        t_s = float(info.get("frame_t_s", info["t_s"]))
        held = self.pace_s > 0.0 and t_s - self._held_s < self.pace_s - SLACK_S
        held |= "frame_t_s" in info and t_s <= self._held_s
        self._state = DriverState(held=held)
        if not held:
            with self._memory:
                self._held = self.policy.step(frame, t_s, info.get("speed_mps"))
            self._held_s = t_s
        return self._held

    def state(self) -> DriverState:
        return self._state

    def replace_weights(self, weights: Mapping[str, Any]) -> None:
        """Drive on with other weights of the same network, between two decisions."""
        with self._memory:
            self.policy.replace_weights(weights)  # type: ignore[union-attr]
            self._meter = None

    def neurons(self) -> Mapping[str, NDArray[np.float32]]:
        with self._memory:
            return dict(self.policy.neurons())

    def why(self) -> Mapping[str, Any] | None:
        """What muting each part alone does to the last decision: ``Effects.explain``. No decision waits for it.

        None before the first: in another thread, a simulator may have come back since.
        """
        with self._memory:
            if math.isinf(self._held_s):
                return None
            decision = self.policy.last_decision()
            meter = self._meter = self._meter or self.policy.meter()
        return meter.measure(decision).explain(self._actions)  # type: ignore[arg-type]

    def look(self, saliency: Saliency, frame: Frame) -> NDArray[np.float32] | None:
        """What ``saliency`` says of the policy and ``frame``, while no decision changes its memory; else as ``why``."""
        with self._memory:
            return None if math.isinf(self._held_s) else saliency(frame)
