"""Smaller convolutions for policies of Udacity, which learn to see what the large ones see (Hinton et al., 2015).

    python tools/policy_distillation.py docs/results/udacity_seeds/room-0.pt agents/udacity/nac_exact.pt --out small-0

The policies share their convolutions. Drives of the first one are recorded, disturbed, through good cameras and bad
ones; then one small network of convolutions learns of each picture, lit and moved otherwise, all that the policies'
projections make of it, and how each would steer by this picture alone. Circuit, attention and head stay as they are.
``NAME.pt`` of each policy, ``metrics.jsonl`` and the options (``run.json``) lie in --out, beside the pictures
(``pictures.npy``), with which the same command goes on. What came of it: docs/results/roads.md.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import track as progress
from torch import Tensor, nn

from nacdrive.common.errors import UserError
from nacdrive.common.files import atomic_path
from nacdrive.common.parallel import run_by_method
from nacdrive.common.progress import resumable
from nacdrive.common.runs import check_resumable, package_versions, plain
from nacdrive.layers.nac import NACKeyLayer
from nacdrive.models import Policy, load_policy, save_policy
from nacdrive.models.driving import DrivingNetwork
from nacdrive.rollout.drive import Drive
from nacdrive.tasks.images import Augmentation, augmented, noisy, prepared
from nacdrive.training.log import MetricsLog

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.policy_reinforcement import PRELOADED
from tools.sampled_drives import Sampler, UdacityDrives

FIRST_TRACK, TRACKS_PER_SEED = 3_980_000, 2_000
"""Of the roads to learn from (``nacdrive.envs.seeds``), behind those of ``tools/policy_reinforcement.py``."""
SEEDS = 9
"""So many fit below the validation roads."""
SMALL: dict[str, Any] = {"channels": (12, 24, 36, 48), "kernels": (5, 5, 3, 3), "strides": (3, 2, 2, 1)}
"""The convolutions that learn: 4 million multiplications a picture in the place of 27."""
SHIFT = 0.05
"""A difference of the steering that weighs as much as one of all features by their standard deviation."""
BATCH = 64


class DisturbedDrives(UdacityDrives):
    """Farther from the middle, on more kinds of roads, and disturbed more than what one learns from rewards on."""

    kinds = {"good": 0.35, "5 to 20 Hz": 0.1, "black": 0.05, "noise, late, dusk": 0.2, "slow cars": 0.3}
    action_std = (0.12,)

    def drive(self, kind: str, camera: Any, rng: np.random.Generator) -> Drive:
        usual = super().drive(kind, camera, rng)
        fixed = str(rng.choice(["random", "random", "random", "random", "random", "random", "lake", "mountain"]))
        options = {**usual.options, "road_difficulty": float(rng.choice([0.5, 0.5, 0.7, 1.0]))}
        if fixed != "random" and kind != "slow cars":
            options, usual = {"max_seconds": options["max_seconds"]}, replace(usual, track=fixed)
        return replace(usual, options=options, speed_mph=float(rng.choice([20.0, 25.0, 25.0, 30.0, 35.0])))

    def begin(self, opened: Any, kind: str, lost_m: float, rng: np.random.Generator) -> float:
        offset, heading, speed = rng.uniform(-1.5, 1.5), rng.uniform(-0.15, 0.15), rng.uniform(4, 14)
        opened.start = {"offset": float(offset), "heading": float(heading), "speed": float(speed)}
        return 0.0


class Pictures(Sampler):
    """Drives, and keeps what the network saw, as its ``preprocess`` leaves it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.kept: list[NDArray[np.uint8]] = []
        preprocess = self.policy.network.preprocess
        assert preprocess is not None
        preprocess.register_forward_hook(lambda module, frames, seen: self.kept.append(seen[0].numpy()))

    def pictures(self, job: Any) -> NDArray[np.uint8]:
        self.kept.clear()
        self.drive(job)
        return np.stack(self.kept)


@dataclass(frozen=True)
class Options:
    """Of a run; what is not said here: ``--help``."""

    policies: tuple[Path, ...]
    out: Path
    drives: int
    epochs: int
    real: Path | None
    pictures: Path | None
    learning_rate: float
    seed: int
    workers: int

    def __post_init__(self) -> None:
        if not 0 <= self.seed < SEEDS or not 1 <= self.drives <= TRACKS_PER_SEED:
            raise UserError(f"there are {TRACKS_PER_SEED} roads of each of the seeds 0 to {SEEDS - 1}.")
        if self.epochs < 1 or self.workers < 0 or not self.learning_rate > 0:
            raise UserError("--epochs and --learning-rate have to be above 0, --workers 0 or more.")

    def jobs(self) -> list[Any]:
        """Seed, kind and camera of each drive."""
        drives, jobs = DisturbedDrives(), []
        rng = np.random.default_rng([self.seed, 3])
        for k in range(self.drives):
            kind = str(rng.choice(list(drives.kinds), p=list(drives.kinds.values())))
            jobs.append((FIRST_TRACK + self.seed * TRACKS_PER_SEED + k, kind, drives.camera(kind, rng)))
        return jobs


