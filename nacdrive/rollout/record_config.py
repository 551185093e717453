"""The options of ``nacdrive record``; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from nacdrive.common.action import KEYBOARD
from nacdrive.common.errors import UserError, unknown_name
from nacdrive.common.runs import usable_cores
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.lap_rules import LapRule
from nacdrive.envs.registry import ENVIRONMENTS, EnvSpec, env_spec
from nacdrive.envs.seeds import POLICY_RECORDING, POLICY_TEST, refuse_test_road
from nacdrive.envs.udacity_track.options import RoadOptions, is_random, road_seed

OFFICIAL_FRAMES = 1000
OPTIONAL = ("min_return", "track", "steering_noise", "log", "rule", "repeat")
"""Options that not every environment honours."""
STEERING_NOISE = 1.0
LARGEST_SEED = 2**31 - 1
LARGEST_COUNT = 10**9


@dataclass(frozen=True)
class RecordConfig:
    """Let an expert drive unseen tracks and keep its episodes."""

    env: Annotated[str, tyro.conf.arg(aliases=["--sim"])] = "carracing"
    """What is driven: carracing, udacity-track (the built-in tracks of the Udacity simulator, also called udacity),
    gym:ID, or module:make_env for an environment of your own."""
    expert: str | None = None
    """Who gives the labels, and drives: ppo or continuous (shipped), geometric, racing-line, the path of an exported
    policy, module:MyExpert, or keyboard: a person at the page, in real time. If not given, the environment's usual
    one."""
    driver: str | None = None
    """module:MyDriver that drives in the expert's stead; without --expert its own actions are the labels."""
    episodes: int = 20
    """How many episodes the recording shall hold in the end."""
    out: Path | None = None
    """Folder of the recording; recordings/carracing-expert or recordings/udacity-geometric if not given."""
    seed: int = POLICY_RECORDING.start
    """Seed of the first track; the following tracks have the following seeds."""
    workers: int = 0
    """Environments driven in parallel, each in a process of its own; 0 means one per core."""
    ray: str | None = None
    """Address of a Ray cluster that drives instead of processes here; local starts one on this machine."""
    every_frame: bool = False
    """carracing: record all 50 frames a second instead of one per decision of the expert."""
    min_return: float | None = None
    """Keep only episodes with at least this return; others are dropped, said so, and replaced by further tracks."""
    max_frames: int = OFFICIAL_FRAMES
    """Simulated frames (50 a second) after which an episode ends; 1000 is the official limit of CarRacing."""
    rule: LapRule | None = None
    """carracing: when a lap is finished: as in Gymnasium 1.4 (if not given), or with 95 % of all tiles."""
    repeat: int | None = None
    """Frames for which an action is held, where the driver was not trained at a pace of its own; the environment's
    usual number if not given."""
    track: str | None = None
    """udacity-track: lake, mountain, both, which takes them in turn, or random: each episode on the road of its seed
    (random:SEED: all on one)."""
    roads: int | None = None
    """udacity-track: of random roads, so many different ones in turn; each episode has its own if not given."""
    road: Annotated[RoadOptions, tyro.conf.arg(name="")] = field(default_factory=RoadOptions)
    """How random roads are, and what is wrong with a road."""
    steering_noise: float | None = None
    """udacity-track: strength of the disturbances of the wheel from which the driver recovers; 0 for none, 1 if not
    given."""
    sides: bool = True
    """udacity-track: record the side cameras too."""
    log: Path | None = None
    """udacity-track: also write what the simulator itself would have written (driving_log.csv and IMG) to this
    folder."""
    disturbance: Annotated[CameraNoise, tyro.conf.arg(name="")] = field(default_factory=CameraNoise)
    """What is wrong with the recorded camera; the expert sees the true frames."""
    watch: bool = False
    """Drive in this process alone and show it on the live page."""
    allow_control: bool = False
    """Let the page control the drive; --expert keyboard needs it, with --watch."""
    host: str = "127.0.0.1"
    """Address of that page."""
    page_port: Annotated[int, tyro.conf.arg(aliases=["--port"])] = 8090
    """Port of that page; 0 takes a free one."""
    license: str | None = None
    """Licence of the recording, such as CC-BY-4.0, CC0-1.0 or MIT; without one nobody else may use it."""
    resume: bool = False
    """Go on with the recording in --out until it holds --episodes."""
    overwrite: bool = False
    """Delete the recording in --out first."""

    def __post_init__(self) -> None:
        spec = drivable(self.env)
        object.__setattr__(self, "env", spec.name)
        # Without side cameras anyway, --sides and --no-sides ask for nothing.
        optional = {name: getattr(self, name) for name in OPTIONAL}
        optional |= self.road.given | {"roads": self.roads, "every_frame": self.every_frame or None}
        spec.refuse(optional, "record")
        spec.tracks_of(self.track)
        self.road.check(self.track)
        check_roads(self.track, self.roads)
        object.__setattr__(self, "expert", self.expert or (None if self.driver else spec.expert))
        if self.expert is None and self.driver is None:
            raise UserError(f"nobody is known to drive {spec.name}: give --driver module:MyDriver or --expert.")
        check_expert(spec, self.expert, also=(KEYBOARD,))
        if self.by_hand and self.driver is not None:
            raise UserError("--expert keyboard means that a person drives: leave --driver out.")
        if self.by_hand != self.allow_control or (self.by_hand and not self.watch):
            raise UserError("a person drives by the page: --expert keyboard, --watch and --allow-control go together.")
        if self.by_hand and (self.every_frame or self.log is not None):
            raise UserError("--expert keyboard knows no --every-frame and no --log.")
        if self.every_frame and self.repeat is not None:
            raise UserError("--every-frame records all frames of the expert's own decisions: leave --repeat out.")
        if self.repeat is not None and not 1 <= self.repeat <= LARGEST_COUNT:
            raise UserError(f"--repeat is {self.repeat}: it must be at least 1, and at most 10^9.")
        if self.watch and self.ray is not None:
            raise UserError("--watch drives in this process: leave --ray out.")
        noise = self.steering_noise
        if noise is not None and not 0 <= noise <= 2:
            raise UserError(f"--steering-noise is {noise:g}: it must lie in 0 .. 2.")
        if self.min_return is not None and not abs(self.min_return) < LARGEST_COUNT:
            raise UserError(f"--min-return is {self.min_return:g}: give a return that an episode can have.")
        for name in ("episodes", "max_frames"):
            if not 1 <= getattr(self, name) <= LARGEST_COUNT:
                flag = name.replace("_", "-")
                raise UserError(f"--{flag} is {getattr(self, name)}: it must be at least 1, and at most 10^9.")
        if self.license is not None:
            from nacdrive.datasets.manifest import check_license

            check_license(self.license)
        check_workers_and_seed(self.workers, self.seed)
        if self.seed < POLICY_TEST.stop and self.seed + self.episodes > POLICY_TEST.start:
            raise UserError(
                f"seeds {self.seed} to {self.seed + self.episodes - 1} reach into those that policies are judged on "
                f"(from {POLICY_TEST.start}): begin elsewhere, such as at --seed {POLICY_RECORDING.start}."
            )

    @property
    def spec(self) -> EnvSpec:
        """What there is to know of the environment."""
        return env_spec(self.env)

    @property
    def folder(self) -> Path:
        """Where the recording lies."""
        if self.out is not None:
            return self.out
        usual = self.spec.recording_folder
        return usual.with_name(f"{self.spec.source}-{KEYBOARD}") if self.by_hand else usual

    @property
    def by_hand(self) -> bool:
        """Whether a person drives."""
        return self.expert == KEYBOARD

    @property
    def parallel(self) -> int:
        """Environments that run at the same time."""
        return min(self.workers or usable_cores(), self.episodes)


