from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.drivers.tick import Tick
from nacdrive.envs.carracing.env import to_action
from nacdrive.viz.overlay import (
    ACCENT,
    ALERT,
    DIM,
    EXPERT,
    GROUND,
    HEIGHT,
    TEXT,
    TRACK,
    WIDTH,
    FrameOverlay,
    fitted,
    font,
    probabilities,
)
from nacdrive.viz.video import ffmpeg, ffmpeg_version, video


def tick(step: int, done: bool = False, **more: object) -> Tick:
    frame = np.zeros((96, 96, 3), np.uint8)
    frame[:, : 4 * step + 4] = (200, 30, 30)
    logits = np.array([0, 1, 2, 3, 4], np.float32)
    return Tick(0, 4_000_000, step, 0.08 * step, frame, to_action(1, logits), done=done, **more)  # type: ignore[arg-type]


def test_the_last_picture_stays_where_a_decision_was_made_before_the_next_one_came() -> None:
    painter, left = FrameOverlay("t"), np.s_[HEIGHT // 4 : HEIGHT // 2, : HEIGHT // 2]
    seen = [picture(painter, tick(k, between_frames=k == 1))[left] for k in range(3)]
    assert np.array_equal(seen[0], seen[1]) and not np.array_equal(seen[1], seen[2])


def test_a_video_holds_every_decision_and_lingers_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "a.mp4"
    with video(target, "title", 12.5) as film:
        for k in range(10):
            film(tick(k, done=k == 9))
    reader = cv2.VideoCapture(str(target))
    frames = []
    while (read := reader.read())[0]:
        frames.append(read[1])
    assert len(frames) == 10 + 12 and frames[0].shape == (HEIGHT, WIDTH, 3)
    assert reader.get(cv2.CAP_PROP_FPS) == pytest.approx(12.5)
    red = [frame[240, :HEIGHT:20, 2].mean() for frame in frames[:10]]
    assert np.all(np.diff(red) > 0), "the pictures come in order"
    assert [path.name for path in target.parent.iterdir()] == ["a.mp4"]


@pytest.mark.parametrize("rate", [5.0, 10.0, 25.0, 47.0, 60.0])
def test_a_film_runs_in_real_time_whatever_the_rate_of_its_decisions(rate: float, tmp_path: Path) -> None:
    target, count = tmp_path / "a.mp4", int(2 * rate) + 1
    with video(target, "title", 25.0) as film:
        for drive in range(2):  # of the same number too: a person starts over
            for k in range(count):
                film(replace(tick(k, done=k == count - 1 and drive == 1), t_s=3 + k / rate))
    frames = cv2.VideoCapture(str(target)).get(cv2.CAP_PROP_FRAME_COUNT)
    assert frames == pytest.approx(2 * (2 * 25 + 1) + 25, abs=1)


def test_a_picture_stands_from_its_decision_to_the_next(tmp_path: Path) -> None:
    target = tmp_path / "a.mp4"
    with video(target, "title", 10.0) as film:
        for k, t_s in enumerate((0.0, 0.3, 0.34, 1.0)):
            film(replace(tick(k + 1), t_s=t_s))
    reader, red = cv2.VideoCapture(str(target)), []
    while (read := reader.read())[0]:
        red.append(round(float(read[1][240, :HEIGHT, 2].mean())))
    first, second, last = red[0], red[3], red[-1]
    assert first < second < last and red == [first] * 3 + [second] * 7 + [last]


def test_browsers_can_play_it_from_the_first_byte(tmp_path: Path) -> None:
    target = tmp_path / "a.mp4"
    with video(target, "title", 25) as film:
        film(tick(0, done=True))
    content = target.read_bytes()
    assert content.index(b"moov") < content.index(b"mdat"), "faststart: the index comes first"
    said = subprocess.run([ffmpeg(), "-hide_banner", "-i", str(target)], capture_output=True, text=True).stderr
    assert "h264" in said and "yuv420p" in said


def test_ctrl_c_keeps_what_was_filmed(tmp_path: Path) -> None:
    target = tmp_path / "a.mp4"
    with pytest.raises(KeyboardInterrupt), video(target, "title", 12.5) as film:
        for k in range(5):
            film(tick(k))
        raise KeyboardInterrupt
    assert int(cv2.VideoCapture(str(target)).get(cv2.CAP_PROP_FRAME_COUNT)) == 5


def test_an_error_leaves_no_half_video(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(b"the one before")
    with pytest.raises(RuntimeError), video(tmp_path / "a.mp4", "title", 12.5) as film:
        film(tick(0))
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]
    assert (tmp_path / "a.mp4").read_bytes() == b"the one before"


def test_ffmpeg_that_fails_is_reported_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nacdrive.viz.video.ENCODING", "-c:v no_such_codec -f mp4")
    with (
        pytest.raises(UserError, match=r"ffmpeg could not write .*a\.mp4"),
        video(tmp_path / "a.mp4", "t", 12.5) as film,
    ):
        for k in range(50):
            film(tick(k % 20))


def test_a_full_disk_is_named_and_not_what_ffmpeg_says_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = tmp_path / "fails"
    fails.write_text("#!/bin/sh\necho 'no header: No space left on device' >&2\necho Nothing >&2\nexit 1\n")
    fails.chmod(0o755)
    monkeypatch.setattr("nacdrive.viz.video.ffmpeg", lambda: str(fails))
    with (
        pytest.raises(UserError, match=r"^no space left on the disk while writing .*a\.mp4: free some, and film"),
        video(tmp_path / "a.mp4", "t", 12.5) as film,
    ):
        film(tick(0))
    assert list(tmp_path.iterdir()) == [fails]


def test_other_kinds_of_video_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"\.mp4"), video(tmp_path / "a.avi", "t", 12.5):
        pass


