from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.models.agents.nature import NatureNet
from nacdrive.models.agents.network import PolicyNet, load_policy, save_policy
from nacdrive.models.agents.view import View
from tests.helpers.expert_cases import ABOUT


def test_saved_policy_comes_back_with_equal_scores(tmp_path: Path) -> None:
    net = PolicyNet()
    save_policy(tmp_path / "p.pt", net, ABOUT)
    again, about = load_policy(tmp_path / "p.pt")
    stacks = torch.randint(0, 256, (8, 4, 48, 48), dtype=torch.uint8)
    torch.testing.assert_close(again(stacks), net(stacks))
    assert about == ABOUT


def test_network_has_154k_parameters_with_its_critic() -> None:
    assert sum(p.numel() for p in PolicyNet().parameters()) + 257 == 154_454


def test_the_network_of_nature_has_its_published_sizes() -> None:
    """Mnih et al. 2015: 32 8x8/4, 64 4x4/2, 64 3x3/1, 512 of 84 x 84 x 4; here two dense layers behind it."""
    net = NatureNet(View(frames=4, height=84, width=84), 5, hidden=(64, 32))
    shapes = [tuple(p.shape) for name, p in net.named_parameters() if name.endswith("weight")]
    assert shapes == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 3136), (64, 512), (32, 64), (5, 32)]


def test_the_network_of_nature_scores_pictures_from_black_0_to_white_1() -> None:
    net = NatureNet(View(frames=2, height=36, width=36), 3, features=16, hidden=(8,)).eval()
    stacks = torch.randint(0, 256, (5, *net.view.shape), dtype=torch.uint8)
    y = stacks.double() / 255
    for name, layer in net.double().vision.named_children():
        y = layer(y)
        assert name != "1" or y.min() == 0, "a rectified convolution"
    scores = net.head(torch.tanh(net.hidden[0](y)))
    torch.testing.assert_close(net.float()(stacks), scores.float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("content", [b"", b"no policy", b"PK\x03\x04 damaged"])
def test_damaged_file_gives_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p.pt").write_bytes(content)
    with pytest.raises(UserError, match="cannot be read as a ppo policy"):
        load_policy(tmp_path / "p.pt")


def test_truncated_file_gives_one_sentence(policy: Path) -> None:
    policy.write_bytes(policy.read_bytes()[:-1000])
    with pytest.raises(UserError, match="truncated"):
        load_policy(policy)


def test_other_tensors_are_refused(tmp_path: Path) -> None:
    torch.save({"weights": torch.zeros(3)}, tmp_path / "p.pt")
    with pytest.raises(UserError, match="no ppo policy of nacdrive"):
        load_policy(tmp_path / "p.pt")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"about": json.dumps(ABOUT | {"env": "LunarLander-v3"})}, "trained on LunarLander-v3"),
        ({"version": 99}, "has version 99"),
        ({"about": "[]"}, "is no JSON object"),
        ({"about": None}, "is no JSON object"),
        ({"about": json.dumps(ABOUT | {"actions": "continuous"})}, "does not fit"),
    ],
)
def test_policy_of_something_else_is_refused(policy: Path, change: dict, sentence: str) -> None:
    content = torch.load(policy, weights_only=True) | change
    # As in a file from before there were checksums: with one, any change is refused.
    del content["sha256"]
    torch.save(content, policy)
    with pytest.raises(UserError, match=sentence):
        load_policy(policy)


def test_missing_file_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no ppo policy"):
        load_policy(tmp_path / "none.pt")
