"""The names of the rules that end a lap of CarRacing, for command lines, which must not load the simulator."""

from __future__ import annotations

from typing import Literal, get_args

LapRule = Literal["gymnasium-1.4", "all-tiles-95"]
"""When a lap of CarRacing is finished; see ``nacdrive.envs.carracing.lazy``."""
LAP_RULES: tuple[LapRule, ...] = get_args(LapRule)
"""The first is that of the installed Gymnasium, and holds where nobody says otherwise."""
