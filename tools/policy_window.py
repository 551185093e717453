"""A trained policy with fewer frames in its memory, and with all keys that these have; no weight is changed.

With --between-frames it decides at its own pace, too, where a camera is slower; with --mode a NAC solves its circuit's
equation in another one of the paper's three ways, which all have the same weights.

    python tools/policy_window.py docs/results/carracing_seeds/seen-0.pt --window 6 --out six/nac_steady.pt
    python tools/policy_window.py docs/results/udacity_seeds/bend-2.pt --out all/nac_steady.pt

Top-K chooses keys by their content alone, and so leaves out the newest frame at times. What it was taught with is in
the new file's meta (``taught_with``), beside how it was trained. What this is worth: docs/results/carracing.md.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from nacdrive.common.errors import UserError
from nacdrive.common.files import refuse_existing
from nacdrive.models import Policy, load_policy, save_policy
from nacdrive.models.presets import MEMORYLESS


def with_all_keys(
    policy: Policy, window: int | None = None, *, between_frames: bool = False, mode: str | None = None
) -> Policy:
    """``policy``, deciding by its newest ``window`` frames (all of them if not given) and by every one of their keys;
    ``between_frames``, too, if it does or is to; in the circuit's ``mode`` (its own if not given).

    ``UserError`` where it was taught with fewer frames, has no memory, or no layer whose modes share their weights.
    """
    if policy.config.model == MEMORYLESS:
        raise UserError(f"{policy.name} remembers nothing: give a policy whose layer does.")
    config, options = policy.config, dict(policy.config.options)
    taught_with = {"window": config.window, "topk": options.pop("topk", None)}
    if mode is not None:
        if config.model != "nac-key":
            raise UserError(f"{policy.name} has no nac-key, whose modes share their weights: leave --mode out.")
        taught_with["mode"], options["mode"] = options.get("mode", "exact"), mode
    config = replace(config, between_frames=between_frames or config.between_frames)
    if window is not None and not 1 <= window <= config.window:
        raise UserError(f"the policy has a window of {config.window} frames: give --window from 1 to {config.window}.")
    if between_frames and config.window == 1:
        raise UserError(
            f"{policy.name} remembers nothing, and cannot decide between frames: leave --between-frames out."
        )
    shorter = Policy.new(replace(config, window=window or config.window, options=options), policy.name)
    shorter.network.load_state_dict(policy.network.state_dict())
    shorter.meta = policy.meta | {"taught_with": taught_with | policy.meta.get("taught_with", {})}
    return shorter


def taught_otherwise(policy: Policy) -> str:
    """Half a sentence for a card, behind a comma, where the policy was taught with more frames, fewer keys, a mode."""
    taught = policy.meta.get("taught_with")
    if taught is None:
        return ""
    keys = "" if taught["topk"] is None else f" and the {taught['topk']} best keys of a query"
    mode = f" in {taught['mode']} mode" if "mode" in taught else ""
    return f", all of which it attends to (taught with {taught['window']}{keys}{mode}, see tools/policy_window.py)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("policy", type=Path)
    parser.add_argument("--window", type=int, help="frames, the present one among them")
    parser.add_argument("--between-frames", action="store_true", help="decide where no frame has come for a while")
    parser.add_argument("--mode", choices=("exact", "euler", "steady"), help="how a NAC solves its circuit's equation")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--overwrite", action="store_true")
    given = parser.parse_args()
    try:
        refuse_existing(given.out, overwrite=given.overwrite)
        policy = load_policy(given.policy)
        policy = with_all_keys(policy, given.window, between_frames=given.between_frames, mode=given.mode)
        save_policy(policy, given.out)
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
