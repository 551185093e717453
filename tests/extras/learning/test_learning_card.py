"""The card of a training: its stage and curve, and recorded laps in the lane of the page."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from nacdrive.extras.learning.card import SHOW_EVERY_S, LearningCard
from nacdrive.training.fit import FitUpdate, Progress
from nacdrive.web import Card, LiveServer
from nacdrive.web.stream import Row, Seen
from tests.helpers.episodes import make_episode
from tests.helpers.ticks import make_tick
from tests.web.test_page import until

# Whether the curve has the colour that the policy's lines have in the theme of now.
POLICY_LINE = """() => {
  const c = document.querySelector(".learning canvas");
  if (!c) return false;
  const colour = getComputedStyle(document.documentElement).getPropertyValue("--policy");
  const wanted = [...colour.match(/\\w\\w/g).map((v) => parseInt(v, 16)), 255].join();
  const data = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
  for (let i = 0; i < data.length; i += 4) if (data.slice(i, i + 4).join() === wanted) return true;
  return false;
}"""


def test_a_page_is_told_of_the_stage_each_epoch_and_of_the_laps() -> None:
    card = LearningCard()
    server = LiveServer(port=0, cards=[card])
    try:
        card.stage("it learns")
        for epoch, loss in ((0, 2.0), (0, 1.5), (1, 1.0), (1, float("nan"))):
            card.step(FitUpdate(Progress(round=0, epoch=epoch), steps=2, epochs=2, train_loss=loss))
        card.stage("it practises")
        snapshot = server._state.wait_for_new(Seen(), 150)
        assert snapshot is not None and snapshot.about is not None
        assert snapshot.about["learning"] == {"stage": "it practises", "losses": [[0, 1.5], [0, 1.0]]}
        # It has waited in vain for a lap by now.
        time.sleep(1.5 * SHOW_EVERY_S)
        card.lap(make_episode(7, steps=3))
        rows: list[Row] = []
        while len(rows) < 3:
            snapshot = server._state.wait_for_new(snapshot.seen, 150)
            assert snapshot is not None
            rows += snapshot.lanes[0].rows
        assert [(row[3], row[4]) for row in rows] == [(1, 7)] * 3
    finally:
        server.stop()


def test_the_curve_of_a_training_that_is_over_goes_with_the_theme(open_page: Callable[..., Any]) -> None:
    with LiveServer(port=0, cards=[Card("learning")]) as server:
        page = open_page(server.url)
        server.set(learning={"stage": "learnt", "losses": [[0, 1.0], [0, 0.5], [0, 0.2]]})
        server.publish(make_tick(0))
        until(page, f"({POLICY_LINE})()")
        page.keyboard.press("t")
        until(page, f"({POLICY_LINE})()")
        page.keyboard.press("t")


def test_without_a_page_nothing_is_kept() -> None:
    card = LearningCard()
    card.stage("it learns")
    card.lap(make_episode(7))
    assert card._laps.empty()
