from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv

from nacdrive.common.errors import UserError
from nacdrive.layers.base import SequenceLayer
from nacdrive.layers.registry import names
from nacdrive.layers.rnn import GRULayer
from nacdrive.models.agents.memory import Memory, MemorySpec
from nacdrive.rl.config import PpoConfig
from nacdrive.rl.recurrent_buffer import Sequences
from nacdrive.rl.recurrent_ppo import RecurrentPPO
from tests.helpers.memory_tasks import Recall

SEED = 0


def recall(n_envs: int = 4, **options: Any) -> DummyVecEnv:
    envs = DummyVecEnv([lambda delay=4 + index: Recall(delay, **options) for index in range(n_envs)])
    envs.seed(SEED)
    return envs


def learner(layer: str, envs: DummyVecEnv, window: int = 5, **options: Any) -> RecurrentPPO:
    torch.manual_seed(SEED)
    np.random.seed(SEED)
    memory = {"layer": layer, "window": window, "width": 16, "heads": 2, "gap_s": 0.1}
    given: dict[str, Any] = {"n_steps": 24, "batch_size": 24, "n_epochs": 2, "learning_rate": 1e-3, **options}
    return RecurrentPPO("MlpPolicy", envs, policy_kwargs={"net_arch": [], "memory": memory}, **given)


def rolled_out(model: RecurrentPPO, rollouts: int = 2) -> RecurrentPPO:
    """Behind ``rollouts`` rollouts with an update between them, but none after the last."""
    steps = model.n_steps * model.n_envs
    model.learn(steps * (rollouts - 1))
    train, model.train = model.train, lambda: None  # type: ignore[method-assign]
    model.learn(steps, reset_num_timesteps=False)
    model.train = train  # type: ignore[method-assign]
    return model


def minibatches(model: RecurrentPPO, batch_size: int | None = 24) -> Iterator[Any]:
    for batch in model.rollout_buffer.get(batch_size):
        actions = batch.actions if model.action_space.shape else batch.actions.long().flatten()
        yield batch, model.policy.evaluate_actions(batch.observations, actions)  # type: ignore[arg-type]


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("layer", ["lstm", "nac-steady", "mha", "cfc", "s4"])
def test_before_an_update_the_probabilities_that_are_learnt_from_are_those_that_were_acted_by(
    layer: str, continuous: bool
) -> None:
    model = rolled_out(learner(layer, recall(continuous=continuous, uneven=True)))
    count = 0
    for batch, (values, log_probs, _) in minibatches(model):
        torch.testing.assert_close(
            (log_probs - batch.old_log_prob).exp(), torch.ones(len(log_probs)), rtol=0, atol=1e-4
        )
        torch.testing.assert_close(values.flatten(), batch.old_values, rtol=0, atol=1e-4)
        count += len(values)
    assert count == model.n_steps * model.n_envs
    # What is learnt from begins in the middle of episodes.
    assert model.rollout_buffer.history.seen.any()


@pytest.mark.parametrize("layer", ["gru", "nac-exact"])
def test_how_sequences_are_cut_changes_neither_outputs_nor_gradients(layer: str) -> None:
    model = rolled_out(learner(layer, recall(uneven=True)))
    buffer, found = model.rollout_buffer, []
    for length in (1, 3, 100):
        buffer.sequence_length = length
        model.policy.zero_grad()
        total = torch.zeros(())
        for batch, (values, log_probs, _) in minibatches(model, None):
            weights = batch.advantages
            total = total + (log_probs * weights).sum() + (values.flatten() * weights).sum()
        total.backward()
        found.append([total.detach(), *(p.grad.clone() for p in model.policy.parameters() if p.grad is not None)])
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)


def test_a_sequence_brings_no_more_of_its_past_than_its_episode_and_its_window() -> None:
    model = rolled_out(learner("lstm", recall(), window=4, sequence_length=3))
    buffer = model.rollout_buffer
    starts = buffer.episode_starts
    for batch in buffer.get(24):
        sequences = batch.observations
        assert isinstance(sequences, Sequences)
        for trained, padding, t in zip(sequences.trained, sequences.padding, sequences.t, strict=True):
            context = int(trained.nonzero()[0])
            assert context <= 3 and int(trained.sum()) <= 3
            # One episode alone: its clock never goes back.
            assert (t[~padding].diff() > 0).all()
            assert context == 3 or float(t[0]) == 0
    assert starts.sum() > 8


