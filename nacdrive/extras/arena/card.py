"""The arena's card of the page: the ranking of a track, and everybody's camera with its sliders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from threading import Lock
from typing import Any

from nacdrive.drivers.tick import Tick
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.extras.arena.arena import Audience
from nacdrive.web.card import Card, LivePage

CAMERA: dict[str, tuple[type, float, float]] = {
    "brightness": (float, 0.1, 3.0),
    "noise": (float, 0.0, 0.5),
    "blackout": (float, 0.0, 1.0),
    "delay_steps": (int, 0, 12),
}
"""What may be done to the cameras of an arena while it is driven: kind, least and most."""
Entries = Sequence[Mapping[str, Any]]


class ArenaCard(Card, Audience):
    """An ``Audience``: shows an arena on its page, a lane each; ``set_camera`` gets what is set for everybody."""

    name = "arena"

    def __init__(self, set_camera: Callable[[CameraNoise], None] = lambda noise: None) -> None:
        self._camera, self._lock, self._set_camera = CameraNoise(), Lock(), set_camera
        self.commands = {"camera": self._command}

    def attach(self, page: LivePage) -> None:
        self.page = page

    def begin(self, episode: int, seed: int, track: str) -> None:
        self.page.begin(place={"episode": episode, "seed": seed, "track": track}, ranking=None)

    def tick(self, index: int, tick: Tick) -> None:
        self.page.publish(tick, index)

    def camera(self, noise: CameraNoise, since_s: float) -> None:
        with self._lock:
            self._camera = noise
        self.page.set(camera=asdict(noise), since_s=round(since_s, 2))

    def show_ranking(self, seed: int, ranked: Entries, totals: Entries = (), following: str = "") -> None:
        """Show who was best, until the next track begins."""
        self.page.set(ranking={"seed": seed, "ranking": list(ranked), "totals": list(totals), "following": following})

    def _command(self, value: Any) -> Callable[[], None] | None:
        camera = camera_of(value)
        return None if camera is None else partial(self._change, camera)

    def _change(self, camera: Mapping[str, Any]) -> None:
        """Somebody has moved sliders: all that is not on the page stays as it was at the start."""
        with self._lock:
            self._camera = wanted = replace(self._camera, **camera)
        self._set_camera(wanted)


def camera_of(value: Any) -> dict[str, float] | None:
    """Settings of the cameras, each within the limits of ``CAMERA``; None if they are none."""
    if not isinstance(value, dict) or not value or not value.keys() <= CAMERA.keys():
        return None
    for name, number in value.items():
        kind, least, most = CAMERA[name]
        if type(number) not in ((int,) if kind is int else (int, float)) or not least <= number <= most:
            return None
    return {name: CAMERA[name][0](number) for name, number in value.items()}
