"""A base for layers that make one causal pass over a sequence: windows, padding, time stamps and streaming."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from nacdrive.layers.base import SequenceLayer, sliding_windows
from nacdrive.nac.streaming import check_state
from nacdrive.nac.validation import check_step, check_times, check_tokens, whole


class WindowState(NamedTuple):
    """What ``step`` remembers: the last steps of the window, as ``project`` left them."""

    window: int
    u: Tensor | None = None
    t: Tensor | None = None


class WindowedLayer(SequenceLayer):
    """A causal pass, started afresh on every window of steps, so that it sees what attention of that window sees.

    A layer gives ``scan``, a pass over steps none of which is padding, and may give ``project``, its work on single
    steps, which is then done once for all steps. A window that holds the whole sequence is one plain pass. Neither
    meets autocast: recurrences add what it casts to what it leaves, and their own kernels need one precision.
    """

    def project(self, x: Tensor) -> Tensor:
        """[..., in_features] -> [..., anything]: what does not depend on other steps."""
        return x

    @abstractmethod
    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        """The pass itself.

        Args:
            u: projected steps, [N, L, anything].
            dt: gap before each step in typical gaps (``gap_s``), [N, L], 0 or more; 1 before the first step.
            t: absolute time of each step in typical gaps, [N, L].

        Returns:
            [N, L, d_model]; output i depends on the steps up to i.
        """

    def forward(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        """See ``SequenceLayer.forward``; without ``t`` the steps that are no padding are one ``gap_s`` apart."""
        check_tokens("x", x, self.in_features, next(self.parameters(), x), padding)
        if torch.is_autocast_enabled(x.device.type):
            with torch.autocast(x.device.type, enabled=False):
                return WindowedLayer.forward(self, x.to(next(self.parameters(), x).dtype), t, padding)
        B, T, _ = x.shape
        t = None if t is None else check_times("t", t, B, T)
        present = torch.ones((B, T), dtype=torch.bool, device=x.device) if padding is None else ~padding
        if padding is not None:
            x = x.masked_fill(padding.unsqueeze(-1), 0.0)  # not even NaN in padding may matter
        if t is None:
            t = (present.cumsum(dim=1) - 1).double() * self.gap_s
        u = self.project(x)
        if self.window >= T:
            return self._pass(u, t, None if padding is None or not padding.any() else padding)
        u, t, present = (sliding_windows(s, self.window).flatten(0, 1) for s in (u, t, present))
        return self._pass(u, t, ~present)[:, -1].view(B, T, self.d_model)

    def _pass(self, u: Tensor, t: Tensor, padding: Tensor | None) -> Tensor:
        """Outputs [N, L, d_model]; a padding step repeats the output before it, zeros before the first."""
        if padding is None:
            return self._scan(u, t, None)
        # Valid steps first, in their order, so that the pass never meets a padding step.
        order = torch.argsort(padding.long(), dim=1, stable=True)
        y = self._scan(u.gather(1, order.unsqueeze(-1).expand_as(u)), t.gather(1, order), padding.gather(1, order))
        last_valid = (~padding).long().cumsum(dim=1) - 1
        picked = y.gather(1, last_valid.clamp(min=0).unsqueeze(-1).expand_as(y))
        return picked.masked_fill((last_valid < 0).unsqueeze(-1), 0.0)

    def _scan(self, u: Tensor, t: Tensor, absent: Tensor | None) -> Tensor:
        t = t if t.is_floating_point() else t.double()
        gaps = torch.cat([torch.full_like(t[:, :1], self.gap_s), t.diff(dim=1)], dim=1)
        if absent is not None:
            gaps, t = gaps.masked_fill(absent, self.gap_s), t.masked_fill(absent, 0.0)
        # Divided in the times' own type: float32 cannot tell neighbours of a clock that counts from 1970 apart.
        return self.scan(u, (gaps.clamp(min=0.0) / self.gap_s).to(u.dtype), (t / self.gap_s).to(u.dtype))

    def init_state(self, batch_size: int, window: int | None = None) -> WindowState:
        return WindowState(self.window_of(window))

    def step(self, x: Tensor, t: Tensor | None, state: WindowState) -> tuple[Tensor, WindowState]:
        """See ``SequenceLayer.step``; the pass is made anew over the window."""
        check_step(x, t, len(x), self.in_features, next(self.parameters(), x))
        if torch.is_autocast_enabled(x.device.type):
            with torch.autocast(x.device.type, enabled=False):
                return WindowedLayer.step(self, x.to(next(self.parameters(), x).dtype), t, state)
        now = self.project(x).unsqueeze(1)
        check_state(state, WindowState, "u", (len(x), -1, now.shape[2]), now.dtype, x)
        window, u, past = state
        if t is None:
            t = now.new_zeros(len(now), dtype=torch.float64) if past is None else past[:, -1] + self.gap_s
        stamp = t.unsqueeze(1)
        if u is None or past is None:
            # Copies are kept: a caller may fill x and t of its own anew for the next step.
            return self._scan(now, stamp, None)[:, -1], WindowState(window, now.clone(), stamp.clone())
        now, stamp = torch.cat([u, now], dim=1)[:, -window:], torch.cat([past, stamp], dim=1)[:, -window:]
        return self._scan(now, stamp, None)[:, -1], WindowState(window, now, stamp)


def unfolds_of(unfolds: int) -> int:
    """``unfolds`` steps of a solver, which must be some."""
    whole(unfolds >= 1, "unfolds", unfolds, "1 step or more")
    return unfolds


class InputLayer(WindowedLayer):
    """A windowed layer whose work on single steps is the linear map ``input``."""

    input: nn.Linear

    def project(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.input(x))
