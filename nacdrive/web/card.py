"""A card: a part of the page that brings its own routes, listener, words in ``hello`` and JavaScript."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from flask import Flask

from nacdrive.common.paths import PACKAGE
from nacdrive.drivers.tick import Tick

Command = Callable[[Any], Callable[[], None] | None]
"""What a person with control sends -> what to do then; None if it is no such command, which ends the connection."""


class LivePage(Protocol):
    """What a card may do with the live page that it is a part of, which ``LiveServer`` is."""

    def begin(self, **about: Any) -> None:
        """A drive begins: every lane is empty, and ``about`` is what the page is told of it."""

    def publish(self, tick: Tick, lane: int = 0) -> None:
        """Show a decision in a lane."""

    def set(self, **about: Any) -> None:
        """Change what the page is told of the drive."""

    def note(self, text: str) -> None:
        """Say what has happened beside the drive."""


class Card:
    """Whoever makes a page hands it the cards; the page knows none of them. The defaults do nothing.

    The browser imports ``card.js`` of ``files`` from ``/cards/NAME/card.js`` and calls its ``card(page)``; what it may
    return is written in ``server/www/js/cards.js``.
    """

    name: str
    """Under which ``hello`` describes it, and its files are served."""
    commands: Mapping[str, Command] = {}
    """Of those who have control, by the one name that such a message holds."""

    def __init__(self, name: str = "") -> None:
        """A card of JavaScript alone, where ``name`` is given."""
        self.name = name or self.name

    @property
    def files(self) -> Path:
        """Folder of its JavaScript and CSS."""
        return PACKAGE / "extras" / self.name / "page"

    def describe(self, run: int = 0) -> Any:
        """What its JavaScript is to know of a run (a replay may show several), as plain JSON."""
        return {}

    def attach(self, page: LivePage) -> None:
        """Become a part of a live page."""

    def add_routes(self, app: Flask) -> None:
        """Answer requests of its own."""

    def publish(self, tick: Tick, seq: int) -> None:
        """A Tick is shown, number ``seq`` of its lane; must return at once."""

    def close(self) -> None:
        """The page ends."""