def driven(options: Options, policy: Policy) -> NDArray[np.uint8]:
    """[pictures, rows, columns, 3] of all drives, and real ones behind them."""
    weights = {name: value.numpy().copy() for name, value in policy.network.state_dict().items()}
    made = options.policies[0], weights, 1.0, options.seed, DisturbedDrives()
    jobs = run_by_method(Pictures, made, "pictures", options.jobs(), workers=options.workers, preload=PRELOADED)
    parts = [pictures for _, pictures in sorted(progress(jobs, "drives", total=options.drives), key=lambda x: x[0][0])]
    if options.real is not None:
        files = sorted((options.real / "IMG").glob("*.jpg"))
        config = policy.config
        assert config.crop is not None
        parts.append(prepared((f.read_bytes() for f in files), str(options.real), config.upright, config.crop))
    return np.concatenate(parts)


def lesson(options: Options, policies: Sequence[Policy]) -> tuple[NDArray[np.uint8], Tensor, Tensor]:
    """Pictures, each a second time moved and lit otherwise, and what the policies make of them (see ``judged``)."""
    folder = options.pictures or options.out
    pictures, answers = folder / "pictures.npy", folder / "answers.pt"
    generator = torch.Generator().manual_seed(options.seed)
    if not pictures.exists():
        frames = driven(options, policies[0])
        with atomic_path(pictures) as target:
            both = np.lib.format.open_memmap(target, "w+", np.uint8, (2 * len(frames), *frames.shape[1:]))
            both[: len(frames)] = frames
            for k in progress(range(0, len(frames), BATCH), "pictures"):
                some = torch.from_numpy(frames[k : k + BATCH])
                both[len(frames) + k :][: len(some)] = changed(some, generator).numpy()
            both.flush()
    seen = np.load(pictures, mmap_mode="r")
    if not answers.exists():
        networks, parts = [policy.network.eval() for policy in policies], list[tuple[Tensor, Tensor]]()
        with torch.no_grad():
            for k in progress(range(0, len(seen), BATCH), "answers"):
                features, steering = judged(networks, torch.from_numpy(seen[k : k + BATCH].copy()))
                parts.append((features.half(), steering))
        with atomic_path(answers) as target:
            torch.save([torch.cat(part) for part in zip(*parts, strict=True)], target)
    features, steering = torch.load(answers, weights_only=True)
    if features.shape[:2] != (len(seen), len(policies)):
        raise UserError(f"{answers} is of other pictures or policies: give --pictures of a run of the same ones.")
    return seen, features, steering


def pupils(policies: Sequence[Policy]) -> list[DrivingNetwork]:
    """A network for each policy: small convolutions that all share, and its own projection, circuit and head."""
    networks: list[DrivingNetwork] = []
    for policy in policies:
        network = DrivingNetwork(replace(policy.config, **SMALL))
        same = {k: v for k, v in policy.network.state_dict().items() if k.startswith(("sequence.", "head."))}
        network.load_state_dict(same, strict=False)
        network.vision = networks[0].vision if networks else network.vision
        networks.append(network.eval())  # without dropout: there is more to learn than it can
    return networks


def judged(
    networks: Sequence[DrivingNetwork], frames: Tensor, deciding: Sequence[int] | None = None
) -> tuple[Tensor, Tensor]:
    """Pictures as ``preprocess`` leaves them -> what each network's projection gives, as its layer normalises that,
    [N, networks, 64], and how those that are ``deciding`` (all, if not given) would steer by this picture alone,
    [N, deciding].
    """
    x = frames.float().mul(2 / 255).sub(1.0).permute(0, 3, 1, 2)
    seen = networks[0].vision(x).flatten(1)
    projected = [cast(nn.Linear, network.projection)(seen) for network in networks]
    which = range(len(networks)) if deciding is None else deciding
    steering = [networks[k].decide(projected[k].unsqueeze(1))[:, 0, 0] for k in which]
    pairs = zip(networks, projected, strict=True)
    normal = [cast(nn.LayerNorm, cast(NACKeyLayer, network.sequence).nac.input_norm)(one) for network, one in pairs]
    return torch.stack(normal, dim=1), torch.stack(steering, dim=1)


