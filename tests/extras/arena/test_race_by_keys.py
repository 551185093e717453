"""A person can win: keys pressed in a browser, by somebody who reacts late, against a policy with a top speed."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from threading import Thread
from typing import Any

import numpy as np
import pytest

from nacdrive.common.paths import shipped
from nacdrive.drivers.human import HumanControl
from nacdrive.envs.carracing.env import CarRacingEnv
from nacdrive.envs.udacity_track.env import UdacityTrackEnv
from nacdrive.extras.arena.arena import Arena
from nacdrive.extras.arena.contestant import Contestant
from nacdrive.extras.arena.standings import ranking
from nacdrive.rollout.drive import Drive
from nacdrive.web.stream import COLUMNS
from tests.helpers.arenas import ArenaPage
from tests.helpers.key_driver import CARRACING, UDACITY, KeyDriver
from tests.web.test_page import text, until

SEED, ROAD = 4_000_003, "random:3"
KEYS = {"left": "ArrowLeft", "right": "ArrowRight", "up": "ArrowUp", "down": "ArrowDown"}
SEEN = ("t_s", "x_m", "y_m", "heading_rad", "speed_mps", "steering")


def line_of(env: Any) -> Any:
    env.reset(seed=SEED)
    return np.array([tile[2:4] for tile in env.world.track])


@pytest.mark.parametrize("reaction_s", [0.16, 0.28])
def test_whoever_reacts_late_stays_on_the_road_by_keys(reaction_s: float) -> None:
    person = Contestant("person", Drive(driver="keyboard", options={"renderer": "fast", "max_frames": 500}))
    off = []
    with person.load().open(SEED) as opened:
        driver: Any = opened.driver
        hands = KeyDriver(line_of(CarRacingEnv(renderer="fast")), CARRACING, reaction_s)
        for tick in opened:
            driver.keys = hands.keys(*(float(getattr(tick, name)) for name in SEEN[:-1]), tick.action.steering)
            off.append(tick.next_info["wheels_off"])
    assert max(off) <= 0.5 and np.mean(off) < 0.01 and tick.progress is not None and tick.progress > 0.25


class Page:
    """What a browser was sent of the cars, and the keys that are held in it."""

    def __init__(self, page: Any, control: HumanControl) -> None:
        self.page, self.control = page, control
        self.newest: list[dict[str, float]] = []
        self.held: frozenset[str] = frozenset()
        page.on("websocket", lambda socket: socket.on("framereceived", self._receive))
        page.reload()

    def _receive(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            (length,) = struct.unpack_from("<I", message)
            lanes = json.loads(message[4 : 4 + length])["lanes"]
            self.newest = self.newest or [{"t_s": -1.0, "done": 0}] * len(lanes)
            for at, lane in enumerate(lanes):
                if lane["rows"]:
                    self.newest[at] = dict(zip(COLUMNS, lane["rows"][-1], strict=True))

    def hold(self, keys: frozenset[str]) -> None:
        for key in self.held - keys:
            self.page.keyboard.up(KEYS[key])
        for key in keys - self.held:
            self.page.keyboard.down(KEYS[key])
        self.held = keys
        while self.control.poll(wait=False).keys != keys:
            self.page.wait_for_timeout(2)


def race(
    open_page: Callable[..., Any], rival: Contestant, person: Contestant, hands: KeyDriver, track: str = ""
) -> Any:
    """A whole race; the world goes on when the person has seen it and pressed, however busy the machine is."""
    now = 0.0
    control = HumanControl(needs_person=True, clock=lambda: now)
    rows: dict[str, Any] = {}
    with (
        Arena([rival, person], control, clock=lambda: now) as arena,
        ArenaPage(names=(rival.name, "person"), people=("person",), control=control) as server,
    ):
        page = open_page(server.url)
        seen = Page(page, control)
        driving = Thread(
            target=lambda: rows.update(arena.drive(0, SEED, track, audience=[server.arena], realtime=True)), daemon=True
        )
        driving.start()
        until(page, "document.querySelector('#controls .take')?.disabled === false")
        page.keyboard.press("w")
        until(page, "document.querySelector('#controls .take').textContent.startsWith('Hand back')")
        # Between two decisions of the person, so that each permission is for one.
        now = arena.steps_s[1] / 2
        while driving.is_alive():
            page.wait_for_timeout(1)
            rows_now = zip(seen.newest, arena.steps_s, strict=False)
            if not seen.newest or not all(one["done"] or one["t_s"] + step_s > now for one, step_s in rows_now):
                continue
            if not seen.newest[1]["done"]:
                seen.hold(hands.keys(*(seen.newest[1][name] for name in SEEN)))
            now += arena.steps_s[1]
        ranked = ranking(rows)
        server.arena.show_ranking(SEED, ranked)
        page.wait_for_selector("#ranking")
        best = text(page, "#ranking-body tbody tr")
        assert best.startswith("1.") and "person" in best
        assert page.faults == []
    return ranked


@pytest.mark.nightly
def test_a_race_on_carracing_is_won_by_keys(open_page: Callable[..., Any]) -> None:
    options = {"renderer": "fast", "max_frames": 3000}
    policy = Drive(model=shipped("agents") / "carracing" / "nac_steady.pt", options=options)
    rival, person = (
        Contestant("nac_steady", policy, 25.0),
        Contestant("person", Drive(driver="keyboard", options=options)),
    )
    hands = KeyDriver(line_of(CarRacingEnv(renderer="fast")), CARRACING, reaction_s=0.2)
    first, second = race(open_page, rival, person, hands)
    assert first["name"] == "person" and first["finished"] and first["off_road"] < 0.02
    assert second["progress"] > 0.9, "the other one can drive"


@pytest.mark.nightly
def test_a_race_on_a_random_road_of_the_built_in_tracks_is_won_by_keys(open_page: Callable[..., Any]) -> None:
    drive = Drive("udacity-track", options={"laps": 1.0}, track=ROAD)
    policy = replace(drive, model=shipped("agents") / "udacity" / "nac_steady.pt", speed_mph=20.0)
    rival, person = Contestant("nac_steady", policy), Contestant("person", replace(drive, driver="keyboard"))
    line = UdacityTrackEnv(ROAD).track.line[:, :2]
    first, second = race(open_page, rival, person, KeyDriver(line, UDACITY, reaction_s=0.2), ROAD)
    assert first["name"] == "person" and first["finished"] and first["interventions"] == 0
    assert second["finished"], "the other one can drive"
