"""What if? A policy with something done to it: its picture painted over, a frame forgotten, a head or neuron muted.

Every edit is exact. One of the picture changes the pixels before the network gets them; one of the memory hides a frame
as padding, or moves time stamps; one of the network sets the weights through which a head or neuron acts on anything to
zero, so that the rest computes what it would if the muted part gave 0. Without edits a decision is bit-equal to the
policy's own.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError, instead_of
from nacdrive.models.effects import softmax
from nacdrive.models.policy import Policy
from nacdrive.nac import NAC

MOST_EDITS = 24
GROUPS = ("sensory", "inter", "command", "motor")


@dataclass(frozen=True)
class Paint:
    """Paint over a part of every picture, as dirt on the lens would."""

    left: float
    """Edges as shares of the picture's width and height, 0 .. 1 from the upper left corner."""
    top: float
    right: float
    bottom: float
    level: float | None = 128.0
    """Grey level, 0 .. 255; None paints the picture's own mean colour."""

    def __post_init__(self) -> None:
        if not (0 <= self.left < self.right <= 1 and 0 <= self.top < self.bottom <= 1):
            raise UserError("paint: left < right and top < bottom are shares of the picture, 0 to 1.")
        if self.level is not None and not 0 <= self.level <= 255:
            raise UserError(f"paint: level is {self.level:g}; it must lie in 0 .. 255.")

    def on(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        rows, columns = frame.shape[:2]
        # One row and one column at least.
        top, left = min(round(self.top * rows), rows - 1), min(round(self.left * columns), columns - 1)
        bottom, right = max(round(self.bottom * rows), top + 1), max(round(self.right * columns), left + 1)
        painted = frame.copy()
        painted[top:bottom, left:right] = frame.mean(axis=(0, 1)) if self.level is None else self.level
        return painted


@dataclass(frozen=True)
class Dim:
    """Multiply all pixels: 0.5 is dusk, 1.5 is glare, clipped to white."""

    factor: float

    def __post_init__(self) -> None:
        if not 0 <= self.factor <= 4:
            raise UserError(f"dim: factor is {self.factor:g}; it must lie in 0 .. 4.")

    def on(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return np.asarray(np.clip(frame * np.float32(self.factor), 0, 255), np.uint8)


@dataclass(frozen=True)
class Blur:
    """Blur every picture by a Gaussian."""

    sigma: float
    """Standard deviation in pixels of the camera."""

    def __post_init__(self) -> None:
        if not 0 < self.sigma <= 32:
            raise UserError(f"blur: sigma is {self.sigma:g}; it must lie above 0, up to 32 pixels.")

    def on(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return cv2.GaussianBlur(frame, (0, 0), self.sigma).astype(np.uint8)


@dataclass(frozen=True)
class HideFrame:
    """Forget a frame of the window, which is one frame shorter then; the others keep their times."""

    back: int
    """How many decisions ago it was taken, from 1."""

    def __post_init__(self) -> None:
        if not 1 <= self.back <= 4096:
            raise UserError(f"hide: back is {self.back}; it must be 1 (the frame before this one) or more.")


@dataclass(frozen=True)
class ShiftTime:
    """Let the present frame come later than it did: all others of the window are so much older."""

    seconds: float

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= 60:
            raise UserError(f"shift: seconds is {self.seconds:g}; it must lie above 0, up to 60.")


@dataclass(frozen=True)
class Mute:
    """Set what a head, a group of neurons or one neuron gives to others to 0.

    ``head`` alone mutes the whole head; ``group`` alone all its neurons in all heads. A muted neuron has activity 0 for
    all that it has synapses to; the muted motor neurons give 0, of which phi and omega are then made.
    """

    head: int | None = None
    """From 0; None: in all heads."""
    group: str | None = None
    """``sensory``, ``inter``, ``command`` or ``motor``, as in ``Policy.circuit()``."""
    neuron: int | None = None
    """Place in its group; None: all of it."""

    def __post_init__(self) -> None:
        if self.head is None and self.group is None:
            raise UserError("mute: name a head, or a group of neurons.")
        if self.neuron is not None and self.group is None:
            raise UserError("mute: name the group that the neuron is in.")
        if self.group is not None and self.group not in GROUPS:
            raise UserError(f"mute: there is no group {self.group[:20]!r}; there are {', '.join(GROUPS)}.")
        for name in ("head", "neuron"):
            if (getattr(self, name) or 0) < 0:
                raise UserError(f"mute: {name} is negative.")


Edit = Paint | Dim | Blur | HideFrame | ShiftTime | Mute
KINDS: dict[str, type[Edit]] = dict(paint=Paint, dim=Dim, blur=Blur, hide=HideFrame, shift=ShiftTime, mute=Mute)


def edits_from_json(given: Any) -> tuple[Edit, ...]:
    """Edits from plain JSON: a list of objects with a ``kind`` and the fields of its class."""
    if not isinstance(given, list) or len(given) > MOST_EDITS:
        raise UserError(f"edits must be a list of at most {MOST_EDITS}.")
    return tuple(edit_from_json(one) for one in given)


def edit_from_json(given: Any) -> Edit:
    """One edit; see ``edits_from_json``."""
    name = given.get("kind") if isinstance(given, dict) else None
    if not isinstance(name, str) or name not in KINDS:
        raise UserError(f"an edit has a kind, one of {', '.join(KINDS)}.")
    wanted = {field.name: str(field.type) for field in fields(KINDS[name])}
    values = {field: value for field, value in given.items() if field != "kind"}
    if not values.keys() <= wanted.keys():
        raise UserError(f"{name} has the fields {', '.join(wanted)}.")
    for field, value in values.items():
        if not fits(value, wanted[field]):
            raise UserError(f"{name}: {field} must be of the type {wanted[field]}.")
    with instead_of(TypeError, f"{name} needs the fields {', '.join(wanted)}."):
        return KINDS[name](**values)


def fits(value: Any, kind: str) -> bool:
    """Whether a value of JSON is of the annotated type; numbers are finite, and True is no number."""
    if value is None:
        return "None" in kind
    if "str" in kind:
        return isinstance(value, str)
    if isinstance(value, bool) or not isinstance(value, (int, float) if "float" in kind else int):
        return False
    return abs(value) < 1e9 and math.isfinite(value)


class IntervenedPolicy(Policy):
    """A policy under edits (of the picture: blurred, then dimmed, then painted over); drives like any other. The policy
    itself is not changed and keeps its memory, this one begins with none.
    """

    def __init__(self, policy: Policy, edits: Sequence[Edit] = ()) -> None:
        self.edits = tuple(edits)
        window = policy.config.window
        for edit in self.edits:
            if isinstance(edit, HideFrame) and edit.back >= window:
                what = f"{policy.name} remembers {window - 1} frames before this one"
                raise UserError(f"{what}: {edit.back} is too many.")
        muted = [edit for edit in self.edits if isinstance(edit, Mute)]
        network = copy.deepcopy(policy.network) if muted else policy.network
        for edit in muted:
            mute(network, edit)
        self.picture_edits = [edit for kind in (Blur, Dim, Paint) for edit in self.edits if isinstance(edit, kind)]
        self.hidden = sorted({edit.back for edit in self.edits if isinstance(edit, HideFrame)})
        self.shift_s = sum(edit.seconds for edit in self.edits if isinstance(edit, ShiftTime))
        super().__init__(network, policy.name, policy.meta)

    def seen(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        for edit in self.picture_edits:
            frame = edit.on(frame)
        return frame

    def remember(self, frame: NDArray[np.uint8], t_s: float) -> Action:
        """Take in a frame; returns the decision without the edits of the memory."""
        return super().step(self.seen(frame), t_s)

    def step(self, frame: NDArray[np.uint8], t_s: float, speed_mps: float | None = None) -> Action:
        """Decide on one frame under the edits; see ``Policy.step``."""
        own = self.remember(frame, t_s)
        if not self.hidden and not self.shift_s:
            return own
        _, times, features = zip(*self._recent, strict=True)
        return self.action(scores(self, torch.cat(features).unsqueeze(0), times)[0])


@torch.inference_mode()
def scores(policy: IntervenedPolicy, features: Tensor, times: Sequence[float]) -> NDArray[np.float32]:
    """What the head gives [B, outputs] for windows of features [B, T, features] at the same T times, under the edits.

    One pass over the window instead of a step of the memory.
    """
    T = features.shape[1]
    t = torch.tensor([times], dtype=torch.float64, device=features.device).expand(len(features), -1).clone()
    t[:, :-1] -= policy.shift_s
    padding = torch.zeros((len(features), T), dtype=torch.bool, device=features.device)
    padding[:, [T - 1 - back for back in policy.hidden if back < T]] = True
    y = policy.network.sequence.last(features, t, padding if policy.hidden else None)
    return np.asarray(policy.network.head(y).float().cpu().numpy())


@torch.inference_mode()
def occlusion_map(
    policy: IntervenedPolicy, frames: Sequence[NDArray[np.uint8]], times: Sequence[float], cells: int = 12
) -> NDArray[np.float32]:
    """How much each of ``cells`` x ``cells`` parts of the picture speaks for the decision (Zeiler and Fergus, 2014).

    Each part is painted grey in all frames of the window at once. Discrete actions: by how much the probability of the
    chosen one falls; continuous: by how much the steering changes, to the left positive (what is there steers right).

    The edits of ``policy`` stay, its memory is not used; ``frames`` are the window, oldest first, [height, width, 3],
    taken at ``times`` in seconds. Shape [cells, cells], rows from the top; exactly 0 where nothing reaches the network.
    """
    edges = np.linspace(0, 1, cells + 1)
    boxes = [(x, y) for y in range(cells) for x in range(cells)]
    paints = [Paint(edges[x], edges[y], edges[x + 1], edges[y + 1]) for x, y in boxes]
    looked = [i for i, paint in enumerate(paints) if reaches(policy, paint)]
    seen = [policy.seen(frame) for frame in frames]
    device = policy.device

    def features(pictures: Sequence[NDArray[np.uint8]]) -> Tensor:
        # Sixteen at a time fit a core's cache: faster than all at once.
        parts = [torch.from_numpy(np.stack(pictures[i : i + 16])).to(device) for i in range(0, len(pictures), 16)]
        return torch.cat([policy.network.features(part) for part in parts])

    plain = scores(policy, features(seen).unsqueeze(0), times)
    painted = features([paints[i].on(frame) for i in looked for frame in seen]).view(len(looked), len(seen), -1)
    covered = scores(policy, painted, times)
    result = np.zeros(cells * cells, np.float32)
    if policy.config.continuous:
        result[looked] = np.clip(plain[0, 0], -1, 1) - np.clip(covered[:, 0], -1, 1)
    else:
        choice = int(plain[0].argmax())
        result[looked] = softmax(plain)[0, choice] - softmax(covered)[:, choice]
    return result.reshape(cells, cells)


def reaches(policy: Policy, paint: Paint) -> bool:
    """Whether the network gets anything of what is painted."""
    config = policy.config
    first, last = config.crop or (0, config.height)
    top, bottom = round(paint.top * config.height), round(paint.bottom * config.height)
    # Turned upright, a row's ends come from a few rows further up and down.
    slack = 4 if config.upright else 0
    if bottom <= first - slack or top >= last + slack:
        return False
    masked = config.masked_rows
    return masked is None or config.crop is not None or not (masked[0] <= top and bottom <= masked[1])


@torch.no_grad()
def mute(network: nn.Module, edit: Mute) -> None:
    """Set the weights to zero through which a head, a group of neurons or a neuron acts, in place."""
    nac: NAC | None = getattr(getattr(network, "sequence", None), "nac", None)
    if nac is None:
        raise UserError("mute: this policy has no neuronal attention circuit.")
    if edit.head is not None and edit.head >= nac.num_heads:
        raise UserError(f"mute: there is no head {edit.head + 1}; there are {nac.num_heads}.")
    if edit.group is None:
        assert edit.head is not None
        nac.out_proj.weight[:, edit.head * nac.head_dim : (edit.head + 1) * nac.head_dim] = 0
        return
    net = nac.backbone
    if edit.head is not None and net.motor.weight.shape[0] < nac.num_heads:
        raise UserError("mute: the heads of this policy share one circuit: mute its neurons in all of them.")
    sizes = {"sensory": nac.wiring.inputs, **{group: len(nac.wiring.neurons(group)) for group in GROUPS[1:]}}
    size = sizes[edit.group]
    if edit.neuron is not None and edit.neuron >= size:
        raise UserError(f"mute: there is no {edit.group} neuron {edit.neuron + 1}; there are {size}.")
    heads = slice(None) if edit.head is None else slice(edit.head, edit.head + 1)
    chosen = slice(0, size) if edit.neuron is None else slice(edit.neuron, edit.neuron + 1)
    if edit.group == "motor":
        net.motor.weight[heads, :, chosen] = 0
        assert net.motor.bias is not None
        net.motor.bias[heads, chosen] = 0
        return
    # Without inter neurons in a layer of their own, those stand behind the command neurons.
    behind = sizes["command"] if edit.group == "inter" and net.inter is None else 0
    chosen = slice(chosen.start + behind, chosen.stop + behind)
    on = {"sensory": net.sensory, "inter": net.inter}.get(edit.group)
    for synapses in (net.command, net.motor) if on is None else (on,):
        if synapses is not None:
            synapses.weight[heads, chosen] = 0
