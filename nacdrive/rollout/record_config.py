"""The options of ``nacdrive record``; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nacdrive.common.action import KEYBOARD
from nacdrive.common.errors import UserError
from nacdrive.common.options import ControlOption, Result, Tracks, WatchedPage, Workers
from nacdrive.datasets.options import LicenseOption
from nacdrive.drivers.options import CameraOptions, DriverOption, ExpertOption, WheelOption, check_expert
from nacdrive.envs.registry import EnvSpec
from nacdrive.envs.seeds import POLICY_RECORDING, POLICY_TEST
from nacdrive.envs.world import EnvOption, EpisodeOptions, LearningRoads, RepeatOption

OFFICIAL_FRAMES = 1000
"""The official limit of CarRacing."""


class RecordConfig(
    LearningRoads, EnvOption, EpisodeOptions, RepeatOption, DriverOption, ExpertOption, WheelOption, CameraOptions,
    Tracks, WatchedPage, ControlOption, LicenseOption, Result, Workers,
    defaults={"seed": POLICY_RECORDING.start, "max_frames": OFFICIAL_FRAMES},
):  # fmt: skip
    """Let an expert drive unseen tracks and keep its episodes."""

    begins_episodes = True
    every_frame: bool = False
    """carracing: record all 50 frames a second instead of one per decision of the expert."""
    min_return: float | None = None
    """Keep only episodes with at least this return; others are dropped, said so, and replaced by further tracks."""
    sides: bool = True
    """udacity-track: record the side cameras too, unless something is wrong with the one in the middle."""
    log: Path | None = None
    """udacity-track: folder to also write the simulator's own log to (driving_log.csv and IMG)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        spec = self.spec
        # What is wrong is wrong with the camera in the middle alone.
        object.__setattr__(self, "sides", self.sides and not self.disturbance.active)
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
        if self.seed < POLICY_TEST.stop and self.seed + self.episodes > POLICY_TEST.start:
            raise UserError(
                f"seeds {self.seed} to {self.seed + self.episodes - 1} reach into those that policies are judged on "
                f"(from {POLICY_TEST.start}): begin elsewhere, such as at --seed {POLICY_RECORDING.start}."
            )

    @property
    def folder(self) -> Path:
        usual = self.spec.recording_folder
        return self.out or (usual.with_name(f"{self.spec.source}-{KEYBOARD}") if self.by_hand else usual)

    @property
    def by_hand(self) -> bool:
        return self.expert == KEYBOARD


def labelled_by(folders: Sequence[Path], spec: EnvSpec) -> str | None:
    """The expert that labelled all of the recordings in ``folders``; None where it is none that ``spec`` knows."""
    from nacdrive.common.paths import find_recording
    from nacdrive.datasets.manifest import MANIFEST, read_manifest

    recordings = [folder for folder in map(find_recording, folders) if (folder / MANIFEST).is_file()]
    names = {str(read_manifest(folder)[0].get("expert")) for folder in recordings}
    return names.pop() if len(names) == 1 and names <= set(spec.experts) else None
