"""Parametrisations of which a day's tests take a few, and the nightly ones all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest


def daily(values: Iterable[Any], few: Collection[str], name: Callable[[Any], str] = str) -> list[Any]:
    """All values as parameters, those whose name is not among ``few`` marked nightly.

    Raises:
        ValueError: if one of ``few`` is no name of a value, so that a renamed case does not leave the day unseen.
    """
    values = list(values)
    if unknown := set(few) - {name(value) for value in values}:
        raise ValueError(f"no case is called {sorted(unknown)}")
    return [
        pytest.param(value, id=name(value), marks=() if name(value) in few else pytest.mark.nightly) for value in values
    ]
