"""Those of others learn in ``make_vec("nacdrive/CarRacingFast-v0")``: stable-baselines3, and a loop as of CleanRL."""

from __future__ import annotations

import runpy
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecMonitor
from torch import nn

import nacdrive.envs  # noqa: F401

GymVecEnv = runpy.run_path(str(Path(__file__).parents[2] / "examples/gym_vec_env.py"))["GymVecEnv"]
FAST = "nacdrive/CarRacingFast-v0"
SAME = {"autoreset_mode": AutoresetMode.SAME_STEP}


def four(mode: str = "sync", vector_kwargs: dict[str, Any] | None = None, **options: Any) -> Any:
    return gymnasium.make_vec(
        FAST, num_envs=4, vectorization_mode=mode, vector_kwargs=vector_kwargs or {}, observation="grey", **options
    )


def test_stable_baselines_own_ppo_learns_in_it() -> None:
    envs = VecMonitor(GymVecEnv(four(vector_kwargs=SAME, max_frames=20)))
    learner = PPO("CnnPolicy", envs, n_steps=16, batch_size=32, n_epochs=1, seed=0, device="cpu")
    before = [parameter.clone() for parameter in learner.policy.parameters()]
    learner.learn(64)
    assert learner.num_timesteps == 64
    assert any((now != was).any() for now, was in zip(learner.policy.parameters(), before, strict=True))
    # 20 frames are 5 decisions: every environment has ended 3 times.
    assert len(learner.ep_info_buffer) == 12 and all(episode["l"] == 5 for episode in learner.ep_info_buffer)
    envs.close()


def test_the_adapter_tells_ends_as_stable_baselines_wants_them() -> None:
    ours = GymVecEnv(four(vector_kwargs=SAME, max_frames=12))
    ours.seed(5)
    first = ours.reset()
    assert first.shape == (4, 96, 96, 1) and (first[0] != first[1]).any()
    alone = gymnasium.make(FAST, max_frames=12, observation="grey")
    frame, _ = alone.reset(seed=5)
    np.testing.assert_array_equal(first[0], frame)
    for decision in range(3):
        frames, rewards, dones, infos = ours.step(np.full(4, 3))
        frame, reward, _, truncated, info = alone.step(3)
        assert dones.tolist() == [decision == 2] * 4 and rewards[0] == pytest.approx(reward)
        assert infos[0]["t_s"] == info["t_s"]
    assert truncated and all(info["TimeLimit.truncated"] for info in infos)
    np.testing.assert_array_equal(infos[0]["terminal_observation"], frame)
    assert (frames[0] != frame).any() and ours.reset_infos[0]["t_s"] == 0  # the next episode has begun
    assert ours.get_attr("step_s", [1]) == [pytest.approx(0.08)]
    ours.close()


def test_processes_with_shared_memory_give_the_same() -> None:
    made = partial(gymnasium.make_vec, "nacdrive/UdacityTrack-v0", num_envs=2, vector_kwargs=SAME, track="random")
    for make, action, steps in (
        (lambda mode: four(mode, SAME, max_frames=20), np.array([3, 1, 2, 3]), 7),
        (lambda mode: made(vectorization_mode=mode, slow_cars=3), np.full((2, 2), 0.6, dtype=np.float32), 3),
    ):
        rewards = []
        for mode in ("sync", "async"):
            envs = GymVecEnv(make(mode))
            envs.seed(3)
            frames = [envs.reset()]
            for _ in range(steps):
                frame, reward, *_ = envs.step(action)
                frames.append(frame)
            rewards.append((reward, np.stack(frames)))
            envs.close()
        np.testing.assert_array_equal(rewards[0][1], rewards[1][1])
        np.testing.assert_array_equal(rewards[0][0], rewards[1][0])


def test_another_autoreset_is_refused_in_one_sentence() -> None:
    envs = four()
    with pytest.raises(ValueError, match="give vector_kwargs=SAME_STEP"):
        GymVecEnv(envs)
    envs.close()


