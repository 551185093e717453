"""``--help`` of a verb: its options in panels, one for each kind of group, each with the text beside its field."""

from __future__ import annotations

import ast
import dataclasses
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from nacdrive.cli.words import FORMER, SYNONYMS, is_shown, options, plain_type
from nacdrive.common.options import flag, type_hints


def print_help(config_class: Any, program: str, *, has_result: bool = False) -> None:
    """Print what a verb does and takes; ``--json`` where it has a result."""
    from rich.console import Console
    from rich.markup import escape
    from rich.panel import Panel
    from rich.table import Table

    console = Console(highlight=False)
    loose = "".join(f" [{name.upper()}]" for name in getattr(config_class, "positional", ()))
    console.print(escape(f"usage: {program}{loose} [options]"))
    console.print(escape(f"\n{' '.join((config_class.__doc__ or '').split())}\n"))
    every = [("--trust MODULE", "Somebody's own code that files may name.")]
    every += [("-q, --quiet", "No progress, only results and errors."), ("-h, --help", "Print this.")]
    every += [("--json", "Print the result alone, as JSON.")] if has_result else []
    panels: dict[str, Table] = {}
    for title, words, text in [
        *(("Of every verb", *row) for row in every),
        *rows(config_class, set(options(config_class)), config_class),
    ]:
        if title not in panels:
            panels[title] = Table.grid(padding=(0, 2))
            panels[title].add_column(max_width=30, overflow="fold", style="bold")
        panels[title].add_row(escape(words), escape(text))
    for title, table in reversed(panels.items()):
        console.print(Panel(table, title=title, title_align="left"))


def rows(config_class: Any, known: set[str], verb: Any) -> Iterator[tuple[str, str, str]]:
    """Title of the panel, the words of the command line, and the text of every option; those of ``verb`` come last."""
    for field in dataclasses.fields(config_class):
        kind = type_hints(config_class)[field.name]
        if dataclasses.is_dataclass(plain_type(kind)):
            if is_shown(kind):
                yield from rows(plain_type(kind), known, verb)
            continue
        owner = next(base for base in config_class.__mro__ if field.name in texts(base))
        title = (owner.__doc__ or "").partition("\n")[0].rstrip(".")
        # What comes of another verb's config, whose text is a whole sentence, is the verb's own too.
        title = "This verb's own" if owner is verb or len(title) > 50 else title
        name = flag(field.name)
        others = [one for one, own in SYNONYMS.items() if own == name and one not in known and one not in FORMER]
        words = ", ".join([name, *others, *(["--no-" + name[2:]] if plain_type(kind) is bool else [])])
        usual = "" if field.default in (dataclasses.MISSING, None, (), "", False) else shown(field.default)
        text = texts(owner)[field.name] + (f" (default: {usual})" if usual else "")
        yield title, f"{words} {metavar(kind)}".rstrip(), text


def metavar(kind: Any) -> str:
    """What follows an option: names of types, or the choices."""
    kind = plain_type(kind)
    if kind is bool:
        return ""
    if get_origin(kind) is Literal:
        return "{" + ",".join(map(str, get_args(kind))) + "}"
    if get_origin(kind) is tuple:
        first, *others = get_args(kind)
        return " ".join([metavar(first), *("..." if one is Ellipsis else metavar(one) for one in others)])
    return {int: "N", float: "X", str: "NAME", Path: "PATH"}.get(kind, "VALUE")


def shown(value: Any) -> str:
    """A default as it would be typed."""
    if value is True:
        return "on"
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


@cache
def texts(owner: type) -> dict[str, str]:
    """Texts of the fields that a class declares itself: the strings below them in its source, as one line each."""
    body = next((node.body for node in classes(owner.__module__) if node.name == owner.__name__), [])
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


@cache
def classes(module: str) -> list[ast.ClassDef]:
    """The classes in the source of a module; none of one without, such as ``builtins``."""
    path = getattr(sys.modules[module], "__file__", None)
    tree = ast.parse(Path(path).read_text(encoding="utf-8")) if path else ast.Module([], [])
    return [node for node in tree.body if isinstance(node, ast.ClassDef)]
