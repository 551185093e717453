"""The built-in 3-D tracks. Panda3D is imported when an environment is made, not before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nacdrive.envs.udacity_track.env import UdacityTrackEnv


def make_udacity_track(track: str = "lake", **options: Any) -> UdacityTrackEnv:
    """A car on a built-in track (see ``UdacityTrackEnv``), software-rendered, without a display.

    Options are these, and the fields of ``RoadOptions``, such as ``road_difficulty``:

    Args:
        track: ``lake`` (an easy loop), ``mountain`` (narrow, hilly, sharp bends), ``random`` (each episode's seed draws
            its own road) or ``random:SEED`` (one of those).
        repeat: Steps of 0.02 s for which an action is held; then one picture. 5 makes 10 pictures a second.
        cameras: ``center``, and ``left`` and ``right`` if wanted; all of them are in ``info["cameras"]`` then.
        randomize: Light, shadows, colours, textures and what stands beside the road by the seed of ``reset``.
        laps: Laps after which an episode is truncated.
        max_seconds: Simulated seconds after which it is truncated.
        recover: Put a car that is lost back on the road instead of ending the episode.
        render_mode: None, ``rgb_array``, or ``human`` (a window; needs a display).
    """
    from nacdrive.envs.udacity_track.env import UdacityTrackEnv

    return UdacityTrackEnv(track, **options)
