"""A trained policy of CarRacing that learns on from what it is rewarded for, by PPO (Schulman et al., 2017).

    python tools/policy_reinforcement.py agents/carracing/nac_steady.pt --out runs/reinforced-0 --seed 0

Each iteration drives --episodes tracks with decisions that are drawn (among five actions by their scores times --sharp,
steering and pedal from a normal distribution), through cameras drawn by --cameras, and learns --epochs times from them.
The convolutions stay as they are. How good a decision was is told by a critic that reads car and road from the
simulator; it is not part of the policy. Beside ``policy-N.pt``, every ten iterations, lie the options, a log and what a
stopped run goes on from: give the same command again. What came of it: docs/results/carracing.md.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import track as progress
from torch import Tensor, nn
from torch.nn import functional as F

from nacdrive.common.action import FULL_BRAKE, Action
from nacdrive.common.errors import UserError
from nacdrive.common.files import atomic_path, read_json, write_json
from nacdrive.drivers.override import Override
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.start import bad_start
from nacdrive.models import Policy, load_policy, save_policy
from nacdrive.models.driving import DrivingNetwork
from nacdrive.rollout.dagger import BRAKED_S, LED_AT_S, LED_S
from nacdrive.rollout.drive import Drive, LoadedDrive

FIRST_TRACK, TRACKS_PER_SEED = 3_700_000, 20_000
"""Of those to learn from (``nacdrive.envs.seeds``), in the part that DAgger of seeds 8 to 19 would drive."""
DISCOUNT, GAP_S, TRACE = 0.99, 0.08, 0.95
"""Of rewards, for each usual gap between decisions; and of the advantages' sum (Schulman et al., 2016)."""
CLIP, MOST_KL = 0.15, 0.03
NOISE = np.array([0.05, 0.15], np.float32)
"""Standard deviations of steering and pedal, while they learn."""
PIECE, BATCH = 16, 32
"""Decisions of a piece of a drive, each with the window of its first before it; pieces of a minibatch."""
AVERAGE = 0.9
"""Of the weights over the iterations, which are what is kept."""
SCALE = 100.0
"""Of the critic's returns."""
JOBS = 16
"""In which the tracks of an iteration are given out."""
FRAMES = 1000
"""Of a drive, at most."""
LOST_S, RECOVERY_S = 4.8, 8.0
"""A drive ends after so long without progress; later where the car was led off the road."""
CAMERAS = ("good", "5 to 20 Hz", "noise, late", "black", "dusk", "bad start")
MISSED = 20.0
"""Taken from the reward for the first tile that no wheel has touched: the lap will not end before the frames do."""
AHEAD = np.array([2, 4, 7, 10, 14, 19, 25, 32])
"""Tiles ahead whose direction the critic reads."""


@dataclass
class Drawn:
    """What is kept of each decision of a drive."""

    features: list[NDArray[np.float16]] = field(default_factory=list)
    """Of the convolutions, before the projection."""
    t: list[float] = field(default_factory=list)
    """When the frame was taken, seconds."""
    made_s: list[float] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)
    likelihood: list[float] = field(default_factory=list)
    """Logarithm of how likely the decision was, but for a constant."""
    state: list[NDArray[np.float32]] = field(default_factory=list)
    """What the critic reads."""
    reward: list[float] = field(default_factory=list)
    free: list[bool] = field(default_factory=list)
    """Whether the decision was carried out: where a car is led off the road, nothing is learnt."""


