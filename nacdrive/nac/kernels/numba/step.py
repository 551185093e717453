"""A live step compiled by numba: some seventy calls to torch become a dozen.

What is left to torch: projecting the token, the scores of the keys (so that both ways choose the same) and the output.
Importing this needs no numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from nacdrive.nac.backbone import FusedWeights
from nacdrive.nac.dynamics import Euler, Steady
from nacdrive.nac.kernels import numba
from nacdrive.nac.kernels.numba import Layers, Memory, circuit_of
from nacdrive.nac.pairwise import PHIS, PairOptions
from nacdrive.nac.topk import Chosen


class CompiledStep:
    """The weights of a step as the kernels want them."""

    def __init__(
        self, halves: Tensor, halves_bias: Tensor, w: FusedWeights, scale: Tensor | None, options: PairOptions
    ) -> None:
        """As in ``StepWeights``; ``scale`` is a scalar or has one number per head. All are float32."""
        from nacdrive.nac.kernels.numba import compiled as kernels

        self.kernels = kernels
        self.memory = memory = Memory()
        self.heads, self.depth, self.wide = halves.shape[0] // 2, halves.shape[1], halves.shape[2]
        self.halves = memory.address(halves.detach().contiguous())
        self.halves_bias = memory.address(halves_bias.detach().contiguous())
        layers = Layers(kernels, w, memory, kernels.LANES, kernels.CHAINS)
        self.circuit = memory.address(np.array(circuit_of(kernels, w, layers, kernels.LANES, memory), np.int64))
        at_scale = 0 if scale is None else memory.address(scale.detach().flatten().expand(self.heads).contiguous())
        mode = options.dynamics
        euler = mode if isinstance(mode, Euler) else None
        kind = 1 if euler else 2 if isinstance(mode, Steady) else 0
        step = euler.step or 0.0 if euler else 0.0
        delta = 0.0 if options.quadrature == "time" else options.delta_t
        numbers = memory.address(np.array([options.eps, step, delta], np.float32))
        gated, phi = int(options.score_gradient == "gated"), PHIS.index(options.phi)
        # As they stand side by side in ``Attended``.
        self.options = at_scale, gated, phi, kind, euler.steps if euler else 0, numbers

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledStep:
        """Itself: it never changes, and addresses cannot be copied."""
        return self

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Elsewhere, None: addresses do not travel, and the next step there makes do without."""
        return type(None), ()

    @staticmethod
    def supports(halves: Tensor, w: FusedWeights, options: PairOptions) -> bool:
        """Whether the kernels compute such a step: see ``numba.supported``; and not adaptive Euler."""
        adaptive = isinstance(options.dynamics, Euler) and options.dynamics.adaptive
        return not adaptive and numba.supported(halves, w)

    def advance(self, qkv: Tensor, before: Tensor) -> tuple[Tensor, Any]:
        """The memory ``[H, B, W, E]`` one step on, and what ``attend`` needs of it; qkv is float32 ``[B, 3 H D]``."""
        _, batch, window, width = before.shape
        memory = torch.empty_like(before)
        of_query = before.new_empty(self.heads * batch * self.wide)
        qkv, before = qkv.contiguous(), before.contiguous()
        at_qkv, *others = (x.data_ptr() for x in (qkv, before, memory, of_query))
        fields = self.kernels.Step(batch, window, self.depth, width, at_qkv, self.halves, self.halves_bias, *others)
        step = np.array(fields, np.int64)
        self.kernels.advance(self.heads, step.ctypes.data)
        return memory, (step, qkv, of_query, memory)

    def attend(
        self, here: Any, tau: Tensor, seen: int, topk: int | None, scores: Tensor | None, chosen: Chosen
    ) -> Tensor:
        """Attention ``[B, H D]`` of the newest step (``here``, of ``advance``); tau is ``[B, 1]``, or lags ``[B, W]``.

        Its keys are the ``topk`` with the highest ``scores [H, B, W]``, or those that are ``chosen``; None of either
        for all.
        """
        best, allowed = chosen
        step, qkv, _, memory = here
        _, batch, window, _ = memory.shape
        slots = window if topk is None else topk if best is None else best.shape[2]
        y: Tensor = qkv.new_empty(batch, self.heads * self.depth)
        room = np.empty(3 * slots)
        start = room.ctypes.data
        tensors = [None if x is None else x.contiguous() for x in (tau, best, allowed, scores)]
        at_tau, at_chosen, at_allowed, at_scores = (0 if x is None else x.data_ptr() for x in tensors)
        keys = slots, min(seen, window), at_chosen, at_allowed, at_scores, at_tau, int(tau.shape[1] == window)
        fields = self.kernels.Attended(*keys, *self.options, start, start + 8 * slots, y.data_ptr())
        attended = np.array(fields, np.int64)
        self.kernels.attend(self.heads, self.circuit, step.ctypes.data, attended.ctypes.data)
        return y
