"""What makes a site of the repository's Markdown files as they are: hooks for MkDocs (``mkdocs.yml``).

Links are written for the repository, so that they work wherever it is browsed. Here the pages outside ``docs/`` are
taken in, every link is turned to where its target lies in the site, source files that are linked get pages, and the
pages of the Python API and of the command line are made from the code. Formulas become MathML, which browsers show
without a script.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from html import unescape
from pathlib import Path, PurePosixPath
from typing import Any
from unittest.mock import patch

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
FIRST = ("install.md", "nac_in_five_minutes.md")
"""Pages to read after the first one."""
PROJECT = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Pages about the project itself, beside the licence."""
ICON = "server/www/icon.svg"
PLAYGROUND = "play.html"
"""The playground itself, beside the page about it."""
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".yaml": "yaml", ".cff": "yaml", ".js": "javascript"}
LANGUAGES |= {".sh": "bash", ".c": "c", ".h": "c", ".css": "css", ".html": "html", "": "text", ".txt": "text"}
"""Endings of source files that are shown as pages; other files are copied."""
CODE = re.compile(r"(^ *(`{3,}|~{3,}).*?^ *\2 *$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?(?:\s+\"[^\"]*\")?\))")
LATER = ("agents/", "api/", "results/", "CHANGELOG.md")
"""Pages that a search lists after those to read."""
LOST = re.compile(r"<p>(?:(?!</p>).)*?\n(?:[-*] |\d+\. |\|).*?</p>", re.DOTALL)
"""A paragraph with lines of a list or table that Python-Markdown has not taken for one, for want of an empty line."""

log = get_plugin_logger("docs_site")


def repository_pages() -> list[str]:
    """Markdown files outside ``docs/`` that become pages, by their paths in the repository."""
    cards = sorted(str(path.relative_to(ROOT).as_posix()) for path in (ROOT / "agents").rglob("*.md"))
    return ["README.md", "server/README.md", "recordings/README.md", *PROJECT, *cards]


def place(path: str) -> str:
    """Where the repository's file or folder ``path`` stands in the site's tree of sources."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == ICON:
        return "icon.svg"
    full, pure = ROOT / path, PurePosixPath(path)
    if full.is_dir():
        readme = pure / "README.md"
        return str(readme) if (ROOT / readme).exists() else f"source/{path}/index.md"
    if pure.suffix != ".md" and pure.suffix in LANGUAGES:
        return f"source/{path}.md"
    return path


def repository_path(src_uri: str) -> str:
    """The repository's path of a page of the site that is not made from code."""
    if src_uri == "index.md":
        return "README.md"
    return f"docs/{src_uri}" if (ROOT / "docs" / src_uri).exists() else src_uri


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """``text`` with ``change`` made to what is no code."""
    parts = CODE.split(text)
    # Of each match the fence alone is a group of its own, and stands behind it.
    return "".join(part if index % 3 == 1 else change(part) for index, part in enumerate(parts) if index % 3 != 2)


def targets(text: str, path: str) -> Iterator[str]:
    """Paths in the repository that the page ``path`` links to."""
    links: list[str] = []
    outside_code(text, lambda part: links.extend(match[1] for match in LINK.findall(part)) or part)
    for link in links:
        target = resolved(link, path)
        if target is not None:
            yield target


def resolved(link: str, path: str) -> str | None:
    """The existing file or folder of the repository that ``link`` on the page ``path`` means."""
    if re.match(r"[a-z]+:|/", link):
        return None
    target = os.path.normpath(PurePosixPath(path).parent / link)
    return None if target.startswith("..") or not (ROOT / target).exists() else PurePosixPath(target).as_posix()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take in what lies outside ``docs/``, and make the pages that come from code; set the menu."""
    pages = repository_pages()
    for path in [*pages, ICON]:
        files.append(File.generated(config, place(path), abs_src_path=str(ROOT / path)))
    known = {*pages, *(repository_path(file.src_uri) for file in files.documentation_pages())}
    linked = {target for path in sorted(known) for target in targets((ROOT / path).read_text("utf-8"), path)}
    for target in sorted(linked | {"LICENSE"}):
        if place(target) not in files.src_uris:
            files.append(source_file(target, config))
    rooms = room_pages()
    for name, text in {**rooms, "reference.md": commands(), "functions.md": functions()}.items():
        files.append(File.generated(config, name, content=text))
    files.append(File.generated(config, PLAYGROUND, content=playground()))
    config.nav = menu(files, list(rooms))
    return files


def playground() -> str:
    """The page in which the usual policy drives."""
    from nacdrive.cli.playground import PlaygroundConfig, page_of
    from nacdrive.common.paths import find_model

    return page_of(find_model(PlaygroundConfig.model))


def source_file(path: str, config: MkDocsConfig) -> File:
    """A file or folder of the repository that pages link to: shown on a page, or copied."""
    full, uri = ROOT / path, place(path)
    head = f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n"
    if full.is_dir():
        # Folders that nobody linked to by themselves have no pages: name their files, and link those that have.
        rows = [f"- `{item.name}{'/' if item.is_dir() else ''}`" for item in sorted(full.iterdir()) if visible(item)]
        return File.generated(config, uri, content=head + "\n".join(rows) + "\n")
    if uri.endswith(".md"):
        language = LANGUAGES[full.suffix]
        return File.generated(config, uri, content=f"{head}`````{language}\n{full.read_text('utf-8')}\n`````\n")
    return File.generated(config, uri, abs_src_path=str(full))


def visible(path: Path) -> bool:
    """Whether a folder's page names ``path``."""
    return not path.name.startswith((".", "__"))


