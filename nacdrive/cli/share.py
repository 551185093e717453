"""``nacdrive share``: a recorded lap and the network that looks at it, as one page to send around."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from nacdrive.common.errors import UserError
from nacdrive.common.files import file_checksum, read_json, refuse_existing
from nacdrive.common.options import Target, TimeLimit
from nacdrive.common.paths import find_model
from nacdrive.datasets.options import EpisodeOption, RecordingOption
from nacdrive.drivers.options import ModelIfGiven
from nacdrive.envs.registry import CARRACING, task_of_source

USUAL_MODEL = "nac_steady.pt"


class ShareConfig(RecordingOption, ModelIfGiven, EpisodeOption, TimeLimit, Target, defaults={"out": Path("lap.html")}):
    """Write a lap and a network into one HTML file that opens without a server and lets people ask what if.

    The data are an evaluation (its filmed drives), recorded episodes, or one episode-*.parquet.
    """

    positional = ("data", "model")


def run(config: ShareConfig) -> None:
    """Write the page and say how large it is."""
    from nacdrive.extras.export.html import SECONDS, export_html, load_lap

    refuse_existing(config.out, overwrite=config.overwrite, flag="--out")
    if config.out.suffix not in (".html", ".htm"):
        raise UserError(f"--out is {config.out}: give a file that ends in .html.")
    episode = load_lap(config.data, config.episode)
    model = model_of(config, episode.source)
    seconds = config.seconds or SECONDS
    playground = playground_of(episode.source)
    page = export_html(model, config.data, config.out, episode=config.episode, seconds=seconds, playground=playground)
    span = float(episode.t_s[-1] - episode.t_s[0])
    part = f"the first {seconds:g} s of {span:.1f} s" if span > seconds else f"{span:.1f} s"
    print(f"{page}: {part} driven by {episode.driver}, with {model.name}; {page.stat().st_size / 1e6:.1f} MB")


def playground_of(source: str) -> Callable[[Path], str] | None:
    """Makes the playground that a shared lap of ``source`` opens; None where there is none."""
    from nacdrive.cli.playground import page_of

    return partial(page_of, weights=False) if source == CARRACING.name else None


def model_of(config: ShareConfig, source: str) -> Path:
    """File of the policy that looks at the lap."""
    task = task_of_source(source)
    if config.model is not None:
        return find_model(config.model, task)
    evaluation = config.data / "evaluation.json"
    if not evaluation.is_file():
        return find_model(USUAL_MODEL, task)
    about = read_json(evaluation)
    with suppress(KeyError, TypeError, UserError):
        model = find_model(str(about["file"]), task)
        if file_checksum(model) == about["sha256"]:
            return model
    raise UserError(f"the policy of {config.data} is no shipped one and not in this folder: give it with --model.")
