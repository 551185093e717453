"""What the tour of the neurons claims is so, of both kinds of circuit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nacdrive.web import LiveServer
from tests.helpers.small_policies import small_policy, smooth_frames
from tests.helpers.ticks import CHOICES, CIRCUIT, make_tick
from tests.web.test_page import shows, text


def softmax(scores: Any) -> Any:
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    "kind",
    [
        "nac-exact-choices", "nac-euler-steers", "nac-steady-steers",
        "nac-key-exact-steers", "nac-key-euler-steers", "nac-key-steady-steers",
    ],
)  # fmt: skip
def test_the_numbers_are_what_the_tour_says_of_them(kind: str) -> None:
    policy = small_policy(kind)
    for frame, t_s in zip(*smooth_frames(policy, 8), strict=True):
        policy.step(frame, float(t_s))
    n, circuit = policy.neurons(), policy.circuit()
    assert circuit is not None
    order = list(circuit["groups"])
    assert order == ["sensory", "inter", "command", "motor"]
    assert all(order.index(edge[0]) <= order.index(edge[2]) for edge in circuit["edges"]), "from left to right"
    heads = len(n["phi"])
    np.testing.assert_allclose(n["weights"], softmax(n["logits"]), atol=1e-6)
    if "rho" not in n:
        assert circuit["groups"]["motor"] == 2 and circuit["groups"]["sensory"] == n["q"].shape[-1] + n["k"].shape[-1]
        assert np.ptp(n["inter"], axis=0).max() > 0.01, "active in another way in each head"
        reached = n["logits"] / (n["phi"] / n["omega"])
        assert ((reached > 0) & (reached <= 1 + 1e-6)).all()
        if "exact" in kind:
            np.testing.assert_allclose(reached, 1 - np.exp(-n["omega"] * n["t"]), atol=1e-4)
        return
    assert circuit["groups"]["motor"] == 3 * heads and [name[:3] for name in circuit["motors"]].count("rho") == heads
    assert np.ptp(n["inter"], axis=0).max() == 0 and np.ptp(n["phi"], axis=0).max() > 0, "only motors are a head's own"
    late = n["omega"] * n["t"] > 12
    np.testing.assert_allclose(n["a"][late], n["phi"][late], atol=1e-3)


@pytest.mark.parametrize(("circuit", "claim"), [(CIRCUIT, "query and key"), (None, "what is remembered of a frame")])
def test_choosing_another_head_changes_only_what_is_below(
    open_page: Callable[..., Any], circuit: Any, claim: str
) -> None:
    circuit = circuit or {**CIRCUIT, "groups": {**CIRCUIT["groups"], "motor": 12}}
    with LiveServer(port=0, title="road", circuit=circuit, choices=CHOICES) as server:
        page = open_page(server.url)
        server.publish(make_tick(7))
        shows(page, make_tick(7))
        page.click("#show-neurons")
        above = "['#verb', '#choices', '#why'].map((where) => document.querySelector(where).textContent).join()"
        below = "[document.getElementById('equation').textContent, document.getElementById('circuit').toDataURL()]"
        kept, changed = page.evaluate(above), page.evaluate(below)
        page.click("#heads button:nth-of-type(2)")
        page.wait_for_timeout(200)
        assert page.evaluate(above) == kept
        assert all(new != old for new, old in zip(page.evaluate(below), changed, strict=True))
        page.click("#neuron-tour")
        page.click(".tour .main")
        assert claim in text(page, ".tour p")
