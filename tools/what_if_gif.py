"""Record docs/figures/what_if.gif: a person asks what if at a moment of the shipped recording, in a real Chromium.

python tools/what_if_gif.py [--out docs/figures/what_if.gif] [--t 5.2]
"""

from __future__ import annotations

import argparse
import io
import shutil
import time
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from nacdrive.cli.replay import ReplayConfig, open_run
from nacdrive.common.paths import shipped
from nacdrive.extras.what_if import WhatIfCard
from nacdrive.web.episode_cache import EpisodeCache
from nacdrive.web.replay import ReplayServer

SIZE = (1280, 800)
SHOWN = (960, 600)
COLOURS = 128


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

    def wait(self, selector: str, start: str, ms: int = 0, timeout_s: float = 120) -> None:
        """Wait until the text of ``selector`` holds ``start``; film meanwhile, every picture standing ``ms``."""
        deadline = time.monotonic() + timeout_s
        while start not in (self.page.text_content(selector) or ""):
            if time.monotonic() > deadline:
                raise SystemExit(f"{selector} never said {start!r}")
            if ms:
                self.take(ms)
            self.page.wait_for_timeout(250)

    def save(self, target: Path) -> None:
        """Write the film; one palette for all pictures, pixels that stay cost nothing."""
        strip = Image.new("RGB", (SHOWN[0], SHOWN[1] * 2))
        strip.paste(self.frames[0], (0, 0))
        strip.paste(self.frames[-1], (0, SHOWN[1]))
        palette = strip.quantize(COLOURS, dither=Image.Dither.NONE)
        small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self.frames]
        small[0].save(target, save_all=True, append_images=small[1:], duration=self.ms, loop=0, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("docs/figures/what_if.gif"))
    parser.add_argument("--t", type=float, default=5.2, help="moment of the recording in seconds")
    options = parser.parse_args()
    folder = shipped("recordings") / "carracing-sample"
    run, source = open_run(folder, ReplayConfig(data=(folder,), model="nac_steady.pt"))
    assert source is not None
    cache = EpisodeCache([run])
    cards = [WhatIfCard.of_recordings(cache, {0: source})]
    with ReplayServer(cache, port=0, cards=cards) as server, sync_playwright() as play:
        chromium = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = chromium.new_page(viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme="light")
        page.goto(f"{server.url}#run=0&ep=1&t={options.t}&head=11&if=mute:h11")
        film = Film(page)
        film.wait(".sentence", "With ")
        # The line of the recording is driven once more for the map.
        page.wait_for_selector("#map", state="visible", timeout=120_000)
        page.get_by_role("button", name="Take all edits back").click()
        film.wait(".sentence", "Change something")
        page.wait_for_timeout(400)
        film.take(1800)
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
        film.wait(".sentence", "painted")
        page.wait_for_timeout(400)
        film.take(2600)
        page.get_by_role("button", name="Take the last edit back").click()
        film.wait(".sentence", "Change something")
        page.get_by_role("button", name="Mute head 11").click()
        film.wait(".sentence", "head 11 muted")
        page.wait_for_timeout(400)
        film.take(2400)
        page.get_by_role("button", name="Simulate the drive once more").click()
        filmed = ""
        while "driven on" not in (effect := page.text_content(".effect") or ""):
            if effect != filmed and "ghost drives on:" in effect:
                film.take(120)
            filmed = effect
            page.wait_for_timeout(60)
        page.wait_for_timeout(400)
        film.take(5000)
        chromium.close()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    film.save(options.out)
    print(f"{options.out}: {len(film.frames)} pictures, {options.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
