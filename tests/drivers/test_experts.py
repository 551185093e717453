from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nacdrive.common.errors import UserError
from nacdrive.drivers import load_expert
from nacdrive.envs.carracing.env import make_carracing
from nacdrive.models.agents.network import FrameStack
from nacdrive.rollout.rollout import rollout

FRAMES = np.random.default_rng(0).integers(0, 256, (6, 96, 96, 3), dtype=np.uint8)


def test_stack_begins_with_four_times_the_first_frame_and_keeps_the_newest_last() -> None:
    stack = FrameStack()
    first = stack.push(FRAMES[0]).copy()
    assert (first == first[0]).all()
    second = stack.push(FRAMES[1])
    assert (second[:3] == first[0]).all() and (second[3] != first[0]).any()
    stack.reset()
    np.testing.assert_array_equal(stack.push(FRAMES[0]), first)


def test_instruments_are_not_seen(policy: Path) -> None:
    frame = FRAMES[0].copy()
    frame[84:] = 0
    np.testing.assert_array_equal(FrameStack().push(frame), FrameStack().push(FRAMES[0]))


def test_expert_is_deterministic_and_forgets_on_reset(policy: Path) -> None:
    expert = load_expert(policy)
    drives = []
    for _ in range(2):
        expert.reset()
        drives.append(np.array([expert.act(frame).logits for frame in FRAMES]))
    np.testing.assert_array_equal(*drives)


def test_two_experts_have_memories_of_their_own(policy: Path) -> None:
    alone = load_expert(policy).act(FRAMES[0]).logits
    one, other = load_expert(policy), load_expert(policy)
    one.act(FRAMES[1])
    np.testing.assert_array_equal(other.act(FRAMES[0]).logits, alone)


def test_a_batch_has_the_same_logits_as_one_at_a_time(policy: Path) -> None:
    expert = load_expert(policy)
    stacks = np.random.default_rng(0).integers(0, 256, (16, 4, 48, 48), dtype=np.uint8)
    batch = expert.logits(stacks)  # type: ignore[attr-defined]
    for stack, logits in zip(stacks, batch, strict=True):
        single = expert.logits(stack[None])[0]  # type: ignore[attr-defined]
        assert single.argmax() == logits.argmax()
        np.testing.assert_allclose(single, logits, atol=1e-5)
    assert batch.shape == (16, 5)


@pytest.mark.parametrize("shape", [(4, 48, 48), (2, 3, 48, 48), (2, 4, 64, 64)])
def test_stacks_of_another_shape_are_refused(policy: Path, shape: tuple) -> None:
    with pytest.raises(UserError, match="FrameStack"):
        load_expert(policy).logits(np.zeros(shape, np.uint8))  # type: ignore[attr-defined]


def test_frame_of_another_shape_is_refused(policy: Path) -> None:
    with pytest.raises(UserError, match=r"\[96, 96, 3\]"):
        load_expert(policy).act(np.zeros((64, 64, 3), np.uint8))


def test_labels_two_thousand_frames_a_second_on_one_core(policy: Path) -> None:
    expert = load_expert(policy)
    stacks = np.zeros((256, 4, 48, 48), np.uint8)
    expert.logits(stacks)  # type: ignore[attr-defined]
    # Processor time: others may be using the machine.
    began = time.process_time()
    for _ in range(4):
        expert.logits(stacks)  # type: ignore[attr-defined]
    assert 4 * 256 / (time.process_time() - began) > 2000


def test_names_of_experts(policy: Path) -> None:
    assert load_expert("geometric").name == "geometric"
    with pytest.raises(UserError, match="did you mean 'geometric'"):
        load_expert("geometrik")
    with pytest.raises(UserError, match="no expert at"):
        load_expert("missing/ppo.pt")


def test_the_file_of_an_agent_has_its_own_name_and_not_its_folders(policy: Path, tmp_path: Path) -> None:
    shutil.copy(policy, tmp_path / "mine.pt")
    assert load_expert(tmp_path / "mine.pt", discrete_only=False).name == "mine.pt"


def lap_return(expert: Any, seed: int, renderer: Any) -> float:
    """Return of ``expert`` on the track of ``seed``."""
    *_, last = rollout(make_carracing(renderer=renderer, repeat=expert.needs.repeat), expert, seed)
    return last.episode_return


@pytest.mark.parametrize("renderer", ["fast", pytest.param("official", marks=pytest.mark.nightly)])
def test_shipped_expert_drives_well_on_both_renderers(renderer: str) -> None:
    assert lap_return(load_expert("ppo"), 1_000_003, renderer) > 850


def test_geometric_expert_drives_well_without_looking() -> None:
    assert min(lap_return(load_expert("geometric"), seed, "fast") for seed in range(1_000_001, 1_000_004)) > 850


def test_geometric_expert_needs_the_environment() -> None:
    expert = load_expert("geometric")
    with pytest.raises(UserError, match="reads the track"):
        expert.act(FRAMES[0])


def test_geometric_expert_reads_a_plain_gymnasium_environment() -> None:
    import gymnasium

    env = gymnasium.make("CarRacing-v3", continuous=False)
    env.reset(seed=1)
    ours = make_carracing()
    frame, _ = ours.reset(seed=1)
    one, other = load_expert("geometric"), load_expert("geometric")
    one.reset(env)
    other.reset(ours)
    assert one.act(frame) == other.act(frame)
    with pytest.raises(UserError, match="let somebody else drive CartPoleEnv"):
        one.reset(gymnasium.make("CartPole-v1"))


def test_importing_the_room_does_not_import_torch() -> None:
    code = "import nacdrive.drivers, nacdrive.cli.expert, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