def test_ffmpeg_is_there_with_h264() -> None:
    assert ffmpeg_version()


def test_pictures_bear_what_is_not_a_number() -> None:
    painter = FrameOverlay("a title that is far too long for the panel it stands in, so that it must be cut")
    broken = Action(float("nan"), 0, 0, 4, np.full(5, np.nan, np.float32))
    ticks = [
        tick(0, expert=to_action(2), events=("started",), speed_mps=3.0),
        Tick(0, 1, 1, 0.08, np.zeros((120, 160, 3), np.uint8), broken, events=("safety stop: " + "x" * 400,)),
        Tick(0, 1, 2, 0.16, np.zeros((66, 200, 3), np.uint8), Action(0.2, 1, 0), episode_return=-200, done=True),
    ]
    assert {len(painter.paint(item)) for item in ticks} == {HEIGHT * WIDTH * 3}


def test_a_film_shows_the_names_of_the_environments_own_actions_and_its_own_returns() -> None:
    def painted(choice: int, names: tuple[str, ...], total: float = 0.0) -> np.ndarray:
        painter = FrameOverlay("t", actions=names)
        for step in (0, 1):
            action = Action(0.0, 0.0, 0.0, choice)
            shown = painter.paint(Tick(0, 1, step, 0.1, np.zeros((9, 9, 3), np.uint8), action, episode_return=total))
        return np.frombuffer(shown, np.uint8).reshape(HEIGHT, WIDTH, 3)

    names = ("coast", "go", "stop", "turn")
    assert (painted(3, names) != painted(3, ("coast", "go", "stop", "spin"))).any()
    assert (painted(11, tuple(f"gear {k}" for k in range(12)))[:, HEIGHT:] != painted(3, names)[:, HEIGHT:]).any()
    rows = np.nonzero((painted(0, names, total=2.0)[380:436, HEIGHT + 24 :] == (92, 200, 255)).all(axis=2))[0]
    assert rows.min() <= 6, "a return of 2 is high where it is the highest so far"


