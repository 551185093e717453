"""``nacdrive drive``: a policy at the wheel, and a page to watch it."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from nacdrive.common.errors import UserError, unknown_name
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.seeds import POLICY_RECORDING, POLICY_TEST

if TYPE_CHECKING:
    from nacdrive.rollout.metrics import EpisodeResult
    from nacdrive.rollout.recorder import EpisodeRecorder

ENVIRONMENTS = ("carracing",)


@dataclass(frozen=True)
class DriveConfig:
    """Drive with a policy and watch it in a browser."""

    env: str = "carracing"
    """What is driven."""
    sim: Literal["none", "udacity"] = "none"
    """Drive a simulator that connects to us instead of --env: udacity, the real one or 'nacdrive sim udacity'."""
    model: str = "nac_steady.pt"
    """The policy: a file, or the name of a shipped one."""
    episodes: int = 1
    """How many episodes to drive."""
    seed: int = POLICY_TEST.start
    """Seed of the first track; the following episodes have the following seeds."""
    video: Path | None = None
    """Write an mp4 of the drive here."""
    headless: bool = False
    """No page, and as fast as possible."""
    fast: bool = False
    """As fast as possible instead of in real time."""
    allow_control: bool = False
    """Let the page pause, start over and take the wheel with the arrow keys; without it the page is read-only."""
    corrections: Path | None = None
    """Recording of what a person drives after taking over; recordings/corrections-MODEL if not given."""
    record: Path | None = None
    """Keep the drive in this recording: what the policy did, labelled by the expert that rides along."""
    host: str = "127.0.0.1"
    """Address to serve on; at another than this machine's own the page asks viewers for a token."""
    port: int | None = None
    """Port of the page (8090); with --sim the port that the simulator connects to (4567). 0 takes a free one."""
    page_port: int | None = None
    """Port of the page, with or without --sim (8090); 0 takes a free one."""
    speed: float = 20.0
    """With --sim: speed to keep, in miles per hour as the simulator shows it; slower in bends."""
    pace: float | None = None
    """With --sim: least seconds between two decisions; if not given as in training, or 0 without a memory."""
    server: Literal["threads", "eventlet"] = "threads"
    """With --sim: what serves the connections."""
    limit_s: float = 0.3
    """With --sim: seconds that the policy may take for a decision before an emergency stop; more for a slow one."""
    seconds: float | None = None
    """With --sim: end after so many seconds; without it Ctrl-C ends."""
    hold: Literal["auto", "yes", "no"] = "auto"
    """Keep the page up after the last episode until Ctrl-C; auto: where a person is at the terminal."""
    expert: str = "ppo"
    """Who rides along and says what it would do: ppo, geometric, an exported PPO policy, or none."""
    renderer: Literal["official", "fast"] = "official"
    """Pixels of the simulator: the official ones, or the quicker grey ones."""
    neurons_every: int = 2
    """Decisions between two readings of the neurons for the page; 0 reads none."""
    saliency_every: int = 8
    """Decisions between two looks at where the policy looks (Grad-CAM), for the page; 0 never."""
    device: str = "cpu"
    """Where the policy runs: cpu, cuda or cuda:N."""
    disturbance: Annotated[CameraNoise, tyro.conf.arg(name="")] = field(default_factory=CameraNoise)
    """What is wrong with the policy's camera."""

    def __post_init__(self) -> None:
        if self.env not in ENVIRONMENTS:
            raise unknown_name("environment", self.env, ENVIRONMENTS)
        if self.episodes < 1:
            raise UserError(f"--episodes is {self.episodes}: it must be at least 1.")
        if self.seed < 0:
            raise UserError(f"--seed is {self.seed}: it must not be negative.")
        if not 0 < self.speed <= 30:
            raise UserError(f"--speed is {self.speed:g}: give 1 to 30 miles per hour, the simulator goes no faster.")
        if self.pace is not None and not self.pace >= 0:
            raise UserError(f"--pace is {self.pace:g}: give 0 (every picture) or a number of seconds.")
        if not 0.05 <= self.limit_s <= 5:
            raise UserError(f"--limit-s is {self.limit_s:g}: give 0.05 to 5 seconds.")
        if self.seconds is not None and not self.seconds > 0:
            raise UserError(f"--seconds is {self.seconds:g}: give a number above 0.")
        if self.allow_control and self.headless:
            raise UserError("--allow-control needs the page: leave out --headless.")
        for name in ("neurons_every", "saliency_every"):
            if getattr(self, name) < 0:
                flag = f"--{name.replace('_', '-')}"
                raise UserError(f"{flag} is {getattr(self, name)}: give 0 (never) or a number of decisions.")

    @property
    def page(self) -> int:
        """Port of the page."""
        given = self.page_port if self.page_port is not None or self.sim != "none" else self.port
        return 8090 if given is None else given


CONFIG = DriveConfig


def run(config: DriveConfig) -> int:
    """Drive, show, film, and say what came of it."""
    if config.sim != "none":
        from nacdrive.cli.drive_simulator import drive_simulator

        return drive_simulator(config)
    return 1 if any(result.failure for result in drive(config)) else 0


