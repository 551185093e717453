"""What-if questions of a moment: the decision, the part of the picture it hangs on, and how the car would drive on."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.datasets.images import decode_image
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.drivers.tick import Tick
from nacdrive.envs.base import Frame, Info
from nacdrive.extras.what_if.moments import MomentMemory
from nacdrive.extras.what_if.what_if import POINTS_AT_ONCE, Moment, ReplayedPast, WhatIf, effect, point
from tests.helpers.what_if import SEED, drive, load, load_without_world, make_env, small_policy

DARK = [{"kind": "dim", "factor": 0.0}]


def moment_at(step: int, ticks: Sequence[Tick]) -> Moment:
    seen = ticks[max(0, step - 4) : step + 1]
    past = [tick.action for tick in ticks[:step]]
    return Moment([tick.frame for tick in seen], [tick.t_s for tick in seen], SEED, past)


@pytest.fixture(scope="module")
def ticks() -> Sequence[Tick]:
    return drive()


@pytest.fixture(scope="module")
def asked() -> WhatIf:
    return load()


@pytest.mark.parametrize("step", [0, 2, 11])
def test_without_edits_the_decision_is_bit_equal_to_that_of_the_drive(
    step: int, ticks: Sequence[Tick], asked: WhatIf
) -> None:
    found = asked.decide(moment_at(step, ticks), [])
    logits = ticks[step].action.logits
    assert logits is not None
    assert found["base"] == found["edited"]
    assert found["base"]["logits"] == [float(x) for x in logits]


def test_an_edit_changes_the_decision_and_not_the_next_question(ticks: Sequence[Tick], asked: WhatIf) -> None:
    moment = moment_at(11, ticks)
    dark = asked.decide(moment, DARK)
    assert dark["edited"]["logits"] != dark["base"]["logits"]
    assert asked.decide(moment, [])["edited"] == dark["base"]


def lines(answers: Any) -> tuple[dict[str, list[dict[str, Any]]], dict[str, Any]]:
    found: dict[str, list[dict[str, Any]]] = {"edited": [], "unedited": []}
    for answer in answers:
        if "effect" in answer:
            assert np.array(answer["road"]).shape[::2] == (2, 2)
            return found, answer["effect"]
        if answer:
            found[answer["who"]] += answer["points"]
    raise AssertionError("no effect")


def test_a_ghost_without_edits_drives_the_very_line_of_the_drive(ticks: Sequence[Tick], asked: WhatIf) -> None:
    found, said = lines(asked.ghost(moment_at(11, ticks), [], seconds=1.0))
    for line in found.values():
        assert len(line) == 14
        assert [(p["x_m"], p["y_m"]) for p in line] == [(tick.x_m, tick.y_m) for tick in ticks[11:25]]
    assert said["decides_otherwise_s"] is None
    assert said["apart_m"] == 0


def test_an_edited_ghost_begins_at_the_moment_with_the_edited_decision(ticks: Sequence[Tick], asked: WhatIf) -> None:
    moment = moment_at(11, ticks)
    mute = [{"kind": "mute", "head": 0}, {"kind": "mute", "head": 1}, *DARK]
    found, said = lines(asked.ghost(moment, mute, seconds=1.0))
    first = found["edited"][0]
    # What it saw, small: that of the moment first.
    apart = decode_image(base64.b64decode(first["picture"])).astype(int) - moment.frames[-1]
    assert np.abs(apart).mean() < 6 and all("picture" not in one for one in found["unedited"])
    assert (first["x_m"], first["y_m"]) == (ticks[11].x_m, ticks[11].y_m)
    assert first["choice"] == asked.decide(moment, mute)["edited"]["choice"]
    changed = any(a["choice"] != b["choice"] for a, b in zip(*found.values(), strict=True))
    assert (said["decides_otherwise_s"] is not None) == changed


def test_the_unedited_line_of_one_moment_is_not_shown_at_another(ticks: Sequence[Tick], asked: WhatIf) -> None:
    for step in (11, 20, 11):
        unedited = lines(asked.ghost(moment_at(step, ticks), DARK, seconds=0.5))[0]["unedited"]
        assert (unedited[0]["t_s"], unedited[0]["x_m"]) == (ticks[step].t_s, ticks[step].x_m)


def test_a_ghost_comes_in_pieces_while_it_is_driven(ticks: Sequence[Tick], asked: WhatIf) -> None:
    pieces = [answer for answer in asked.ghost(moment_at(13, ticks), DARK, seconds=1.0) if answer.get("who")]
    drawn = {who: [len(piece["points"]) for piece in pieces if piece["who"] == who] for who in ("edited", "unedited")}
    assert drawn["edited"] == drawn["unedited"] == [POINTS_AT_ONCE, POINTS_AT_ONCE, 4]


def test_a_ghost_has_a_memory_of_its_own(ticks: Sequence[Tick]) -> None:
    asked = load()
    asked.decide(moment_at(11, ticks), [])
    shared = asked.edited([])
    for _ in asked.ghost(moment_at(20, ticks), DARK, 1.0):
        assert shared.last_decision().times[-1] == ticks[11].t_s, "whom others are asked of meanwhile"


def test_numbers_of_an_environment_of_ones_own_can_be_sent(ticks: Sequence[Tick]) -> None:
    odd = replace(ticks[3], x_m=np.float32(1.5), speed_mps=np.float32("nan"))
    sent = json.loads(json.dumps(point(odd), allow_nan=False))
    assert (sent["x_m"], sent["speed_mps"], sent["t_s"]) == (1.5, None, ticks[3].t_s)


def test_a_frame_that_came_late_is_of_the_time_when_it_was_taken(ticks: Sequence[Tick]) -> None:
    memory = MomentMemory(4, 1 << 30)
    for number, tick in enumerate(ticks[:6], 1):
        memory.add(replace(tick, frame_t_s=tick.t_s - 0.04), number)
    found = memory.find({"seq": 6})
    assert found is not None and found.times[-1] == ticks[5].t_s - 0.04


def test_a_policy_that_takes_over_has_seen_its_window_and_one_frame_more(ticks: Sequence[Tick]) -> None:
    driver = PolicyDriver(small_policy())
    memory = ReplayedPast(driver, [tick.action for tick in ticks[:11]], 11 - driver.policy.config.window)
    seen: list[float] = []
    own = driver.act

    def act(frame: Frame, info: Info) -> Action:
        seen.append(info["t_s"])
        return own(frame, info)

    driver.act = act  # type: ignore[method-assign]
    env = make_env()
    memory.reset(env)
    for tick in ticks[:12]:
        memory.act(tick.frame, tick.info)
    env.close()
    assert seen == [tick.info["t_s"] for tick in ticks[11 - driver.policy.config.window : 12]]


def test_a_drive_that_was_another_one_gets_no_ghost(ticks: Sequence[Tick], asked: WhatIf) -> None:
    moment = moment_at(11, ticks)
    other = Moment(moment.frames, moment.times, SEED + 1, moment.past)
    with pytest.raises(UserError, match="does not come to the same picture"):
        list(asked.ghost(other, []))
    with pytest.raises(UserError, match="can be made again"):
        list(load_without_world().ghost(moment, []))


def test_the_driven_line_is_found_again_from_the_actions(ticks: Sequence[Tick], asked: WhatIf) -> None:
    answers = list(asked.lap(moment_at(9, ticks), "driven"))
    points = [p for answer in answers for p in answer["points"]]
    assert answers[-1]["done"] and answers[-1]["episode_return"] == ticks[8].episode_return
    assert not any("episode_return" in answer for answer in answers[:-1]), "no score before the end"
    assert [p["x_m"] for p in points] == [tick.x_m for tick in ticks[:9]]
    moment = moment_at(9, ticks)
    other = Moment(moment.frames, moment.times, SEED + 1, moment.past)
    with pytest.raises(UserError, match="does not come to the same picture"):
        list(asked.lap(other, "driven"))


def test_the_effect_is_what_the_two_lines_say() -> None:
    def line(xs: Sequence[float], off: int | None = None, ends: float = 0.5) -> list[dict[str, Any]]:
        points = [
            {"t_s": 2 + 0.1 * i, "x_m": x, "y_m": 0.0, "choice": 3, "steering": 0.0, "off_road": i == off, "events": []}
            for i, x in enumerate(xs)
        ]
        return [{**point, "progress": ends} for point in points]

    edited, plain = line([0, 1, 3, 6, 9, 9], off=4, ends=0.2), line([0, 1, 2, 3, 4, 5])
    edited[2]["choice"] = 1
    said = effect(edited, plain)
    assert said["decides_otherwise_s"] == pytest.approx(0.2)
    assert said["off_road_s"] == pytest.approx(0.4)
    assert said["unedited_off_road_s"] is None
    assert said["apart_m"] == 5
    assert said["ahead"] == pytest.approx(-0.3)
    assert said["over_s"] is None
    assert effect(edited[:3], plain)["over_s"] == pytest.approx(0.2)


def test_the_occlusion_map_of_a_moment_is_plain_numbers(ticks: Sequence[Tick], asked: WhatIf) -> None:
    found = asked.occlusion(moment_at(11, ticks), [])
    assert np.shape(found["map"]) == (12, 12)
    assert np.isfinite(found["map"]).all()
