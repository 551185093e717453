"""The documentation site reads the repository's pages as they are: links, formulas and the menu are made to fit."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("mkdocs", reason="MkDocs is not installed: 'make docs' installs it")
ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))
import docs_site  # noqa: E402


def page(src_uri: str) -> SimpleNamespace:
    return SimpleNamespace(file=SimpleNamespace(src_uri=src_uri), meta={})


def turned(text: str, src_uri: str) -> str:
    return docs_site.on_page_markdown(text, page(src_uri), None, None)


@pytest.mark.parametrize(
    ("src_uri", "link", "wanted"),
    [
        ("index.md", "docs/nac.md", "nac.md"),
        ("index.md", "docs/figures/live.png", "figures/live.png"),
        ("index.md", "server/README.md", "server/README.md"),
        ("index.md", "examples/", "source/examples/index.md"),
        ("architecture.md", "../nacdrive/envs/base.py", "source/nacdrive/envs/base.py.md"),
        ("nac.md", "results/nac_theory.md#a", "results/nac_theory.md#a"),
        ("results/emnist.md", "../../agents/emnist/nac_exact.md", "../agents/emnist/nac_exact.md"),
        ("agents/emnist/nac_exact.md", "../../docs/results/emnist.md", "../../results/emnist.md"),
        ("agents/carracing/ppo/README.md", "curve.png", "curve.png"),
        ("server/README.md", "../docs/page.md", "../page.md"),
        ("extend.md", "https://example.org/docs/nac.md", "https://example.org/docs/nac.md"),
        ("extend.md", "nowhere.md", "nowhere.md"),
        ("extend.md", "#drivers", "#drivers"),
    ],
)
def test_a_link_of_the_repository_becomes_one_of_the_site(src_uri: str, link: str, wanted: str) -> None:
    assert turned(f"See [this]({link}).", src_uri) == f"See [this]({wanted})."


def test_links_in_code_stay_as_they_are() -> None:
    text = "`[x](docs/nac.md)` and\n\n```\n[x](docs/nac.md)\n```\n\n[x](docs/nac.md)"
    assert turned(text, "index.md") == text[: -len("docs/nac.md)")] + "nac.md)"


def test_a_search_lists_what_is_to_be_read_before_tables_and_cards() -> None:
    guide, card = page("nac.md"), page("agents/emnist/nac_exact.md")
    card.meta["tags"] = ["continuous-time"]
    for one in (guide, card):
        docs_site.on_page_markdown("text", one, None, None)
    assert guide.meta == {} and card.meta["search"]["boost"] < 1 and "tags" not in card.meta


def test_formulas_become_mathml() -> None:
    html = r'<p><span class="arithmatex">\(t_i &lt; \texttt{time\_scale}\)</span></p>'
    made = docs_site.on_page_content(html, page("nac.md"), None, None)
    assert "<math" in made and "&#x0003C;" in made and ">time_scale<" in made and "arithmatex" not in made


@pytest.mark.parametrize("html", ["<p>Two things:\n- one\n- two</p>", "<p>A table:\n| a | b |</p>"])
def test_a_list_without_an_empty_line_before_it_is_found(html: str) -> None:
    assert docs_site.LOST.search(html)
    assert not docs_site.LOST.search("<p>One - two</p>\n<ul>\n<li>one</li>\n</ul>")


def test_every_room_has_a_page_and_every_verb_its_options() -> None:
    rooms = docs_site.room_pages()
    for folder in (ROOT / "nacdrive").iterdir():
        if (folder / "__init__.py").exists() and folder.name != "cli":
            assert f"::: nacdrive.{folder.name}" in rooms[f"api/{folder.name}.md"]
    assert "::: nacdrive.extras.bench.report" in rooms["api/extras.bench.md"]
    assert "(extras.bench.md)" in rooms["api/extras.md"] and "extras.bench.report" not in rooms["api/extras.md"]
    layer, kernels = (rooms["api/nac.md"].index(f"::: nacdrive.nac.{name}\n") for name in ("layer", "kernels"))
    assert layer < kernels
    said = docs_site.commands()
    assert (
        "| [`drive`](#nacdrive-drive) |" in said
        and "## nacdrive drive" in said
        and "### nacdrive bench table" in said
        and "--budget" in said
    )
