"""The playground as one file that fetches nothing: the files of ``page/``, a network, and the pictures of its car."""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template

from nacdrive.common.version import __version__

PARTS = Path(__file__).parent / "page"


def playground_page(name: str, style: str, data: dict[str, str], script: str) -> str:
    """The whole page.

    Args:
        name: Of the policy.
        style: Of a shared lap, on which the page's own builds.
        data: JSON and base64 of the elements that the script reads: ``description``, ``weights``, ``sprites``,
            ``repeat``.
        script: ``page/playground.js`` and all that it imports.
    """
    return Template((PARTS / "page.html").read_text(encoding="utf-8")).substitute(
        version=__version__,
        name=escape(name),
        style=f"{style}\n{(PARTS / 'page.css').read_text(encoding='utf-8')}",
        script=script,
        **data,
    )