def changed(frames: Tensor, generator: torch.Generator) -> Tensor:
    """The pictures moved and lit otherwise, with noise in half of them."""
    batch = {"frames": frames.unsqueeze(1), "t": torch.zeros(len(frames), 1), "target": torch.zeros(len(frames), 1)}
    return noisy(augmented(batch, Augmentation(), generator)["frames"], generator).squeeze(1)


def distil(options: Options) -> None:
    """The whole run; ``UserError`` where the policies see otherwise than the first one."""
    policies = [load_policy(path) for path in options.policies]
    first = policies[0].network
    for policy in policies:
        weights = policy.network.vision.state_dict()
        same = all(torch.equal(weights.get(k, torch.empty(0)), v) for k, v in first.vision.state_dict().items())
        if policy.config.task != "udacity" or policy.config.model != "nac-key" or not same:
            raise UserError(f"{policy.name} is no NAC of Udacity, or has other convolutions than the first policy.")
    options.out.mkdir(parents=True, exist_ok=True)
    check_resumable(options.out, options, ("out", "workers"))
    pictures, features, steering = lesson(options, policies)
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    networks = pupils(policies)
    half = len(pictures) // 2  # twice the same ones
    is_kept = torch.arange(len(pictures)) % half * 40 // half % 20 == 19  # two stretches of drives, one with real ones
    train, valid = (which.flatten() for which in ((~is_kept).nonzero(), is_kept.nonzero()))
    scale = features[valid].float().std(0)
    parts = [networks[0].vision, *(network.projection for network in networks)]
    learns = [parameter for part in parts if part is not None for parameter in part.parameters()]
    optimizer = torch.optim.AdamW(learns, lr=options.learning_rate, weight_decay=0.01)
    steps = options.epochs * -(-len(train) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.learning_rate, steps, pct_start=0.05)

    def errors(some: Tensor, deciding: Sequence[int]) -> tuple[Tensor, Tensor]:
        mine, my_steering = judged(networks, torch.from_numpy(pictures[some.numpy()]), deciding)
        wrong = (mine - features[some].float()) / scale
        return wrong.square().mean(), (my_steering - steering[some][:, deciding]).abs().clamp(max=0.5)

    log = MetricsLog(options.out, 0, 0)
    for epoch in range(options.epochs):
        seen, off, began = [], [], time.perf_counter()
        for some in progress(torch.randperm(len(train), generator=generator).split(BATCH), f"epoch {epoch + 1}"):
            one = int(torch.randint(len(networks), (), generator=generator))
            by_features, by_steering = errors(train[some].sort()[0], [one])
            optimizer.zero_grad()
            (by_features + (by_steering / SHIFT).square().mean()).backward()
            nn.utils.clip_grad_norm_(learns, 1.0)
            optimizer.step()
            schedule.step()
            seen.append(by_features.item())
            off.append(by_steering.mean().item())
        with torch.no_grad():
            tried = [errors(some, range(len(networks))) for some in valid.split(4 * BATCH)]
        row = {
            "round": 0, "epoch": epoch, "features": float(np.mean(seen)), "steering": float(np.mean(off)),
            "valid_features": float(np.mean([one.item() for one, _ in tried])),
            "valid_steering": torch.cat([one for _, one in tried]).mean(0).tolist(),
            "seconds": round(time.perf_counter() - began, 1),
        }  # fmt: skip
        log.add(row)
        print(row, flush=True)
        about = {**plain(options), "policies": [p.name for p in options.policies], "versions": package_versions()}
        about = {name: value for name, value in about.items() if name not in ("out", "workers", "real", "pictures")}
        for path, policy, network in zip(options.policies, policies, networks, strict=True):
            taught = Policy(copy.deepcopy(network), policy.name)
            save_policy(taught, options.out / path.name, policy.meta | {"distilled": {**about, "epoch": epoch}})
    log.close()


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--drives", type=int, default=600)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument(
        "--real", type=Path, help="folder of a recording of the simulator, whose pictures are learnt too"
    )
    parser.add_argument("--pictures", type=Path, help="folder of another run whose pictures are learnt from")
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2, help="processes that drive; 0: it is done here")
    given = vars(parser.parse_args(words))
    try:
        options = Options(**{**given, "policies": tuple(given["policies"])})
        with resumable(lambda: f"the pictures are kept in {options.out}", "the same command goes on"):
            distil(options)
    except UserError as error:
        parser.error(str(error))
    except KeyboardInterrupt as stopped:
        raise SystemExit(str(stopped)) from None


if __name__ == "__main__":
    main()
