"""The circuit of one head drawn so that it can be read: synapses bundled by group, the strongest of each bundle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path as Curve
from numpy.typing import NDArray

from nacdrive.common.errors import UserError
from nacdrive.models.policy import Policy
from nacdrive.nac import NAC, NACKey
from nacdrive.nac.backbone import Synapses

STRONGEST = 30
"""Synapses of a bundle that are drawn one by one."""
EXCITING, INHIBITING, BAND, GREY = "#d55e00", "#0064b0", "#8a94a0", "#566473"
COLUMNS = {"query": 0, "key": 0, "features": 0, "inter": 1, "command": 2, "φ": 3, "ω": 3, "ρ": 3}
SPANS = {"query": (0.53, 1.0), "key": (0.0, 0.47), "φ": (0.78, 0.78), "ω": (0.42, 0.42), "ρ": (0.06, 0.06)}
"""Where a group begins and ends in its column; all others take the whole of it, 0 .. 1."""
MOTORS = {"φ": "target", "ω": "rate", "ρ": "decay"}
PULL = 0.55
"""How far a synapse is drawn towards the middle of its bundle, 0 .. 1."""

Matrices = dict[tuple[str, str], NDArray[np.float32]]
"""(from group, to group) -> weights [from, to]; exactly 0 where there is no synapse."""


@dataclass(frozen=True)
class Bundle:
    """All synapses from one group of neurons to another."""

    source: str
    target: str
    weights: NDArray[np.float32]
    """[from, to], 0 where there is none."""

    def strongest(self, count: int) -> Iterator[tuple[int, int, float]]:
        """(from, to, weight) of the ``count`` largest by size, the weakest first."""
        order = np.argsort(np.abs(self.weights), axis=None)[-count:]
        for source, target in zip(*np.unravel_index(order, self.weights.shape), strict=True):
            if self.weights[source, target]:
                yield int(source), int(target), float(self.weights[source, target])

    @property
    def count(self) -> int:
        return int(np.count_nonzero(self.weights))


def nac_of(policy: Policy) -> NAC | NACKey:
    """The NAC layer of a policy, of several the last."""
    layers = [module for module in policy.network.modules() if isinstance(module, (NAC, NACKey))]
    if not layers or policy.circuit() is None:
        raise UserError(f"{policy.name} has no NAC layer, so there is no wiring to show: give a nac_* model.")
    return layers[-1]


def matrices(nac: NAC | NACKey, head: int) -> Matrices:
    """Weights of a head's synapses between ``sensory``, ``inter``, ``command`` and ``motor`` neurons, as they act.

    Of a circuit that all heads share the motor neurons are those of the head.
    """
    if not 0 <= head < nac.num_heads:
        raise UserError(f"--head is {head + 1}: this policy has heads 1 to {nac.num_heads}.")
    backbone = nac.backbone
    # All heads may share one circuit.
    copy = min(head, backbone.sensory.weight.shape[0] - 1)

    def acting(synapses: Synapses) -> NDArray[np.float32]:
        return np.asarray(synapses.effective()[copy].detach().cpu().numpy())

    # Recurrent synapses act from the second update on.
    loops = acting(backbone.command) if backbone.command is not None and backbone.unfolds > 1 else None
    if backbone.inter is not None:
        found: Matrices = {("sensory", "inter"): acting(backbone.sensory), ("inter", "command"): acting(backbone.inter)}
        own = slice(head, None, nac.num_heads) if isinstance(nac, NACKey) else slice(None)
        found |= {("command", "motor"): acting(backbone.motor)[:, own]}
        return found | ({("command", "command"): loops} if loops is not None else {})
    # A circuit that is not layered: command and inter neurons are one recurrent layer, in this order.
    places = {"command": len(nac.wiring.neurons("command")), "inter": len(nac.wiring.neurons("inter"))}
    cuts = {"command": slice(0, places["command"]), "inter": slice(places["command"], sum(places.values()))}
    cuts = {name: cut for name, cut in cuts.items() if places[name]}
    sensory, motor = acting(backbone.sensory), acting(backbone.motor)
    found = {("sensory", name): sensory[:, cut] for name, cut in cuts.items()}
    found |= {(name, "motor"): motor[cut] for name, cut in cuts.items()}
    if loops is not None:
        found |= {(a, b): loops[cuts[a], cuts[b]] for a in cuts for b in cuts}
    return found


def bundles(weights: Matrices) -> list[Bundle]:
    """The synapses of a head by the groups that are drawn: a pair's query and key apart, the motor neurons apart."""
    result: list[Bundle] = []
    motors = next(matrix.shape[1] for (_, target), matrix in weights.items() if target == "motor")
    of_target = {name: slice(i, i + 1) for i, name in enumerate(list(MOTORS)[:motors])}
    for (source, target), matrix in weights.items():
        half = len(matrix) // 2
        of_source = {"query": slice(0, half), "key": slice(half, None)} if motors == 2 else {"features": slice(None)}
        sources = of_source if source == "sensory" else {source: slice(None)}
        targets = of_target if target == "motor" else {target: slice(None)}
        result += [Bundle(a, b, matrix[rows, columns]) for a, rows in sources.items() for b, columns in targets.items()]
    return [bundle for bundle in result if bundle.count]


