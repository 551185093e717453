"""Lessons, links, sessions and drawn roads of the playground, in one deno process with a small policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nacdrive.extras.export.html import network_json
from nacdrive.extras.export.network_description import describe
from nacdrive.extras.playground.html import sprites
from nacdrive.models import Policy

CALM = {"black": False, "flicker": 0, "noise": 0, "delay": 0, "drop": 0, "wind": 0}
STRETCH = {
    **{"lap": 1, "seed": 7, "drawn": False, "edits": [], "trouble": CALM, "person": False, "racing": False},
    **{"reversed": False, "blown": False, "backSeconds": -1, "seconds": 9.0, "offRoad": False, "progress": 0.3},
    **{"ended": "", "won": False},
}
COVER, FORGET = "paint:0,0,.5,1,128", ["hide:1", "hide:2"]
FLICKER, LATE = {**CALM, "flicker": 0.5}, {**CALM, "delay": 2}
LATER = {**CALM, "delay": 5}
ASKED = {"steering": -0.4, "strongest": "mute:h3"}
LESSONS = {
    "sees": ({"edits": [COVER]}, [{"edits": [COVER], "offRoad": True}, {"edits": [COVER], "seconds": 3}, {}]),
    "why": ({"edits": ["mute:h3"]}, [{"edits": ["mute:h2"]}]),
    "memory": (
        [{"trouble": FLICKER}, {"trouble": FLICKER, "edits": FORGET}],
        [
            [{"trouble": FLICKER}, {"trouble": FLICKER, "edits": FORGET[:1]}],
            [{"trouble": FLICKER}, {"trouble": FLICKER, "edits": FORGET, "seed": 8}],
            [{"trouble": FLICKER}, {"trouble": FLICKER, "edits": FORGET, "seconds": 2}],
        ],
    ),
    "grass": ({"blown": True, "backSeconds": 2.5}, [{"offRoad": True}, {"blown": True, "backSeconds": 1}]),
    "imitation": ({"reversed": True}, [{"reversed": True, "seconds": 2}, {"person": True}]),
    "delay": (
        [{"trouble": LATER, "offRoad": True}, {"trouble": LATE}],
        [[{"trouble": LATER, "offRoad": True}, {}], [{"trouble": LATE, "offRoad": True}, {"trouble": LATER}]],
    ),
    "road": (
        {"drawn": True, "progress": 0.6},
        [{"drawn": True}, {"progress": 0.9}, {"drawn": True, "person": True, "progress": 0.6}],
    ),
    "beat": ({"racing": True, "person": True, "won": True}, [{"racing": True, "person": True}]),
}
WHOLE = "#v=1&seed=4000007&if=mute:h3;dim:0.5;hide:2&flicker=0.25&delay=4&wind=-0.5&black=1&time=14.32"
BROKEN = (
    *("#nonsense", "#v=1", "#v=1&seed=x", "#v=1&seed=-1", "#v=1&seed=1.5", "#v=1&seed=99999999999", "#seed=1"),
    *(
        "#v=1&seed=1&if=mute:h0x",
        "#v=1&seed=1&noise=7",
        "#v=1&seed=1&wind=",
        "#v=1&road=AAAA",
        "#v=1&road=" + "A" * 9999,
    ),
    *("#v=1&seed=1&if=constructor:1", "#v=x&seed=1", "#v=1&seed=1&time=NaN"),
)


SCORES = [302.5, 302, 303.5, 304, -0.5, -0.2, -1.5, -2]


def stretches(made: Any) -> list[dict[str, Any]]:
    return [{**STRETCH, **one} for one in (made if isinstance(made, list) else [made])]


def journals() -> list[dict[str, Any]]:
    """Of each lesson the one that solves it, and those that do not."""
    asked = {"why": ASKED}
    made = []
    for lesson, (solving, failing) in LESSONS.items():
        made += [{"stretches": stretches(one), "asked": asked.get(lesson)} for one in (solving, *failing)]
    return [*made, {"stretches": stretches({"edits": ["mute:h3"]}), "asked": None}]


@pytest.fixture(scope="module")
def pieces(deno: Callable[..., Any], small: Policy) -> Any:
    description, weights = network_json(describe(small))
    wild = [[0, 0], [200, 0], [0, 1], [200, 1], [0, 2], [200, 2], [0, 3], [200, 3], [0, 4]]
    outside = [[400 * x, 400 * y] for x, y in ((1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1))]
    tiny = [[x / 50, y / 50] for x, y in outside]
    given = {"journals": journals(), "links": [WHOLE, "", "#v=2&seed=1", *BROKEN], "lines": [tiny, wild, outside]}
    given["scores"] = SCORES
    return deno("pieces.js", sprites=sprites(), description=description, weights=weights, **given)


def test_each_lesson_is_solved_by_what_it_asks_for_and_by_nothing_less(pieces: Any) -> None:
    assert pieces["lessons"] == list(LESSONS)
    solved = iter(pieces["solved"])
    for lesson, (_, failing) in LESSONS.items():
        assert lesson in next(solved)
        for one in failing:
            assert lesson not in next(solved), (lesson, one)
    assert "why" not in next(solved)


def test_a_link_brings_back_the_experiment(pieces: Any) -> None:
    whole, nothing, newer, *broken = pieces["links"]
    assert whole["error"] == "" and whole["again"] == WHOLE.replace("&black=1", "").replace(
        "&flicker", "&black=1&flicker"
    )
    assert whole["experiment"]["edits"][0] == {"kind": "mute", "head": 2, "group": None, "neuron": None}
    assert whole["experiment"]["trouble"] == {**CALM, "flicker": 0.25, "delay": 4, "wind": -0.5, "black": True}
    assert nothing == {"error": "", "experiment": None, "again": None}
    assert newer["error"].startswith("This link was made by a newer playground")
    for hash_, one in zip(BROKEN, broken, strict=True):
        assert one["error"].startswith("This link is damaged"), hash_
        assert one["experiment"] is None


def test_a_drawn_road_goes_into_a_link_and_what_cannot_be_driven_is_refused(pieces: Any) -> None:
    circle, tiny, wild, outside = pieces["roads"]
    assert abs(circle["length"] - 2 * 3.14159 * 120 / 3.5) < 4 and circle["bends"] < 0.1
    assert pieces["drawn"].startswith("#v=1&road=") and len(pieces["drawn"]) < 300
    assert tiny["fault"] == "The road is too short: draw a longer loop."
    assert "too tight" in wild["fault"] or "too short" in wild["fault"]
    assert outside["fault"] == "The road leaves the field: draw it a little smaller."


def test_an_edit_leaves_a_ghost_and_a_second_can_be_driven_once_more(pieces: Any) -> None:
    drives = pieces["drives"]
    assert drives["ghostless"] and drives["forked"] == 50
    assert drives["again"] == drives["after"] != drives["first"]
    assert drives["ghostOfStart"] == 0


def test_every_trouble_changes_the_drive(pieces: Any) -> None:
    drives = pieces["drives"]
    assert drives["blown"] != drives["calm"]
    for name, end in drives["trouble"].items():
        # A camera that is always black is the same by either name.
        assert end != drives["quiet"], name
    assert drives["trouble"]["black"] == drives["trouble"]["flicker"]


def test_a_race_has_a_winner_and_is_written_down(pieces: Any) -> None:
    race = pieces["race"]
    (stretch,) = race["stretches"]
    assert race["winner"] in ("you", "network")
    assert stretch["racing"] and stretch["person"] and stretch["won"] == (race["winner"] == "you")
    assert stretch["ended"] or race["winner"] == "network"


def test_a_lap_that_leaves_the_field_is_worth_what_its_frames_are_worth(pieces: Any) -> None:
    lap = pieces["straightOn"]
    assert lap["ended"] == "left the field" and lap["reward"] == pytest.approx(lap["sum"]) and lap["sum"] < -50


def test_a_score_between_two_whole_ones_is_shown_as_python_rounds_it(pieces: Any) -> None:
    panels = pieces["panels"]
    assert panels[::2] == panels[1::2] and len(set(panels)) == 4


def test_what_why_says_of_a_part_comes_true_where_it_is_muted(pieces: Any) -> None:
    kinds, edited, muted = zip(*pieces["muted"], strict=True)
    assert kinds.count("head") == 4 and kinds.count("frame") == 2 and kinds.count("region") == 12
    assert [kind for kind, outputs in zip(kinds, edited, strict=True) if outputs is None] == ["time"]
    for kind, after, measured in zip(kinds, edited, muted, strict=True):
        assert after is None or after == measured, kind
