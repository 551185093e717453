"""One picture of a video: the policy's frame at left, what it decided and how far it got at right."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from nacdrive.drivers.tick import Tick
from nacdrive.models.effects import softmax

WIDTH, HEIGHT = 864, 480
PANEL_X = HEIGHT + 24
PANEL_W = WIDTH - PANEL_X - 24
BAR_LEFT, BAR_RIGHT = PANEL_X + 76, PANEL_X + PANEL_W - 46
ROW, ROWS_HIGH, MOST_ROWS = 28, 140, 10
"""Pixels from one action to the next and of all of them, and how many are shown at most."""
EVENT_S = 1.5
"""An event stays readable for so long, in simulated seconds."""

Colour = tuple[int, int, int]
GROUND: Colour = (17, 20, 24)
TRACK: Colour = (44, 50, 58)
TEXT: Colour = (232, 236, 240)
DIM: Colour = (148, 157, 168)
ACCENT: Colour = (92, 200, 255)
EXPERT: Colour = (255, 184, 77)
ALERT: Colour = (255, 107, 107)
font = cache(ImageFont.load_default)
"""Pillow's own outline font by its size, so that no system font is needed."""


def probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Softmax of ``logits``; what is not finite counts as nothing."""
    finite = np.where(np.isfinite(logits), logits, -np.inf).astype(np.float64)
    return softmax(finite) if np.isfinite(finite).any() else np.zeros(len(finite))


class FrameOverlay:
    """Paints Ticks; remembers the returns and the last event of the episode it paints.

    Args:
        title: Over the panel.
        caption: Who drove, where the decisions shown are those of a policy that only looked on.
        actions: Names of the environment's discrete actions.
    """

    def __init__(self, title: str, caption: str = "", actions: Sequence[str] = ()) -> None:
        self.title, self.caption, self.actions = title, caption, tuple(actions)
        self._returns: list[float] = []
        self._shown: Image.Image | None = None
        self._event, self._event_until = "", 0.0

    def paint(self, tick: Tick) -> bytes:
        """RGB bytes of one picture, ``HEIGHT`` x ``WIDTH`` x 3."""
        if tick.step == 0:
            self._returns, self._event = [], ""
        self._returns.append(tick.episode_return)
        canvas = Image.new("RGB", (WIDTH, HEIGHT), GROUND)
        # Nearest: the viewer is to see the very pixels that the policy saw.
        rows, columns = tick.frame.shape[:2]
        scale = HEIGHT / max(rows, columns)
        size = (round(columns * scale), round(rows * scale))
        if self._shown is None or not tick.between_frames:
            self._shown = Image.fromarray(cv2.resize(tick.frame, size, interpolation=cv2.INTER_NEAREST))
        canvas.paste(self._shown, ((HEIGHT - size[0]) // 2, (HEIGHT - size[1]) // 2))
        draw = ImageDraw.Draw(canvas)
        self._heading(draw, tick)
        self._steering(draw, tick, 150)
        if tick.action.choice is None:
            self._pedals(draw, tick, 208)
        else:
            self._choices(draw, tick, 208)
        self._curve(draw, tick, 384, HEIGHT - 46)
        self._footer(draw, tick)
        return canvas.tobytes()

    def _heading(self, draw: ImageDraw.ImageDraw, tick: Tick) -> None:
        draw.text((PANEL_X, 18), fitted(draw, self.title, 20, PANEL_W), TEXT, font(20))
        draw.text((PANEL_X, 46), f"track {tick.seed}, episode {tick.episode + 1}", DIM, font(14))
        speed = "-" if tick.speed_mps is None else f"{tick.speed_mps:.0f}"
        # What came of somebody else's driving does not stand under the name of a policy that only looked on.
        if self.caption:
            draw.text((PANEL_X, 128), fitted(draw, self.caption, 14, PANEL_W), EXPERT, font(14))
        cells = ((f"{tick.episode_return:.0f}", "return"), (f"{tick.t_s:.1f}", "seconds"), (speed, "m/s"))
        for k, (value, name) in enumerate(cells):
            x = PANEL_X + k * PANEL_W // 3
            draw.text((x, 74), value, TEXT, font(30))
            draw.text((x, 110), name, DIM, font(14))

    def _steering(self, draw: ImageDraw.ImageDraw, tick: Tick, y: int) -> None:
        middle, half = PANEL_X + PANEL_W // 2, PANEL_W // 2
        draw.text((PANEL_X, y), "left", DIM, font(14))
        draw.text((PANEL_X + PANEL_W, y), "right", DIM, font(14), anchor="ra")
        draw.text((middle, y), "steering", DIM, font(14), anchor="ma")
        bar = y + 22
        draw.rectangle((PANEL_X, bar, PANEL_X + PANEL_W, bar + 14), TRACK)
        end = middle + round(float(np.clip(np.nan_to_num(tick.action.steering), -1, 1)) * half)
        draw.rectangle((min(middle, end), bar, max(middle, end), bar + 14), ACCENT)
        draw.line((middle, bar - 3, middle, bar + 17), TEXT)

    def _pedals(self, draw: ImageDraw.ImageDraw, tick: Tick, y: int) -> None:
        for k, (name, value) in enumerate((("throttle", tick.action.throttle), ("brake", tick.action.brake))):
            top, share = y + 28 * k, float(np.clip(np.nan_to_num(value), 0, 1))
            draw.text((PANEL_X, top), name, DIM, font(16))
            share_bar(draw, top, share, ACCENT)
            draw.text((PANEL_X + PANEL_W, top), f"{share:.0%}", DIM, font(14), anchor="ra")

    def _choices(self, draw: ImageDraw.ImageDraw, tick: Tick, y: int) -> None:
        logits, choice = tick.action.logits, tick.action.choice
        count = max(len(self.actions), 0 if logits is None else len(logits), (choice or 0) + 1)
        names = self.actions or tuple(f"action {k}" for k in range(count))
        shares = probabilities(logits) if logits is not None and len(logits) == len(names) else None
        shown = list(range(len(names)))
        if len(shown) > MOST_ROWS:
            shown = sorted(shown, key=lambda k: (k != choice, 0.0 if shares is None else -shares[k]))[:MOST_ROWS]
        for row, k in enumerate(shown):
            top = y + min(ROW, ROWS_HIGH // len(shown)) * row
            chosen = choice == k
            draw.text((PANEL_X, top), fitted(draw, names[k], 16, 72), TEXT if chosen else DIM, font(16))
            share = float(shares[k]) if shares is not None else float(chosen)
            share_bar(draw, top, share, ACCENT if chosen else DIM)
            if tick.expert is not None and tick.expert.choice == k:
                draw.rectangle((BAR_LEFT - 7, top + 3, BAR_LEFT - 3, top + 17), EXPERT)
            if shares is not None:
                draw.text((PANEL_X + PANEL_W, top), f"{share:.0%}", DIM, font(14), anchor="ra")
        if tick.expert is not None:
            draw.rectangle((PANEL_X, y + 146, PANEL_X + 4, y + 160), EXPERT)
            draw.text((PANEL_X + 12, y + 144), "the expert's choice", DIM, font(14))

    def _curve(self, draw: ImageDraw.ImageDraw, tick: Tick, top: int, bottom: int) -> None:
        """The return so far, from its lowest to its highest value."""
        high = max(1.0, *self._returns)
        low = min(0.0, *self._returns)
        draw.line((PANEL_X, bottom, PANEL_X + PANEL_W, bottom), TRACK)
        per_step = PANEL_W / max(250, len(self._returns))
        points = [
            (PANEL_X + k * per_step, bottom - (value - low) / (high - low) * (bottom - top))
            for k, value in enumerate(self._returns)
        ]
        if len(points) > 1:
            draw.line(points, EXPERT if self.caption else ACCENT, 2, joint="curve")

    def _footer(self, draw: ImageDraw.ImageDraw, tick: Tick) -> None:
        y = HEIGHT - 34
        draw.text((PANEL_X, y), f"decided in {tick.decision_ms:.1f} ms", ALERT if tick.is_late else DIM, font(14))
        for event in tick.events:
            if event != "started":
                self._event, self._event_until = event, tick.t_s + EVENT_S
        if self._event and tick.t_s <= self._event_until:
            colour = ALERT if self._event != "lap finished" else TEXT
            text = fitted(draw, self._event, 16, HEIGHT - 40)
            box = draw.textbbox((20, 20), text, font(16))
            draw.rectangle((box[0] - 8, box[1] - 6, box[2] + 8, box[3] + 6), GROUND)
            draw.text((20, 20), text, colour, font(16))


def share_bar(draw: ImageDraw.ImageDraw, top: int, share: float, colour: Colour) -> None:
    """A bar of which ``share`` is filled."""
    draw.rectangle((BAR_LEFT, top + 4, BAR_RIGHT, top + 16), TRACK)
    if share > 0.005:
        draw.rectangle((BAR_LEFT, top + 4, BAR_LEFT + round(share * (BAR_RIGHT - BAR_LEFT)), top + 16), colour)


def fitted(draw: ImageDraw.ImageDraw, text: str, size: int, width: int) -> str:
    """``text``, cut with an ellipsis where it is wider than ``width`` pixels."""
    if draw.textlength(text, font(size)) <= width:
        return text
    while text and draw.textlength(text + "…", font(size)) > width:
        text = text[:-1]
    return text + "…"