def heights(drawn: list[Bundle]) -> dict[str, NDArray[np.float64]]:
    """Where each neuron of each group stands, 0 .. 1: near those that its strong synapses lead to."""
    sizes = {name: n for one in drawn for name, n in zip((one.source, one.target), one.weights.shape, strict=True)}
    places: dict[str, NDArray[np.float64]] = {}
    for group in (*MOTORS, "command", "inter", "query", "key", "features"):
        if group not in sizes:
            continue
        low, high = SPANS.get(group, (0.0, 1.0))
        ahead = [b for b in drawn if b.source == group and b.target in places and b.target != group]
        pull, total = np.zeros(sizes[group]), np.full(sizes[group], 1e-12)
        for bundle in ahead:
            size = np.abs(bundle.weights).astype(float)
            pull, total = pull + size @ places[bundle.target], total + size.sum(axis=1)
        rank = np.empty(sizes[group], int)
        rank[np.argsort(pull / total, kind="stable")] = np.arange(sizes[group])
        places[group] = low + (high - low) * (rank + 0.5) / sizes[group]
    return places


def wiring_figure(policy: Policy, head: int) -> Figure:
    """The circuit of one head (from 0) from left to right: a band per bundle, its strongest synapses over it.

    Orange synapses excite, blue ones inhibit, as their weights are after training; the thicker, the stronger among
    those of their bundle. Neurons without a drawn synapse are pale.
    """
    synapses = bundles(matrices(nac_of(policy), head))
    places = heights(synapses)
    figure = Figure(figsize=(11, 6.6), layout="constrained")
    axis = figure.subplots()
    used: dict[str, set[int]] = {group: set() for group in places}
    drawn = 0
    for bundle in synapses:
        band(axis, bundle, places)
        middle = float((places[bundle.source].mean() + places[bundle.target].mean()) / 2)
        strongest = list(bundle.strongest(STRONGEST))
        top = abs(strongest[-1][2])
        for source, target, weight in strongest:
            used[bundle.source].add(source)
            used[bundle.target].add(target)
            ends = (places[bundle.source][source], places[bundle.target][target])
            synapse(axis, bundle, ends, middle, weight, abs(weight) / top)
        drawn += len(strongest)
    for group, spots in places.items():
        neurons(axis, group, spots, used[group])
    counts(axis, synapses)
    total = sum(bundle.count for bundle in synapses)
    axis.set_title(
        f"{policy.name}, head {head + 1}: the {STRONGEST} strongest synapses of each bundle ({drawn:,} of {total:,})",
        fontsize=11,
        pad=26,
    )
    axis.legend(handles=key(), loc="lower center", bbox_to_anchor=(0.5, -0.21), ncols=4, frameon=False, fontsize=8.5)
    axis.set(xlim=(-0.3, 3.3), ylim=(-0.03, 1.05))
    axis.axis("off")
    return figure


def key() -> list[Line2D | Patch]:
    """The legend."""
    return [
        Line2D([], [], color=EXCITING, linewidth=2.2, label="excites (weight above 0)"),
        Line2D([], [], color=INHIBITING, linewidth=2.2, label="inhibits (weight below 0)"),
        Line2D([], [], color=GREY, linewidth=0.6, label="thin: weaker than the strongest of its bundle"),
        Patch(color=BAND, alpha=0.16, label="band: all synapses between two groups"),
    ]


