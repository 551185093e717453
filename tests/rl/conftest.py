"""Training in a test keeps to one thread, and is judged on the first seconds of a lap."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
import torch

from nacdrive.envs.carracing.env import make_carracing


@pytest.fixture(scope="module", autouse=True)
def short_laps() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nacdrive.rl.train.make_carracing", partial(make_carracing, max_frames=40))
        yield


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
