"""A person who teaches: lets the policy drive, takes the wheel by keys in a browser where it drifts, hands back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.drivers.human import HumanControl
from nacdrive.drivers.tick import Listener
from nacdrive.extras.teach.card import TeachCard
from nacdrive.rollout.drive import LoadedDrive
from tests.extras.arena.test_race_by_keys import Page
from tests.helpers.key_driver import UDACITY, KeyDriver
from tests.web.test_page import until

REACTION_S = 0.3
DRIFTED_M, BACK_M, CALM_S = 0.6, 0.25, 1.5
"""Takes the wheel so far from the middle, and hands back after so long within that of it."""
LEARN_S = 12.0
"""A round takes at most so much of the simulated time, however slow the machine is."""
LONGEST_S = 20.0
"""Of a road: ten minutes show thirty."""
SEEN = ("t_s", "x_m", "y_m", "heading_rad", "speed_mps", "steering")


class Eyes:
    """What the person wants, row by row of the page.

    Args:
        line: [N, 2] middle of the road.
    """

    def __init__(self, line: NDArray[np.float64]) -> None:
        self.hands = KeyDriver(line, UDACITY, REACTION_S)
        self.offsets: deque[tuple[float, float]] = deque(maxlen=64)
        self.drives, self.calm_since = False, 0.0

    def wish(self, row: dict[str, float]) -> frozenset[str] | None:
        """Keys of the wheel to hold; None where the policy shall drive."""
        now = row["t_s"]
        self.offsets.append((now, abs(row["lane_offset_m"] or 0.0)))
        keys = self.hands.keys(*(row[name] for name in SEEN)) - {"up", "down"}
        late = next((off for t, off in reversed(self.offsets) if t <= now - REACTION_S), 0.0)
        if late > BACK_M:
            self.calm_since = now
        if not self.drives and late > DRIFTED_M:
            self.drives = True
        elif self.drives and now - self.calm_since >= CALM_S:
            self.drives = False
        return keys if self.drives else None


def teach(
    page: Any,
    control: HumanControl,
    loaded: LoadedDrive,
    card: TeachCard,
    listeners: Sequence[Listener],
    seconds: float,
    first_seed: int,
    after_road: Callable[[int], object] = lambda road: None,
) -> float:
    """Teach for so many simulated seconds, on one road after the other; the seconds that were driven by hand."""
    seen, pressed, ended = Page(page, control), Event(), Event()
    page.wait_for_selector("#controls .take:not([disabled])")
    roads: list[NDArray[np.float64]] = []
    step_s = 1 / loaded.fps

    def drive() -> None:
        driven, begun = 0.0, None
        while driven < seconds:
            with loaded.open(first_seed + len(roads), episode=len(roads), control=control) as opened:
                env: Any = opened.env.unwrapped
                roads.append(np.asarray(env.track.line)[:, :2])
                for tick in opened:
                    pressed.clear()
                    for listener in listeners:
                        listener(tick)
                    pressed.wait()
                    driven += step_s
                    begun = None if card._job is None else driven if begun is None else begun
                    while begun is not None and card._job is not None and driven - begun > LEARN_S:
                        pressed.wait(0.05)
                    if driven >= seconds or tick.t_s > LONGEST_S:
                        break
            after_road(len(roads))
        ended.set()

    driving = Thread(target=drive, daemon=True)
    driving.start()
    count, by_hand, road = 0.0, 0.0, -1
    while not ended.is_set():
        row = seen.newest[0] if seen.newest else {}
        if row.get("seq", 0.0) > count and not pressed.is_set():
            count = row["seq"]
            if road != row["episode"]:
                road = int(row["episode"])
                eyes = Eyes(roads[road])
            keys = eyes.wish(row)
            at_wheel = control.state["person"] is not None
            if at_wheel != (keys is not None):
                page.keyboard.press("Escape" if at_wheel else "w")
                says = "Take the wheel" if at_wheel else "Hand back"
                until(page, f"document.querySelector('#controls .take').textContent.startsWith('{says}')")
                seen.held = frozenset()
            if keys is not None:
                seen.hold(keys)
            by_hand += step_s * row["person"]
            pressed.set()
        page.wait_for_timeout(1)
    return by_hand
