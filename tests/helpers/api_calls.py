"""Every public name called as the documentation calls it; never run, for mypy alone (``files`` in pyproject.toml)."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import numpy as np
import torch

import nacdrive
from nacdrive import NAC, Recording


def every_name(folder: Path) -> None:
    assert_type(nacdrive.__version__, str)
    layer = NAC(d_model=64, num_heads=4, mode="exact", topk=8)
    layer(torch.randn(2, 100, 64), t=torch.rand(2, 100).cumsum(1), is_causal=True)

    policy = nacdrive.load_policy("nac_steady")
    other = nacdrive.load_policy("nac_steady", layer="nac-lag", device="cpu")
    env = nacdrive.make_env("carracing", renderer="fast")
    frame, info = env.reset(seed=4_000_000)
    env.step(policy.act(frame, info))
    action, _ = other.predict(frame)
    env.step(action)

    for tick in nacdrive.rollout(policy, env, 4_000_000, expert="ppo"):
        assert_type(tick.episode_return, float)
    result = nacdrive.evaluate(policy, env, episodes=20)
    nacdrive.evaluate("udacity/pilotnet", "udacity-track", episodes=2, workers=2, track="lake")
    assert_type(result.mean, float)
    assert_type(result.returns, list[float])

    recording = nacdrive.record(folder / "expert", "carracing", episodes=8, expert="ppo")
    assert_type(recording, Recording)
    frames, t_s = np.zeros((20, 64, 64, 3), np.uint8), np.arange(20) * 0.1
    own = Recording.from_arrays(frames, t_s, steering=np.zeros(20), folder=folder / "own")
    with Recording.append_to(folder / "own") as episode:
        episode.append({"frame": frames[0], "t_s": 0.0, "steering": 0.1})
    trained = nacdrive.train([own, str(folder / "own")], layer="nac-lag", epochs=2, out=folder / "run")
    nacdrive.train(recording, dagger=1)
    assert_type(nacdrive.export_onnx(trained, folder / "policy.onnx"), Path)
    assert_type(nacdrive.export_onnx("nac_steady", "policy.onnx"), Path)
