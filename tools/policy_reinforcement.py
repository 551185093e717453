"""A trained policy of CarRacing that learns on from what it is rewarded for, by PPO (Schulman et al., 2017).

    python tools/policy_reinforcement.py agents/carracing/nac_steady.pt --out runs/reinforced-0 --seed 0

Each iteration drives --episodes tracks with actions that are sampled (of five by the softmax of their scores over
--temperature, steering and pedal from a normal distribution), through cameras drawn by --cameras, and learns --epochs
times from them. The convolutions stay as they are. How good an action was is judged by a critic that reads car and road
from the simulator; it is not part of the policy. Beside ``policy-N.pt``, every ten iterations, lie the options
(``run.json``), ``metrics.jsonl`` and what a stopped run goes on from: give the same command again. What came of it:
docs/results/carracing.md.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import track as progress
from torch import Tensor, nn
from torch.nn import functional as F

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.common.files import atomic_path
from nacdrive.common.parallel import run_by_method
from nacdrive.common.progress import resumable
from nacdrive.common.runs import check_resumable, package_versions, plain
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.models import Policy, load_policy, save_policy
from nacdrive.models.driving import DrivingNetwork
from nacdrive.rollout.dagger import begin_badly
from nacdrive.rollout.drive import Drive, LoadedDrive
from nacdrive.training.log import MetricsLog

FIRST_TRACK, TRACKS_PER_SEED = 3_700_000, 20_000
"""Of those to learn from (``nacdrive.envs.seeds``), in the part that DAgger of seeds 8 to 19 would drive."""
SEEDS = 14
"""So many fit below the validation tracks."""
PRELOADED = ("nacdrive.rollout.drive", "nacdrive.models")
"""By processes that drive."""
GAMMA, GAP_S, GAE_LAMBDA = 0.99, 0.08, 0.95
"""Discount of rewards for each usual gap between decisions; and of the advantages' sum (Schulman et al., 2016)."""
CLIP, MOST_KL, MOST_NORM = 0.15, 0.03, 0.5
"""Of the probability ratio, of an epoch (the iteration ends where the policy has gone farther), of the gradient."""
ACTION_STD = np.array([0.05, 0.15], np.float32)
"""Of steering and pedal, while they learn."""
CHUNK, BATCH = 16, 32
"""Decisions of a chunk of a drive, each with the window of its first before it; chunks of a minibatch."""
CRITIC_EPOCHS, FIRST_CRITIC_EPOCHS, CRITIC_BATCH, CRITIC_RATE, RETURN_SCALE = 6, 20, 512, 1e-3, 100.0
"""Of the critic, in every iteration and in the first one; its returns are divided by the last."""
AVERAGE = 0.9
"""Of the weights over the iterations, which are what is kept."""
FRAMES = 1000
"""Of a drive, at most."""
LOST_S, RECOVERY_S = 4.8, 8.0
"""A drive ends after so long without progress, in seconds because pictures may be rare; later after a bad start."""
CAMERAS = ("good", "5 to 20 Hz", "noise, late", "black", "dusk", "bad start")
MISSED_TILE = 20.0
"""Taken from the reward for the first tile that no wheel has touched: the lap will not end before the frames do."""
AHEAD = np.array([2, 4, 7, 10, 14, 19, 25, 32])
"""Tiles ahead whose direction the critic reads."""
STATES = 6 + 2 + len(AHEAD) + 7
"""What the critic reads: see ``SamplingPolicy.read_world``."""


@dataclass
class Trajectory:
    """A drive: of every decision what it was made from and what came of it."""

    features: list[NDArray[np.float16]] = field(default_factory=list)
    """Of the convolutions, before the projection."""
    t: list[float] = field(default_factory=list)
    """When the frame was taken, seconds."""
    made_s: list[float] = field(default_factory=list)
    """When it was decided, seconds; one more than decisions in the end, the last of which is when the drive ended."""
    actions: list[Any] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    """But for a constant."""
    states: list[NDArray[np.float32]] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    carried_out: list[bool] = field(default_factory=list)
    """Where a car is led off the road the policy decides, nothing is done, and nothing is learnt."""
    kind: str = ""
    """Of ``CAMERAS``."""
    episode_return: float = 0.0


