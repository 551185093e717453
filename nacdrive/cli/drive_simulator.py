"""``nacdrive drive --sim udacity``: a policy drives a simulator that connects to us."""

from __future__ import annotations

import time
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nacdrive.cli.drive import DriveConfig
    from nacdrive.drivers.base import Driver
    from nacdrive.drivers.tick import Listener, Tick
    from nacdrive.envs.udacity import UdacityEnv
    from nacdrive.models.policy import Policy
    from nacdrive.rollout.background import BackgroundListener
    from nacdrive.web import LiveServer

PORT = 4567
"""Built into the Udacity simulator."""
FPS = 50.0
"""About what it draws a second; decisions have their own times."""
FILM_FPS = 25.0
EPISODE_STEPS = 1500
"""Half a minute: a recorder keeps an episode in memory."""
LOOK_S = 0.2
REMEMBERED = 10_000
"""Decisions that the summary's percentiles are taken over."""
STARTED_OVER = "started over: the policy has forgotten the drive; the car stays, for only its simulator can move it"


def drive_simulator(config: DriveConfig) -> int:
    """Drive whatever simulator connects, until Ctrl-C or the end of ``--seconds``."""
    import torch

    from nacdrive.cli.page import open_page
    from nacdrive.common.paths import find_model
    from nacdrive.drivers.human import HumanControl, HumanOverride
    from nacdrive.drivers.policy import PolicyDriver
    from nacdrive.drivers.safety_stop import SafetyStop
    from nacdrive.drivers.speed_control import SpeedControl, SpeedController
    from nacdrive.envs.udacity import UdacityEnv
    from nacdrive.envs.udacity.telemetry import MPS_PER_MPH
    from nacdrive.models import load_policy
    from nacdrive.rollout.background import BackgroundListener
    from nacdrive.rollout.rollout import Probes

    torch.set_num_threads(1)
    policy = load_policy(find_model(config.model, config.sim), device=config.device, expect_task=config.sim)
    warm_up(policy)
    pace_s = config.pace if config.pace is not None else policy.config.gap_s * (policy.config.window > 1)
    control = HumanControl(started_over=STARTED_OVER) if config.allow_control else None
    steering = PolicyDriver(policy, pace_s)
    driver: Driver = SpeedControl(steering, SpeedController(config.speed * MPS_PER_MPH))
    driver = SafetyStop(HumanOverride(driver, control) if control is not None else driver)
    with ExitStack() as stack:
        page, title = None, f"{policy.name} on the Udacity simulator"
        if not config.headless:
            page = open_page(stack, config.host, config.page, title, circuit=policy.circuit(), control=control)
        listeners = keepers(config, policy.name, pace_s, stack)
        probes = None
        if page is not None:
            from nacdrive.viz.saliency import GradCam

            grad_cam, viewed = GradCam(policy), page
            probes = Probes(
                neurons=steering.neurons,
                neurons_every=config.neurons_every,
                saliency=(lambda frame: steering.look(grad_cam, frame)) if config.saliency_every else None,
                saliency_every=max(config.saliency_every, 1),
                watched=lambda: viewed.viewers > 0,
            )
            listeners.insert(0, page.publish)
        background = stack.enter_context(BackgroundListener(listeners, probes, say))
        port = PORT if config.port is None else config.port
        env = UdacityEnv(config.host, port, config.server, config.limit_s, on_event=say)
        stack.enter_context(env)
        say(f"{env.status}; Ctrl-C ends.")
        drive = EndlessDrive(env, driver, background)
        try:
            with Attendant(env, page, config.seconds):
                drive.run()
        except KeyboardInterrupt:
            print()
    say(drive.summary())
    if config.video is not None and drive.decision_ms:
        say(f"video: {config.video}")
    return 2 if background.failures else 0


def say(text: str) -> None:
    """One line, at once."""
    print(text, flush=True)


