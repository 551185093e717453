"""Measure which heads of the shipped policies tell left from right, and keep the tables beside the model files.

python tools/head_tuning.py [MODEL.pt ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from nacdrive.common.paths import shipped
from nacdrive.extras.explain.tuning import tuning_table
from nacdrive.models import load_policy
from nacdrive.models.tuning import write_tuning


def main() -> None:
    torch.set_num_threads(1)
    models = [Path(name) for name in sys.argv[1:]] or sorted((shipped("agents") / "carracing").glob("nac_*.pt"))
    for model in models:
        table = tuning_table(load_policy(model))
        write_tuning(model, table)
        best = max(table, key=lambda one: one["strength"])
        print(f"{model}: head {best['head'] + 1} tells most ({best['name']}, {best['strength']:.2f})", flush=True)


if __name__ == "__main__":
    main()
