"""Other words for options, and words without one: a command line in the words of a verb before it is parsed."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Collection
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import tyro

from nacdrive.common.errors import UserError
from nacdrive.common.options import Options, flag, type_hints
from nacdrive.common.paths import find_recording, is_model, shipped

_WORDS: dict[str, dict[str, str]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
SYNONYMS = _WORDS["synonyms"] | _WORDS["former"]
"""Words that mean another option, in every verb that has the second and not the first; those of 0.1.0 among them."""
FORMER = _WORDS["former"]


def rewrite(config_class: type[Options], line: list[str]) -> list[str]:
    """``line`` with each option by its own name, and with an option's name before what stands without one."""
    known = options(config_class)
    named: list[str] = []
    loose: dict[str, list[str]] = {}
    words = iter(enumerate(line))
    for k, word in words:
        if not word.startswith("-") or is_number(word):
            places = getattr(config_class, "positional", ())
            place = place_of(word, places, loose, line) if places else ""
            (loose.setdefault(flag(place), []) if place else named).append(word)
            continue
        name, equals, value = word.partition("=")
        name = own_name(name, known)
        if name in known and is_list(known[name]) and any(other.partition("=")[0] == name for other in named):
            raise UserError(f"{name} is given twice, and only the last would count: give all its values at once.")
        named.append(name + equals + value)
        if name in known and not equals:
            following = values_after(known[name], line[k + 1 :])
            named += following
            for _ in following:
                next(words)
    # Behind an option that nobody knows, what seems to have no name may be its value.
    is_known = all(word.partition("=")[0] in known for word in named if word.startswith("--"))
    for name, given in loose.items():
        if is_known and any(word.partition("=")[0] == name for word in named):
            raise UserError(f"{name} is given, and '{given[0]}' without a name is one more: leave one of them out.")
    return [*named, *(word for name, given in loose.items() for word in (name, *given))]


def own_name(name: str, known: dict[str, Any]) -> str:
    """The option that ``name`` means; itself where it is none."""
    name = name if name in known or not name.startswith("--") else "--" + name[2:].replace("_", "-")
    return SYNONYMS[name] if name not in known and SYNONYMS.get(name) in known else name


def options(config_class: Any) -> dict[str, Any]:
    """Options of a config and their types, those of groups within it too."""
    result: dict[str, Any] = {}
    for field in dataclasses.fields(config_class):
        kind = type_hints(config_class)[field.name]
        plain = plain_type(kind)
        if dataclasses.is_dataclass(plain):
            result |= options(plain) if is_shown(kind) else {}
        else:
            result[flag(field.name)] = kind
            result |= {"--no-" + flag(field.name)[2:]: kind} if plain is bool else {}
    return result


def is_shown(kind: Any) -> bool:
    """Whether a field of that type is an option at all."""
    return tyro.conf.Suppress not in getattr(kind, "__metadata__", ())


def plain_type(kind: Any) -> Any:
    """A type without what is said beside it, and without None."""
    if hasattr(kind, "__metadata__"):
        return plain_type(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return plain_type(next(part for part in get_args(kind) if part is not type(None)))
    return kind


def values_after(kind: Any, words: list[str]) -> list[str]:
    """Those of ``words`` that are the values of an option of type ``kind``."""
    plain = plain_type(kind)
    types = get_args(plain) if is_list(kind) else () if plain is bool else (plain,)
    most = None if Ellipsis in types else len(types)
    return list(itertools.takewhile(lambda word: not word.startswith("--") and word not in SYNONYMS, words[:most]))


def is_list(kind: Any) -> bool:
    """Whether an option of type ``kind`` takes several values at once."""
    return get_origin(plain_type(kind)) is tuple and tyro.conf.UseAppendAction not in getattr(kind, "__metadata__", ())


def place_of(word: str, places: tuple[str, ...], given: Collection[str], line: list[str]) -> str:
    """The option that a word of ``line`` without a name is for: the next of ``places`` that is not ``given`` yet; of a
    policy and data the one whose kind of file it is, and of what is neither the first, unless somebody drives already.
    """
    policy = next((place for place in places if place in ("model", "models")), None)
    if policy is None or len(places) == 1:
        return next((place for place in places if flag(place) not in given), places[-1])
    data = next(place for place in places if place != policy)
    parts = Path(word).parts
    is_path = find_recording(Path(word)).exists() or (len(parts) > 1 and not (shipped("agents") / parts[0]).is_dir())
    if is_model(word):
        return policy
    taken = any(other.startswith("--driver") or is_model(other.rpartition("=")[2]) for other in line)
    return data if is_path or taken else places[0]


def is_number(word: str) -> bool:
    """Whether it is a negative number and no option."""
    try:
        float(word)
    except ValueError:
        return False
    return Path(word).name == word
