from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import PPO

from nacdrive.cli.main import dispatch
from nacdrive.common.errors import UserError
from nacdrive.common.runs import seed_everything
from nacdrive.drivers import load_expert
from nacdrive.envs.carracing.env import make_carracing
from nacdrive.envs.registry import env_spec
from nacdrive.models.agents.memory import MemorySpec
from nacdrive.models.agents.network import FrameStack, PolicyNet, load_policy, save_policy
from nacdrive.rl.config import PpoConfig, Shaping
from nacdrive.rl.sb3 import VisionExtractor, export
from nacdrive.rl.train import BEST, CHECKPOINT, LOG, SB3, read_checkpoint, train
from nacdrive.rl.vec_env import ParallelVecEnv
from nacdrive.rollout.rollout import rollout
from tests.helpers.expert_cases import tiny
from tests.helpers.nightly import daily
from tests.rl.test_ppo_train import StopError, log_without_clock, stop_at

RECALL = "tests.helpers.memory_tasks:make_picture_recall"
STEERED = "tests.helpers.memory_tasks:make_steered_recall"


def small(**changes: Any) -> PpoConfig:
    """A training with a memory on CarRacing, of seconds."""
    given = {"timesteps": 192, "n_steps": 16, "batch_size": 32, "model": "nac-steady", "memory_window": 6}
    return tiny(**{**given, "memory_width": 16, "epochs": 2, **changes})


def on_pictures(**changes: Any) -> PpoConfig:
    """A training on pictures that tell a cue and ask for it later."""
    return small(**{"env": RECALL, "model": "lstm", "memory_window": 8, "timesteps": 256, "n_steps": 32, **changes})


