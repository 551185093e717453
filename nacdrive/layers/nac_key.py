"""NAC with its circuit on the key alone, as a windowed sequence layer: an adapter around ``nacdrive.nac.NACKey``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nacdrive.layers.nac import CircuitLayer, circuit_json
from nacdrive.nac import NACKey

GATES = ("phi", "omega", "rho")
GROUPS = ("sensory", "inter", "command")


class PlainKey(NACKey):
    """The same without a circuit, which it is compared with: phi, omega and rho are numbers of the head."""

    def __init__(self, d_model: int, num_heads: int, **options: Any) -> None:
        super().__init__(d_model, num_heads, **options)
        del self.backbone
        self.phi = nn.Parameter(torch.zeros(num_heads))

    def circuit(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return F.pad(self.phi, (0, 2 * self.num_heads)).expand(*x.shape[:-1], -1), {}


class NACKeyLayer(CircuitLayer):
    """``NACKey`` over the last ``window`` steps, its unit of time ``gap_s``; ``options`` are those of ``NACKey``.

    With ``time_features=0`` it knows gaps alone: nothing depends on when the clock began. ``plain`` leaves the circuit
    out.
    """

    nac: NACKey

    def build(self, *, plain: bool = False, **options: Any) -> None:
        self.plain = plain
        kind = PlainKey if plain else NACKey
        self.nac = kind(self.d_model, self.num_heads, in_features=self.in_features, time_scale=self.gap_s, **options)
        self.time_sense = "gaps" if self.nac.time_frequencies is None else "clock"

    def neuron_states(self, x: Tensor, t: Tensor | None = None) -> dict[str, Tensor]:
        """States of the last query over its window, heads first; see ``Policy.neurons``. ``t`` holds the lags."""
        states = self.nac.neuron_states(x, t=t, window=self.window, last_only=True)
        picked = {name: value[0] for name, value in states.items()}
        for name in ("t", "a", "logits", "weights", "q"):
            picked[name] = picked[name][:, 0]
        # One circuit for all heads.
        shared = {name: picked[name].expand(self.num_heads, -1, -1) for name in GROUPS if name in picked}
        return {**picked, **shared}

    def circuit(self) -> dict[str, Any] | None:
        """The circuit of a moment (sensory: its normalised features); see ``circuit_json``."""
        if self.plain:
            return None
        return circuit_json(self.nac.wiring, [f"{gate} {head + 1}" for gate in GATES for head in range(self.num_heads)])
