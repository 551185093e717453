"""``nacdrive arena``: several policies, experts, a person on one track, side by side on one page."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Interval

from nacdrive.common.action import KEYBOARD
from nacdrive.common.errors import UserError
from nacdrive.common.files import result_folder, write_json
from nacdrive.common.options import Device, LivePage, Output, Tracks
from nacdrive.common.paths import find_model, in_path
from nacdrive.common.runs import plain, run_record
from nacdrive.datasets.manifest import DRIVES
from nacdrive.datasets.recording import Recording
from nacdrive.drivers.human import HumanControl
from nacdrive.drivers.options import CameraOptions, SpeedOption, check_expert
from nacdrive.drivers.tick import Tick
from nacdrive.envs.registry import env_spec
from nacdrive.envs.seeds import POLICY_TEST
from nacdrive.envs.world import World
from nacdrive.extras.arena.arena import Arena, Audience
from nacdrive.extras.arena.contestant import Contestant, whole_drives
from nacdrive.extras.arena.standings import ARENA, ranking, totals, totals_table, track_table
from nacdrive.rollout.drive import Drive
from nacdrive.rollout.recorder import EpisodeRecorder
from nacdrive.rollout.results import ResultsFile, Row

if TYPE_CHECKING:
    from nacdrive.extras.arena.card import ArenaCard
    from nacdrive.web import LiveServer

PERSON, GHOST = "person", "ghost"
FIRST_VIEWER_S = 10.0
PERSON_SILENCE_S = 2.0
"""Who is silent for so long has let go of the wheel: the world stands still then, so that there is no hurry."""
BETWEEN_TRACKS_S = 6.0
"""So long the ranking of a track stands on the page before the next one begins."""


class ArenaConfig(
    World,
    SpeedOption,
    CameraOptions,
    Device,
    Tracks,
    LivePage,
    Output,
    defaults={"episodes": 1, "seed": POLICY_TEST.start},
):
    """Let several drive one track side by side, and compare them at the same place of it."""

    positional = ("models",)

    models: tuple[str, ...] = ()
    """Policies: files (.onnx too), or names of shipped ones. If nobody is named: nac_steady against the expert."""
    drivers: tuple[str, ...] = ()
    """Experts and drivers of your own: ppo, continuous, geometric, racing-line, predictive, ppo-rescued, an exported
    PPO policy, my_module:MyDriver."""
    person: bool = False
    """Somebody at the page drives too; needs --allow-control. CarRacing's lap then takes 60 s without --max-frames."""
    top_speed: Annotated[float | None, Interval(ge=1, le=100)] = None
    """Metres per second above which policies and drivers get no gas, so that they can be beaten; needs --person."""
    head_start: Annotated[float, Interval(ge=0, le=60)] = 0.0
    """Simulated seconds that policies and drivers stand before they follow the person; needs --person."""
    ghost: Path | None = None
    """A recording (of record, of eval, drives/NAME of an arena) that is driven once more beside the others, on its own
    tracks: from that of --seed, or from its first on."""

    def __post_init__(self) -> None:
        spec = env_spec(self.env)
        if spec.realtime:
            what = f"--env {spec.name} is one simulator with one car, whose time passes by itself"
            raise UserError(f"{what}: an arena needs one for each contestant; give --env udacity-track.")
        super().__post_init__()
        if not (self.models or self.drivers or self.person or self.ghost) and spec.expert is not None:
            object.__setattr__(self, "models", ("nac_steady.pt",))
            object.__setattr__(self, "drivers", (spec.expert,))
        for driver in self.drivers:
            check_expert(spec, driver, name="--drivers")
        rivals = len(self.models) + len(self.drivers)
        count = rivals + self.person + (self.ghost is not None)
        if not 2 <= count <= 6:
            what = f"an arena is for 2 to 6 contestants, and there {'is' if count == 1 else 'are'} {count}"
            raise UserError(f"{what}: name them with --models, --drivers, --ghost and --person.")
        if self.headless and (self.person or self.allow_control):
            flag = "--person" if self.person else "--allow-control"
            raise UserError(f"{flag} needs the page: leave out --headless.")
        if self.person and not self.allow_control:
            raise UserError("--person drives at the page: add --allow-control.")
        for flag, given in (("--top-speed", self.top_speed), ("--head-start", self.head_start)):
            if given and not (self.person and rivals):
                raise UserError(f"{flag} lets a person win: add --person and --models or --drivers, or leave it out.")
        if self.ghost is not None and self.track is not None:
            raise UserError("--ghost has tracks of its own: leave --track out.")
        if self.person and self.fast:
            raise UserError("--fast is too fast for a person: leave it out, or leave out --person.")

    @property
    def names(self) -> list[str]:
        """Of the contestants, numbered where files of two would have one name."""
        given = [Path(name).stem for name in self.models]
        given += [own_name(name) for name in self.drivers]
        given += [GHOST] * (self.ghost is not None) + [PERSON] * self.person
        files, names = [in_path(name) for name in given], dict[str, str]()
        for name in given:
            choices = chain([name] * (files.count(in_path(name)) == 1), (f"{name} ({number})" for number in count(1)))
            free = next(choice for choice in choices if in_path(choice) not in names)
            names[in_path(free)] = free
        return list(names.values())

    @property
    def folder(self) -> Path:
        parts = ["arena", self.spec.source, *([self.track] if self.track else []), *self.names]
        return self.out or Path("runs") / in_path("-".join(parts))

    def contestants(self) -> list[Contestant]:
        spec = self.spec
        usual = {"laps": 1.0} | ({"max_frames": spec.person_frames} if self.person else {})
        pace: dict[str, Any] = {"speed_mph": self.speed or spec.speed_mph, "device": self.device}
        drive = Drive(spec.name, options=self.options(**usual), **pace)
        drives = [replace(drive, model=find_model(name, spec.task)) for name in self.models]
        drives += [replace(drive, driver=name) for name in self.drivers]
        field = [Contestant("", one, self.top_speed, self.head_start) for one in drives]
        if self.ghost is not None:
            described = self.recording.meta.get("drive", {})
            again = replace(drive, driver=GHOST, recover=described.get("recover", bool(described)))
            field.append(Contestant("", again, ghost=self.recording.folder))
        field += [Contestant("", replace(drive, driver=KEYBOARD))] * self.person
        return [replace(one, name=name) for one, name in zip(field, self.names, strict=True)]

    @cached_property
    def recording(self) -> Recording:
        assert self.ghost is not None
        inside = self.ghost / DRIVES
        recording = Recording.open(inside if inside.is_dir() else self.ghost)
        if recording.meta["source"] != self.spec.source:
            raise UserError(f"--ghost was recorded in '{recording.meta['source']}', not in '{self.spec.source}'.")
        return recording

    @property
    def courses(self) -> list[tuple[int, str]]:
        """Seed and track of every episode."""
        seeds = list(range(self.seed, self.seed + self.episodes))
        if self.ghost is None:
            named = self.spec.honours("track")
            return [(seed, self.spec.track_of(self.track, seed) if named else "") for seed in seeds]
        drives = whole_drives(self.recording)
        kept = [self.recording.episodes[i].seed for i in drives]
        if self.seed not in kept and self.seed != POLICY_TEST.start:
            raise UserError(f"there is no track {self.seed} in {self.ghost}: give --seed {kept[0]}, or leave it out.")
        first = kept.index(self.seed) if self.seed in kept else 0
        if first + self.episodes > len(kept):
            raise UserError(f"--episodes is {self.episodes}, and --ghost has {len(kept) - first} from there on.")
        numbers = range(first, first + self.episodes)
        return [(kept[i], str(self.recording.load(drives[i]).meta.get("track") or "")) for i in numbers]