def whole_episode(net: PolicyNet, stacks: np.ndarray, t: torch.Tensor) -> torch.Tensor:
    """Scores [T, outputs] of all decisions at once, [T, *view.shape] at ``t`` [T] seconds."""
    features = net.features(torch.from_numpy(stacks)).unsqueeze(0)
    return net.head(net.memory(features, t[None], torch.zeros(1, len(t), dtype=torch.bool)))[0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run on CarRacing with a memory."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(small(), folder)
    return folder


@pytest.mark.nightly
def test_training_without_a_memory_is_stable_baselines3s_own_ppo_bit_for_bit(tmp_path: Path) -> None:
    config = tiny(timesteps=256, n_steps=32, ent_coef=(0.01, 0.01), late=Shaping())
    train(config, tmp_path / "run")
    seed_everything(config.seed)
    laps = ParallelVecEnv(config.n_envs, 1, config.seed)
    kwargs = {"features_extractor_class": VisionExtractor, "net_arch": []}
    theirs = PPO(
        "CnnPolicy", laps, learning_rate=config.lr_at, n_steps=32, batch_size=64, n_epochs=5, clip_range=0.2,
        ent_coef=0.01, vf_coef=0.5, max_grad_norm=0.5, target_kl=0.04, policy_kwargs=kwargs,
    )  # fmt: skip
    theirs.policy.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    theirs.learn(config.timesteps)
    laps.close()
    ours = read_checkpoint(tmp_path / "run" / CHECKPOINT)["policy"]
    assert all(torch.equal(value, ours[name]) for name, value in theirs.policy.state_dict().items())


@pytest.mark.nightly
def test_a_resumed_run_with_a_memory_gives_the_same_numbers_as_an_uninterrupted_one(
    whole: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "other"
    with pytest.raises(StopError):
        train(small(), folder, show=stop_at(128))
    assert read_checkpoint(folder / CHECKPOINT)["decisions"] == 64
    train(small(), folder, resume=True)
    ours, theirs = read_checkpoint(folder / CHECKPOINT), read_checkpoint(whole / CHECKPOINT)
    for part in ("policy", "average", "history"):
        assert all(torch.equal(value, theirs[part][name]) for name, value in ours[part].items())
    assert ours["laps"] == theirs["laps"] and ours["history"]["seen"].any()
    assert log_without_clock(folder) == log_without_clock(whole)


def test_the_agents_file_streams_as_it_was_trained(whole: Path) -> None:
    net, about = load_policy(whole / BEST)
    assert about["memory"]["layer"] == "nac-key" and about["memory"]["gap_s"] == pytest.approx(0.08)
    expert, stack, env = load_expert(whole / BEST), FrameStack(), make_carracing(renderer="fast", max_frames=60)
    ticks = list(rollout(env, expert, 1_000_000))
    stacks = np.stack([stack.push(tick.frame).copy() for tick in ticks])
    t = torch.tensor([[tick.t_s for tick in ticks]], dtype=torch.float64)
    with torch.no_grad():
        scores = whole_episode(net, stacks, t[0]).numpy()
    np.testing.assert_allclose([tick.action.logits for tick in ticks], scores, atol=1e-4)
    again = [tick.action.logits for tick in rollout(env, expert, 1_000_000)]
    np.testing.assert_array_equal(again, [tick.action.logits for tick in ticks])


def test_an_agent_with_a_memory_labels_no_frames_out_of_their_order(whole: Path) -> None:
    with pytest.raises(UserError, match="in their order"):
        load_expert(whole / BEST).logits(np.zeros((2, 4, 48, 48), np.uint8))


def test_the_zip_acts_as_the_agents_file_and_is_exported_to_it(whole: Path, tmp_path: Path) -> None:
    from nacdrive.rl.recurrent_ppo import RecurrentPPO

    model, (net, _) = RecurrentPPO.load(whole / SB3), load_policy(whole / BEST)
    stacks = np.random.default_rng(0).integers(0, 256, (9, 4, 48, 48), dtype=np.uint8)
    t = 0.08 * torch.arange(9, dtype=torch.float64)
    with torch.no_grad():
        ours = whole_episode(net, stacks, t).argmax(dim=1)
    state, theirs = None, []
    for i in range(9):
        action, state = model.predict(stacks[i], state, np.array([i == 0]), deterministic=True, t=t[i : i + 1].numpy())
        theirs.append(int(action))
    assert theirs == ours.tolist()
    again, about = load_policy(export(whole / SB3, tmp_path / "p.pt"))
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in again.state_dict().items())
    assert about["memory"]["layer"] == "nac-key" and about["repeat"] == 4


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model": "lstm"}, "--model nac-steady instead of lstm"),
        ({"memory_window": 7}, "--memory-window 6 instead of 7"),
    ],
)
def test_another_memory_is_refused_on_resume(whole: Path, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        train(small(**change), whole, resume=True)


@pytest.mark.parametrize("env", daily([RECALL, STEERED], [RECALL]))
def test_another_environment_trains_is_resumed_and_is_driven(env: str, tmp_path: Path) -> None:
    config = on_pictures(env=env, eval_episodes=2, timesteps=128, n_steps=16, workers=1)
    best = train(config, tmp_path / "one")
    with pytest.raises(StopError):
        train(config, tmp_path / "two", show=stop_at(128))
    train(config, tmp_path / "two", resume=True)
    one, two = (read_checkpoint(tmp_path / name / CHECKPOINT) for name in ("one", "two"))
    assert all(torch.equal(value, two["policy"][name]) for name, value in one["policy"].items())
    expert, driven = load_expert(best, discrete_only=False), env_spec(env).make()
    ticks = list(rollout(driven, expert, 1))
    assert len(ticks) == 7 and (ticks[0].action.choice is None) == (env == STEERED)
    with pytest.raises(UserError, match=r"trained on tests.helpers.*cannot drive carracing"):
        expert.reset(make_carracing())


@pytest.mark.nightly
def test_what_pictures_told_is_remembered_after_the_frames_are_gone(tmp_path: Path) -> None:
    """The whole road of 'expert train' on a task of memory: the cue has left the four frames when it is asked for."""
    config = on_pictures(
        timesteps=12_000, n_envs=8, n_steps=64, batch_size=128, epochs=4, learning_rate=(1e-3, 1e-3), seed=0, workers=1,
        gamma=0.9, eval_every=2_048, eval_episodes=10, reward_scale=1.0,
    )  # fmt: skip
    returns = []

    def show(progress: Any) -> None:
        if progress.evaluation is not None:
            returns.append(progress.evaluation["mean"])
            if returns[-1] == 1.0:
                raise StopError

    with pytest.raises(StopError):
        train(config, tmp_path / "run", show=show)
    assert returns[-1] == 1.0


@pytest.mark.nightly
def test_minutes_end_a_training_between_two_updates_and_it_can_go_on(tmp_path: Path) -> None:
    config = on_pictures(timesteps=10_000, minutes=1e-4, n_envs=2, workers=1)
    best = train(config, tmp_path / "run")
    first = read_checkpoint(tmp_path / "run" / CHECKPOINT)["decisions"]
    assert first == 64 and load_policy(best)[1]["decisions"] == 64
    # The minutes count over all resumptions, so one more update is all that it gets.
    train(config, tmp_path / "run", resume=True)
    assert read_checkpoint(tmp_path / "run" / CHECKPOINT)["decisions"] == 128
    assert [json.loads(line)["decisions"] for line in (tmp_path / "run" / LOG).read_text().splitlines()] == [64, 128]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"minutes": 0.0}, "--minutes is 0"),
        ({"model": "lstm", "memory_window": 1}, "--memory-window is 1"),
        ({"model": "lstm", "memory_window": 251, "env": "carracing"}, "has at most 250 decisions: give no more"),
        ({"model": "lstm", "memory_width": 0}, "--memory-width is 0"),
        ({"model": "lstm", "memory_options": "{"}, "--memory-options is no JSON"),
        ({"model": "lstm", "memory_options": "[1]"}, "no JSON object"),
        ({"memory_options": '{"topk": 8}'}, "--memory-options is for a memory"),
        ({"memory_window": 4}, "--memory-window is for a memory"),
        ({"paper_form": True}, "--paper-form is for a memory"),
        ({"env": "udacity"}, "nobody can train on udacity"),
        ({"env": RECALL, "actions": "continuous"}, "--actions is for carracing"),
        ({"env": RECALL, "repeat": 3}, "--repeat is not for"),
        ({"reward_scale": float("nan")}, "--reward-scale is nan"),
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        tiny(**wrong)


