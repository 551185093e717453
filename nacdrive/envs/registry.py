"""Every environment by its name, with all that the verbs must know of it: no verb compares names.

Names are those of nacdrive, ``gym:ID`` for anything that Gymnasium knows, ``module:make_env`` for a user's own, and
what installed packages declare as entry points of the group ``nacdrive.envs``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nacdrive.common.errors import UserError, in_a_sentence, unknown_name
from nacdrive.common.plugins import Registry
from nacdrive.envs.seeds import road_to_learn_from
from nacdrive.envs.start import BESIDE_M, LAP_RULES, START_OPTIONS, LapRule, Start
from nacdrive.envs.udacity_track.options import RANDOM, ROAD_OPTIONS

if TYPE_CHECKING:
    from nacdrive.common.action import Action
    from nacdrive.envs.base import DrivingEnv

BOTH = "both"
"""Takes the tracks of an environment in turn, by the seed."""
GYM = "gym:"
SEEDED = frozenset({"episodes", "seed", "expert", "max_frames", "fast", "resume", "workers"})
"""Options of every environment whose episodes begin when we say so."""


@dataclass(frozen=True)
class EnvSpec:
    """What is known of an environment before it is made; pickles if ``build`` does."""

    name: str
    """As ``--env`` takes it, and as the environment's own ``name``."""
    title: str
    build: Callable[..., DrivingEnv]
    """Makes it, from keyword arguments with the names of options."""
    source: str
    """What its recordings call it; ``nacdrive train`` knows by it what they are."""
    task: str
    """Task whose policies drive it."""
    actions: tuple[str, ...] = ()
    """Names of its discrete actions, as far as they are known before it is made."""
    action_of: Callable[..., Action] | None = None
    """Number of a discrete action and its scores -> ``Action``; None where control is continuous or not known yet."""
    tracks: tuple[str, ...] = ("",)
    """Names of its tracks; one without a name where there is no choice."""
    random_roads: bool = False
    """Whether there are also the tracks ``random`` (one of its own for each seed) and ``random:SEED``."""
    expert: str | None = None
    """Who drives it if nobody is named; None: somebody must be."""
    experts: tuple[str, ...] = ()
    """Experts that know it by name; exported policies and a user's own drivers come beside them."""
    steering_expert: str | None = None
    """Who drives it by degrees, where the usual one chooses among ``actions``."""
    frames_per_second: float | None = None
    """Simulated frames a second; a decision holds for ``repeat`` of them. None: ``step_s`` of the environment tells."""
    repeat: int = 1
    """Frames for which an action is held, if nobody says otherwise."""
    person_frames: int | None = None
    """Frames that a lap may take where a person drives it; None: as many as for everybody."""
    speed_mph: float | None = None
    """Speed that a controller holds, in miles per hour, if nobody says otherwise; None: the policy has the pedals."""
    steering_noise: float | None = None
    """Strength of the disturbances of the wheel in recordings, if nobody says otherwise; episodes then begin anywhere
    on the road (``random_start`` of the environment). None: recordings are of undisturbed drives."""
    lost_m: float = BESIDE_M
    """How far from the middle of the road a car can end that has left it: as far as bad starts of DAgger lie."""
    totals: frozenset[str] = frozenset({"laps"})
    """Names of its ``metrics()`` that are added up over drives; of the others mean and interval are given."""
    image_format: Literal["png", "jpeg"] = "png"
    own_pace: bool = False
    """Whether drivers keep the pace that they learnt at where nobody says otherwise, though ``repeat`` is an option."""
    options: frozenset[str] = SEEDED
    """Names of the options that it honours, of those that not all environments do."""
    recording_folder: Path = Path("recordings/expert")
    """Where recordings of its expert go, if nobody says otherwise."""
    agent_actions: tuple[str, ...] = ()
    """Kinds of actions that a learning agent may be given (``--actions``); () where the environment says which."""
    shaped_training: bool = False
    """Whether agents learn on episodes of their own making: with a shaped reward, early ends and a driver's quick
    pictures (``rl/training_env.py``). If not, on the environment as it is."""
    judge: str | None = None
    """Function of a policy and folders of recorded drives that judges its steering there, ``module:name``."""
    best_return: float | None = None
    """Return that no episode can exceed; None where that is not known."""
    realtime: bool = False
    """Whether time passes by itself and episodes begin when the simulator wants: no seeds, no evaluation."""

    def make(self, options: Mapping[str, Any] | None = None) -> DrivingEnv:
        """Make it; what is None in ``options`` counts as not given; ``UserError`` for one that it does not have."""
        given = {name: value for name, value in (options or {}).items() if value is not None}
        known = inspect.signature(self.build).parameters
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
            return self.build(**given)
        max_frames = given.pop("max_frames", None) if "max_frames" not in known else None
        for name in given.keys() - known.keys():
            raise unknown_name(f"option of {self.name}", name, known)
        env = self.build(**given)
        if max_frames is None:
            return env
        from nacdrive.envs.gym_env import FrameLimit

        return FrameLimit(env, max_frames)

    def honours(self, option: str) -> bool:
        return option in self.options

    @property
    def drivers_pace(self) -> bool:
        """Whether a driver's own ``repeat`` counts; elsewhere drivers take time as it comes."""
        return self.own_pace or not self.honours("repeat")

    def refuse(self, options: Mapping[str, Any]) -> None:
        """Refuse the first option that is given (is not None) and would be ignored."""
        for option, value in options.items():
            if value is not None and option not in self.options:
                flag = f"--{option.replace('_', '-')}"
                owners = [spec.name for spec in (CARRACING, UDACITY_TRACK, UDACITY) if option in spec.options]
                whom = f"is for {' and '.join(owners)}, and" if owners else "is given, and"
                raise UserError(f"{flag} {whom} --env {self.name} does not know it: leave it out.")

    def tracks_of(self, track: str | None) -> tuple[str, ...]:
        """The tracks that ``track`` means: itself, or all for ``both`` and None."""
        return self.tracks if track is None or track == BOTH else (track,)

    def track_of(self, track: str | None, seed: int, roads: int | None = None) -> str:
        """The one of ``tracks_of(track)`` that the episode of ``seed`` is driven on: they take turns.

        Of ``random`` it is the road of that seed; with ``roads``, one of so many to learn from.
        """
        tracks = self.tracks_of(track)
        if tracks == (RANDOM,):
            return f"{RANDOM}:{seed if roads is None else road_to_learn_from(seed, roads)}"
        return tracks[seed % len(tracks)]


