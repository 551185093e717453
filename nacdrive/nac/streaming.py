"""What ``NAC.step`` carries from step to step, and the weights as a step uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nacdrive.nac.backbone import FusedWeights
from nacdrive.nac.kernels.numba.step import CompiledStep
from nacdrive.nac.validation import check_tensor


@dataclass(frozen=True)
class State:
    """The last W steps as the pairs need them; the newest is last. ``step`` makes a new one and changes none.

    Of each step the memory has k ``[D]``, v ``[D]``, the key halves of the first backbone layer ``[I]`` and of the time
    gate ``[2]``, in one piece, so that a step copies and gathers once.
    """

    memory: Tensor  # [H, B, W, E]
    seen: int = 0  # number of steps so far
    t: Tensor | None = None  # [B] time of the last step in seconds
    clock: Tensor | None = None  # [B, W] times of all of them, where the time gate needs lags
    weights: StepWeights | None = None  # what the last step used

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "weights": None}

    def __repr__(self) -> str:
        heads, batch, window, _ = self.memory.shape
        return f"State(heads={heads}, batch={batch}, window={window}, seen={self.seen})"


def check_state(state: object, kind: type, name: str, sizes: tuple[int, ...], dtype: torch.dtype, x: Tensor) -> None:
    """Check that a state is of ``kind``, and ``name`` in it, unless None, of ``sizes`` (-1: any), dtype and device."""
    check_tensor("x", x)
    has = f"state is a {type(state).__name__}"
    if isinstance(state, kind):
        if (memory := getattr(state, name)) is None:
            return
        fits = memory.ndim == len(sizes) and all(b in (a, -1) for a, b in zip(memory.shape, sizes, strict=True))
        if fits and memory.device == x.device and (memory.dtype == dtype or torch.is_autocast_enabled(x.device.type)):
            return
        has = f"{name} of the state has shape {tuple(memory.shape)}, {memory.dtype} on {memory.device}"
    wanted = f"{kind.__name__} with {name} of shape {list(sizes)} (-1: any), {dtype} on {x.device}"
    raise ValueError(f"{has}; allowed is a {wanted}, as this layer's own init_state and step give")


class StepWeights(NamedTuple):
    """Masked and fused weights: half of a step's time, so made once as long as the layer's parameters stay."""

    qkv: Tensor  # [3 d_model, features] effective sensory gates
    qkv_bias: Tensor
    halves: Tensor  # [2 H, D, I + 2] from q and from k: first backbone layer and time gate
    halves_bias: Tensor  # [2 H, 1, I + 2], of the keys 0
    fused: FusedWeights
    made_from: Snapshot | None  # None: they cannot be kept
    compiled: CompiledStep | None  # where kernels take the step


def hooks_of(module: nn.Module) -> list[dict[int, Any]]:
    """Tables of hooks, empty where nobody looks on, nor makes weights anew for every call, as pruning does."""
    return [table for part in module.modules() for table in (part._forward_hooks, part._forward_pre_hooks)]


class Snapshot:
    """The parameters and buffers of a module, to notice whether they have changed since.

    Not noticed are writes through ``.data``, which torch does not count: hence a state keeps its weights to itself.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        # Two flat lists: this is asked before every live step.
        self.members: list[tuple[dict[str, Any], str, Any]] = []
        self.tensors = [(x, x._version, x.data_ptr()) for x in (*module.parameters(), *module.buffers())]
        for inner in module.modules():
            for table in (inner._modules, inner._parameters, inner._buffers):
                here: dict[str, Any] = table
                self.members += [(here, name, x) for name, x in here.items() if x is not None]

    @staticmethod
    def of(module: nn.Module) -> Snapshot | None:
        """None where changes could not be noticed: inference tensors do not count theirs."""
        return None if any(x.is_inference() for x in [*module.parameters(), *module.buffers()]) else Snapshot(module)

    def is_current(self, module: nn.Module) -> bool:
        """Whether they are those of ``module`` and unchanged: a write raises a tensor's version, ``.to()`` moves it."""
        if module is not self.module:
            return False
        for table, name, part in self.members:
            if table.get(name) is not part:
                return False
        for x, version, address in self.tensors:  # noqa: SIM110 (twice as fast as all() of a generator)
            if x._version != version or x.data_ptr() != address:
                return False
        return True