def own_name(driver: str) -> str:
    """A driver's name, without the rest of one that is a file or ``module:Name``."""
    return driver.rpartition(":")[2] if ":" in driver else Path(driver).stem if Path(driver).suffix else driver


def run(config: ArenaConfig) -> tuple[int, list[dict[str, Row]]]:
    """Drive, show, keep, and say who was best; 1 if a safety stop ended a drive, and what ``arena`` returns."""
    tracks = arena(config)
    return int(any(row["failure"] for track in tracks for row in track.values())), tracks


def arena(config: ArenaConfig) -> list[dict[str, Row]]:
    """Drive the tracks of ``config``; what came of each, by contestant."""
    control = HumanControl(config.person, PERSON_SILENCE_S) if config.allow_control else None
    with ExitStack() as stack:
        track = Arena(config.contestants(), control, config.disturbance)
        reads = (*config.models, *config.drivers, config.ghost)
        out = result_folder(config.folder, overwrite=config.overwrite, reads=reads)
        stack.enter_context(track)
        card = page = None
        if not config.headless:
            from nacdrive.extras.arena.card import ArenaCard

            page = open_page(config, track, ArenaCard(track.set_camera))
            stack.callback(page.stop)
            if config.wait and not config.fast:
                page.wait_for_viewer(FIRST_VIEWER_S)
        kept = Kept(config, track, out, stack)
        try:
            drive_tracks(config, track, card, kept)
        except KeyboardInterrupt:
            if page is None:
                raise
            print()
        else:
            if page is not None and page.stays_up(config.hold):
                page.stay()
    if kept.tracks:
        print(f"drives: nacdrive replay {out}", flush=True)
    return kept.tracks


