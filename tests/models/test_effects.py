"""Why, measured: what is said of a part is true when the part is muted by other code than the page's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nacdrive.common.paths import find_model, shipped
from nacdrive.datasets.recording import Recording
from nacdrive.envs.registry import action_names
from nacdrive.models import Policy, load_policy
from nacdrive.models.effects import NO_HEADS, EffectMeter, Effects, Part
from tests.helpers.small_policies import small_policy
from tools.explanations import ByHand, between, by_score, lie_of

NAMES = ("nothing", "right", "left", "gas", "brake")
DOES = ("coasts", "steers right", "steers left", "accelerates", "brakes")


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


def test_twenty_sentences_are_true_when_the_part_is_muted_by_hand_and_a_lie_is_noticed() -> None:
    policy = load_policy(find_model(Path("nac_steady.pt"), "carracing"))
    for effects, frames, times in decisions(policy, 20):
        hand, sentence = ByHand(policy, frames, times), effects.explain(NAMES)["sentence"]
        assert lie_of(sentence, effects, hand, NAMES) == ""
        choice = int(effects.base.argmax())
        other = DOES[(choice + 1) % len(DOES)]
        assert lie_of(sentence.replace(f"It {DOES[choice]}.", f"It {other}."), effects, hand, NAMES)
        if " it would " in sentence:
            less = min(effects.parts, key=lambda part: float(effects.changes()[effects.parts.index(part)]))
            named = next(part for part in effects.parts if f"{part.without} it would" in sentence)
            assert lie_of(sentence.replace(named.without, less.without), effects, hand, NAMES)


def test_the_share_of_true_sentences_has_both_its_ends() -> None:
    assert between(1000, 1000) == "99.6% to 100%"
    assert between(990, 1000) == "98.2% to 99.5%"


@pytest.mark.parametrize("change", [0.03, -0.03])
def test_a_sentence_of_degrees_is_checked_to_the_hundredth(change: float) -> None:
    policy = small_policy("nac-euler-steers")
    for parameter in policy.network.head[-1].parameters():
        parameter.data *= 0.1  # within what a wheel can do
    config, rng = policy.config, np.random.default_rng(1)
    frames = list(rng.integers(0, 255, (config.window + 1, config.height, config.width, 3), dtype=np.uint8))
    times = [0.08 * i for i in range(len(frames))]
    for frame, t_s in zip(frames, times, strict=True):
        policy.step(frame, t_s)
    effects, hand = policy.meter().measure(policy.last_decision()), ByHand(policy, frames, times)
    assert lie_of(effects.sentence(), effects, hand, ()) == ""
    false = replace(effects, base=effects.base + np.float32(change))
    assert lie_of(false.sentence(), effects, hand, ())


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
    hand = ByHand(policy, frames[-kept:], times[-kept:])
    kinds = [part.kind for part in effects.parts]
    assert kinds.count("frame") == config.window - 1 and kinds.count("region") == 12
    assert kinds.count("time") == (0 if "lstm" in kind else 1)
    assert kinds.count("head") == (4 if policy.circuit() else 0)
    assert effects.missing == ("" if policy.circuit() else NO_HEADS)
    np.testing.assert_allclose(effects.base, hand.outputs([None])[0], atol=2e-5)
    for part, outputs, expected in zip(effects.parts, effects.muted, hand.outputs(effects.parts), strict=True):
        np.testing.assert_allclose(outputs, expected, atol=2e-5, err_msg=part.name)


def test_a_first_decision_has_neither_remembered_frames_nor_a_time() -> None:
    policy = small_policy("nac-steady-choices")
    policy.step(np.zeros((40, 44, 3), np.uint8), 0.0)
    effects = policy.meter().measure(policy.last_decision())
    assert {part.kind for part in effects.parts} == {"region", "head"}
    bars = effects.explain(NAMES)["bars"]
    assert len(bars) <= 12 and all(bar["change"] >= 0.01 or bar["decides"] for bar in bars)


def test_a_frame_that_does_not_exist_yet_hides_no_other() -> None:
    policy = small_policy("nac-steady-choices")
    for k in range(2):
        policy.step(np.full((40, 44, 3), 90 * k, np.uint8), 0.08 * k)
    last = policy.last_decision()
    as_it_is, hidden = (EffectMeter(policy.network, back, 0.0).measure(last).base for back in ((), (3,)))
    np.testing.assert_array_equal(as_it_is, hidden)


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
    assert [
        bar["name"] for bar in Effects(parts, scores, np.stack([scores, weaker]), actions).explain(NAMES)["bars"]
    ] == ["top left of the picture"], "what has no effect is shown as no reason"
    none = Effects((), np.array([0.3, -0.2], np.float32), np.zeros((0, 2), np.float32), ())
    assert none.sentence().startswith("It steers right 0.30, brake 0.20. Nothing alone")
    assert action_names("carracing") == NAMES


def test_parts_that_an_explanation_ranks_alike_go_in_a_drawn_order() -> None:
    regions = [("region", i) for i in range(12)]
    orders = {tuple(by_score(regions, [0.0] * 11 + [1.0], decision)) for decision in range(20)}
    assert len(orders) == 20 and all(order[0] == ("region", 11) for order in orders)
    assert all(sorted(order) == regions for order in orders)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "model", sorted((shipped("agents") / "carracing").glob("nac_*.pt")), ids=lambda path: path.stem
)
def test_a_thousand_sentences_are_true(model: Path) -> None:
    policy = load_policy(model)
    for effects, frames, times in decisions(policy, 1000):
        assert lie_of(effects.explain(NAMES)["sentence"], effects, ByHand(policy, frames, times), NAMES) == ""