class SamplingPolicy(Policy):
    """Samples its actions, and keeps in ``drive`` what they were made from."""

    temperature = 1.0
    drive: Trajectory
    rng: np.random.Generator
    world: Any
    """Gymnasium's CarRacing, which the critic reads."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.network.dropout.register_forward_hook(self.keep_features)

    def keep_features(self, module: nn.Module, inputs: Any, features: Tensor) -> Tensor:
        """Half as long numbers are kept, and are what is decided from."""
        self.drive.features.append(features[0].half().numpy())
        return features.half().float()

    def enter(self, world: Any) -> None:
        """A drive begins in ``world``."""
        self.world, self.road = world, np.array(world.track)
        self.last_s, self.usual_gap_s, self.at, self.is_whole = 0.0, GAP_S, -1, True

    def action(self, outputs: NDArray[np.float32]) -> Action:
        drawn: Any
        if self.config.continuous:
            drawn = meant = outputs + self.rng.standard_normal(2).astype(np.float32) * ACTION_STD
        else:
            probs = torch.softmax(torch.from_numpy(outputs) / self.temperature, dim=0).double().numpy()
            drawn = int(self.rng.choice(len(probs), p=probs / probs.sum()))
            meant = np.eye(len(probs), dtype=np.float32)[drawn]
        kept = self.drive
        kept.t.append(self._recent[-1][1])
        kept.actions.append(drawn)
        kept.log_probs.append(float(log_probs(torch.from_numpy(outputs), torch.tensor(drawn), self.temperature)))
        kept.states.append(self.read_world())
        return super().action(meant)

    def misses_a_tile(self) -> bool:
        """Whether one was left behind untouched, said once a lap."""
        behind = [self.world.road[k].road_visited for k in range(max(0, self.at - 12), max(0, self.at - 4))]
        first = self.is_whole and not all(behind)
        self.is_whole = self.is_whole and not first
        return first

    def read_world(self) -> NDArray[np.float32]:
        """[STATES]: speeds, the car's place on the road, where that leads, how much is left, how often pictures come,
        whether it began badly and whether no tile is missed.
        """
        world, road = self.world, self.road
        hull = world.car.hull
        (x, y), (east, north), angle = hull.position, hull.linearVelocity, hull.angle
        near = np.arange(len(road)) if self.at < 0 else (self.at + np.arange(-6, 14)) % len(road)
        self.at = at = int(near[np.argmin(((road[near, 2:] - (x, y)) ** 2).sum(axis=1))])
        direction, right, up = road[at, 1], x - road[at, 2], y - road[at, 3]
        gap_s, self.last_s = world.t - self.last_s, world.t
        self.usual_gap_s += 0.2 * (gap_s - self.usual_gap_s)
        left = 1 - world.tile_visited_count / len(road)
        ahead, aside = turned(north, east, angle)
        along, beside = turned(up, right, direction)
        bends = (road[(at + AHEAD) % len(road), 1] - direction + math.pi) % (2 * math.pi) - math.pi
        values = (
            ahead / 50, aside / 20, hull.angularVelocity / 3, world.car.wheels[0].joint.angle, along / 7, beside / 7,
            math.sin(angle - direction), math.cos(angle - direction), *bends,
            1 - left, min(1.0, 5 * left), sum(bool(wheel.tiles) for wheel in world.car.wheels) / 4,
            5 * gap_s, 5 * self.usual_gap_s, self.drive.kind == "bad start", self.is_whole,
        )  # fmt: skip
        return np.array(values, np.float32)


class SamplingDriver(PolicyDriver):
    """A ``SamplingPolicy`` that is told in which world it drives."""

    def reset(self, env: DrivingEnv) -> None:
        super().reset(env)
        inner: Any = env.unwrapped
        assert isinstance(self.policy, SamplingPolicy)
        self.policy.enter(inner if hasattr(inner, "track") else inner.world)


def turned(north: float, east: float, angle: float) -> tuple[float, float]:
    """A vector as seen by who looks along ``angle``, counter-clockwise from north: ahead, and to the right."""
    cos, sin = math.cos(angle), math.sin(angle)
    return cos * north - sin * east, cos * east + sin * north


def log_probs(outputs: Tensor, actions: Tensor, temperature: float) -> Tensor:
    """[..., choices] scores and [...] choices, or [..., 2] steering and pedal both -> [...], but for a constant."""
    if actions.is_floating_point():
        return -0.5 * (((actions - outputs) / torch.from_numpy(ACTION_STD)) ** 2).sum(dim=-1)
    return F.log_softmax(outputs / temperature, dim=-1).gather(-1, actions[..., None])[..., 0]


class Sampler:
    """Drives with the policy of a file and other weights, in one process."""

    def __init__(self, path: Path, weights: dict[str, NDArray[Any]], temperature: float, seed: int) -> None:
        policy = load_policy(path)
        policy.network.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
        self.policy, self.seed = SamplingPolicy(policy.network, policy.name), seed
        self.policy.temperature = temperature

    def drive(self, job: tuple[int, str, CameraNoise]) -> Trajectory:
        """The drive of a track's seed, of a kind, through a camera."""
        track, kind, camera = job
        drive = Trajectory(kind=kind)
        self.policy.drive, self.policy.rng = drive, np.random.default_rng([self.seed, track])
        usual, is_bad = {"renderer": "fast", "max_frames": FRAMES}, kind == "bad start"
        loaded = LoadedDrive(Drive(options=usual, camera=camera, safety_stop=False), driver=SamplingDriver(self.policy))
        free_s, furthest, gained_s = 0.0, -1.0, 0.0
        with loaded.open(track) as opened:
            if is_bad:
                free_s = begin_badly(opened, np.random.default_rng([self.seed, track, 2]), loaded.spec.lost_m)
            for tick in opened:
                if len(drive.t) > len(drive.rewards):
                    drive.rewards.append(0.0)
                    drive.made_s.append(tick.t_s)
                    drive.carried_out.append(tick.t_s >= free_s)
                drive.rewards[-1] += tick.reward - MISSED_TILE * self.policy.misses_a_tile()
                if (tick.progress or 0.0) > furthest:
                    furthest, gained_s = tick.progress or 0.0, tick.t_s
                if tick.t_s - gained_s > LOST_S + RECOVERY_S * is_bad:
                    break
        drive.made_s.append(float(tick.next_info["t_s"]))
        drive.episode_return = tick.episode_return
        return drive


