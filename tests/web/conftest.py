"""A page's server for the tests of the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nacdrive.web import LiveServer


@pytest.fixture
def server() -> Iterator[LiveServer]:
    with LiveServer(port=0, title="nac_steady on a bending road") as live:
        yield live
