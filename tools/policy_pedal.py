"""A trained policy of steering and pedal that gives more gas: its last layer's pedal times a factor, plus an offset.

    python tools/policy_pedal.py three/nac_steady.pt --factor 1.05 --offset 0.08 --out more/nac_steady.pt

The steering is as before, bit for bit. What was done stands in the new file's meta (``pedal``), beside how the policy
was trained. What this is worth: docs/results/carracing.md.
"""

from __future__ import annotations

import argparse
import copy
import math
from pathlib import Path

import torch

from nacdrive.common.errors import UserError
from nacdrive.common.files import refuse_existing
from nacdrive.models import Policy, load_policy, save_policy


def with_pedal(policy: Policy, factor: float, offset: float) -> Policy:
    """``policy`` with a pedal (-1 .. 1, above 0 gas) of ``factor`` times what it was, plus ``offset``.

    ``UserError`` where it has no pedal, or a number is none.
    """
    if not (math.isfinite(factor) and math.isfinite(offset)):
        raise UserError(f"factor {factor} and offset {offset}: give two finite numbers.")
    if not (policy.config.continuous and policy.config.pedal):
        raise UserError("the policy gives no pedal: it takes one that was taught steering and pedal.")
    changed = copy.deepcopy(policy)
    *_, last = (part for part in changed.network.head.modules() if isinstance(part, torch.nn.Linear))
    with torch.no_grad():
        last.weight[1].mul_(factor)
        last.bias[1].mul_(factor).add_(offset)
    before = {"before": policy.meta["pedal"]} if "pedal" in policy.meta else {}
    changed.meta = policy.meta | {"pedal": {"factor": factor, "offset": offset, **before}}
    return changed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("policy", type=Path)
    parser.add_argument("--factor", type=float, required=True)
    parser.add_argument("--offset", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--overwrite", action="store_true")
    given = parser.parse_args()
    try:
        refuse_existing(given.out, overwrite=given.overwrite)
        save_policy(with_pedal(load_policy(given.policy), given.factor, given.offset), given.out)
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
