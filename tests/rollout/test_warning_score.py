"""What a warning is worth: departures told of in time, and false alarms, on drives made up by hand."""

from __future__ import annotations

import pytest

from nacdrive.rollout.warning_score import DriveWarnings, WarningScore, total
from tests.helpers.ticks import make_tick

STEP_S = 0.1


def score(seconds: float, risky: list[tuple[float, float]], off: list[tuple[float, float]]) -> WarningScore:
    """A drive with the risk at the threshold, and a wheel off the road, in these spans of seconds."""
    found = WarningScore()
    for step in range(round(seconds / STEP_S)):
        t_s = step * STEP_S
        found.add(t_s, any(a <= t_s + 1e-9 < b for a, b in risky), any(a <= t_s + 1e-9 < b for a, b in off))
    found.finish()
    return found


@pytest.mark.parametrize(
    ("risky", "off", "departures", "warned", "false_alarms"),
    [
        ([], [], 0, 0, 0),
        ([], [(10, 11)], 1, 0, 0),
        ([(8.5, 10)], [(10, 11)], 1, 1, 0),
        ([(9.5, 10)], [(10, 11)], 1, 0, 0),  # half a second is too late
        ([(8, 8.5)], [(10, 11)], 1, 1, 0),  # over, and still told of in time
        ([(5, 6)], [(10, 11)], 1, 0, 1),  # long before is not ahead
        ([(8, 8.5), (9, 10)], [(10, 11)], 1, 1, 0),  # one alarm with a short gap
        ([(5, 6)], [], 0, 0, 1),
        ([(0, 25)], [], 0, 0, 5),  # always on: one for each five seconds
        ([(0, 20)], [(20, 21)], 1, 1, 3),  # all of it but the last five seconds
        ([(8.5, 10)], [(10, 11), (12, 13)], 1, 1, 0),  # off again at once is the same departure
        ([(8.5, 10), (18, 20)], [(10, 11), (20, 21)], 2, 2, 0),
    ],
)
def test_departures_are_told_of_in_time_and_other_alarms_are_false(
    risky: list[tuple[float, float]],
    off: list[tuple[float, float]],
    departures: int,
    warned: int,
    false_alarms: int,
) -> None:
    row = score(30, risky, off).row()
    assert (row["departures"], row["warned"], row["false_alarms"]) == (departures, warned, false_alarms)


def test_rows_of_several_drives_are_added_up() -> None:
    rows = [score(30, [(8, 10)], [(10, 11)]).row(), score(30, [(5, 6)], []).row(), score(30, [], [(20, 21)]).row()]
    told = total(rows)
    assert told["warned_share"] == 0.5
    assert told["lead_median_s"] == pytest.approx(1.0)
    assert told["false_alarms_per_5_min"] == pytest.approx(300 / told["watched_s"])
    assert total([])["warned_share"] is None


def test_ticks_of_a_drive_are_scored_and_those_without_a_monitor_are_not() -> None:
    watched, alone = DriveWarnings(), DriveWarnings()
    for step in range(200):
        more = {"info": {"off_road": 100 <= step < 110}, "next_info": {}}
        watched.add(make_tick(step, risk=0.9 if 70 <= step < 100 else 0.1, circuit=False, saliency=False, **more))
        alone.add(make_tick(step, circuit=False, saliency=False, **more))
    told = watched.result()
    assert told is not None and (told["departures"], told["warned"], told["false_alarms"]) == (1, 1, 0)
    assert told["lead_s"] == pytest.approx(1.5)
    assert alone.result() is None
