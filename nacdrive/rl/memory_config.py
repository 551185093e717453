"""Options of an agent that learns and of its memory, the same for PPO and imitation; imports nothing heavy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Interval

from nacdrive.common.errors import UserError
from nacdrive.common.options import Count, NotNegative, SeedOption, Share
from nacdrive.models.presets import FormOption, driving_form
from nacdrive.training.config import BatchOption

if TYPE_CHECKING:
    from nacdrive.models.agents.memory import MemorySpec

NO_MEMORY = "none"


class AgentTraining(FormOption, BatchOption, SeedOption, defaults={"batch_size": 256}):
    """How it is learnt."""

    model: str = NO_MEMORY
    """What the agent remembers with: a sequence layer that streams (lstm, gru, cfc, ltc-ncp, nac-steady, nac-exact,
    s4, mha, ..., or module:MyLayer); none has the last frames alone."""
    memory_window: Annotated[int, Interval(ge=2, le=10**6)] = 16
    """Decisions, the present one included, that the memory holds."""
    memory_width: Count = 64
    """Width of the memory."""
    memory_heads: Count = 4
    """Heads of a memory that is an attention."""
    memory_options: str = "{}"
    """Options of the layer itself as JSON, such as '{"topk": 8}'."""
    sequence_length: Count = 32
    """With a memory: most decisions of a training sequence."""
    learning_rate: tuple[NotNegative, NotNegative] = (3e-4, 6e-6)
    """Learning rate at the start and at the end; falls linearly, of imitate along half a cosine."""
    ema_decay: Share = 0.95
    """Per update (of imitate per minibatch), how much of the averaged weights is kept; the averaged weights are what is
    evaluated and shipped, and of imitate what drives."""
    eval_every: Count = 204_800
    """Decisions (of imitate rounds) between two evaluations on unseen tracks, of train on carracing in the official
    environment, of imitate on the fast renderer."""
    eval_episodes: Count = 10
    """Tracks of each of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model == NO_MEMORY and (self.memory_options != "{}" or self.paper_form):
            given = "--paper-form is" if self.paper_form else "--memory-options are"
            raise UserError(f"{given} for a memory: give --model, such as nac-steady.")
        _ = self.layer_options

    @property
    def layer_options(self) -> dict[str, Any]:
        try:
            options = json.loads(self.memory_options)
        except json.JSONDecodeError as error:
            raise UserError(f"--memory-options is no JSON ({error}): give such as '{{\"topk\": 8}}'.") from error
        if not isinstance(options, dict):
            raise UserError("--memory-options is no JSON object: give such as '{\"topk\": 8}'.")
        return options

    def memory_spec(self, gap_s: float) -> MemorySpec | None:
        """The memory of an agent whose decisions are usually ``gap_s`` apart; None for none."""
        if self.model == NO_MEMORY:
            return None
        # Imported here: it brings torch along.
        from nacdrive.models.agents.memory import MemorySpec

        sizes = (self.memory_window, self.memory_width, self.memory_heads)
        form = driving_form(self.model, paper=self.paper_form)
        return MemorySpec(form.layer, *sizes, gap_s, {**form.options, **self.layer_options})
