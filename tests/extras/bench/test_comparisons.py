"""What a report of a bench compares, and what it says of limits and costs."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import pytest

from nacdrive.extras.bench import paper, report
from nacdrive.extras.bench.cell import cell_folder
from nacdrive.extras.bench.report import compare, cost_figure, curves_figure, limits_of, sections
from tests.helpers.bench_results import ACCURACY, SIZE, done


@pytest.fixture
def comparison() -> report.Comparison:
    scores = {"s4": (89.0, 89.1, 88.9), "mha": (80.0, 81.0, 79.0), "rnn": (50.0, 51.0, 49.0)}
    seconds = {"s4": 30.0, "mha": 10.0, "rnn": 40.0}
    rows = [done(m, s, k, seconds[m]) for m, values in scores.items() for k, s in enumerate(values)]
    rows.append(done("references", 0.0, references={"mean": {"emnist": {ACCURACY.key: 10.0}}}, scores={}))
    (section,) = sections(rows)
    comparison = compare(section, ACCURACY)
    assert comparison is not None
    return comparison


def test_a_line_of_a_report_says_how_far_behind_how_sure_and_how_dear(comparison: report.Comparison) -> None:
    first, second, _ = (report.cells(each, 2) for each in comparison.lines)
    assert first == ["s4", "89.00", "0.10", "best", "-", "", "3", "12,345", "30", "yes"]
    # Differences of 9, 8.1 and 9.9; Student's 4.3027 with two degrees of freedom.
    assert second == [
        "mha",
        "80.00",
        "1.00",
        "9.00",
        "6.76 to 11.24",
        "worse than the best",
        "3",
        "12,345",
        "10",
        "yes",
    ]
    assert report.cells(comparison.lines[2], 2)[-1] == ""
    assert comparison.references == {"mean": 10.0}
    first_sentence, last = report.sentences(comparison)
    assert first_sentence.startswith(f"{ACCURACY.title}, higher is better.") and last == "No models: mean 10.00."
    lower = dataclasses.replace(comparison, metric=dataclasses.replace(ACCURACY, higher=False), references={})
    assert len(report.sentences(lower)) == 1 and "lower is better" in report.sentences(lower)[0]


def test_less_is_better_where_a_measure_says_so(comparison: report.Comparison) -> None:
    error = compare(comparison.section, dataclasses.replace(ACCURACY, higher=False))
    assert error is not None
    assert [(each.model, each.best, each.cheapest) for each in error.lines] == [
        ("rnn", True, True),
        ("mha", False, True),
        ("s4", False, False),
    ]
    assert error.lines[1].behind is not None and error.lines[1].behind["value"] == pytest.approx(30)


def test_a_report_is_the_same_as_markdown_csv_and_a_page(comparison: report.Comparison) -> None:
    title = f"{comparison.section.title}: {ACCURACY.title}"
    assert comparison.section.title == "emnist, protocol sequence (epochs 8)"
    text_ = report.markdown([comparison], "a <command>")
    assert text_.startswith("# Layers compared\n\nCommand: `a <command>`.\n\n## " + title) and text_.endswith("|\n")
    rows = list(csv.DictReader(report.csv_text([comparison]).splitlines()))
    assert [row["model"] for row in rows] == ["s4", "mha", "rnn"]
    assert (rows[0]["behind"], rows[0]["low"], rows[0]["high"], rows[0]["verdict"]) == ("", "", "", "")
    assert (rows[1]["task"], rows[1]["protocol"], rows[1]["metric"]) == ("emnist", "sequence", ACCURACY.key)
    assert float(rows[1]["behind"]) == pytest.approx(9) and float(rows[1]["low"]) == pytest.approx(6.764, abs=1e-3)
    assert (rows[1]["trainings"], rows[1]["parameters"], rows[1]["train_s"]) == ("3", "12345", "10.0")
    page = report.html_text([comparison], "a <command>", {0: ["cost-0.svg", "curves-0.svg"]})
    assert "<code>a &lt;command&gt;</code>" in page and f"<h2>{title}</h2>" in page and "<i>cheapest</i>" in page
    assert '<img src="cost-0.svg" alt="cost of emnist">' in page and 'alt="curves of emnist"' in page
    assert "<img" not in report.html_text([comparison], "", {})
    tex = report.latex([comparison])
    assert f"{paper.names()['mha']} & 80.00 & 1.00 & 9.00 & 6.76 to 11.24" in tex and tex.startswith("% needs")
    assert f"% {title}" in tex


def test_a_report_says_what_the_table_says_of_rows_and_where_no_width_fits(comparison: report.Comparison) -> None:
    lines = [dataclasses.replace(line, model="mha-lag", parameters=12_345) for line in comparison.lines[:1]]
    settings = {**comparison.section.settings, "parameters": 9_000}
    section = dataclasses.replace(comparison.section, settings=settings)
    comparison = dataclasses.replace(comparison, section=section, lines=tuple(lines))
    for text in (report.markdown([comparison], "command"), report.html_text([comparison], "command", {})):
        assert "12,345 (no width within 10 %)" in text
        assert "`mha-lag`: `mha` behind a norm, with 16 time features; it cannot take lags." in text


def test_quality_is_drawn_over_the_seconds_of_training(comparison: report.Comparison) -> None:
    (axis,) = cost_figure(comparison).axes
    assert (axis.get_xscale(), axis.get_xlabel(), axis.get_ylabel()) == ("log", "training (s)", ACCURACY.title)
    assert axis.get_title() == comparison.section.title
    # The line joins the models that no other beats in both, from the quickest on.
    front = axis.lines[-1]
    assert (list(front.get_xdata()), list(front.get_ydata())) == ([10, 30], [80, 89]) and front.get_linewidth() == 1
    assert [each.get_text() for each in axis.texts] == ["s4", "mha", "rnn"]
    assert [container.lines[0].get_color() for container in axis.containers] == ["C0", "C0", "0.6"]
    unknown = dataclasses.replace(comparison.lines[0], train_s=None, spread=None)
    (axis,) = cost_figure(dataclasses.replace(comparison, lines=(unknown,))).axes
    assert list(axis.lines[-1].get_xdata()) == [0.01]


def test_learning_curves_are_means_over_trainings_as_long_as_the_shortest(
    comparison: report.Comparison, tmp_path: Path
) -> None:
    for row in comparison.section.rows:
        row["place"] = tmp_path
    assert curves_figure(comparison.section) is None
    for key, losses in (("emnist/s4/0", [3.0, 2.0, 1.0]), ("emnist/s4/0/1", [5.0, 4.0])):
        folder = cell_folder(tmp_path, key)
        folder.mkdir(parents=True)
        lines_ = [{"valid_loss": loss} for loss in losses] + [{"valid_loss": None}, {"epoch": 1}]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines_))
    figure = curves_figure(comparison.section)
    assert figure is not None
    (axis,) = figure.axes
    (curve,) = axis.lines
    assert (list(curve.get_xdata()), list(curve.get_ydata())) == ([1, 2], [4, 3]) and curve.get_label() == "s4"
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("epoch", "loss on the validation part")
    assert axis.get_legend() is not None and axis.get_title() == comparison.section.title


def test_what_a_training_was_given_is_told_in_words() -> None:
    assert limits_of({"size": SIZE}) == ["epochs 8"]
    given = {"size": {"max_samples": 50, "epochs": 0}, "learning_rates": [0.1, 1e-5], "parameters": 60000}
    assert limits_of(given) == ["max_samples 50", "learning rate chosen among 0.1, 1e-05", "about 60,000 parameters"]
