"""Make the pictures of all pages for the documentation anew, in a real Chromium: light, dark, on a phone in both ways.

python tools/pictures.py [--only live arena ...] [--film]

Each page is brought to one state and photographed in four ways, into docs/figures/pages/NAME-WAY.jpg; some of them are
docs/figures/NAME too. ``--film`` makes docs/figures/what_if.gif and lap.gif as well. The pages show what the shipped
policies do now: pictures are of no older page, and of no other policy. Look at them afterwards.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from playwright.sync_api import sync_playwright

from nacdrive.common.paths import find_model
from nacdrive.rollout.drive import Drive
from nacdrive.viz.overlay import HEIGHT, WIDTH, FrameOverlay

FIGURES = Path("docs/figures")
SAMPLE = "recordings/carracing-sample"
WAYS = {
    "light": ("light", 1280, 800),
    "dark": ("dark", 1280, 800),
    "phone": ("light", 390, 844),
    "side": ("dark", 844, 390),
}
QUALITY = 80
WAIT_S = 300
"""For any state of a page, on a machine that has other things to do."""
SHOWN, COLOURS = (960, 600), 128
LAP_SHOWN, LAP_EVERY = (540, 300), 2


@dataclass(frozen=True)
class Picture:
    """A page in one state.

    ``{out}`` in the command is a folder of its own.
    """

    command: str
    """Of nacdrive; it serves the page, or writes it."""
    ready: str
    """JavaScript that is true when there is something to see."""
    page: str = ""
    """File below ``{out}`` that is the page; '' where it is served."""
    address: str = ""
    """Behind the page's own."""
    keys: tuple[str, ...] = ()
    """Pressed then."""
    then: str = "true"
    """JavaScript that is true when the state is there."""
    copy: str = ""
    """Name in docs/figures of the light one."""
    held: str = ""
    """Key that is held after the keys, until the state is there."""
    hold_when: str = "true"
    """JavaScript that is true when it can be."""
    last: str = ""
    """Key that is pressed in that state."""


def longer_than(seconds: float) -> str:
    """Whether the drive on the page has lasted so long."""
    return f"parseFloat(document.getElementById('time')?.textContent) > {seconds}"


REASON = "document.querySelector('#why .reason')?.textContent.startsWith('It ')"
# Of the very moment that is held, and not of the one before.
MEASURED = f"""{REASON} && Math.abs(
  parseFloat(/at ([0-9.]+) s/.exec(document.getElementById('why-note').textContent)?.[1])
  - parseFloat(document.getElementById('time').textContent)) < 0.051"""
# A recording that knows no places is driven once more for them.
MAP = "document.querySelector('.map').hidden === false"
PICTURES = {
    "live": Picture(
        "drive --model nac_steady.pt --seed 4000000 --no-wait --page-port 0", longer_than(8), "", "", ("h",), MEASURED,
        "live.png",
    ),
    "udacity": Picture(
        "drive --env udacity-track --track mountain --model nac_steady.pt --no-wait --page-port 0", longer_than(8),
        "", "", ("h",), MEASURED, "udacity.jpg",
    ),
    "replay": Picture(
        f"replay {SAMPLE} --model nac_steady.pt --page-port 0", REASON, address="#ep=1&t=5.2", then=MAP
    ),
    "what-if": Picture(
        f"replay {SAMPLE} --model nac_steady.pt --page-port 0",
        "document.querySelector('.sentence')?.textContent.startsWith('With ')", address="#ep=1&t=5.2&if=mute:h3",
        then=MAP,
    ),
    "arena": Picture(
        "arena --models nac_steady.pt nac_exact.pt --drivers ppo --no-wait --page-port 0 --out {out}/arena",
        longer_than(8), copy="arena.jpg",
    ),
    "arena-person": Picture(
        f"arena --models nac_steady.pt --ghost {SAMPLE} --person --allow-control --head-start 2 --no-wait "
        "--page-port 0 --out {out}/race",
        "document.querySelector('#controls .take')?.disabled === false", keys=("w",), held="ArrowUp", hold_when=
        "document.querySelector('#controls .take').textContent.startsWith('Hand back')",
        then=longer_than(4), last=" ",
    ),
    "shared": Picture(
        f"share {SAMPLE} --model nac_steady.pt --seconds 8 --out {{out}}/lap.html",
        "document.querySelector('#why .reason')?.textContent.startsWith('Changed: ')", "lap.html",
        "#ep=1&t=5.2&if=mute:h3",
    ),
    "report": Picture("eval --model nac_steady.pt --episodes 2 --out {out}/eval", "true", "eval/report.html"),
}  # fmt: skip


