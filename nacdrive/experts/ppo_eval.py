"""Drive whole laps with a policy and say how they went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from nacdrive.experts.network import PolicyNet
from nacdrive.experts.preprocess import FrameStack
from nacdrive.experts.training_lap import pedals
from nacdrive.sims.carracing import Renderer, make_carracing


@dataclass(frozen=True)
class Lap:
    """How one episode went."""

    seed: int
    total: float
    """Return in the environment's own units."""
    frames: int
    tiles: float
    """Share of the tiles that were visited."""
    grass: float
    """Share of wheels on grass, mean over the frames."""
    finished: bool


def drive_laps(
    net: PolicyNet,
    seeds: Sequence[int],
    *,
    repeat: int = 4,
    renderer: Renderer = "official",
    show: Callable[[Lap], None] = lambda lap: None,
) -> list[Lap]:
    """One lap per seed with deterministic actions, one after the other."""
    continuous = net.head.out_features == 2
    env = make_carracing(renderer=renderer, repeat=repeat, continuous=continuous)
    device = next(net.parameters()).device
    stack = FrameStack()
    laps = []
    for seed in seeds:
        frame, info = env.reset(seed=seed)
        stack.reset()
        total, grass, over = 0.0, [], False
        while not over:
            with torch.inference_mode():
                scores = net(torch.from_numpy(stack.push(frame)[None]).to(device))[0].cpu().numpy()
            action = pedals(scores) if continuous else int(scores.argmax())
            frame, reward, terminated, truncated, info = env.step(action)
            total += float(reward)
            grass.append(info["wheels_on_grass"])
            over = terminated or truncated
        laps.append(Lap(seed, total, info["frame"], info["tiles_visited"], float(np.mean(grass)), info["finished_lap"]))
        show(laps[-1])
    env.close()
    return laps