def advantages(drive: Trajectory, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """[N]: how much better each decision turned out than the critic's ``values`` [N] had it (generalized advantage
    estimation, Schulman et al., 2016), discounted by the time that passed; behind the last there is nothing to come.
    """
    discount = GAMMA ** (np.diff(drive.made_s) / GAP_S)
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
    assert network.projection is not None
    return network.decide(network.projection(chunks.features.float()), chunks.t, chunks.padding)[:, -CHUNK:]


def policy_loss(network: DrivingNetwork, chunks: Chunks, temperature: float) -> tuple[Tensor, float]:
    """The clipped surrogate, and an estimate of the KL divergence from the policy that drove."""
    log_ratio = log_probs(decide(network, chunks), chunks.actions, temperature) - chunks.log_probs
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

    def __post_init__(self) -> None:
        for name in ("iterations", "episodes", "epochs"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name} is {getattr(self, name)}: give 1 or more.")
        if not self.temperature > 0 or not self.learning_rate > 0:
            raise UserError("--temperature and --learning-rate have to be above 0.")
        if min(self.cameras) < 0 or abs(sum(self.cameras) - 1) > 1e-6:
            raise UserError(f"--cameras are shares of {', '.join(CAMERAS)}: give numbers from 0 whose sum is 1.")
        if self.iterations * self.episodes > TRACKS_PER_SEED or not 0 <= self.seed < SEEDS:
            raise UserError(
                f"there are tracks for {TRACKS_PER_SEED} drives of each of the seeds 0 to {SEEDS - 1}: "
                "give fewer --iterations or --episodes, or another --seed."
            )

    def jobs(self, iteration: int) -> list[tuple[int, str, CameraNoise]]:
        """Seed, kind and camera of each drive of an iteration, by its number and the run's seed alone."""
        rng, jobs = np.random.default_rng([self.seed, iteration]), list[tuple[int, str, CameraNoise]]()
        for k in range(self.episodes):
            kind = str(rng.choice(CAMERAS, p=self.cameras))
            track = FIRST_TRACK + self.seed * TRACKS_PER_SEED + iteration * self.episodes + k
            jobs.append((track, kind, camera_of(kind, rng)))
        return jobs


def camera_of(kind: str, rng: np.random.Generator) -> CameraNoise:
    share = float(rng.random())
    bad = {
        "5 to 20 Hz": CameraNoise(rate=(5.0, 20.0)),
        "noise, late": CameraNoise(noise=0.12 * share, delay_steps=int(rng.integers(3))),
        "black": CameraNoise(blackout=0.3 * share),
        "dusk": CameraNoise(brightness=1 - 0.6 * share),
    }
    return bad.get(kind, CameraNoise())


class Learner:
    """What changes from one iteration to the next, and what that needs to go on."""

    def __init__(self, network: DrivingNetwork, options: Options) -> None:
        torch.manual_seed(options.seed)
        self.network, self.options, self.iteration = network, options, 0
        self.random = torch.Generator().manual_seed(options.seed)
        self.average = copy.deepcopy(network)
        network.vision.requires_grad_(False)
        self.learns = [p for p in network.parameters() if p.requires_grad]
        hidden = [nn.Linear(STATES, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh()]
        self.critic = nn.Sequential(*hidden, nn.Linear(128, 1))
        self.optimizer = torch.optim.Adam(self.learns, lr=options.learning_rate)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=CRITIC_RATE)

    @torch.no_grad()
    def values(self, drive: Trajectory) -> NDArray[np.float32]:
        values: NDArray[np.float32] = self.critic(torch.from_numpy(np.stack(drive.states)))[:, 0].numpy()
        return values * RETURN_SCALE

    def learn(self, drives: Sequence[Trajectory]) -> float:
        """Learn from an iteration's ``drives``, in the first few the critic alone; the KL divergence of the last epoch.

        The rate of learning falls to nothing over the iterations.
        """
        options = self.options
        values = [self.values(drive) for drive in drives]
        better = [advantages(drive, value) for drive, value in zip(drives, values, strict=True)]
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
        targets = torch.from_numpy(np.concatenate(returns)) / RETURN_SCALE
        for _ in range(CRITIC_EPOCHS if self.iteration else FIRST_CRITIC_EPOCHS):
            for some in torch.randperm(len(states), generator=self.random).split(CRITIC_BATCH):
                self.critic_optimizer.zero_grad()
                F.smooth_l1_loss(self.critic(states[some])[:, 0], targets[some]).backward()
                self.critic_optimizer.step()

    def _learn_actions(self, chunks: Chunks) -> float:
        """One epoch; the mean KL divergence of its minibatches."""
        gone = []
        for some in torch.randperm(len(chunks.t), generator=self.random).split(BATCH):
            loss, kl = policy_loss(self.network, chunks[some], self.options.temperature)
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
        sampler = options.policy, weights, options.temperature, options.seed
        done = run_by_method(
            Sampler, sampler, "drive", options.jobs(iteration), workers=options.workers, preload=PRELOADED
        )
        drives = [drive for _, drive in sorted(done, key=lambda one: one[0][0])]
        kl = learner.learn(drives)
        by_kind = {kind: [drive.episode_return for drive in drives if drive.kind == kind] for kind in CAMERAS}
        yield {
            "round": iteration, "epoch": 0, "decisions": sum(len(drive.t) for drive in drives), "kl": round(kl, 5),
            "returns": {kind: [round(float(np.mean(x)), 1), len(x)] for kind, x in by_kind.items() if x},
            "seconds": round(time.perf_counter() - began, 1),
        }  # fmt: skip


def reinforce(options: Options) -> None:
    """The whole run; ``UserError`` for a policy of another task or form, or a folder begun with other options."""
    policy, state = load_policy(options.policy, expect_task="carracing"), options.out / "last.ckpt"
    if policy.config.projection is None:
        raise UserError(f"{options.policy} has the published form (train --paper-form): give one of the driving form.")
    learner = Learner(policy.network, options)
    options.out.mkdir(parents=True, exist_ok=True)
    check_resumable(options.out, options, ("out", "workers"))
    if state.exists():
        learner.load(state)
    log = MetricsLog(options.out, learner.iteration, 0)
    about = {**plain(options), "policy": options.policy.name, "versions": package_versions()}
    del about["out"], about["workers"]
    for row in progress(iterations(options, learner), "iterations", total=options.iterations - learner.iteration):
        log.add(row)
        learner.save(state)
        if learner.iteration % 10 == 0 or learner.iteration == options.iterations:
            meta = policy.meta | {"reinforced": {**about, "iteration": learner.iteration}}
            kept = Policy(copy.deepcopy(learner.average), policy.name)
            save_policy(kept, options.out / f"policy-{learner.iteration}.pt", meta)
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
    shares, usual = f"shares of the drives: {', '.join(CAMERAS)}", (0.25, 0.25, 0.1, 0.2, 0.1, 0.1)
    parser.add_argument("--cameras", type=float, nargs=len(CAMERAS), default=usual, help=shares)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2, help="processes that drive; 0: it is done here")
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
