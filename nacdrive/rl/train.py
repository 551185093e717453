"""Train a PPO expert: stable-baselines3's PPO, with a memory or without, over the process pool, with exact resume."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import TensorBoardOutputFormat, configure

from nacdrive.common.errors import UserError
from nacdrive.common.files import atomic_path, open_log, result_folder, write_text
from nacdrive.common.runs import RUN, check_resumable, seed_everything
from nacdrive.common.statistics import summary
from nacdrive.common.tensor_file import read_tensor_file, write_tensor_file
from nacdrive.drivers.ppo import PpoExpert
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.carracing.env import make_carracing
from nacdrive.envs.seeds import EXPERT_VALIDATION
from nacdrive.models.agents.memory import MemorySpec
from nacdrive.models.agents.network import CARRACING, PolicyNet, actor_tensors, load_policy, save_policy, sb3_name
from nacdrive.rl.config import PpoConfig
from nacdrive.rl.recurrent_buffer import History
from nacdrive.rl.recurrent_ppo import RecurrentPPO
from nacdrive.rl.sb3 import ABOUT, VisionExtractor
from nacdrive.rl.training_env import action_space, make_driving_env
from nacdrive.rl.vec_env import CONTINUOUS, DISCRETE, ParallelVecEnv
from nacdrive.rollout.rollout import rollout
from nacdrive.training.log import BOARD, note_board, read_rows
from nacdrive.viz.figures import draw_curve

CHECKPOINT, LOG, BEST, LAST, SB3 = "last.ckpt", "log.jsonl", "best.pt", "last.pt", "best.zip"
CURVE = "curve.png"
KIND, VERSION = "nacdrive ppo checkpoint", 1
FREE_TO_CHANGE = ("device", "workers", "ray", "checkpoint_every_s", "minutes")
"""Options that a resumed run may have changed: where it runs, and how often it reports."""
SAME = ("n_steps", "batch_size", "gamma", "gae_lambda", "clip_range", "vf_coef", "max_grad_norm", "target_kl")
"""Options that are arguments of stable-baselines3's PPO under the same names."""


@dataclass(frozen=True)
class Progress:
    """State of a training, for whoever shows it."""

    decisions: int
    frames_per_s: float
    mean_return: float
    seconds_left: float
    evaluation: dict[str, Any] | None = None


def train(
    config: PpoConfig,
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    ray: str | None = None,
    show: Callable[[Progress], None] = lambda progress: None,
) -> Path:
    """Train into the folder ``out``; returns the path of the best policy by validation return.

    With ``resume`` the run continues from its last checkpoint with the same numbers as if it had never stopped (same
    machine, same number of threads; tested). The workers that drive run on the Ray cluster at ``ray`` where one is
    given; the network learns here. Ctrl-C writes no checkpoint of the interrupted update.
    """
    agent = Agent.of(config)
    # What cannot be built is refused before a folder is made or deleted.
    _ = agent.net()
    # A run that was stopped before its first checkpoint begins anew.
    started = resume and (out / RUN).is_file() and not (out / CHECKPOINT).exists()
    state = read_checkpoint(out / CHECKPOINT) if resume and not started else None
    out = result_folder(out, resume=resume, overwrite=overwrite)
    check_resumable(out, config, FREE_TO_CHANGE)
    if state is None:
        (out / LOG).unlink(missing_ok=True)
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    seed_everything(config.seed)
    options: dict[str, Any] = {"env": config.env, "reward_scale": config.reward_scale}
    if config.shaped:
        options = {"continuous": agent.continuous}
    workers = config.processes(config.n_envs)
    laps = ParallelVecEnv(config.n_envs, workers, config.seed, agent.actions, ray=ray, repeat=agent.repeat, **options)
    try:
        model = build(config, laps, agent.memory)
        model.set_logger(configure(str(out / BOARD), []))
        model.logger.output_formats.append(TensorBoardOutputFormat(str(out / BOARD)))
        note_board(out)
        keeper = TrainingCallback(config, agent, laps, out, show)
        if state is not None:
            restore(model, laps, state)
            keeper.resume(state)
        left = config.timesteps - model.num_timesteps
        if left > 0:
            with suppress(TimeIsUpError):
                model.learn(left, callback=keeper, reset_num_timesteps=state is None)
        save_sb3(out / SB3, model, out / BEST, agent)
        if any(line["return"] is not None for line in read_rows(out / LOG)):
            draw_curve(out / LOG, out / CURVE, agent.env)
    finally:
        laps.close()
    return out / BEST


