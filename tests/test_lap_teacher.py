"""tools/lap_teacher.py: who labels where."""

from __future__ import annotations

from typing import Any

import pytest

from nacdrive.common.action import Action
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.rollout.drive import Drive
from tools.lap_teacher import POLICY

TEACHER, BACK = "tools.lap_teacher:LapTeacher", "nacdrive.drivers.racing_line:AtFrameRate"


def labels(expert: str, camera: CameraNoise | None = None, **options: Any) -> list[tuple[Action, Action]]:
    """What the policy of the teacher drove, and what ``expert`` said of it."""
    given = Drive(options={"renderer": "fast", **options}, model=POLICY, expert=expert, camera=camera or CameraNoise())
    with given.open(3_999_000) as opened:
        return [(tick.action, tick.expert) for tick in opened if tick.expert is not None]


def test_on_the_road_it_is_the_policy_through_a_good_camera_whatever_the_pupil_sees() -> None:
    good = labels(TEACHER, max_frames=160)
    assert len(good) == 80 and all(expert == driven for driven, expert in good)
    bad = labels(TEACHER, CameraNoise(blackout=0.5), max_frames=160)
    assert bad[0][1] == good[0][1] and any(expert != driven for driven, expert in bad)


@pytest.mark.parametrize("start", [{"start_offset": 12.0}, {"start_offset": -12.0}, {"start_speed": 100.0}])
def test_beside_the_road_and_far_too_fast_it_is_the_driver_who_reads_the_track(start: dict[str, float]) -> None:
    taught, line = labels(TEACHER, max_frames=60, **start), labels(BACK, max_frames=60, **start)
    is_led = [expert == other for (_, expert), (_, other) in zip(taught, line, strict=True)]
    assert sum(is_led) >= 5 and all(
        led or expert == driven for led, (driven, expert) in zip(is_led, taught, strict=True)
    )
    assert all(is_led) or "start_speed" in start
