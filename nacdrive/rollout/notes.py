"""The Ticks of a drive as an episode of a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.images import encode_png
from nacdrive.drivers.tick import Tick

Label = Callable[[Tick], Action | None]
"""What there is to learn from a Tick; None where nobody knows."""


def driven(tick: Tick) -> Action:
    """The label where the one who drives is the one to learn from."""
    return tick.action


def advised(tick: Tick) -> Action | None:
    """The label where an expert rides along."""
    return tick.expert


class EpisodeBuffer:
    """Listener that keeps the Ticks of one episode; one that starts over begins anew.

    Args:
        label: what is to be learnt.
        batch: frames that are encoded together. With the encoder's code and tables in the processor's cache, 20 take
            half the time that they take one by one between two frames of the simulator; a drive in real time takes 1.
        on_frames: called with the number of frames encoded since the last call.
        encode: a frame, uint8 [height, width, 3], as the bytes of an image.
    """

    def __init__(
        self,
        label: Label,
        batch: int = 1,
        on_frames: Callable[[int], None] = lambda count: None,
        encode: Callable[[NDArray[np.uint8]], bytes] = encode_png,
    ) -> None:
        self.label, self.batch, self.on_frames, self.encode = label, batch, on_frames, encode
        self.seed, self.last_step, self.total, self.ended = 0, -1, 0.0, ""
        self._clear()

    def __len__(self) -> int:
        return len(self.rows)

    def __call__(self, tick: Tick) -> None:
        """Take in one decision."""
        if tick.step == 0:
            self._clear()
        self._seen.append(tick.frame)
        # Neurons and saliency are not recorded, and the frame is kept once.
        self.rows.append((tick.t_s, tick.action, tick.reward, tick.speed_mps, self.label(tick), tick.policy))
        self.seed, self.last_step = tick.seed, tick.step
        self.total += tick.reward
        self.ended = tick.events[-1] if tick.done else "interrupted"
        if tick.done or len(self._seen) == self.batch:
            self._encode()

    def episode(self, *, source: str, driver: str, meta: dict[str, Any]) -> Episode:
        """What was noted; ``meta`` is what else the episode shall say of itself."""
        self._encode()
        times, actions, rewards, speeds, labels, _ = zip(*self.rows, strict=True)
        return Episode(
            frames=self._frames,
            t_s=np.array(times),
            choice=choices(actions),
            steering=np.array([action.steering for action in actions], dtype=np.float32),
            throttle=np.array([action.throttle for action in actions], dtype=np.float32),
            brake=np.array([action.brake for action in actions], dtype=np.float32),
            reward=np.array(rewards, dtype=np.float32),
            speed_mps=np.array([np.nan if speed is None else speed for speed in speeds], dtype=np.float32),
            expert_choice=choices(labels),
            expert_logits=stacked([None if label is None else label.logits for label in labels]),
            seed=self.seed,
            source=source,
            driver=driver,
            episode_return=float(self.total),
            meta={**meta, **self._policy(), "ended": self.ended},
            **self._steering_label(labels),
        )

    def _policy(self) -> dict[str, Any]:
        """Where a person drove: what the policy would have done, column by column (None after it had failed)."""
        beside = [row[-1] for row in self.rows]
        if not any(beside):
            return {}
        names = ("choice", "steering", "throttle", "brake")
        return {"policy": {name: [getattr(action, name, None) for action in beside] for name in names}}

    def _steering_label(self, labels: tuple[Action | None, ...]) -> dict[str, Any]:
        """The label of a continuous driver, where it is another than what was driven."""
        known = [label for label in labels if label is not None and label.choice is None]
        if self.label is driven or len(known) < len(labels):
            return {}
        return {"expert_steering": np.array([label.steering for label in known], dtype=np.float32)}

    def _encode(self) -> None:
        if self._seen:
            self._frames += map(self.encode, self._seen)
            self.on_frames(len(self._seen))
            self._seen.clear()

    def _clear(self) -> None:
        self.rows: list[tuple[float, Action, float, float | None, Action | None, Action | None]] = []
        self._seen: list[NDArray[np.uint8]] = []
        self._frames: list[bytes] = []
        self.total = 0.0


def choices(actions: Iterable[Action | None]) -> NDArray[np.int64]:
    """[N] the index of each action; -1 where there is none, or where it is continuous."""
    return np.array([-1 if action is None or action.choice is None else action.choice for action in actions])


def stacked(logits: list[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
    """[N, choices], or None where not all scores are known."""
    known = [row for row in logits if row is not None]
    return np.stack(known).astype(np.float32) if len(known) == len(logits) else None