def drive(config: DriveConfig) -> list[EpisodeResult]:
    """Drive the episodes of ``config``; prints the page's address and a line per episode."""
    import torch

    from nacdrive.cli.page import open_page
    from nacdrive.common.paths import find_model
    from nacdrive.drivers import load_expert
    from nacdrive.drivers.human import HumanControl
    from nacdrive.drivers.tick import Listener
    from nacdrive.envs.camera_noise import Camera
    from nacdrive.envs.carracing.env import ACTIONS, make_carracing
    from nacdrive.envs.carracing.lazy import FPS
    from nacdrive.models import load_policy
    from nacdrive.rollout.old_loop import drive_episode
    from nacdrive.viz.video import video

    torch.set_num_threads(1)
    policy = load_policy(find_model(config.model, config.env), device=config.device, expect_task=config.env)
    expert = None if config.expert == "none" else load_expert(config.expert)
    if expert is not None and expert.repeat != policy.repeat:
        print(
            f"the expert decides every {expert.repeat} frames, {policy.name} every {policy.repeat}: it stays at home."
        )
        expert = None
    results = []
    watched = not config.headless
    look = None
    if watched and config.saliency_every:
        from nacdrive.viz.saliency import GradCam

        look = GradCam(policy)
    control = HumanControl() if config.allow_control else None
    fps = FPS / policy.repeat
    with ExitStack() as watching:
        listeners: list[Listener] = []
        page = None
        if watched:
            what = {"circuit": policy.circuit(), "choices": ACTIONS, "control": control}
            page = open_page(watching, config.host, config.page, f"{policy.name} on CarRacing", **what)
            listeners.append(page.publish)
        with ExitStack() as driving:
            world = make_carracing(renderer=config.renderer, repeat=policy.repeat)
            driving.callback(world.close)
            listeners += recorders(config, driving, policy.name, expert.name if expert is not None else None, fps)
            if config.video is not None:
                listeners.append(driving.enter_context(video(config.video, policy.name, fps)))
            for episode in range(config.episodes):
                result = drive_episode(
                    world,
                    policy,
                    config.seed + episode,
                    episode=episode,
                    listeners=listeners,
                    expert=expert.new_episode if expert is not None else None,
                    camera=Camera(config.disturbance) if config.disturbance.active else None,
                    realtime=watched and not config.fast,
                    neurons_every=config.neurons_every if watched else 0,
                    saliency=look,
                    saliency_every=max(config.saliency_every, 1),
                    watched=lambda: page is not None and page.viewers > 0,
                    control=control,
                )
                print(sentence(result), flush=True)
                results.append(result)
        if config.video is not None:
            print(f"video: {config.video}", flush=True)
        if watched and config.hold != "no" and (config.hold == "yes" or sys.stdin.isatty()):
            hold()
    return results


def recorders(
    config: DriveConfig, stack: ExitStack, policy: str, expert: str | None, fps: float
) -> list[EpisodeRecorder]:
    """Who writes down what is driven, as ``config`` asks; says at the end of ``stack`` what there is."""
    from nacdrive.rollout.recorder import corrections, drives

    found = []
    if config.allow_control:
        folder = config.corrections or Path("recordings") / f"corrections-{policy}"
        found.append(("corrections", corrections(folder, source=config.env, fps=fps)))
    if config.record is not None:
        whole = drives(config.record, source=config.env, fps=fps, driver=policy, teacher=expert)
        found.append(("drives", whole))
    for what, keeper in found:
        stack.push(lambda *_, what=what, keeper=keeper: print(kept(what, keeper, config.seed), end="", flush=True))
        stack.enter_context(keeper)
    return [keeper for _, keeper in found]


def kept(what: str, keeper: EpisodeRecorder, seed: int | None = None) -> str:
    """What is in a recording now; nothing where nothing was added. ``seed``: the first track, where tracks have one."""
    if not keeper.kept:
        return ""
    # Who learns from the tracks of the test is not tested on them any more.
    test = f" (track {seed} is for judging policies: drive with --seed {POLICY_RECORDING.start} for ones to learn from)"
    return f"{keeper.kept} {what} added to {keeper.folder}{test if seed is not None and seed in POLICY_TEST else ''}\n"


def hold() -> None:
    """Keep the page up until Ctrl-C."""
    from threading import Event

    print("the page stays up; Ctrl-C ends it.", flush=True)
    try:
        Event().wait()
    except KeyboardInterrupt:
        print()


def sentence(result: EpisodeResult) -> str:
    """One line about an episode."""
    agreed = "" if result.expert_agreement is None else f", as the expert in {result.expert_agreement:.0%} of decisions"
    line = (
        f"track {result.seed}: return {result.episode_return:.1f}, {result.tiles_visited:.1%} of the tiles in "
        f"{result.simulated_s:.1f} s{agreed}, decided in {result.decision_ms_median:.1f} ms "
        f"(slowest 1 %: {result.decision_ms_p99:.1f})"
    )
    if result.failure:
        line += f"\nsafety stop on track {result.seed}: {result.failure}"
    return line
