"""Every block of every tutorial runs, in order, in an empty folder; budgets are cut where a comment above it says how.
A block of ``text`` is not run: what it takes, a person has made.

Blocks of ``sh`` hold command lines of nacdrive, blocks of ``python`` share one namespace a page, or with a title are
files. A line such as
``<!-- tested with: --epochs 24 => --epochs 1; ... -->`` above a block gives what the tests run instead: each left side
must occur in it, and is replaced once.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import pytest
import torch

from nacdrive.cli.main import dispatch
from tests.helpers.nightly import daily

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))
BLOCK = re.compile(
    r"(?:^<!-- tested with: (.+?) -->\n)?^```(\w+)(?: title=\"(.+?)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


class Block(NamedTuple):
    """A block of code."""

    language: str
    text: str
    file: str | None
    """Where a reader keeps it; a block of Python without one is run at once."""
    line: int
    """Of the page, where its code begins."""


def blocks(page: str) -> list[Block]:
    """The blocks of a page as the tests run them."""
    found = []
    for match in BLOCK.finditer(page):
        text = match[4]
        for change in (match[1] or "").split("; "):
            if change:
                before, after = change.split(" => ")
                assert text.count(before) >= 1, f"there is no '{before}' to replace in\n{text}"
                text = re.sub(rf"{re.escape(before)}(?!\d)", after, text, count=1)
        found.append(Block(match[2], text, match[3], page[: match.start(4)].count("\n") + 1))
    return found


@pytest.mark.parametrize(
    "path", daily(TUTORIALS, {path.stem for path in TUTORIALS} - {"carracing", "teach"}, lambda path: path.stem)
)
def test_a_tutorial_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    matplotlib.use("Agg")
    torch.set_num_threads(1)
    page = path.read_text(encoding="utf-8")
    for name in re.findall(r"\]\(\.\./\.\./examples/(\w+\.py)\)", page):
        shutil.copy(ROOT / "examples" / name, tmp_path)
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    names: dict[str, Any] = {"__name__": "tutorial"}
    ran = blocks(page)
    assert len(ran) >= 4
    for block in ran:
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
            monkeypatch.delitem(sys.modules, Path(block.file).stem, raising=False)
        elif block.language == "python":
            # With as many empty lines before it, tracebacks name the line of the page.
            exec(compile("\n" * (block.line - 1) + block.text, str(path), "exec"), names)
        elif block.language != "text":
            assert block.language == "sh", f"{path.name} has a block of {block.language}, which no test runs"
            for line in block.text.replace("\\\n", " ").splitlines():
                program, *arguments = shlex.split(line, comments=True)
                assert program == "nacdrive" and dispatch(arguments) == 0, line


def test_every_fence_of_a_tutorial_is_a_block_that_is_run() -> None:
    for path in TUTORIALS:
        text = path.read_text(encoding="utf-8")
        assert text.count("```") == 2 * len(blocks(text)), path


def test_replacements_must_fit_and_do_not_cut_numbers() -> None:
    page = "<!-- tested with: --a 1 => --a 2 -->\n```sh\nnacdrive --a 10 --a 1\n```\n"
    assert blocks(page)[0].text == "nacdrive --a 10 --a 2\n"
    with pytest.raises(AssertionError, match="no '--b 1' to replace"):
        blocks(page.replace("--a 1 =>", "--b 1 =>"))
