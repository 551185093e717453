from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from nacdrive.envs.udacity import Bridge
from tests.helpers.udacity_simulators import Simulator, steer_by_speed


class Lines(list[str]):
    """What the bridge told."""

    def told(self, words: str) -> bool:
        return any(words in line for line in self)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def bridge(stack: ExitStack, lines: Lines) -> Callable[..., Bridge]:
    """Opens bridges on free ports."""

    def opened(decide: Any = steer_by_speed, **options: Any) -> Bridge:
        return stack.enter_context(Bridge(decide, port=0, on_event=lines.append, **options))

    return opened


@pytest.fixture
def simulator(stack: ExitStack) -> Callable[..., Simulator]:
    """Opens simulators."""

    def opened(bridge: Bridge, *arguments: Any, **options: Any) -> Simulator:
        return stack.enter_context(Simulator(bridge.port, *arguments, **options))

    return opened
