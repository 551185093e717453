"""Any Gymnasium environment with pictures as a ``DrivingEnv``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError, in_a_sentence
from nacdrive.envs.base import DrivingEnv, DrivingWrapper, Frame

PACKAGED = "gym:highway_env:highway-v0 or gym:ale_py:ALE/Pong-v5"
USUAL_FPS = 30.0
"""Frames a second of an environment that does not tell (``metadata["render_fps"]``)."""
IMAGE_KEYS = ("center", "front", "image", "rgb", "pixels", "camera")
"""Where there are several pictures, the first of these is the one that drivers see."""


class GymEnv(DrivingEnv):
    """Adapts ``env``: pictures become uint8 [height, width, 3], ``Action`` becomes its action, time is counted;
    ``UserError`` if it shows no pictures, or takes actions that nothing fits.

    Drivers see its observation where that is a picture (RGB or grey, channels first or last, uint8 or 0 .. 1, or in a
    Dict), else what it renders. ``info`` holds its own keys, and of ``Info`` what it gives under the same names.

    Args:
        env: The environment; one whose observations are no pictures must have been made with
            ``render_mode="rgb_array"``.
        name: What messages and recordings call it.
        actions: Names of discrete actions; its ``get_action_meanings()`` if not given. "left", "right", "gas" or
            "accelerate", and "brake" in them tell what they do.
        repeat: Frames for which an action is held.
        max_frames: Frames after which an episode is truncated.
        step_s: Seconds of a frame; 1 / ``metadata["render_fps"]`` if not given.
        to_native: Makes its action of an ``Action``, where the usual ways do not fit: a Box takes (steering),
            (steering, throttle - brake) or (steering, throttle, brake), each stretched to the bounds.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        name: str = "gym",
        *,
        actions: Sequence[str] | None = None,
        repeat: int = 1,
        max_frames: int | None = None,
        step_s: float | None = None,
        to_native: Callable[[Action], Any] | None = None,
    ) -> None:
        if repeat < 1 or (max_frames is not None and max_frames < 1):
            raise UserError(f"repeat ({repeat}) and max_frames ({max_frames}) must be at least 1.")
        self.env, self.name, self.repeat, self.max_frames = env, name, repeat, max_frames
        self._frame_s = step_s if step_s is not None else 1 / float(env.metadata.get("render_fps") or USUAL_FPS)
        self.step_s = self._frame_s * repeat
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 1 / self.step_s}
        self.render_mode = "rgb_array"
        self.action_space = space = env.action_space
        self._to_native = to_native
        bounded = isinstance(space, spaces.Box) and space.is_bounded()
        if isinstance(space, spaces.Discrete):
            self.actions = self._action_names(int(space.n), actions)
        elif to_native is None and not (bounded and space.shape in ((1,), (2,), (3,))):
            raise UserError(
                f"nothing fits the actions of {name}, {space}: it needs Discrete or a Box of 1 to 3 numbers "
                "(steering, throttle, brake), or GymEnv(env, to_native=...), which makes its actions of ours."
            )
        seen = env.observation_space
        self._image_keys = _image_keys(seen)
        if not self._image_keys and env.render_mode != "rgb_array":
            raise UserError(
                f"{name} shows no pictures: its observations are {type(seen).__name__}{seen.shape or ''}; "
                'make it with render_mode="rgb_array", or let it observe RGB images.'
            )
        self.frame = 0
        self._shown: Frame | None = None
        if self._image_keys:
            part = seen[self._image_keys[0]] if isinstance(seen, spaces.Dict) else seen
            shape = _rgb(np.zeros(part.shape or (), part.dtype)).shape
        else:
            env.reset(seed=0)
            shape = self._look(None)[0].shape
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, Any]:
        super(DrivingEnv, self).reset(seed=seed)
        self.frame = 0
        observation, info = self._call("reset", 2, seed=seed, options=options)
        self._wheels_off: list[float] = []
        self._last = info
        return self._seen(observation, info)

    def _step(self, action: Any) -> tuple[Frame, float, bool, bool, Any]:
        reward, terminated, truncated, seen = 0.0, False, False, list[Any]()
        while len(seen) < self.repeat and not (terminated or truncated):
            observation, gained, terminated, truncated, info = self._call("step", 5, action)
            reward, self.frame = reward + float(gained), self.frame + 1
            truncated = bool(truncated) or (self.max_frames is not None and self.frame >= self.max_frames)
            seen.append(info)
        self._last, events = info, tuple(event for one in seen for event in events_of(one))
        off = [float(one["wheels_off"]) for one in seen if isinstance(one.get("wheels_off"), (int, float))]
        self._wheels_off += off
        whole = {"events": events, **({"wheels_off": float(np.mean(off))} if off else {})}
        frame, about = self._seen(observation, {**info, **whole})
        if terminated or truncated:
            about.setdefault("ended", "the episode is over" if terminated else "time is up")
        return frame, reward, bool(terminated), bool(truncated), about

    def native_action(self, action: Action) -> Any:
        if self._to_native is not None:
            return self._to_native(action)
        space = self.action_space
        if isinstance(space, spaces.Discrete):
            return int(space.start) + int(super().native_action(action))
        assert isinstance(space, spaces.Box)
        pedals = [action.throttle, action.brake] if space.shape == (3,) else [action.throttle - action.brake]
        wanted = np.array([action.steering, *pedals][: space.shape[0]])
        # A pedal of its own, or one that cannot be negative, begins at 0; all else at -1.
        pedal = (np.arange(len(wanted)) > 0) & ((len(wanted) == 3) | (space.low >= 0))
        share = np.where(pedal, np.clip(wanted, 0, 1), (np.clip(wanted, -1, 1) + 1) / 2)
        return (space.low + share * (space.high - space.low)).astype(space.dtype)

    def metrics(self) -> dict[str, float]:
        measures = {name: float(self._last[name]) for name in ("progress", "laps") if name in self._last}
        return measures | ({"wheels_off": float(np.mean(self._wheels_off))} if self._wheels_off else {})

    def episode_meta(self) -> dict[str, Any]:
        # Of choices that nobody takes in a recording a policy must know, too: practice may ask for them.
        return {"env": self.name, **({"actions": list(self.actions)} if self.actions else {})}

    def render(self) -> Frame:
        if self._shown is None:
            raise UserError("there is nothing to render: call reset() first.")
        return self._shown

    def close(self) -> None:
        self.env.close()

    def _call(self, method: str, values: int, *arguments: Any, **options: Any) -> Any:
        """Call a method of the environment that gives so many ``values``; what it raises becomes a sentence."""
        with in_a_sentence(f"{self.name} failed in {method}(): "):
            given = getattr(self.env, method)(*arguments, **options)
            if isinstance(given, tuple) and len(given) == values:
                return given
            raise ValueError(f"it has to give {values} values, as since Gymnasium 0.26, and gave another number")

    def _action_names(self, count: int, names: Sequence[str] | None) -> tuple[str, ...]:
        named = names is None and self.env.has_wrapper_attr("get_action_meanings")
        known = tuple(self.env.get_wrapper_attr("get_action_meanings")() if named else names or ())
        if names is not None and len(known) != count:
            raise UserError(f"{self.name} has {count} actions, and {len(known)} names are given: {', '.join(known)}.")
        return known if len(known) == count else tuple(f"action {number}" for number in range(count))

    def _seen(self, observation: Any, info: Mapping[str, Any]) -> tuple[Frame, Any]:
        frame, cameras = self._look(observation)
        if frame.shape != self.observation_space.shape:
            raise UserError(f"{self.name} shows pictures of {self.observation_space.shape}, and one of {frame.shape}.")
        self._shown = frame
        about = {"t_s": self.frame * self._frame_s, **info, "events": events_of(info)}
        if len(cameras) > 1:
            about["cameras"] = cameras
        return frame, about

    def _look(self, observation: Any) -> tuple[Frame, dict[str, Frame]]:
        """The frame that drivers see, and all pictures by name."""
        if not self._image_keys:
            picture: Any = self.env.render()
            if not isinstance(picture, np.ndarray) or picture.ndim != 3 or picture.shape[2] != 3:
                raise UserError(f"{self.name} renders no RGB picture: its render() gave {type(picture).__name__}.")
            return _rgb(picture), {}
        if self._image_keys == ("",):
            return _rgb(observation), {}
        cameras = {key: _rgb(observation[key]) for key in self._image_keys}
        return cameras[self._image_keys[0]], cameras


