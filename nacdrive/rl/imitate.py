"""Teach an agent that looks what a driver that knows the track does there (Chen et al., 2019, "learning by cheating").

DAgger from pixels: the agent drives, the teacher says of every frame what it would have done, and all that was ever
labelled is learnt from. The teacher reads the simulator, so that its labels are exact in every state; the agent gets
the frames alone.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.common.files import open_log, result_folder, write_text
from nacdrive.common.runs import RUN, check_resumable, plain, seed_everything
from nacdrive.common.statistics import summary
from nacdrive.common.tensor_file import read_tensor_file, write_tensor_file
from nacdrive.drivers import load_expert
from nacdrive.drivers.base import Driver
from nacdrive.drivers.ppo import PpoExpert
from nacdrive.envs.seeds import EXPERT_TRAINING, EXPERT_VALIDATION
from nacdrive.envs.start import bad_start
from nacdrive.models.agents.cockpit import CockpitNet
from nacdrive.models.agents.memory import MemoryState
from nacdrive.models.agents.network import CARRACING, save_policy
from nacdrive.models.agents.view import View
from nacdrive.rl.config import ImitateConfig
from nacdrive.rl.recurrent_buffer import Sequences
from nacdrive.rollout.batched_inference import drive_batched
from nacdrive.rollout.dagger import LOST_AFTER, RECOVERY_S, supervised
from nacdrive.rollout.drive import Drive, LoadedDrive
from nacdrive.tasks.carracing import HUBER, MOST_STEERING, SHARPNESS
from nacdrive.training.log import read_rows

CHECKPOINT, LOG, BEST, LAST = "last.ckpt", "log.jsonl", "best.pt", "last.pt"
KIND, VERSION = "nacdrive imitation checkpoint", 1
DRIVES, DRIVES_VERSION = "nacdrive labelled drives", 2
FREE_TO_CHANGE = ("rounds", "last_steps", "eval_every", "eval_episodes")
"""Options that a resumed run may have changed: it becomes longer or shorter, and its learning rate falls to fit."""
AT_ONCE = 16
"""Drives side by side."""
TRACKS = 20_000
"""Tracks of a training seed: its share of those for experts."""

Question = tuple[NDArray[np.uint8], float, MemoryState | None]
"""Stack, seconds, and what the drive remembers."""
Answer = tuple[NDArray[np.float32], MemoryState | None]
"""Steering and pedal [2], and what is remembered next."""


@dataclass(frozen=True)
class Progress:
    """State of a training, for whoever shows it."""

    round: int
    rounds: int
    decisions: int
    """Labelled so far."""
    mean_return: float
    """Of the round's drives, teacher and disturbances included; NaN after the minibatches at the end."""
    loss: float
    seconds: float
    evaluation: dict[str, Any] | None = None


class BatchedExpert(PpoExpert):
    """An agent whose network decides for many drives at once: ``ask`` answers its questions."""

    def __init__(self, net: CockpitNet, repeat: int, ask: Callable[[Question], Answer]) -> None:
        super().__init__(net, repeat=repeat, continuous=True)
        self._ask = ask

    def logits(self, stacks: NDArray[np.uint8]) -> NDArray[np.float32]:
        """[1, *view.shape] -> [1, 2]."""
        scores, _ = self._ask((stacks[0].copy(), self._t_s, None))
        return scores[None]

    def remembered(self, stack: NDArray[np.uint8]) -> NDArray[np.float32]:
        """[1, *view.shape] -> [1, 2]; drives of different ages share a batch, so each brings its window along."""
        assert self.net.memory is not None
        state = self.net.memory.init_state(1) if self._memory is None else self._memory
        scores, self._memory = self._ask((stack[0].copy(), self._t_s, state))
        return scores[None]


def label_of(action: Action) -> tuple[float, float]:
    """(steering, pedal) of a teacher's action."""
    return max(-MOST_STEERING, min(MOST_STEERING, action.steering)), action.throttle - action.brake


