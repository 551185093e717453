"""A trained policy of CarRacing or Udacity that learns on from what it is rewarded for, by PPO (Schulman et al., 2017).

    python tools/policy_reinforcement.py agents/carracing/nac_steady.pt --out runs/reinforced-0 --seed 0

Each iteration drives --episodes tracks with actions that are sampled (of five by the softmax of their scores over
--temperature, steering and pedal from a normal distribution), through cameras drawn by --cameras, and learns --epochs
times from them. The convolutions stay as they are. How good an action was is judged by a critic that reads car and road
from the simulator; it is not part of the policy. CarRacing's rewards are its own, or with --whole-lap what a lap
returns beside a usual one; on the Udacity track every metre from the middle of the road costs
(``tools/sampled_drives.py``). Beside ``policy-N.pt``, every ten iterations, lie the options (``run.json``),
``metrics.jsonl`` and what a stopped run goes on from: give the same command again. What came of it:
docs/results/carracing.md, docs/results/roads.md.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import track as progress
from torch import Tensor, nn
from torch.nn import functional as F

from nacdrive.common.errors import UserError
from nacdrive.common.files import atomic_path
from nacdrive.common.parallel import run_by_method
from nacdrive.common.progress import resumable
from nacdrive.common.runs import check_resumable, package_versions, plain
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.models import Policy, load_policy, save_policy
from nacdrive.models.driving import DrivingNetwork
from nacdrive.training.log import MetricsLog

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.sampled_drives import GAP_S, LAPS, TRAINING_DRIVES, Sampler, TrainingDrives, Trajectory, log_probs

FIRST_TRACK, TRACKS_PER_SEED = 3_700_000, 20_000
"""Of those to learn from (``nacdrive.envs.seeds``), in the part that DAgger of seeds 8 to 19 would drive."""
SEEDS = 14
"""So many fit below the validation tracks."""
PRELOADED = ("nacdrive.rollout.drive", "nacdrive.models")
"""By processes that drive."""
GAE_LAMBDA = 0.95
"""Discount of the advantages' sum (Schulman et al., 2016)."""
CLIP, MOST_KL, MOST_NORM = 0.15, 0.03, 0.5
"""Of the probability ratio, of an epoch (the iteration ends where the policy has gone farther), of the gradient."""
CHUNK, BATCH = 16, 32
"""Decisions of a chunk of a drive, each with the window of its first before it; chunks of a minibatch."""
CRITIC_EPOCHS, FIRST_CRITIC_EPOCHS, CRITIC_BATCH, CRITIC_RATE = 6, 20, 512, 1e-3
"""Of the critic, in every iteration and in the first one."""
AVERAGE = 0.9
"""Of the weights over the iterations, which are what is kept."""


def advantages(drive: Trajectory, values: NDArray[np.float32], gamma: float) -> NDArray[np.float32]:
    """[N]: how much better each decision turned out than the critic's ``values`` [N] had it (generalized advantage
    estimation, Schulman et al., 2016), discounted by the time that passed; behind the last there is nothing to come.
    """
    discount = gamma ** (np.diff(drive.made_s) / GAP_S)
    delta = np.array(drive.rewards) + discount * np.append(values[1:], 0.0) - values
    result, rest = np.zeros(len(values), np.float32), 0.0
    for k in reversed(range(len(values))):
        result[k] = rest = delta[k] + discount[k] * GAE_LAMBDA * rest
    return result


@dataclass
class Chunks:
    """Chunks of drives, [P, window - 1 + CHUNK] frames and [P, CHUNK] decisions."""

    features: Tensor
    t: Tensor
    padding: Tensor
    actions: Tensor
    log_probs: Tensor
    advantages: Tensor
    counts: Tensor
    """1 where a decision was carried out, 0 where not, and behind a drive's end."""

    def __getitem__(self, which: Tensor) -> Chunks:
        return Chunks(*(value[which] for value in vars(self).values()))


