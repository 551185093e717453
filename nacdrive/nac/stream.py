"""One step at a time: the memory that ``NAC.step`` carries and the step itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nacdrive.nac.checks import check_gaps, check_tokens
from nacdrive.nac.gates import Folded
from nacdrive.nac.pairs import Tokens, attend, pair_logits
from nacdrive.nac.selection import top_k

if TYPE_CHECKING:
    from nacdrive.nac.layer import NAC


@dataclass(frozen=True)
class State:
    """The last W steps as the pairs need them; the newest is last. ``step`` makes a new one and changes none.

    Attributes:
        k, v: ``[H, B, W, D]``.
        zk: ``[H, B, W, I]``, key half of the first backbone layer.
        tk: ``[H, B, W, 2]``, key half of the time gate.
        filled: ``[W]`` bool, True where a step has been seen.
        t: ``[B]`` time stamp of the last step in seconds, or None before the first.
    """

    k: Tensor
    v: Tensor
    zk: Tensor
    tk: Tensor
    filled: Tensor
    t: Tensor | None

    @classmethod
    def empty(cls, layer: NAC, batch: int, window: int) -> State:
        """A memory without a step."""
        weight = layer.out_proj.weight
        dtype = torch.promote_types(weight.dtype, torch.float32)
        inters = layer.backbone.first_width

        def zeros(width: int) -> Tensor:
            return torch.zeros(layer.num_heads, batch, window, width, dtype=dtype, device=weight.device)

        filled = torch.zeros(window, dtype=torch.bool, device=weight.device)
        return cls(zeros(layer.head_dim), zeros(layer.head_dim), zeros(inters), zeros(2), filled, None)

    def __repr__(self) -> str:
        heads, batch, window, _ = self.k.shape
        return f"State(heads={heads}, batch={batch}, window={window}, filled={int(self.filled.sum())})"


def stream_step(layer: NAC, x: Tensor, t: Tensor | None, state: State) -> tuple[Tensor, State]:
    """See ``NAC.step``."""
    batch = state.k.shape[1]
    if x.ndim != 2 or x.shape[0] != batch:
        raise ValueError(f"x has shape {tuple(x.shape)}; allowed is [{batch}, {layer.in_features}], the state's batch")
    tokens = x.unsqueeze(1)
    check_tokens("x", tokens, layer.in_features, layer.out_proj.weight)
    if t is not None and t.shape != (batch,):
        raise ValueError(f"t has shape {tuple(t.shape)}; allowed is [{batch}] (seconds)")
    stamps = _stamps(layer, t, state, tokens)
    q, k, v = layer._project(tokens, tokens, tokens)
    with torch.autocast(x.device.type, enabled=False):
        dtype = state.k.dtype
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
        w = layer._folded(dtype)
        new = layer._tokens(q, k, v, stamps.to(dtype), w)

        def push(memory: Tensor, row: Tensor) -> Tensor:
            return torch.cat([memory[:, :, 1:], row.unsqueeze(2)], dim=2)

        filled = torch.cat([state.filled[1:], torch.ones_like(state.filled[:1])])
        memory = (push(state.k, k.squeeze(2)), push(state.v, new.v), push(state.zk, new.zk), push(state.tk, new.tk))
        state = State(*memory, filled, t)
        y = _attend_window(layer, q, new, state, w)
    merged = y.transpose(0, 1).reshape(batch, layer.d_model)
    out: Tensor = layer.out_proj(merged if torch.is_autocast_enabled(x.device.type) else merged.to(x.dtype))
    return out, state


def _stamps(layer: NAC, t: Tensor | None, state: State, tokens: Tensor) -> Tensor:
    if t is None or layer.stamps == "absolute":
        return layer._stamps(None if t is None else t.unsqueeze(1), tokens, None)
    if state.t is None:
        return layer._stamps(None, tokens, None)
    gap = (t - state.t).unsqueeze(1)
    check_gaps(gap, None)
    return gap.to(state.k.dtype) / layer.time_scale


def _attend_window(layer: NAC, q: Tensor, new: Tokens, state: State, w: Folded) -> Tensor:
    heads, batch, window, _ = state.k.shape
    zk, tk, v = state.zk, state.tk, state.v
    allowed = state.filled.expand(heads, batch, window)
    if layer.topk is not None and layer.topk < window:
        scores = (state.k @ q.transpose(-1, -2)).squeeze(-1).detach()
        best = top_k(scores.masked_fill(~allowed, -torch.inf), layer.topk)

        def pick(x: Tensor) -> Tensor:
            return x.gather(2, best.unsqueeze(-1).expand(*best.shape, x.shape[-1]))

        zk, tk, v, allowed = pick(zk), pick(tk), pick(v), allowed.gather(2, best)
    z = zk + new.zq.unsqueeze(2)
    motor, _, _ = pair_logits(z.flatten(1, 2), w)
    slope, offset = tk.unbind(-1)
    gate = new.stamps.unsqueeze(-1) * slope + offset + new.tq.unsqueeze(-1)
    keep = None
    if layer.training and layer.dropout:
        keep = torch.nn.functional.dropout(torch.ones_like(gate), layer.dropout)
    a = attend(motor.reshape(heads, 2, batch, -1), gate, allowed, layer.logit_scale, keep, layer.options)
    return (a.mix.unsqueeze(2) @ v).squeeze(2)
