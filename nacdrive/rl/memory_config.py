"""Options of an agent's memory, the same for PPO and imitation; imports nothing heavy."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nacdrive.common.errors import UserError

if TYPE_CHECKING:
    from nacdrive.models.agents.memory import MemorySpec

NO_MEMORY = "none"


@dataclass(frozen=True)
class MemoryConfig:
    """What an agent remembers with."""

    memory: str = NO_MEMORY
    """What the agent remembers with: a sequence layer that streams (lstm, gru, cfc, ltc-ncp, nac-steady, nac-exact,
    s4, mha, ..., or module:MyLayer); none has the last frames alone."""
    memory_window: int = 16
    """Decisions, the present one included, that the memory holds."""
    memory_width: int = 64
    """Width of the memory."""
    memory_heads: int = 4
    """Heads of a memory that is an attention."""
    memory_options: str = "{}"
    """Options of the layer itself as JSON, such as '{"topk": 8}'."""
    sequence_length: int = 32
    """With a memory: most decisions of a training sequence."""

    def __post_init__(self) -> None:
        if self.memory == NO_MEMORY and self.memory_options != "{}":
            raise UserError("--memory-options are for a memory: give --memory, such as nac-steady.")
        if self.memory_window < 2:
            raise UserError(f"--memory-window is {self.memory_window}: a memory holds at least 2 decisions.")
        for name in ("memory_width", "memory_heads", "sequence_length"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name.replace('_', '-')} is {getattr(self, name)}: give a number of at least 1.")
        _ = self.layer_options

    @property
    def layer_options(self) -> dict[str, Any]:
        """The memory's own options.

        Raises:
            UserError: if they are no JSON object.
        """
        try:
            options = json.loads(self.memory_options)
        except json.JSONDecodeError as error:
            raise UserError(f"--memory-options is no JSON ({error}): give such as '{{\"topk\": 8}}'.") from error
        if not isinstance(options, dict):
            raise UserError("--memory-options is no JSON object: give such as '{\"topk\": 8}'.")
        return options

    def memory_spec(self, gap_s: float) -> MemorySpec | None:
        """The memory of an agent whose decisions are usually ``gap_s`` apart; None for none."""
        if self.memory == NO_MEMORY:
            return None
        # Imported here: it brings torch along.
        from nacdrive.models.agents.memory import MemorySpec

        sizes = (self.memory_window, self.memory_width, self.memory_heads)
        return MemorySpec(self.memory, *sizes, gap_s, self.layer_options)
