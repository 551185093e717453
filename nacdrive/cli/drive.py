"""``nacdrive drive``: a policy or a driver of your own at work, and a page to watch it."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from annotated_types import Interval

from nacdrive.common.errors import UserError, quoted
from nacdrive.common.files import refuse_existing
from nacdrive.common.options import LivePage, Port, SaliencyOption, TimeLimit, TracksIfGiven, VideoOption
from nacdrive.common.paths import find_model
from nacdrive.drivers.options import CameraOptions, Driving, WheelOption, check_expert
from nacdrive.envs.seeds import POLICY_RECORDING, POLICY_TEST
from nacdrive.envs.world import World
from nacdrive.extras.teach.options import TeachOptions

if TYPE_CHECKING:
    from nacdrive.drivers.human import HumanControl
    from nacdrive.drivers.policy import PolicyDriver
    from nacdrive.drivers.tick import Listener
    from nacdrive.extras.teach.card import TeachCard
    from nacdrive.extras.what_if import WhatIfSource
    from nacdrive.extras.what_if.what_if import WhatIf
    from nacdrive.rollout.drive import Drive, LoadedDrive
    from nacdrive.rollout.recorder import EpisodeRecorder
    from nacdrive.rollout.results import EpisodeResult
    from nacdrive.rollout.rollout import Probes
    from nacdrive.web import LiveServer

PORT = 4567
"""Built into the Udacity simulator."""
REALTIME_FPS = 50.0
"""About what a simulator draws a second."""
FILM_FPS = 25.0
"""Of a film of a simulator in real time, whatever rate it has."""
EPISODE_STEPS = 1500
"""Half a minute in real time: a recorder keeps an episode in memory."""
STATUS_EVERY_S = 0.2
FIRST_VIEWER_S = 10.0
"""So long a drive waits for a browser that is opening its page, ..."""
NO_BROWSER_S = 3.0
"""... and so long where people have to open it themselves."""
BETWEEN_TRACKS_S = 4.0
"""So long what came of a track stands on the page before the next one begins."""
REMEMBERED = 10_000
"""Decisions that the summary's percentiles are taken over."""
SLACK = 2.5
"""A decision may take so many times as long as usual before the car is braked."""
STARTED_OVER = "started over: the policy has forgotten the drive; the car stays, for only its simulator can move it"