@contextmanager
def opened(picture: Picture) -> Iterator[str]:
    """The page's address while nacdrive serves it, or of the file that it wrote."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "nacdrive", *picture.command.format(out=out).split()]
        if picture.page:
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            yield (Path(out) / picture.page).as_uri() + picture.address
            return
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            served = next((match for line in process.stdout if (match := re.search(r"watch at (\S+)", line))), None)
            try:
                if served is None:
                    raise SystemExit(f"nacdrive {picture.command}: serves no page")
                yield served[1] + picture.address
            finally:
                process.send_signal(signal.SIGINT)
                process.stdout.read()


def until(page: Any, condition: str) -> None:
    """Wait for JavaScript to be true."""
    deadline = time.monotonic() + WAIT_S
    while not page.evaluate(condition):
        if time.monotonic() > deadline:
            raise SystemExit(f"{page.url} was never in this state: {condition}")
        page.wait_for_timeout(200)


def photograph(chromium: Any, name: str, picture: Picture) -> None:
    """All four pictures of one page."""
    with opened(picture) as address:
        page = chromium.new_page()
        page.set_default_timeout(1000 * WAIT_S)
        page.goto(address)
        until(page, picture.ready)
        for key in picture.keys:
            page.keyboard.press(key)
        until(page, picture.hold_when)
        if picture.held:
            page.keyboard.down(picture.held)
        until(page, picture.then)
        if picture.last:
            page.keyboard.press(picture.last)
        if picture.held:
            page.keyboard.up(picture.held)
        for way, (scheme, width, height) in WAYS.items():
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme=scheme)
            page.wait_for_timeout(1500)
            shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            shot.save(FIGURES / "pages" / f"{name}-{way}.jpg", quality=QUALITY, optimize=True)
            if way == "light" and picture.copy:
                shot.save(FIGURES / picture.copy, quality=QUALITY, optimize=True)
        page.close()
    print(name, flush=True)


class Film:
    """Screenshots with the time that each stands."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.frames: list[Image.Image] = []
        self.ms: list[int] = []

    def take(self, ms: int) -> None:
        """One picture of the page."""
        picture = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB").resize(SHOWN, Image.Resampling.LANCZOS)
        self.frames.append(picture)
        self.ms.append(ms)

    def shows(self, words: str, ms: int) -> None:
        """What the page looks like when its sentence says so."""
        until(self.page, f"document.querySelector('.sentence').textContent.includes('{words}')")
        self.page.wait_for_timeout(400)
        self.take(ms)

    def save(self, target: Path) -> None:
        """Write the film; pixels that stay cost nothing."""
        strip = Image.new("RGB", (SHOWN[0], SHOWN[1] * 2))
        strip.paste(self.frames[0], (0, 0))
        strip.paste(self.frames[-1], (0, SHOWN[1]))
        save_gif(self.frames, self.ms, strip, target)


def save_gif(frames: list[Image.Image], ms: list[int], sample: Image.Image, target: Path) -> None:
    """Write a film with one palette for all pictures, that of ``sample``."""
    palette = sample.quantize(COLOURS, dither=Image.Dither.NONE)
    small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    small[0].save(target, save_all=True, append_images=small[1:], duration=ms, loop=0, optimize=True)
    print(target.name, flush=True)


def film_lap(chromium: Any) -> None:
    """docs/figures/lap.gif: the shipped policy drives a lap, as in the film of an evaluation."""
    torch.set_num_threads(1)
    drive = Drive(model=find_model("nac_steady.pt", "carracing"), expert="ppo")
    overlay, frames = FrameOverlay("nac_steady", actions=drive.load().actions), []
    with drive.open(4_000_001) as opened:
        for tick in opened:
            picture = Image.frombytes("RGB", (WIDTH, HEIGHT), overlay.paint(tick))
            if tick.step % LAP_EVERY == 0 or tick.done:
                frames.append(picture.resize(LAP_SHOWN, Image.Resampling.LANCZOS))
    save_gif(frames, [80 * LAP_EVERY] * len(frames), frames[len(frames) // 2], FIGURES / "lap.gif")


def film_what_if(chromium: Any) -> None:
    """docs/figures/what_if.gif: a person paints, takes it back, mutes a head, and lets the ghost drive on."""
    with opened(PICTURES["what-if"]) as address:
        page = chromium.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
        page.goto(address.replace("mute:h3", "mute:h4"))
        film, press = Film(page), lambda name: page.get_by_role("button", name=name, exact=True).click()
        until(page, PICTURES["what-if"].ready)
        # The line of the recording is driven once more for the map.
        page.wait_for_selector("#map", state="visible", timeout=1000 * WAIT_S)
        press("Clear")
        film.shows("Change something", 1800)
        box = page.locator("#patches").bounding_box()
        assert box is not None
        at = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in ((0.35, 0.05), (0.98, 0.5))]
        page.mouse.move(*at[0])
        page.mouse.down()
        for share in (0.35, 0.7, 1.0):
            page.mouse.move(*(a + share * (b - a) for a, b in zip(*at, strict=True)))
            page.wait_for_timeout(120)
            film.take(160)
        page.mouse.up()
        film.shows("painted", 2600)
        press("Undo")
        until(page, "document.querySelector('.sentence').textContent.includes('Change something')")
        press("Mute head 4")
        film.shows("head 4 muted", 2400)
        press("Drive on from here")
        filmed = ""
        while "driven on" not in (effect := page.text_content(".effect") or ""):
            if effect != filmed and "ghost drives on:" in effect:
                film.take(120)
            filmed = effect
            page.wait_for_timeout(60)
        page.wait_for_timeout(400)
        film.take(5000)
        page.close()
    film.save(FIGURES / "what_if.gif")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="+", choices=PICTURES, default=list(PICTURES))
    parser.add_argument("--film", action="store_true", help="docs/figures/what_if.gif and lap.gif too")
    options = parser.parse_args()
    (FIGURES / "pages").mkdir(parents=True, exist_ok=True)
    make: list[Callable[[Any], None]] = [
        lambda chromium, name=name: photograph(chromium, name, PICTURES[name]) for name in options.only
    ]
    with sync_playwright() as play:
        chromium = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for one in [*make, *([film_lap, film_what_if] if options.film else [])]:
            one(chromium)
        chromium.close()


if __name__ == "__main__":
    main()
