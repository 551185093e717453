r"""Fill the tables of docs/results/table.md from the trainings in docs/results/table/*.jsonl.

    python tools/layer_tables.py [--check]

Between a line ``<!-- table: FILE TASK METRIC -->`` and ``<!-- end -->`` stand what the circuits are worth, what no
models reach, and a row for each layer, as ``nacdrive bench report`` computes them; with the paper's number where it
prints one.
``--check`` says which table is not as its file makes it, and writes nothing.
"""

from __future__ import annotations

import argparse
import re
import sys
from functools import cache
from pathlib import Path

from nacdrive.common.table import markdown
from nacdrive.extras.bench import paper
from nacdrive.extras.bench.report import HEADER, Comparison, compare, read_results, rows_of, sections, sentences
from nacdrive.tasks import load_task

RESULTS = Path(__file__).resolve().parents[1] / "docs/results"
PAGE = RESULTS / "table.md"
FILLED = re.compile(r"(<!-- table: (\S+) (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


@cache
def comparison(file: str, task: str, metric: str) -> Comparison:
    """The layers of ``table/FILE.jsonl`` on a task, best first."""
    (section,) = (s for s in sections(read_results([RESULTS / f"table/{file}.jsonl"])) if s.task == task)
    known = {known.key: known for known in load_task(section.trained, section.settings["protocol"]).metrics_of(task)}
    compared = compare(section, known[metric])
    assert compared is not None, (file, task, metric)
    return compared


def table(file: str, task: str, metric: str) -> str:
    """Sentences and rows."""
    compared = comparison(file, task, metric)
    header, rows = list(HEADER[:-1]), [row[:-1] for row in rows_of(compared)]
    printed = {line.model: paper.printed(task, line.model) for line in compared.lines}
    if any(printed.values()):
        header.insert(3, "paper")
        for line, row in zip(compared.lines, rows, strict=True):
            number = printed[line.model]
            row.insert(3, f"{number[0]:.2f} ± {number[1]:.2f}" if number else "-")
    texts = sentences(compared)[1:]
    return "\n".join([*texts, *([""] if texts else []), *markdown(header, rows), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    page = PAGE.read_text(encoding="utf-8")
    filled = FILLED.sub(lambda match: f"{match[1]}{table(match[2], match[3], match[4])}{match[5]}", page)
    if check:
        old, new = ({m[1]: m[0] for m in FILLED.finditer(text)} for text in (page, filled))
        sys.exit("\n".join(name for name in old if old[name] != new[name]) or 0)
    PAGE.write_text(filled, encoding="utf-8")


if __name__ == "__main__":
    main()
