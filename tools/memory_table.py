r"""Is a NAC the memory to drive with? Arms that differ in it alone: CarRacing with hidden speed, Udacity roads.

    OMP_NUM_THREADS=1 python tools/memory_table.py --workers 2      # trains, judges; goes on where it was stopped
    OMP_NUM_THREADS=1 python tools/memory_table.py --show           # the tables of the lines that are there
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
from numpy.typing import NDArray
from roads_curve import read
from torch import Tensor, nn
from torch.nn import functional as F

from nacdrive.common.action import Action
from nacdrive.common.parallel import run_jobs
from nacdrive.common.runs import seed_everything
from nacdrive.common.statistics import LEVEL, summary
from nacdrive.common.tensor_file import read_tensor_file, write_tensor_file
from nacdrive.common.units import MPS_PER_MPH
from nacdrive.drivers import load_expert
from nacdrive.drivers.base import Driver, DriverState, Needs
from nacdrive.drivers.ppo import steering_and_pedal
from nacdrive.drivers.speed_control import SpeedController
from nacdrive.drivers.tick import Tick
from nacdrive.envs.base import DrivingEnv, DrivingWrapper, Frame, Info
from nacdrive.envs.camera_noise import Camera, CameraNoise, NoisyCamera
from nacdrive.envs.seeds import EXPERT_TEST, EXPERT_TRAINING, EXPERT_VALIDATION, POLICY_RECORDING, POLICY_TEST
from nacdrive.layers.attention import MHALayer
from nacdrive.layers.base import SequenceLayer
from nacdrive.layers.registry import LAYERS, register
from nacdrive.models.agents.cockpit import CockpitNet
from nacdrive.models.agents.memory import Memory, MemorySpec, MemoryState
from nacdrive.models.agents.view import FrameStack, View
from nacdrive.rl.imitate import Drives, LabelledDrive, label_of
from nacdrive.rollout.batched_inference import drive_batched
from nacdrive.rollout.dagger import supervised
from nacdrive.rollout.drive import Drive, LoadedDrive, OpenDrive
from nacdrive.tasks.carracing import HUBER, SHARPNESS

R = TypeVar("R")
REPEAT, GAP_S, WINDOW, WIDTH, HEADS = 4, 0.08, 12, 64, 4
"""Frames for which an action is held, the seconds of that, and the memory: decisions, width, heads."""
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
    """Attention whose tokens bear when they were: sines and cosines of the time, as many as nac-key has."""

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
OURS, RIVALS = "nac-key", ("lstm", "gru", "cfc", "stack", "hold", "nac-key-no-circuit")
PRIMARY = (("laps", "all"), ("events", "unequal gaps"))
"""Registered: nac-key minus each of its rivals, on these."""
ALL = CameraNoise(blackout=0.06, blackout_steps=4, dropped=0.1)
UNEQUAL = CameraNoise(dropped=0.5, late=5)
DRAWN, WORST = 0.25, CameraNoise(blackout=0.06, blackout_steps=8, dropped=0.5, late=5)
"""Share of the drives that are learnt from whose camera is drawn, each disturbance at most as strong as here; that of
the others is ``ALL``."""
STRETCH = 12
EVENTS = {
    **{f"{steps} black": (CameraNoise(blackout=1.0), steps) for steps in (1, 2, 4, 8)},
    "30 % lost": (CameraNoise(dropped=0.3), STRETCH),
    "50 % lost": (CameraNoise(dropped=0.5), STRETCH),
    "up to 4 late": (CameraNoise(late=4), STRETCH),
    "unequal gaps": (UNEQUAL, STRETCH),
}
"""What happens to the camera, and for how many decisions."""
SECOND = 13
"""Decisions after which the twins are compared."""
PLACES = 64
"""Half of them in bends, two a track; with all events: 512 an agent."""
LAPS_FROM = 50
"""The first of the tracks for laps, after so many for events."""


@dataclass(frozen=True, eq=False)
class World:
    """Where the arms drive, and how they are taught and judged there."""

    env: str
    options: dict[str, Any]
    teacher: str
    view: View
    rows: tuple[int, int | None]
    """Of a frame that are seen."""
    outputs: int
    """Steering, and the pedal where no speed is kept."""
    training: range
    validation: range
    test: range
    """Tracks; the first of the last two are those of the events."""
    laps: dict[str, CameraNoise]
    turns: tuple[float, float]
    """Radians by which the road turns within a second in a bend at least, on a straight at most."""
    farthest_m: float
    """Twins farther apart, and cars farther from the middle, count as so far."""
    results: str
    tracks: int = 50
    """Of the laps."""
    rounds: int = 8
    each: int = 20
    """Drives of a round."""
    steps: int = 400
    last_steps: int = 800
    """Minibatches after a round, and after the last one on top."""
    decisions: int = 250
    """Of a drive at most."""
    speed_mph: float | None = None
    """That is kept."""
    track: str | None = None
    digits: int = 2
    """Of the metres of an event."""

    def drive(self, **how: Any) -> Drive:
        """A drive of an agent; ``how`` are further fields."""
        options = {**self.options, "repeat": REPEAT, "max_frames": self.decisions * REPEAT}
        same = {"env": self.env, "track": self.track, "speed_mph": self.speed_mph, "options": options}
        return Drive(**same, safety_stop=False, recover=False, **how)

    def make_env(self) -> DrivingEnv:
        """Its environment, through a good camera."""
        drive = self.drive()
        steering = {"continuous": True} if drive.env_spec.actions else {}
        return drive.env_spec.make({**drive.options, "track": self.track, **steering})

    def seen(self, frame: Frame) -> Frame:
        """The rows of ``frame`` that are seen."""
        return frame[slice(*self.rows)]

    def action(self, row: NDArray[np.float32]) -> Action:
        """What an agent's outputs mean."""
        return steering_and_pedal(row) if self.outputs == 2 else Action(float(np.clip(row[0], -1, 1)), 0.0, 0.0)

    def label(self, action: Action) -> tuple[float, ...]:
        """The outputs that ``action`` of the teacher asks for."""
        return label_of(action) if self.outputs == 2 else (action.steering,)

    def score(self, lap: Iterable[Tick]) -> float:
        """Its return or, where a speed is kept, the mean distance from the middle of the road, metres; a car that has
        left the field counts as farthest away from then on.
        """
        metres = np.full(self.decisions, self.farthest_m)
        for tick in lap:
            metres[tick.step] = min(abs(tick.next_info["lane_offset_m"]), self.farthest_m)
        return tick.episode_return if self.speed_mph is None else float(metres.mean())

    def decimals(self, what: str) -> str:
        """How a score is printed: returns are whole points."""
        return ".0f" if what == "laps" and self.speed_mph is None else f".{self.digits}f"