def warm_up(policy: Policy) -> None:
    """Decide a few times, so that the first picture is not kept waiting.

    Raises:
        UserError: if the policy does not take the simulator's pictures.
    """
    import numpy as np

    from nacdrive.common.errors import UserError
    from nacdrive.envs.udacity.telemetry import HEIGHT, WIDTH

    try:
        for t_s in (0.0, 0.02, 0.04):
            policy.step(np.zeros((HEIGHT, WIDTH, 3), np.uint8), t_s, 0.0)
    except ValueError as error:
        raise UserError(f"this policy cannot drive the simulator ({error}): give another --model.") from error
    policy.reset()


class EndlessDrive:
    """Drive after drive, of whatever simulator connects."""

    def __init__(self, env: UdacityEnv, driver: Driver, background: BackgroundListener) -> None:
        self.decision_ms: deque[float] = deque(maxlen=REMEMBERED)
        self._env, self._driver, self._background = env, driver, background
        self._decisions = self._drives = 0

    def run(self) -> None:
        """Drive until the environment is interrupted."""
        from nacdrive.envs.udacity import DriveInterruptedError
        from nacdrive.rollout.rollout import rollout

        try:
            while True:
                number = self._drives
                for tick in rollout(self._env, self._driver, number, episode=number):
                    self._note(tick)
        except DriveInterruptedError:
            pass

    def _note(self, tick: Tick) -> None:
        self._background(tick)
        self._decisions += 1
        self._drives += tick.step == 0
        self.decision_ms.append(tick.decision_ms)
        # What the environment says is printed at once; this is what people and the safety stop did.
        for event in tick.events[tick.step == 0 : len(tick.events) - tick.done]:
            if event not in tick.next_info.get("events", ()):
                say(event)

    def summary(self) -> str:
        """One sentence about all drives."""
        import numpy as np

        if not self.decision_ms:
            return "no simulator came"
        median, p99 = np.percentile(self.decision_ms, [50, 99])
        lost = self._background.lost
        unseen = f", {lost} of them neither shown nor kept: this machine is too slow" if lost else ""
        return (
            f"{self._decisions} commands in {self._drives} drives, decided in {median:.1f} ms "
            f"(slowest 1 %: {p99:.1f}), {self._env.safety_stops} safety stops{unseen}"
        )


class Attendant:
    """Keeps the page's status line up to date, and ends the drive when the time is up."""

    def __init__(self, env: UdacityEnv, page: LiveServer | None, seconds: float | None) -> None:
        self._env, self._page, self._seconds = env, page, seconds
        self._ending = Event()
        self._thread = Thread(target=self._run, name="nacdrive-status", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._ending.wait(LOOK_S):
            if self._page is not None:
                self._page.status(self._env.status)
            if self._seconds is not None and time.monotonic() - began >= self._seconds:
                self._env.interrupt()


def keepers(config: DriveConfig, policy: str, pace_s: float, stack: ExitStack) -> list[Listener]:
    """Who films and who records, as ``config`` asks; what they have is kept at the end of ``stack``."""
    from nacdrive.cli.drive import kept
    from nacdrive.rollout.background import at_rate, split_drives
    from nacdrive.rollout.recorder import corrections, drives
    from nacdrive.viz.video import video

    found: list[Listener] = []
    if config.video is not None:
        found.append(at_rate(stack.enter_context(video(config.video, policy, FILM_FPS)), FILM_FPS))
    if config.allow_control:
        folder = config.corrections or Path("recordings") / f"corrections-{policy}"
        # At the policy's pace: it is to learn from what it would have seen.
        by_person = corrections(folder, source=config.sim, fps=1 / pace_s if pace_s else FPS)
        stack.push(lambda *_: print(kept("corrections", by_person), end="", flush=True))
        found.append(split_drives(stack.enter_context(by_person), EPISODE_STEPS, pace_s))
    if config.record is not None:
        keeper = drives(config.record, source=config.sim, fps=FPS, driver=policy, teacher=None)
        stack.push(lambda *_: print(kept("drives", keeper), end="", flush=True))
        found.append(split_drives(stack.enter_context(keeper), EPISODE_STEPS))
    return found
