"""What is laid and painted on a road: its surface, its lines, and what lies along its edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

EdgeLine = Literal["double", "solid", "dashed", "none"]
CentreLine = Literal["none", "dashed", "solid", "double"]
Kerbs = Literal["bends", "everywhere", "none"]
Surface = Literal["asphalt", "concrete", "cobbles", "gravel"]
Shoulder = Literal["concrete", "gravel", "earth"]


@dataclass(frozen=True)
class RoadStyle:
    """One road's looks, the same on every day; the standard one is that of the two fixed tracks."""

    surface: Surface = "asphalt"
    edge_line: EdgeLine = "double"
    """At both edges; double: two lines with a dark strip between, as in the simulator."""
    centre_line: CentreLine | None = None
    """Along the middle; None: as ``Track.centre_line`` says."""
    white_edges: bool = False
    """Whether the lines along the edges are white, and not of the day's colour."""
    white_centre: bool = False
    """The same of the line along the middle."""
    line_m: float = 0.13
    """Width of a painted line in metres."""
    dash: tuple[int, int] = (8, 8)
    """Metres of paint and metres without, where a line is dashed; multiples of 4."""
    kerbs: Kerbs = "bends"
    shoulder: Shoulder = "concrete"


STANDARD_STYLE = RoadStyle()


def random_style(rng: np.random.Generator, variety: float) -> RoadStyle:
    """A road's looks; ``variety`` 0 .. 1 is how far it may be from the standard one."""

    def one_of(usual: str, others: tuple[str, ...], shares: tuple[float, ...]) -> str:
        """The usual one, or with a probability that grows with ``variety`` one of the others."""
        unusual = rng.random() < variety
        other = str(rng.choice(others, p=np.array(shares) / sum(shares)))
        return other if unusual else usual

    # Everything is drawn whatever comes of it, so that one choice leaves the others alone.
    surface = one_of("asphalt", ("asphalt", "concrete", "cobbles", "gravel"), (6, 2, 0.6, 1))
    edge = one_of("double", ("double", "solid", "dashed", "none"), (2, 5, 2, 1.2))
    centre = one_of("none", ("none", "dashed", "solid", "double"), (2, 4, 1.5, 1.5))
    kerbs = one_of("bends", ("bends", "everywhere", "none"), (2, 1, 3))
    shoulder = one_of("concrete", ("concrete", "gravel", "earth"), (1, 1.5, 1.5))
    white_edges, white_centre = (bool(rng.random() < 0.7 * variety) for _ in range(2))
    line_m = float(rng.uniform(0.10, 0.10 + 0.12 * variety)) if variety else 0.13
    dash = ((8, 8), (4, 4), (4, 8), (12, 4))[int(rng.integers(4))] if variety else (8, 8)
    if surface == "gravel":
        # Nobody paints lines on gravel.
        edge, centre, kerbs = "none", "none", "none"
    return RoadStyle(
        surface=surface,  # type: ignore[arg-type]
        edge_line=edge,  # type: ignore[arg-type]
        centre_line=centre,  # type: ignore[arg-type]
        white_edges=white_edges,
        white_centre=white_centre,
        line_m=line_m,
        dash=dash,
        kerbs=kerbs,  # type: ignore[arg-type]
        shoulder=shoulder,  # type: ignore[arg-type]
    )
