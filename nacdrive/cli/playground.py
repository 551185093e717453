"""``nacdrive playground``: a world and a policy that drives in it, as one page to play with."""

from __future__ import annotations

from pathlib import Path

from nacdrive.common.errors import UserError
from nacdrive.common.files import refuse_existing, write_text
from nacdrive.common.options import Target
from nacdrive.common.paths import find_model
from nacdrive.drivers.options import ModelOption
from nacdrive.envs.registry import CARRACING

SIDE = 96
"""Of the pictures of the world in the page."""


class PlaygroundConfig(
    ModelOption, Target, defaults={"model": "nac_steady_continuous.pt", "out": Path("playground.html")}
):
    """Write CarRacing and a policy into one HTML file, in which it drives and can be changed, blinded and raced.

    The file opens without a server, from a disk or any static host, and fetches nothing.
    """


def run(config: PlaygroundConfig) -> None:
    """Write the page and say how large it is."""
    if config.out.suffix not in (".html", ".htm"):
        raise UserError(f"--out is {config.out}: give a file that ends in .html.")
    refuse_existing(config.out, overwrite=config.overwrite, flag="--out")
    model = find_model(config.model)
    write_text(config.out, page_of(model))
    print(f"{config.out}: {model.name} drives in it; {config.out.stat().st_size / 1e6:.1f} MB")


def page_of(model: Path, *, weights: bool = True) -> str:
    """The page in which the policy of ``model`` drives; without its weights for a page that has them already."""
    from nacdrive.extras.export.html import in_script, network_json, page_style, script
    from nacdrive.extras.export.network_description import describe
    from nacdrive.extras.playground.html import PARTS, playground_page, sprites
    from nacdrive.models import load_policy

    policy = load_policy(model)
    if policy.task != CARRACING.task:
        what = f"{model.name} was trained for '{policy.task}', and the playground's world is {CARRACING.title}"
        raise UserError(f"{what}: give another model, such as {PlaygroundConfig.model}.")
    net = describe(policy)
    if (net.preprocessing.height, net.preprocessing.width) != (SIDE, SIDE):
        raise UserError(f"{model.name} looks at frames of another size than {SIDE} x {SIDE}: give another model.")
    description, numbers = network_json(net)
    data = {"description": in_script(description), "weights": numbers if weights else ""}
    data |= {"sprites": in_script(sprites()), "repeat": in_script(policy.repeat)}
    return playground_page(net.name, page_style(), data, script(PARTS / "playground.js"))
