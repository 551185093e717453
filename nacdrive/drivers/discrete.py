"""From a wish in continuous units to the nearest of a few discrete actions."""

from __future__ import annotations

from nacdrive.common.action import Action
from nacdrive.envs.base import DrivingEnv

STEERING_WEIGHT = 2.0
"""Steering matters more than the pedals where one action cannot do both."""


def nearest_action(env: DrivingEnv, wanted: Action) -> Action:
    """``wanted`` itself where ``env`` steers continuously, else the discrete action that comes nearest to it."""
    if not env.actions:
        return wanted

    def distance(action: Action) -> float:
        pedals = (action.throttle - action.brake) - (wanted.throttle - wanted.brake)
        return (STEERING_WEIGHT * (action.steering - wanted.steering)) ** 2 + pedals**2

    return min((env.action_of(choice) for choice in range(len(env.actions))), key=distance)
