r"""Is a NAC the memory to drive with? Arms that differ in it alone: CarRacing with hidden speed, Udacity roads.

    OMP_NUM_THREADS=1 python tools/memory_table.py --workers 2      # trains, judges; goes on where it was stopped
    OMP_NUM_THREADS=1 python tools/memory_table.py --show           # the tables of the lines that are there
    OMP_NUM_THREADS=1 python tools/memory_table.py --less none      # each arm less one of them
    OMP_NUM_THREADS=1 python tools/memory_table.py --env udacity-track --workers 2

Every arm drives, is told what the teacher would have done, and learns from all that was labelled (DAgger): on the same
tracks, through the same cameras, with the same number of minibatches. It sees one small grey frame at a time, with
black stretches, losses and delays, and beside it how long ago the frame before and the frame itself were taken. The
averaged weights of the last minibatch are judged; nothing is chosen. Judged are events (the same state, a disturbance
for a moment, and how far the car then is from its undisturbed twin) and laps. Each agent is a line of --results.
``--validate`` judges on validation tracks and writes to ``validation.jsonl`` of --out instead.
What is compared is registered in docs/results/memory.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, SupportsFloat, TypeVar

import cv2
import numpy as np
import torch
from memory_comparisons import less, score, tables
from memory_experiments import ALL, CARRACING, EVENTS, EXPERIMENTS, REPEAT, STRETCH, UDACITY, Experiment
from numpy.typing import NDArray
from roads_curve import read
from torch import Tensor, nn
from torch.nn import functional as F

from nacdrive.common.action import Action
from nacdrive.common.parallel import run_jobs
from nacdrive.common.runs import seed_everything
from nacdrive.common.tensor_file import read_tensor_file, write_tensor_file
from nacdrive.common.units import MPS_PER_MPH
from nacdrive.drivers import load_expert
from nacdrive.drivers.base import Driver, DriverState, Needs
from nacdrive.drivers.speed_control import SpeedController
from nacdrive.envs.base import DrivingEnv, DrivingWrapper, Frame, Info
from nacdrive.envs.camera_noise import Camera, CameraNoise, NoisyCamera
from nacdrive.layers.attention import MHALayer
from nacdrive.layers.base import SequenceLayer
from nacdrive.layers.registry import LAYERS, register
from nacdrive.models.agents.cockpit import CockpitNet
from nacdrive.models.agents.memory import Memory, MemorySpec, MemoryState
from nacdrive.models.agents.view import FrameStack
from nacdrive.rl.imitate import Drives, LabelledDrive
from nacdrive.rollout.batched_inference import drive_batched
from nacdrive.rollout.dagger import supervised
from nacdrive.rollout.drive import Drive, LoadedDrive, OpenDrive
from nacdrive.tasks.carracing import HUBER, SHARPNESS

R = TypeVar("R")
GAP_S, WINDOW, WIDTH, HEADS = 0.08, 12, 64, 4
"""Seconds for which an action is held, and the memory: decisions, width, heads."""
BETA, STEERING_NOISE = 0.7, 0.2
"""The teacher's share of the second round (it drives the first alone; halved with each further one), and how much the
wheel is disturbed on every second track."""
BATCH, LENGTH, RATES, KEEP = 128, 8, (1e-3, 2e-5), 0.998
"""Decisions of a minibatch, and of a piece of a drive; first and last learning rate, and how much of the averaged
weights a minibatch keeps."""


@dataclass(frozen=True)
class Arm:
    """A memory."""

    layer: str | None = None
    """Registered name of a sequence layer; None for none."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of the layer."""
    frames: int = 1
    """Seen at once."""
    hold: bool = False
    """Whether a black frame is left out, and the action before it held."""