def open_page(config: ArenaConfig, track: Arena, card: ArenaCard) -> LiveServer:
    """The page, with a lane for each contestant."""
    from nacdrive.web import LiveServer

    page = LiveServer(
        config.host, config.page_port, f"{', '.join(config.names)} on {config.spec.title}", names=config.names,
        people=[one.name for one in track.contestants if one.person], control=track.control, cards=[card],
    )  # fmt: skip
    print(f"watch at {page.start()}  (Ctrl-C ends it)", flush=True)
    track.watched = lambda: page.viewers > 0
    return page


def drive_tracks(config: ArenaConfig, track: Arena, card: ArenaCard | None, kept: Kept) -> None:
    """Drive one track after the other, tell what came of each, and in the end what they say together."""
    courses = config.courses
    count, shown = len(courses), card is not None
    audience: list[Audience] = [kept, *([card] if card is not None else [])]
    for episode, (seed, name) in enumerate(courses):
        rows = track.drive(episode, seed, name, audience=audience, realtime=shown and not config.fast, together=shown)
        kept.add(rows)
        ranked, sums = ranking(rows), totals(kept.tracks)
        print(f"track {seed}{f' ({name})' if name else ''}:\n{track_table(ranked)}", flush=True)
        if card is not None:
            last = episode == count - 1
            following = "" if last else f"Track {courses[episode + 1][0]} begins in {BETWEEN_TRACKS_S:g} s."
            card.show_ranking(seed, ranked, sums if len(kept.tracks) > 1 else [], following)
            if not last:
                time.sleep(BETWEEN_TRACKS_S)
    if count > 1:
        print(totals_table(totals(kept.tracks)), flush=True)


class Kept(Audience):
    """Writes down what is driven: a recording and the rows of each contestant, and ``arena.json`` over all.

    A context manager for its recorders is ``stack``: what is under way when it ends is kept too. A recorder sees by
    itself that an episode begins, and the arena writes changes of the camera down.
    """

    def __init__(self, config: ArenaConfig, track: Arena, out: Path, stack: ExitStack) -> None:
        self.config, self.out, self._arena, spec = config, out, track, config.spec
        self.tracks: list[dict[str, Row]] = []
        self._recorders: list[EpisodeRecorder] = []
        self._files: dict[str, Any] = {}
        for one, step_s in zip(track.contestants, track.steps_s, strict=True):
            folder = out / "drives" / in_path(one.name)
            fps = round(1 / step_s, 6)
            fps = int(fps) if fps == int(fps) else fps
            recorder = EpisodeRecorder(folder, source=spec.source, fps=fps, driver=one.name, image=spec.image_format)
            self._recorders.append(stack.enter_context(recorder))
            self._files[one.name] = ResultsFile(out / f"episodes-{in_path(one.name)}.jsonl")

    def tick(self, index: int, tick: Tick) -> None:
        self._recorders[index](tick)

    def add(self, rows: dict[str, Row]) -> None:
        self.tracks.append(rows)
        for name, row in rows.items():
            self._files[name].add(row)
        contestants = [
            {
                "name": one.name,
                "file": PERSON if one.person else one.drive.name,
                "sha256": one.drive.checksum,
                "drives": f"drives/{in_path(one.name)}",
            }
            for one in self._arena.contestants
        ]
        write_json(
            self.out / ARENA,
            {
                "env": self.config.spec.title,
                "contestants": contestants,
                "disturbance": plain(self.config.disturbance),
                "camera_changes": self._arena.changes,
                "tracks": [
                    {"seed": next(iter(rows.values()))["seed"], "ranking": ranking(rows)} for rows in self.tracks
                ],
                "totals": totals(self.tracks),
                "run": run_record(self.config),
            },
        )
