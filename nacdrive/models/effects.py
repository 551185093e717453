"""Why a policy decides so, measured: what muting each part of it alone does to one decision.

Parts are the heads of its attention, the frames that it remembers, regions of the present picture (painted grey), and
the time since the last frame (set to the usual one). ``server/www/js/effects.js`` does the same for pages whose network
runs in the browser; a test compares the two.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.models.config import PolicyConfig

if TYPE_CHECKING:
    from torch import Tensor

    from nacdrive.models.driving import DrivingNetwork

ROWS, COLUMNS = ("top", "upper", "lower", "bottom"), ("left", "middle", "right")
GREY = 128
OTHERWISE = 0.1
"""Change of the wheel or the pedal from which on a decision by degrees counts as another one."""
SHOWN = 12
"""Bars, the longest of all."""
NO_HEADS = "This policy has no heads that could be muted alone."
NO_HEADS_EXPORTED = "An exported policy shows no heads: its frames, the picture and the time alone are muted."
TURN = 0.05


@dataclass(frozen=True)
class Part:
    """Something of a decision that can be muted alone."""

    kind: str
    """``head``, ``frame``, ``region`` or ``time``."""
    index: int
    """Head from 0; decisions since the frame, from 1; region from 0, row by row; 0."""
    name: str
    muted: str = ""
    """How a sentence of it being muted begins, if not with that it is missing."""

    @property
    def noun(self) -> str:
        return self.name if self.kind == "head" else f"the {self.name}"

    @property
    def without(self) -> str:
        return self.muted or f"Without {self.noun}"


def frame_part(back: int, age_s: float) -> Part:
    """A remembered frame, ``back`` decisions ago."""
    return Part("frame", back, f"frame of {hundredths(age_s)} s ago")


def region_part(region: int) -> Part:
    """A region of the picture."""
    return Part("region", region, f"{ROWS[region // len(COLUMNS)]} {COLUMNS[region % len(COLUMNS)]} of the picture")


def time_part(usual_s: float) -> Part:
    """The time since the last frame."""
    return Part("time", 0, "time since the last frame", f"At the usual {hundredths(usual_s)} s since the last frame")


def region_boxes(config: PolicyConfig) -> list[tuple[slice, slice]]:
    """Rows and columns of each region of a frame: a grid over the rows that reach the network."""
    first, last = config.crop or (0, config.height)
    down = [first + (last - first) * i // len(ROWS) for i in range(len(ROWS) + 1)]
    across = [config.width * i // len(COLUMNS) for i in range(len(COLUMNS) + 1)]
    return [(slice(*rows), slice(*columns)) for rows, columns in product(pairwise(down), pairwise(across))]


def mute_regions(config: PolicyConfig, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[regions, height, width, 3]: the frame with each region painted grey."""
    boxes = region_boxes(config)
    painted = np.repeat(frame[np.newaxis], len(boxes), axis=0)
    for picture, box in zip(painted, boxes, strict=True):
        picture[box] = GREY
    return painted


