"""Figures as files, and the curve of a training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from nacdrive.common.errors import UserError
from nacdrive.common.files import atomic_path

FORMATS = (".png", ".svg", ".pdf")


def save(figure: Figure, target: Path, dpi: float = 200) -> None:
    """Write a figure, whole or not at all, in the format that its name ends with: one of ``FORMATS``."""
    FigureCanvasAgg(figure)
    with atomic_path(target) as partial:
        figure.savefig(partial, format=target.suffix.removeprefix("."), dpi=dpi)


def draw_curve(log: Path, target: Path, env: str = "CarRacing-v3") -> None:
    """Draw returns of training and evaluation over decisions, from ``log`` (JSON lines) into ``target`` (PNG)."""
    carracing = env == "CarRacing-v3"
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if line]
    driven = [line for line in lines if line["return"] is not None]
    tested = [line for line in lines if "eval" in line]
    if not driven:
        raise UserError(f"{log} holds no finished episode yet: there is nothing to draw.")
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.plot(
        [line["decisions"] / 1e6 for line in driven],
        [line["return"] for line in driven],
        color="#8aa4b8",
        linewidth=1.2,
        label=f"training, sampled actions{', fast renderer' if carracing else ''} (mean of 100 episodes)",
    )
    if tested:
        at = np.array([line["decisions"] for line in tested]) / 1e6
        mean = np.array([line["eval"]["mean"] for line in tested])
        worst = np.array([line["eval"]["min"] for line in tested])
        count = tested[-1]["eval"]["episodes"]
        where = "unseen tracks, official renderer" if carracing else "unseen episodes"
        axes.plot(at, mean, "o-", color="#0b6e99", label=f"{where} (mean of {count})")
        axes.plot(at, worst, "v", color="#c44e52", label="worst of them")
    axes.set(xlabel="decisions, millions", ylabel="return")
    if carracing:
        axes.axhline(900, color="#444444", linewidth=0.8, linestyle=":")
        axes.annotate("900: solved", (0, 900), xytext=(2, 4), textcoords="offset points", fontsize=8)
        axes.set_ylim(-50, 1000)
    axes.set_title(f"PPO on {env}, {lines[-1]['seconds'] / 60:.0f} minutes", fontsize=11)
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", fontsize=8, frameon=False)
    save(figure, target, dpi=120)