CARRACING = World(
    env="carracing",
    options={"renderer": "fast"},
    teacher="nacdrive.drivers.racing_line:cautious",
    view=View(frames=1, height=42, width=48),
    rows=(0, None),
    outputs=2,
    training=EXPERT_TRAINING,
    validation=EXPERT_VALIDATION,
    test=EXPERT_TEST,
    laps={"all": ALL, "unequal gaps": UNEQUAL, "hidden speed": CameraNoise()},
    turns=(0.7, 0.15),
    farthest_m=13.3,
    results="memory_arms.jsonl",
)
UDACITY = World(
    env="udacity-track",
    options={"start_speed": 11.0},
    teacher="geometric",
    view=View(frames=1, height=27, width=72, rows=None),
    rows=(60, 135),
    outputs=1,
    training=POLICY_RECORDING,
    validation=range(3_390_000, 3_391_000),
    test=range(POLICY_TEST.start + 7_000, POLICY_TEST.start + 8_000),
    laps={"all": ALL, "unequal gaps": UNEQUAL, "undisturbed": CameraNoise()},
    turns=(0.35, 0.05),
    farthest_m=4.5,
    results="memory_arms_udacity.jsonl",
    decisions=200,
    tracks=40,
    speed_mph=25.0,
    track="random",
    digits=3,
)
WORLDS = {world.env: world for world in (CARRACING, UDACITY)}


