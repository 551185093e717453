"""Modules as one script: a page's parts may not give one name to two things, or the browser reads none of them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import nacdrive.extras
from nacdrive.common.paths import shipped
from nacdrive.web.bundle import bundle

FEATURES = Path(nacdrive.extras.__file__).parent
MAIN = shipped("www") / "js" / "main.js"
PAGES = [MAIN, FEATURES / "export" / "page" / "player.js", FEATURES / "playground" / "page" / "playground.js"]
CARDS = sorted(FEATURES.glob("*/page/card.js"))
DECLARED = re.compile(
    r"^(?:export )?(?:async )?(?:class|function\*?|const|let|import) (\w+|\{[^}]*\}|\[[^\]]*\])", re.M
)


@pytest.mark.parametrize("entry", PAGES + CARDS, ids=lambda entry: f"{entry.parent.parent.name}-{entry.stem}")
def test_no_name_is_given_twice_in_one_script(entry: Path) -> None:
    there: set[Path] = set()
    if entry in CARDS:
        bundle(MAIN, there)
    text = bundle(entry, there, "/js/main.js")
    names = Counter(name for declared in DECLARED.findall(text) for name in re.findall(r"\w+", declared))
    assert len(names) > 3
    assert [name for name, count in names.items() if count > 1] == []


def test_no_module_is_left_out_of_the_type_check() -> None:
    modules = [*MAIN.parent.glob("*.js"), *FEATURES.glob("*/page/*.js")]
    assert len(modules) > 80
    assert [module.name for module in modules if re.search("@ts-(nocheck|ignore)", module.read_text("utf-8"))] == []