class FrameLimit(DrivingWrapper):
    """Truncates episodes of an environment that has no limit of its own after ``max_frames`` decisions."""

    def __init__(self, env: DrivingEnv, max_frames: int) -> None:
        super().__init__(env)
        self.max_frames, self.frame = max_frames, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, Any]:
        self.frame = 0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Frame, SupportsFloat, bool, bool, Any]:
        frame, reward, terminated, truncated, info = super().step(action)
        self.frame += 1
        if self.frame >= self.max_frames and not (terminated or truncated):
            truncated, info = True, {**info, "ended": "time is up"}
        return frame, reward, terminated, truncated, info


def adapt(env: Any, name: str, *, repeat: int | None = None, max_frames: int | None = None) -> DrivingEnv:
    """A user's environment as a ``DrivingEnv``: itself if it is one, else by ``GymEnv``, which may refuse it."""
    if isinstance(env, DrivingEnv):
        if repeat not in (None, 1):
            raise UserError(f"--repeat is not for {name}, which makes a DrivingEnv: leave it out, or give an EnvSpec.")
        return env if max_frames is None else FrameLimit(env, max_frames)
    if not isinstance(env, gymnasium.Env):
        raise UserError(f"{name} made {type(env).__name__}, and not a Gymnasium environment (gymnasium.Env).")
    # Ours is found under the checks that gymnasium.make puts around it.
    inner: Any = env
    while isinstance(inner, (PassiveEnvChecker, OrderEnforcing)):
        inner = inner.env
    if isinstance(inner, DrivingEnv):
        return adapt(inner, name, repeat=repeat, max_frames=max_frames)
    return GymEnv(env, name, repeat=repeat or 1, max_frames=max_frames)


