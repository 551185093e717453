"""What the pages tell people to install or to open has a form that can work."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
FILES = [
    path
    for place in ("*.md", "docs/**/*.md", "examples/*", "agents/**/*.md", "nacdrive/**/*.py", "pyproject.toml")
    for path in ROOT.glob(place)
    if path.is_file()
]


def matches(pattern: str) -> list[tuple[str, str]]:
    """(file, match) of all pages, examples and sentences of the package."""
    texts = ((path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in FILES)
    return [(name, match) for name, text in texts for match in re.findall(pattern, text)]


def test_every_extra_that_is_named_is_there() -> None:
    named = matches(r"nacdrive\[([a-z,]+)\]")
    assert len(named) > 20
    assert [(name, extra) for name, extras in named for extra in extras.split(",") if extra not in EXTRAS] == []


def test_every_address_is_whole() -> None:
    named = matches(r"\bhttps?://[^\s)\"'>`\]{}|\\]+")
    assert len(named) > 20
    for name, address in named:
        parts = urlsplit(address.rstrip(".,;:"))
        here = parts.hostname in ("127.0.0.1", "localhost", "0.0.0.0", "::1", None, "host", "x")
        assert here or (parts.scheme == "https" and re.fullmatch(r"([\w-]+\.)+[a-z]{2,}", parts.netloc)), (
            name,
            address,
        )


def test_every_file_that_a_page_links_to_is_there() -> None:
    link, code = re.compile(r"\]\((?!https?:|#|mailto:|data:)([^)#\s]+)"), re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
    pages = [
        path for path in (*FILES, *ROOT.glob("server/*.md"), *ROOT.glob("recordings/*.md")) if path.suffix == ".md"
    ]
    links = [
        (page, target) for page in pages for target in link.findall(code.sub("", page.read_text(encoding="utf-8")))
    ]
    assert len(links) > 100
    missing = [(page, target) for page, target in links if not (page.parent / target).exists()]
    assert not missing