def test_probabilities_are_a_softmax() -> None:
    shares = probabilities(np.array([1000, 1000, -np.inf, np.nan, 0], np.float32))
    assert shares == pytest.approx([0.5, 0.5, 0, 0, 0])
    assert not probabilities(np.full(5, np.nan, np.float32)).any()
    assert json.dumps(list(shares))


def test_a_film_of_continuous_driving_keeps_the_pictures_shape_and_shows_the_pedals() -> None:
    white = np.full((160, 320, 3), 255, np.uint8)

    def painted(action: Action) -> np.ndarray:
        seen = Tick(0, 1, 0, 0.0, white, action)
        return np.frombuffer(FrameOverlay("t").paint(seen), np.uint8).reshape(HEIGHT, WIDTH, 3)

    idle, full = painted(Action(0.0, 0.0, 0.0)), painted(Action(0.0, 1.0, 0.0))
    lit = (idle[:, : HEIGHT - 1] == 255).all(axis=(1, 2))
    assert lit.sum() == pytest.approx(HEIGHT / 2, abs=2), "twice as wide as high"
    assert (idle[:, HEIGHT:] != full[:, HEIGHT:]).any(), "the throttle is shown"


def picture(painter: FrameOverlay, shown: Tick) -> np.ndarray:
    return np.frombuffer(painter.paint(shown), np.uint8).reshape(HEIGHT, WIDTH, 3)


def box(shown: np.ndarray, colour: tuple[int, int, int], within: tuple[slice, slice]) -> tuple[int, int, int, int]:
    """First and last row, first and last column of a colour in a part of a picture."""
    rows, columns = np.nonzero((shown[within] == colour).all(axis=2))
    top, left = within[0].start or 0, within[1].start or 0
    return int(rows.min()) + top, int(rows.max()) + top, int(columns.min()) + left, int(columns.max()) + left


BLACK = np.zeros((96, 96, 3), np.uint8)


def test_the_wheel_is_a_bar_from_the_middle_to_its_side() -> None:
    bar = np.s_[160:195, :]
    for steering, ends in ((0.5, (672, 756)), (-0.5, (588, 672)), (7.0, (672, 840)), (float("nan"), (672, 672))):
        shown = picture(FrameOverlay("t"), Tick(0, 1, 0, 0.0, BLACK, Action(steering, 0.0, 0.0)))
        # The mark of the middle is painted over the bar, and goes beyond it above and below.
        assert box(shown, TEXT, (slice(165, 195), slice(660, 684))) == (169, 189, 672, 672)
        if ends[0] != ends[1]:
            first, last = (ends[0] + (ends[0] == 672), ends[1] - (ends[1] == 672))
            assert box(shown, ACCENT, bar) == (172, 186, first, last)
        track = (shown[160:195] == TRACK).all(axis=2) | (shown[160:195] == ACCENT).all(axis=2)
        assert set(np.nonzero(track)[0] + 160) == set(range(172, 187))
        assert set(np.nonzero(track)[1]) == set(range(504, 841)) - {672}


def test_each_choice_has_a_bar_as_long_as_it_is_sure_and_the_experts_has_a_mark() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.2, 1e-9, 1e-9], np.float32))
    seen = Tick(0, 1, 0, 0.0, BLACK, Action(0.0, 0.0, 0.0, 0, logits), expert=Action(0.0, 0.0, 0.0, 2))
    shown = picture(FrameOverlay("t", actions=tuple("abcde")), seen)
    bars = np.s_[208:350, 580:795]
    assert box(shown, ACCENT, bars) == (212, 224, 580, 687), "half of the room, of the chosen one"
    for row, last in ((1, 644), (2, 623)):
        part = (slice(208 + 28 * row, 236 + 28 * row), slice(580, 795))
        assert box(shown, DIM, part) == (212 + 28 * row, 224 + 28 * row, 580, last)
    for row in (3, 4):
        part = (slice(208 + 28 * row, 236 + 28 * row), slice(580, 795))
        assert box(shown, TRACK, part) == (212 + 28 * row, 224 + 28 * row, 580, 794), "one that is not thought of"
    assert box(shown, EXPERT, np.s_[208:340, 560:580]) == (267, 281, 573, 577)
    assert box(shown, EXPERT, np.s_[345:380, 480:520]) == (354, 368, 504, 508), "the legend has the same mark"


