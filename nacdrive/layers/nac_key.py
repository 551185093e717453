"""NAC with its circuit on the key alone, as a windowed sequence layer: an adapter around ``nacdrive.nac.NACKey``."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from nacdrive.layers.base import SequenceLayer
from nacdrive.layers.nac import circuit_json
from nacdrive.nac import KeyState, NACKey

GATES = ("phi", "omega", "rho")


class NACKeyLayer(SequenceLayer):
    """``NACKey`` over the last ``window`` steps, its unit of time ``gap_s``; ``options`` are those of ``NACKey``.

    With ``time_features=0`` it knows gaps alone: nothing depends on when the clock began.
    """

    def __init__(
        self, in_features: int, d_model: int, num_heads: int, window: int, gap_s: float = 1.0, **options: Any
    ) -> None:
        super().__init__(in_features, d_model, num_heads, window, gap_s)
        self.nac = NACKey(d_model, num_heads, in_features=in_features, time_scale=gap_s, **options)
        self.time_sense = "gaps" if self.nac.time_frequencies is None else "clock"

    def forward(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        y = self.nac(x, t=t, key_padding_mask=padding, window=self.window)
        assert isinstance(y, Tensor)
        return y

    def last(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        """See ``SequenceLayer.last``; one row of attention is computed."""
        y: Tensor = self.nac(x, t=t, key_padding_mask=padding, window=self.window, last_only=True)[:, 0]
        return y

    def init_state(self, batch_size: int, window: int | None = None) -> KeyState:
        """An empty memory of ``window`` steps."""
        return self.nac.init_state(batch_size, window or self.window)

    def step(self, x: Tensor, t: Tensor | None, state: KeyState) -> tuple[Tensor, KeyState]:
        return self.nac.step(x, t, state)

    def neuron_states(self, x: Tensor, t: Tensor | None = None) -> dict[str, Tensor]:
        """States of the last query over its window, heads first; see ``Policy.neurons``. ``t`` holds the lags."""
        states = self.nac.neuron_states(x, t=t, window=self.window, last_only=True)
        picked = {name: value[0] for name, value in states.items()}
        for name in ("t", "a", "logits", "weights", "q"):
            picked[name] = picked[name][:, 0]
        # One circuit for all heads.
        shared = {name: picked[name].expand(self.num_heads, -1, -1) for name in ("sensory", "inter", "command")}
        return {**picked, **shared}

    def circuit(self) -> dict[str, Any]:
        """The circuit of a moment (sensory: its normalised features); see ``circuit_json``."""
        return circuit_json(self.nac.wiring, [f"{gate} {head + 1}" for gate in GATES for head in range(self.num_heads)])
