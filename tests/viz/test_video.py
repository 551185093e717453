from __future__ import annotations

import json
import subprocess
from pathlib import Path

import cv2
import numpy as np
import pytest

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.drivers.tick import Tick
from nacdrive.envs.carracing.env import to_action
from nacdrive.viz.overlay import HEIGHT, WIDTH, FrameOverlay, probabilities
from nacdrive.viz.video import ffmpeg, ffmpeg_version, video


def tick(step: int, done: bool = False, **more: object) -> Tick:
    frame = np.zeros((96, 96, 3), np.uint8)
    frame[:, : 4 * step + 4] = (200, 30, 30)
    logits = np.array([0, 1, 2, 3, 4], np.float32)
    return Tick(0, 4_000_000, step, 0.08 * step, frame, to_action(1, logits), done=done, **more)  # type: ignore[arg-type]


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
