"""Every command line that README and the pages print is one that nacdrive takes."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nacdrive.cli import main
from nacdrive.common.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    *(ROOT / "README.md", ROOT / "recordings/README.md", ROOT / "CONTRIBUTING.md"),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/tutorials").glob("*.md")),
    *sorted((ROOT / "docs/results").glob("*.md")),
    *sorted((ROOT / "agents").rglob("*.md")),
)
BLOCK = re.compile(r"^```[a-z]*\n(.*?)^```|^((?: {4}\S.*\n)+)", re.MULTILINE | re.DOTALL)
FOREIGN = re.compile(r"No module named '(minigrid|ale_py|highway_env)'|needs the package ray")
"""What an example of another world or a cluster needs, which is not installed with the rest."""
COMMAND = re.compile(r"(?:^|&& |; )(?:[A-Z_]+=\S+ +)*nacdrive +(.*)")
UNDERSTOOD: set[str] = set()
"""What stands on several pages is asked once: most of these tests' time is the parser's, made anew for each line."""


def commands(page: Path) -> Iterator[str]:
    """The command lines in a page's blocks of code, without comments; a line that ends with a backslash goes on."""
    for fenced, indented in BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in re.sub(r"\\\n\s*", " ", fenced or indented).splitlines():
            match = COMMAND.match(line.strip())
            if match:
                yield re.split(r"\s+#|\s\.\.\.|\s+&&|\s+\|\s|\s+>|;|\s+&$", match[1])[0].strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_are_understood(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[object] = []
    module_entry = main.module_entry

    def parsed_only(*arguments: object) -> tuple[object, object, str]:
        config_class, _, program = module_entry(*arguments)  # type: ignore[arg-type]
        return config_class, ran.append, program

    monkeypatch.setattr(main, "module_entry", parsed_only)
    monkeypatch.chdir(ROOT / "examples")
    # The folder of an own module comes onto the path, and would stand in the way of other tests' modules.
    monkeypatch.setattr(sys, "path", [*sys.path])
    mistakes = []
    for command in commands(page):
        if command in UNDERSTOOD:
            continue
        before = len(ran)
        try:
            main.dispatch(shlex.split(command))
        except UserError as error:
            # Files that the reader of a tutorial has written.
            if "no module 'my_" not in str(error) and not FOREIGN.search(str(error)):
                mistakes.append(f"nacdrive {command}\n    {error}")
        except SystemExit:
            assert "--help" in command or command in ("-V", "--version")
        else:
            assert len(ran) == before + 1 or command.startswith(("-", "help")), command
            UNDERSTOOD.add(command)
    assert not mistakes, "\n".join(mistakes)


def test_there_are_commands_to_look_at() -> None:
    assert len(list(commands(ROOT / "docs/commands.md"))) > 50