class DrawnPolicy(Policy):
    """Draws its decisions, and keeps what they were made from."""

    sharp = 1.0
    rng: np.random.Generator
    world: Any
    """Gymnasium's CarRacing, which the critic reads."""

    def begin(self, rng: np.random.Generator, sharp: float, is_bad: bool) -> Drawn:
        self.rng, self.sharp, self.is_bad, self.drawn = rng, sharp, is_bad, Drawn()
        return self.drawn

    def enter(self, world: Any) -> None:
        self.world, self.road = world, np.array(world.track)
        self.last_s, self.usual_gap_s, self.at, self.is_whole = 0.0, GAP_S, -1, True

    @torch.inference_mode()
    def step(self, frame: NDArray[np.uint8], t_s: float, speed_mps: float | None = None) -> Action:
        assert self.network.projection is not None
        x = torch.from_numpy(np.ascontiguousarray(frame))[None].float().mul(2 / 255).sub(1.0).permute(0, 3, 1, 2)
        features = self.network.vision(x).flatten(1).half()
        t = torch.tensor([t_s])
        y, self.state = self.network.sequence.step(self.network.projection(features.float()), t, self.state)
        outputs = self.network.head(y)
        drawn: Any
        if self.config.continuous:
            drawn = outputs[0].numpy() + self.rng.standard_normal(2).astype(np.float32) * NOISE
            action = self.action(drawn)
        else:
            shares = torch.softmax(outputs[0] * self.sharp, dim=0).double().numpy()
            drawn = int(self.rng.choice(len(shares), p=shares / shares.sum()))
            action = self.action(np.eye(len(shares), dtype=np.float32)[drawn])
        kept, state = self.drawn, self.read_world()
        kept.features.append(features[0].numpy())
        kept.t.append(t_s)
        kept.actions.append(drawn)
        kept.likelihood.append(float(likelihoods(outputs, torch.tensor(np.array([drawn])), self.sharp)[0]))
        kept.state.append(state)
        return action

    def misses_a_tile(self) -> bool:
        """Whether one was left behind untouched, said once a lap."""
        behind = [self.world.road[k].road_visited for k in range(max(0, self.at - 12), max(0, self.at - 4))]
        first = self.is_whole and not all(behind)
        self.is_whole = self.is_whole and not first
        return first

    def read_world(self) -> NDArray[np.float32]:
        """Speeds, the car's place on the road, where that leads, how much is left, how often pictures come."""
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
        values = (
            ahead / 50, aside / 20, hull.angularVelocity / 3, world.car.wheels[0].joint.angle, along / 7, beside / 7,
            math.sin(angle - direction), math.cos(angle - direction),
            *wrapped(road[(at + AHEAD) % len(road), 1] - direction),
            1 - left, min(1.0, 5 * left), sum(bool(wheel.tiles) for wheel in world.car.wheels) / 4,
            5 * gap_s, 5 * self.usual_gap_s, self.is_bad, self.is_whole,
        )  # fmt: skip
        return np.array(values, np.float32)


class DrawnDriver(PolicyDriver):
    """A ``DrawnPolicy`` that is told in which world it drives."""

    def reset(self, env: DrivingEnv) -> None:
        super().reset(env)
        inner: Any = env.unwrapped
        assert isinstance(self.policy, DrawnPolicy)
        self.policy.enter(inner if hasattr(inner, "track") else inner.world)


STATES = 6 + 2 + len(AHEAD) + 7


def turned(north: float, east: float, angle: float) -> tuple[float, float]:
    """A vector as seen by who looks along ``angle``, counter-clockwise from north: ahead, and to the right."""
    cos, sin = math.cos(angle), math.sin(angle)
    return cos * north - sin * east, cos * east + sin * north


