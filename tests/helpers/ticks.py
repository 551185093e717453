"""Ticks as a drive makes them: a road that bends, a policy with a circuit, an expert beside it."""

from __future__ import annotations

import numpy as np

from nacdrive.common.action import Action
from nacdrive.drivers.tick import Tick

CHOICES = ("nothing", "right", "left", "gas", "brake")
STEP_S = 0.05
HEADS, WINDOW, CHOSEN, INTER, COMMAND = 4, 16, 8, 30, 20
CIRCUIT = {
    "groups": {"sensory": 8, "inter": INTER, "command": COMMAND, "motor": 2},
    "motors": ["phi", "omega"],
    "edges": [["sensory", i % 8, "inter", i, 1] for i in range(INTER)]
    + [["inter", i, "command", i % COMMAND, -1] for i in range(INTER)]
    + [["command", i, "motor", i % 2, 1] for i in range(COMMAND)],
}


WHY = {
    "sentence": "It steers left. Without the upper left of the picture it would accelerate: left 94 → 6 %.",
    "bars": [
        {"kind": kind, "index": i, "name": name, "change": change, "text": f"left 94 → {rest} %", "decides": rest < 50}
        for kind, i, name, change, rest in (
            ("region", 3, "upper left of the picture", 0.88, 6),
            ("head", 2, "head 3", 0.63, 31),
            ("frame", 1, "frame of 0.05 s ago", 0.01, 93),
        )
    ],
    "head": 2,
    "missing": "",
}


def steering_at(step: int) -> float:
    return round(float(np.sin(step / 9)), 4)


def road(step: int) -> np.ndarray:
    frame = np.full((96, 96, 3), (104, 204, 92), dtype=np.uint8)
    rows = np.arange(96)
    centre = 48 + 25 * steering_at(step) * ((96 - rows) / 96) ** 2
    frame[np.abs(np.arange(96)[None, :] - centre[:, None]) < 10] = (107, 107, 107)
    return frame


def neurons(step: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(step)

    def draw(*shape: int) -> np.ndarray:
        return rng.uniform(-1, 1, shape).astype(np.float32)

    keys = np.stack([rng.permutation(WINDOW)[:CHOSEN] for _ in range(HEADS)]).astype(np.float32)
    logits = draw(HEADS, CHOSEN)
    raised = np.exp(logits)
    return {
        "q": draw(HEADS, 4),
        "k": draw(HEADS, WINDOW, 4),
        "v": draw(HEADS, WINDOW, 4),
        "keys": keys,
        "inter": draw(HEADS, CHOSEN, INTER),
        "command": draw(HEADS, CHOSEN, COMMAND),
        "phi": np.abs(draw(HEADS, CHOSEN)),
        "omega": 1 + draw(HEADS, CHOSEN) / 2,
        "t": np.abs(draw(HEADS, CHOSEN)),
        "logits": logits,
        "weights": raised / raised.sum(1, keepdims=True),
        "frame_t_s": (np.arange(step - WINDOW + 1, step + 1) * STEP_S).astype(np.float32),
    }


def make_tick(step: int, *, episode: int = 0, circuit: bool = True, saliency: bool = True, **more: object) -> Tick:
    steering = steering_at(step)
    choice = 2 if steering < -0.3 else 1 if steering > 0.3 else 3
    scores = np.eye(5, dtype=np.float32)[choice] * 2
    looked = np.exp(-(((np.mgrid[:96, :96] - 48) / 18) ** 2).sum(0)).astype(np.float32) if saliency else None
    values = {
        "episode": episode,
        "seed": 700 + episode,
        "step": step,
        "t_s": step * STEP_S,
        "frame": road(step),
        "action": Action(steering, 0.25, 0.0, choice, scores),
        "reward": 1.0,
        "episode_return": step + 1.0,
        "speed_mps": 20.0 + steering,
        "decision_ms": 4.0 + step % 7,
        "budget_ms": 50.0,
        "expert": Action(steering_at(step + 1), 0.25, 0.0, choice, scores),
        "neurons": neurons(step) if circuit else {},
        "why": WHY if circuit else None,
        "saliency": looked,
        "events": ("started",) if step == 0 else (),
    }
    return Tick(**{**values, **more})
