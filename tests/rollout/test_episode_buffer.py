"""From the decisions of a drive to the columns of an episode."""

from __future__ import annotations

from typing import Any

import numpy as np

from nacdrive.common.action import Action
from nacdrive.datasets.episode import content_problem
from nacdrive.datasets.episode_file import from_parquet, to_parquet
from nacdrive.rollout.recorder import EpisodeBuffer, executed_action, expert_action
from nacdrive.viz.recorded import recorded_ticks
from tests.helpers.ticks import make_tick

LEFT, GAS = Action(-0.5, 0.0, 0.0, choice=2), Action(0.0, 1.0, 0.0, choice=3)


def buffer_of(ticks: list[dict[str, Any]], label: Any = expert_action, **options: Any) -> EpisodeBuffer:
    buffer = EpisodeBuffer(label, **options)
    for step, tick in enumerate(ticks):
        buffer(make_tick(step, circuit=False, saliency=False, **tick))
    return buffer


def test_columns_hold_what_was_driven_and_what_was_known() -> None:
    ticks = [
        {"action": LEFT, "expert": GAS, "reward": 1.5, "speed_mps": 2.0, "x_m": 1.0, "y_m": None},
        {"action": GAS, "expert": None, "reward": -0.5, "speed_mps": None, "x_m": None, "y_m": None},
    ]
    episode = buffer_of(ticks).episode(source="s", driver="d", meta={"a": 1})
    assert episode.choice.tolist() == [2, 3] and episode.expert_choice.tolist() == [3, -1]
    assert episode.steering.tolist() == [-0.5, 0] and episode.throttle.tolist() == [0, 1]
    assert episode.reward.tolist() == [1.5, -0.5] and episode.episode_return == 1
    assert episode.speed_mps[0] == 2 and np.isnan(episode.speed_mps[1])
    assert episode.x_m is not None and episode.x_m[0] == 1 and np.isnan(episode.x_m[1]) and episode.y_m is None
    assert episode.expert_logits is None and episode.expert_steering is None and episode.meta["ended"] == "interrupted"
    assert (episode.source, episode.driver, episode.meta["a"], len(episode.frames)) == ("s", "d", 1, 2)


def test_controls_beyond_their_range_are_recorded_as_they_were_executed() -> None:
    beyond, within = Action(-1.5, 2.0, -0.5), Action(-1.0, 1.0, 0.0)
    episode = buffer_of([{"action": beyond, "expert": beyond}] * 2).episode(source="s", driver="d", meta={})
    assert (episode.steering[0], episode.throttle[0], episode.brake[0]) == (-1, 1, 0)
    assert content_problem(episode) is None, "a recording that was just made stands its own check"
    assert episode.expert_steering is not None and episode.expert_steering[0] == -1
    assert episode.expert_pedal is None, "the very pedals that were driven"
    taught = buffer_of([{"action": within, "expert": Action(1.5, -1.0, 3.0)}]).episode(source="s", driver="d", meta={})
    assert taught.expert_pedal is not None and taught.expert_pedal.tolist() == [-1]
    assert taught.expert_steering is not None and taught.expert_steering.tolist() == [1]


def test_when_a_frame_was_taken_is_kept_where_the_camera_says_so() -> None:
    episode = buffer_of([{"frame_t_s": 0.0}, {"frame_t_s": None}, {"frame_t_s": 1 / 3}]).episode(
        source="s", driver="d", meta={}
    )
    assert episode.frame_t_s is not None
    np.testing.assert_array_equal(episode.frame_t_s, [0.0, np.nan, 1 / 3])
    assert buffer_of([{}, {}]).episode(source="s", driver="d", meta={}).frame_t_s is None


def test_what_was_decided_between_frames_is_kept_and_replayed() -> None:
    episode = buffer_of([{}, {"between_frames": True}, {}]).episode(source="carracing", driver="d", meta={})
    episode = from_parquet(to_parquet(episode))
    assert [bool(tick.between_frames) for tick in recorded_ticks(episode)] == [False, True, False]
    assert buffer_of([{}, {}]).episode(source="s", driver="d", meta={}).between_frames is None


def test_a_continuous_experts_pedals_are_kept_where_they_are_others_than_those_that_were_driven() -> None:
    driven, same, other = Action(0.1, 0.5, 0.0), Action(0.3, 0.5, 0.0), Action(0.3, 0.0, 0.25)
    for expert, pedal in ((same, None), (other, [-0.25, -0.25])):
        episode = buffer_of([{"action": driven, "expert": expert}] * 2).episode(source="", driver="", meta={})
        assert (
            episode.expert_steering is not None and episode.expert_steering.tolist() == np.float32([0.3, 0.3]).tolist()
        )
        assert (None if episode.expert_pedal is None else episode.expert_pedal.tolist()) == pedal
    episode = buffer_of([{"action": driven, "expert": same}], executed_action).episode(source="", driver="", meta={})
    assert episode.expert_steering is None, "who is learnt from has no label beside what he did"
    mixed = buffer_of([{"action": driven, "expert": same}, {"action": driven, "expert": None}])
    assert mixed.episode(source="", driver="", meta={}).expert_steering is None


def test_frames_are_encoded_in_batches_and_the_rest_at_the_end() -> None:
    counts: list[int] = []
    buffer = buffer_of([{}] * 5, batch=2, on_frames=counts.append)
    assert counts == [2, 2] and len(buffer) == 5
    assert len(buffer.episode(source="", driver="", meta={}).frames) == 5 and counts == [2, 2, 1]
    counts.clear()
    buffer_of([{}, {"done": True, "events": ("off road", "ended")}], batch=9, on_frames=counts.append)
    assert counts == [2]


def test_what_a_policy_would_have_done_beside_a_person_is_kept_column_by_column() -> None:
    ticks = [{"action": GAS, "policy": LEFT}, {"action": GAS, "policy": None}]
    meta = buffer_of(ticks).episode(source="", driver="", meta={}).meta
    assert meta["policy"] == {
        "choice": [2, None], "steering": [-0.5, None], "throttle": [0.0, None], "brake": [0.0, None],
    }  # fmt: skip
    assert "policy" not in buffer_of([{"policy": None}]).episode(source="", driver="", meta={}).meta


def test_a_frame_that_came_as_a_jpeg_is_kept_as_it_came_unless_a_camera_has_changed_it() -> None:
    from nacdrive.datasets.images import encode_jpeg

    came = encode_jpeg(np.zeros((96, 96, 3), np.uint8))
    kept = buffer_of([{"info": {"jpeg": came}}, {"info": {"jpeg": came, "clean_frame": 0}}])
    first, second = kept.episode(source="", driver="", meta={}).frames
    assert first == came and second != came
    sides = buffer_of([{"info": {"cameras": {"left": came}}}]).episode(source="", driver="", meta={})
    assert dict(sides.side_frames) == {"left": [came]}