def test_minibatches_are_as_large_as_asked_but_for_a_sequence() -> None:
    longest = 5
    buffer = rolled_out(learner("lstm", recall(uneven=True), sequence_length=longest), 1).rollout_buffer
    for _ in range(20):
        for batch in buffer.get(24):
            assert abs(len(batch.advantages) - 24) <= longest


def test_a_memory_is_as_large_as_that_of_the_command_line_if_nobody_says() -> None:
    spec, config = MemorySpec("gru"), PpoConfig(model="gru")
    assert (spec.window, spec.width, spec.heads) == (config.memory_window, config.memory_width, config.memory_heads)
    assert (spec.width, spec.heads) == (64, 4)


def test_nothing_is_remembered_of_an_episode_that_has_ended() -> None:
    buffer = rolled_out(learner("lstm", recall(), window=4)).rollout_buffer
    count = buffer.n_envs
    buffer.remember(np.zeros(count, dtype=bool))
    assert (buffer.upcoming.seen > 0).all()
    buffer.remember(np.arange(count) == 0)
    assert buffer.upcoming.seen[0] == 0 and (buffer.upcoming.seen[1:] > 0).all()


def test_an_environment_forgets_where_its_episode_begins_and_the_others_do_not() -> None:
    policy = learner("nac-steady", recall(2)).policy.eval()
    obs = torch.randn(6, 2, 3)
    t = torch.arange(6).double().mul(0.1).unsqueeze(1).repeat(1, 2)
    with torch.no_grad():
        state, fresh = policy.init_state(2), policy.init_state(2)
        for i in range(6):
            starts = torch.tensor([i == 3, False])
            values, state = (
                policy.predict_values(obs[i], state, starts, t[i]),
                policy.forward(obs[i], state, starts, t=t[i])[3],
            )
            if i >= 3:
                alone = policy.predict_values(obs[i], fresh, torch.zeros(2), t[i])
                fresh = policy.forward(obs[i], fresh, torch.zeros(2), t=t[i])[3]
        assert state.seen.tolist() == [3, 5]
    torch.testing.assert_close(values[0], alone[0])
    assert (values[1] - alone[1]).abs() > 1e-4


def test_an_episode_that_is_cut_off_is_worth_what_memory_thinks_of_its_end() -> None:
    model = rolled_out(learner("lstm", recall(1, limit=3), window=8, gamma=0.5), rollouts=1)
    buffer, policy = model.rollout_buffer, model.policy
    worth = []
    # The cue of each episode, then blanks; its last picture is a fourth blank.
    for start in np.flatnonzero(buffer.episode_starts[:, 0])[:-1]:
        obs = [*buffer.observations[start : start + 3, 0], np.array([0, 0, 1], np.float32)]
        state = policy.init_state(1)
        with torch.no_grad():
            for i, seen in enumerate(obs):
                given = torch.tensor(seen)[None], state, torch.zeros(1)
                t = torch.tensor([0.1 * i])
                value, state = policy.predict_values(*given, t), policy.forward(*given, t=t)[3]
        worth.append(0.5 * float(value))
    ends = np.flatnonzero(buffer.episode_starts[:, 0])[1:] - 1
    np.testing.assert_allclose(buffer.rewards[ends, 0], worth, atol=1e-5)
    assert np.abs(worth).max() > 1e-3


def accuracy(model: Any) -> float:
    buffer = model.rollout_buffer
    return float(buffer.rewards.sum() / buffer.episode_starts.sum())


def learnt(layer: str) -> float:
    """Share of right answers after up to 13,000 steps."""
    torch.manual_seed(SEED)
    np.random.seed(SEED)
    envs = DummyVecEnv([Recall] * 8)
    envs.seed(SEED)
    options: dict[str, Any] = {"n_steps": 56, "batch_size": 112, "n_epochs": 6, "learning_rate": 3e-3, "gamma": 0.95}
    if layer == "none":
        model: Any = PPO("MlpPolicy", envs, policy_kwargs={"net_arch": []}, ent_coef=0.01, **options)
    else:
        memory = {"layer": layer, "window": 8, "width": 16, "heads": 2, "gap_s": 0.1}
        model = RecurrentPPO(
            "MlpPolicy", envs, policy_kwargs={"net_arch": [], "memory": memory}, ent_coef=0.01, **options
        )
    for _ in range(10):
        model.learn(448 * 3, reset_num_timesteps=False)
        if accuracy(model) > 0.95:
            break
    return accuracy(model)