def rooms() -> dict[str, str]:
    """The rooms of the package and the job of each, from the table of ``docs/architecture.md``."""
    table = (ROOT / "docs/architecture.md").read_text("utf-8").split("## Rooms")[1]
    return dict(re.findall(r"^\| `(\w+)/` \| (.+?) \|", table, re.MULTILINE))


def room_pages() -> dict[str, str]:
    """A page of the Python API for each room but the command line, and one that leads to them."""
    index, result = ["# Python API\n\nOne page per room; imports point down this list only.\n"], {}
    for room, job in rooms().items():
        if room == "cli":
            continue
        # A feature is a page of its own: all of them on one are too much for a browser.
        features = [
            path.parent for path in sorted((ROOT / "nacdrive" / room).glob("*/__init__.py")) if room == "extras"
        ]
        body = reference(ROOT / "nacdrive" / room, deep=not features)
        for folder in features:
            result[f"api/{room}.{folder.name}.md"] = f"# nacdrive.{room}.{folder.name}\n\n{reference(folder)}\n"
            body += f"\n\n- [`nacdrive.{room}.{folder.name}`]({room}.{folder.name}.md)"
        text = outside_code(job, lambda part: LINK.sub(r"](../\2\3", part))
        result[f"api/{room}.md"] = f"# nacdrive.{room}\n\n{text[0].upper()}{text[1:]}.\n\n{body}\n"
        index.append(f"- [`nacdrive.{room}`]({room}.md): {text}")
    return {"api/index.md": "\n".join(index) + "\n", **result}


def reference(package: Path, deep: bool = True) -> str:
    """The names of the modules of a package, for mkdocstrings; of those in its folders too if ``deep``."""
    modules = sorted(package.rglob("*.py") if deep else package.glob("*.py"))
    # What the package itself exports comes first, in the order in which it does.
    exports = (package / "__init__.py").read_text("utf-8")
    places = {path: exports.find(f"{package.name}.{path.stem} ") for path in modules}
    first = package / "__init__.py"
    modules.sort(key=lambda path: (path != first, places[path] if places[path] >= 0 else len(exports)))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in modules]
    parts = [f"::: {name.removesuffix('.__init__')}" for name in names]
    # Of a package itself the description alone: what it exports is shown where it is defined.
    options = ["\n    options:\n      members: false" if name.endswith(".__init__") else "" for name in names]
    return "\n\n".join(map("".join, zip(parts, options, strict=True)))


def functions() -> str:
    """The page of the public names; what else their classes have is on the pages of their rooms."""
    members = {
        "nac.layer.NAC": "[forward, init_state, step]",
        "datasets.recording.Recording": "[open, load, from_arrays, append_to]",
        "models.frame_policy.FramePolicy": "[reset, act, predict, step]",
        "drivers.tick.Tick": "true",
    }
    options = "\n    options:\n      skip_local_inventory: true\n      members: "
    classes = [f"::: nacdrive.{name}{options}{those}" for name, those in members.items()]
    links = ", ".join(f"[`{name.split('.')[-1]}`](#nacdrive.{name})" for name in members)
    about = f"What [Python](api.md) names, with every argument. The functions give and take these classes: {links}."
    parts = ["# The public names", about, "::: nacdrive.api", "::: nacdrive.rollout.loading.rollout", *classes]
    return "\n\n".join(parts) + "\n"


