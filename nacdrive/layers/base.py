"""What every sequence layer promises, so that a policy can carry any of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nacdrive.nac.validation import check_tensor, check_times, check_tokens, require, whole


class SequenceLayer(nn.Module):
    """A causal map from a sequence of feature vectors to a sequence of outputs.

    Output i depends on the steps i-window+1 .. i alone, so ``step`` repeated equals ``forward``: a layer can be
    trained on whole sequences and driven step by step, and layers of one window see the same.

    Args:
        in_features: width of the input.
        d_model: width of the output: hidden units of a recurrence, width of an attention.
        num_heads: heads of an attention; a layer without heads ignores them.
        window: how many steps, the present one included, an output may depend on.
        gap_s: typical time between two steps in seconds, the unit of the layer's time; ignored by a layer that
            feels no time.
        options: those of ``build``.

    Raises:
        ValueError: if a size, ``window`` or ``gap_s`` is out of range.
    """

    time_sense: Literal["none", "gaps", "clock"] = "none"
    """What of ``t`` reaches the output: nothing, the gaps between steps, or the absolute time."""
    past_sense: Literal["bag", "order", "times"] | None = None
    """What of the steps before the newest reaches the output: what they hold and nothing else, also their order, or
    also their times; None: the order, and the times of a layer that has a sense of time."""

    def __init__(
        self, in_features: int, d_model: int, num_heads: int, window: int, gap_s: float = 1.0, **options: Any
    ) -> None:
        super().__init__()
        whole(d_model >= 1, "d_model", d_model, "1 or more")
        whole(in_features >= 1, "in_features", in_features, "1 or more")
        require(0 < gap_s < float("inf"), "gap_s", gap_s, "a finite number of seconds above 0")
        self.in_features, self.d_model, self.num_heads = in_features, d_model, num_heads
        self.window, self.gap_s = self.window_of(window), gap_s
        self.build(**options)

    def build(self) -> None:
        """Make the layer's parts, of its sizes and with options of its own; the last that ``__init__`` does."""

    @abstractmethod
    def forward(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        """Outputs of all steps.

        Args:
            x: features, [B, T, in_features].
            t: absolute time of each step in seconds, [B, T]; None where steps have no meaningful time.
            padding: [B, T], True where a step is padding: excluded from attention, skipped by recurrences.

        Returns:
            [B, T, d_model]. Rows of padding steps hold no meaning.
        """

    def last(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        """[B, d_model]: what ``forward`` gives at the last step that is no padding.

        For a reader of a whole sequence; a layer that need not compute the other steps overrides it.
        """
        return last_step(self(x, t, padding), padding)

    def at(
        self, x: Tensor, t: Tensor, t_query: Tensor, asked: Tensor | None = None, padding: Tensor | None = None
    ) -> Tensor:
        """[B, Q, d_model]: what the layer answers at times ``t_query`` [B, Q], in seconds, from the steps up to them.

        Each answer is the output of one more step at that time, right behind the newest step up to it, which nothing
        remembers. ``asked`` [B, Q, in_features] is what that step holds; if not given, what the newest step before it
        holds. The rest as in ``forward``.

        Raises:
            ValueError: if the layer feels no time, a time lies before a sequence's first step or is none, or what is
                given is of another shape or type.
        """
        require(self.time_sense != "none", "layer", type(self).__name__, "one that feels time")
        check_tokens("x", x, self.in_features, next(self.parameters(), x), padding)
        check_tensor("t_query", t_query)
        count = t_query.shape[-1] if t_query.ndim else 0
        require(count > 0, "t_query", list(t_query.shape), "[batch, times] (seconds), none of them 0")
        t, t_query = check_times("t", t, *x.shape[:2]), check_times("t_query", t_query, len(x), count)
        visible = t.unsqueeze(1) <= t_query.unsqueeze(2)
        if padding is not None:
            visible = visible & ~padding.unsqueeze(1)
        newest = torch.where(visible, torch.arange(x.shape[1], device=x.device), -1).amax(2, keepdim=True)
        require(not bool((newest < 0).any()), "t_query", t_query.min().item(), "the time of the first step or later")
        # The window's steps, newest last; padding among them counts, as in ``forward``, that behind them does not.
        place = newest + torch.arange(1 - min(max(1, self.window - 1), x.shape[1]), 1, device=x.device)
        row, order = torch.arange(len(x), device=x.device)[:, None, None], place.clamp(min=0)
        steps, times, hidden = x[row, order], t[row, order], ~visible.gather(2, order) | (place < 0)
        asked = steps[:, :, -1] if asked is None else asked
        check_tokens("asked", asked, self.in_features, next(self.parameters(), x))
        require(asked.shape[:2] == t_query.shape, "asked", list(asked.shape), str([*t_query.shape, self.in_features]))
        steps = torch.cat([steps, asked.unsqueeze(2)], 2).flatten(0, 1)
        times = torch.cat([times, t_query.unsqueeze(2)], 2).flatten(0, 1)
        return self.last(steps, times, F.pad(hidden, (0, 1)).flatten(0, 1)).view(*t_query.shape, -1)

    def window_of(self, window: int | None) -> int:
        """How many steps a state of ``window`` remembers: the layer's own where it is None."""
        window = self.window if window is None else window
        whole(window >= 1, "window", window, "1 step or more")
        return window

    @abstractmethod
    def init_state(self, batch_size: int, window: int | None = None) -> Any:
        """State before the first step; ``window`` defaults to the layer's own."""

    @abstractmethod
    def step(self, x: Tensor, t: Tensor | None, state: Any) -> tuple[Tensor, Any]:
        """One step: x [B, in_features], t [B] seconds -> output [B, d_model] and the next state."""

    def optimizer_options(self) -> dict[str, dict[str, float]]:
        """Parameter name -> options it needs of its own, such as ``lr`` or ``weight_decay``; empty for most layers."""
        return {}

    def neuron_states(self, x: Tensor, t: Tensor | None = None) -> dict[str, Tensor]:
        """Named inner states at the last step of the window x [1, T, in_features]; empty where there are none."""
        return {}

    def circuit(self) -> dict[str, Any] | None:
        """The layer's wiring as plain JSON (``groups`` of neurons, ``edges`` between them); None without one."""
        return None


def split_heads(qkv: Tensor, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """[B, T, 3 d_model] -> q, k, v, each [B, heads, T, d_head]."""
    q, k, v = qkv.view(*qkv.shape[:2], 3, num_heads, -1).permute(2, 0, 3, 1, 4)
    return q, k, v


def last_step(x: Tensor, padding: Tensor | None) -> Tensor:
    """[B, d]: of x [B, T, d] the last step that is no padding; the first where all are."""
    if padding is None:
        return x[:, -1]
    last = torch.where(padding, -1, torch.arange(x.shape[1], device=x.device)).amax(dim=1).clamp(min=0)
    return x[torch.arange(len(x), device=x.device), last]


def visible(length: int, window: int, padding: Tensor | None, device: torch.device) -> Tensor | None:
    """Which keys a query may see, True where it may: [B or 1, 1, length, length]; None where that is the whole past.

    A padding step sees itself, so that every row sees something.
    """
    if window >= length and padding is None:
        return None
    past = torch.ones((length, length), dtype=torch.bool, device=device).tril()
    seen = past.triu(1 - window).expand(1, 1, length, length)
    if padding is None:
        return seen
    return (seen & ~padding[:, None, None, :]) | torch.eye(length, dtype=torch.bool, device=device)


def sliding_windows(x: Tensor, window: int) -> Tensor:
    """[B, T, ...] -> [B, T, window, ...]: the last ``window`` steps at each step, zeros before the first."""
    before = x.new_zeros((x.shape[0], window - 1, *x.shape[2:]))
    return torch.cat([before, x], dim=1).unfold(1, window, 1).movedim(-1, 2)