def test_a_memory_that_cannot_be_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'nac-steady'"):
        train(small(model="nac-stedy"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_agent_of_other_actions_is_refused_by_the_environment(tmp_path: Path) -> None:
    about = {"env": RECALL, "actions": "discrete", "outputs": 3, "repeat": 1, "decisions": 1}
    memory = MemorySpec("lstm", window=4, width=8)
    save_policy(tmp_path / "p.pt", PolicyNet(3, memory), {**about, "memory": asdict(memory)})
    with pytest.raises(UserError, match="has 3 actions"):
        load_expert(tmp_path / "p.pt").reset(env_spec(RECALL).make())


def test_the_verbs_evaluate_record_and_drive_with_an_agent_that_has_a_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = MemorySpec("nac-steady", window=4, width=8, heads=2, gap_s=0.1)
    about = {"env": RECALL, "actions": "discrete", "outputs": 2, "repeat": 1, "decisions": 1}
    agent = tmp_path / "agent.pt"
    save_policy(agent, PolicyNet(2, memory), {**about, "memory": asdict(memory)})
    common = ["--env", RECALL, "--episodes", "2"]
    assert dispatch(["expert", "eval", "--expert", str(agent), *common]) in (None, 0)
    record = ["record", "--expert", str(agent), "--workers", "1", "--out", str(tmp_path / "recording"), *common]
    assert dispatch(record) in (None, 0)
    assert len(list((tmp_path / "recording").glob("**/*.parquet"))) == 2
    assert dispatch(["drive", "--driver", str(agent), "--headless", *common]) in (None, 0)
    assert "over 2 tracks" in capsys.readouterr().out