@dataclass(frozen=True)
class Agent:
    """What a config asks for, as far as its environment has to be looked at to know it."""

    env: str
    """What files of the agent say as its environment."""
    actions: spaces.Space[Any]
    """What it chooses from."""
    repeat: int
    """Frames for which its actions are held."""
    memory: MemorySpec | None
    """What it remembers with."""

    @classmethod
    def of(cls, config: PpoConfig) -> Agent:
        """The agent of ``config``; ``UserError`` if its environment cannot be made."""
        assert config.repeat is not None
        spec = config.spec
        if config.shaped:
            assert spec.frames_per_second is not None
            actions: spaces.Space[Any] = CONTINUOUS if config.actions == "continuous" else DISCRETE
            name, step_s = CARRACING, config.repeat / spec.frames_per_second
        else:
            env = make_driving_env(spec, config.repeat)
            actions, name, step_s = action_space(env), config.env, env.step_s
            env.close()
        return cls(name, actions, config.repeat, config.memory_spec(step_s))

    @property
    def continuous(self) -> bool:
        return isinstance(self.actions, spaces.Box)

    @property
    def outputs(self) -> int:
        return int(spaces.flatdim(self.actions))

    def net(self) -> PolicyNet:
        """Its network, not trained; draws no random numbers that training would miss."""
        # Whether a checkpoint is due must not change the random numbers.
        with torch.random.fork_rng(devices=[]):
            return PolicyNet(self.outputs, self.memory)

    def about(self) -> dict[str, Any]:
        return {
            "env": self.env,
            "actions": "continuous" if self.continuous else "discrete",
            "repeat": self.repeat,
            **({"outputs": self.outputs} if self.env != CARRACING else {}),
            **({} if self.memory is None else {"memory": asdict(self.memory)}),
        }


class TimeIsUpError(Exception):
    """The minutes of the training are over; raised between two updates."""


def build(config: PpoConfig, laps: ParallelVecEnv, memory: MemorySpec | None = None) -> PPO:
    """stable-baselines3's PPO with nacdrive's network, and with ``memory`` where it is given."""
    remembering: dict[str, Any] = {} if memory is None else {"memory": asdict(memory)}
    kind: Callable[..., PPO] = PPO if memory is None else partial(RecurrentPPO, sequence_length=config.sequence_length)
    model: PPO = kind(
        "CnnPolicy",
        laps,
        **{name: getattr(config, name) for name in SAME},
        learning_rate=config.lr_at,
        n_epochs=config.epochs,
        ent_coef=config.ent_coef[0],
        seed=None,
        device=config.device,
        policy_kwargs={"features_extractor_class": VisionExtractor, "net_arch": [], **remembering},
    )
    # After the orthogonal initialisation, which needs contiguous weights; a third faster on the CPU.
    model.policy.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def save_sb3(path: Path, model: PPO, policy: Path, agent: Agent) -> None:
    """Write ``model`` with the exported ``policy`` as its actor, so that the zip acts as what is shipped does."""
    net, about = load_policy(policy)
    tensors = model.policy.state_dict()
    tensors |= {sb3_name(name): value for name, value in net.state_dict().items()}
    model.policy.load_state_dict(tensors)
    model.num_timesteps = about["decisions"]
    setattr(model, ABOUT, agent.about())
    with atomic_path(path) as partial, partial.open("wb") as file:
        model.save(file)


