"""The laws of the NAC layer, measured: every number and picture of docs/nac.md but the timings.

python benchmarks/nac_theory.py                 # prints the report (about a minute of CPU time)
python benchmarks/nac_theory.py --out docs      # also writes docs/results/nac_theory.md and docs/figures/nac/*.png
python benchmarks/nac_theory.py --only frozen recall
"""

from __future__ import annotations

import argparse
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from theory import approximation, bounds, decay, frozen, keys, published, recall, sensitivity
from theory.report import save

LAWS = {
    "bounds": bounds,
    "decay": decay,
    "frozen": frozen,
    "sensitivity": sensitivity,
    "approximation": approximation,
    "keys": keys,
    "recall": recall,
    "published": published,
}


def versions() -> str:
    found = []
    for name in ("torch", "numpy", "ncps", "torch-nac"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} not installed")
    return ", ".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder (docs) for results/nac_theory.md and figures/nac/*.png")
    parser.add_argument("--only", nargs="+", choices=LAWS, help="measure only these")
    arguments = parser.parse_args()
    chosen = arguments.only or list(LAWS)
    if arguments.out and arguments.only:
        parser.error("--out writes the whole report; leave --only out")
    torch.set_num_threads(1)
    report = [
        "# The laws of the NAC layer, measured",
        "",
        f"Made by `python benchmarks/nac_theory.py --out docs` ({versions()}; CPU). Explained in [nac.md](../nac.md).",
        "",
    ]
    for number, name in enumerate(chosen, 1):
        print(f"[{number}/{len(chosen)}] {name} ...", end=" ", flush=True)
        start = time.process_time()
        section = LAWS[name].measure()
        print(f"{time.process_time() - start:.1f} s", flush=True)
        report.append(section.markdown("../figures/nac"))
        if arguments.out:
            for picture, figure in section.figures.items():
                save(figure, arguments.out / "figures" / "nac" / f"{picture}.png")
    text = "\n".join(report)
    print("\n" + text)
    if arguments.out:
        path = arguments.out / "results" / "nac_theory.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.rstrip() + "\n", encoding="utf-8")
        print(f"written: {path} and {arguments.out / 'figures' / 'nac'}")


if __name__ == "__main__":
    main()
