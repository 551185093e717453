"""Which track seeds serve which purpose, in one place, so that no test track is ever trained on.

A random road of ``udacity-track`` has the seed of its episode; so ``POLICY_RECORDING`` are roads to learn from, and
``POLICY_TEST`` are roads that no policy has seen.
"""

from __future__ import annotations

from nacdrive.common.errors import UserError

EXPERT_TRAINING = range(0, 1_000_000)
"""Tracks the expert learns on."""
EXPERT_VALIDATION = range(1_000_000, 2_000_000)
"""Tracks that choose among the expert's checkpoints."""
EXPERT_TEST = range(2_000_000, 2_000_100)
"""The expert's final test: driven once, after the choice of checkpoint."""
POLICY_RECORDING = range(3_000_000, 4_000_000)
"""Tracks that are recorded for pupils to learn from."""
HUNT = range(3_400_000, 3_500_000)
"""Of those, tracks on which failures are searched for: they may be learnt from."""
POLICY_TEST = range(4_000_000, 5_000_000)
"""Tracks that pupils are judged on."""


def road_to_learn_from(seed: int, roads: int) -> int:
    """Seed of the road of the episode of ``seed``, where ``roads`` different ones are to be learnt from."""
    return POLICY_RECORDING.start + seed % roads


def refuse_test_road(seed: int | None) -> None:
    """Refuse to learn from the road of ``seed`` if policies are judged on it."""
    if seed is not None and seed in POLICY_TEST:
        raise UserError(
            f"the road of seed {seed} is one that policies are judged on ({POLICY_TEST.start} to "
            f"{POLICY_TEST.stop - 1}): learn from others, such as random:{POLICY_RECORDING.start}."
        )