def test_of_more_than_ten_actions_the_likeliest_are_shown_below_each_other() -> None:
    logits = np.linspace(0, 1, 12).astype(np.float32)
    action = Action(0.0, 0.0, 0.0, 0, logits)
    written = texts(FrameOverlay("t", actions=[f"gear {k}" for k in range(12)]), Tick(0, 1, 0, 0.0, BLACK, action))
    rows = [(text, y) for text, (x, y), _, size in written if text.startswith("gear")]
    assert rows == [("gear 0", 208), *((f"gear {k}", 208 + 14 * (12 - k)) for k in range(11, 2, -1))]
    ten = texts(FrameOverlay("t"), Tick(0, 1, 0, 0.0, BLACK, Action(0.0, 0.0, 0.0, 1, logits[:10])))
    assert [text for text, *_ in ten if text.startswith("action")] == [f"action {k}" for k in range(10)]


def texts(painter: FrameOverlay, shown: Tick) -> list[tuple[str, tuple[float, float], tuple[int, int, int], int]]:
    """What is written on a picture: text, place, colour, size."""
    written: list[Any] = []
    write = ImageDraw.ImageDraw.text
    with pytest.MonkeyPatch.context() as patch:

        def note(self: Any, xy: Any, text: str, fill: Any, font: Any, **more: Any) -> None:
            written.append((text, xy, fill, font.size))
            write(self, xy, text, fill, font, **more)

        patch.setattr(ImageDraw.ImageDraw, "text", note)
        painter.paint(shown)
    return written


def test_a_picture_says_who_drives_where_how_fast_and_how_quickly_it_decided() -> None:
    action = Action(0.0, 0.254, 1.0)
    more: dict[str, Any] = {"speed_mps": 12.6, "episode_return": 41.6, "decision_ms": 3.14, "budget_ms": 80.0}
    seen = Tick(4, 701, 0, 2.04, BLACK, action, **more)
    assert texts(FrameOverlay("nac", "driven by ppo"), seen) == [
        ("nac", (504, 18), TEXT, 20),
        ("track 701, episode 5", (504, 46), DIM, 14),
        ("driven by ppo", (504, 128), EXPERT, 14),
        ("42", (504, 74), TEXT, 30), ("return", (504, 110), DIM, 14),
        ("2.0", (616, 74), TEXT, 30), ("seconds", (616, 110), DIM, 14),
        ("13", (728, 74), TEXT, 30), ("m/s", (728, 110), DIM, 14),
        ("left", (504, 150), DIM, 14), ("right", (840, 150), DIM, 14), ("steering", (672, 150), DIM, 14),
        ("throttle", (504, 208), DIM, 16), ("25%", (840, 208), DIM, 14),
        ("brake", (504, 236), DIM, 16), ("100%", (840, 236), DIM, 14),
        ("decided in 3.1 ms", (504, 446), DIM, 14),
    ]  # fmt: skip
    shown = picture(FrameOverlay("nac"), seen)
    assert box(shown, ACCENT, np.s_[205:262, 580:795]) == (212, 252, 580, 794)
    assert (shown[212:225, 634] == ACCENT).all() and (shown[212:225, 635] == TRACK).all()
    late = texts(FrameOverlay("nac"), replace(seen, decision_ms=90.0, speed_mps=None))
    assert late[-1] == ("decided in 90.0 ms", (504, 446), ALERT, 14)
    assert ("-", (728, 74), TEXT, 30) in late and not [text for text, *_ in late if "driven by" in text]


