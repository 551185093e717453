"""The one error that is meant for a person, and the nearest known name to a mistyped one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from difflib import get_close_matches

Kind = type[Exception]
MISFITS = (KeyError, TypeError, ValueError, OverflowError)
"""What reading a description raises that is not as it was written."""


class UserError(Exception):
    """Something the user can mend: one sentence saying what was wrong, where, and what to do.

    The command line prints the sentence alone and exits with code 2; no traceback.
    """


class UnfitFrameError(UserError, ValueError):
    """A frame of another size or type than those that a policy learnt from."""


@contextmanager
def in_a_sentence(before: str, after: str = "", kind: type[UserError] = UserError) -> Iterator[None]:
    """What a user's own code raises inside becomes a sentence with words around it; a ``UserError`` is one already."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise kind(f"{before}{named(error)}{after}") from error


@contextmanager
def quoted(
    before: str, after: str, *kinds: Kind, say: Callable[[Exception], str] = str, kind: Kind = UserError
) -> Iterator[None]:
    """An error of these ``kinds`` inside becomes one of ``kind``: what it says, with words before and after it."""
    try:
        yield
    except kinds as error:
        raise kind(f"{before}{say(error)}{after}") from error


def instead_of(kinds: Kind | tuple[Kind, ...], sentence: str, kind: Kind = UserError) -> AbstractContextManager[None]:
    """An error of these ``kinds`` inside becomes one of ``kind`` that says ``sentence``."""
    return quoted(sentence, "", *(kinds if isinstance(kinds, tuple) else (kinds,)), say=lambda error: "", kind=kind)


def named(error: BaseException) -> str:
    """What an error says, and of which kind it is."""
    return f"{type(error).__name__}: {error}"


def first_line(error: BaseException) -> str:
    """What an error of a library says, without what follows its first line."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def shortlist(names: Sequence[str], most: int = 5) -> str:
    """The first of ``names``, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """A ``UserError`` for an unknown name that suggests the nearest known one."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return UserError(f"unknown {kind} '{name}': {hint}known are {', '.join(names) or 'none'}.")


def check_known(kind: str, name: str, known: Collection[str]) -> None:
    """Refuse a name that is none of the known ones."""
    if name not in known:
        raise unknown_name(kind, name, known)
