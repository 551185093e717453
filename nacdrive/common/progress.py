"""What a verb shows while it works, always on stderr: bars, lines above them, and the sentence when it is stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

QUIET = "NACDRIVE_QUIET"
"""Environment variable by which worker processes too know of --quiet."""


def set_quiet(*, quiet: bool) -> None:
    """Show no progress in this process and those that it starts, or show it."""
    if quiet:
        os.environ[QUIET] = "1"
    else:
        os.environ.pop(QUIET, None)


def progress_console() -> Console:
    """Where progress is printed; shows nothing under --quiet."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True, quiet=QUIET in os.environ)


def progress_bar(amount: ProgressColumn | None = None) -> Progress:
    """A bar for each task that is added with ``state=``, the text beside it, or ``amount`` in its place.

    Bars are for people: without a terminal only what is printed on the bar's ``console`` is shown.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = progress_console()
    state = amount or TextColumn("{task.fields[state]}")
    columns = (TextColumn("{task.description:<8}"), BarColumn(), state, TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=console.quiet or not console.is_terminal)


@contextmanager
def resumable(kept: Callable[[], str], again: str = "the same command with --resume goes on") -> Iterator[None]:
    """Ctrl-C says what is kept, half a sentence, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{kept()}: {again}.") from None