class DriveConfig(
    World, Driving, WheelOption, CameraOptions, TracksIfGiven, LivePage, SaliencyOption, VideoOption, TimeLimit,
    TeachOptions,
    defaults={"seed": POLICY_TEST.start},
):  # fmt: skip
    """Drive with a policy and watch it in a browser."""

    positional = ("model", "data")
    unchecked = ("data",)

    record: Path | None = None
    """Keep the drive in this recording, beside what it holds: what the policy did, labelled by who rides along."""
    corrections: Path | None = None
    """Recording of what a person drives after taking over (recordings/corrections-SOURCE-MODEL, or --teach's)."""
    port: Port | None = None
    """udacity: port that the simulator connects to (4567); elsewhere another word for --page-port."""
    pace: Annotated[float | None, Interval(ge=0, le=10)] = None
    """udacity: least seconds between two decisions; if not given as in training, or 0 without a memory."""
    limit_s: Annotated[float | None, Interval(ge=0.01, le=60)] = None
    """udacity: seconds without a decision after which the car is braked (0.3); a slow policy is driven slowly."""
    server: Literal["threads", "eventlet"] | None = None
    """udacity: what serves the connections (threads)."""
    neurons_every: int = 2
    """Decisions between two readings of the neurons, and of why it decides so, for the page; 0 reads none."""
    kept_mb: Annotated[int, Interval(ge=1, le=100_000)] = 128
    """Megabytes of pictures kept for the page's what-if: five minutes of CarRacing, one of the simulator."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teach and self.seed == POLICY_TEST.start:
            # Who learns from the tracks of the test is not tested on them any more.
            object.__setattr__(self, "seed", POLICY_RECORDING.start)
        if self.port is not None and not self.spec.realtime and self.page_port == LivePage.page_port:
            object.__setattr__(self, "page_port", self.port)
        check_expert(self.spec, self.driver, name="--driver")
        if self.spec.realtime and self.hold == "yes":
            raise UserError(f"--hold is not for {self.spec.name}, whose page goes when the drive ends: leave it out.")
        if self.allow_control and self.headless:
            raise UserError(f"{'--teach' if self.teach else '--allow-control'} needs the page: leave out --headless.")
        if self.corrections is not None and not self.allow_control:
            raise UserError("--corrections keeps what a person drives: add --allow-control.")

    @property
    def first_seed(self) -> int:
        """Seed of the first episode; a simulator that connects numbers its drives."""
        return 0 if self.spec.realtime else self.seed


def run(config: DriveConfig) -> int:
    """Drive, show, film, and say what came of it."""
    results = drive(config)
    return 0 if config.spec.realtime else int(any(result.failure for result in results))


def drive(config: DriveConfig) -> list[EpisodeResult]:
    """Drive the episodes of ``config``; prints the page's address and a line per episode."""
    from nacdrive.drivers.human import HumanControl
    from nacdrive.rollout.drive import warn_of_pixels

    if config.video is not None:
        import imageio_ffmpeg  # noqa: F401

        refuse_existing(config.video, overwrite=config.overwrite, flag="--video")
    spec = config.spec
    loaded = load(config)
    driver, policy = loaded.driver, loaded.policy
    if (torch := sys.modules.get("torch")) is not None:  # an exported policy drives without
        torch.set_num_threads(1)
    if policy is not None:
        warn_of_pixels(policy.policy, config.renderer)
    if loaded.expert is not None and loaded.companion is None:
        every = loaded.expert_repeat
        print(f"the expert decides every {every} frames, {driver.name} every {loaded.repeat}: it does not ride along.")
    control = None
    if config.allow_control:
        control = HumanControl(started_over=STARTED_OVER) if spec.realtime else HumanControl()
    with ExitStack() as watching:
        page = teacher = None
        if not config.headless:
            from nacdrive.cli.page import network_view, open_page, show_in_browser
            from nacdrive.cli.share import playground_of
            from nacdrive.drivers.exported import ExportedPolicy
            from nacdrive.extras.export.card import LapCard, LapMemory
            from nacdrive.extras.teach.card import teach_card
            from nacdrive.extras.what_if import WhatIfCard

            what = network_view(policy.policy) if policy is not None else {}
            title = f"{driver.name} on {spec.title}"
            # A simulator that connects cannot be asked before it does.
            what["choices"] = spec.actions if spec.realtime else loaded.actions
            teacher = teach_card(config, loaded) if config.allow_control else None
            what["cards"] = [teacher] if teacher is not None else []
            # Whom it asks has learnt nothing.
            if policy is not None and not isinstance(policy.policy, ExportedPolicy) and not config.teach:
                asked = what_if_of(config, policy, loaded.companion is not None)
                what["cards"].append(WhatIfCard.of_drive(asked, config.kept_mb))
                if (model := loaded.drive.model) is not None:
                    lap = LapMemory(spec.source, driver.name, spec.image_format, partial(lap_meta, loaded.drive))
                    what["cards"].append(LapCard({0: (model, lap.episode)}, playground_of, lap))
            page = open_page(watching, config.host, config.page_port, title, control=control, **what)
            shown = show_in_browser(page.url)
            if config.wait and not config.fast and not spec.realtime:
                page.wait_for_viewer(FIRST_VIEWER_S if shown else NO_BROWSER_S)
        if spec.realtime:
            results, driven = [], drive_realtime(config, loaded, control, page, teacher)
        else:
            results = drive_episodes(config, loaded, control, page, teacher)
            driven = len(results)
        if config.video is not None and driven:
            print(f"video: {config.video}", flush=True)
        if page is not None and config.episodes is not None and not spec.realtime and page.stays_up(config.hold):
            page.stay()
    return results


def load(config: DriveConfig) -> LoadedDrive:
    """Who drives what, and who rides along."""
    from nacdrive.rollout.drive import Drive, LoadedDrive, usual_expert

    spec = config.spec
    model = find_model(config.model, spec.task) if config.driver is None else None
    own = {"track": config.track, "steering_noise": config.steering_noise or 0.0, "pace_s": config.pace}
    drive = Drive.of(config, model, {"laps": 1.0}, **own)
    loaded = drive.load()
    expert = config.expert
    if expert is None:
        expert = spec.expert if loaded.policy is None else usual_expert(spec, loaded.policy.policy)
    return LoadedDrive(replace(drive, expert=None if expert == "none" else expert), driver=loaded.driver)


def lap_meta(drive: Drive, seed: int) -> dict[str, Any]:
    """Of the episode of ``seed``, what its road is made from."""
    return {**drive.options, "track": drive.env_spec.track_of(drive.track, seed, drive.roads) or None}