class Pedals:
    """Those of a speed that is kept, for the drives that no ``Drive`` describes; an agent's own where there is none."""

    def __init__(self, world: World) -> None:
        mph = world.speed_mph
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

    def __init__(self, arm: Arm, world: World = CARRACING) -> None:
        super().__init__()
        self.arm, self.world = arm, world
        self.vision = CockpitNet(replace(world.view, frames=arm.frames), channels=(16, 32, 32))
        features = self.vision.head.in_features + 2
        self.vision.head = nn.Identity()  # type: ignore[assignment]
        self.vision = self.vision.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        spec = None if arm.layer is None else MemorySpec(arm.layer, WINDOW, WIDTH, HEADS, GAP_S, arm.options)
        self.memory = None if spec is None else Memory(spec, features)
        self.head = nn.Linear(features if self.memory is None else self.memory.out_features, world.outputs)

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

    def __init__(self, arm: Arm, ask: Callable[[Question], Any], world: World = CARRACING) -> None:
        self.arm, self.ask, self.world = arm, ask, world
        self.stack = FrameStack(replace(world.view, frames=arm.frames))

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
            row, self.memory = self.ask((self.stack.push(self.world.seen(frame)).copy(), self.times, t_s, self.memory))
            self.last = self.world.action(row)
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


ALONE = threading.RLock()


class Alone(DrivingWrapper):
    """An environment beside which no other one draws: Panda3D may be used by one thread at a time."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, Any]:
        with ALONE:
            return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Frame, SupportsFloat, bool, bool, Any]:
        with ALONE:
            return self.env.step(action)


class Garage:
    """Environments of a world for drives side by side, used again and again: what Panda3D made is freed in no thread of
    its own, which is why the collector of cycles runs in ``drive`` alone.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.free: list[Alone] = []

    def drive(self, job: Callable[[int, Any], R], tracks: Iterable[int], net: ArmNet) -> list[R]:
        """What ``job(track, ask)`` returns for each track, in their order, ``net`` deciding for all at once."""
        gc.collect()
        gc.disable()
        try:
            return drive_batched(job, tracks, lambda asked: decide(net, asked))
        finally:
            gc.enable()

    @contextmanager
    def open(self, drive: Drive, agent: Agent, track: int, **how: Any) -> Iterator[OpenDrive]:
        """``LoadedDrive.open``; ``how`` are its further arguments, or its expert."""
        with ALONE:
            alone = self.free.pop() if self.free else Alone(self.world.make_env())
        env = NoisyCamera(alone, drive.camera) if drive.camera.active else alone
        try:
            yield LoadedDrive(drive, driver=agent, expert=how.pop("expert", None)).open(track, env=env, **how)
        finally:
            self.free.append(alone)


@cache
def garage(world: World) -> Garage:
    """That of this process."""
    return Garage(world)


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

    def __init__(self, arm: Arm, world: World = CARRACING) -> None:
        super().__init__(world.rounds * world.each * world.decisions, replace(world.view, frames=arm.frames))
        self.times = np.empty((len(self.starts), 2), np.float32)
        self.labels = self.labels[:, : world.outputs]

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


def tracks_of(seed: int, number: int, world: World = CARRACING) -> range:
    """The same for all arms, and no other training seed's."""
    first = world.training.start + (seed * world.rounds + number) * world.each
    return range(first, first + world.each)


def draw_camera(rng: np.random.Generator) -> CameraNoise:
    """What is wrong with the camera of a drive that is learnt from."""
    return WORST.draw(rng) if rng.random() < DRAWN else ALL


