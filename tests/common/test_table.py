"""Rows of cells as Markdown, CSV, LaTeX and HTML."""

from __future__ import annotations

import csv
import io

from nacdrive.common.table import csv_text, html_rows, latex, markdown

HEADER, ROWS = ("a", "b"), [("x", "1"), ("y_z", "2 ± 3 %")]


def test_markdown_has_a_rule_for_each_column() -> None:
    assert markdown(HEADER, ROWS) == ["| a | b |", "|---|---|", "| x | 1 |", "| y_z | 2 ± 3 % |"]
    assert markdown(HEADER, [], ["---", "---:"]) == ["| a | b |", "|---|---:|"]


def test_csv_is_read_back_whatever_the_cells_hold() -> None:
    rows = [("x,y", 'a "quote"'), ("two\nlines", ""), ("", "")]
    assert list(csv.reader(io.StringIO(csv_text(HEADER, rows)))) == [list(HEADER), *map(list, rows)]
    assert csv_text(HEADER, [(None, 1.5)]) == "a,b\n,1.5\n"


def test_latex_escapes_what_ends_a_line_or_begins_a_formula() -> None:
    lines = latex(HEADER, ROWS, "note")
    assert lines[0] == r"\begin{tabular}{lr}" and lines[2] == r"a & b \\"
    assert lines[5] == r"y\_z & 2 $\pm$ 3 \% \\"
    assert lines[-2:] == [r"\multicolumn{2}{l}{\footnotesize note}", r"\end{tabular}"]
    assert latex(HEADER, ROWS)[-2] == r"\bottomrule"
    assert r"my\_task:Mine" in latex(["Model", "my_task:Mine"], ROWS)[2]


def test_html_escapes_cells() -> None:
    assert html_rows(("a",), [("<b>",)]) == ["<table><tr><th>a</th></tr>", "<tr><td>&lt;b&gt;</td></tr>", "</table>"]
