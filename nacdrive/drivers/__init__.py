"""Who teaches: PPO training and loading, a geometric controller."""

from __future__ import annotations

from pathlib import Path

from nacdrive.common.errors import UserError, unknown_name
from nacdrive.common.paths import shipped
from nacdrive.drivers.expert import Expert, ExpertEpisode

__all__ = ["Expert", "ExpertEpisode", "load_expert"]

NAMES = ("ppo", "geometric")


def load_expert(path_or_name: str | Path = "ppo", *, device: str = "cpu", discrete_only: bool = True) -> Expert:
    """An expert for CarRacing: ``ppo`` (the shipped one), ``geometric``, or the file of an exported policy.

    With ``discrete_only`` an expert with continuous actions is refused: pupils choose among the five.

    Raises:
        UserError: for an unknown name, or a file that is missing, damaged or of another environment.
    """
    path = Path(path_or_name).expanduser()
    if str(path_or_name) == "geometric":
        from nacdrive.drivers.pure_pursuit import PurePursuitExpert

        return PurePursuitExpert()
    if str(path_or_name) == "ppo" and not path.is_file():
        path = shipped("agents") / "carracing" / "ppo" / "ppo.pt"
    elif not path.is_file():
        if path.suffix or len(path.parts) > 1:
            raise UserError(f"there is no expert at {path}: check the path, or name one of {', '.join(NAMES)}.")
        raise unknown_name("expert", str(path_or_name), NAMES)
    from nacdrive.drivers.ppo import PpoExpert

    expert = PpoExpert.load(path, device)
    if expert.continuous and discrete_only:
        raise UserError(f"{path} has continuous actions, and a teacher chooses among the five: give another expert.")
    return expert
