"""Names of the rules by which a lap of CarRacing is finished; ``nacdrive.envs.carracing.rules`` says what they are."""

from __future__ import annotations

from typing import Literal, get_args

LapRule = Literal["gymnasium-1.4", "all-tiles-95"]
LAP_RULES: tuple[LapRule, ...] = get_args(LapRule)
"""The first is that of the installed Gymnasium, and holds where nobody says otherwise."""
