"""The options of ``nacdrive hunt``; imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from nacdrive.common.errors import UserError
from nacdrive.common.options import Count, MinutesOption, Result, Share, TracksIfGiven, Workers, flag
from nacdrive.common.paths import in_path
from nacdrive.datasets.options import RecordingsOption
from nacdrive.drivers.options import NOBODY, CameraOptions, Driving, check_expert
from nacdrive.envs.udacity_track.options import RANDOM
from nacdrive.envs.world import World, drivable
from nacdrive.extras.hunt.search import AREAS, Area
from nacdrive.rollout.drive import Drive
from nacdrive.rollout.train_config import DaggerOptions
from nacdrive.training.config import EpochsOption

OF_TRAIN = ("data", "control", "epochs", "dagger", "dagger_episodes", "judged")


class HuntConfig(
    World, Driving, CameraOptions, TracksIfGiven, MinutesOption, RecordingsOption, DaggerOptions, EpochsOption, Result,
    Workers,
    defaults={"dagger": 2, "dagger_episodes": 24, "epochs": 4},
):  # fmt: skip
    """Search for episodes that a policy fails and a reference driver (--expert) passes.

    What is given, such as --road-difficulty 1, is so in every episode; the rest is searched: seeds, knobs of the road,
    starts, faults of the camera, traffic.
    """

    begins_episodes = True
    positional = ("model", "data")
    unchecked = ("data",)

    areas: tuple[Area, ...] = AREAS
    """What is searched, in turn: seeds (tracks and days), roads (how they are laid and painted, light, speed), starts
    (off the line, turned, fast), cameras (what may be wrong with one), traffic (parked and slow cars)."""
    least_share: Share = 0.9
    """Share of the reference's return on the same episode below which the policy has failed, where the environment
    does not itself count what leaves the road."""

    train: bool = False
    """Then teach the policy: --dagger rounds in which it drives what it failed and others of that kind while the
    reference labels, learnt from together with --data, the recordings that it has learnt from."""
    judged: Count = 40
    """With --train: fresh episodes of that kind, and as many undisturbed, that are driven before and after."""
    control: bool = False
    """With --train: also teach it on the same tracks with nothing turned: what as many more drives are worth alone."""

    def __post_init__(self) -> None:
        if self.track is None and drivable(self.env).random_roads:
            object.__setattr__(self, "track", RANDOM)
        super().__post_init__()
        spec = self.spec
        check_expert(spec, self.expert, also=(NOBODY,))
        check_expert(spec, self.driver, name="--driver")
        if (self.expert or spec.expert or NOBODY) == NOBODY:
            nobody = "--expert none is nobody" if self.expert else f"none is known for {spec.name}"
            known = " or ".join((*spec.experts, "module:MyExpert"))
            raise UserError(f"a failure is what a reference driver passes, and {nobody}: give --expert {known}.")
        if self.train and not (self.data and self.dagger):
            problem = "--train mixes what failed with what the policy has learnt from, so that nothing is unlearnt"
            raise UserError(f"{problem}: give --data its recordings, and --dagger at least 1.")
        if self.train and set(self.areas) == {"cameras"}:
            problem = "--train does not teach failures of cameras, for the reference sees well"
            raise UserError(f"{problem}: name other --areas, too.")
        given = [flag(name) for name in OF_TRAIN if getattr(self, name) != getattr(HuntConfig, name)]
        if given and not self.train:
            raise UserError(f"{given[0]} is of what --train teaches: add --train, or leave it out.")
        if not self.areas:
            raise UserError(f"--areas is empty: name some of {', '.join(AREAS)}, or leave it out.")

    @property
    def folder(self) -> Path:
        who = Path(self.model).stem if self.driver is None else self.driver
        return self.out or Path("runs") / in_path(f"hunt-{self.spec.source}-{who}")

    def driven(self, model: Path | None) -> Drive:
        return Drive.of(self, model, {"laps": 1.0}, expert=self.expert or self.spec.expert, track=self.track)
