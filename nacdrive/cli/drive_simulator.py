"""``nacdrive drive --sim udacity``: a policy at the wheel of a simulator that connects to us."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nacdrive.cli.drive import DriveConfig
    from nacdrive.drivers.roles import Saliency
    from nacdrive.drivers.tick import Listener
    from nacdrive.envs.udacity import Bridge
    from nacdrive.models.policy import Policy
    from nacdrive.rollout.simulator import SimulatorDriver
    from nacdrive.web import LiveServer

PORT = 4567
"""Built into the Udacity simulator."""
FPS = 50.0
"""About what it draws a second; decisions have their own times."""
FILM_FPS = 25.0
EPISODE_STEPS = 1500
"""Half a minute: a recorder keeps an episode in memory."""
LOOK_S = 0.2
STARTED_OVER = "started over: the policy has forgotten the drive; the car stays, for only its simulator can move it"


def drive_simulator(config: DriveConfig) -> int:
    """Drive whatever simulator connects, until Ctrl-C or the end of ``--seconds``."""
    import torch

    from nacdrive.cli.page import open_page
    from nacdrive.common.paths import find_model
    from nacdrive.drivers.human import HumanControl
    from nacdrive.drivers.speed_control import SpeedController
    from nacdrive.envs.udacity import Bridge
    from nacdrive.envs.udacity.telemetry import MPS_PER_MPH
    from nacdrive.models import load_policy
    from nacdrive.rollout.simulator import SimulatorDriver

    torch.set_num_threads(1)
    policy = load_policy(find_model(config.model, config.sim), device=config.device, expect_task=config.sim)
    port = PORT if config.port is None else config.port
    pace_s = config.pace if config.pace is not None else policy.config.gap_s * (policy.config.window > 1)
    control = HumanControl(started_over=STARTED_OVER) if config.allow_control else None
    with ExitStack() as stack:
        page, title = None, f"{policy.name} on the Udacity simulator"
        if not config.headless:
            page = open_page(stack, config.host, config.page, title, circuit=policy.circuit(), control=control)
        listeners = keepers(config, policy.name, pace_s, stack)
        driver = SimulatorDriver(
            policy,
            [page.publish, *listeners] if page is not None else listeners,
            speed=SpeedController(config.speed * MPS_PER_MPH),
            control=control,
            pace_s=pace_s,
            watched=lambda: page is not None and page.viewers > 0,
            neurons_every=config.neurons_every,
            saliency=look_of(policy) if page is not None and config.saliency_every else None,
            saliency_every=max(config.saliency_every, 1),
            say=lambda text: print(text, flush=True),
        )
        stack.enter_context(driver)
        bridge = stack.enter_context(
            Bridge(
                driver.decide,
                host=config.host,
                port=port,
                engine=config.server,
                on_event=driver.on_event,
                on_decision=driver.on_decision,
                begin=driver.begin,
            )
        )
        waiting = f"Waiting for the simulator on port {bridge.port} (start it, choose Autonomous Mode)"
        print(f"{waiting}; Ctrl-C ends.", flush=True)
        try:
            attend(bridge, driver, page, waiting, config.seconds)
        except KeyboardInterrupt:
            print()
    print(driver.summary(), flush=True)
    if config.video is not None and driver.decisions:
        print(f"video: {config.video}", flush=True)
    return 0


def attend(
    bridge: Bridge, driver: SimulatorDriver, page: LiveServer | None, waiting: str, seconds: float | None
) -> None:
    """Keep the page's status line up to date until the time is up."""
    began = time.monotonic()
    while seconds is None or time.monotonic() - began < seconds:
        time.sleep(LOOK_S)
        if driver.failure is not None:
            raise driver.failure
        if page is not None:
            stop = bridge.safety
            page.status((f"Safety stop: {stop}" if stop else "") if bridge.connected else waiting)


def look_of(policy: Policy) -> Saliency:
    """Where the policy looks."""
    from nacdrive.viz.saliency import GradCam

    return GradCam(policy)


def keepers(config: DriveConfig, policy: str, pace_s: float, stack: ExitStack) -> list[Listener]:
    """Who films and who records, as ``config`` asks; what they have is kept at the end of ``stack``."""
    from nacdrive.cli.drive import kept
    from nacdrive.rollout.recorder import corrections, drives
    from nacdrive.rollout.simulator import at_rate, in_pieces
    from nacdrive.viz.video import video

    found: list[Listener] = []
    if config.video is not None:
        found.append(at_rate(stack.enter_context(video(config.video, policy, FILM_FPS)), FILM_FPS))
    if config.allow_control:
        folder = config.corrections or Path("recordings") / f"corrections-{policy}"
        # At the policy's pace: it is to learn from what it would have seen.
        by_person = corrections(folder, source=config.sim, fps=1 / pace_s if pace_s else FPS)
        stack.push(lambda *_: print(kept("corrections", by_person), end="", flush=True))
        found.append(in_pieces(stack.enter_context(by_person), EPISODE_STEPS, pace_s))
    if config.record is not None:
        keeper = drives(config.record, source=config.sim, fps=FPS, driver=policy, teacher=None)
        stack.push(lambda *_: print(kept("drives", keeper), end="", flush=True))
        found.append(in_pieces(stack.enter_context(keeper), EPISODE_STEPS))
    return found
