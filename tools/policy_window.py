"""A trained policy with fewer frames in its memory, and no weight changed.

    python tools/policy_window.py docs/results/carracing_seeds/seen-0.pt --window 6 --out six/nac_steady.pt

A layer that keeps the K best of its keys keeps no more of them than there are frames. What was taught is in the new
file's meta (``taught_window``), beside how it was trained. What this is worth: docs/results/carracing.md.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from nacdrive.common.errors import UserError
from nacdrive.models import Policy, load_policy, save_policy


def with_window(policy: Policy, window: int) -> Policy:
    """``policy``, deciding by its newest ``window`` frames; ``UserError`` where it was taught with fewer."""
    config, options = policy.config, dict(policy.config.options)
    if not 1 <= window <= config.window:
        raise UserError(f"the policy has a window of {config.window} frames: give --window from 1 to {config.window}.")
    if "topk" in options:
        options["topk"] = min(int(options["topk"]), window)
    network = type(policy.network)(replace(config, window=window, options=options))
    network.load_state_dict(policy.network.state_dict())
    return Policy(network, policy.name, policy.meta | {"taught_window": config.window})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("policy", type=Path)
    parser.add_argument("--window", type=int, required=True, help="frames, the present one among them")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    save_policy(with_window(load_policy(given.policy), given.window), given.out)


if __name__ == "__main__":
    main()
