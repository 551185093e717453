"""The options of ``nacdrive eval``; imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from nacdrive.common.errors import UserError
from nacdrive.common.options import Result, TracksIfGiven, WatchedPage, Workers
from nacdrive.common.paths import in_path
from nacdrive.datasets.options import RecordingsOption
from nacdrive.drivers.options import NOBODY, CameraOptions, Driving, check_expert
from nacdrive.envs.seeds import POLICY_TEST
from nacdrive.envs.start import LAP_RULES
from nacdrive.envs.udacity_track.options import is_random
from nacdrive.envs.world import World

if TYPE_CHECKING:
    from nacdrive.rollout.drive import Drive

EPISODES = 20
"""If nobody says how many."""
USUAL = {"renderer": "official", "laps": 3.0, "rule": LAP_RULES[0]}
"""Of the options that only some environments have, where not given."""


class EvalConfig(
    World,
    Driving,
    CameraOptions,
    TracksIfGiven,
    RecordingsOption,
    WatchedPage,
    Result,
    Workers,
    defaults={"seed": POLICY_TEST.start},
):
    """Drive many unseen tracks: metrics, report, videos.

    With --data the steering of a policy of udacity is judged on what was recorded, and no lap is driven unless --laps,
    --track or --episodes asks for it.
    """

    begins_episodes = True
    positional = ("model", "data")

    videos: bool = True
    """Film the worst, the median and the best drive of each track."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_expert(self.spec, self.expert, also=(NOBODY,))
        check_expert(self.spec, self.driver, name="--driver")
        if self.driver is not None and self.data:
            raise UserError("--data judges a policy, and --driver drives: leave one out.")
        if not self.count and (self.disturbance.active or self.watch):
            raise UserError("a bad camera and --watch are of drives, and --data drives none: add --episodes.")

    @property
    def count(self) -> int:
        """Episodes to drive; 0 where a log alone is judged."""
        asked = self.laps is not None or self.track is not None or not self.data
        return EPISODES * asked if self.episodes is None else self.episodes

    @property
    def folder(self) -> Path:
        d = self.disturbance
        parts = {"noise": d.noise, "blackout": d.blackout, "delay": d.delay_steps, "dropped": d.dropped, "late": d.late}
        parts |= {"blackout-steps": d.blackout_steps} if d.blackout_steps > 1 else {}
        named = [f"{name}-{value:g}" for name, value in parts.items() if value]
        named += [f"brightness-{d.brightness:g}"] if d.brightness != 1 else []
        named += ["rate-{:g}-{:g}".format(*d.rate)] if d.rate is not None else []
        # Policies of the same name drive several environments.
        env = [] if self.env == EvalConfig.env else [self.spec.source]
        env += [str(self.track)] if is_random(self.track) else []
        named += [
            f"{option}-{value if isinstance(value, str) else format(value, 'g')}"
            for option, value in (self.road.given | self.start.given).items()
        ]
        who = Path(self.model).stem if self.driver is None else self.driver
        name = "-".join(["eval", *env, who, *named] if self.count else ["verdict", *env, who])
        return self.out or Path("runs") / in_path(name)

    def driven(self, model: Path | None) -> Drive:
        from nacdrive.rollout.drive import Drive

        env = self.spec
        usual: dict[str, Any] = {} if env.drivers_pace else {"repeat": env.repeat}
        usual |= {"laps": 1.0} if is_random(self.track) else {}
        expert = env.expert if self.expert is None else self.expert
        return Drive.of(self, model, USUAL | usual, expert=None if expert in (NOBODY, self.driver) else expert)