def drivable(name: str) -> EnvSpec:
    """The environment of that name; for a simulator on the wire the built-in one for the same policies.

    Whoever records or evaluates begins episodes when he wants, which a simulator on the wire does not let him.

    Raises:
        UserError: for an unknown name.
    """
    spec = env_spec(name)
    return (env_of_task(spec.task) or spec) if spec.realtime else spec


def env_of_task(task: str) -> EnvSpec | None:
    """The environment in which policies of ``task`` are recorded and drive for DAgger; None if there is none."""
    specs = map(env_spec, ENVIRONMENTS.names())
    return next((spec for spec in specs if spec.task == task and not spec.realtime), None)


def check_expert(spec: EnvSpec, expert: str | None, also: tuple[str, ...] = (), flag: str = "--expert") -> None:
    """Refuse the name of an expert that ``spec`` does not know; files, ``module:Name`` and plug-ins pass.

    Raises:
        UserError: for such a name.
    """
    if expert is None or ":" in expert or expert in (*spec.experts, *also) or Path(expert).expanduser().is_file():
        return
    known = {name for other in map(env_spec, ENVIRONMENTS.names()) for name in other.experts}
    if expert in known:
        others = " or ".join((*spec.experts, *also, "my_module:MyExpert"))
        raise UserError(f"{flag} {expert} does not know {spec.name}: give {others}.")
    if not Path(expert).suffix and len(Path(expert).parts) == 1:
        raise unknown_name("expert", expert, (*spec.experts, *also))


def labelled_by(folders: Sequence[Path], spec: EnvSpec) -> str | None:
    """The expert that labelled all of the recordings in ``folders``; None where it is none that ``spec`` knows by name.

    Raises:
        UserError: if a recording is damaged.
    """
    from nacdrive.common.paths import find_recording
    from nacdrive.datasets.manifest import MANIFEST, read_manifest

    found = [folder for folder in map(find_recording, folders) if (folder / MANIFEST).is_file()]
    names = {str(read_manifest(folder)[0].get("expert")) for folder in found}
    return names.pop() if len(names) == 1 and names <= set(spec.experts) else None


def check_workers_and_seed(workers: int, seed: int) -> None:
    """Refuse numbers of processes and seeds that make no sense.

    Raises:
        UserError: for such a number.
    """
    if not 0 <= workers <= 4096:
        raise UserError(f"--workers is {workers}: give 0 (one per core) or more, and at most 4096.")
    if not 0 <= seed <= LARGEST_SEED:
        raise UserError(f"--seed is {seed}: it must not be negative, and at most {LARGEST_SEED}.")


def check_roads(track: str | None, roads: int | None) -> None:
    """Refuse a number of roads, or a road, that cannot be learnt from.

    Raises:
        UserError: for such a one.
    """
    if is_random(track):
        refuse_test_road(road_seed(str(track)))
    if roads is None:
        return
    if track is None or not is_random(track) or road_seed(track) is not None:
        raise UserError("--roads is for random roads: add --track random, or leave it out.")
    if not 1 <= roads <= len(POLICY_RECORDING):
        raise UserError(f"--roads is {roads}: give 1 to {len(POLICY_RECORDING)} different roads.")


def env_options(spec: EnvSpec, given: dict[str, Any]) -> dict[str, Any]:
    """Those of ``given`` that the environment honours and that are given."""
    return {name: value for name, value in given.items() if value is not None and spec.honours(name)}