@dataclass(frozen=True)
class Effects:
    """One decision as it is, and with each part muted alone."""

    parts: tuple[Part, ...]
    base: NDArray[np.float32]
    """[outputs]: scores of the actions, or steering and perhaps the pedal."""
    muted: NDArray[np.float32] = field(repr=False)
    """[parts, outputs]: the same with each part muted."""
    actions: tuple[tuple[float, float, float], ...]
    """Of a policy that chooses: steering, throttle and brake of each choice."""
    missing: str = ""
    """What cannot be muted, in a sentence."""

    def values(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Base and muted as people read them: probabilities of the choices, or wheel and pedal within -1 .. 1."""
        made = [np.asarray(x, np.float64) for x in (self.base, self.muted)]
        base, muted = [softmax(x) for x in made] if self.actions else [np.clip(x, -1, 1) for x in made]
        return base, muted.reshape(len(self.parts), len(base))

    @property
    def least_change(self) -> float:
        """Below it a part has no effect that could be read, and is shown as no reason."""
        return 0.01 if self.actions else 0.005

    def changes(self) -> NDArray[np.float64]:
        """[parts]: change of the probability of what was chosen, or the greatest of wheel and pedal."""
        base, muted = self.values()
        apart = np.abs(muted - base)
        return apart[:, int(base.argmax())] if self.actions else apart.max(axis=1)

    def decides(self) -> NDArray[np.bool_]:
        """[parts]: whether the decision is another one without the part."""
        base, muted = self.values()
        if self.actions:
            return np.asarray(muted.argmax(axis=1) != base.argmax())
        return np.asarray(np.abs(muted - base).max(axis=1) >= OTHERWISE)

    def order(self) -> list[int]:
        """Parts by the change that they make, the greatest first."""
        return [int(i) for i in np.argsort(-np.round(self.changes(), 4), kind="stable")]

    def explain(self, names: Sequence[str] = ()) -> dict[str, Any]:
        """What pages show, as plain JSON: ``sentence``, ``bars`` of what has an effect, the ``head`` that changes most,
        what is ``missing``; ``names`` are those of the choices.
        """
        changes, decides, order = self.changes(), self.decides(), self.order()
        bars = [
            {
                "kind": self.parts[i].kind,
                "index": self.parts[i].index,
                "name": self.parts[i].name,
                "change": round(float(changes[i]), 4),
                "text": self.movement(i, names),
                "decides": bool(decides[i]),
            }
            for i in [i for i in order if decides[i] or changes[i] >= self.least_change][:SHOWN]
        ]
        head = next((self.parts[i].index for i in order if self.parts[i].kind == "head"), None)
        return {"sentence": self.sentence(names), "bars": bars, "head": head, "missing": self.missing}

    def sentence(self, names: Sequence[str] = ()) -> str:
        """What it does, and without which part it would do something else."""
        base, muted = self.values()
        changes, decides = self.changes(), self.decides()
        does = f"It {self.verb(base)}."
        order = self.order()
        if (deciding := next((i for i in order if decides[i]), None)) is not None:
            part, move = self.parts[deciding], self.movement(deciding, names)
            does_so, *how = self.verb(muted[deciding]).split(" ")
            would = " ".join([does_so.removesuffix("s"), *how])
            return f"{does} {part.without} it would {would}{f': {move}' if self.actions else ''}."
        nothing = f"{does} Nothing alone changes this decision"
        if not order or changes[order[0]] < self.least_change:
            return f"{nothing}, not even by {'one point' if self.actions else '0.01'}."
        return f"{nothing}; what moves it most is {self.parts[order[0]].noun}: {self.movement(order[0], names)}."

    def verb(self, values: NDArray[np.float64]) -> str:
        """What a decision does, as "it ..." goes on."""
        if not self.actions:
            return f"steers {degrees(values)}"
        steering, throttle, brake = self.actions[int(values.argmax())]
        if brake > TURN and brake >= throttle:
            return "brakes"
        if abs(steering) > TURN:
            return "steers left" if steering < 0 else "steers right"
        return "accelerates" if throttle > TURN else "coasts"

    def movement(self, part: int, names: Sequence[str]) -> str:
        """From what to what muting a part moves the decision."""
        base, muted = self.values()
        if not self.actions:
            return f"{degrees(base)} → {degrees(muted[part])}"
        choice = int(base.argmax())
        name = names[choice] if choice < len(names) else f"choice {choice}"
        return f"{name} {percent(base[choice])} → {percent(muted[part, choice])} %"


def percent(share: float) -> int:
    """Rounded as the page rounds, halves up."""
    return math.floor(100 * share + 0.5)


def hundredths(value: float) -> str:
    """Two decimals, halves up."""
    return f"{percent(value) / 100:.2f}"


def degrees(values: NDArray[np.float64]) -> str:
    """Wheel and, where there is one, pedal in words."""
    words = (("left", "right", "straight on"), ("brake", "gas", "no pedal"))
    return ", ".join(signed(float(value), *sides) for value, sides in zip(values, words, strict=False))


def signed(value: float, below: str, above: str, neither: str) -> str:
    """A number with its side in a word."""
    return neither if not percent(abs(value)) else f"{below if value < 0 else above} {hundredths(abs(value))}"


def softmax(scores: NDArray[Any]) -> NDArray[Any]:
    """Along the last axis."""
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


class LastDecision(NamedTuple):
    """The last decision of a policy, for those who look into it."""

    frame: NDArray[np.uint8]
    """The frame it was made on, [height, width, 3]."""
    past: Tensor | None
    """Features of the frames before it, [T - 1, features]: those of the window, and the one before them, for the oldest
    may be judged by its gap to that; None where there are none."""
    times: NDArray[np.float64]
    """[T] times of these frames, in seconds."""
    scores: NDArray[np.float32]
    """What the head gave: a score per action, or the steering alone."""


class EffectMeter:
    """Mutes each part of a policy alone, all in one batch, on a copy of its network: a drive may go on meanwhile.

    The edits of a policy that is edited stay, and what they mute is no part any more.
    """

    def __init__(self, network: DrivingNetwork, hidden: Sequence[int], shift_s: float) -> None:
        self.config, self.hidden, self.shift_s = network.config, hidden, shift_s
        self.network = copy.deepcopy(network)
        self.nac: Any = getattr(self.network.sequence, "nac", None)
        self._merged: list[Tensor] = []
        if self.nac is not None:
            self.nac.out_proj.register_forward_pre_hook(lambda _, inputs: self._merged.append(inputs[0]))

    def measure(self, decision: LastDecision) -> Effects:
        import torch

        config, network = self.config, self.network
        with torch.inference_mode():
            painted = mute_regions(config, decision.frame)
            pictures = torch.from_numpy(np.concatenate([decision.frame[np.newaxis], painted]))
            newest = network.features(pictures.to(next(network.parameters()).device))
            window = torch.cat([newest[:0] if decision.past is None else decision.past, newest[:1]])
            steps, times = len(window), [float(t) for t in decision.times]
            backs = [back for back in range(1, min(config.window, steps)) if back not in self.hidden]
            parts = [frame_part(back, times[-1] - times[-1 - back]) for back in backs]
            parts += [region_part(i) for i in range(len(painted))]
            if steps > 1 and network.sequence.time_sense != "none":
                parts.append(time_part(config.gap_s))
            x = window.repeat(1 + len(parts), 1, 1)
            t = torch.tensor(times, dtype=torch.float64, device=x.device).repeat(len(x), 1)
            t[:, :-1] -= self.shift_s
            padding = torch.zeros(t.shape, dtype=torch.bool, device=x.device)
            padding[:, [steps - 1 - back for back in self.hidden if back < steps]] = True
            for row, part in enumerate(parts, 1):
                if part.kind == "frame":
                    padding[row, steps - 1 - part.index] = True
                elif part.kind == "region":
                    x[row, -1] = newest[1 + part.index]
                else:
                    t[row, -1] = t[row, -2] + config.gap_s
            self._merged.clear()
            y = network.sequence.last(x, t, padding if bool(padding.any()) else None)
            heads = self._without_heads(y[0])
            outputs = network.head(torch.cat([y, heads])).float().cpu().numpy()
            parts += [Part("head", head, f"head {head + 1}") for head in range(len(heads))]
        return Effects(tuple(parts), outputs[0], outputs[1:], config.actions, "" if len(heads) else NO_HEADS)

    def _without_heads(self, y: Tensor) -> Tensor:
        """[heads, d_model]: the sequence layer's output ``y`` less what each head adds to it."""
        if self.nac is None:
            return y.new_zeros(0, len(y))
        merged = self._merged[-1][0, -1].view(self.nac.num_heads, -1)
        return cast(
            "Tensor", y - (self.nac.out_proj.weight.view(len(y), self.nac.num_heads, -1) * merged).sum(dim=-1).T
        )


@dataclass(frozen=True)
class SteppedDecision:
    """A decision of a policy that is known by its steps alone."""

    frames: Sequence[NDArray[np.uint8]]
    """The window, oldest first."""
    times: Sequence[float]
    """When they were taken, in seconds."""
    state: Any
    """The memory before the newest of them."""
    action: Action


class StepMeter:
    """Mutes what can be muted of a policy from outside: it decides anew with other frames and times.

    ``step``: memory (None: an empty one), frame and time -> action, next memory.
    """

    def __init__(
        self, config: PolicyConfig, step: Callable[[Any, NDArray[np.uint8], float], tuple[Action, Any]]
    ) -> None:
        self.config, self.step = config, step

    def measure(self, decision: SteppedDecision) -> Effects:
        """The effects of all parts but the heads."""
        frames, times, config = decision.frames, decision.times, self.config
        parts: list[Part] = []
        actions = [decision.action]
        for back in range(1, len(frames)):
            parts.append(frame_part(back, times[-1] - times[-1 - back]))
            state, hidden = None, len(frames) - 1 - back
            for i in range(len(frames)):
                if i != hidden:
                    action, state = self.step(state, frames[i], times[i])
            actions.append(action)
        for region, picture in enumerate(mute_regions(config, frames[-1])):
            parts.append(region_part(region))
            actions.append(self.step(decision.state, picture, times[-1])[0])
        if len(frames) > 1:
            parts.append(time_part(config.gap_s))
            actions.append(self.step(decision.state, frames[-1], times[-2] + config.gap_s)[0])
        outputs = np.stack([outputs_of(action, config) for action in actions])
        return Effects(tuple(parts), outputs[0], outputs[1:], config.actions, NO_HEADS_EXPORTED)


def outputs_of(action: Action, config: PolicyConfig) -> NDArray[np.float32]:
    """[outputs] of the network that an action was made of."""
    if action.logits is not None:
        return np.asarray(action.logits, np.float32)
    return np.array([action.steering, action.throttle - action.brake][: config.outputs], np.float32)
