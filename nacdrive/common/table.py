"""Rows of cells as text: Markdown for people, CSV for programs, LaTeX for papers, HTML for browsers."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterable, Sequence


def markdown(header: Sequence[str], rows: Iterable[Iterable[str]], rules: Sequence[str] = ()) -> list[str]:
    """Lines of a table; ``rules`` align the columns, such as ``---:`` for numbers, all to the left if not given."""
    return [
        f"| {' | '.join(header)} |",
        f"|{'|'.join(rules or ['---'] * len(header))}|",
        *(f"| {' | '.join(cells)} |" for cells in rows),
    ]


def csv_text(header: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """A whole file; None is an empty cell."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def latex(header: Sequence[str], rows: Iterable[Iterable[str]], below: str = "") -> list[str]:
    """Lines of a table in booktabs' style, numbers to the right of the names; ``below`` stands under all columns."""
    return [
        rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        r"\toprule",
        " & ".join(header).replace("_", r"\_") + r" \\",
        r"\midrule",
        *(" & ".join(cells).replace("_", r"\_").replace("%", r"\%").replace("±", r"$\pm$") + r" \\" for cells in rows),
        r"\bottomrule",
        *([rf"\multicolumn{{{len(header)}}}{{l}}{{\footnotesize {below}}}"] if below else []),
        r"\end{tabular}",
    ]


def html_rows(header: Sequence[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Lines of a table; cells are escaped, titles are not."""
    lines = ["<table><tr>" + "".join(f"<th>{name}</th>" for name in header) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in cells) + "</tr>" for cells in rows]
    return [*lines, "</table>"]
