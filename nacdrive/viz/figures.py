"""Figures of what a policy looks at and how its neurons act, as the paper's Figures 4, 6 and 7 show them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nacdrive.common.files import atomic_path
from nacdrive.drivers.tick import Tick
from nacdrive.viz.trace import Trace

POLICY, EXPERT, GREY = "#0064b0", "#b96a00", "#566473"
MAPS = ("q", "k", "v", "inter", "command")
LINES = {"phi": "φ", "omega": "ω  1/s", "t": "t", "logits": "logit"}
DPI = 130


def save(figure: Figure, target: Path) -> None:
    """Write a figure as PNG, whole or not at all."""
    FigureCanvasAgg(figure)
    with atomic_path(target) as partial:
        figure.savefig(partial, format="png", dpi=DPI)


def side(steering: float) -> str:
    """The word for a steering value."""
    return "left" if steering < -0.05 else "right" if steering > 0.05 else "straight"


def saliency_figure(ticks: Sequence[Tick], title: str) -> Figure:
    """Frames, and below each the saliency over it; headed by what the policy decided and how sure it was."""
    height, width = ticks[0].frame.shape[:2]
    wide = 1.75 if width <= height else 2.6
    figure = Figure(figsize=(wide * len(ticks) + 0.3, 0.9 + 2 * wide * height / width), layout="constrained")
    axes = np.atleast_2d(figure.subplots(2, len(ticks), squeeze=False))
    for column, tick in enumerate(ticks):
        top, bottom = axes[0, column], axes[1, column]
        top.imshow(tick.frame, interpolation="nearest")
        bottom.imshow(tick.frame, interpolation="nearest")
        if tick.saliency is not None:
            bottom.imshow(tick.saliency, cmap="inferno", alpha=np.clip(tick.saliency * 1.2, 0, 0.85), vmin=0, vmax=1)
        top.set_title(f"{side(tick.action.steering)}\n{tick.t_s:.2f} s", fontsize=9)
        for axis in (top, bottom):
            axis.set_xticks([])
            axis.set_yticks([])
    figure.suptitle(title, fontsize=11)
    return figure


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
    last.set_ylim(-1.15, 1.15)
    last.set_yticks([-1, 1], ["left", "right"])
    label(last, "steering")
    last.set_xlabel("seconds")
    last.set_xlim(trace.t_s[0], trace.t_s[-1])
    figure.suptitle(title, fontsize=11)
    return figure


def neuron_map(axis: Axes, trace: Trace, name: str) -> None:
    """Neurons by time, blue below zero and orange above, each group on its own scale."""
    values: NDArray[Any] = trace.states[name].T
    top = float(np.abs(values).max()) or 1.0
    extent = (float(trace.t_s[0]), float(trace.t_s[-1]), float(len(values)), 0.0)
    axis.imshow(values, aspect="auto", cmap="PuOr_r", vmin=-top, vmax=top, extent=extent, interpolation="nearest")
    axis.set_yticks([])
    label(axis, f"{name}\n({len(values)})")


def label(axis: Axes, text: str) -> None:
    """A name at the left of a strip."""
    axis.set_ylabel(text, rotation=0, ha="right", va="center", fontsize=9)
    axis.yaxis.set_label_coords(-0.075, 0.5)
    axis.tick_params(labelsize=8, colors=GREY)
    axis.spines[["top", "right"]].set_visible(False)