def what_if_of(config: DriveConfig, policy: PolicyDriver, expert: bool) -> WhatIfSource:
    """Whom the page asks what would be if: the same policy, in the same world, in another process."""
    from nacdrive.extras.what_if import WhatIfSource

    again = replace(config, steering_noise=None)
    ghost = not config.spec.realtime
    return WhatIfSource(partial(load_what_if, again), policy.policy.config.window, ghost, expert and ghost)


def load_what_if(config: DriveConfig) -> WhatIf:
    """Called in the process that answers."""
    from nacdrive.drivers.exported import ExportedPolicy
    from nacdrive.extras.what_if.what_if import Simulation, WhatIf

    loaded = load(config)
    assert loaded.policy is not None and not isinstance(loaded.policy.policy, ExportedPolicy)
    simulation = None
    if not config.spec.realtime:
        simulation = Simulation(
            loaded.make_env, lambda driver, env: loaded.wrap(env, driver=driver), lambda: loaded.companion
        )
    return WhatIf(loaded.policy.policy, simulation)


def drive_episodes(
    config: DriveConfig,
    loaded: LoadedDrive,
    control: HumanControl | None,
    page: LiveServer | None,
    teacher: TeachCard | None,
) -> list[EpisodeResult]:
    """Drive one seed after the other in an environment that waits for decisions."""
    from nacdrive.cli.page import end_card
    from nacdrive.rollout.results import EpisodeMetrics
    from nacdrive.viz.video import video

    results, again = [], 0
    probes = probes_of(config, loaded.policy, page)
    expert = loaded.drive.expert if loaded.companion is not None else None
    with ExitStack() as stack:
        listeners: list[Listener] = [page.publish] if page is not None else []
        endless = config.episodes is None and page is not None and page.stays_up(config.hold)
        for episode in count() if endless else range(config.episodes or 1):
            seed = config.first_seed + episode - again
            realtime = page is not None and not config.fast
            try:
                with loaded.open(seed, episode=episode, control=control, probes=probes, realtime=realtime) as opened:
                    if episode == 0:
                        fps = 1 / opened.env.step_s
                        listeners += recorders(config, stack, loaded, fps, teacher)
                        if config.video is not None:
                            name, actions = loaded.driver.name, opened.env.actions
                            listeners.append(stack.enter_context(video(config.video, name, fps, actions=actions)))
                    metrics = EpisodeMetrics()
                    for tick in opened:
                        metrics.add(tick)
                        for listener in listeners:
                            listener(tick)
                    result = metrics.result()
                    print(sentence(result, opened.env.metrics()), flush=True)
                results.append(result)
                if page is not None:
                    following = f"Track {seed + 1} begins in {BETWEEN_TRACKS_S:g} s." if endless else ""
                    page.result(end_card(vars(result), tick.events[-1], known_score(config, expert, seed), following))
                if endless:
                    time.sleep(BETWEEN_TRACKS_S)
                    again += control is not None and control.take_reset()
            except KeyboardInterrupt:
                if not endless:
                    raise
                print()
                break
    return results


def known_score(config: DriveConfig, expert: str | None, seed: int) -> float | None:
    """What ``expert``, who rides along, is known to have scored on the track of ``seed``, under the same options."""
    from nacdrive.rollout.results import shipped_score

    if config.steering_noise:
        return None
    given = {option: getattr(config, option) for option in ("renderer", "max_frames", "rule")}
    return shipped_score(expert, config.spec.name, seed, **given)


