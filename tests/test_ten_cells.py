"""Ten cells of a notebook as one types them first, from habit: each runs as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

FRAMES = """
import numpy as np
frames, t_s, steering = np.zeros((6, 48, 48, 3), np.uint8), np.arange(6) * 0.1, np.linspace(-1, 1, 6)
frames[:, :, 20:28] = np.arange(6, dtype=np.uint8)[:, None, None, None] * 40
"""
CELLS = {
    "a policy in a Gymnasium loop": """
import nacdrive, gymnasium
policy = nacdrive.load_policy("nac_steady")
env = gymnasium.make("nacdrive/CarRacing-v0", renderer="fast", max_frames=12)
obs, info = env.reset(seed=4_000_000)
done = False
while not done:
    obs, reward, terminated, truncated, info = env.step(policy.act(obs, info))
    done = terminated or truncated
policy(obs), policy.predict(obs)[0], policy.select_action(obs)
for name in ("nac_steady.pt", "carracing/nac_steady"):
    assert nacdrive.load_policy(name).name == policy.name
""",
    "evaluate": """
import nacdrive
result = nacdrive.evaluate(
    nacdrive.load_policy("nac_steady"), nacdrive.make_env("carracing", renderer="fast", max_frames=8), episodes=2
)
assert result.interval[0] <= result.mean <= result.interval[1]
""",
    "record": """
from nacdrive import record
assert len(record("recordings/mine", "carracing", episodes=1, expert="geometric", max_frames=8)) == 1
""",
    "train on own arrays": FRAMES
    + """
import nacdrive
for _ in range(2):
    own = nacdrive.Recording.from_arrays(frames, t_s, steering=steering, folder="own")
policy = nacdrive.train(own, valid_share=0.5, layer="dense", epochs=1, out="run")
assert -1 <= policy.act(frames[0]).steering <= 1
""",
    "the layer in a module": """
import copy, torch
from torch import nn
from nacdrive import NAC
model = nn.Sequential(NAC(d_model=8, num_heads=2), nn.Linear(8, 1))
x = torch.randn(2, 5, 8)
model(x).sum().backward()
copy.deepcopy(model).load_state_dict(model.state_dict())
layer = NAC(d_model=8, num_heads=2)
y, weights = layer(x, x, x, key_padding_mask=torch.zeros(2, 5, dtype=torch.bool), need_weights=True)
""",
    "swap a layer": """
import torch, nacdrive
from nacdrive.layers import build
assert build("s4", 8, 2, window=4)(torch.randn(1, 4, 8)).shape == (1, 4, 8)
assert nacdrive.load_policy("nac_steady", layer="lstm").config.model == "lstm"
""",
    "stable-baselines3": """
import nacdrive
from stable_baselines3 import PPO
PPO("CnnPolicy", "nacdrive:nacdrive/CarRacingFast-v0", n_steps=4, batch_size=4)
""",
    "DAgger": """
import nacdrive
short = {"expert": "geometric", "max_frames": 8}
nacdrive.record("drives", episodes=2, **short)
nacdrive.train("drives", layer="dense", epochs=1, dagger=1, dagger_episodes=1, out="run", **short)
""",
    "ONNX": """
import numpy as np, nacdrive
nacdrive.export_onnx(nacdrive.load_policy("nac_steady", layer="gru"), "policy.onnx")
assert nacdrive.load_policy("policy.onnx").act(np.zeros((96, 96, 3), np.uint8)).choice in range(5)
""",
    "pandas": """
import pandas, nacdrive
table = pandas.read_parquet(nacdrive.Recording.open("carracing-sample").episodes[0].path)
assert {"t_s", "steering", "reward", "frame"} <= {*table}
""",
}
CHEAP = ("the layer in a module", "train on own arrays", "pandas")


@pytest.mark.parametrize(
    "cell", [pytest.param(name, marks=() if name in CHEAP else pytest.mark.nightly) for name in CELLS]
)
def test_it_runs_as_it_is_typed(cell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if cell == "pandas":
        pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    exec(CELLS[cell], {"__name__": "__main__"})