def env_spec(name: str) -> EnvSpec:
    """What is known of the environment of that name; ``UserError`` if there is none, or its module fails."""
    if not isinstance(name, str):
        raise UserError(f"{name} is no name of an environment: give carracing, gym:ID, my_module:make_env, ...")
    if name.startswith(GYM):
        return _foreign(name)
    part: Any = ENVIRONMENTS.load(name)
    if isinstance(part, EnvSpec):
        return part
    if not callable(part):
        what = f"{name} is no environment"
        raise UserError(f"{what}: it must be a function that makes a Gymnasium environment, or an EnvSpec.")
    return _foreign(name)


def spec_of_source(source: str) -> EnvSpec | None:
    """What is known of the environment whose recordings say ``source``; None for one that is not known here."""
    return next((spec for spec in map(env_spec, ENVIRONMENTS.names()) if spec.source == source), None)


def task_of_source(source: str) -> str:
    """The task of policies that drive what such recordings are of: ``imitation`` where that is not known here."""
    return spec.task if (spec := spec_of_source(source)) is not None else "imitation"


def action_names(task: str) -> tuple[str, ...]:
    """Names of the actions between which the policies of ``task`` choose; () where that needs code of somebody's."""
    return env_spec(task).actions if ENVIRONMENTS.is_builtin(task) else ()


def _carracing_action(choice: int, logits: Any = None) -> Action:
    from nacdrive.envs.carracing.env import to_action

    return to_action(choice, logits)


def _foreign(name: str) -> EnvSpec:
    """A user's own environment: any actions, any size of pictures, and an expert that the user brings too."""
    return EnvSpec(
        name=name,
        title=name,
        build=partial(_make_foreign, name),
        source=name,
        task="imitation",
        options=SEEDED | {"repeat", "min_return", "steering_noise"},
        recording_folder=Path("recordings") / "".join(letter if letter.isalnum() else "-" for letter in name),
    )