class Agent(nn.Module):
    """Actor and critic on grey frames."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, 8, 8, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 4, stride=4), nn.ReLU(), nn.Flatten(),
            nn.Linear(16 * 5 * 5, 64), nn.ReLU(),
        )  # fmt: skip
        self.actor, self.critic = nn.Linear(64, 5), nn.Linear(64, 1)

    def forward(self, frames: torch.Tensor) -> tuple[torch.distributions.Categorical, torch.Tensor]:
        hidden = self.trunk(frames.permute(0, 3, 1, 2).float() / 255)
        return torch.distributions.Categorical(logits=self.actor(hidden)), self.critic(hidden).squeeze(-1)


def cleanrl_ppo(envs: Any, updates: int, steps: int = 32, gamma: float = 0.99, lam: float = 0.95) -> dict[str, Any]:
    """PPO as CleanRL writes it, on Gymnasium's vector API with its usual NEXT_STEP autoreset.

    In the step after an episode's end the environment ignores the action and gives the first frame of the next one;
    that transition belongs to no episode and is masked out.
    """
    torch.manual_seed(0)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    frame, _ = envs.reset(seed=1)
    ended = np.zeros(envs.num_envs, dtype=bool)
    report: dict[str, Any] = {"episodes": 0, "masked": 0, "losses": [], "agent": agent}
    for _ in range(updates):
        frames, actions, logprobs, values, rewards, dones, masks = [], [], [], [], [], [], []
        for _ in range(steps):
            now = torch.as_tensor(np.array(frame))
            with torch.no_grad():
                policy, value = agent(now)
            action = policy.sample()
            following, reward, terminated, truncated, _ = envs.step(action.numpy())
            frames.append(now), actions.append(action), logprobs.append(policy.log_prob(action)), values.append(value)
            rewards.append(torch.as_tensor(reward, dtype=torch.float32))
            masks.append(torch.as_tensor(~ended))
            report["masked"] += int(ended.sum())
            ended = np.logical_or(terminated, truncated)
            dones.append(torch.as_tensor(ended, dtype=torch.float32))
            report["episodes"] += int(ended.sum())
            frame = following
        with torch.no_grad():
            following_value = agent(torch.as_tensor(np.array(frame)))[1]
        advantages, gathered = [], torch.zeros(envs.num_envs)
        for t in reversed(range(steps)):
            delta = rewards[t] + gamma * following_value * (1 - dones[t]) - values[t]
            gathered = delta + gamma * lam * (1 - dones[t]) * gathered
            # A masked step starts nothing and continues nothing.
            gathered = torch.where(masks[t], gathered, torch.zeros_like(gathered))
            advantages.insert(0, gathered)
            following_value = values[t]
        keep = torch.stack(masks).flatten()
        batch = [torch.stack(part).flatten(0, 1)[keep] for part in (frames, actions, logprobs, values, advantages)]
        seen, chosen, old, value, advantage = batch
        for rows in torch.randperm(len(seen)).split(64):
            policy, estimate = agent(seen[rows])
            ratio = (policy.log_prob(chosen[rows]) - old[rows]).exp()
            normed = (advantage[rows] - advantage[rows].mean()) / (advantage[rows].std() + 1e-8)
            actor = -torch.min(ratio * normed, ratio.clamp(0.8, 1.2) * normed).mean()
            critic = 0.5 * (estimate - (advantage + value)[rows]).pow(2).mean()
            loss = actor + 0.5 * critic - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
            report["losses"].append(loss.item())
    return report


@pytest.mark.nightly
def test_a_loop_as_cleanrl_writes_it_learns_in_it() -> None:
    envs = four(max_frames=60)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    report = cleanrl_ppo(envs, updates=3)
    # 60 frames are 15 decisions, and one more begins the next episode: 96 steps hold 6 ends in each environment.
    assert report["episodes"] == 4 * 6 and report["masked"] == 4 * 6
    assert np.isfinite(report["losses"]).all() and len(report["losses"]) >= 6
    torch.manual_seed(0)
    untrained = Agent()
    moved = [(a != b).any() for a, b in zip(report["agent"].parameters(), untrained.parameters(), strict=True)]
    assert all(moved)
    envs.close()
