"""Three counts that tell whether each job is still done in one place, and how many lines there are.

    python tools/house_counts.py

- places that construct a ``SafetyStop`` or a ``NoisyCamera``;
- option fields whose name is declared in two or more classes, of all that verbs can be asked;
- imports of ``nacdrive.extras`` from outside ``extras/``, ``cli/`` and the public API.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

import tyro

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "nacdrive"
PUT_TOGETHER = ("SafetyStop", "NoisyCamera")
OUTSIDE = ("extras", "cli", "api.py")


def constructions(tree: ast.AST) -> Iterator[str]:
    """Names of ``PUT_TOGETHER`` that a module calls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in PUT_TOGETHER:
                yield name


def imports_of_extras(tree: ast.AST) -> Iterator[str]:
    """Modules below ``nacdrive.extras`` that a module imports, wherever the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("nacdrive.extras"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nacdrive.extras"):
            yield str(node.module)


def verb_configs() -> Iterator[type[Any]]:
    """The class of options of every verb and sub-verb."""
    sys.path.insert(0, str(ROOT))
    main = import_module("nacdrive.cli.main")
    for verb in main.VERBS:
        module = main.load_verb(verb)
        for rest in [[name] for name in getattr(module, "VERBS", ())] or [[]]:
            yield main.module_entry(module, verb, rest)[0]


def declarations(config: type[Any]) -> Iterator[tuple[str, str]]:
    """Option and class that declares it, of a class of options and the groups in it."""
    hints = get_type_hints(config, include_extras=True)
    for field in dataclasses.fields(config):
        kind = hints[field.name]
        group = next(
            (part for part in (kind, *get_args(kind)) if isinstance(part, type) and dataclasses.is_dataclass(part)),
            None,
        )
        if group is not None:
            # What no command line can say is no option.
            if tyro.conf.Suppress not in getattr(kind, "__metadata__", ()):
                yield from declarations(group)
            continue
        owner = next(base for base in config.__mro__ if field.name in written_fields(base))
        yield field.name, f"{owner.__module__}.{owner.__qualname__}"


@cache
def written_fields(owner: type[Any]) -> frozenset[str]:
    """Fields that stand in the source of a class: another default for a field of a group is no declaration."""
    if not owner.__module__.startswith("nacdrive"):
        return frozenset()
    body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    assert isinstance(body, ast.ClassDef)
    return frozenset(
        node.target.id for node in body.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    )


def main() -> int:
    """Print the counts and what they count."""
    lines: dict[str, int] = defaultdict(int)
    built, imported = [], []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        where, room = path.relative_to(ROOT), path.relative_to(PACKAGE).parts[0]
        lines[room if path.parent != PACKAGE else "(top)"] += len(text.splitlines())
        tree = ast.parse(text)
        built += [f"{where}: {name}" for name in constructions(tree)]
        if room not in OUTSIDE:
            imported += [f"{where}: {name}" for name in imports_of_extras(tree)]
    owners: dict[str, set[str]] = defaultdict(set)
    for config in verb_configs():
        for name, owner in declarations(config):
            owners[name].add(owner)
    twice = {name: classes for name, classes in owners.items() if len(classes) > 1}
    print(f"{len(built)} places that construct {' or '.join(PUT_TOGETHER)}")
    print(*(f"    {line}" for line in built), sep="\n")
    print(f"{sum(map(len, twice.values()))} of {sum(map(len, owners.values()))} option fields declared in two classes")
    print(*(f"    {name}: {', '.join(sorted(classes))}" for name, classes in sorted(twice.items())), sep="\n")
    print(f"{len(imported)} imports of a feature from outside it")
    print(*(f"    {line}" for line in imported), sep="\n")
    total = sum(lines.values())
    print(f"{total} lines of Python in nacdrive/, {total - lines['extras']} of them outside extras/")
    print(*(f"    {room:<10} {count:>6}" for room, count in sorted(lines.items())), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
