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
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.common.files import atomic_path, result_folder
from nacdrive.common.runs import RUN, check_resumable, plain, seed_everything
from nacdrive.common.statistics import summary
from nacdrive.common.tensor_file import read_tensor_file, write_tensor_file
from nacdrive.drivers import load_expert
from nacdrive.drivers.base import Driver
from nacdrive.drivers.mixture import Mixture
from nacdrive.drivers.ppo import PpoExpert
from nacdrive.drivers.ppo_cockpit import CockpitNet
from nacdrive.drivers.ppo_network import CARRACING, save_policy
from nacdrive.drivers.ppo_view import View
from nacdrive.drivers.steering_noise import SteeringNoise
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.carracing.env import make_carracing
from nacdrive.envs.seeds import EXPERT_TRAINING, EXPERT_VALIDATION
from nacdrive.rl.imitate_config import FREE_TO_CHANGE, ImitateConfig
from nacdrive.rollout.dagger import supervised
from nacdrive.rollout.rollout import rollout
from nacdrive.rollout.side_by_side import side_by_side

CHECKPOINT, LOG, BEST, LAST = "last.ckpt", "log.jsonl", "best.pt", "last.pt"
KIND, VERSION = "nacdrive imitation checkpoint", 1
DRIVES, DRIVES_VERSION = "nacdrive labelled drives", 1
MOST_STEERING = 0.5
"""Labels are clipped to this: the front wheels stop at 0.4 radians, and asking for more turns them there no faster."""
SHARP = (5.0, 1.0)
"""Factors on the errors of steering and pedal before the Huber loss."""
HUBER = 0.1
AT_ONCE = 16
"""Drives side by side."""
TRACKS = 20_000
"""Tracks of a training seed: its share of those for experts."""


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


@dataclass(frozen=True)
class Drive:
    """One labelled drive."""

    frames: NDArray[np.uint8]
    """[N, height, width], small."""
    labels: NDArray[np.float32]
    """[N, 2] steering and pedal."""
    episode_return: float
    finished: bool