def cut(drives: Sequence[tuple[Trajectory, NDArray[np.float32]]], window: int) -> Chunks:
    """Chunks of ``drives``, each with the advantages of its decisions."""
    before, rows = window - 1, list[tuple[Tensor, ...]]()
    for drive, advantage in drives:
        columns = (drive.features, drive.actions, drive.log_probs, drive.carried_out)
        features, actions, old, carried_out = (torch.from_numpy(np.array(column)) for column in columns)
        t, better = torch.tensor(drive.t), torch.from_numpy(advantage)
        for first in range(0, len(t), CHUNK):
            last, seen = min(len(t), first + CHUNK), max(0, first - before)
            ahead, behind = before - (first - seen), CHUNK - (last - first)
            padding = torch.tensor([True] * ahead + [False] * (last - seen) + [True] * behind)
            row = (
                F.pad(features[seen:last], (0, 0, ahead, behind)),
                torch.cat([t[seen].expand(ahead), t[seen:last], t[last - 1].expand(behind)]),
                padding,
                torch.cat([actions[first:last], actions[:1].expand(behind, *actions.shape[1:])]),
                *(F.pad(column[first:last].float(), (0, behind)) for column in (old, better, carried_out)),
            )
            rows.append(row)
    return Chunks(*(torch.stack(column) for column in zip(*rows, strict=True)))


def decide(network: DrivingNetwork, chunks: Chunks) -> Tensor:
    """[P, CHUNK, outputs]: what ``network`` makes of the decisions of ``chunks``."""
    features = chunks.features.float()
    if network.projection is not None:
        features = network.projection(features)
    return network.decide(features, chunks.t, chunks.padding)[:, -CHUNK:]


def policy_loss(
    network: DrivingNetwork, chunks: Chunks, temperature: float, std: tuple[float, ...]
) -> tuple[Tensor, float]:
    """The clipped surrogate, and an estimate of the KL divergence from the policy that drove."""
    log_ratio = log_probs(decide(network, chunks), chunks.actions, temperature, std) - chunks.log_probs
    ratio, count = log_ratio.exp(), chunks.counts.sum().clamp(min=1)
    gain = torch.minimum(ratio * chunks.advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * chunks.advantages)
    kl = ((ratio - 1 - log_ratio) * chunks.counts).sum() / count
    return -(gain * chunks.counts).sum() / count, float(kl.detach())


@dataclass(frozen=True)
class Options:
    """Of a run; what is not said here: ``--help``."""

    policy: Path
    out: Path
    iterations: int
    episodes: int
    epochs: int
    warm: int
    temperature: float
    learning_rate: float
    cameras: tuple[float, ...]
    seed: int
    workers: int
    whole_lap: bool

    def __post_init__(self) -> None:
        for name in ("iterations", "episodes", "epochs"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name} is {getattr(self, name)}: give 1 or more.")
        if self.workers < 0:
            raise UserError(f"--workers is {self.workers}: give 0 or more.")
        if not self.out.is_dir() and self.out.exists():
            raise UserError(f"{self.out} is a file: give --out the name of a folder.")
        if not self.temperature > 0 or not self.learning_rate > 0:
            raise UserError("--temperature and --learning-rate have to be above 0.")
        if self.iterations * self.episodes > TRACKS_PER_SEED or not 0 <= self.seed < SEEDS:
            raise UserError(
                f"there are tracks for {TRACKS_PER_SEED} drives of each of the seeds 0 to {SEEDS - 1}: "
                "give fewer --iterations or --episodes, or another --seed."
            )

    @property
    def training(self) -> dict[str, TrainingDrives]:
        """What is driven, of each task that can be learnt so."""
        return LAPS if self.whole_lap else TRAINING_DRIVES

    def shares(self, training: TrainingDrives) -> dict[str, float]:
        """Of each kind of drive; ``UserError`` if they are none."""
        given = self.cameras or tuple(training.kinds.values())
        # Of the last kinds, those that are not given, or get nothing, are not driven.
        while given and given[-1] == 0:
            given = given[:-1]
        if not 0 < len(given) <= len(training.kinds) or min(given) < 0 or not abs(sum(given) - 1) <= 1e-6:
            names = " | ".join(training.kinds)
            raise UserError(
                f"--cameras are shares of {names}: give up to {len(training.kinds)} numbers from 0 whose sum is 1."
            )
        return dict(zip(training.kinds, given, strict=False))

    def jobs(self, iteration: int, training: TrainingDrives) -> list[tuple[int, str, CameraNoise]]:
        """Seed, kind and camera of each drive of an iteration, by its number and the run's seed alone."""
        rng, jobs = np.random.default_rng([self.seed, iteration]), list[tuple[int, str, CameraNoise]]()
        shares = self.shares(training)
        for k in range(self.episodes):
            kind = str(rng.choice(list(shares), p=list(shares.values())))
            track = FIRST_TRACK + self.seed * TRACKS_PER_SEED + iteration * self.episodes + k
            jobs.append((track, kind, training.camera(kind, rng)))
        return jobs


