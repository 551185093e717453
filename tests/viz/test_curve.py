"""The figure of a training: returns over decisions, in the units that a reader expects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from nacdrive.common.errors import UserError
from nacdrive.viz import figures

EVAL = {"mean": 700.0, "min": 500.0, "episodes": 3}
LINES: list[dict[str, Any]] = [
    {"decisions": 500_000, "return": None, "seconds": 60.0},
    {"decisions": 1_000_000, "return": 400.0, "seconds": 120.0, "eval": EVAL},
    {"decisions": 2_000_000, "return": 800.0, "seconds": 3600.0, "eval": {**EVAL, "mean": 850.0, "episodes": 20}},
]


def draw(folder: Path, lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, *env: str) -> Figure:
    kept: list[Figure] = []
    canvas = figures.FigureCanvasAgg
    monkeypatch.setattr(figures, "FigureCanvasAgg", lambda figure: (kept.append(figure), canvas(figure))[1])
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    figures.draw_curve(folder / "log.jsonl", folder / "curve.png", *env)
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    return kept[0]


def test_a_training_is_drawn_over_millions_of_decisions_beside_its_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = draw(tmp_path, LINES, monkeypatch)
    (axes,) = figure.axes
    training, tested, worst, solved = axes.lines
    assert training.get_xydata().tolist() == [[1, 400], [2, 800]]
    assert tested.get_xydata().tolist() == [[1, 700], [2, 850]] and worst.get_xydata().tolist() == [[1, 500], [2, 500]]
    assert list(solved.get_ydata()) == [900, 900] and axes.get_ylim() == (-50, 1000)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "training, sampled actions, fast renderer (mean of 100 episodes)",
        "unseen tracks, official renderer (mean of 20)",
        "worst of them",
    ]
    (note,) = axes.texts
    assert (note.get_text(), note.xy, note.get_position()) == ("900: solved", (0, 900), (2, 4))
    assert axes.get_title() == "PPO on CarRacing-v3, 60 minutes"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("decisions, millions", "return")
    assert figure.get_size_inches().tolist() == [8, 4.5] and figure.dpi == 120
    # What is less important is thinner or paler.
    assert solved.get_linewidth() < training.get_linewidth() < tested.get_linewidth()
    assert axes.get_xgridlines()[0].get_alpha() < 0.5
    sizes = [axes.title.get_fontsize(), note.get_fontsize(), axes.get_legend().get_texts()[0].get_fontsize()]
    assert sizes == [11, 8, 8] and not axes.get_legend().get_frame_on()


def test_of_another_environment_nothing_is_called_solved_and_without_tests_there_is_one_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    untested = [{name: value for name, value in line.items() if name != "eval"} for line in LINES]
    (axes,) = draw(tmp_path, untested, monkeypatch, "Pendulum-v1").axes
    assert len(axes.lines) == 1 and not axes.texts and axes.get_ylim() != (-50, 1000)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "training, sampled actions (mean of 100 episodes)"
    ]
    with pytest.raises(UserError, match="no finished episode yet"):
        draw(tmp_path, LINES[:1], monkeypatch)