def commands() -> str:
    """The page of the command line: what ``--help`` says of every verb."""
    from nacdrive.cli.main import VERBS, load_verb

    rows = "\n".join(f"| [`{verb}`](#nacdrive-{verb}) | {text} |" for verb, text in VERBS.items())
    ways = help_of([]).split("\n\n")[-1]
    parts = [
        "# Every option of every command\n\nWhat `--help` prints, of every verb.\n",
        f"| `nacdrive` | |\n| --- | --- |\n{rows}\n\n```text\n{ways}\n```\n",
    ]
    for verb in VERBS:
        parts.append(f"## nacdrive {verb}\n")
        parts.append(f"```text\n{help_of([verb])}\n```\n")
        for sub in getattr(load_verb(verb), "VERBS", ()):
            parts.append(f"### nacdrive {verb} {sub}\n\n```text\n{help_of([verb, sub])}\n```\n")
    return "\n".join(parts)


def help_of(words: list[str]) -> str:
    """What ``nacdrive WORDS --help`` prints on a terminal of 80 columns."""
    from nacdrive.cli.main import dispatch

    printed = io.StringIO()
    with patch.dict(os.environ, COLUMNS="80", NO_COLOR="1"), redirect_stdout(printed), suppress(SystemExit):
        dispatch([*words, "--help"])
    text = re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue())
    return "\n".join(line.rstrip() for line in text.splitlines())


def menu(files: Files, api: list[str]) -> list[Any]:
    """The menu; what is new in a folder finds its place by itself."""
    uris = sorted(file.src_uri for file in files.documentation_pages())

    def under(folder: str) -> list[str]:
        return [uri for uri in uris if uri.startswith(folder)]

    made = {"index.md", *FIRST, "api.md", "reference.md", "functions.md", "architecture.md", "licences.md", *PROJECT}
    guides = [uri for uri in uris if "/" not in uri and uri not in made]
    sections = {
        "Home": ["index.md", *FIRST],
        "Tutorials": under("tutorials/"),
        "Guides": [*guides, "server/README.md", "recordings/README.md"],
        "Reference": ["api.md", "functions.md", "reference.md"],
        "Results": under("results/"),
        "Agents": under("agents/"),
        "Project": [*PROJECT, "source/LICENSE.md", "licences.md"],
        "Inside": ["architecture.md", *api],
        "Source": [uri for uri in under("source/") if uri != "source/LICENSE.md"],
    }
    rest = set(uris) - {uri for part in sections.values() for uri in part}
    if rest:
        log.warning(f"no place in the menu is known for {', '.join(sorted(rest))}")
    return [{title: part[0] if len(part) == 1 else part} for title, part in sections.items() if part]


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links of the repository into links of the site."""
    if page.file.src_uri.startswith(LATER):
        page.meta["search"] = {"boost": 0.4}
        # A card's tags, which are the Hub's, would count a million times as much as a word of a page.
        page.meta.pop("tags", None)
    path = repository_path(page.file.src_uri)
    if not (ROOT / path).is_file():
        return markdown

    def turned(match: re.Match[str]) -> str:
        target = resolved(match[2], path)
        if target is None:
            return match[0]
        place_ = os.path.relpath(place(target), PurePosixPath(page.file.src_uri).parent)
        return f"{match[1]}{PurePosixPath(place_).as_posix()}{match[3]}"

    if path == "docs/playground.md":
        markdown = markdown.replace("\n\n", f"\n\n**[Play]({PLAYGROUND})**\n\n", 1)
    return outside_code(markdown, lambda part: LINK.sub(turned, part))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Write formulas as MathML, and find lists and tables that were not taken for such."""
    if lost := LOST.search(html):
        log.warning(f"{page.file.src_uri} has a list or table without an empty line before it: {lost[0][:90]!r}")
    html = re.sub(
        r'<span class="arithmatex">\\\((.+?)\\\)</span>',
        lambda m: f'<span class="formula">{mathml(m[1], "inline")}</span>',
        html,
    )
    return re.sub(
        r'(<div class="arithmatex">)\\\[(.+?)\\\](</div>)',
        lambda m: m[1] + mathml(m[2], "block") + m[3],
        html,
        flags=re.DOTALL,
    )


def mathml(tex: str, display: str) -> str:
    """A formula as MathML."""
    # It leaves the backslash of an underscore in text standing.
    return convert(unescape(tex).strip(), display=display).replace(r"\_", "_")