class Learner:
    """What changes from one iteration to the next, and what that needs to go on."""

    def __init__(self, network: DrivingNetwork, options: Options) -> None:
        torch.manual_seed(options.seed)
        self.network, self.options, self.iteration = network, options, 0
        self.training = options.training[network.config.task]
        self.random = torch.Generator().manual_seed(options.seed)
        self.average = copy.deepcopy(network)
        network.vision.requires_grad_(False)
        self.learns = [p for p in network.parameters() if p.requires_grad]
        hidden = [nn.Linear(self.training.states, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh()]
        self.critic = nn.Sequential(*hidden, nn.Linear(128, 1))
        self.optimizer = torch.optim.Adam(self.learns, lr=options.learning_rate)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=CRITIC_RATE)

    @torch.no_grad()
    def values(self, drive: Trajectory) -> NDArray[np.float32]:
        values: NDArray[np.float32] = self.critic(torch.from_numpy(np.stack(drive.states)))[:, 0].numpy()
        return values * self.training.return_scale

    def learn(self, drives: Sequence[Trajectory]) -> float:
        """Learn from an iteration's ``drives``, in the first few the critic alone; the KL divergence of the last epoch.

        The rate of learning falls to nothing over the iterations.
        """
        options = self.options
        values = [self.values(drive) for drive in drives]
        better = [advantages(*one, self.training.gamma) for one in zip(drives, values, strict=True)]
        self._learn_values(drives, [value + one for value, one in zip(values, better, strict=True)])
        counted = np.concatenate([a[np.array(drive.carried_out)] for drive, a in zip(drives, better, strict=True)])
        scaled = [(one - counted.mean()) / (counted.std() + 1e-6) for one in better]
        for group in self.optimizer.param_groups:
            group["lr"] = options.learning_rate * (1 - self.iteration / options.iterations)
        chunks, kl = cut(list(zip(drives, scaled, strict=True)), self.network.config.window), 0.0
        for _ in range(options.epochs if self.iteration >= options.warm else 0):
            kl = self._learn_actions(chunks)
            if kl > MOST_KL:
                break
        with torch.no_grad():
            for kept, new in zip(self.average.parameters(), self.network.parameters(), strict=True):
                kept.lerp_(new, 1 - AVERAGE)
        self.iteration += 1
        return kl

    def _learn_values(self, drives: Sequence[Trajectory], returns: Sequence[NDArray[np.float32]]) -> None:
        states = torch.from_numpy(np.concatenate([np.stack(drive.states) for drive in drives]))
        targets = torch.from_numpy(np.concatenate(returns)) / self.training.return_scale
        for _ in range(CRITIC_EPOCHS if self.iteration else FIRST_CRITIC_EPOCHS):
            for some in torch.randperm(len(states), generator=self.random).split(CRITIC_BATCH):
                self.critic_optimizer.zero_grad()
                F.smooth_l1_loss(self.critic(states[some])[:, 0], targets[some]).backward()
                self.critic_optimizer.step()

    def _learn_actions(self, chunks: Chunks) -> float:
        """One epoch; the mean KL divergence of its minibatches."""
        gone = []
        for some in torch.randperm(len(chunks.t), generator=self.random).split(BATCH):
            loss, kl = policy_loss(self.network, chunks[some], self.options.temperature, self.training.action_std)
            self.optimizer.zero_grad()
            loss.backward()
            # A step that is no number would be the policy's end.
            if nn.utils.clip_grad_norm_(self.learns, MOST_NORM).isfinite():
                self.optimizer.step()
            gone.append(kl)
        return float(np.mean(gone))

    def parts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("network", "average", "critic", "optimizer", "critic_optimizer")}

    def save(self, path: Path) -> None:
        state = {name: part.state_dict() for name, part in self.parts().items()}
        with atomic_path(path) as target:
            torch.save({**state, "iteration": self.iteration, "random": self.random.get_state()}, target)

    def load(self, path: Path) -> None:
        state = torch.load(path, weights_only=True)
        for name, part in self.parts().items():
            part.load_state_dict(state[name])
        self.iteration = state["iteration"]
        self.random.set_state(state["random"])


