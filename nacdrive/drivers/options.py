"""Who drives, who rides along, and through which camera: options; imports nothing heavy."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import Annotated, ClassVar

from annotated_types import Interval

from nacdrive.common.errors import UserError, unknown_name
from nacdrive.common.options import Device, Options, Share
from nacdrive.common.paths import expand_home
from nacdrive.drivers import DRIVERS
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.registry import ENVIRONMENTS, EnvSpec, env_spec

NOBODY = "none"


class CameraOptions(Options):
    """What is wrong with the camera."""

    disturbance: CameraNoise = field(default_factory=CameraNoise)
    """What is wrong with the camera of whoever drives, or with the one that is recorded; experts see the true frames.
    In train: in every second drive of DAgger."""


class LearningCamera(CameraOptions):
    """What is wrong with the camera."""

    vary_camera: bool = False
    """Draw for each drive that is learnt from what is wrong with its camera, in train of every one of DAgger: each
    disturbance in a third of them, and at most as much as is given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vary_camera and not self.disturbance.active:
            raise UserError("--vary-camera draws from disturbances that are given: add such as --blackout 0.2.")


class ExpertOption(Options):
    """Who drives."""

    expert: str | None = None
    """Who rides along and says what to do, and whom record lets drive: ppo or continuous (shipped, CarRacing),
    geometric, racing-line, predictive, ppo-rescued, the path of an exported PPO policy, module:MyExpert, none (drive,
    eval: nobody), or keyboard (record: a person at the page). If not given, the policy's teacher, or the usual one."""


class DriverOption(Options):
    """Who drives."""

    driver: str | None = None
    """Who drives instead of a policy, or in recordings of the expert: ppo or continuous (shipped, CarRacing),
    geometric, racing-line, predictive, ppo-rescued, constant (straight on), an exported PPO policy, module:MyDriver."""


class ModelOption(Options):
    """Who drives."""

    positional: ClassVar[tuple[str, ...]] = ("model",)

    model: str = "nac_steady.pt"
    """The policy or network: a file (also .onnx of 'nacdrive export'), or the name of a shipped one, such as
    nac_steady or udacity/pilotnet; the first word without an option's name."""


class ModelIfGiven(Options):
    """Who drives."""

    model: str | None = None
    """The policy or network that looks at the data: a file, or the name of a shipped one. If not given, replay has
    none, share takes that of the evaluation, or else nac_steady, and predict nac_exact (pronostia) or nac_lag."""


class PupilOptions(Options):
    """How it is learnt."""

    instruments: bool = True
    """carracing: let the policy or agent see the instruments: speed, turning of the wheels, steering, yaw rate."""
    beta: Share = 0.5
    """Share of the first round (of imitate of the second, for the expert alone drives the first) in which the expert
    has the wheel; halved with each further round."""
    bad_starts: Share = 0.0
    """carracing, udacity-track: share of the drives of DAgger that begin beside the road or turned any way, half of
    them at rest; of train in carracing, half are led off on their way. So the way back is learnt."""


class SpeedOption(Options):
    """Who drives."""

    speed: Annotated[float | None, Interval(ge=0.01, le=60)] = None
    """udacity, udacity-track: speed that is kept for those who steer alone (20), in miles per hour; slower in bends."""


class WheelOption(Options):
    """Who drives."""

    steering_noise: Annotated[float | None, Interval(ge=0, le=2)] = None
    """Strength of disturbances of the wheel where steering is continuous, from which the driver recovers; 0 for none.
    If not given, 1 in recordings of udacity-track, else none."""


class Driving(ModelOption, DriverOption, ExpertOption, SpeedOption, Device):
    """Who drives."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.driver is not None and self.model != type(self).model:
            raise UserError("--model is for a policy, and --driver drives: leave one out.")
        if self.driver is not None and self.device != Device.device:
            from nacdrive.models.files import check_device

            # Most of them run no network, and would never ask for it.
            check_device(self.device)


def check_expert(spec: EnvSpec, expert: str | None, also: tuple[str, ...] = (), name: str = "--expert") -> None:
    """Refuse an expert that ``spec`` does not know; files, ``module:Name`` and drivers of no environment pass."""
    if not isinstance(expert, str | None):
        raise UserError(f"{name} {type(expert).__name__}() is no name: give that of its class, my_module:MyExpert.")
    if expert is None or ":" in expert or expert in (*spec.experts, *also) or expand_home(expert).is_file():
        return
    known = {one for other in map(env_spec, ENVIRONMENTS.names()) for one in other.experts}
    if expert in known:
        others = " or ".join((*spec.experts, *also, "my_module:MyExpert"))
        raise UserError(f"{name} {expert} does not know {spec.name}: give {others}.")
    if expert not in DRIVERS and not Path(expert).suffix and len(Path(expert).parts) == 1:
        nobodys = sorted(set(DRIVERS.names()) - known)
        raise unknown_name(name.strip("-").rstrip("s"), expert, (*spec.experts, *nobodys, *also))