def _make_carracing(
    *,
    renderer: Any = "official",
    repeat: int = 4,
    max_frames: int = 1000,
    continuous: bool = False,
    rule: LapRule = LAP_RULES[0],
    instruments: bool | None = None,
    colours: bool = False,
    start_offset: float | None = None,
    start_heading: float | None = None,
    start_speed: float | None = None,
) -> DrivingEnv:
    from nacdrive.envs.carracing.env import CarRacingEnv

    return CarRacingEnv(
        renderer=renderer,
        repeat=repeat,
        max_frames=max_frames,
        continuous=continuous,
        rule=rule,
        instruments=instruments,
        observation="rgb" if colours else None,
        start=Start(start_offset=start_offset, start_heading=start_heading, start_speed=start_speed),
    )


def _make_udacity_track(
    *, max_frames: int | None = None, sides: bool = False, recover: bool = False, **options: Any
) -> DrivingEnv:
    from nacdrive.envs.udacity_track import make_udacity_track

    usual = {"repeat": 4, "laps": float("inf"), "max_seconds": 600.0 if max_frames is None else max_frames / 50}
    start = Start(**{name: options.pop(name, None) for name in START_OPTIONS})
    cameras = ("center", "left", "right") if sides else ("center",)
    return make_udacity_track(cameras=cameras, recover=recover, start=start, **usual | options)


def _make_udacity(**options: Any) -> DrivingEnv:
    from nacdrive.envs.udacity.env import UdacityEnv

    return UdacityEnv(**options)


def _make_foreign(name: str, *, repeat: int | None = None, max_frames: int | None = None) -> DrivingEnv:
    from nacdrive.envs.gym_env import adapt, make_gym

    if name.startswith(GYM):
        return make_gym(name.removeprefix(GYM), name, repeat=repeat, max_frames=max_frames)
    make: Callable[..., Any] = ENVIRONMENTS.load(name)  # type: ignore[assignment]
    with in_a_sentence(f"{name} could not make its environment: "):
        made = make()
    return adapt(made, name, repeat=repeat, max_frames=max_frames)


CARRACING = EnvSpec(
    name="carracing",
    title="CarRacing",
    build=_make_carracing,
    source="carracing",
    task="carracing",
    actions=("nothing", "right", "left", "gas", "brake"),
    action_of=_carracing_action,
    expert="ppo",
    experts=("ppo", "continuous", "geometric", "racing-line", "predictive", "ppo-rescued"),
    steering_expert="racing-line",
    frames_per_second=50.0,
    repeat=4,
    person_frames=3000,
    lost_m=50.0,
    own_pace=True,
    agent_actions=("discrete", "continuous"),
    shaped_training=True,
    best_return=1000.0,
    options=SEEDED.union({"renderer", "every_frame", "min_return", "rule", "repeat"}, START_OPTIONS),
    recording_folder=Path("recordings/carracing-expert"),
)
UDACITY_TRACK = EnvSpec(
    name="udacity-track",
    title="Udacity tracks",
    build=_make_udacity_track,
    source="udacity",
    task="udacity",
    tracks=("lake", "mountain"),
    random_roads=True,
    expert="geometric",
    experts=("geometric",),
    frames_per_second=50.0,
    repeat=4,
    speed_mph=20.0,
    steering_noise=1.0,
    lost_m=6.5,
    totals=frozenset({"laps", "clean_laps", "interventions", "off_road_events", "collisions"}),
    image_format="jpeg",
    options=SEEDED.union(
        {"track", "laps", "speed", "repeat", "sides", "steering_noise", "log", "data", "roads"},
        ROAD_OPTIONS,
        START_OPTIONS,
    ),
    recording_folder=Path("recordings/udacity-geometric"),
    judge="nacdrive.extras.verdict.log_verdict:judge_logs",
)
UDACITY = EnvSpec(
    name="udacity",
    title="Udacity simulator",
    build=_make_udacity,
    source="udacity",
    task="udacity",
    speed_mph=20.0,
    image_format="jpeg",
    options=frozenset({"episodes", "speed", "pace", "server", "seconds", "limit_s"}),
    recording_folder=Path("recordings/udacity-drive"),
    realtime=True,
)
ENVIRONMENTS: Registry[EnvSpec | Callable[..., Any]] = Registry(
    "environment",
    "nacdrive.envs",
    {
        "carracing": "nacdrive.envs.registry:CARRACING",
        "udacity-track": "nacdrive.envs.registry:UDACITY_TRACK",
        "udacity": "nacdrive.envs.registry:UDACITY",
    },
)
"""All of them; ``ENVIRONMENTS.register`` adds one for this process."""