def iterations(options: Options, learner: Learner) -> Iterator[dict[str, Any]]:
    """Drive and learn until all are done; what ``metrics.jsonl`` says of each."""
    for iteration in range(learner.iteration, options.iterations):
        began = time.perf_counter()
        # Arrays: a tensor is not sent to several processes at a time.
        weights = {name: value.numpy().copy() for name, value in learner.network.state_dict().items()}
        sampler = options.policy, weights, options.temperature, options.seed, learner.training
        done = run_by_method(
            Sampler,
            sampler,
            "drive",
            options.jobs(iteration, learner.training),
            workers=options.workers,
            preload=PRELOADED,
        )
        drives = [drive for _, drive in sorted(done, key=lambda one: one[0][0])]
        kl = learner.learn(drives)
        kinds = [kind for kind in learner.training.kinds if any(drive.kind == kind for drive in drives)]
        by_kind = {kind: [drive.episode_return for drive in drives if drive.kind == kind] for kind in kinds}
        yield {
            "round": iteration, "epoch": 0, "decisions": sum(len(drive.t) for drive in drives), "kl": round(kl, 5),
            "returns": {kind: [round(float(np.mean(x)), 1), len(x)] for kind, x in by_kind.items()},
            "seconds": round(time.perf_counter() - began, 1),
        }  # fmt: skip


def reinforce(options: Options) -> None:
    """The whole run; ``UserError`` for a policy of another task, or a folder begun with other options."""
    policy, state = load_policy(options.policy), options.out / "last.ckpt"
    if policy.config.task not in options.training:
        raise UserError(f"{options.policy} is of {policy.config.task}: give one of {' or '.join(options.training)}.")
    options = replace(options, cameras=tuple(options.shares(options.training[policy.config.task]).values()))
    learner = Learner(policy.network, options)
    options.out.mkdir(parents=True, exist_ok=True)
    check_resumable(options.out, options, ("out", "workers"))
    if state.exists():
        learner.load(state)
    log = MetricsLog(options.out, learner.iteration, 0)
    about = {**plain(options), "policy": options.policy.name, "versions": package_versions()}
    del about["out"], about["workers"]
    if "reinforced" in policy.meta:
        about["before"] = policy.meta["reinforced"]
    for row in progress(iterations(options, learner), "iterations", total=options.iterations - learner.iteration):
        log.add(row)
        # Before the state: an end in between repeats the iteration, and leaves none out.
        if learner.iteration % 10 == 0 or learner.iteration == options.iterations:
            meta = policy.meta | {"reinforced": {**about, "iteration": learner.iteration}}
            kept = Policy(copy.deepcopy(learner.average), policy.name)
            save_policy(kept, options.out / f"policy-{learner.iteration}.pt", meta)
        learner.save(state)
    log.close()


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--iterations", type=int, default=80)
    parser.add_argument("--episodes", type=int, default=64, help="of an iteration")
    parser.add_argument("--epochs", type=int, default=4, help="over an iteration's decisions")
    parser.add_argument("--warm", type=int, default=3, help="iterations in which the critic alone learns")
    parser.add_argument(
        "--temperature", type=float, default=0.5, help="of the softmax that five actions are sampled by"
    )
    parser.add_argument("--learning-rate", type=float, default=3e-4, help="at first: it falls to 0")
    usual = (
        f"{name}: {' | '.join(f'{kind} {share:g}' for kind, share in training.kinds.items())}"
        for name, training in TRAINING_DRIVES.items()
    )
    shares = f"shares of the kinds of drives; if not given, {'; '.join(usual)}"
    parser.add_argument("--cameras", type=float, nargs="+", default=(), help=shares)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2, help="processes that drive; 0: it is done here")
    lap = "CarRacing: reward what a whole lap returns; steering and pedal vary less, too"
    parser.add_argument("--whole-lap", action="store_true", help=lap)
    given = vars(parser.parse_args(words))
    try:
        options = Options(**{**given, "cameras": tuple(given["cameras"])})
        with resumable(lambda: f"the last iteration is kept in {options.out}", "the same command goes on"):
            reinforce(options)
    except UserError as error:
        parser.error(str(error))
    except KeyboardInterrupt as stopped:
        raise SystemExit(str(stopped)) from None


if __name__ == "__main__":
    main()