def band(axis: Axes, bundle: Bundle, places: dict[str, NDArray[np.float64]]) -> None:
    """A pale band from one group to another; none for synapses within a column."""
    xa, xb = COLUMNS[bundle.source], COLUMNS[bundle.target]
    if xa == xb:
        return
    (a0, a1), (b0, b1) = ((places[g].min(), places[g].max()) for g in (bundle.source, bundle.target))
    bend = 0.45 * (xb - xa)
    below = [(xa, a0), (xa + bend, a0), (xb - bend, b0), (xb, b0)]
    above = [(xb, b1), (xb - bend, b1), (xa + bend, a1), (xa, a1)]
    codes = [Curve.MOVETO, *[Curve.CURVE4] * 3, Curve.LINETO, *[Curve.CURVE4] * 3]
    axis.add_patch(PathPatch(Curve([*below, *above], codes), facecolor=BAND, alpha=0.13, linewidth=0, zorder=0))


def synapse(axis: Axes, bundle: Bundle, ends: tuple[float, float], middle: float, weight: float, share: float) -> None:
    """One synapse, drawn towards the middle of its bundle; within a column as an arc at its right."""
    xa, xb = COLUMNS[bundle.source], COLUMNS[bundle.target]
    a, b = ends
    if xa == xb:
        reach = 0.12 + 0.25 * abs(a - b)
        points = [(xa + 0.03, a), (xa + reach, a), (xb + reach, b), (xb + 0.03, b)]
    else:
        bend = 0.45 * (xb - xa)
        points = [(xa, a), (xa + bend, a + PULL * (middle - a)), (xb - bend, b + PULL * (middle - b)), (xb, b)]
    curve = Curve(points, [Curve.MOVETO, *[Curve.CURVE4] * 3])
    colour = EXCITING if weight > 0 else INHIBITING
    style = {"edgecolor": colour, "linewidth": 0.3 + 1.9 * share, "alpha": 0.25 + 0.6 * share}
    axis.add_patch(PathPatch(curve, facecolor="none", zorder=1 + share, **style))


def neurons(axis: Axes, group: str, spots: NDArray[np.float64], used: set[int]) -> None:
    """The neurons of a group in its column, and its name."""
    motor = group in MOTORS
    x = COLUMNS[group]
    size = 520.0 if motor else float(np.clip(2600 / len(spots), 9, 60))
    shades = [GREY if i in used else "#d5dae0" for i in range(len(spots))]
    axis.scatter(np.full(len(spots), x), spots, s=size, color=shades, zorder=4, edgecolors="white", linewidths=0.5)
    if motor:
        axis.text(x, spots[0], group, ha="center", va="center", fontsize=14, color="white", zorder=5)
        axis.text(x + 0.11, spots[0], MOTORS[group], ha="left", va="center", fontsize=9, color=GREY)
    elif x == 0:
        label = f"{group}\n{len(spots)} sensory"
        axis.text(x - 0.06, spots.mean(), label, ha="right", va="center", fontsize=9, color=GREY)
    else:
        axis.text(x, 1.03, f"{len(spots)} {group} neurons", ha="center", va="bottom", fontsize=9, color=GREY)


def counts(axis: Axes, drawn: list[Bundle]) -> None:
    """How many synapses lead from column to column, and how many of them excite, below the picture."""
    columns: dict[tuple[int, int], list[Bundle]] = {}
    for bundle in drawn:
        columns.setdefault((COLUMNS[bundle.source], COLUMNS[bundle.target]), []).append(bundle)
    for (a, b), several in columns.items():
        total = sum(bundle.count for bundle in several)
        exciting = sum(int((bundle.weights > 0).sum()) for bundle in several)
        what = "recurrent" if a == b else "synapses"
        x, y = (a, -0.1) if a == b else ((a + b) / 2, -0.04)
        axis.text(x, y, f"{total:,} {what}, {exciting:,} excite", ha="center", va="top", fontsize=8.5, color=GREY)
