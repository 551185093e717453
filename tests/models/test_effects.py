"""Why, measured: what is said of a part is true when the part is muted by other code than the page's."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from nacdrive.common.paths import find_model, shipped
from nacdrive.datasets.recording import Recording
from nacdrive.envs.registry import action_names
from nacdrive.models import Policy, load_policy
from nacdrive.models.effects import NO_HEADS, Effects, Part
from tests.helpers.small_policies import small_policy

NAMES = ("nothing", "right", "left", "gas", "brake")
DOES = ("coasts", "steers right", "steers left", "accelerates", "brakes")
WOULD = ("coast", "steer right", "steer left", "accelerate", "brake")


def by_hand(policy: Policy, frames: list[NDArray[np.uint8]], times: list[float], part: Part | None) -> NDArray[Any]:
    """The network's outputs with a part muted in the plainest way: from pixels, over the window, in the weights."""
    config, frames, network = policy.config, [frame.copy() for frame in frames], policy.network
    kind, index = (part.kind, part.index) if part is not None else ("", 0)
    times = list(times)
    padding = np.zeros((1, len(frames)), bool)
    if kind == "head":
        network, size = copy.deepcopy(network), config.d_model // config.num_heads
        network.sequence.nac.out_proj.weight.data[:, size * index : size * (index + 1)] = 0
    if kind == "frame":
        padding[0, -1 - index] = True
    if kind == "region":
        first, last = config.crop or (0, config.height)
        row, column = divmod(index, 3)
        for y in range(config.height):
            for x in range(config.width):
                inside = first + (last - first) * row // 4 <= y < first + (last - first) * (row + 1) // 4
                if inside and config.width * column // 3 <= x < config.width * (column + 1) // 3:
                    frames[-1][y, x] = 128
    if kind == "time":
        late = times[-1] - times[-2] - config.gap_s
        times = [t + late for t in times[:-1]] + times[-1:]
    with torch.inference_mode():
        seen = torch.from_numpy(np.stack(frames)).unsqueeze(0)
        scores = network(seen, torch.tensor([times]), torch.from_numpy(padding))
    plain: NDArray[Any] = scores[0, -1].numpy().astype(np.float64)
    return plain


def shares(scores: NDArray[Any]) -> NDArray[Any]:
    raised: NDArray[Any] = np.exp(scores - scores.max())
    return raised / raised.sum()


def check_sentence(policy: Policy, effects: Effects, frames: list[NDArray[np.uint8]], times: list[float]) -> None:
    """Every number and every claim of the sentence, by muting the part that it names by hand."""
    sentence = effects.explain(NAMES)["sentence"]
    base = by_hand(policy, frames, times, None)
    named = [part for part in effects.parts if f"{part.without} it would" in sentence or f"is {part.noun}:" in sentence]
    if policy.config.continuous:
        outputs = [np.clip(by_hand(policy, frames, times, part), -1, 1) for part in effects.parts]
        moves = [float(np.abs(out - np.clip(base, -1, 1)).max()) for out in outputs]
        assert ("Nothing alone" in sentence) == (max(moves) < 0.1)
        return
    choice = int(base.argmax())
    assert sentence.startswith(f"It {DOES[choice]}. ")
    if not named:
        assert "not even by one point" in sentence
        for part in effects.parts:
            assert abs(shares(by_hand(policy, frames, times, part))[choice] - shares(base)[choice]) < 0.0101
        return
    (part,) = named
    without = by_hand(policy, frames, times, part)
    before, after = (100 * shares(scores)[choice] for scores in (base, without))
    percents = [int(word) for word in sentence.rsplit(f"{NAMES[choice]} ", 1)[1].removesuffix(" %.").split(" → ")]
    assert abs(percents[0] - before) < 0.51 and abs(percents[1] - after) < 0.51
    if " it would " in sentence:
        assert int(without.argmax()) != choice
        assert f" it would {WOULD[int(without.argmax())]}: " in sentence
    else:
        assert "Nothing alone changes this decision; " in sentence
        for other in effects.parts:
            assert int(by_hand(policy, frames, times, other).argmax()) == choice


