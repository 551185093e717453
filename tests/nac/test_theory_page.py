"""docs/nac.md says what the code does: its tables of options and variants, and its pictures."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from nacdrive.nac import NAC, PRESETS, VARIANTS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "nac.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_table_of_variants_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `(nac-[\w-]+)` \| [^|]+ \| (?:`(.*)`|none) \|$", section("Named variants"), re.MULTILINE)
    assert {name: eval(f"dict({options})") for name, options in rows} == VARIANTS


def test_the_table_of_presets_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `(nac-[\w-]+)` \| `(.*)` \|$", section("Levers beyond the paper"), re.MULTILINE)
    assert {name: eval(f"dict({options})") for name, options in rows} == PRESETS


def test_the_table_of_options_names_every_argument_and_no_other() -> None:
    cells = re.findall(r"^\| (`[^|]+`) \| ", section("Options"), re.MULTILINE)
    named = re.findall(r"`(\w+)`", " ".join(cells))
    arguments = [name for name in inspect.signature(NAC).parameters if name != "self"]
    assert sorted(named) == sorted(arguments)


def test_every_picture_and_page_that_is_linked_exists() -> None:
    links = re.findall(r"\]\(((?:figures|results)/[^)#]+)\)", PAGE)
    assert len(links) > 8
    assert [link for link in links if not (DOCS / link).exists()] == []
