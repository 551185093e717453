"""One step at a time: the memory that ``NAC.step`` carries and the step itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from nacdrive.nac.backbone import Folded
from nacdrive.nac.pairwise import attend, pair_logits
from nacdrive.nac.ranking import top_k
from nacdrive.nac.validation import check_gaps, check_tokens

if TYPE_CHECKING:
    from nacdrive.nac.layer import NAC


@dataclass(frozen=True)
class State:
    """The last W steps as the pairs need them; the newest is last. ``step`` makes a new one and changes none.

    Attributes:
        memory: ``[H, B, W, E]``; per step k ``[D]``, v ``[D]``, the key halves of the first backbone layer ``[I]``
            and of the time gate ``[2]``. In one piece, so that a step copies and gathers once.
        seen: number of steps so far.
        t: ``[B]`` time stamp of the last step in seconds, or None before the first.
    """

    memory: Tensor
    seen: int
    t: Tensor | None

    @classmethod
    def empty(cls, layer: NAC, batch: int, window: int) -> State:
        """A memory without a step."""
        weight = layer.out_proj.weight
        width = 2 * layer.head_dim + layer.backbone.first_width + 2
        dtype = torch.promote_types(weight.dtype, torch.float32)
        memory = torch.zeros(layer.num_heads, batch, window, width, dtype=dtype, device=weight.device)
        return cls(memory, 0, None)

    def __repr__(self) -> str:
        heads, batch, window, _ = self.memory.shape
        return f"State(heads={heads}, batch={batch}, window={window}, seen={self.seen})"


class Prepared(NamedTuple):
    """Weights as a step uses them."""

    qkv: Tensor  # [3 d_model, in_features] effective sensory gates
    qkv_bias: Tensor
    halves: Tensor  # [2 H, D, I + 2] from q and from k: first backbone layer and time gate
    halves_bias: Tensor  # [2 H, 1, I + 2], of the keys 0
    folded: Folded


def prepare(layer: NAC, dtype: torch.dtype) -> Prepared:
    """Mask and fold the weights: half of a step's time, so done once as long as they do not change."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return _prepare(layer, dtype)
    if layer._prepared is not None and all(seen.is_current() for seen in layer._prepared[0]):
        return layer._prepared[1]
    # What ``_prepare`` reads. layer.parameters() would search for it longer than a step's products take.
    modules = [(m._modules, name, x) for m in (layer, layer.backbone) for name, x in m._modules.items()]
    tables = [table for _, _, x in modules if x is not None for table in (x._parameters, x._buffers)]
    tensors = [(table, name, x) for table in tables for name, x in table.items() if x is not None]
    prepared = _prepare(layer, dtype)
    if not any(x.is_inference() for _, _, x in tensors):  # these do not count their changes
        seen = [_Seen(*entry) for entry in modules]
        seen += [_Seen(table, name, x, x.data_ptr(), x._version) for table, name, x in tensors]
        layer._prepared = (seen, prepared)
    return prepared


class _Seen(NamedTuple):
    """A module, parameter or buffer as it was."""

    table: dict[str, Any]
    name: str
    part: Any
    address: int | None = None
    version: int = 0

    def is_current(self) -> bool:
        """Every change in place raises a tensor's version; ``.data = `` and ``.to()`` change its address."""
        if self.table.get(self.name) is not self.part:
            return False
        x: Any = self.part
        return self.address is None or bool(x._version == self.version and x.data_ptr() == self.address)


def _prepare(layer: NAC, dtype: torch.dtype) -> Prepared:
    gates = (layer.q_gate, layer.k_gate, layer.v_gate)
    qkv = torch.cat([gate.effective()[0] for gate in gates], 1).T.contiguous()
    biases = torch.cat([gate.bias[0] for gate in gates if gate.bias is not None])
    # The inter neurons keep their width, which is the memory's, whatever is masked between two steps.
    prune = qkv.device.type == "cpu" and not torch.compiler.is_compiling()
    w = layer._folded(dtype, prune, prune_inter=False)
    depth, heads = layer.head_dim, layer.num_heads
    time = layer.time_gate.weight.to(dtype).expand(heads, -1, -1)
    time_bias = layer.time_gate.bias.to(dtype).expand(heads, -1)
    of_q, of_k = torch.cat([w.wq, time[:, :depth]], 2), torch.cat([w.wk, time[:, depth:]], 2)
    bias = torch.cat([w.b1, time_bias], 1).unsqueeze(1)
    return Prepared(qkv, biases, torch.cat([of_q, of_k]), torch.cat([bias, torch.zeros_like(bias)]), w)