def label(track: int, agent: Agent, beta: float) -> tuple[LabelledDrive, NDArray[np.float32]]:
    """The drive of ``track`` by the agent and for a share ``beta`` by the teacher, as the agent saw it: it is asked at
    every decision, and those at which it holds its action are left out. Beside it gap and age, [N, 2].
    """
    rng, world = np.random.default_rng([track, 5]), agent.world
    camera, noise = draw_camera(rng), STEERING_NOISE * (track % 2)
    teacher = load_expert(world.teacher, discrete_only=False)
    drive = world.drive(camera=camera, steering_noise=noise, beta=beta, expert=world.teacher)
    frames, labels, t, times = [], [], [], []
    with garage(world).open(drive, agent, track, expert=teacher, rng=rng) as opened:
        for tick in supervised(opened):
            assert tick.expert is not None
            if not tick.held:
                frames.append(world.view.small(world.seen(tick.frame))[0])
                labels.append(world.label(tick.expert))
                t.append(agent.t_s)
                times.append(agent.times)
    arrays = np.stack(frames), np.array(labels, np.float32), np.array(t)
    return LabelledDrive(*arrays, tick.episode_return, finished=False), np.stack(times)


def collect(net: ArmNet, seed: int, number: int) -> list[tuple[LabelledDrive, NDArray[np.float32]]]:
    """The drives of a round."""
    beta = BETA * 0.5 ** (number - 1) if number else 1.0

    def drive(track: int, ask: Callable[[Question], Any]) -> tuple[LabelledDrive, NDArray[np.float32]]:
        return label(track, Agent(net.arm, ask, net.world), beta)

    return garage(net.world).drive(drive, tracks_of(seed, number, net.world), net)


# ------------------------------------------------------------------------------------------------------------ training


class Training:
    """An arm's training with a seed, round by round."""

    def __init__(self, arm: Arm, seed: int, world: World = CARRACING) -> None:
        seed_everything(seed)
        self.world, self.seed, self.rng = world, seed, np.random.default_rng([seed, 11])
        self.net, self.average = ArmNet(arm, world), ArmNet(arm, world).eval()
        self.average.load_state_dict(self.net.state_dict())
        self.optimiser = torch.optim.Adam(self.net.parameters(), lr=RATES[0])
        self.seen = Seen(arm, world)
        self.losses: list[float] = []
        self.returns: list[int] = []
        self.seconds = 0.0

    def round(self) -> None:
        """Drive, and learn from all that was labelled."""
        began, number, world = time.process_time(), len(self.returns), self.world
        drives = collect(self.average, self.seed, number)
        self.seen.add_all(drives)
        self.returns.append(round(float(np.mean([drive.episode_return for drive, _ in drives]))))
        for _ in range(world.steps + world.last_steps * (number == world.rounds - 1)):
            share = len(self.losses) / max(world.rounds * world.steps + world.last_steps - 1, 1)
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


def train(arm: Arm, seed: int, checkpoint: Path, world: World = CARRACING) -> list[Any]:
    """The averaged weights after the last minibatch, and what is known of them; ``checkpoint`` is of the last whole
    round, from which it goes on.
    """
    training = Training(arm, seed, world)
    if checkpoint.exists():
        training.restore(read_tensor_file(checkpoint, KIND, 1)["content"])
    while len(training.returns) < world.rounds:
        training.round()
        write_tensor_file(checkpoint, KIND, 1, {"content": training.state()})
        print(f"{checkpoint.stem}: drives {training.returns}, {training.seconds:.0f} s", flush=True)
    return [training.average.state_dict(), training.about()]


