"""Which track seeds serve which purpose, in one place, so that no test track is ever trained on."""

from __future__ import annotations

EXPERT_TRAINING = range(0, 1_000_000)
"""Tracks the expert learns on."""
EXPERT_VALIDATION = range(1_000_000, 2_000_000)
"""Tracks that choose among the expert's checkpoints."""
EXPERT_TEST = range(2_000_000, 2_000_100)
"""The expert's final test: driven once, after the choice of checkpoint."""
POLICY_RECORDING = range(3_000_000, 4_000_000)
"""Tracks that are recorded for pupils to learn from."""
POLICY_TEST = range(4_000_000, 5_000_000)
"""Tracks that pupils are judged on."""