@dataclass(frozen=True)
class LabelledDrive:
    """One labelled drive."""

    frames: NDArray[np.uint8]
    """[N, height, width], small."""
    labels: NDArray[np.float32]
    """[N, 2] steering and pedal."""
    t: NDArray[np.float64]
    """[N] seconds at which the frames were taken."""
    episode_return: float
    finished: bool


class Drives:
    """All that was labelled so far, in memory: each frame once, whatever number of them the agent sees at once.

    ``capacity`` is the most decisions; memory is taken only as they come.
    """

    def __init__(self, capacity: int, view: View) -> None:
        self.frames = np.empty((capacity, *view.shape[1:]), dtype=np.uint8)
        self.labels = np.empty((capacity, 2), dtype=np.float32)
        self.t = np.empty(capacity, dtype=np.float64)
        self.starts = np.empty(capacity, dtype=np.int64)
        self._back = np.arange(view.frames - 1, -1, -1)
        self.edges = [0]
        """Where each drive begins, and the last one ends."""

    @property
    def count(self) -> int:
        return self.edges[-1]

    def add(self, drive: LabelledDrive) -> None:
        begin, end = self.count, self.count + len(drive.labels)
        self.frames[begin:end], self.labels[begin:end], self.t[begin:end] = drive.frames, drive.labels, drive.t
        self.starts[begin:end] = begin
        self.edges.append(end)

    def stacks(self, which: NDArray[np.int64]) -> torch.Tensor:
        """uint8 [*which.shape, *view.shape], as ``FrameStack`` stacks them."""
        return torch.from_numpy(self.frames[np.maximum(which[..., None] - self._back, self.starts[which][..., None])])

    def sequences(
        self, rng: np.random.Generator, count: int, length: int, window: int
    ) -> tuple[Sequences, torch.Tensor]:
        """The ``pieces`` that are drawn, and the labels float32 [N, 2] of the trained decisions."""
        position, *flags = self.pieces(rng, count, length, window)
        seen = self.stacks(position), *map(torch.from_numpy, (self.t[position], *flags))
        return Sequences(*seen), torch.from_numpy(self.labels[position[flags[1]]])

    def pieces(
        self, rng: np.random.Generator, count: int, length: int, window: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
        """``count`` pieces of drives of at most ``length`` trained decisions, each with what a memory of ``window``
        decisions saw before its first one: numbers of the decisions, whether they are padding, and whether they are
        trained, [count, steps] each.

        Every decision is as likely to be trained as any other.
        """
        edges = np.array(self.edges)
        # A piece may begin before its drive and end behind it, so that the ends of drives come as often as the rest.
        each = np.diff(edges) + length - 1
        drawn = rng.integers(each.sum(), size=count)
        drive = np.searchsorted(each.cumsum(), drawn, side="right")
        begin, end = edges[drive], edges[drive + 1]
        at = begin + drawn - (each.cumsum() - each)[drive] - (length - 1)
        start, stop = np.maximum(at, begin), np.minimum(at + length, end)
        first = np.maximum(start - (window - 1), begin)
        position = first[:, None] + np.arange((stop - first).max())
        padding = position >= stop[:, None]
        position = np.minimum(position, stop[:, None] - 1)
        return position, padding, (position >= start[:, None]) & ~padding


class Imitation:
    """A training in the folder ``out``; ``run`` does what is left of it."""

    def __init__(self, config: ImitateConfig, out: Path, show: Callable[[Progress], None]) -> None:
        self.config, self.out, self.show = config, out, show
        self.view = View(frames=config.frames, height=42, width=48, instruments=config.instruments)
        frames_per_second = Drive().env_spec.frames_per_second
        assert frames_per_second is not None
        self.memory = config.memory_spec(config.repeat / frames_per_second)
        self.net = self.network()
        self.average = self.network().eval()
        self.average.load_state_dict(self.net.state_dict())
        self.optimiser = torch.optim.Adam(self.net.parameters(), lr=config.learning_rate[0])
        self.drives = Drives(config.rounds * config.episodes * config.most_decisions, self.view)
        self.rng = np.random.default_rng([config.seed, 1])
        self.round = self.step = 0
        self.began, self.earlier_s, self.best = time.monotonic(), 0.0, -math.inf

    def network(self) -> CockpitNet:
        net = CockpitNet(self.view, channels=self.config.channels, memory=self.memory)
        return net.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]

    def loaded(self, ask: Callable[[Any], Any], teacher: Driver | None = None, **how: Any) -> LoadedDrive:
        """How the agent drives; ``how`` are further fields of ``Drive``."""
        config = self.config
        same = {name: getattr(config, name) for name in ("repeat", "max_frames", "instruments", "rule")}
        drive = Drive(options={"renderer": "fast", **same}, safety_stop=False, **{"camera": config.disturbance, **how})
        return LoadedDrive(drive, driver=BatchedExpert(self.average, config.repeat, ask), expert=teacher)

    @torch.inference_mode()
    def decide(self, questions: Sequence[Question]) -> list[Answer]:
        stacks, seconds, states = zip(*questions, strict=True)
        features = self.average.features(torch.from_numpy(np.stack(stacks)))
        if self.average.memory is None:
            return [(scores, None) for scores in self.average.head(features).numpy()]
        state = MemoryState(*(torch.cat(parts) for parts in zip(*states, strict=True)))
        never = torch.zeros(len(stacks), dtype=torch.bool)
        joint, state = self.average.memory.advance(features, torch.tensor(seconds, dtype=torch.float64), never, state)
        scores = self.average.head(joint).numpy()
        return [(row, MemoryState(*(part[k, None] for part in state))) for k, row in enumerate(scores)]

    def tracks(self) -> range:
        """Seeds of the round's tracks, which no other round and no other of the first 50 training seeds has."""
        first = EXPERT_TRAINING.start + self.config.seed % 50 * TRACKS + self.round * self.config.episodes
        return range(first, first + self.config.episodes)

    def label(self, track: int, ask: Callable[[Any], Any]) -> LabelledDrive:
        """The agent drives ``track``, at times the teacher, which labels all of it."""
        config = self.config
        beta = 1.0 if self.round == 0 else config.beta * 0.5 ** (self.round - 1)
        rng = np.random.default_rng([config.seed, self.round, track])
        # Random numbers of its own, so that the drive's are the same whatever its camera.
        chosen = np.random.default_rng([config.seed, self.round, track, 1])
        camera = config.disturbance.draw(chosen) if config.vary_camera else config.disturbance
        how = {"camera": camera, "beta": beta, "steering_noise": config.steering_noise if track % 2 else 0.0}
        loaded = self.loaded(ask, load_teacher(config.expert), **how)
        frames, labels = [], []
        times: list[float] = []
        with loaded.open(track, rng=rng) as opened:
            patience = LOST_AFTER
            if chosen.random() < config.bad_starts:
                opened.start = bad_start(chosen, loaded.spec.lost_m)
                patience += round(RECOVERY_S / opened.env.step_s)
            for tick in supervised(opened, patience):
                assert tick.expert is not None
                if tick.held:
                    continue  # no newer frame, no decision
                times.append(tick.taken_s)
                frames.append(self.view.small(tick.frame)[0])
                labels.append(label_of(tick.expert))
        stacked = np.stack(frames), np.array(labels, np.float32), np.array(times)
        return LabelledDrive(*stacked, tick.episode_return, tick.next_info["laps"] > 0)

    def collect(self) -> list[LabelledDrive]:
        """The round's labelled drives, in the order of their tracks."""
        return drive_batched(self.label, self.tracks(), self.decide, AT_ONCE)

    def evaluate(self, first: int, count: int) -> dict[str, Any]:
        """Returns of ``count`` tracks that are not learnt from, fast renderer, the wheel not disturbed."""

        def drive(track: int, ask: Callable[[Any], Any]) -> tuple[float, bool]:
            with self.loaded(ask).open(track) as opened:
                *_, last = opened
            return last.episode_return, last.next_info["laps"] > 0

        laps = drive_batched(drive, range(first, first + count), self.decide, AT_ONCE)
        returns = summary([total for total, _ in laps])
        return {**returns, "episodes": count, "finished": sum(finished for _, finished in laps)}

    def fit(self, steps: int) -> float:
        """So many minibatches of all that was labelled; returns the mean loss of the last hundred."""
        config = self.config
        sharp = torch.tensor(SHARPNESS)
        losses: list[float] = []
        self.net.train()
        for _ in range(steps):
            for group in self.optimiser.param_groups:
                group["lr"] = config.lr_at(self.step)
            answers, labels = self.answers()
            loss = F.huber_loss(answers.float() * sharp, labels * sharp, delta=HUBER)
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            self.optimiser.step()
            self.step += 1
            # The first weights are forgotten faster.
            keep = min(config.ema_decay, self.step / (self.step + 10))
            with torch.no_grad():
                for mean, new in zip(self.average.parameters(), self.net.parameters(), strict=True):
                    mean.lerp_(new, 1 - keep)
            losses.append(float(loss.detach()))
        return float(np.mean(losses[-100:])) if losses else math.nan

    def answers(self) -> tuple[torch.Tensor, torch.Tensor]:
        """What the network says at the decisions of a random minibatch, and their labels: [N, 2] each."""
        config = self.config
        low = torch.autocast("cpu", dtype=torch.bfloat16, enabled=config.precision == "bfloat16")
        if self.net.memory is None:
            which = self.rng.integers(self.drives.count, size=config.batch_size)
            with low:
                return self.net(self.drives.stacks(which)), torch.from_numpy(self.drives.labels[which])
        pieces = max(config.batch_size // config.sequence_length, 1)
        seen, labels = self.drives.sequences(self.rng, pieces, config.sequence_length, config.memory_window)
        with low:
            features = self.net.features(seen.observations.flatten(0, 1))
        # The memory computes in full precision, as in a drive.
        return self.net.head(self.net.memory.at(features.float().view(*seen.t.shape, -1), seen.t, seen.trained)), labels

    def run(self) -> Path:
        """What is left of the training; returns the path of the best agent by validation return."""
        self.began = time.monotonic()
        config = self.config
        while self.round < config.rounds:
            drives = self.read_drives() if self.drives_path(self.round).exists() else self.collect()
            self.write_drives(drives)
            for drive in drives:
                self.drives.add(drive)
            loss = self.fit(config.steps)
            self.round += 1
            self.keep(loss, drives, evaluated=self.round % config.eval_every == 0)
        # A run that was made shorter may have done more than all of it.
        left = max(config.all_steps - self.step, 0)
        if left or not (self.out / BEST).exists():
            self.keep(self.fit(left), [], evaluated=True)
        return self.out / BEST

    def keep(self, loss: float, drives: list[LabelledDrive], *, evaluated: bool) -> None:
        """Evaluate if asked to; write log, agent and checkpoint; tell who shows it."""
        config = self.config
        evaluation = self.evaluate(EXPERT_VALIDATION.start, config.eval_episodes) if evaluated else None
        seconds = self.earlier_s + time.monotonic() - self.began
        driven = {"return": round(float(np.mean([drive.episode_return for drive in drives])), 2)} if drives else {}
        driven |= {"finished": float(np.mean([drive.finished for drive in drives]))} if drives else {}
        line = {
            "round": self.round, "seconds": round(seconds, 1), "steps": self.step, "decisions": self.drives.count,
            "loss": None if math.isnan(loss) else float(f"{loss:.4g}"), **driven,
            **({"eval": evaluation} if evaluation else {}),
        }  # fmt: skip
        with open_log(self.out / LOG) as file:
            file.write(json.dumps(line) + "\n")
        about = self.about(evaluation)
        if evaluation is not None and evaluation["mean"] > self.best:
            self.best = evaluation["mean"]
            save_policy(self.out / BEST, self.average, about)
        save_policy(self.out / LAST, self.average, about)
        self.write_checkpoint(seconds)
        mean = driven.get("return", math.nan)
        self.show(Progress(self.round, config.rounds, self.drives.count, mean, loss, seconds, evaluation))

    def about(self, evaluation: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "env": CARRACING, "actions": "continuous", "outputs": 2, "repeat": self.config.repeat,
            "view": asdict(self.view), "network": self.net.about, "teacher": self.config.expert,
            "rule": self.config.rule, "seed": self.config.seed, "round": self.round, "decisions": self.drives.count,
            "validation": evaluation, **({} if self.memory is None else {"memory": asdict(self.memory)}),
            **({"disturbance": plain(self.config.disturbance)} if self.config.disturbance.active else {}),
        }  # fmt: skip

    def drives_path(self, round_: int) -> Path:
        return self.out / "drives" / f"round-{round_:03d}.pt"

    def write_drives(self, drives: list[LabelledDrive]) -> None:
        path = self.drives_path(self.round)
        if path.exists():
            return
        about = [[len(drive.labels), drive.episode_return, drive.finished] for drive in drives]
        whole = {name: np.concatenate([getattr(drive, name) for drive in drives]) for name in ("frames", "labels", "t")}
        tensors = {name: torch.from_numpy(values) for name, values in whole.items()}
        write_tensor_file(path, DRIVES, DRIVES_VERSION, {"about": json.dumps(about)}, tensors)

    def read_drives(self) -> list[LabelledDrive]:
        path = self.drives_path(self.round)
        content = read_tensor_file(path, DRIVES, DRIVES_VERSION, advice="start anew with --overwrite")
        about = json.loads(content["about"])
        cuts = np.cumsum([count for count, *_ in about[:-1]], dtype=int)
        parts = (np.split(content["tensors"][name].numpy(), cuts) for name in ("frames", "labels", "t"))
        return [LabelledDrive(*arrays, *how) for *arrays, (_, *how) in zip(*parts, about, strict=True)]

    def write_checkpoint(self, seconds: float) -> None:
        state = {
            "config": plain(self.config), "round": self.round, "step": self.step, "seconds": seconds, "best": self.best,
            "net": self.net.state_dict(), "average": self.average.state_dict(),
            "optimiser": self.optimiser.state_dict(), "rng": json.dumps(self.rng.bit_generator.state),
        }  # fmt: skip
        write_tensor_file(self.out / CHECKPOINT, KIND, VERSION, state)

    def restore(self) -> None:
        """Go on after the last whole round; ``UserError`` if the checkpoint is damaged or of other settings."""
        state = read_tensor_file(self.out / CHECKPOINT, KIND, VERSION, advice="start anew with --overwrite")
        self.net.load_state_dict(state["net"])
        self.average.load_state_dict(state["average"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.rng.bit_generator.state = json.loads(state["rng"])
        self.step, self.earlier_s, self.best = state["step"], state["seconds"], state["best"]
        # More rounds than are asked for may be done, and there is room for these.
        fitting = min(state["round"], self.config.rounds)
        for self.round in range(fitting):
            for drive in self.read_drives():
                self.drives.add(drive)
        self.round = state["round"]
        # A crash may come between the last line and the checkpoint.
        kept = [line for line in read_rows(self.out / LOG) if line["steps"] <= self.step]
        write_text(self.out / LOG, "".join(json.dumps(line) + "\n" for line in kept))


def load_teacher(name: str) -> Driver:
    """A driver of CarRacing with continuous actions."""
    teacher = load_expert(name, discrete_only=False)
    if not teacher.needs.continuous:
        raise UserError(f"{name} chooses among five actions: give a --expert that steers, such as racing-line.")
    return teacher


def imitate(
    config: ImitateConfig,
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    show: Callable[[Progress], None] = lambda progress: None,
) -> Path:
    """Train into the folder ``out``; returns the path of the best agent by validation return.

    With ``resume`` the run goes on after its last whole round; what a kill loses is the round under way, of which the
    drives are kept.
    """
    _ = load_teacher(config.expert)
    if resume and not (out / RUN).is_file():
        raise UserError(f"{out} holds no run to resume: start without --resume.")
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    seed_everything(config.seed)
    # A memory that cannot be is refused before a folder is made.
    training = Imitation(config, out, show)
    result_folder(out, resume=resume, overwrite=overwrite)
    check_resumable(out, config, FREE_TO_CHANGE)
    if resume and (out / CHECKPOINT).exists():
        training.restore()
    else:
        (out / LOG).unlink(missing_ok=True)
    return training.run()
