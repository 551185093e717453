"""What is driven: CarRacing with its fast renderer, the built-in tracks, the Udacity simulator, a user's own.

Importing it registers the Gymnasium ids ``nacdrive/CarRacing-v0``, ``nacdrive/CarRacingFast-v0`` and
``nacdrive/UdacityTrack-v0``; ``gymnasium.make("nacdrive.envs:nacdrive/UdacityTrack-v0")`` imports and makes one.
Gymnasium itself has looked into no entry points since its version 1.0. None of them has ``max_episode_steps``: how many
steps an episode may have depends on ``repeat``, and they end it themselves.
"""

import gymnasium

IDS = {
    "nacdrive/CarRacing-v0": ("nacdrive.envs.carracing.env:CarRacingEnv", {}),
    "nacdrive/CarRacingFast-v0": ("nacdrive.envs.carracing.env:CarRacingEnv", {"renderer": "fast"}),
    "nacdrive/UdacityTrack-v0": ("nacdrive.envs.udacity_track.env:UdacityTrackEnv", {}),
}
for _id, (_entry_point, _options) in IDS.items():
    if _id not in gymnasium.registry:
        gymnasium.register(_id, entry_point=_entry_point, kwargs=_options, order_enforce=False)
