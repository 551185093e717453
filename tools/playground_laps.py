"""Does a policy drive as well in the playground's page as in Python? Returns on the same tracks, side by side.

    python tools/playground_laps.py --model carracing/nac_steady_continuous --seed 4000100 --episodes 20

The page's modules run in deno (of ``pip install 'nacdrive[dev]'``), or with ``--browser`` the page itself in Chromium.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nacdrive.cli.playground import page_of
from nacdrive.common.paths import find_model
from nacdrive.common.statistics import fraction, paired_difference, summary
from nacdrive.extras.export.html import network_json
from nacdrive.extras.export.network_description import describe
from nacdrive.extras.playground.html import sprites
from nacdrive.models import load_policy
from nacdrive.rollout.drive import Drive

ROOT = Path(__file__).resolve().parents[1]
LAP = """(seed) => {
  playground.setPlaying(false);
  playground.session.begin(roadOfSeed(seed), seed);
  while (!playground.session.over) playground.session.step();
  return playground.session.car.world.reward;
}"""


def in_python(model: Path, seeds: range) -> list[float]:
    """Returns with the fast renderer."""
    loaded = Drive(model=model, options={"renderer": "fast"}, safety_stop=False).load()
    returns = []
    for seed in seeds:
        with loaded.open(seed) as drive:
            returns.append(float(sum(tick.reward for tick in drive)))
    return returns


def in_deno(model: Path, seeds: range) -> list[float]:
    """Returns in the page's modules."""
    policy = load_policy(model)
    description, weights = network_json(describe(policy))
    job: dict[str, Any] = {"description": description, "weights": weights, "repeat": policy.repeat, "frames": None}
    path = shutil.which("deno", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") or "deno"
    done = subprocess.run(
        [path, "run", "--quiet", "--no-lock", "tests/extras/playground/laps.js"],
        input=json.dumps({"sprites": sprites(), "jobs": [{**job, "seeds": list(seeds)}]}),
        capture_output=True,
        check=True,
        cwd=ROOT,
        text=True,
    )
    return [lap["reward"] for lap in json.loads(done.stdout)[0]]


def in_browser(model: Path, seeds: range) -> list[float]:
    """Returns in the page, opened from a file in a headless Chromium."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("google-chrome")
    with TemporaryDirectory() as folder, sync_playwright() as play:
        page = Path(folder) / "playground.html"
        page.write_text(page_of(model), encoding="utf-8")
        chromium = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        tab = chromium.new_page()
        tab.set_default_timeout(600_000)
        tab.goto(page.as_uri())
        returns = [tab.evaluate(LAP, seed) for seed in seeds]
        chromium.close()
    return returns


def main() -> None:
    """Print the returns and what lies between them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="carracing/nac_steady_continuous")
    parser.add_argument("--seed", type=int, default=4_000_100)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--browser", action="store_true")
    given = parser.parse_args()
    model, seeds = find_model(given.model), range(given.seed, given.seed + given.episodes)
    python = in_python(model, seeds)
    page = (in_browser if given.browser else in_deno)(model, seeds)
    for seed, there, here in zip(seeds, python, page, strict=True):
        print(f"{seed}  python {there:7.1f}  page {here:7.1f}  {here - there:+6.1f}")
    print("python", summary(python))
    print("page", summary(page))
    print("page - python", paired_difference(page, python))
    print("page / python", fraction(page, python))


if __name__ == "__main__":
    main()
