"""Neuronal Attention Circuits as windowed sequence layers: adapters around ``NAC`` and ``NACKey`` of ``nacdrive.nac``.

Policies that drive use the gap between frames (``time_input="gap"``): absolute time grows without bound meanwhile.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nacdrive.layers.base import SequenceLayer
from nacdrive.nac import NAC, KeyState, NACKey, State, Wiring

GROUPS, GATES = ("inter", "command", "motor"), ("phi", "omega", "rho")
OF_MOMENT = ("sensory", "inter", "command")
"""Groups of neurons of which ``NACKey`` has one for each moment, not for each pair."""


class CircuitLayer(SequenceLayer):
    """A layer of ``nacdrive.nac``, called ``nac`` here, over the last ``window`` steps."""

    nac: NAC | NACKey
    causal: ClassVar[dict[str, Any]] = {}
    """What ``nac`` must be told for a query to see its past alone."""

    def forward(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        return cast(Tensor, self.nac(x, t=t, key_padding_mask=padding, window=self.window, **self.causal))

    def last(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        """See ``SequenceLayer.last``; the pairs of the last query alone are computed."""
        y: Tensor = self.nac(x, t=t, key_padding_mask=padding, window=self.window, last_only=True, **self.causal)[:, 0]
        return y

    def init_state(self, batch_size: int, window: int | None = None) -> State | KeyState:
        return self.nac.init_state(batch_size, self.window_of(window))

    def step(self, x: Tensor, t: Tensor | None, state: Any) -> tuple[Tensor, Any]:
        return self.nac.step(x, t, state)


class NACLayer(CircuitLayer):
    """NAC over the last ``window`` steps, whose time gate gets the gap since the step before.

    Fed with the clock itself, the gate would treat the same picture differently early and late in an episode and
    saturate; the gap does not depend on when the clock was started, is 1 at the usual pace (the value the paper takes
    where there is no time), and grows when a frame is late or lost. One unit of the layer's time is ``gap_s``; options
    are those of ``NAC``.
    """

    nac: NAC
    causal = {"is_causal": True}

    def build(self, **options: Any) -> None:
        given = {"time_input": options.pop("stamps", "gap"), **options}  # "stamps": its name in some files
        self.nac = NAC(self.d_model, self.num_heads, in_features=self.in_features, time_scale=self.gap_s, **given)
        clock = self.nac.time_input == "absolute" or self.nac.time_frequencies is not None
        self.time_sense = "clock" if clock else "gaps"
        self.past_sense = "times" if self.nac.keys_have_times else "bag"

    def neuron_states(self, x: Tensor, t: Tensor | None = None) -> dict[str, Tensor]:
        """States of the last query over its window, heads first; see ``Policy.neurons``."""
        states = self.nac.neuron_states(x, t=t, is_causal=True, window=self.window, last_only=True)
        return {name: value[0] if name in ("k", "v") else value[0, :, 0] for name, value in states.items()}

    def circuit(self) -> dict[str, Any]:
        """The pair backbone (sensory: the query's half, then the key's); see ``circuit_json``."""
        return circuit_json(self.nac.wiring, ["phi", "omega"])


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
        shared = {name: picked[name].expand(self.num_heads, -1, -1) for name in OF_MOMENT if name in picked}
        return {**picked, **shared}

    def circuit(self) -> dict[str, Any] | None:
        """The circuit of a moment (sensory: its normalised features); see ``circuit_json``."""
        if self.plain:
            return None
        return circuit_json(self.nac.wiring, [f"{gate} {head + 1}" for gate in GATES for head in range(self.num_heads)])


def circuit_json(wiring: Wiring, motors: list[str]) -> dict[str, Any]:
    """A wiring as plain JSON: groups of neurons and signed synapses between them.

    ``groups`` maps sensory, inter, command and motor to their sizes; ``edges`` lists ``[from group, index, to group,
    index, polarity]``; ``motors`` names the motor neurons.
    """
    place = {int(n): (g, i) for g in GROUPS for i, n in enumerate(wiring.neurons(g))}
    sensory, inner = wiring.sensory_adjacency, wiring.adjacency
    edges: list[list[Any]] = [["sensory", i, *place[j], int(sensory[i, j])] for i, j in np.argwhere(sensory).tolist()]
    edges += [[*place[i], *place[j], int(inner[i, j])] for i, j in np.argwhere(inner).tolist()]
    sizes = {group: len(wiring.neurons(group)) for group in GROUPS}
    return {"groups": {"sensory": wiring.inputs, **sizes}, "motors": motors, "edges": edges}
