"""Figures: what a policy looks at, neurons over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.drivers.tick import Tick
from nacdrive.extras.explain.sides import TURN
from nacdrive.viz.overlay import probabilities
from nacdrive.viz.trace import Trace

POLICY, EXPERT, GREY = "#0064b0", "#b96a00", "#566473"
MAPS = ("q", "k", "v", "inter", "command")
LINES = {"phi": "φ", "omega": "ω  1/s", "rho": "ρ  1/s", "t": "t", "logits": "logit"}
BLUE_TO_ORANGE = LinearSegmentedColormap.from_list("activity", ["#0064b0", "#f4f4f4", "#d55e00"])
"""Of activities below and above zero, as on the page."""
APART_S = 0.5
"""Moments of a figure lie at least so far apart."""


def saliency_figure(ticks: Sequence[Tick], title: str) -> Figure:
    """Frames, and below each the saliency over it; headed by decision, certainty and expert."""
    height, width = ticks[0].frame.shape[:2]
    wide = 1.75 if width <= height else 2.6
    figure = Figure(figsize=(wide * len(ticks) + 0.3, 0.9 + 2 * wide * height / width), layout="constrained")
    axes = figure.subplots(2, len(ticks), squeeze=False)
    for (top, bottom), tick in zip(axes.T, ticks, strict=True):
        for axis in (top, bottom):
            axis.imshow(tick.frame, interpolation="nearest")
            axis.set(xticks=[], yticks=[])
        if tick.saliency is not None:
            bottom.imshow(tick.saliency, cmap="inferno", alpha=np.clip(tick.saliency * 1.2, 0, 0.85), vmin=0, vmax=1)
        is_blank = tick.saliency is not None and not tick.saliency.any()
        bottom.set_xlabel("nothing speaks for it" if is_blank else "", fontsize=7)
        top.set_title(f"{tick.t_s:.2f} s\n{decision(tick)}", fontsize=8)
    bar = figure.colorbar(ScalarMappable(Normalize(0, 1), "inferno"), ax=axes[1, :], shrink=0.8, pad=0.01, ticks=[0, 1])
    bar.ax.set_yticklabels(["least", "most"], fontsize=8)
    figure.suptitle(title, fontsize=11)
    return figure


def decision(tick: Tick) -> str:
    """What was decided, how sure the policy was, and what the expert would have done where that is something else."""
    text = action_name(tick.action)
    if tick.action.logits is not None and tick.action.choice is not None:
        text += f" {probabilities(tick.action.logits)[tick.action.choice]:.0%}"
    if tick.expert is not None and action_name(tick.expert) != action_name(tick.action):
        text += f"\nexpert: {action_name(tick.expert)}"
    return text


def action_name(action: Action) -> str:
    """The word for an action: its side, or on a straight line what the pedals do."""
    if abs(action.steering) > TURN:
        return "left" if action.steering < 0 else "right"
    return "brake" if action.brake > TURN else "gas" if action.throttle > TURN else "straight"


def telling_moments(ticks: Sequence[Tick], count: int) -> list[int]:
    """Places of the ``count`` Ticks most worth a look, in the order of time, never two within half a second.

    First decisions that the expert would have taken otherwise, then turns, then the rest; within each the least sure.
    """

    def rank(i: int) -> tuple[int, float]:
        tick = ticks[i]
        differs = tick.expert is not None and action_name(tick.expert) != action_name(tick.action)
        kind = 0 if differs else 1 if abs(tick.action.steering) > TURN else 2
        scores = tick.action.logits
        return kind, float(probabilities(scores).max()) if scores is not None else -abs(tick.action.steering)

    chosen: list[int] = []
    for i in sorted(range(len(ticks)), key=rank):
        if len(chosen) < count and all(abs(ticks[i].t_s - ticks[k].t_s) >= APART_S for k in chosen):
            chosen.append(i)
    return sorted(chosen)


def neurons_figure(trace: Trace, title: str) -> Figure:
    """Every neuron group of one head over time, the four gates below, and the steering that came of it."""
    groups = [name for name in MAPS if name in trace.states]
    lines = [name for name in LINES if name in trace.states]
    heights = [0.7 if name in ("q", "k", "v") else 1.6 for name in groups] + [0.8] * len(lines) + [0.8]
    figure = Figure(figsize=(9, 1.1 * sum(heights) + 0.6), layout="constrained")
    axes: list[Axes] = list(np.ravel(figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)))
    for axis, name in zip(axes, groups, strict=False):
        neuron_map(axis, trace, name)
    for axis, name in zip(axes[len(groups) :], lines, strict=False):
        axis.plot(trace.t_s, trace.states[name], color=POLICY, linewidth=1.2)
        label(axis, LINES[name])
    last = axes[-1]
    last.fill_between(trace.t_s, 0, trace.steering, step="post", color=EXPERT, alpha=0.6)
    last.set_yticks([-1, 1], ["left", "right"])
    last.set(ylim=(-1.15, 1.15), xlabel="seconds", xlim=(trace.t_s[0], trace.t_s[-1]))
    label(last, "steering")
    figure.suptitle(title, fontsize=11)
    return figure


def neuron_map(axis: Axes, trace: Trace, name: str) -> None:
    """Neurons by time, blue below zero and orange above, each group on its own scale, sorted by what they tell.

    Those that are higher in left turns stand at the top, those that are higher in right turns at the bottom.
    """
    values: NDArray[Any] = trace.states[name].T
    left, right = trace.steering < -TURN, trace.steering > TURN
    if left.any() and right.any():
        values = values[np.argsort(values[:, right].mean(axis=1) - values[:, left].mean(axis=1))]
    top = float(np.abs(values).max()) or 1.0
    extent = (float(trace.t_s[0]), float(trace.t_s[-1]), float(len(values)), 0.0)
    image = axis.imshow(
        values, aspect="auto", cmap=BLUE_TO_ORANGE, vmin=-top, vmax=top, extent=extent, interpolation="nearest"
    )
    axis.set_yticks([])
    bar = axis.figure.colorbar(image, ax=axis, pad=0.01, aspect=12, ticks=[-top, 0, top])
    bar.ax.set_yticklabels([f"{-top:.2g}", "0", f"{top:.2g}"], fontsize=7)
    label(axis, f"{name}\n({len(values)})")


def label(axis: Axes, text: str) -> None:
    """A name at the left of a strip."""
    axis.set_ylabel(text, rotation=0, ha="right", va="center", fontsize=9)
    axis.yaxis.set_label_coords(-0.075, 0.5)
    axis.tick_params(labelsize=8, colors=GREY)
    axis.spines[["top", "right"]].set_visible(False)