def stream_step(layer: NAC, x: Tensor, t: Tensor | None, state: State) -> tuple[Tensor, State]:
    """See ``NAC.step``."""
    heads, batch, _, _ = state.memory.shape
    if x.ndim != 2 or x.shape[0] != batch:
        raise ValueError(f"x has shape {tuple(x.shape)}; allowed is [{batch}, {layer.in_features}], the state's batch")
    tokens = x.unsqueeze(1)
    check_tokens("x", tokens, layer.in_features, layer.out_proj.weight)
    if t is not None and t.shape != (batch,):
        raise ValueError(f"t has shape {tuple(t.shape)}; allowed is [{batch}] (seconds)")
    stamps = _stamps(layer, t, state, tokens)
    dtype = state.memory.dtype
    p = prepare(layer, dtype)
    # [3, H, B, D]
    qkv = F.linear(x, p.qkv, p.qkv_bias).view(batch, 3, heads, layer.head_dim).permute(1, 2, 0, 3)
    with torch.autocast(x.device.type, enabled=False):
        qkv = qkv.to(dtype)
        q, k, v = qkv.unbind(0)
        of_q, of_k = torch.baddbmm(p.halves_bias, qkv[:2].flatten(0, 1), p.halves).view(2, heads, batch, -1).unbind(0)
        row = torch.cat([k, v, of_k], 2).unsqueeze(2)
        memory = torch.cat([state.memory[:, :, 1:], row], 2)
        state = State(memory, state.seen + 1, t)
        y = _attend_window(layer, q, of_q, stamps.to(dtype), state, p.folded)
    merged = y.transpose(0, 1).reshape(batch, layer.d_model)
    out: Tensor = layer.out_proj(merged if torch.is_autocast_enabled(x.device.type) else merged.to(x.dtype))
    return out, state


def _stamps(layer: NAC, t: Tensor | None, state: State, tokens: Tensor) -> Tensor:
    """Time stamps ``[B, 1]`` as the time gate feels them."""
    if t is None or layer.stamps == "absolute":
        return layer._stamps(None if t is None else t.unsqueeze(1), tokens, None)
    if state.t is None:
        return layer._stamps(None, tokens, None)
    gap = (t - state.t).unsqueeze(1)
    check_gaps(gap, None)
    return gap.to(state.memory.dtype) / layer.time_scale


def _attend_window(layer: NAC, q: Tensor, halves: Tensor, stamps: Tensor, state: State, w: Folded) -> Tensor:
    memory = state.memory
    heads, batch, window, width = memory.shape
    depth = layer.head_dim
    allowed = None
    if state.seen < window:
        filled = torch.arange(window, device=memory.device) >= window - state.seen
        allowed = filled.expand(heads, batch, window)
    if layer.topk is not None and layer.topk < window:
        rows = memory.detach().view(-1, window, width)[..., :depth]  # bmm reads it as it lies, unlike matmul
        scores = torch.bmm(rows, q.detach().reshape(-1, depth, 1)).view(heads, batch, window)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        best = top_k(scores, layer.topk)
        first = torch.arange(heads * batch, device=best.device).view(heads, batch, 1) * window
        memory = memory.flatten(0, 2).index_select(0, (best + first).flatten()).view(heads, batch, -1, width)
        allowed = None if allowed is None else allowed.gather(2, best)
    v, zk, tk = memory[..., depth : 2 * depth], memory[..., 2 * depth : -2], memory[..., -2:]
    motor, _, _ = pair_logits((zk + halves[..., :-2].unsqueeze(2)).flatten(1, 2), w)
    # (slope of key + slope of query) * stamp + both offsets
    slope, offset = (tk + halves[..., -2:].unsqueeze(2)).unbind(-1)
    gate = stamps * slope + offset
    keep = None
    if layer.training and layer.dropout:
        keep = F.dropout(torch.ones_like(gate), layer.dropout)
    a = attend(motor.reshape(heads, 2, batch, -1), gate, allowed, layer.logit_scale, keep, layer.options)
    return torch.bmm(a.mix.view(heads * batch, 1, -1), v.flatten(0, 1)).view(heads, batch, depth)