def test_an_event_stands_over_the_picture_for_a_second_and_a_half_of_the_drive() -> None:
    painter, colours = FrameOverlay("t"), {}
    events = {0: ("started",), 1: ("off road",), 30: ("lap finished",)}
    for step in range(32):
        seen = Tick(0, 1, step, 0.1 * step, BLACK, Action(0.0, 0.0, 0.0), events=events.get(step, ()))
        colours[step] = [(text, colour) for text, place, colour, size in texts(painter, seen) if place == (20, 20)]
    assert [step for step, what in colours.items() if what == [("off road", ALERT)]] == list(range(1, 17))
    assert [step for step, what in colours.items() if what == [("lap finished", TEXT)]] == [30, 31]
    assert sum(map(bool, colours.values())) == 18
    white = np.full((96, 96, 3), 255, np.uint8)
    shown = picture(FrameOverlay("t"), Tick(0, 1, 0, 0.0, white, Action(0.0, 0.0, 0.0), events=("off road",)))
    top, bottom, left, right = box(shown, GROUND, np.s_[0:100, 0:400])
    inner = box(shown, ALERT, np.s_[0:100, 0:400])
    assert left == 12 and 5 <= inner[0] - top <= 8 and 5 <= bottom - inner[1] <= 8 and 6 <= right - inner[3] <= 10
    again = texts(painter, Tick(1, 2, 0, 0.0, BLACK, Action(0.0, 0.0, 0.0)))
    assert not [text for text, place, *_ in again if place == (20, 20)], "a new episode has no event of the one before"


def test_the_curve_of_returns_runs_over_the_panel_from_the_lowest_to_the_highest() -> None:
    part = np.s_[370:445, 480:864]
    for count, last in ((126, 672), (251, 840), (501, 840)):
        painter = FrameOverlay("t")
        for step in range(count):
            value = 100.0 * step / (count - 1) - 20
            seen = Tick(0, 1, step, 0.1 * step, BLACK, Action(0.0, 0.0, 0.0), episode_return=value)
            painter._returns.append(value)
        painter._returns = painter._returns[: count - 1]
        shown = picture(painter, replace(seen, step=count))
        top, bottom, left, right = box(shown, ACCENT, part)
        assert (top, bottom, left) == pytest.approx((384, 434, 504), abs=1) and right == pytest.approx(last, abs=2)
        assert (shown[434, 830:840] == TRACK).all() or last == 840
    low = FrameOverlay("t", "by ppo")
    low.paint(replace(seen, step=0, episode_return=0.25))
    shown = picture(low, replace(seen, step=1, episode_return=0.25))
    assert box(shown, EXPERT, part)[0] == pytest.approx(434 - 50 / 4, abs=1), "a return of 1 has the whole height"


def test_a_picture_of_any_shape_stands_in_the_middle_of_its_square() -> None:
    for rows, columns in ((160, 320), (96, 96), (320, 160)):
        shown = picture(FrameOverlay("t"), Tick(0, 1, 0, 0.0, np.full((rows, columns, 3), 255, np.uint8),
                                                Action(0.0, 0.0, 0.0)))  # fmt: skip
        high, wide = 480 * rows // max(rows, columns), 480 * columns // max(rows, columns)
        square = np.s_[0:480, 0:480]
        assert box(shown, (255, 255, 255), square) == (
            240 - high // 2, 240 + high // 2 - 1, 240 - wide // 2, 240 + wide // 2 - 1
        )  # fmt: skip


@pytest.mark.parametrize(("text", "cut"), [("short", False), ("a title that is far too long for this", True)])
def test_a_text_that_is_too_wide_is_cut_as_little_as_possible(text: str, cut: bool) -> None:
    draw = ImageDraw.Draw(Image.new("RGB", (9, 9)))
    shown = fitted(draw, text, 20, 150)
    assert (shown != text) == cut
    if cut:
        kept = shown.removesuffix("…")
        assert text.startswith(kept) and draw.textlength(shown, font(20)) <= 150
        assert draw.textlength(text[: len(kept) + 1] + "…", font(20)) > 150
    exact = draw.textlength(text, font(20))
    assert fitted(draw, text, 20, int(np.ceil(exact))) == text and fitted(draw, "wide", 20, 1) == "…"
