"""Parts that a user brings: objects named ``module:attribute``, and registries that installed packages can extend.

A registry knows three kinds of names, looked up in this order: its own, those that installed packages declare as
entry points of its group, and ``module:attribute``. Nothing is imported before it is asked for, and what a file asks
for only if the user has named it too (``check_trusted``).
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, distributions
from typing import Any, Generic, TypeVar, cast

from nacdrive.common.errors import UserError, instead_of, quoted, unknown_name
from nacdrive.common.foreign_json import parts_of

T = TypeVar("T")
TRUST = "NACDRIVE_TRUST"
"""Environment variable: modules, or ``module:Name``, that files may name, divided by commas; workers get it."""
REFERENCE = re.compile(r"(?:^|[=,])([A-Za-z_][\w.]*:[A-Za-z_][\w.]*)$")
"""A user's own part at the end of an argument: ``my_layer:MyLayer``, ``--model=my_layer:MyLayer``."""
GROUPS = ("nacdrive.envs", "nacdrive.drivers", "nacdrive.layers", "nacdrive.tasks")


def trust(*names: str) -> None:
    """Let files name these modules, or ``module:Name``, from now on, in this process and those that it starts."""
    known = trusted()
    if not known.issuperset(names):
        os.environ[TRUST] = ",".join(sorted(known.union(names)))


def trusted() -> set[str]:
    """What files may name."""
    return set(filter(None, os.environ.get(TRUST, "").split(",")))


def check_trusted(file: object, *contents: Any) -> None:
    """Refuse a file that names code of somebody's, unless the user has named that too or installed it as a plug-in.

    ``contents`` are names, or plain JSON with names in it: every text of the form ``module:Name`` counts.
    """
    for text in filter(is_reference, strings_in(contents)):
        module = text.removeprefix("gym:").partition(":")[0]
        allowed = any(name in (text, module) or module.startswith(f"{name}.") for name in trusted())
        if not allowed and all(entry.value != text for group in GROUPS for entry in installed_entries(group)):
            raise UserError(
                f"{file} names {text}, code that would be run: if you know it, add --trust {module} "
                f"(in Python trust('{module}'), or {TRUST}={module} in the environment)."
            )


def installed_entries(group: str) -> EntryPoints:
    """What installed packages declare for a group, of each package the first on the path."""
    entries: dict[tuple[str, str], EntryPoint] = {}
    for folder in filter(os.path.exists, map(os.path.abspath, sys.path)):
        for package, entry in _declared(folder, os.path.getmtime(folder)):
            if entry.group == group:
                entries.setdefault((package, entry.name), entry)
    return EntryPoints(entries.values())


@lru_cache(maxsize=64)
def _declared(folder: str, _changed: float) -> list[tuple[str, EntryPoint]]:
    """What the packages of a folder declare for any group; read anew only after the folder has changed."""
    return [
        (package.name, entry)
        for package in distributions(path=[folder])
        for entry in package.entry_points
        if entry.group.startswith("nacdrive.")
    ]


def is_reference(text: str) -> bool:
    """Whether a text out of a file may stand for an object of a module; ``gym:ID`` does where the ID names one."""
    module, _, name = text.removeprefix("gym:").partition(":")
    parts = module.split(".") if text.startswith("gym:") else [*module.split("."), *name.split(".")]
    return bool(name) and all(part.isidentifier() for part in parts)


def strings_in(value: Any) -> Iterator[str]:
    """All texts in plain JSON."""
    if isinstance(value, str):
        yield value
    for part in parts_of(value):
        yield from strings_in(part)


def load_object(reference: str) -> Any:
    """The object that ``module:attribute`` names, e.g. ``my_car:MyEnv``; the current folder can be imported from.
    ``UserError`` for another form, a module that cannot be imported, an attribute that it lacks.
    """
    module_name, _, attribute = reference.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), *attribute.split(".")]):
        raise UserError(f"'{reference}' is not of the form module:Name, for example my_module:MyClass.")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    if module_name not in sys.modules:
        # A file written after the last import would otherwise stay unseen for as long as its folder is cached.
        importlib.invalidate_caches()
    try:
        value = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        # The module itself or a package above it, as against something that the module imports in its turn.
        if missing and f"{module_name}.".startswith(f"{missing}."):
            raise UserError(
                f"no module '{missing}' for '{reference}': it is neither installed nor in the current folder {here}."
            ) from error
        lines = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__
        raise UserError(f"cannot import '{module_name}' for '{reference}': {reason}.") from error
    for part in attribute.split("."):
        with instead_of(AttributeError, f"module '{module_name}' has no '{attribute}', which '{reference}' asks for."):
            value = getattr(value, part)
    return value


class Registry(Generic[T]):
    """Names of one kind of part: built-in ones, registered ones, and those of installed packages.

    Args:
        kind: what the parts are, for messages: "environment".
        group: entry-point group in which packages declare more of them: "nacdrive.envs".
        builtin: name -> ``module:attribute``.
    """

    def __init__(self, kind: str, group: str, builtin: dict[str, str]) -> None:
        self.kind, self.group = kind, group
        self._builtin = dict(builtin)
        self._registered: dict[str, str | T] = {}

    def names(self) -> tuple[str, ...]:
        """All known names: the built-in ones first, in their order, then the added ones."""
        return tuple(dict.fromkeys([*self._builtin, *self._registered, *sorted(installed_entries(self.group).names)]))

    def __contains__(self, name: str) -> bool:
        return name in self.names()

    def is_builtin(self, name: str) -> bool:
        """Whether the package itself brings the name."""
        return name in self._builtin

    def name_of(self, reference: str) -> str:
        """The built-in name of ``module:attribute``; where it has none, the reference itself."""
        return next((name for name, known in self._builtin.items() if known == reference), reference)

    def load(self, name: str) -> T:
        """The part of that name; ``UserError`` for no such name, one of two packages, or what cannot be imported."""
        entries = list(installed_entries(self.group).select(name=name))
        owners = ["nacdrive"] if name in self._builtin else []
        owners += ["a call of register()"] if name in self._registered else []
        owners += [f"'{entry.dist.name}'" if entry.dist else "an unnamed package" for entry in entries]
        if len(owners) > 1:
            what = f"the {self.kind} name '{name}' is claimed by {' and by '.join(owners)}"
            raise UserError(f"{what}: uninstall one of them or ask its author for another name.")
        if (known := self._builtin.get(name, self._registered.get(name))) is not None:
            return cast(T, load_object(known) if isinstance(known, str) else known)
        if entries:
            with quoted(f"{self.kind} '{name}' of the package {owners[0]} does not load: ", "", UserError):
                return cast(T, load_object(entries[0].value))
        if ":" in name:
            part = cast(T, load_object(name))
            # Files that this process reads may name it too.
            trust(name)
            return part
        raise unknown_name(self.kind, name, self.names())

    def register(self, name: str, part: str | T) -> None:
        """A name for this process: a part, or ``module:attribute`` where it is; ``UserError`` if another has it."""
        if name in self._builtin:
            raise UserError(f"the {self.kind} name '{name}' belongs to nacdrive: choose another one.")
        before = self._registered.get(name)
        # The same cell of a notebook run twice registers the same class anew.
        if before is not None and _origin(before) != _origin(part):
            raise UserError(f"the {self.kind} name '{name}' is registered already: choose another one.")
        self._registered[name] = part


def _origin(part: object) -> object:
    """What stays the same when a class or function is defined a second time."""
    return (part.__module__, part.__qualname__) if hasattr(part, "__qualname__") else part
