"""When a lap of CarRacing is finished: the rule of the installed Gymnasium, and the one that was meant.

``gymnasium-1.4``: the car stands on tile 0 when the episode begins, so that tile is visited already, and Gymnasium asks
whether enough of the road was covered only at a tile's first visit. ``lap_complete_percent`` therefore never ends a
lap: it takes every single tile (https://github.com/Farama-Foundation/Gymnasium/issues/1269).

``all-tiles-95``: every contact with tile 0 asks, so that a lap is finished when the car comes back to the start with
more than 95 % of all tiles visited. So does https://github.com/Farama-Foundation/Gymnasium/pull/1670, which was open
when this was written. Rewards of a frame are the same under both rules; only the end of the episode differs.
"""

from __future__ import annotations

from typing import Any

from gymnasium.envs.box2d.car_racing import FrictionDetector


class AllTilesDetector(FrictionDetector):
    """Gymnasium's contact listener that judges the lap at every contact with tile 0."""

    def _contact(self, contact: Any, begin: bool) -> None:
        super()._contact(contact, begin)  # type: ignore[no-untyped-call]
        if not begin:
            return
        bodies = contact.fixtureA.body.userData, contact.fixtureB.body.userData
        tile = next((body for body in bodies if body is not None and "road_friction" in body.__dict__), None)
        wheel = any(body is not None and "tiles" in body.__dict__ for body in bodies)
        if tile is None or not wheel or tile.idx != 0:
            return
        if self.env.tile_visited_count / len(self.env.track) > self.lap_complete_percent:
            self.env.new_lap = True
