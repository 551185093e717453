"""Headline numbers: one file, and pages that say them as they are."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path

import pytest

from nacdrive.layers.registry import LAYERS, names

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("headlines", ROOT / "tools/headlines.py")
assert _spec is not None and _spec.loader is not None
headlines = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(headlines)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A root with the file of headlines and all pages that repeat one."""
    pages = {"README.md", "docs/results/headlines.json"}
    for headline in headlines.read_headlines().values():
        pages |= {headline["from"], *headline["in"]}
    for page in pages:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / page, tmp_path / page)
    return tmp_path


def test_no_page_is_stale() -> None:
    assert headlines.stale(headlines.read_headlines()) == []


def test_a_page_that_says_another_number_is_named(copy: Path) -> None:
    page, value = copy / "docs/results/carracing.md", headlines.read_headlines()["carracing.nac_exact.return"]["value"]
    page.write_text(page.read_text().replace(value.split()[0], "880.0"))
    assert headlines.stale(headlines.read_headlines(), copy) == [
        f"docs/results/carracing.md does not say {value} (carracing.nac_exact.return)"
    ]


def test_a_number_typed_into_readme_by_hand_is_named(copy: Path) -> None:
    readme = copy / "README.md"
    readme.write_text(readme.read_text() + "\nIt has 999.9 points on 31 tracks, and R2 and `7` are names.\n")
    assert headlines.stale(headlines.read_headlines(), copy) == [
        f"README.md says {number}: no headline" for number in ("999.9", "31")
    ]


def test_a_new_measurement_reaches_every_page(copy: Path) -> None:
    before = headlines.read_headlines()["carracing.nac_exact.return"]["value"]
    headlines.set_value("carracing.nac_exact.return", "880.1 ± 50.5", copy)
    changed = json.loads((copy / "docs/results/headlines.json").read_text())
    assert headlines.stale(changed, copy) == []
    for page in ("README.md", "agents/carracing/nac_exact.md", "docs/results/carracing.md"):
        assert before not in (copy / page).read_text().replace("**", "")


def test_readmes_two_dozen_other_layers_are_there() -> None:
    others = [name for name in names() if LAYERS.is_builtin(name) and not name.startswith("nac")]
    assert "two dozen others" in (ROOT / "README.md").read_text() and 22 <= len(others) <= 26


def test_readme_is_short_and_in_the_words_of_the_field() -> None:
    text = re.sub(r"```.*?```", "", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len(text.split()) <= 600
    assert not re.findall(r"\b(levers?|house|mend\w*|pupils?)\b", text, re.IGNORECASE)