def wrapped(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Angles in -pi .. pi."""
    return (angles + math.pi) % (2 * math.pi) - math.pi


def likelihoods(outputs: Tensor, drawn: Tensor, sharp: float) -> Tensor:
    """[..., choices] scores and [...] choices, or [..., 2] steering and pedal both -> [...]: logarithms of how likely
    what was ``drawn`` is, but for a constant.
    """
    if drawn.is_floating_point():
        return -0.5 * (((drawn - outputs) / torch.from_numpy(NOISE)) ** 2).sum(dim=-1)
    return F.log_softmax(outputs * sharp, dim=-1).gather(-1, drawn[..., None])[..., 0]


@dataclass(frozen=True)
class Track:
    """What is driven: plain data."""

    seed: int
    camera: CameraNoise
    kind: str
    """Of ``CAMERAS``."""


_policy: DrawnPolicy | None = None


def drive(job: tuple[Path, dict[str, Tensor], Sequence[Track], float, int]) -> list[tuple[str, float, Drawn, float]]:
    """Kind, return, decisions and end of each track, in seconds."""
    global _policy
    path, weights, tracks, sharp, seed = job
    torch.set_num_threads(1)
    if _policy is None:
        first = load_policy(path)
        _policy = DrawnPolicy(first.network, first.name)
    _policy.network.load_state_dict(weights)
    return [drive_one(_policy, one, sharp, seed) for one in tracks]


def drive_one(policy: DrawnPolicy, one: Track, sharp: float, seed: int) -> tuple[str, float, Drawn, float]:
    is_bad = one.kind == "bad start"
    driver, chosen = DrawnDriver(policy), np.random.default_rng([seed, one.seed, 2])
    usual = {"renderer": "fast", "max_frames": FRAMES}
    loaded = LoadedDrive(Drive(options=usual, camera=one.camera, safety_stop=False), driver=driver)
    drawn, free_s, furthest, gained_s = (
        policy.begin(np.random.default_rng([seed, one.seed]), sharp, is_bad),
        0.0,
        -1.0,
        0.0,
    )
    with loaded.open(one.seed) as opened:
        if is_bad:
            # As in DAgger.
            side, led_at_s = Action(float(chosen.choice((-1.0, 1.0))), 0.0, 0.0), chosen.uniform(*LED_AT_S)
            led_until_s = led_at_s + chosen.uniform(*LED_S)
            if chosen.integers(2):
                opened.start, led_at_s, led_until_s = bad_start(chosen, loaded.spec.lost_m), 0.0, 0.0
            free_s = led_until_s + chosen.uniform(0, BRAKED_S)
            opened.driver = Override(opened.driver, (led_at_s, None), (led_until_s, side), (free_s, FULL_BRAKE))
        for tick in opened:
            if len(drawn.t) > len(drawn.reward):
                drawn.reward.append(0.0)
                drawn.made_s.append(tick.t_s)
                drawn.free.append(tick.t_s >= free_s)
            drawn.reward[-1] += tick.reward - MISSED * policy.misses_a_tile()
            if (tick.progress or 0.0) > furthest:
                furthest, gained_s = tick.progress or 0.0, tick.t_s
            if tick.t_s - gained_s > LOST_S + RECOVERY_S * is_bad:
                break
    return one.kind, tick.episode_return, drawn, float(tick.next_info["t_s"])


def advantages(drawn: Drawn, values: NDArray[np.float32], end_s: float) -> NDArray[np.float32]:
    """[N]: how much better each decision turned out than the critic's ``values`` [N] had it (generalized advantage
    estimation, Schulman et al., 2016), discounted by the time that passed; behind the last there is nothing to come.
    """
    share = DISCOUNT ** (np.diff([*drawn.made_s, end_s]) / GAP_S)
    surprise = np.array(drawn.reward) + share * np.append(values[1:], 0.0) - values
    result, rest = np.zeros(len(values), np.float32), 0.0
    for k in reversed(range(len(values))):
        result[k] = rest = surprise[k] + share[k] * TRACE * rest
    return result


@dataclass
class Pieces:
    """Pieces of drives, [P, window - 1 + PIECE] frames and [P, PIECE] decisions."""

    features: Tensor
    t: Tensor
    padding: Tensor
    actions: Tensor
    likelihood: Tensor
    advantage: Tensor
    counts: Tensor
    """1 where a decision was carried out, 0 where not, and behind a drive's end."""

    def __getitem__(self, which: Tensor) -> Pieces:
        return Pieces(*(value[which] for value in vars(self).values()))


def cut(drives: Sequence[tuple[Drawn, NDArray[np.float32]]], window: int) -> Pieces:
    """Pieces of ``drives`` with the advantage of each decision."""
    before, rows = window - 1, list[tuple[Any, ...]]()
    for drawn, advantage in drives:
        columns = [torch.from_numpy(np.array(x)) for x in (drawn.features, drawn.actions, drawn.likelihood, drawn.free)]
        features, actions, likelihood, free = columns
        t, good = torch.tensor(drawn.t), torch.from_numpy(advantage)
        for first in range(0, len(t), PIECE):
            last, seen = min(len(t), first + PIECE), max(0, first - before)
            empty, behind = before - (first - seen), PIECE - (last - first)
            none = torch.zeros(behind)
            padding = torch.tensor([True] * empty + [False] * (last - seen) + [True] * behind)
            rows.append(
                (
                    F.pad(features[seen:last], (0, 0, empty, behind)),
                    torch.cat([t[seen].expand(empty), t[seen:last], t[last - 1].expand(behind)]),
                    padding,
                    torch.cat([actions[first:last], actions[:1].expand(behind, *actions.shape[1:])]),
                    torch.cat([likelihood[first:last].float(), none]),
                    torch.cat([good[first:last], none]),
                    torch.cat([free[first:last].float(), none]),
                )
            )
    return Pieces(*(torch.stack(column) for column in zip(*rows, strict=True)))


