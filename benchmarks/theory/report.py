"""What a section of the report is, and how its picture looks."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

# Okabe and Ito's palette: told apart with every kind of colour vision.
BLUE, ORANGE, GREEN, PINK, SKY, RED, BLACK = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000"
CYCLE = (BLUE, ORANGE, GREEN, RED, PINK, SKY, BLACK)
STYLE = {
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "axes.prop_cycle": matplotlib.rcsetup.cycler(color=CYCLE),
}
plt.rcParams.update(STYLE)


@dataclass
class Section:
    """One law: a heading, sentences and tables in Markdown, and pictures by file name."""

    title: str
    lines: list[str] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)

    def say(self, text: str) -> None:
        self.lines += [text, ""]

    def table(self, header: list[str], rows: list[list[object]]) -> None:
        """Append a table; floats get three significant digits."""
        self.lines += ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
        self.lines += ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]
        self.lines.append("")

    def markdown(self, pictures: str) -> str:
        """The section as text; ``pictures`` is the relative folder of its figures."""
        shown = [f"![{self.title}]({pictures}/{name}.png)\n" for name in self.figures]
        return "\n".join([f"## {self.title}", "", *self.lines, *shown])


def cell(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return f"{value:.1e}"


def canvas(columns: int, width: float = 3.6, height: float = 2.9) -> tuple[Figure, list[Axes]]:
    """A row of ``columns`` axes."""
    figure, axes = plt.subplots(1, columns, figsize=(width * columns, height), layout="constrained", squeeze=False)
    return figure, list(axes[0])


def save(figure: Figure, path: Path) -> None:
    """Write a PNG of few colours, so that the repository stays small."""
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=130, format="png", facecolor="white")
    plt.close(figure)
    Image.open(buffer).convert("RGB").quantize(96, dither=Image.Dither.NONE).save(path, optimize=True)
