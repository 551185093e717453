"""A page with two lanes and the arena's card."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nacdrive.drivers.tick import Tick
from nacdrive.envs.base import Info
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.extras.arena.card import ArenaCard
from nacdrive.web import LiveServer
from tests.helpers.ticks import make_tick

NAMES = ("steady", "exact")


class ArenaPage(LiveServer):
    """A page of several lanes that knows its arena's card."""

    def __init__(
        self, names: Sequence[str] = NAMES, set_camera: Callable[[CameraNoise], None] = lambda noise: None, **more: Any
    ) -> None:
        self.arena = ArenaCard(set_camera)
        super().__init__(**{"port": 0, "names": names, "cards": [self.arena], **more})


def arena_tick(step: int, index: int = 0, **more: Any) -> Tick:
    """A Tick of contestant ``index``: the second one is slower, on the same road."""
    station = step * (2.0 - 0.5 * index)
    info = Info(t_s=step * 0.05, station_m=station)
    place = {"x_m": station, "y_m": 0.1 * station, "heading_rad": 0.1, "progress": station / 200}
    usual = {"circuit": False, "saliency": False, "expert": None, "info": info, **place}
    return make_tick(step, **{**usual, **more})
