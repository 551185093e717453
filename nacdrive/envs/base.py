"""What every environment promises: CarRacing, the built-in tracks, the simulator on the wire, a user's own."""

from __future__ import annotations

from typing import Any, NamedTuple, SupportsFloat, TypedDict

import gymnasium
import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError

Frame = NDArray[np.uint8]
"""[height, width, 3], RGB."""


class Info(TypedDict, total=False):
    """What an environment says beside the frame: one vocabulary for all. A key that it cannot know is absent."""

    t_s: float
    """When the frame was taken, in seconds since the episode began."""
    speed_mps: float
    progress: float
    """Laps driven, as a fraction: 0.5 is half a lap (of CarRacing: the share of the tiles)."""
    laps: int
    """Whole laps finished."""
    station_m: float
    """Metres along the middle of the road since the start, growing over laps; less again where the car goes back."""
    wheels_off: float
    """Share of the four wheels beside the road, 0 .. 1; over a decision of several frames, their mean."""
    off_road: bool
    """Whether the car counts as having left the road."""
    put_back: bool
    """Whether the car was put back on the road in this step."""
    road_half_width_m: float
    """Metres from the middle of the road to its edge."""
    lane_offset_m: float
    """Metres from the middle of the road, right is positive."""
    x_m: float
    """East, in metres: for maps."""
    y_m: float
    """North, in metres."""
    heading_rad: float
    """Direction of the car, counter-clockwise from east."""
    events: tuple[str, ...]
    """What happened in this step: "off road", "lap finished", "intervention: put back on the road"."""
    ended: str
    """Why the episode ended, at its last step: "lap finished", "left the field", "time is up"."""
    cameras: dict[str, Frame]
    """Pictures of all cameras by name, where there are several."""
    jpeg: bytes
    """The frame as it came, where it came as a JPEG."""
    frame_t_s: float
    """When the frame that is shown was taken, where ``NoisyCamera`` loses frames or brings them late."""
    between_frames: bool
    """Whether no frame has come since the decision before, so that a black one stands for it."""
    clean_frame: Frame
    """The frame as it was taken, where ``NoisyCamera`` has made it worse."""
    expert_action: Action
    """What the expert would do; told to drivers by ``rollout`` where an expert rides along."""


class Keys(NamedTuple):
    """What a key does that a person holds down where wheel and pedals are moved by degrees."""

    steering: float = 1.0
    throttle: float = 1.0
    brake: float = 1.0
    rate: float = 3.0
    """Full deflections per second: Unity's default, so that of the Udacity simulator."""


class DrivingEnv(gymnasium.Env[Frame, Any]):
    """Something to drive by camera: a Gymnasium environment that also takes an ``Action`` and tells ``Info``.

    A subclass sets the attributes, implements ``reset`` and ``_step`` (as Gymnasium's ``step``, with a member of
    ``action_space``), and, where the defaults do not fit, ``native_action``, ``action_of`` and ``metrics``.
    """

    name: str
    """Such as ``carracing``, ``udacity-track``, ``udacity``, ``gym:...``."""
    actions: tuple[str, ...] = ()
    """Names of the discrete actions; () where control is continuous."""
    step_s: float
    """Seconds between two decisions."""
    realtime: bool = False
    """Whether time passes by itself, so that an action that comes late is late."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, Any]:
        """Start the episode of ``seed``; returns the first frame and its ``Info``."""
        super().reset(seed=seed)
        raise NotImplementedError

    def step(self, action: Any) -> tuple[Frame, SupportsFloat, bool, bool, Any]:
        """Carry out an ``Action``, or one of ``action_space``: next frame, reward, terminated, truncated, ``Info``."""
        return self._step(self.native_action(action) if isinstance(action, Action) else action)

    def _step(self, action: Any) -> tuple[Frame, SupportsFloat, bool, bool, Any]:
        raise NotImplementedError

    def native_action(self, action: Action) -> Any:
        """``action`` as of ``action_space``: a choice (``UserError`` without one), or float32 [steering, pedal]."""
        if self.actions:
            if action.choice is None:
                raise UserError(
                    f"{self.name} takes one of {len(self.actions)} actions ({', '.join(self.actions[:8])}), and its "
                    "driver gave steering and pedals: let it give env.action_of(number)."
                )
            return action.choice
        return np.clip(np.array([action.steering, action.throttle - action.brake], dtype=np.float32), -1.0, 1.0)

    def action_of(self, choice: int, logits: NDArray[np.float32] | None = None) -> Action:
        """Discrete action number ``choice`` in nacdrive's units, as far as its name tells them."""
        name = self.actions[choice].lower()
        steering = float("right" in name) - float("left" in name)
        throttle = float(any(word in name for word in ("gas", "accelerat", "throttle", "faster", "forward")))
        return Action(steering, throttle, float(any(word in name for word in ("brake", "slower"))), choice, logits)

    @property
    def keys(self) -> Keys:
        """How far a person's keys, stick or triggers move wheel and pedals now."""
        return Keys()

    def metrics(self) -> dict[str, float]:
        """What is known of the episode, by name with unit; ``EnvSpec.totals`` says which are added up over drives."""
        return {}

    def episode_meta(self) -> dict[str, Any]:
        """What a recording of the episode says of itself, plain JSON."""
        return {}

    def road_features(self) -> dict[str, float | str]:
        """What the episode's road is like, by name with unit, to compare drives by; {} where nothing is known."""
        return {}

    def road_edges(self) -> NDArray[np.float64] | None:
        """Both edges of the episode's road, closed lines [2, points, 2] in metres as ``x_m`` and ``y_m``; or None."""
        return None


class DrivingWrapper(gymnasium.Wrapper[Frame, Any, Frame, Any], DrivingEnv):
    """Changes what an environment shows or when it ends; all else, its own attributes too, is the environment's."""

    env: DrivingEnv

    def __init__(self, env: DrivingEnv) -> None:
        super().__init__(env)
        self.name, self.actions, self.step_s, self.realtime = env.name, env.actions, env.step_s, env.realtime

    def native_action(self, action: Action) -> Any:
        return self.env.native_action(action)

    def action_of(self, choice: int, logits: NDArray[np.float32] | None = None) -> Action:
        return self.env.action_of(choice, logits)

    def metrics(self) -> dict[str, float]:
        return self.env.metrics()

    def episode_meta(self) -> dict[str, Any]:
        return self.env.episode_meta()

    def road_features(self) -> dict[str, float | str]:
        return self.env.road_features()

    def road_edges(self) -> NDArray[np.float64] | None:
        return self.env.road_edges()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)
