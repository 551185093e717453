"""A picture of a policy's circuit: neurons in their groups, synapses between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

GROUPS = ("sensory", "inter", "command", "motor")
COLOURS = {"sensory": "#566473", "inter": "#0064b0", "command": "#007a5a", "motor": "#c23f08"}
EXCITING, INHIBITING = "#d55e00", "#0064b0"


def wiring_figure(circuit: Mapping[str, Any], title: str) -> Figure:
    """The circuit from left to right; exciting synapses orange, inhibiting ones blue, recurrent ones as a count.

    Args:
        circuit: ``groups`` (sizes) and ``edges`` ([from group, index, to group, index, polarity]).
        title: over the picture.
    """
    places = {group: column(index, int(circuit["groups"].get(group, 0))) for index, group in enumerate(GROUPS)}
    figure = Figure(figsize=(9, 6), layout="constrained")
    axis = figure.subplots()
    edges = [edge for edge in circuit["edges"] if edge[0] != edge[2]]
    lines = [(places[a][i], places[b][j]) for a, i, b, j, *_ in edges]
    colours = [
        EXCITING if (rest[0] if rest else 1) > 0 else INHIBITING for *_, rest in ((*e[:4], e[4:]) for e in edges)
    ]
    axis.add_collection(LineCollection(lines, colors=colours, linewidths=0.35, alpha=0.35))
    for group, spots in places.items():
        if len(spots):
            axis.scatter(spots[:, 0], spots[:, 1], s=190 if group == "motor" else 34, color=COLOURS[group], zorder=3)
            axis.text(spots[:, 0].mean(), 1.07, f"{len(spots)} {group}", ha="center", fontsize=10)
    for (x, y), name in zip(places["motor"], circuit.get("motors", ()), strict=False):
        axis.text(x + 0.09, y, {"phi": "φ", "omega": "ω"}.get(name, name), va="center", fontsize=13)
    loops = len(circuit["edges"]) - len(edges)
    total = len(circuit["edges"])
    axis.set_title(f"{title}\n{total} synapses, {loops} of them recurrent among command neurons", fontsize=11, pad=22)
    axis.set_xlim(-0.3, 3.35)
    axis.set_ylim(-0.05, 1.12)
    axis.axis("off")
    return figure


def column(index: int, count: int) -> np.ndarray:
    """Places [count, 2] of a group: one column for a few neurons, several for many."""
    across = 1 if count <= 16 else int(np.ceil(np.sqrt(count / 3)))
    rows = -(-count // across) if count else 1
    k = np.arange(count)
    x = index + 0.09 * (k // rows - (across - 1) / 2)
    y = 1 - (k % rows + 0.5 + 0.25 * ((k // rows) % 2)) / rows
    return np.stack([x, y], axis=1)
