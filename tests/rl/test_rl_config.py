"""What a training of an expert does where nobody says otherwise, and how it changes while it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from nacdrive.common.errors import UserError
from nacdrive.envs.seeds import EXPERT_TRAINING
from nacdrive.models.agents.cockpit import CockpitNet
from nacdrive.models.agents.view import View
from nacdrive.rl.config import ExpertImitateConfig, ExpertTrainConfig, ImitateConfig, PpoConfig, Shaping
from nacdrive.rl.imitate import BatchedExpert, Drives, Imitation, LabelledDrive
from nacdrive.rl.training_env import TrainingEnv, action_space, make_driving_env


def test_an_expert_is_trained_as_the_shipped_one_was_unless_told_otherwise() -> None:
    config = PpoConfig()
    assert (config.timesteps, config.n_envs, config.n_steps, config.batch_size) == (2_400_000, 16, 256, 256)
    assert (config.epochs, config.workers, config.repeat, config.actions) == (5, 2, 4, "discrete")
    assert (config.gamma, config.gae_lambda, config.clip_range, config.target_kl) == (0.99, 0.95, 0.2, 0.04)
    assert (config.vf_coef, config.max_grad_norm, config.ent_coef) == (0.5, 0.5, (0.01, 0.001))
    assert (config.learning_rate, config.ema_decay, config.reward_scale) == ((3e-4, 6e-6), 0.95, 1)
    assert (config.eval_every, config.eval_episodes, config.checkpoint_every_s) == (204_800, 10, 120)
    assert (config.model, config.memory_window, config.memory_width, config.memory_heads) == ("none", 16, 64, 4)
    assert (config.sequence_length, config.memory_options, config.late_from) == (32, "{}", 0.45)
    assert config.early == Shaping(0.8, 5.0, 0.0, 62.0, 25) and config.late == Shaping(0.8, 5.0, 0.02, 62.0, 40)
    assert config.shaped and config.memory_spec(0.08) is None
    assert ExpertTrainConfig(seed=3).folder == Path("runs/expert-seed3")
    assert ExpertTrainConfig(out=Path("x")).folder == Path("x")


def test_an_agent_is_taught_as_the_shipped_one_was_unless_told_otherwise() -> None:
    config = ImitateConfig()
    assert (config.expert, config.steering_noise, config.episodes, config.sequence_length) == (
        "racing-line",
        0.4,
        24,
        8,
    )
    assert (config.rounds, config.steps, config.last_steps, config.bad_starts, config.frames) == (8, 500, 800, 0, 4)
    assert (config.learning_rate, config.ema_decay, config.repeat, config.max_frames) == ((1e-3, 2e-5), 0.998, 2, 1000)
    assert (config.eval_every, config.eval_episodes, config.precision, config.channels) == (
        2, 30, "bfloat16", (32, 64, 64),
    )  # fmt: skip
    assert config.all_steps == 4800
    assert ExpertImitateConfig(seed=3).folder == Path("runs/imitate-seed3")


def test_rates_fall_from_the_first_to_the_second() -> None:
    config = PpoConfig(learning_rate=(1.0, 0.2), ent_coef=(0.5, 0.1))
    assert [config.lr_at(remaining) for remaining in (1, 0.5, 0, -0.1)] == pytest.approx([1, 0.6, 0.2, 0.2])
    assert [config.entropy_at(done) for done in (0, 0.5, 1, 1.1)] == pytest.approx([0.5, 0.3, 0.1, 0.1])
    assert [config.shaping(done) for done in (0, 0.44, 0.45, 1)] == [*[config.early] * 2, *[config.late] * 2]
    taught = ImitateConfig(rounds=2, steps=4, last_steps=3, learning_rate=(1.0, 0.2))
    # Half a cosine over eleven minibatches, and then no further.
    assert [taught.lr_at(step) for step in (0, 5, 10, 11)] == pytest.approx([1, 0.6, 0.2, 0.2])
    assert taught.lr_at(2) == pytest.approx(0.2 + 0.4 * (1 + np.cos(0.2 * np.pi)))
    assert replace(taught, rounds=1, steps=1, last_steps=0).lr_at(0) == 1


def test_a_memory_has_the_layers_own_options_over_its_form() -> None:
    spec = PpoConfig(model="lstm", memory_window=5, memory_width=8, memory_heads=2).memory_spec(0.08)
    assert spec is not None
    assert (spec.layer, spec.window, spec.width, spec.heads, spec.gap_s) == ("lstm", 5, 8, 2, 0.08)
    with pytest.raises(UserError, match="unknown model 'nac-2k'"):
        PpoConfig(model="nac-2k").memory_spec(0.08)  # the bench's alone
    given = PpoConfig(model="nac-steady", memory_options='{"topk": 3}').memory_spec(0.08)
    assert given is not None and given.options["topk"] == 3
    for options, words in (("{", "is no JSON"), ("[1]", "is no JSON object")):
        with pytest.raises(UserError, match=words):
            PpoConfig(model="lstm", memory_options=options)
    for more, words in (({"paper_form": True}, "--paper-form is for"), ({"memory_options": "[]"}, "-options is for")):
        with pytest.raises(UserError, match=words):
            PpoConfig(**more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"env": "udacity"}, "whose episodes begin when it wants"),
        ({"env": "gym:Pendulum-v1", "repeat": 3}, "--repeat is not for gym:Pendulum-v1"),
        ({"env": "udacity-track", "actions": "continuous"}, "--actions is for carracing"),
        ({"epochs": 0}, "--epochs is 0"),
    ],
)
def test_what_cannot_be_trained_is_refused(options: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        PpoConfig(**options)


def test_environments_side_by_side_take_the_tracks_in_turn() -> None:
    made: list[dict[str, Any]] = []
    spec: Any = SimpleNamespace(tracks=("lake", "mountain"), frames_per_second=25.0, make=made.append)
    for index in range(3):
        make_driving_env(spec, 3, index)
    assert made == [{"track": track, "repeat": 3} for track in ("lake", "mountain", "lake")]
    # Where there is but one track it has no name, and where there are no frames none can be held.
    make_driving_env(SimpleNamespace(tracks=("",), frames_per_second=None, make=made.append), 1)  # type: ignore[arg-type]
    assert made[-1] == {"track": None}


def test_an_agent_chooses_an_action_or_says_one_or_two_numbers() -> None:
    class Env:
        def __init__(self, actions: tuple[str, ...], numbers: int) -> None:
            self.actions, self.action_space = actions, spaces.Box(-1, 1, (numbers,))

    assert action_space(Env(("a", "b", "c"), 2)) == spaces.Discrete(3)  # type: ignore[arg-type]
    for numbers, width in ((1, 1), (2, 2), (3, 2)):
        assert action_space(Env((), numbers)) == spaces.Box(-1, 1, (width,), dtype=np.float32)  # type: ignore[arg-type]


# ---------------------------------------------------------------- episodes of the training


def test_an_episode_ends_at_a_thousand_frames_and_that_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nacdrive.rl.training_env.MAX_FRAMES", 6)
    lap = TrainingEnv(0, 0)
    lap.reset()
    *_, terminated, truncated, info = lap.step(0)
    assert not terminated and not truncated and info == {"t_s": 4 / 50}
    *_, terminated, truncated, info = lap.step(0)
    # Within a decision: only two more frames are driven.
    assert truncated and not terminated and info["t_s"] == 6 / 50 and info["episode"]["l"] == 6
    assert info["episode"]["finished"] == 0 and 0 <= info["episode"]["tiles"] < 1


def test_a_decision_without_a_new_tile_counts_towards_a_stall_and_a_new_tile_forgets_them() -> None:
    lap = TrainingEnv(0, 0)
    lap.reset()
    for _ in range(20):
        before = lap.env.tile_visited_count
        idle = lap.idle
        *_, terminated, _, _ = lap.step(3)
        assert not terminated
        assert lap.idle == (0 if lap.env.tile_visited_count > before else idle + 1)
    assert lap.env.tile_visited_count > 0


def test_tiles_are_missed_only_within_thirty_of_the_furthest_one() -> None:
    lap = TrainingEnv(0, 0)
    lap.reset()
    for tile in lap.env.road:
        tile.road_visited = False
    lap.furthest = 0
    lap.env.road[29].road_visited = True
    assert lap._missed() == 28 and lap.furthest == 29
    lap.env.road[59].road_visited = True
    # Another part of the road may lie beside this one: what is further ahead was not reached along it.
    assert lap._missed() == 0 and lap.furthest == 29


def test_what_is_missed_costs_as_much_as_the_shaping_says() -> None:
    rewards = []
    for cost in (0.0, 5.0):
        lap = TrainingEnv(0, 0)
        lap.shaping = Shaping(grass=0, missed_tile=cost)
        lap.reset()
        for tile in lap.env.road[1:10]:
            tile.road_visited = False
        lap.env.road[10].road_visited = True
        rewards.append(lap.step(0)[1])
    missed = (rewards[0] - rewards[1]) / 0.05
    assert missed == pytest.approx(round(missed), abs=1e-3) and 7 <= round(missed) <= 9


# ---------------------------------------------------------------- labelled drives


def test_pieces_of_a_drive_bring_their_past_and_end_with_the_drive() -> None:
    drives = Drives(12, View(frames=1, height=2, width=2))
    for length in (3, 9):
        rows = np.zeros((length, 2, 2), np.uint8), np.zeros((length, 2), np.float32), np.arange(float(length))
        drives.add(LabelledDrive(*rows, 0.0, False))
    assert drives.edges == [0, 3, 12] and drives.count == 12
    position, padding, trained = drives.pieces(np.random.default_rng(0), 500, 4, 3)
    seen = set()
    for row, pad, learnt in zip(position, padding, trained, strict=True):
        numbers, of_these = row[~pad].tolist(), row[learnt].tolist()
        drive = (0, 3) if numbers[0] < 3 else (3, 12)
        assert drive[0] <= numbers[0] and numbers[-1] < drive[1]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert 1 <= len(of_these) <= 4 and of_these == list(range(of_these[0], numbers[-1] + 1))
        # Two decisions before the first that is trained, where the drive has so many.
        assert numbers[0] == max(of_these[0] - 2, drive[0])
        seen.add((of_these[0], of_these[-1]))
    # A piece is shorter than four where its drive begins or ends, and only there.
    assert seen == {(0, 0), (0, 1), (0, 2), (1, 2), (2, 2)} | {
        (max(at, 3), min(at + 3, 11)) for at in range(0, 12)
    }  # fmt: skip


def test_no_two_rounds_and_no_two_seeds_have_a_track_in_common() -> None:
    seen: list[int] = []
    for seed in (0, 1, 49):
        training: Any = Imitation.__new__(Imitation)
        training.config = ImitateConfig(seed=seed, episodes=3)
        for training.round in range(3):
            seen += training.tracks()
    assert len(set(seen)) == 27 and min(seen) == EXPERT_TRAINING.start and max(seen) < EXPERT_TRAINING.stop
    assert seen[:9] == list(range(EXPERT_TRAINING.start, EXPERT_TRAINING.start + 9))
    training.config = ImitateConfig(seed=50, episodes=3)
    training.round = 0
    assert list(training.tracks()) == seen[:3]


def test_a_question_holds_a_copy_of_the_stack_and_the_seconds() -> None:
    asked: list[Any] = []

    def ask(question: Any) -> Any:
        asked.append(question)
        return np.array([0.25, -0.5], np.float32), None

    view = View(frames=2, height=42, width=48)
    driver = BatchedExpert(CockpitNet(view, channels=(2, 2, 2)), 2, ask)
    driver.reset()
    action = driver.act(np.full((96, 96, 3), 90, np.uint8), {"t_s": 1.5})
    assert (action.steering, action.throttle, action.brake) == (0.25, 0, 0.5)
    ((stack, seconds, state),) = asked
    assert stack.shape == view.shape and seconds == 1.5 and state is None
    driver.act(np.zeros((96, 96, 3), np.uint8), {"t_s": 1.54})
    assert stack.min() > 0 and asked[1][0].min() == 0, "an earlier question stays as it was"
