"""Keeps what is driven as a recording: whole drives, or the stretches in which a person had the wheel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nacdrive.datasets.writer import RecordingWriter
from nacdrive.drivers.tick import Tick
from nacdrive.rollout.notes import EpisodeBuffer, Label, advised, driven
from nacdrive.rollout.record_config import KEYBOARD


class EpisodeRecorder:
    """Listener that writes Ticks into a recording, one episode per unbroken stretch of those that are ``wanted``.

    A context manager: what is under way when it is left is kept too. A folder that holds a recording gets more of it.

    Args:
        folder: where the recording lies; made when there is something to keep.
        source: what is driven, such as ``carracing``.
        fps: decisions per simulated second.
        driver: who drives.
        teacher: who gives the labels.
        label: what there is to learn from a Tick.
        wanted: which Ticks are kept.

    Raises:
        UserError: if the folder holds something else.
    """

    def __init__(
        self,
        folder: Path,
        *,
        source: str,
        fps: float,
        driver: str,
        teacher: str,
        label: Label,
        wanted: Callable[[Tick], bool] = lambda tick: True,
    ) -> None:
        self.folder, self.source, self.driver, self.wanted = folder, source, driver, wanted
        self.kept = 0
        """Episodes written so far."""
        self._fps, self._teacher, self._label = fps, teacher, label
        # What lies there already is judged before anything is driven.
        self._writer = self._open() if folder.exists() else None
        self._notes = EpisodeBuffer(label)

    def __call__(self, tick: Tick) -> None:
        """Take in one decision."""
        broken = tick.step != self._notes.last_step + 1 or tick.seed != self._notes.seed
        if broken or not self.wanted(tick):
            self._keep()
        if self.wanted(tick):
            self._notes(tick)
        if tick.done:
            self._keep()

    def __enter__(self) -> EpisodeRecorder:
        """Begin."""
        return self

    def __exit__(self, *_: Any) -> None:
        """Keep what is under way."""
        self._keep()

    def _open(self) -> RecordingWriter:
        return RecordingWriter(self.folder, source=self.source, fps=self._fps, expert=self._teacher, resume=True)

    def _keep(self) -> None:
        if not len(self._notes):
            return
        self._writer = self._writer or self._open()
        self._writer.add(self._notes.episode(source=self.source, driver=self.driver, meta={}))
        self._notes = EpisodeBuffer(self._label)
        self.kept += 1


def corrections(folder: Path, *, source: str, fps: float) -> EpisodeRecorder:
    """Keeps what a person drives in a policy's stead, as labels for the policy to learn from."""
    options = {"driver": KEYBOARD, "teacher": KEYBOARD}
    return EpisodeRecorder(folder, source=source, fps=fps, **options, label=driven, wanted=lambda tick: tick.human)


def drives(folder: Path, *, source: str, fps: float, driver: str, teacher: str | None) -> EpisodeRecorder:
    """Keeps whole drives, labelled by the expert that rides along where there is one."""
    return EpisodeRecorder(folder, source=source, fps=fps, driver=driver, teacher=teacher or "none", label=advised)
