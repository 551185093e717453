"""Does a neuron tell left from right? The paper says so of omega (section 4.4); this measures it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.statistics import auc
from nacdrive.drivers.tick import Tick
from nacdrive.viz.trace import Trace

TURN = 0.05
"""Steering beyond this is a turn."""


@dataclass(frozen=True)
class Separation:
    """How one quantity of one head, from 0, differs between left and right turns: its medians, and how clearly."""

    head: int
    name: str
    """``phi``, ``omega``, ``t`` or ``logits``."""
    left: float
    straight: float
    right: float
    auc: float
    """Chance that a right turn has the larger value than a left turn: 0.5 tells nothing, 0 or 1 everything."""

    @property
    def strength(self) -> float:
        """0 tells nothing, 1 separates perfectly."""
        return abs(2 * self.auc - 1)


def separations(episodes: Sequence[Sequence[Tick]]) -> list[Separation]:
    """All heads and quantities over all episodes, the most telling first; empty if it never steers both ways."""
    result: list[Separation | None] = []
    for head in range(len(episodes[0][0].neurons["phi"])):
        traces = [Trace.of(ticks, head) for ticks in episodes]
        steering = np.concatenate([trace.steering for trace in traces])
        for name in ("omega", "phi", "t", "logits"):
            if all(name in trace.states for trace in traces):
                values = np.concatenate([trace.states[name] for trace in traces])
                result.append(separation(head, name, values, steering))
    return sorted(filter(None, result), key=lambda one: -one.strength)


def separation(head: int, name: str, values: NDArray[np.float32], steering: NDArray[np.float32]) -> Separation | None:
    """Compare ``values`` of left and right turns; None where one of them is missing."""
    left, right = values[steering < -TURN], values[steering > TURN]
    straight = values[np.abs(steering) <= TURN]
    if not len(left) or not len(right):
        return None
    middle = float(np.median(straight)) if len(straight) else float("nan")
    return Separation(head, name, float(np.median(left)), middle, float(np.median(right)), auc(left, right))


def report(gates: Sequence[Separation], shown: int = 8) -> str:
    """A table for people, and what the paper says beside it."""
    if not gates:
        return "The policy never steers both left and right in these episodes: nothing can be said about sides."
    rows = ["head  quantity   left   straight  right    AUC  (0.5 tells nothing)"]
    for one in gates[:shown]:
        rows.append(
            f"{one.head + 1:>4}  {one.name:<8} {one.left:6.3f}   {one.straight:6.3f}   {one.right:6.3f}  {one.auc:5.2f}"
        )
    if (omega := next((one for one in gates if one.name == "omega"), None)) is not None:
        strong, some = omega.strength >= 0.8, omega.strength >= 0.4
        verdict = "separates" if strong else "partly separates" if some else "does not separate"
        rows.append(
            f"The paper reads left from omega below 1.1 and right from omega above 1.3; here omega of the most telling "
            f"head ({omega.head + 1}) {verdict} the sides: AUC {omega.auc:.2f}, medians {omega.left:.3f} and "
            f"{omega.right:.3f}."
        )
    return "\n".join(rows)