def write_checkpoint(
    path: Path, model: PPO, laps: ParallelVecEnv, average: dict[str, torch.Tensor], seconds: float
) -> None:
    """Write the run's whole state between two updates, atomically: a full disk leaves the previous one in place."""
    numpy_state: Any = np.random.get_state(legacy=True)
    state = {
        "decisions": model.num_timesteps,
        "updates": model._n_updates,
        "seconds": seconds,
        "policy": model.policy.state_dict(),
        "optimiser": model.policy.optimizer.state_dict(),
        "average": average,
        "torch_rng": torch.get_rng_state(),
        "numpy_rng": (torch.from_numpy(numpy_state[1].astype(np.int64)), int(numpy_state[2])),
        "episode_starts": torch.from_numpy(np.asarray(model._last_episode_starts)),
        "episodes": [dict(episode) for episode in model.ep_info_buffer or ()],
        "laps": laps.state(),
    }
    if isinstance(model, RecurrentPPO):
        assert model._last_t is not None
        parts = {name: torch.from_numpy(value) for name, value in model.rollout_buffer.upcoming._asdict().items()}
        state["history"] = {**parts, "last_t": torch.from_numpy(model._last_t)}
    write_tensor_file(path, KIND, VERSION, state)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint; nothing in it is executed; ``UserError`` if it is missing, damaged or another kind of file."""
    if not path.is_file():
        raise UserError(f"{path} does not exist: there is no checkpoint to resume from; start without --resume.")
    return read_tensor_file(path, KIND, VERSION, advice="start anew with --overwrite")


def restore(model: PPO, laps: ParallelVecEnv, state: dict[str, Any]) -> None:
    """Continue exactly where ``state`` was written."""
    model.policy.load_state_dict(state["policy"])
    model.policy.optimizer.load_state_dict(state["optimiser"])
    model.num_timesteps = state["decisions"]
    model._n_updates = state["updates"]
    model._last_obs = laps.restore(state["laps"])
    model._last_episode_starts = state["episode_starts"].numpy()
    if isinstance(model, RecurrentPPO):
        kept = {name: value.numpy() for name, value in state["history"].items()}
        model._last_t = kept.pop("last_t")
        model.rollout_buffer.upcoming = History(**kept)
    key, position = state["numpy_rng"]
    np.random.set_state(("MT19937", key.numpy().astype(np.uint32), position, 0, 0.0))
    torch.set_rng_state(state["torch_rng"])


class TrainingCallback(BaseCallback):
    """Between two updates: schedules, averaged weights, log, evaluation, checkpoint."""

    model: PPO

    def __init__(
        self, config: PpoConfig, agent: Agent, laps: ParallelVecEnv, out: Path, show: Callable[[Progress], None]
    ) -> None:
        super().__init__()
        self.config, self.agent, self.laps, self.out, self.show = config, agent, laps, out, show
        self.average: dict[str, torch.Tensor] = {}
        self.best = -math.inf
        self.earlier_s = 0.0
        self.fresh = True

    def resume(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` holds besides the model; log lines after the checkpoint are dropped."""
        self.average = state["average"]
        self.earlier_s = state["seconds"]
        self.fresh = False
        self.episodes = state["episodes"]
        kept = [line for line in read_rows(self.out / LOG) if line["decisions"] <= state["decisions"]]
        write_text(self.out / LOG, "".join(json.dumps(line) + "\n" for line in kept))
        self.best = max((line["eval"]["mean"] for line in kept if "eval" in line), default=-math.inf)

    def _on_training_start(self) -> None:
        self.started = self.saved = self.reported = time.monotonic()
        self.reported_at = self.num_timesteps
        if not self.fresh:
            self.model.ep_info_buffer.extend(self.episodes)  # type: ignore[union-attr]
        self.laps.shape(self.config.shaping(self.done))

    @property
    def actor(self) -> dict[str, torch.Tensor]:
        return actor_tensors(self.model.policy.state_dict())

    @property
    def done(self) -> float:
        """Share of the training that lies behind."""
        return self.num_timesteps / self.config.timesteps

    @property
    def seconds(self) -> float:
        return self.earlier_s + time.monotonic() - self.started

    def _on_rollout_start(self) -> None:
        self.num_timesteps = self.model.num_timesteps
        if not self.average:
            self.average = {name: value.detach().clone() for name, value in self.actor.items()}
        elif self.fresh:
            over = self.config.minutes is not None and self.seconds >= 60 * self.config.minutes
            self._after_update(last=over)
            if over:
                raise TimeIsUpError
        self.fresh = True
        self.model.ent_coef = self.config.entropy_at(self.done)
        self.laps.shape(self.config.shaping(self.done))

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self.num_timesteps = self.model.num_timesteps
        self._after_update(last=True)

    def _after_update(self, last: bool = False) -> None:
        keep = self.config.ema_decay
        for name, value in self.actor.items():
            if value.is_floating_point():
                self.average[name].mul_(keep).add_(value, alpha=1 - keep)
        rollout = self.config.n_envs * self.config.n_steps
        due = self.num_timesteps // self.config.eval_every != (self.num_timesteps - rollout) // self.config.eval_every
        evaluation = self._evaluate() if due or last else None
        self._log(evaluation)
        first = not (self.out / CHECKPOINT).exists()
        if first or last or time.monotonic() - self.saved > self.config.checkpoint_every_s:
            write_checkpoint(self.out / CHECKPOINT, self.model, self.laps, self.average, self.seconds)
            save_policy(self.out / LAST, self.policy(), self._about(evaluation))
            self.saved = time.monotonic()

    def policy(self) -> PolicyNet:
        net = self.agent.net()
        net.load_state_dict({name: value.cpu() for name, value in self.average.items()})
        return net.eval()

    def _about(self, evaluation: dict[str, Any] | None) -> dict[str, Any]:
        progress = {"decisions": self.num_timesteps, "seed": self.config.seed, "validation": evaluation}
        return self.agent.about() | progress

    def _evaluate(self) -> dict[str, Any]:
        began = time.monotonic()
        policy, agent = self.policy(), self.agent
        expert = PpoExpert(policy, repeat=agent.repeat, env=agent.env, continuous=agent.continuous)
        if self.config.shaped:
            env: DrivingEnv = make_carracing(repeat=agent.repeat, continuous=agent.continuous)
        else:
            env = make_driving_env(self.config.spec, agent.repeat)
        returns = []
        for seed in range(EXPERT_VALIDATION.start, EXPERT_VALIDATION.start + self.config.eval_episodes):
            *_, last = rollout(env, expert, seed)
            returns.append(last.episode_return)
        env.close()
        evaluation = {**summary(returns), "episodes": len(returns), "seconds": round(time.monotonic() - began, 1)}
        save_policy(self.out / "policies" / f"{self.num_timesteps:08d}.pt", policy, self._about(evaluation))
        if evaluation["mean"] > self.best:
            self.best = evaluation["mean"]
            save_policy(self.out / BEST, policy, self._about(evaluation))
        return evaluation

    def _log(self, evaluation: dict[str, Any] | None) -> None:
        now = time.monotonic()
        rate = (self.num_timesteps - self.reported_at) / max(now - self.reported, 1e-9) * self.agent.repeat
        self.reported, self.reported_at = now, self.num_timesteps
        episodes = list(self.model.ep_info_buffer or ())
        train_values = {k.split("/")[1]: v for k, v in self.model.logger.name_to_value.items() if k[:6] == "train/"}

        def mean(key: str) -> float | None:
            values = [episode[key] for episode in episodes if key in episode]
            return round(float(np.mean(values)), 4) if values else None

        line: dict[str, Any] = {
            "seconds": round(self.seconds, 1),
            "decisions": self.num_timesteps,
            "frames_per_s": round(rate, 1),
            "return": mean("r"),
            "length": mean("l"),
            "tiles": mean("tiles"),
            "finished": mean("finished"),
            "entropy_weight": round(float(self.model.ent_coef), 6),
            **{name: float(f"{float(value):.5g}") for name, value in train_values.items() if np.isfinite(value)},
        }
        if evaluation is not None:
            line["eval"] = evaluation
            self.logger.record("eval/mean_return", evaluation["mean"])
            self.logger.record("eval/min_return", evaluation["min"])
        with open_log(self.out / LOG) as file:
            file.write(json.dumps(line) + "\n")
        left = (self.config.timesteps - self.num_timesteps) * self.seconds / max(self.num_timesteps, 1)
        if self.config.minutes is not None:
            left = min(left, max(60 * self.config.minutes - self.seconds, 0.0))
        shown = line["return"] if line["return"] is not None else math.nan
        self.show(Progress(self.num_timesteps, rate, shown, left, evaluation))
