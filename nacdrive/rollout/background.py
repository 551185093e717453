"""Whoever films, records or shows a drive that waits for nobody: told in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from queue import Full, Queue
from typing import Any, Self

from nacdrive.common.errors import UserError
from nacdrive.common.lasting_thread import lasting_thread
from nacdrive.drivers.tick import Listener, Tick
from nacdrive.rollout.rollout import Probes

BACKLOG = 250
"""Ticks that slow listeners (a film, a recording) may be behind: five seconds."""
BEHIND = 5
"""Ticks that the listeners may be behind, and neurons and saliency are still read: a tenth of a second."""
SLACK_S = 0.01
"""Half a frame: what is due before the next picture is taken now."""


class BackgroundListener:
    """A listener that tells others in a thread of its own, so that none of them holds up a decision.

    A listener that fails (a disk that is full) is told no more; the drive and the other listeners go on. A context
    manager: at its end what is still to be told is told. ``probes`` are read in that thread too and added to the Ticks;
    they must be safe to read while the driver decides, as ``PolicyDriver``'s are. ``say`` is told of failures.
    """

    def __init__(
        self, listeners: Iterable[Listener], probes: Probes | None = None, say: Callable[[str], None] = print
    ) -> None:
        self.lost = 0
        """Ticks of which nobody was told, for the listeners were too far behind."""
        self.failures: list[Exception] = []
        """What listeners failed with."""
        self._listeners, self._probes, self._say = list(listeners), probes, say
        self._queue: Queue[Tick | None] = Queue(BACKLOG)

    def __enter__(self) -> Self:
        self._thread = lasting_thread("nacdrive-listeners", self._run, self._say)
        return self

    def __exit__(self, *_: Any) -> None:
        self._queue.put(None)
        self._thread.join()

    def __call__(self, tick: Tick) -> None:
        try:
            self._queue.put_nowait(tick)
        except Full:
            self.lost += 1

    def _run(self) -> None:
        while (tick := self._queue.get()) is not None:
            try:
                skipped = tick.held or tick.failure is not None or self._queue.qsize() > BEHIND
                inside = {} if self._probes is None or skipped else self._probes.read(tick.frame, tick.step)
                tick = replace(tick, **inside) if inside else tick
            except Exception as error:
                self._probes = None
                self._fail("What reads the policy's neurons", error)
            for listener in tuple(self._listeners):
                try:
                    listener(tick)
                except Exception as error:
                    self._listeners.remove(listener)
                    self._fail(getattr(listener, "__name__", type(listener).__name__), error)

    def _fail(self, who: str, error: Exception) -> None:
        self.failures.append(error)
        why = str(error) if isinstance(error, UserError | OSError) else f"{type(error).__name__}: {error}"
        self._say(f"{who[0].upper()}{who[1:]} has failed: {' '.join(why.split())} The drive goes on without it.")


def split_drives(listener: Listener, steps: int, gap_s: float = 0.0) -> Listener:
    """``listener``, told of drives as episodes of at most ``steps``: a recorder holds an episode in memory.

    Ticks that come less than ``gap_s`` after the one told before are left out, but for the last of a drive.
    """
    first: Tick | None = None
    last: Tick | None = None
    step = 0

    def recording(tick: Tick) -> None:
        nonlocal first, last, step
        if last is None or last.episode != tick.episode:
            first = None
        elif not tick.done and last.human == tick.human and tick.t_s - last.t_s < gap_s - SLACK_S:
            return
        if first is None or step == steps - 1:
            first, step = tick, 0
        else:
            step += 1
        last = tick
        cut = step == steps - 1 and not tick.done
        # Who records writes the last event down as the ending.
        events = (*tick.events, "goes on in the next episode") if cut else tick.events
        seen = None if tick.frame_t_s is None else tick.frame_t_s - first.t_s
        own = replace(tick, step=step, t_s=tick.t_s - first.t_s, frame_t_s=seen)
        listener(replace(own, done=tick.done or cut, events=events))

    return recording
