from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from nacdrive.envs.udacity import UdacityEnv
from tests.helpers.udacity_loop import Loop, drive
from tests.helpers.udacity_simulators import Simulator, steer_by_speed


class Lines(list[str]):
    """What was told."""

    def told(self, words: str) -> bool:
        return any(words in line for line in self)


@pytest.fixture(scope="module")
def lasting() -> Iterator[Loop]:
    """An environment on a free port that is driven as long as a module's tests last: for those that leave it so."""
    with drive(UdacityEnv(port=0), steer_by_speed) as loop:
        yield loop


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def driven(stack: ExitStack, lines: Lines) -> Callable[..., Loop]:
    """Opens environments on free ports, each driven by a function."""

    def opened(decide: Any = steer_by_speed, **options: Any) -> Loop:
        return stack.enter_context(drive(UdacityEnv(port=0, on_event=lines.append, **options), decide))

    return opened


@pytest.fixture
def simulator(stack: ExitStack) -> Callable[..., Simulator]:
    """Opens simulators."""

    def opened(loop: Loop, *arguments: Any, **options: Any) -> Simulator:
        return stack.enter_context(Simulator(loop.env.port, *arguments, **options))

    return opened
