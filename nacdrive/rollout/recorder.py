"""From the Ticks of a drive to episodes of a recording: the one road, whoever drives."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import KEYBOARD, Action
from nacdrive.datasets.episode import OPTIONAL, SEEN, SIDES, Episode
from nacdrive.datasets.images import encode_jpeg, encode_png
from nacdrive.datasets.writer import RecordingWriter
from nacdrive.drivers.tick import Tick

CONTROLS = {"steering": -1.0, "throttle": 0.0, "brake": 0.0}  # The least value of each; the greatest is 1.
ENCODERS: dict[str, Callable[[NDArray[np.uint8]], bytes]] = {"png": encode_png, "jpeg": encode_jpeg}
Label = Callable[[Tick], Action | None]
"""What there is to learn from a Tick; None where nobody knows."""


def executed_action(tick: Tick) -> Action:
    """The label where the one who drives is the one to learn from."""
    return tick.action


def expert_action(tick: Tick) -> Action | None:
    """The label where an expert rides along."""
    return tick.expert


class EpisodeBuffer:
    """Listener that keeps the Ticks of one episode; one that starts over begins anew.

    Args:
        label: What is to be learnt.
        image: ``png`` or ``jpeg``. Frames that came as a JPEG are kept as they came.
        batch: Frames that are encoded together. With the encoder's code and tables in the processor's cache, 20 take
            half the time that they take one by one between two frames of the simulator; a drive in real time takes 1.
        on_frames: Called with the number of frames encoded since the last call.
    """

    def __init__(
        self, label: Label, image: str = "png", *, batch: int = 1, on_frames: Callable[[int], object] = lambda _: None
    ) -> None:
        self.label, self.batch, self.on_frames, self._encode = label, batch, on_frames, ENCODERS[image]
        self.seed, self.last_step = 0, -1
        self.ended = "interrupted"
        self._clear()

    def __len__(self) -> int:
        return len(self._rows)

    def __call__(self, tick: Tick) -> None:
        if tick.step == 0:
            self._clear()
        # Neurons and saliency are not recorded, and the frame is kept once.
        self._rows.append((tick.t_s, tick.action, tick.reward, tick.speed_mps, self.label(tick), tick.policy))
        self._places.append(tuple(getattr(tick, name) for name in SEEN))
        # A frame that a camera disturbance has changed is no longer the one that came.
        came = tick.info.get("jpeg") if "clean_frame" not in tick.info else None
        cameras = tick.info.get("cameras", {})
        sides = {side: cameras[side] for side in SIDES if side in cameras}
        self._waiting.append({"center": came or tick.frame, **sides})
        self.seed, self.last_step = tick.seed, tick.step
        self.total += tick.reward
        self.ended = tick.events[-1] if tick.done else "interrupted"
        if tick.done or len(self._waiting) == self.batch:
            self._flush()

    def episode(self, *, source: str, driver: str, meta: dict[str, Any]) -> Episode:
        """What was driven; ``meta`` is what else the episode shall say of itself."""
        self._flush()
        times, actions, rewards, speeds, labels, _ = zip(*self._rows, strict=True)
        return Episode(
            frames=self._images["center"],
            t_s=np.array(times),
            choice=_choices(actions),
            **{name: _executed(actions, name) for name in CONTROLS},
            reward=np.array(rewards, dtype=np.float32),
            speed_mps=np.array([np.nan if speed is None else speed for speed in speeds], dtype=np.float32),
            expert_choice=_choices(labels),
            expert_logits=_logits(labels),
            seed=self.seed,
            source=source,
            driver=driver,
            episode_return=float(self.total),
            meta={**meta, **self._policy(), "ended": self.ended},
            **self._control_labels(actions, labels),
            side_frames={side: self._images[side] for side in SIDES if side in self._images},
            **self._known_places(),
        )

    def _known_places(self) -> dict[str, NDArray[Any]]:
        """Where the car was and when frames were taken; without columns that the environment never said."""
        return {
            name: np.array([np.nan if value is None else value for value in values], dtype=OPTIONAL[name])
            for name, values in zip(SEEN, zip(*self._places, strict=True), strict=True)
            if any(value is not None for value in values)
        }

    def _policy(self) -> dict[str, Any]:
        """Where a person drove: what the policy would have done, column by column (None after it had failed)."""
        beside = [row[-1] for row in self._rows]
        if not any(beside):
            return {}
        return {"policy": {name: [getattr(action, name, None) for action in beside] for name in ("choice", *CONTROLS)}}

    def _control_labels(
        self, actions: tuple[Action, ...], labels: tuple[Action | None, ...]
    ) -> dict[str, NDArray[np.float32]]:
        """The labels of a continuous expert; of the pedals where they are others than those that were driven."""
        known = [label for label in labels if label is not None and label.choice is None]
        if self.label is executed_action or len(known) < len(labels):
            return {}
        driven, pedals = (_executed(chosen, "throttle") - _executed(chosen, "brake") for chosen in (actions, known))
        other = {} if np.array_equal(pedals, driven) else {"expert_pedal": pedals}
        return {"expert_steering": _executed(known, "steering"), **other}

    def _flush(self) -> None:
        for pictures in self._waiting:
            for camera, picture in pictures.items():
                data = picture if isinstance(picture, bytes) else self._encode(picture)
                self._images.setdefault(camera, []).append(data)
        if self._waiting:
            self.on_frames(len(self._waiting))
        self._waiting.clear()

    def _clear(self) -> None:
        self._rows: list[tuple[float, Action, float, float | None, Action | None, Action | None]] = []
        self._places: list[tuple[float | None, ...]] = []
        self._waiting: list[dict[str, bytes | NDArray[np.uint8]]] = []
        self._images: dict[str, list[bytes]] = {}
        self.total = 0.0


def _executed(actions: Iterable[Action], name: str) -> NDArray[np.float32]:
    """[N] one control as environments carry it out: what lies beyond its range is at its end."""
    return np.array([getattr(action, name) for action in actions]).clip(CONTROLS[name], 1.0).astype(np.float32)


def _choices(actions: Iterable[Action | None]) -> NDArray[np.int64]:
    """[N] the index of each action; -1 where there is none, or where it is continuous."""
    return np.array([-1 if action is None or action.choice is None else action.choice for action in actions])


def _logits(labels: Iterable[Action | None]) -> NDArray[np.float32] | None:
    """[N, choices], or None where not all scores are known."""
    rows = [None if label is None else label.logits for label in labels]
    known = [row for row in rows if row is not None]
    return np.stack(known).astype(np.float32) if len(known) == len(rows) else None


class EpisodeRecorder(AbstractContextManager["EpisodeRecorder"]):
    """Listener that writes Ticks into a recording, one episode per unbroken stretch of those that are ``wanted``.

    A context manager: what is under way when it is left is kept too. A folder that holds a recording gets more of it,
    or loses it to the first new episode (``overwrite``); one that holds something else is a ``UserError``.

    ``source`` is what is driven, ``fps`` decisions per simulated second, and ``drive`` what the recording says of how,
    plain JSON; a ``teacher`` gives the labels, where anybody does. ``label`` and ``image`` are as of ``EpisodeBuffer``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        source: str,
        fps: float,
        driver: str,
        teacher: str | None = None,
        label: Label = expert_action,
        wanted: Callable[[Tick], bool] = lambda tick: True,
        image: str = "png",
        drive: Mapping[str, Any] | None = None,
        overwrite: bool = False,
    ) -> None:
        self.folder, self.source, self.driver, self.wanted = folder, source, driver, wanted
        self.kept = 0
        self.meta: dict[str, Any] = {}
        """What every episode shall say of itself."""
        about: dict[str, Any] = {"source": source, "fps": fps, "expert": teacher or "none", "drive": drive}
        self._open: Callable[[], RecordingWriter] = partial(
            RecordingWriter, folder, **about, overwrite=overwrite, resume=not overwrite
        )
        # What lies there already is judged before anything is driven.
        self._writer = self._open() if folder.exists() else None
        self._new_buffer: Callable[[], EpisodeBuffer] = partial(EpisodeBuffer, label, image)
        self._buffer = self._new_buffer()
        self._finished: deque[EpisodeBuffer] = deque()
        """What is not written yet: one where all is well, more while the disk takes none."""

    def __call__(self, tick: Tick) -> None:
        broken = tick.step != self._buffer.last_step + 1 or tick.seed != self._buffer.seed
        if broken or not self.wanted(tick):
            self._finish()
        if self.wanted(tick):
            self._buffer(tick)
        if tick.done:
            self._finish()
        self._write()

    def __exit__(self, *_: Any) -> None:
        self._finish()
        self._write()

    def _finish(self) -> None:
        if len(self._buffer):
            self._finished.append(self._buffer)
            self._buffer = self._new_buffer()

    def _write(self) -> None:
        if self._writer is None and (self._finished or len(self._buffer)):
            # With the first Tick, so that nobody drives what cannot be kept.
            self._writer = self._open()
        while self._writer is not None and self._finished:
            about: dict[str, Any] = {"source": self.source, "driver": self.driver, "meta": dict(self.meta)}
            self._writer.add(self._finished[0].episode(**about))
            self._finished.popleft()
            self.kept += 1


def corrections(folder: Path, **about: Any) -> EpisodeRecorder:
    """Keeps what a person drives in a policy's stead, as labels to learn from; ``about`` as of ``EpisodeRecorder``."""
    person: dict[str, Any] = {"driver": KEYBOARD, "teacher": KEYBOARD, "label": executed_action}
    return EpisodeRecorder(folder, **person, wanted=lambda tick: tick.human, **about)