def drive_realtime(
    config: DriveConfig,
    loaded: LoadedDrive,
    control: HumanControl | None,
    page: LiveServer | None,
    teacher: TeachCard | None,
) -> int:
    """Drive whatever simulator connects, drive after drive, until Ctrl-C, ``--seconds`` or ``--episodes``; how many
    decisions that took.
    """
    from nacdrive.common.net import is_loopback
    from nacdrive.envs.udacity.env import LIMIT_S, DriveInterruptedError
    from nacdrive.rollout.background import BackgroundListener

    def say(text: str) -> None:
        try:
            print(text, flush=True)
        except BrokenPipeError:
            # Such as `| head -1`. What is still to be said goes nowhere.
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
            print("nacdrive: nobody reads what is told here any more: the drive ends.", file=sys.stderr, flush=True)
            raise

    # A drive lasts as long as its simulator stays: no more is kept of it than this.
    decided_ms: deque[float] = deque(maxlen=REMEMBERED)
    with ExitStack() as stack:
        listeners: list[Listener] = [page.publish] if page is not None else []
        listeners += realtime_recorders(config, stack, loaded, teacher)
        # What is still to be told is told after the car has been braked.
        probes = probes_of(config, loaded.policy, page)
        background = stack.enter_context(BackgroundListener(listeners, probes, say if page is None else page.note))
        decision_s = warm_up(loaded.policy) if loaded.policy is not None else 0.0
        limit_s = config.limit_s
        if limit_s is None and decision_s > LIMIT_S / SLACK:
            limit_s = SLACK * decision_s
            say(f"a decision takes {decision_s:.2f} s here: the car is slow, braked after {limit_s:.1f} s without one.")
        serving = {"host": config.host, "port": PORT if config.port is None else config.port}
        serving |= {"engine": config.server, "limit_s": limit_s, "on_event": say}
        env: Any = loaded.make_env(0, more=serving)
        stack.callback(env.close)
        say(f"{env.status}; Ctrl-C ends.")
        if not is_loopback(config.host):
            say(
                f"--host {config.host}: other machines reach that port too, and whoever connects last as a simulator "
                "is driven; without --host only this machine does."
            )
        stack.enter_context(status_line(env, page, config.seconds))
        commands = drives = stops = 0
        try:
            for episode in range(config.episodes) if config.episodes is not None else count():
                for tick in loaded.open(episode, episode=episode, env=env, control=control):
                    background(tick)
                    commands += 1
                    drives += tick.step == 0
                    if not tick.held:
                        decided_ms.append(tick.decision_ms)
                    # What the environment has not said on the terminal itself.
                    known = {"started", tick.next_info.get("ended"), *tick.next_info.get("events", ())}
                    for event in (event for event in tick.events if event not in known):
                        stops += event.startswith("safety stop")
                        say(f"{event[0].upper()}{event[1:]}.")
        except DriveInterruptedError:
            pass
        except KeyboardInterrupt:
            print()
    say(summary(commands, drives, stops + env.safety_stops, decided_ms, background.lost))
    if background.failures:
        raise UserError(f"part of the drive is neither kept nor shown: {background.failures[0]}")
    return commands


def probes_of(config: DriveConfig, policy: PolicyDriver | None, page: LiveServer | None) -> Probes | None:
    """What the page shows of a policy's inside; nothing without a page or a policy."""
    if page is None or policy is None:
        return None
    from nacdrive.drivers.exported import ExportedPolicy
    from nacdrive.rollout.rollout import Probes

    cam = None
    if config.saliency_every and not isinstance(policy.policy, ExportedPolicy):
        from nacdrive.viz.saliency import GradCam

        cam = GradCam(policy.policy)
    return Probes(
        neurons=policy.neurons,
        neurons_every=config.neurons_every,
        why=policy.why,
        saliency=None if cam is None else lambda frame: policy.look(cam, frame),
        saliency_every=max(config.saliency_every, 1),
        watched=lambda: page.viewers > 0,
    )


def warm_up(policy: PolicyDriver) -> float:
    """Decide on a few empty pictures, so that the first real one is not kept waiting; seconds that a decision takes."""
    from nacdrive.envs.udacity.telemetry import HEIGHT, WIDTH

    took_s = []
    with quoted("this policy cannot drive the simulator (", "): give another --model.", ValueError):
        for k in range(4):
            began = time.perf_counter()
            policy.policy.step(np.zeros((HEIGHT, WIDTH, 3), np.uint8), 0.02 * k, 0.0)
            took_s.append(time.perf_counter() - began)
    policy.policy.reset()
    return min(took_s)