class Drives:
    """All that was labelled so far, in memory: each frame once, whatever number of them the agent sees at once.

    Args:
        capacity: Most decisions; memory is taken only as they come.
        view: What the agent sees.
    """

    def __init__(self, capacity: int, view: View) -> None:
        self.frames = np.empty((capacity, *view.shape[1:]), dtype=np.uint8)
        self.labels = np.empty((capacity, 2), dtype=np.float32)
        self.starts = np.empty(capacity, dtype=np.int64)
        self._back = np.arange(view.frames - 1, -1, -1)
        self.count = 0

    def add(self, frames: NDArray[np.uint8], labels: NDArray[np.float32]) -> None:
        """One drive: small frames [N, height, width] and [N, 2]."""
        begin, end = self.count, self.count + len(labels)
        self.frames[begin:end], self.labels[begin:end], self.starts[begin:end] = frames, labels, begin
        self.count = end

    def batch(self, which: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        """uint8 [B, *view.shape], as ``FrameStack`` stacks them, and float32 [B, 2]."""
        index = np.maximum(which[:, None] - self._back, self.starts[which][:, None])
        return torch.from_numpy(self.frames[index]), torch.from_numpy(self.labels[which])


class Seat(PpoExpert):
    """An agent whose network decides for many drives at once."""

    def __init__(self, net: CockpitNet, repeat: int, ask: Callable[[Any], Any]) -> None:
        super().__init__(net, repeat=repeat, continuous=True)
        self._ask = ask

    def logits(self, stacks: NDArray[np.uint8]) -> NDArray[np.float32]:
        """[1, *view.shape] -> [1, 2]."""
        answer: NDArray[np.float32] = self._ask(stacks[0].copy())
        return answer[None]


def label_of(action: Action) -> tuple[float, float]:
    """(steering, pedal) of a teacher's action."""
    return max(-MOST_STEERING, min(MOST_STEERING, action.steering)), action.throttle - action.brake


class Imitation:
    """A training in the folder ``out``; ``run`` does what is left of it."""

    def __init__(self, config: ImitateConfig, out: Path, show: Callable[[Progress], None]) -> None:
        self.config, self.out, self.show = config, out, show
        self.view = View(frames=config.frames, height=42, width=48, instruments=True)
        self.net = CockpitNet(self.view).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.average = CockpitNet(self.view).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
        self.average.load_state_dict(self.net.state_dict())
        self.optimiser = torch.optim.Adam(self.net.parameters(), lr=config.lr[0])
        self.drives = Drives(config.rounds * config.episodes * math.ceil(config.max_frames / config.repeat), self.view)
        self.rng = np.random.default_rng([config.seed, 1])
        self.round = self.step = 0
        self.began, self.earlier_s, self.best = time.monotonic(), 0.0, -math.inf

    # ------------------------------------------------------------------------------------------------ driving

    def env(self) -> DrivingEnv:
        """CarRacing as the agent sees it."""
        return make_carracing(
            renderer="fast",
            repeat=self.config.repeat,
            max_frames=self.config.max_frames,
            continuous=True,
            instruments=True,
            rule=self.config.rule,
        )

    @torch.inference_mode()
    def decide(self, stacks: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.float32]]:
        """What the averaged network says of many stacks."""
        return list(self.average(torch.from_numpy(np.stack(stacks))).numpy())

    def tracks(self) -> range:
        """Seeds of the round's tracks, which no other round and no other of the first 50 training seeds has."""
        first = EXPERT_TRAINING.start + self.config.seed % 50 * TRACKS + self.round * self.config.episodes
        return range(first, first + self.config.episodes)

    def label(self, track: int, ask: Callable[[Any], Any]) -> Drive:
        """The agent drives ``track``, at times the teacher, which labels all of it."""
        config = self.config
        beta = 1.0 if self.round == 0 else config.beta * 0.5 ** (self.round - 1)
        rng = np.random.default_rng([config.seed, self.round, track])
        env, teacher = self.env(), load_teacher(config.teacher)
        try:
            driver: Driver = Mixture(Seat(self.average, config.repeat, ask), beta, rng, pedals=True)
            if config.noise and track % 2:
                driver = SteeringNoise(driver, config.noise, env.step_s, rng)
            frames, labels = [], []
            for tick in supervised(env, driver, teacher, track):
                assert tick.expert is not None
                frames.append(self.view.small(tick.frame)[0])
                labels.append(label_of(tick.expert))
            finished = tick.next_info["laps"] > 0
            return Drive(np.stack(frames), np.array(labels, dtype=np.float32), tick.episode_return, finished)
        finally:
            env.close()

    def collect(self) -> list[Drive]:
        """The round's labelled drives, in the order of their tracks."""
        tracks = self.tracks()
        with closing(side_by_side(self.label, tracks, self.decide, AT_ONCE)) as found:
            drives = dict(found)
        return [drives[track] for track in tracks]

    def evaluate(self, first: int, count: int) -> dict[str, Any]:
        """Returns of ``count`` tracks that are not learnt from, fast renderer, nothing disturbed."""

        def drive(track: int, ask: Callable[[Any], Any]) -> tuple[float, bool]:
            env = self.env()
            try:
                *_, last = rollout(env, Seat(self.average, self.config.repeat, ask), track)
                return last.episode_return, last.next_info["laps"] > 0
            finally:
                env.close()

        with closing(side_by_side(drive, range(first, first + count), self.decide, AT_ONCE)) as found:
            laps = dict(found)
        told = summary([laps[track][0] for track in sorted(laps)])
        return {**told, "episodes": count, "finished": sum(finished for _, finished in laps.values())}

    # ----------------------------------------------------------------------------------------------- learning

    def fit(self, steps: int) -> float:
        """So many minibatches of all that was labelled; returns the mean loss of the last hundred."""
        config = self.config
        sharp = torch.tensor(SHARP)
        losses: list[float] = []
        self.net.train()
        for _ in range(steps):
            stacks, labels = self.drives.batch(self.rng.integers(self.drives.count, size=config.batch_size))
            for group in self.optimiser.param_groups:
                group["lr"] = config.lr_at(self.step)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config.precision == "bfloat16"):
                found = self.net(stacks)
            loss = F.huber_loss(found.float() * sharp, labels * sharp, delta=HUBER)
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            self.optimiser.step()
            self.step += 1
            self._average()
            losses.append(float(loss.detach()))
        return float(np.mean(losses[-100:])) if losses else math.nan

    @torch.no_grad()
    def _average(self) -> None:
        # The first weights are forgotten faster.
        keep = min(self.config.ema_decay, self.step / (self.step + 10))
        for mean, new in zip(self.average.parameters(), self.net.parameters(), strict=True):
            mean.lerp_(new, 1 - keep)

    # -------------------------------------------------------------------------------------------- the whole of it

    def run(self) -> Path:
        """What is left of the training; returns the path of the best agent by validation return."""
        self.began = time.monotonic()
        config = self.config
        while self.round < config.rounds:
            drives = self.read_drives() or self.collect()
            self.write_drives(drives)
            for drive in drives:
                self.drives.add(drive.frames, drive.labels)
            loss = self.fit(config.steps)
            self.round += 1
            self.keep(loss, drives, evaluated=self.round % config.eval_every == 0)
        # A run that was made shorter may have done more than all of it.
        left = max(config.all_steps - self.step, 0)
        if left or not (self.out / BEST).exists():
            self.keep(self.fit(left), [], evaluated=True)
        return self.out / BEST

    def keep(self, loss: float, drives: list[Drive], *, evaluated: bool) -> None:
        """Evaluate if asked to; write log, agent and checkpoint; tell who shows it."""
        config = self.config
        evaluation = self.evaluate(EXPERT_VALIDATION.start, config.eval_episodes) if evaluated else None
        seconds = self.earlier_s + time.monotonic() - self.began
        returns = [drive.episode_return for drive in drives]
        told = {"return": round(float(np.mean(returns)), 2)} if drives else {}
        told |= {"finished": float(np.mean([drive.finished for drive in drives]))} if drives else {}
        line = {
            "round": self.round, "seconds": round(seconds, 1), "steps": self.step, "decisions": self.drives.count,
            "loss": None if math.isnan(loss) else float(f"{loss:.4g}"), **told,
            **({"eval": evaluation} if evaluation else {}),
        }  # fmt: skip
        with (self.out / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        about = self.about(evaluation)
        if evaluation is not None and evaluation["mean"] > self.best:
            self.best = evaluation["mean"]
            save_policy(self.out / BEST, self.average, about)
        save_policy(self.out / LAST, self.average, about)
        self.write_checkpoint(seconds)
        self.show(
            Progress(
                self.round, config.rounds, self.drives.count, told.get("return", math.nan), loss, seconds, evaluation
            )
        )

    def about(self, evaluation: dict[str, Any] | None) -> dict[str, Any]:
        """What the agent's files say of it."""
        return {
            "env": CARRACING, "actions": "continuous", "outputs": 2, "repeat": self.config.repeat,
            "view": self.view.to_json(), "network": self.net.about, "teacher": self.config.teacher,
            "rule": self.config.rule, "seed": self.config.seed, "round": self.round, "decisions": self.drives.count,
            "validation": evaluation,
        }  # fmt: skip

    def drives_path(self, round_: int) -> Path:
        """Where a round's drives lie."""
        return self.out / "drives" / f"round-{round_:03d}.pt"

    def write_drives(self, drives: list[Drive]) -> None:
        """Keep the present round's drives, so that a resumed run need not drive again."""
        path = self.drives_path(self.round)
        if path.exists():
            return
        about = [[len(drive.labels), drive.episode_return, drive.finished] for drive in drives]
        tensors = {
            "frames": torch.from_numpy(np.concatenate([drive.frames for drive in drives])),
            "labels": torch.from_numpy(np.concatenate([drive.labels for drive in drives])),
        }
        write_tensor_file(path, DRIVES, DRIVES_VERSION, {"about": json.dumps(about)}, tensors)

    def read_drives(self) -> list[Drive]:
        """The present round's drives, if they were kept."""
        path = self.drives_path(self.round)
        if not path.exists():
            return []
        content = read_tensor_file(path, DRIVES, DRIVES_VERSION, advice="start anew with --overwrite")
        frames, labels = (content["tensors"][name].numpy() for name in ("frames", "labels"))
        found, at = [], 0
        for count, total, finished in json.loads(content["about"]):
            found.append(Drive(frames[at : at + count], labels[at : at + count], total, finished))
            at += count
        return found

    def write_checkpoint(self, seconds: float) -> None:
        """The state after a whole round."""
        state = {
            "config": plain(self.config), "round": self.round, "step": self.step, "seconds": seconds, "best": self.best,
            "net": self.net.state_dict(), "average": self.average.state_dict(),
            "optimiser": self.optimiser.state_dict(), "rng": json.dumps(self.rng.bit_generator.state),
        }  # fmt: skip
        write_tensor_file(self.out / CHECKPOINT, KIND, VERSION, state)

    def restore(self) -> None:
        """Go on after the last whole round.

        Raises:
            UserError: if the checkpoint is damaged or of other settings.
        """
        state = read_tensor_file(self.out / CHECKPOINT, KIND, VERSION, advice="start anew with --overwrite")
        self.net.load_state_dict(state["net"])
        self.average.load_state_dict(state["average"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.rng.bit_generator.state = json.loads(state["rng"])
        self.step, self.earlier_s, self.best = state["step"], state["seconds"], state["best"]
        for self.round in range(state["round"]):
            for drive in self.read_drives():
                self.drives.add(drive.frames, drive.labels)
        self.round = state["round"]
        lines = []
        for line in (self.out / LOG).read_text(encoding="utf-8").splitlines():
            # A crash may tear the last line, or come between it and the checkpoint.
            with suppress(json.JSONDecodeError):
                if json.loads(line)["steps"] <= self.step:
                    lines.append(line + "\n")
        with atomic_path(self.out / LOG) as partial:
            partial.write_text("".join(lines), encoding="utf-8")


def load_teacher(name: str) -> Any:
    """A driver of CarRacing with continuous actions.

    Raises:
        UserError: for another one.
    """
    teacher = load_expert(name, discrete_only=False)
    if not getattr(teacher, "continuous", False):
        raise UserError(f"{name} chooses among five actions: give a --teacher that steers, such as racing-line.")
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

    Raises:
        UserError: for a folder that is in use, a checkpoint of other settings, a teacher that does not steer.
    """
    _ = load_teacher(config.teacher)
    if resume and not (out / RUN).is_file():
        raise UserError(f"{out} holds no run to resume: start without --resume.")
    out = result_folder(out, resume=resume, overwrite=overwrite)
    check_resumable(out, config, FREE_TO_CHANGE)
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    seed_everything(config.seed)
    training = Imitation(config, out, show)
    if resume and (out / CHECKPOINT).exists():
        training.restore()
    else:
        (out / LOG).unlink(missing_ok=True)
    return training.run()