def decisions(policy: Policy, count: int, seed: int = 0) -> Any:
    """Effects of ``count`` decisions on recorded frames, with the frames and times that a window and one more hold."""
    recording = Recording.open(shipped("recordings") / "carracing-sample")
    episodes = [recording.load(i) for i in range(len(recording))]
    pictures = [episode.decoded() for episode in episodes]
    meter, rng = policy.meter(), np.random.default_rng(seed)
    for _ in range(count):
        number = int(rng.integers(len(episodes)))
        at = int(rng.integers(len(pictures[number])))
        span = range(max(0, at - policy.config.window), at + 1)
        frames, times = [pictures[number][i] for i in span], [float(episodes[number].t_s[i]) for i in span]
        policy.reset()
        for frame, t_s in zip(frames, times, strict=True):
            policy.step(frame, t_s)
        yield meter.measure(policy.last_decision()), frames, times


def test_twenty_sentences_are_true_when_the_part_is_muted_by_hand() -> None:
    policy = load_policy(find_model(Path("nac_steady.pt"), "carracing"))
    for effects, frames, times in decisions(policy, 20):
        check_sentence(policy, effects, frames, times)


@pytest.mark.parametrize(
    "kind", ["nac-exact-choices", "nac-euler-steers", "topk", "lstm-choices", "cfc-steers", "nac-key-driving"]
)
def test_every_number_is_that_of_the_part_muted_by_hand(kind: str) -> None:
    policy = small_policy(kind)
    config, rng = policy.config, np.random.default_rng(1)
    frames = list(rng.integers(0, 255, (config.window + 3, config.height, config.width, 3), dtype=np.uint8))
    times = list(np.cumsum(rng.uniform(0.05, 0.2, len(frames))))
    for frame, t_s in zip(frames, times, strict=True):
        policy.step(frame, t_s)
    effects = policy.meter().measure(policy.last_decision())
    kept = config.window + 1
    kinds = [part.kind for part in effects.parts]
    assert kinds.count("frame") == config.window - 1 and kinds.count("region") == 12
    assert kinds.count("time") == (0 if "lstm" in kind else 1)
    assert kinds.count("head") == (4 if policy.circuit() else 0)
    assert effects.missing == ("" if policy.circuit() else NO_HEADS)
    np.testing.assert_allclose(effects.base, by_hand(policy, frames[-kept:], times[-kept:], None), atol=2e-5)
    for part, outputs in zip(effects.parts, effects.muted, strict=True):
        expected = by_hand(policy, frames[-kept:], times[-kept:], part)
        np.testing.assert_allclose(outputs, expected, atol=2e-5, err_msg=part.name)


def test_a_first_decision_has_neither_remembered_frames_nor_a_time() -> None:
    policy = small_policy("nac-steady-choices")
    policy.step(np.zeros((40, 44, 3), np.uint8), 0.0)
    effects = policy.meter().measure(policy.last_decision())
    assert {part.kind for part in effects.parts} == {"region", "head"}
    assert len(effects.explain(NAMES)["bars"]) == 12


def test_where_nothing_changes_anything_the_sentence_says_so() -> None:
    parts = (Part("head", 2, "head 3", "Without head 3"), Part("region", 0, "top left of the picture", "Without it"))
    scores = np.array([0.0, 0.0, 5.0], np.float32)
    actions = ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (-1.0, 0.0, 0.0))
    sentence = Effects(parts, scores, np.stack([scores, scores]), actions).sentence(NAMES)
    assert sentence == "It steers left. Nothing alone changes this decision, not even by one point."
    weaker = scores - np.array([0, 0, 2], np.float32)
    sentence = Effects(parts, scores, np.stack([scores, weaker]), actions).sentence(NAMES)
    assert sentence.endswith("what moves it most is the top left of the picture: left 99 → 91 %.")
    other = scores - np.array([0, -1, 6], np.float32)
    sentence = Effects(parts, scores, np.stack([other, weaker]), actions).sentence(NAMES)
    assert sentence == "It steers left. Without head 3 it would steer right: left 99 → 9 %."
    none = Effects((), np.array([0.3, -0.2], np.float32), np.zeros((0, 2), np.float32), ())
    assert none.sentence().startswith("It steers right 0.30, brake 0.20. Nothing alone")
    assert action_names("carracing") == NAMES


@pytest.mark.nightly
@pytest.mark.parametrize(
    "model", sorted((shipped("agents") / "carracing").glob("nac_*.pt")), ids=lambda path: path.stem
)
def test_a_thousand_sentences_are_true(model: Path) -> None:
    policy = load_policy(model)
    for effects, frames, times in decisions(policy, 1000):
        check_sentence(policy, effects, frames, times)