@contextmanager
def status_line(env: Any, page: LiveServer | None, seconds: float | None) -> Iterator[None]:
    """Keep the page's status up to date meanwhile, and end the drive when the time is up."""
    ended = Event()
    began = time.monotonic()

    def watch() -> None:
        while not ended.wait(STATUS_EVERY_S):
            if page is not None:
                page.status(env.status)
            if seconds is not None and time.monotonic() - began > seconds:
                env.interrupt()
                return

    thread = Thread(target=watch, name="nacdrive-status", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def recorders(
    config: DriveConfig,
    stack: ExitStack,
    loaded: LoadedDrive,
    fps: float,
    teacher: TeachCard | None,
    pace_s: float = 0.0,
) -> list[Listener]:
    """Who writes down what is driven, as ``config`` asks, what a person corrects first; says at the end of ``stack``
    what there is.

    ``pace_s``: seconds between two decisions of the policy, where frames come at another rate than those.
    """
    from nacdrive.rollout.recorder import EpisodeRecorder, corrections

    spec, driver, expert = config.spec, loaded.driver.name, loaded.companion
    pairs = []
    if config.allow_control:
        folder = config.corrections or config.corrections_of(driver, spec.source)
        # At the policy's pace: it is to learn from what it would have seen.
        rate = 1 / pace_s if pace_s else fps
        pairs.append(("corrections", corrections(folder, source=spec.source, fps=rate, image=spec.image_format)))
    if config.record is not None:
        learnt = teacher.teaching.training.data if teacher is not None else ()
        if config.overwrite and config.record.resolve() in [folder.resolve() for folder in learnt]:
            problem = f"{config.record} is learnt from here, and --overwrite would delete it"
            raise UserError(f"{problem}: give another --record.")
        whole = EpisodeRecorder(
            config.record,
            source=spec.source,
            fps=fps,
            driver=driver,
            teacher=expert.name if expert is not None else None,
            image=spec.image_format,
            drive=loaded.drive.to_json(),
            overwrite=config.overwrite,
        )
        pairs.append(("drives", whole))
    seed = None if spec.realtime else config.first_seed
    for what, recorder in pairs:
        if config.road.camera_mount is not None:
            # Whoever learns from it has to know whether to turn the pictures.
            recorder.meta = {"camera_mount": config.road.camera_mount}
        stack.push(lambda *_, of=(what, recorder, seed): print(recording_text(*of), end="", flush=True))
        stack.enter_context(recorder)
    return [recorder if teacher is None or what == "drives" else teacher.around(recorder) for what, recorder in pairs]


def realtime_recorders(
    config: DriveConfig, stack: ExitStack, loaded: LoadedDrive, teacher: TeachCard | None
) -> list[Listener]:
    """The same, and a film, of a simulator that sends as many pictures as it likes."""
    from nacdrive.rollout.background import split_drives
    from nacdrive.viz.video import video

    listeners: list[Listener] = []
    pace_s = loaded.policy.pace_s if loaded.policy is not None else 0.0
    if config.video is not None:
        listeners.append(stack.enter_context(video(config.video, loaded.driver.name, FILM_FPS)))
    for number, recorder in enumerate(recorders(config, stack, loaded, REALTIME_FPS, teacher, pace_s)):
        listeners.append(split_drives(recorder, EPISODE_STEPS, pace_s if config.allow_control and number == 0 else 0.0))
    return listeners


def recording_text(what: str, recorder: EpisodeRecorder, seed: int | None = None) -> str:
    """What is in a recording now; nothing where nothing was added. ``seed``: the first track, where tracks have one."""
    if not recorder.kept:
        return ""
    # Who learns from the tracks of the test is not tested on them any more.
    test = (
        f" (track {seed} is for judging policies: drive with --seed {POLICY_RECORDING.start} for ones to learn from)"
        if seed is not None and seed in POLICY_TEST
        else ""
    )
    return f"{recorder.kept} {what[: -1 if recorder.kept == 1 else None]} added to {recorder.folder}{test}\n"


def sentence(result: EpisodeResult, metrics: dict[str, float]) -> str:
    """One line about an episode."""
    agreed = "" if result.expert_agreement is None else f", as the expert in {result.expert_agreement:.0%} of decisions"
    lap = f", {result.progress:.1%} of the lap" if result.progress else ""  # an own environment may count none
    more = f", {metrics['offset_mean_m']:.2f} m from the middle on average" if "offset_mean_m" in metrics else ""
    line = (
        f"track {result.seed}: return {result.episode_return:.1f}{lap} in {result.simulated_s:.1f} s{agreed}{more}, "
        f"decided in {result.decision_ms_median:.1f} ms (slowest 1 %: {result.decision_ms_p99:.1f})"
    )
    if result.failure:
        line += f"\nsafety stop on track {result.seed}: {result.failure}"
    return line


def summary(commands: int, drives: int, stops: int, decided_ms: Collection[float], lost: int) -> str:
    """One sentence about all drives of a simulator in real time."""
    if not decided_ms:
        return "no simulator came"
    median, p99 = np.percentile(list(decided_ms), [50, 99])
    missing = f", {lost} of them neither shown nor kept: this machine is too slow" if lost else ""
    return (
        f"{commands} commands in {drives} drive{'s' * (drives != 1)}, decided in {median:.1f} ms "
        f"(slowest 1 %: {p99:.1f}), {stops} safety stops{missing}"
    )
