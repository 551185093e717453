"""What is driven: the options of an environment, its tracks and its episodes; imports nothing heavy."""

from __future__ import annotations

from dataclasses import MISSING, field, fields
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Interval

from nacdrive.common.errors import UserError, unknown_name
from nacdrive.common.options import Options
from nacdrive.envs.camera_noise import CameraNoise, check_rate
from nacdrive.envs.registry import BOTH, CARRACING, ENVIRONMENTS, UDACITY, UDACITY_TRACK, EnvSpec, env_spec
from nacdrive.envs.seeds import POLICY_RECORDING, refuse_test_road
from nacdrive.envs.start import MIDDLE, LapRule, Start
from nacdrive.envs.udacity_track.options import USUAL_TOP_SPEED_MPH, RoadOptions, check_track, is_random, road_seed


class RoadOption(Options):
    """What is driven."""

    road: RoadOptions = field(default_factory=RoadOptions)
    """How random roads are, and what is wrong with a road."""


class TrackOptions(RoadOption):
    """What is driven."""

    track: str | None = None
    """udacity-track: lake, mountain, both (in turn, as if not given; not for sim), random (each episode on the road of
    its seed) or random:SEED (all on one)."""


class LearningRoads(TrackOptions):
    """What is driven."""

    roads: Annotated[int | None, Interval(ge=1, le=len(POLICY_RECORDING))] = None
    """udacity-track: of random roads, so many different ones in turn; each episode has its own if not given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if is_random(self.track):
            refuse_test_road(road_seed(str(self.track)))
        if self.roads is not None and (not is_random(self.track) or road_seed(str(self.track)) is not None):
            raise UserError("--roads is for random roads: add --track random, or leave it out.")


class RuleOption(Options):
    """What is driven."""

    rule: LapRule | None = None
    """carracing: when a lap is finished: as in Gymnasium 1.4 (if not given), or with 95 % of all tiles."""


class EpisodeOptions(RuleOption):
    """What is driven."""

    max_frames: Annotated[int | None, Interval(ge=1, le=10**7)] = None
    """Frames of the environment after which an episode ends; if not given, its own limit, or the default."""


class RendererOption(Options):
    """What is driven."""

    renderer: Literal["official", "fast"] | None = None
    """carracing: pixels of the simulator: the official ones (as if not given), or quicker ones that differ from them
    by less than a level of 255 on average."""


class RepeatOption(Options):
    """What is driven."""

    repeat: Annotated[int | None, Interval(ge=1, le=1000)] = None
    """Frames for which an action is held, where the driver was not trained at a pace of its own; the environment's
    usual number if not given (carracing and udacity-track: 4, of 0.02 s)."""


class EnvOption(Options):
    """What is driven."""

    begins_episodes: ClassVar[bool] = False
    """Whether the verb begins episodes when it wants, which a simulator on the wire does not let it: the built-in one
    for the same policies then takes its place."""
    unchecked: ClassVar[tuple[str, ...]] = ()
    """Options that mean something else to the verb than to environments."""

    env: str = "carracing"
    """What is driven: carracing, udacity-track (the built-in tracks of the Udacity simulator), udacity (the simulator
    that connects to 'nacdrive drive'; of other verbs the built-in tracks), gym:ID, or your own module:make_env."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.begins_episodes and self.spec.realtime:
            object.__setattr__(self, "env", drivable(self.env).name)
        check_world(self.spec, self, but=self.unchecked)

    @property
    def spec(self) -> EnvSpec:
        return env_spec(self.env)


class World(EnvOption, TrackOptions, EpisodeOptions, RendererOption, RepeatOption):
    """What is driven."""

    start: Start = field(default_factory=Start)
    """How episodes begin."""
    laps: Annotated[float | None, Interval(ge=0.01, le=1000)] = None
    """udacity-track: laps of a drive; if not given 1, of eval on the two tracks 3."""

    def options(self, **usual: Any) -> dict[str, Any]:
        """Those that are given and that the environment honours, by name; ``usual`` ones where not given."""
        names = ("renderer", "rule", "max_frames", "laps", "repeat")
        given = {name: getattr(self, name) for name in names} | self.road.given | self.start.given
        given = usual | {name: value for name, value in given.items() if value is not None}
        return {name: value for name, value in given.items() if self.spec.honours(name)}


def check_world(spec: EnvSpec, config: Options, but: tuple[str, ...] = ()) -> None:
    """Refuse options of ``config`` that ``spec`` would ignore, and tracks that it does not have.

    A value that is the usual one, or a switch that is off, asks for nothing; ``but``: with another meaning to the verb.
    """
    road: RoadOptions = getattr(config, "road", RoadOptions())
    given: dict[str, Any] = road.given | getattr(config, "start", MIDDLE).given
    for one in fields(config):
        value = getattr(config, one.name)
        usual = one.default if one.default is not MISSING else None
        if one.name in OPTIONAL - {*but} and value not in (None, False, (), usual):
            given[one.name] = value
    spec.refuse(given)
    if spec.realtime or spec.frames_per_second is not None:
        check_rate(getattr(config, "disturbance", CameraNoise()), spec.name, spec.frames_per_second)
    track = getattr(config, "track", None)
    if track is not None and track not in (BOTH, *spec.tracks):
        known = (*filter(None, spec.tracks), BOTH)
        if not spec.random_roads:
            raise unknown_name("track", track, known)
        check_track(track, known)
    road.check(track)
    speed, top_speed = getattr(config, "speed", None) or 0.0, road.car_top_speed or USUAL_TOP_SPEED_MPH
    if speed and (driver := getattr(config, "driver", None)) not in (None, *spec.experts):
        raise UserError(f"--speed is not for --driver {driver}, which has pedals of its own: leave one out.")
    if speed > top_speed:
        more = f"on udacity-track --car-top-speed {speed:g} lets it go faster"
        raise UserError(f"--speed {speed:g}: the car does {top_speed:g} miles per hour at most; {more}.")


OPTIONAL = CARRACING.options | UDACITY_TRACK.options | UDACITY.options
"""Options that not every environment honours."""


def drivable(name: str) -> EnvSpec:
    """The environment of that name; for a simulator on the wire the built-in one for the same policies."""
    spec = env_spec(name)
    return (env_of_task(spec.task) or spec) if spec.realtime else spec


def env_of_task(task: str) -> EnvSpec | None:
    """The environment in which policies of ``task`` are recorded and drive for DAgger; None if there is none."""
    return next((spec for spec in map(env_spec, ENVIRONMENTS.names()) if spec.task == task and not spec.realtime), None)
