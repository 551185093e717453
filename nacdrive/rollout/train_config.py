"""The options of ``nacdrive train``; imports nothing heavy."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Interval

from nacdrive.common.errors import UserError, unknown_name
from nacdrive.common.options import LARGEST, Count, Device, NotNegative, Options, Result, Workers
from nacdrive.datasets.options import RecordingsOption
from nacdrive.drivers.options import ExpertOption, LearningCamera, PupilOptions, check_expert
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.registry import EnvSpec
from nacdrive.envs.world import EpisodeOptions, LearningRoads, RendererOption, check_world, drivable, env_of_task
from nacdrive.models.presets import DrivingForm, FormOption, driving_form
from nacdrive.rollout.record_config import OFFICIAL_FRAMES, labelled_by
from nacdrive.tasks.registry import TASKS, TaskOption, task_of
from nacdrive.training.config import FitConfig

if TYPE_CHECKING:
    from nacdrive.models.policy import Policy

AUTO = "auto"
"""The task that recordings belong to by their source."""
SEEDS_PER_ROUND = 1000
"""Tracks that a round of DAgger can drive."""
FREE_TO_CHANGE = (
    "epochs", "dagger", "lessons", "learning_rate", "patience", "valid_batch", "checkpoint_steps", "clip", "out",
    "resume", "overwrite", "device", "workers", "ray",
)  # fmt: skip
"""Options that a resumed training may have changed; with the others it would be another training."""


class LayerOption(FormOption):
    """How it is learnt."""

    model: str = "nac-steady"
    """Sequence layer of the policy, such as nac-steady, nac-exact, nac-euler, lstm, mha, or dense for none at all."""


class DaggerOptions(Options):
    """How it is learnt."""

    dagger: int = 0
    """Rounds of DAgger: drive with the policy, label with the expert, add, continue."""
    dagger_episodes: Annotated[int, Interval(ge=1, le=SEEDS_PER_ROUND)] = 12
    """Episodes driven in each round."""


class TrainConfig(
    TaskOption, LayerOption, DaggerOptions, FitConfig, RecordingsOption, LearningRoads, EpisodeOptions, RendererOption,
    ExpertOption, PupilOptions, LearningCamera, Device, Result, Workers,
    defaults={"max_frames": OFFICIAL_FRAMES},
):  # fmt: skip
    """Train a policy on recordings, and let it drive while the expert labels (DAgger)."""

    first: Path | None = None
    """Policy that learns on; with rounds (--dagger, --lessons) from the first of them."""
    lessons: tuple[Path, ...] = ()
    """Recordings that are learnt one after the other, a round each, such as the corrections of drive --teach."""
    lesson_frames: Annotated[int, Interval(ge=0, le=LARGEST)] = 0
    """Frames of a round of --lessons: half from the lessons so far, if so many, the rest from --data; 0: all."""
    env: str | None = None
    """What is driven in DAgger; the environment of the task if not given."""
    window: Count | None = None
    """Frames that a decision may depend on; if not given, --first's, or 12 (dense, --paper-form: 4; paper: 1)."""
    between_frames: bool = False
    """Decide at the usual pace, too, where --rate is lower or frames are --dropped, in drives and when it is taught: in
    between from a black frame. For a layer with a memory."""
    speed_weight: NotNegative = 0.0
    """Weight of the car's speed, which the network has to tell from each frame while it learns, as a share of its
    variance; 0 = it need not."""
    dagger_epochs: Count = 8
    """Most epochs after a round that is not the last; first and last, --epochs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first is None:
            object.__setattr__(self, "window", self.window or self.form.window)
        if self.task == AUTO:
            if not self.data:
                raise UserError("--task auto follows from the recordings: name some with --data.")
            object.__setattr__(self, "task", task_of(self.data))
        if self.task not in TASKS and ":" not in self.task:
            raise unknown_name("task", self.task, TASKS.names())
        spec = self.env_spec
        if spec is None and self.dagger:
            raise UserError(f"no environment is known for the task '{self.task}': name one with --env.")
        if spec is None and not self.data:
            raise UserError(f"the task '{self.task}' has no usual recordings: name some with --data.")
        if spec is not None:
            object.__setattr__(self, "data", self.data or (spec.recording_folder,))
            object.__setattr__(self, "expert", self.expert or labelled_by(self.data, spec) or spec.expert)
            check_world(spec, self, but=("data",))
        if self.lessons and (self.first is None or self.dagger):
            problem = "--lessons teach the policy --first, without --dagger"
            raise UserError(f"{problem}: give that one, and leave this one out.")
        if self.schedule in ("plateau", "steep-plateau") and (self.lessons or not self.valid_share):
            what = "--lessons keep" if self.lessons else "--valid-share 0 keeps"
            problem = f"--schedule {self.schedule} goes by the validation loss, and {what} no frames aside for one"
            raise UserError(
                f"{problem}: give another --schedule{'' if self.lessons else ', or leave --valid-share out'}."
            )
        for what, is_given in (
            ("the camera's disturbances are", self.disturbance.active),
            ("--bad-starts is", self.bad_starts),
            ("--renderer is", self.renderer),
            ("--track is", self.track),
            ("options of the road are", self.road.given),
        ):
            if is_given and not self.dagger:
                raise UserError(f"{what} of the drives of DAgger: give --dagger a number of rounds.")
        if self.between_frames and self.disturbance.late and not self.vary_camera:
            problem = "--between-frames is for rare or lost frames, not late ones"
            raise UserError(f"{problem}: leave out --late, or add --vary-camera.")
        if self.bad_starts and spec is not None and not spec.honours("start_offset"):
            raise UserError(f"--bad-starts places the car, and that of {spec.name} begins in one place: leave it out.")
        if self.dagger and spec is not None:
            check_expert(spec, self.expert)
            if self.expert is None:
                raise UserError(f"nobody is known to label drives of {spec.name}: give --expert module:MyExpert.")

    @property
    def env_spec(self) -> EnvSpec | None:
        """What there is to know of the environment of DAgger; None where neither --env nor the task tells."""
        return drivable(self.env) if self.env is not None else env_of_task(self.task)

    @property
    def rounds(self) -> int:
        return self.dagger or len(self.lessons)

    @property
    def form(self) -> DrivingForm:
        return driving_form(self.model, paper=self.paper_form)

    @property
    def folder(self) -> Path:
        return self.out or Path("runs") / "-".join(name.rpartition(":")[2] for name in (self.task, self.model))

    @property
    def file_name(self) -> str:
        """Name of the model file, such as ``nac_steady.pt``."""
        return f"{self.model.rpartition(':')[2].replace('-', '_')}.pt"


def as_taught(policy: Policy, *, drives: bool = False) -> dict[str, Any]:
    """Options of a training in which the policy learns on, with labels that count as when it was taught; where it
    ``drives`` (DAgger), through a camera as bad as then, unless rewards have taught it since what is best there: an
    expert who sees well does not know that.
    """
    learnt = policy.meta.get("config") or {}
    sees_badly = drives and "reinforced" not in policy.meta
    names = ("batch_size", "soft", "class_weights", *(("vary_camera",) if sees_badly else ()))
    options = {name: learnt[name] for name in names if name in learnt}
    if sees_badly:
        camera, known = learnt.get("disturbance") or {}, {field.name for field in fields(CameraNoise)}
        options["disturbance"] = CameraNoise(**{name: value for name, value in camera.items() if name in known})
    model = str(learnt.get("model", policy.config.model))
    return {"task": policy.config.task, "model": model, "window": policy.config.window, **options}