def policy_loss(network: DrivingNetwork, pieces: Pieces, sharp: float) -> tuple[Tensor, float]:
    """The clipped surrogate, and how far the policy has gone from the one that drove (an estimate of KL)."""
    assert network.projection is not None
    outputs = network.decide(network.projection(pieces.features.float()), pieces.t, pieces.padding)
    gone = likelihoods(outputs[:, -PIECE:], pieces.actions, sharp) - pieces.likelihood
    ratio, count = gone.exp(), pieces.counts.sum().clamp(min=1)
    gain = torch.minimum(ratio * pieces.advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * pieces.advantage)
    kl = ((ratio - 1 - gone) * pieces.counts).sum() / count
    return -(gain * pieces.counts).sum() / count, float(kl.detach())


@dataclass
class Learner:
    """What changes from one iteration to the next, and what that needs to go on."""

    network: DrivingNetwork
    learning_rate: float
    """At first: it falls to 0 over ``iterations``."""
    seed: int
    iterations: int
    iteration: int = 0

    def __post_init__(self) -> None:
        torch.manual_seed(self.seed)
        self.random = torch.Generator().manual_seed(self.seed)
        self.average = copy.deepcopy(self.network)
        self.network.vision.requires_grad_(False)
        self.learns = [p for p in self.network.parameters() if p.requires_grad]
        hidden = [nn.Linear(STATES, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh()]
        self.critic = nn.Sequential(*hidden, nn.Linear(128, 1))
        self.optimizer = torch.optim.Adam(self.learns, lr=self.learning_rate)
        self.critics = torch.optim.Adam(self.critic.parameters(), lr=1e-3)

    @torch.no_grad()
    def values(self, drawn: Drawn) -> NDArray[np.float32]:
        values: NDArray[np.float32] = self.critic(torch.from_numpy(np.stack(drawn.state)))[:, 0].numpy()
        return values * SCALE

    def learn(self, drives: Sequence[tuple[str, float, Drawn, float]], epochs: int, warm: int, sharp: float) -> float:
        """Learn from an iteration's ``drives``, the policy after ``warm`` iterations of the critic alone; the KL."""
        judged = [(drawn, self.values(drawn), end_s) for _, _, drawn, end_s in drives]
        better = [advantages(*one) for one in judged]
        states = torch.from_numpy(np.concatenate([np.stack(drawn.state) for drawn, _, _ in judged]))
        returns = torch.from_numpy(np.concatenate([v + a for (_, v, _), a in zip(judged, better, strict=True)])) / SCALE
        counted = np.concatenate([a[np.array(drawn.free)] for (drawn, _, _), a in zip(judged, better, strict=True)])
        scaled = [(a - counted.mean()) / (counted.std() + 1e-6) for a in better]
        for _ in range(6 if self.iteration else 20):
            for some in torch.randperm(len(states), generator=self.random).split(512):
                self.critics.zero_grad()
                F.smooth_l1_loss(self.critic(states[some])[:, 0], returns[some]).backward()
                self.critics.step()
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate * (1 - self.iteration / self.iterations)
        pieces, kl = cut([(d, a) for (d, _, _), a in zip(judged, scaled, strict=True)], self.network.config.window), 0.0
        for _ in range(epochs if self.iteration >= warm else 0):
            gone = []
            for some in torch.randperm(len(pieces.t), generator=self.random).split(BATCH):
                loss, kl = policy_loss(self.network, pieces[some], sharp)
                self.optimizer.zero_grad()
                loss.backward()
                if nn.utils.clip_grad_norm_(self.learns, 0.5).isfinite():
                    self.optimizer.step()
                gone.append(kl)
            kl = float(np.mean(gone))
            if kl > MOST_KL:
                break
        with torch.no_grad():
            for kept, new in zip(self.average.parameters(), self.network.parameters(), strict=True):
                kept.lerp_(new, 1 - AVERAGE)
        self.iteration += 1
        return kl

    def parts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("network", "average", "critic", "optimizer", "critics")}

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