class TimedMHA(SequenceLayer):
    """Attention whose tokens bear when they were: 16 sines and cosines of the time."""

    time_sense = "clock"
    past_sense = "times"

    def build(self) -> None:
        self.attention = MHALayer(self.in_features + 32, self.d_model, self.num_heads, self.window)
        self.frequencies = nn.Parameter(torch.logspace(0, -3, 16))

    def _timed(self, x: Tensor, t: Tensor) -> Tensor:
        phase = (t / self.gap_s).unsqueeze(-1) * self.frequencies
        return torch.cat([x, phase.sin().to(x.dtype), phase.cos().to(x.dtype)], -1)

    def forward(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        assert t is not None
        y: Tensor = self.attention(self._timed(x, t), t, padding)
        return y

    def init_state(self, batch_size: int, window: int | None = None) -> Any:
        return self.attention.init_state(batch_size, window)

    def step(self, x: Tensor, t: Tensor | None, state: Any) -> tuple[Tensor, Any]:
        assert t is not None
        return self.attention.step(self._timed(x, t), t, state)


KEY: dict[str, Any] = {"mode": "steady", "time_features": 0, "topk": 8}
"""Of the nac-key that was registered: steady, lags alone, eight keys a query."""
ARMS = {
    "nac-key": Arm("nac-key", KEY),
    "lstm": Arm("lstm"),
    "gru": Arm("gru"),
    "cfc": Arm("cfc"),
    "stack": Arm(frames=WINDOW),
    "hold": Arm(frames=WINDOW, hold=True),
    "nac-key-no-circuit": Arm("nac-key", {**KEY, "plain": True}),
    "none": Arm(),
    "mha": Arm("timed-mha"),
    "nac-lag": Arm("nac-lag"),
    "nac-steady": Arm("published-nac", {"mode": "steady"}),
    "nac-key-all-keys": Arm("nac-key", {**KEY, "topk": None}),
}
DRAWN, WORST = 0.25, CameraNoise(blackout=0.06, blackout_steps=8, dropped=0.5, late=5)
"""Share of the drives that are learnt from whose camera is drawn, each disturbance at most as strong as here; that of
the others is ``ALL``."""
SECOND = 13
"""Decisions after which the twins are compared."""
PLACES = 64
"""Half of them in bends, two a track; with all events: 512 an agent."""
LAPS_FROM = 50
"""The first of the tracks for laps, after so many for events."""


class Pedals:
    """Those of a speed that is kept, for the drives that no ``Drive`` describes; an agent's own where there is none."""

    def __init__(self, experiment: Experiment) -> None:
        mph = experiment.speed_mph
        self.controller = None if mph is None else SpeedController(mph * MPS_PER_MPH)

    def __call__(self, action: Action, info: Info) -> Action:
        if self.controller is None:
            return action
        throttle, brake = self.controller.pedals(info["speed_mps"], info["t_s"], action.steering)
        return replace(action, throttle=throttle, brake=brake)


def register_layers() -> None:
    """Layers that exist for this comparison; once in a process."""
    if "timed-mha" in LAYERS:
        return
    register("timed-mha", TimedMHA)
    register("published-nac", "nacdrive.layers.nac:NACLayer")


# ------------------------------------------------------------------------------------------------------------ agents


class ArmNet(nn.Module):
    """Frames, gap and age of the newest -> steering (and pedal); arms differ in ``memory`` (``stack`` in frames)."""

    def __init__(self, arm: Arm, experiment: Experiment = CARRACING) -> None:
        super().__init__()
        self.arm, self.experiment = arm, experiment
        self.vision = CockpitNet(replace(experiment.view, frames=arm.frames), channels=(16, 32, 32))
        features = self.vision.head.in_features + 2
        self.vision.head = nn.Identity()  # type: ignore[assignment]
        self.vision = self.vision.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        spec = None if arm.layer is None else MemorySpec(arm.layer, WINDOW, WIDTH, HEADS, GAP_S, arm.options)
        self.memory = None if spec is None else Memory(spec, features)
        self.head = nn.Linear(features if self.memory is None else self.memory.out_features, experiment.outputs)

    def features(self, stacks: Tensor, times: Tensor) -> Tensor:
        """uint8 [N, frames, height, width] and [N, 2] -> [N, features]."""
        return torch.cat([self.vision.features(stacks), times], -1)


def times_of(gap_s: Any, age_s: Any) -> NDArray[np.float32]:
    """What a network is told of time: [..., 2], logarithms of gap and age in usual gaps."""
    return np.log1p(np.maximum(np.stack([gap_s, age_s], -1), 0) / GAP_S).astype(np.float32)


Question = tuple[NDArray[np.uint8], NDArray[np.float32], float, MemoryState | None]


class Agent(Driver):
    """Drives by a network that decides for many; holds its action where there is nothing new to see."""

    name = "arm"
    needs = Needs(continuous=True, repeat=REPEAT)

    def __init__(self, arm: Arm, ask: Callable[[Question], Any], experiment: Experiment = CARRACING) -> None:
        self.arm, self.ask, self.experiment = arm, ask, experiment
        self.stack = FrameStack(replace(experiment.view, frames=arm.frames))

    def reset(self, env: DrivingEnv | None) -> None:
        self.stack.reset()
        self.memory: MemoryState | None = None
        self.last: Action | None = None
        self.t_s, self.held = -GAP_S, False

    def act(self, frame: Frame, info: Info) -> Action:
        t_s = float(info.get("frame_t_s", info["t_s"]))
        self.held = self.last is not None and (t_s <= self.t_s or (self.arm.hold and not frame.any()))
        if self.last is None or not self.held:
            gap_s, self.t_s = t_s - self.t_s, t_s
            self.times = times_of(gap_s, float(info["t_s"]) - t_s)
            stack = self.stack.push(self.experiment.seen(frame)).copy()
            row, self.memory = self.ask((stack, self.times, t_s, self.memory))
            self.last = self.experiment.action(row)
        return self.last

    def state(self) -> DriverState:
        return DriverState(held=self.held)


@torch.inference_mode()
def decide(net: ArmNet, questions: Sequence[Question]) -> list[Any]:
    """Outputs, and the next memory, of many drives."""
    stacks, times, seconds, states = zip(*questions, strict=True)
    features = net.features(torch.from_numpy(np.stack(stacks)), torch.from_numpy(np.stack(times)))
    if net.memory is None:
        return [(row, None) for row in net.head(features).numpy()]
    known = [net.memory.init_state(1) if state is None else state for state in states]
    state = MemoryState(*(torch.cat(parts) for parts in zip(*known, strict=True)))
    never = torch.zeros(len(stacks), dtype=torch.bool)
    joint, state = net.memory.advance(features, torch.tensor(seconds, dtype=torch.float64), never, state)
    rows = net.head(joint).numpy()
    return [(row, MemoryState(*(part[k, None] for part in state))) for k, row in enumerate(rows)]


# ------------------------------------------------------------------------------------------------ drives side by side


ENV_LOCK = threading.RLock()


class LockedEnv(DrivingWrapper):
    """An environment beside which no other one draws: Panda3D may be used by one thread at a time."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, Any]:
        with ENV_LOCK:
            return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Frame, SupportsFloat, bool, bool, Any]:
        with ENV_LOCK:
            return self.env.step(action)


class EnvPool:
    """Environments for drives side by side, used again and again: no thread frees what Panda3D made while another one
    draws, which is why the collector of cycles rests during ``drive``.
    """

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.free: list[LockedEnv] = []

    def drive(self, job: Callable[[int, Any], R], tracks: Iterable[int], net: ArmNet) -> list[R]:
        """What ``job(track, ask)`` returns for each track, in their order, ``net`` deciding for all at once."""
        gc.collect()
        gc.disable()
        try:
            return drive_batched(job, tracks, lambda asked: decide(net, asked))
        finally:
            gc.enable()

    @contextmanager
    def open(
        self,
        drive: Drive,
        agent: Agent,
        track: int,
        *,
        expert: Driver | None = None,
        rng: np.random.Generator | None = None,
    ) -> Iterator[OpenDrive]:
        """The agent's ``drive`` on ``track``, as ``LoadedDrive.open`` opens it, in an environment of the pool."""
        with ENV_LOCK:
            locked = self.free.pop() if self.free else LockedEnv(self.experiment.make_env())
        env = NoisyCamera(locked, drive.camera) if drive.camera.active else locked
        try:
            yield LoadedDrive(drive, driver=agent, expert=expert).open(track, env=env, rng=rng)
        finally:
            self.free.append(locked)


@cache
def env_pool(experiment: Experiment) -> EnvPool:
    """That of this process."""
    return EnvPool(experiment)


# ---------------------------------------------------------------------------------------------------- labelled drives


KIND = "nacdrive memory table"


def kept(path: Path, make: Callable[[], Any]) -> Any:
    """What ``path`` holds, made first if it is not there: plain values and tensors."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensor_file(path, KIND, 1, {"content": make()})
    return read_tensor_file(path, KIND, 1)["content"]


class Seen(Drives):
    """The decisions of an arm's drives, with gap and age of each."""

    def __init__(self, arm: Arm, experiment: Experiment = CARRACING) -> None:
        capacity = experiment.rounds * experiment.each * experiment.decisions
        super().__init__(capacity, replace(experiment.view, frames=arm.frames))
        self.times = np.empty((len(self.starts), 2), np.float32)
        self.labels = self.labels[:, : experiment.outputs]

    def add_all(self, drives: Iterable[tuple[LabelledDrive, NDArray[np.float32]]]) -> None:
        for drive, times in drives:
            self.times[self.count : self.count + len(times)] = times
            self.add(drive)

    def plain(self) -> list[Any]:
        """For a file."""
        arrays = self.frames, self.labels, self.t, self.starts, self.times
        return [self.edges, *(torch.from_numpy(part[: self.count].copy()) for part in arrays)]

    def restore(self, plain: Sequence[Any]) -> None:
        """Become those of ``plain``."""
        self.edges, *stored = plain
        for array, part in zip((self.frames, self.labels, self.t, self.starts, self.times), stored, strict=True):
            array[: self.count] = part.numpy()


def tracks_of(seed: int, number: int, experiment: Experiment = CARRACING) -> range:
    """The same for all arms, and no other training seed's."""
    first = experiment.training.start + (seed * experiment.rounds + number) * experiment.each
    return range(first, first + experiment.each)


def draw_camera(rng: np.random.Generator) -> CameraNoise:
    """What is wrong with the camera of a drive that is learnt from."""
    return WORST.draw(rng) if rng.random() < DRAWN else ALL


def label(track: int, agent: Agent, beta: float) -> tuple[LabelledDrive, NDArray[np.float32]]:
    """The drive of ``track`` by the agent and for a share ``beta`` by the teacher, as the agent saw it: it is asked at
    every decision, and those at which it holds its action are left out. Beside it gap and age, [N, 2].
    """
    rng, experiment = np.random.default_rng([track, 5]), agent.experiment
    camera, noise = draw_camera(rng), STEERING_NOISE * (track % 2)
    teacher = load_expert(experiment.teacher, discrete_only=False)
    drive = experiment.drive(camera=camera, steering_noise=noise, beta=beta, expert=experiment.teacher)
    frames, labels, t, times = [], [], [], []
    with env_pool(experiment).open(drive, agent, track, expert=teacher, rng=rng) as opened:
        for tick in supervised(opened):
            assert tick.expert is not None
            if not tick.held:
                frames.append(experiment.view.small(experiment.seen(tick.frame))[0])
                labels.append(experiment.label(tick.expert))
                t.append(agent.t_s)
                times.append(agent.times)
    arrays = np.stack(frames), np.array(labels, np.float32), np.array(t)
    return LabelledDrive(*arrays, tick.episode_return, finished=False), np.stack(times)


def collect(net: ArmNet, seed: int, number: int) -> list[tuple[LabelledDrive, NDArray[np.float32]]]:
    """The drives of a round."""
    beta = BETA * 0.5 ** (number - 1) if number else 1.0

    def drive(track: int, ask: Callable[[Question], Any]) -> tuple[LabelledDrive, NDArray[np.float32]]:
        return label(track, Agent(net.arm, ask, net.experiment), beta)

    return env_pool(net.experiment).drive(drive, tracks_of(seed, number, net.experiment), net)


# ------------------------------------------------------------------------------------------------------------ training


class Training:
    """An arm's training with a seed, round by round."""

    def __init__(self, arm: Arm, seed: int, experiment: Experiment = CARRACING) -> None:
        seed_everything(seed)
        self.experiment, self.seed, self.rng = experiment, seed, np.random.default_rng([seed, 11])
        self.net, self.average = ArmNet(arm, experiment), ArmNet(arm, experiment).eval()
        self.average.load_state_dict(self.net.state_dict())
        self.optimiser = torch.optim.Adam(self.net.parameters(), lr=RATES[0])
        self.seen = Seen(arm, experiment)
        self.losses: list[float] = []
        self.returns: list[int] = []
        self.seconds = 0.0

    def round(self) -> None:
        """Drive, and learn from all that was labelled."""
        began, number, experiment = time.process_time(), len(self.returns), self.experiment
        drives = collect(self.average, self.seed, number)
        self.seen.add_all(drives)
        self.returns.append(round(float(np.mean([drive.episode_return for drive, _ in drives]))))
        for _ in range(experiment.steps + experiment.last_steps * (number == experiment.rounds - 1)):
            share = len(self.losses) / max(experiment.rounds * experiment.steps + experiment.last_steps - 1, 1)
            rate = RATES[1] + (RATES[0] - RATES[1]) * (1 + math.cos(math.pi * share)) / 2
            self.optimiser.param_groups[0]["lr"] = rate
            self.losses.append(learn(self.net, self.seen, self.optimiser, self.rng))
            # The first weights are forgotten faster.
            keep = min(KEEP, len(self.losses) / (len(self.losses) + 10))
            with torch.no_grad():
                for mean, new in zip(self.average.parameters(), self.net.parameters(), strict=True):
                    mean.lerp_(new, 1 - keep)
        self.seconds += time.process_time() - began

    def state(self) -> dict[str, Any]:
        """All that the further rounds depend on, for a file."""
        parts = {name: getattr(self, name).state_dict() for name in ("net", "average", "optimiser")}
        progress = [self.losses, self.returns, self.seconds, json.dumps(self.rng.bit_generator.state)]
        return {**parts, "seen": self.seen.plain(), "progress": progress}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from ``state``."""
        for name in ("net", "average", "optimiser"):
            getattr(self, name).load_state_dict(state[name])
        self.seen.restore(state["seen"])
        self.losses, self.returns, self.seconds, drawn = state["progress"]
        self.rng.bit_generator.state = json.loads(drawn)

    def about(self) -> dict[str, Any]:
        """What is known of it."""
        return {
            "parameters": sum(part.numel() for part in self.net.parameters()), "decisions": self.seen.count,
            "driven": self.returns, "loss": float(f"{np.mean(self.losses[-200:]):.4g}"),
            "seconds": round(self.seconds),
        }  # fmt: skip


def train(arm: Arm, seed: int, checkpoint: Path, experiment: Experiment = CARRACING) -> list[Any]:
    """The averaged weights after the last minibatch, and what is known of them; ``checkpoint`` is of the last whole
    round, from which it goes on.
    """
    training = Training(arm, seed, experiment)
    if checkpoint.exists():
        training.restore(read_tensor_file(checkpoint, KIND, 1)["content"])
    while len(training.returns) < experiment.rounds:
        training.round()
        write_tensor_file(checkpoint, KIND, 1, {"content": training.state()})
        print(f"{checkpoint.stem}: drives {training.returns}, {training.seconds:.0f} s", flush=True)
    return [training.average.state_dict(), training.about()]


def learn(net: ArmNet, seen: Seen, optimiser: torch.optim.Optimizer, rng: np.random.Generator) -> float:
    """One minibatch; returns its loss."""
    position, _, trained = seen.pieces(rng, BATCH // LENGTH, LENGTH, WINDOW)
    labels = torch.from_numpy(seen.labels[position[trained]])
    sharp = torch.tensor(SHARPNESS[: net.experiment.outputs])
    loss = F.huber_loss(predict(net, seen, position, trained) * sharp, labels * sharp, delta=HUBER)
    optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimiser.step()
    return float(loss.detach())


def predict(net: ArmNet, seen: Seen, position: NDArray[np.int64], trained: NDArray[np.bool_]) -> Tensor:
    """[N, outputs] of the trained decisions of pieces."""
    wanted = position[trained] if net.memory is None else position.reshape(-1)
    features = net.features(seen.stacks(wanted), torch.from_numpy(seen.times[wanted]))
    if net.memory is not None:
        t = torch.from_numpy(seen.t[position])
        features = net.memory.at(features.view(*position.shape, -1), t, torch.from_numpy(trained))
    scores: Tensor = net.head(features)
    return scores


# ------------------------------------------------------------------------------------------------------------- judging


def judge_laps(net: ArmNet, tracks: range) -> dict[str, list[float]]:
    """Scores of the tracks through each camera."""
    scores = {}
    for name, camera in net.experiment.laps.items():
        how = net.experiment.drive(camera=camera)

        def drive(track: int, ask: Callable[[Question], Any], how: Drive = how) -> float:
            with env_pool(net.experiment).open(how, Agent(net.arm, ask, net.experiment), track) as opened:
                return net.experiment.score(opened)

        laps = env_pool(net.experiment).drive(drive, sorted(tracks), net)
        scores[name] = [round(score, 1 if net.experiment.speed_mph is None else 3) for score in laps]
    return scores


@dataclass(frozen=True)
class Route:
    """What the teacher did on a track, and where an event happens: once in a bend, once on a straight."""

    track: int
    actions: NDArray[np.float32]
    poses: NDArray[np.float64]
    """x, y, heading before each decision."""
    bend: int
    straight: int

    def plain(self) -> list[Any]:
        """For a file."""
        return [self.track, torch.from_numpy(self.actions), torch.from_numpy(self.poses), self.bend, self.straight]

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Route:
        """Of ``plain``."""
        track, actions, poses, bend, straight = plain
        return cls(track, actions.numpy(), poses.numpy(), bend, straight)


def pose_of(info: Any) -> tuple[float, float, float]:
    return info["x_m"], info["y_m"], info["heading_rad"]


def make_routes(first: int, experiment: Experiment = CARRACING) -> list[Route]:
    """The places of the events, on the tracks from ``first`` on that have a bend and a straight."""
    env, teacher, routes = experiment.make_env(), load_expert(experiment.teacher, discrete_only=False), []
    track = first
    while len(routes) < PLACES // 2:
        frame, info = env.reset(seed=track)
        teacher.reset(env)
        pedals = Pedals(experiment)
        actions, poses = [], []
        for _ in range(120):
            poses.append(pose_of(info))
            actions.append(env.native_action(pedals(teacher.act(frame, info), info)))
            frame, _, ended, truncated, info = env.step(actions[-1])
            if ended or truncated:
                break
        heading = np.unwrap(np.array(poses)[:, 2])
        at = np.arange(25, len(heading) - SECOND)
        turn = np.abs(heading[at + SECOND] - heading[at])
        rng = np.random.default_rng([track, 3])
        places = [at[turn > experiment.turns[0]], at[turn < experiment.turns[1]]]
        if all(map(len, places)):
            bend, straight = (int(rng.choice(where)) for where in places)
            routes.append(Route(track, np.array(actions), np.array(poses), bend, straight))
        track += 1
    return routes


def judge_events(net: ArmNet, routes: Sequence[Route]) -> dict[str, list[list[float]]]:
    """Of each event, in bends and on straights: metres between the car and its twin, across the road.

    Raises:
        RuntimeError: if the simulator does not come to the same state again.
    """
    apart: dict[str, list[list[float]]] = {name: [[], []] for name in EVENTS}
    env = net.experiment.make_env()
    for route in routes:
        agent = Agent(net.arm, lambda question: decide(net, [question])[0], net.experiment)
        agent.reset(None)
        pedals = Pedals(net.experiment)
        frame, info = env.reset(seed=route.track)
        places = sorted([(route.bend, 0), (route.straight, 1)])
        for k in range(places[-1][0] + 1):
            for where in [kind for at, kind in places if at == k]:
                if not np.array_equal(pose_of(info), route.poses[k]):
                    raise RuntimeError(f"track {route.track} was not repeated exactly at decision {k}")
                for name, metres in event_offsets(env, agent, pedals, frame, info, route.track * 2 + where).items():
                    apart[name][where].append(metres)
            near = min((at - k for at, _ in places if at >= k), default=0)
            if near <= WINDOW:
                agent.act(frame, info)
            else:
                agent.reset(None)
            # The speed is kept on the way, too: it takes up what was added up.
            pedals(Action(float(route.actions[k][0]), 0.0, 0.0), info)
            frame, _, _, _, info = env.step(route.actions[k])
    return apart


def event_offsets(
    env: DrivingEnv, agent: Agent, pedals: Pedals, frame: Frame, info: Any, seed: int
) -> dict[str, float]:
    """What each event does to the car at this very state: every branch is driven by a copy of this process."""
    twin = in_a_copy(lambda: offsets(env, agent, pedals, frame, info, CameraNoise(), 0, STRETCH + SECOND, seed))
    result = {}
    for name, (noise, steps) in EVENTS.items():

        def disturbed(noise: CameraNoise = noise, steps: int = steps) -> list[float]:
            return offsets(env, agent, pedals, frame, info, noise, steps, steps + SECOND, seed)

        metres = abs(in_a_copy(disturbed)[-1] - twin[steps + SECOND - 1])
        result[name] = round(min(metres, agent.experiment.farthest_m), agent.experiment.digits)
    return result


def offsets(
    env: DrivingEnv,
    agent: Agent,
    pedals: Pedals,
    frame: Frame,
    info: Any,
    noise: CameraNoise,
    steps: int,
    count: int,
    seed: int,
) -> list[float]:
    """Metres from the middle of the road after each of ``count`` decisions, the first ``steps`` seen through
    ``noise``; it changes ``env``, ``agent`` and ``pedals``.
    """
    camera = Camera(CameraNoise())
    camera.reset(seed)
    metres = []
    for k in range(count):
        camera.change(noise if k < steps else CameraNoise())
        seen = camera(frame, info["t_s"])
        taken = {"frame_t_s": camera.taken_s} if camera.disturbance.irregular else {}
        action = pedals(agent.act(seen, {**info, **taken}), info)
        frame, _, ended, truncated, info = env.step(env.native_action(action))
        metres.append(float(info["lane_offset_m"]))
        if ended or truncated:
            break
    return metres + metres[-1:] * (count - len(metres))


def in_a_copy(work: Callable[[], list[float]]) -> list[float]:
    """``work()`` by a fork of this process, which is left as it is: the simulator's state cannot be saved."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.write(writer, json.dumps(work()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        answer = answers.read()
    _, failed = os.waitpid(child, 0)
    if failed:
        raise RuntimeError("a branch of an event has failed")
    return [float(value) for value in json.loads(answer)]


# ------------------------------------------------------------------------------------------------------------- results


def prepare() -> None:
    """Of a process that trains and judges."""
    torch.set_num_threads(1)
    # Threads do not survive the fork of ``in_a_copy``.
    cv2.setNumThreads(0)
    register_layers()


def measured(job: tuple[str, Path, str, int, bool]) -> dict[str, Any]:
    """One agent, trained if it is not yet, judged by events and laps."""
    env, out, name, seed, validation = job
    experiment = EXPERIMENTS[env]
    agent, checkpoint = out / f"{name}-seed-{seed}.pt", out / f"{name}-seed-{seed}.ckpt"
    weights, about = kept(agent, lambda: train(ARMS[name], seed, checkpoint, experiment))
    checkpoint.unlink(missing_ok=True)
    net = ArmNet(ARMS[name], experiment).eval()
    net.load_state_dict(weights)
    began = time.process_time()
    tracks = experiment.validation if validation else experiment.test
    file = out / f"routes-{tracks.start}.pt"
    places = kept(file, lambda: [route.plain() for route in make_routes(tracks.start, experiment)])
    routes = [Route.of(plain) for plain in places]
    half = tracks.start + LAPS_FROM
    row = {
        "memory": name, "seed": seed, **about,
        "laps": judge_laps(net, range(half, half + experiment.tracks)), "events": judge_events(net, routes),
    }  # fmt: skip
    return {**row, "judged_s": round(time.process_time() - began)}


def ordered(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in the order of ``ARMS``."""
    return sorted(rows, key=lambda row: list(ARMS).index(row["memory"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="carracing", choices=list(EXPERIMENTS))
    parser.add_argument("--out", type=Path, help="runs/memory-table, or runs/memory-table-udacity-track")
    parser.add_argument("--results", type=Path, help="a line per agent; in docs/results/table if not given")
    parser.add_argument("--memories", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(10)))
    parser.add_argument("--validate", action="store_true", help="judge on validation tracks")
    parser.add_argument("--show", action="store_true", help="print the tables, and do nothing else")
    parser.add_argument("--less", choices=list(ARMS), help="print each arm less this one, and do nothing else")
    parser.add_argument("--workers", type=int, default=1, help="agents at a time, a process each")
    options = parser.parse_args()
    experiment = EXPERIMENTS[options.env]
    out = options.out or Path("runs/memory-table" + "-udacity-track" * (experiment is UDACITY))
    results = options.results or Path("docs/results/table", experiment.results)
    results = out / "validation.jsonl" if options.validate else results
    if (options.show or options.less) and not results.is_file():
        raise SystemExit(f"there is no {results}: call this from the repository, or name the file with --results.")
    if options.less is not None:
        print("\n".join(less(ordered(read(results)), options.less, experiment)))
        return
    there = {(row["memory"], row["seed"]) for row in read(results)}
    cells = [(name, seed) for seed in options.seeds for name in options.memories]
    jobs = [(experiment.env, out, *cell, options.validate) for cell in cells if cell not in there and not options.show]
    for _, row in run_jobs(measured, jobs, workers=options.workers, initializer=prepare):
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        shown = ", ".join(f"{lap} {score(row, 'laps', lap):{experiment.decimals('laps')}}" for lap in experiment.laps)
        shown += "; " + ", ".join(f"{event} {score(row, 'events', event):.2f}" for event in EVENTS)
        print(f"{row['memory']}, seed {row['seed']}, {row['seconds']} + {row['judged_s']} s: {shown}", flush=True)
    print("\n".join(tables(ordered(read(results)), experiment)))


if __name__ == "__main__":
    main()