def make_gym(gym_id: str, name: str, *, repeat: int | None = None, max_frames: int | None = None) -> DrivingEnv:
    """The environment that Gymnasium knows as ``gym_id``; it renders where its observations are no pictures."""
    try:
        env = gymnasium.make(gym_id)
        if not _image_keys(env.observation_space):
            env.close()
            env = gymnasium.make(gym_id, render_mode="rgb_array")
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        # Since Gymnasium 1.0 a package registers its environments only when it is imported.
        about = " ".join(str(error).split()).rstrip(".?")
        # A name that is like a known one is mistyped; any other may be a package's.
        if ":" not in gym_id and "Did you mean" not in about:
            about += f". One of a package is named with its module, gym:MODULE:{gym_id}, as in {PACKAGED}"
        raise UserError(f"Gymnasium cannot make '{gym_id}': {about}.") from error
    return adapt(env, name, repeat=repeat, max_frames=max_frames)


def events_of(info: Mapping[str, Any]) -> tuple[str, ...]:
    """What a foreign environment says has happened, where it is a list of texts."""
    return tuple(map(str, info["events"])) if isinstance(info.get("events"), (list, tuple)) else ()


def _image_keys(space: spaces.Space[Any]) -> tuple[str, ...]:
    """Where the pictures are in an observation: ("",) where it is one itself, () where there is none."""
    if isinstance(space, spaces.Dict):
        keys = [key for key, part in space.spaces.items() if _is_picture(part)]
        return tuple(sorted(keys, key=lambda key: IMAGE_KEYS.index(key) if key in IMAGE_KEYS else len(IMAGE_KEYS)))
    return ("",) if _is_picture(space) else ()


def _is_picture(space: spaces.Space[Any]) -> bool:
    if not isinstance(space, spaces.Box):
        return False
    within_one = bool((space.low >= 0).all() and (space.high <= 1).all())
    light = space.dtype == np.uint8 or (np.issubdtype(space.dtype, np.floating) and within_one)
    large = len(space.shape) in (2, 3) and sorted(space.shape)[-2] >= 8
    return light and large and (len(space.shape) == 2 or space.shape[0] in (1, 3) or space.shape[2] in (1, 3))


def _rgb(picture: Any) -> Frame:
    """uint8 [height, width, 3] of a picture: grey or RGB, channels first or last, uint8 or floats in 0 .. 1."""
    pixels: NDArray[Any] = np.asarray(picture)
    if pixels.dtype != np.uint8:
        pixels = np.rint(np.clip(pixels, 0, 1) * 255).astype(np.uint8)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.shape[2] not in (1, 3):
        pixels = np.moveaxis(pixels, 0, 2)
    if pixels.shape[2] == 1:
        pixels = np.repeat(pixels, 3, axis=2)
    return np.ascontiguousarray(pixels)