def learn(net: ArmNet, seen: Seen, optimiser: torch.optim.Optimizer, rng: np.random.Generator) -> float:
    """One minibatch; returns its loss."""
    position, _, trained = seen.pieces(rng, BATCH // LENGTH, LENGTH, WINDOW)
    labels = torch.from_numpy(seen.labels[position[trained]])
    sharp = torch.tensor(SHARPNESS[: net.world.outputs])
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
    for name, camera in net.world.laps.items():
        how = net.world.drive(camera=camera)

        def drive(track: int, ask: Callable[[Question], Any], how: Drive = how) -> float:
            with garage(net.world).open(how, Agent(net.arm, ask, net.world), track) as opened:
                return net.world.score(opened)

        laps = garage(net.world).drive(drive, sorted(tracks), net)
        scores[name] = [round(score, 1 if net.world.speed_mph is None else 3) for score in laps]
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


def make_routes(first: int, world: World = CARRACING) -> list[Route]:
    """The places of the events, on the tracks from ``first`` on that have a bend and a straight."""
    env, teacher, routes = world.make_env(), load_expert(world.teacher, discrete_only=False), []
    track = first
    while len(routes) < PLACES // 2:
        frame, info = env.reset(seed=track)
        teacher.reset(env)
        pedals = Pedals(world)
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
        places = [at[turn > world.turns[0]], at[turn < world.turns[1]]]
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
    env = net.world.make_env()
    for route in routes:
        agent = Agent(net.arm, lambda question: decide(net, [question])[0], net.world)
        agent.reset(None)
        pedals = Pedals(net.world)
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
        result[name] = round(min(metres, agent.world.farthest_m), agent.world.digits)
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
    world = WORLDS[env]
    agent, checkpoint = out / f"{name}-seed-{seed}.pt", out / f"{name}-seed-{seed}.ckpt"
    weights, about = kept(agent, lambda: train(ARMS[name], seed, checkpoint, world))
    checkpoint.unlink(missing_ok=True)
    net = ArmNet(ARMS[name], world).eval()
    net.load_state_dict(weights)
    began = time.process_time()
    tracks = world.validation if validation else world.test
    file = out / f"routes-{tracks.start}.pt"
    places = kept(file, lambda: [route.plain() for route in make_routes(tracks.start, world)])
    routes = [Route.of(plain) for plain in places]
    half = tracks.start + LAPS_FROM
    row = {
        "memory": name, "seed": seed, **about,
        "laps": judge_laps(net, range(half, half + world.tracks)), "events": judge_events(net, routes),
    }  # fmt: skip
    return {**row, "judged_s": round(time.process_time() - began)}


def score(row: dict[str, Any], what: str, name: str) -> float:
    """An agent's mean return of laps, or its mean metres of an event, the lower the better."""
    return float(np.mean(row[what][name]))


def by_seed(rows: Sequence[dict[str, Any]], memory: str, what: str, name: str) -> dict[int, float]:
    """Training seed -> score."""
    return {row["seed"]: score(row, what, name) for row in rows if row["memory"] == memory}


def compare(rows: Sequence[dict[str, Any]], ours: str, theirs: str, what: str, name: str) -> dict[str, Any]:
    """Mean difference over the training seeds that both have, Student's 95 % interval and p; None for one seed."""
    from scipy.stats import t

    a, b = by_seed(rows, ours, what, name), by_seed(rows, theirs, what, name)
    seeds = sorted(a.keys() & b.keys())
    differences = np.array([a[seed] - b[seed] for seed in seeds])
    result: dict[str, Any] = {"value": float(differences.mean()), "seeds": len(seeds), "interval95": None, "p": None}
    if len(seeds) > 1:
        error = max(float(differences.std(ddof=1)) / math.sqrt(len(seeds)), 1e-12)
        half = float(t.ppf(1 - (1 - LEVEL) / 2, len(seeds) - 1)) * error
        result["interval95"] = [result["value"] - half, result["value"] + half]
        result["p"] = float(2 * t.sf(abs(result["value"]) / error, len(seeds) - 1))
    return result


def holm(values: Sequence[float]) -> list[float]:
    """p values after Holm (1979)."""
    adjusted, largest = [0.0] * len(values), 0.0
    for rank, k in enumerate(np.argsort(values)):
        largest = max(largest, min(1.0, (len(values) - rank) * values[k]))
        adjusted[k] = largest
    return adjusted


def primary(rows: Sequence[dict[str, Any]], world: World = CARRACING) -> Iterator[str]:
    """The registered comparisons, as Markdown."""
    there = {row["memory"] for row in rows}
    pairs = [(*where, rival) for where in PRIMARY for rival in RIVALS if {OURS, rival} <= there]
    results = [compare(rows, OURS, rival, what, name) for what, name, rival in pairs]
    known = [result["p"] for result in results]
    adjusted = holm(known) if known and None not in known else [None] * len(known)
    yield from ("| on | difference | mean [95 % over training seeds] | seeds | p | p after Holm |", "|---" * 6 + "|")
    for (what, name, rival), result, p in zip(pairs, results, adjusted, strict=True):
        shown = "| - | - |" if p is None else f"| {result['p']:.3g} | {p:.3g} |"
        yield f"| {what}, {name} | {OURS} - {rival} | {between(result, what, world)} | {result['seeds']} {shown}"


def between(result: dict[str, Any], what: str, world: World) -> str:
    """A difference with its interval."""
    places = world.decimals(what)
    if result["interval95"] is None:
        return f"{result['value']:+{places}}"
    low, high = result["interval95"]
    return f"{result['value']:+{places}} [{low:+{places}}, {high:+{places}}]"


def tables(rows: Sequence[dict[str, Any]], world: World = CARRACING) -> list[str]:
    """Markdown: the registered comparisons, then every arm's score: mean and standard deviation over seeds."""
    names = [name for name in ARMS if any(row["memory"] == name for row in rows)]
    lines = [*primary(rows, world), ""]
    for what, columns in (("laps", list(world.laps)), ("events", list(EVENTS))):
        lines += [
            f"| {what} | {' | '.join(columns)} | seeds | parameters | seconds |",
            "|---" * (len(columns) + 4) + "|",
        ]
        for name in names:
            of = [row for row in rows if row["memory"] == name]
            cells = []
            for column in columns:
                values = summary([score(row, what, column) for row in of])
                places = world.decimals(what)
                spread = "" if values["std"] is None else f" +- {values['std']:{places}}"
                cells.append(f"{values['mean']:{places}}{spread}")
            seconds = np.mean([row["seconds"] for row in of])
            lines += [f"| {name} | {' | '.join(cells)} | {len(of)} | {of[0]['parameters']:,} | {seconds:.0f} |"]
        lines += [""]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="carracing", choices=list(WORLDS))
    parser.add_argument("--out", type=Path, help="runs/memory-table, and -udacity-track")
    parser.add_argument("--results", type=Path, help="a line per agent; in docs/results/table if not given")
    parser.add_argument("--memories", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(10)))
    parser.add_argument("--validate", action="store_true", help="judge on validation tracks")
    parser.add_argument("--show", action="store_true", help="print the tables, and do nothing else")
    parser.add_argument("--workers", type=int, default=1, help="agents at a time, a process each")
    options = parser.parse_args()
    world = WORLDS[options.env]
    out = options.out or Path("runs/memory-table" + "-udacity-track" * (world is UDACITY))
    results = options.results or Path("docs/results/table", world.results)
    results = out / "validation.jsonl" if options.validate else results
    there = {(row["memory"], row["seed"]) for row in read(results)}
    cells = [(name, seed) for seed in options.seeds for name in options.memories]
    jobs = [(world.env, out, *cell, options.validate) for cell in cells if cell not in there and not options.show]
    for _, row in run_jobs(measured, jobs, workers=options.workers, initializer=prepare):
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        shown = ", ".join(f"{lap} {score(row, 'laps', lap):{world.decimals('laps')}}" for lap in world.laps)
        shown += "; " + ", ".join(f"{event} {score(row, 'events', event):.2f}" for event in EVENTS)
        print(f"{row['memory']}, seed {row['seed']}, {row['seconds']} + {row['judged_s']} s: {shown}", flush=True)
    print("\n".join(tables(read(results), world)))


if __name__ == "__main__":
    main()
