"""``nacdrive share``: a recorded lap and the network that looks at it, as one page to send around."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from nacdrive.common.errors import UserError

USUAL_MODEL = "nac_steady.pt"


@dataclass(frozen=True)
class ShareConfig:
    """Write a lap and a network into one HTML file that opens without a server and lets people ask what if."""

    lap: Annotated[Path, tyro.conf.Positional]
    """Folder of an evaluation (its filmed drives) or of recorded episodes, or one episode-*.parquet."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("lap.html")
    """The page."""
    model: str | None = None
    """The policy: a file, or the name of a shipped one. If not given, that of the evaluation, or else nac_steady."""
    episode: int = 0
    """Which of the episodes, from 0."""
    seconds: float = 60.0
    """How much of it, from its start."""
    overwrite: bool = False
    """Replace the page that is there."""

    def __post_init__(self) -> None:
        if self.episode < 0:
            raise UserError(f"--episode is {self.episode}: it must be at least 0.")
        if not 0 < self.seconds < math.inf:
            raise UserError(f"--seconds is {self.seconds:g}: it must be above 0.")


CONFIG = ShareConfig


def run(config: ShareConfig) -> int:
    """Write the page and say how large it is."""
    from nacdrive.common.files import refuse_existing
    from nacdrive.extras.export.html import export_html, load_lap

    refuse_existing(config.out, overwrite=config.overwrite, flag="--out")
    if config.out.suffix not in (".html", ".htm"):
        raise UserError(f"--out is {config.out}: give a file that ends in .html.")
    episode = load_lap(config.lap, config.episode)
    model = model_of(config, episode.source)
    page = export_html(model, config.lap, config.out, episode=config.episode, seconds=config.seconds)
    span = float(episode.t_s[-1] - episode.t_s[0])
    part = f"the first {config.seconds:g} s of {span:.1f} s" if span > config.seconds else f"{span:.1f} s"
    print(f"{page}: {part} driven by {episode.driver}, with {model.name}; {page.stat().st_size / 1e6:.1f} MB")
    return 0


def model_of(config: ShareConfig, source: str) -> Path:
    """File of the policy that looks at the lap.

    Raises:
        UserError: if there is no such model, or the evaluation's own is not where it can be found.
    """
    import hashlib

    from nacdrive.common.files import read_json
    from nacdrive.common.paths import find_model
    from nacdrive.envs.registry import spec_of_source

    spec = spec_of_source(source)
    task = spec.task if spec is not None else source
    if config.model is not None:
        return find_model(config.model, task)
    evaluation = config.lap / "evaluation.json"
    if not evaluation.is_file():
        return find_model(USUAL_MODEL, task)
    about = read_json(evaluation)
    try:
        model = find_model(str(about["file"]), task)
        if hashlib.sha256(model.read_bytes()).hexdigest() == about["sha256"]:
            return model
    except (KeyError, TypeError, UserError):
        pass
    raise UserError(f"the policy of {config.lap} is no shipped one and not in this folder: give it with --model.")