@pytest.mark.nightly
def test_what_must_be_remembered_is_chance_without_a_memory() -> None:
    assert abs(learnt("none") - 0.5) < 0.25


@pytest.mark.nightly
@pytest.mark.parametrize("layer", ["lstm", "nac-steady", "mha"])
def test_what_must_be_remembered_is_learnt_with_a_memory(layer: str) -> None:
    assert learnt(layer) > 0.9


def test_predict_is_that_of_sb3_contrib_and_goes_through_sb3s_own_evaluation(tmp_path: Path) -> None:
    envs = recall(2)
    model = rolled_out(learner("gru", envs), rollouts=1)
    observation = envs.reset()
    actions, state = model.predict(observation, state=None, episode_start=np.ones(2, bool), deterministic=True)
    again, _ = model.predict(observation, state=state, episode_start=np.ones(2, bool), deterministic=True)
    np.testing.assert_array_equal(actions, again)
    mean, _ = evaluate_policy(model, envs, n_eval_episodes=4, warn=False)
    assert 0 <= mean <= 1
    model.save(tmp_path / "m.zip")
    loaded = RecurrentPPO.load(tmp_path / "m.zip", env=envs)
    same, _ = loaded.predict(observation, deterministic=True)
    np.testing.assert_array_equal(actions, same)
    loaded.learn(loaded.n_steps * 2)


@pytest.mark.parametrize("layer", names())
def test_every_registered_layer_remembers_the_same_in_a_rollout_in_a_drive_and_in_training(layer: str) -> None:
    torch.manual_seed(SEED)
    memory = Memory(MemorySpec(layer, window=4, width=16, heads=4, gap_s=0.1), features=6)
    x, t = torch.randn(2, 9, 6), (0.2 * torch.rand(2, 9, dtype=torch.float64)).cumsum(dim=1)
    with torch.no_grad():
        whole = memory(x, t, torch.zeros(2, 9, dtype=torch.bool))
        rollout, drive = memory.init_state(2), memory.layer.init_state(2)
        for i in range(9):
            one, rollout = memory.advance(x[:, i], t[:, i], torch.zeros(2), rollout)
            two, drive = memory.step(x[:, i], t[:, i], drive)
            torch.testing.assert_close(one, whole[:, i], rtol=1e-3, atol=1e-5)
            torch.testing.assert_close(two, whole[:, i], rtol=1e-3, atol=1e-5)


class BothWays(GRULayer):
    """Looks at later steps too, where there are any."""

    def forward(
        self, x: torch.Tensor, t: torch.Tensor | None = None, padding: torch.Tensor | None = None
    ) -> torch.Tensor:
        return super().forward(x - x.mean(dim=1, keepdim=True), t, padding)


class NoSteps(SequenceLayer):
    """Whole sequences alone."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.linear = torch.nn.Linear(self.in_features, self.d_model)

    def forward(
        self, x: torch.Tensor, t: torch.Tensor | None = None, padding: torch.Tensor | None = None
    ) -> torch.Tensor:
        return self.linear(x)  # type: ignore[no-any-return]

    def init_state(self, batch_size: int, window: int | None = None) -> Any:
        raise NotImplementedError("it has no steps")

    def step(self, x: torch.Tensor, t: torch.Tensor | None, state: Any) -> tuple[torch.Tensor, Any]:
        raise NotImplementedError("it has no steps")


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (MemorySpec(f"{__name__}:BothWays"), "cannot stream: decision by decision it gives other numbers"),
        (MemorySpec(f"{__name__}:NoSteps"), "it has no steps"),
        (MemorySpec("nac-stedy"), "did you mean 'nac-steady'"),
        (MemorySpec("mha", width=10, heads=4), "cannot be built: d_model 10 is not divisible by 4 heads"),
        (MemorySpec("lstm", options={"topk": 3}), "cannot be built"),
    ],
)
def test_a_layer_that_cannot_be_a_memory_is_refused_in_a_sentence(spec: MemorySpec, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        Memory(spec, features=6)