def tracks_of(given: argparse.Namespace, iteration: int) -> list[Track]:
    """The tracks of an iteration, by its number and the seed alone."""
    rng, first = np.random.default_rng([given.seed, iteration]), FIRST_TRACK + given.seed * TRACKS_PER_SEED
    return [
        Track(first + iteration * given.episodes + k, *camera_of(str(rng.choice(CAMERAS, p=given.cameras)), rng))
        for k in range(given.episodes)
    ]


def camera_of(kind: str, rng: np.random.Generator) -> tuple[CameraNoise, str]:
    share = float(rng.random())
    bad = {
        "5 to 20 Hz": CameraNoise(rate=(5.0, 20.0)),
        "noise, late": CameraNoise(noise=0.12 * share, delay_steps=int(rng.integers(3))),
        "black": CameraNoise(blackout=0.3 * share),
        "dusk": CameraNoise(brightness=1 - 0.6 * share),
    }
    return bad.get(kind, CameraNoise()), kind


def iterations(given: argparse.Namespace, learner: Learner) -> Iterator[dict[str, Any]]:
    """Drive and learn until all are done; a line of the log each."""
    with get_context("spawn").Pool(given.workers) if given.workers else nullcontext() as pool:
        for iteration in range(learner.iteration, given.iterations):
            began, tracks = time.perf_counter(), tracks_of(given, iteration)
            weights = {name: value.clone() for name, value in learner.network.state_dict().items()}
            jobs = [(given.policy, weights, tracks[k::JOBS], given.sharp, given.seed) for k in range(JOBS)]
            drives = [one for some in (map(drive, jobs) if pool is None else pool.imap(drive, jobs)) for one in some]
            kl = learner.learn(drives, given.epochs, given.warm, given.sharp)
            by_kind = {kind: [value for name, value, *_ in drives if name == kind] for kind in CAMERAS}
            yield {
                "iteration": iteration, "decisions": sum(len(drawn.t) for _, _, drawn, _ in drives), "kl": round(kl, 5),
                "returns": {kind: [round(float(np.mean(x)), 1), len(x)] for kind, x in by_kind.items() if x},
                "seconds": round(time.perf_counter() - began, 1),
            }  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--iterations", type=int, default=80)
    parser.add_argument("--episodes", type=int, default=64, help="of an iteration")
    parser.add_argument("--epochs", type=int, default=4, help="over an iteration's decisions")
    parser.add_argument("--warm", type=int, default=3, help="iterations in which the critic alone learns")
    parser.add_argument("--sharp", type=float, default=2.0, help="factor on the scores of actions that are drawn")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    names = ", ".join(CAMERAS)
    usual = (0.25, 0.25, 0.1, 0.2, 0.1, 0.1)
    parser.add_argument("--cameras", type=float, nargs=len(CAMERAS), default=usual, help=f"shares of: {names}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2, help="processes that drive; 0: it is done here")
    given = parser.parse_args(words)
    try:
        policy = load_policy(given.policy, expect_task="carracing")
        if policy.config.projection is None or policy.config.masked_rows is not None:
            raise UserError(f"{given.policy} has no projection behind its convolutions: give one in the driving form.")
    except UserError as error:
        parser.error(str(error))
    os.environ["OMP_NUM_THREADS"] = "1"
    learner = Learner(policy.network, given.learning_rate, given.seed, given.iterations)
    state, log, record = (given.out / name for name in ("last.ckpt", "log.jsonl", "run.json"))
    options = {**vars(given), "policy": str(given.policy)}
    del options["out"], options["workers"]
    given.out.mkdir(parents=True, exist_ok=True)
    if state.exists():
        if read_json(record) != json.loads(json.dumps(options)):
            parser.error(f"{given.out} was begun with other options ({record}): give these, or another --out.")
        learner.load(state)
        lines = log.read_text().splitlines()[: learner.iteration]
        log.write_text("".join(f"{line}\n" for line in lines))
    write_json(record, options)
    left = given.iterations - learner.iteration
    for line in progress(iterations(given, learner), "iterations", total=left):
        with log.open("a") as file:
            print(json.dumps(line), file=file)
        learner.save(state)
        if learner.iteration % 10 == 0 or learner.iteration == given.iterations:
            meta = {"reinforced": {**options, "policy": given.policy.name, "iterations": learner.iteration}}
            one = Policy(copy.deepcopy(learner.average), policy.name, meta | policy.meta)
            save_policy(one, given.out / f"policy-{learner.iteration}.pt", one.meta)


if __name__ == "__main__":
    main()
