"""The circuit: which neuron may reach which, as adjacency matrices that equal those of ``ncps`` 1.0.1.

``ncps`` itself is only the oracle of the tests: it pulls in more than this room may import, so the
construction is repeated here with the same calls of ``numpy.random.RandomState`` in the same order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.nac.validation import require

DEFAULT_SEED = 22222  # that of ncps.wirings.AutoNCP
GROUPS = ("sensory", "inter", "command", "motor")
Synapses = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Wiring:
    """A wiring: who is connected to whom, with which polarity.

    Neurons are numbered as in ncps: first ``motors``, then ``commands``, then the inter neurons.

    Attributes:
        adjacency: ``[units, units]``, source by destination, in -1 (inhibitory), 0 (none), +1 (excitatory).
        sensory_adjacency: ``[inputs, units]``, the same for synapses from the inputs.
        motors: number of motor neurons (outputs).
        commands: number of command neurons; the others are inter neurons.
    """

    adjacency: Synapses
    sensory_adjacency: Synapses
    motors: int
    commands: int

    def __post_init__(self) -> None:
        units = self.adjacency.shape[0]
        if self.adjacency.shape != (units, units):
            raise ValueError(f"adjacency has shape {self.adjacency.shape}; it must be square [units, units]")
        if self.sensory_adjacency.ndim != 2 or self.sensory_adjacency.shape[1] != units:
            raise ValueError(
                f"sensory_adjacency has shape {self.sensory_adjacency.shape}; it must be [inputs, {units}]"
            )
        if self.motors < 0 or self.commands < 0 or self.motors + self.commands > units:
            raise ValueError(f"motors={self.motors} and commands={self.commands} do not fit into {units} units")
        for name, matrix in (("adjacency", self.adjacency), ("sensory_adjacency", self.sensory_adjacency)):
            if not np.isin(matrix, (-1, 0, 1)).all():
                raise ValueError(f"{name} holds values other than -1, 0 and 1")

    @property
    def units(self) -> int:
        """Number of neurons, the inputs not counted."""
        return int(self.adjacency.shape[0])

    @property
    def inputs(self) -> int:
        return int(self.sensory_adjacency.shape[0])

    @property
    def inters(self) -> int:
        return self.units - self.motors - self.commands

    def neurons(self, group: str) -> NDArray[np.int64]:
        """Indices of ``group`` (``sensory``, ``inter``, ``command`` or ``motor``) among inputs or units."""
        first = {"sensory": 0, "motor": 0, "command": self.motors, "inter": self.motors + self.commands}
        size = {"sensory": self.inputs, "motor": self.motors, "command": self.commands, "inter": self.inters}
        if group not in first:
            raise ValueError(f"group={group!r}; allowed are {', '.join(GROUPS)}")
        return np.arange(first[group], first[group] + size[group])

    @property
    def layered(self) -> bool:
        """True if every synapse is sensory -> inter -> command (-> command) -> motor, as in an NCP."""
        inter, command, motor = (self.neurons(g) for g in ("inter", "command", "motor"))
        allowed = np.zeros((self.units, self.units), dtype=bool)
        for source, target in ((inter, command), (command, command), (command, motor)):
            allowed[np.ix_(source, target)] = True
        astray = np.abs(self.adjacency)[~allowed].sum() + np.abs(np.delete(self.sensory_adjacency, inter, axis=1)).sum()
        return self.inters > 0 and not astray


def ncp(
    inputs: int,
    inter: int,
    command: int,
    motor: int,
    sensory_fanout: int,
    inter_fanout: int,
    recurrent_command_synapses: int,
    motor_fanin: int,
    seed: int = DEFAULT_SEED,
) -> Wiring:
    """Wiring as ``ncps.wirings.NCP(...).build(inputs)`` has it; ``ValueError`` if a fan exceeds the next layer."""
    for name, fan, layer, size in (
        ("motor_fanin", motor_fanin, "command", command),
        ("sensory_fanout", sensory_fanout, "inter", inter),
        ("inter_fanout", inter_fanout, "command", command),
    ):
        if fan > size:
            raise ValueError(f"{name}={fan}, but there are only {size} {layer} neurons")
    sizes = inputs, inter, command, motor
    fans = sensory_fanout, inter_fanout, recurrent_command_synapses, motor_fanin
    adjacency, sensory = draw_synapses(sizes, fans, seed)
    return Wiring(adjacency.copy(), sensory.copy(), motors=motor, commands=command)


@lru_cache(maxsize=32)  # a policy's layer and its copies draw the same circuit, of thousands of features, many times
def draw_synapses(
    sizes: tuple[int, int, int, int], fans: tuple[int, int, int, int], seed: int
) -> tuple[Synapses, Synapses]:
    """``adjacency`` and ``sensory_adjacency`` of an NCP, to be left unchanged; arguments in the order of ``ncp``'s."""
    inputs, inter, command, motor = sizes
    sensory_fanout, inter_fanout, recurrent_command_synapses, motor_fanin = fans
    rng, units = np.random.RandomState(seed), inter + command + motor
    adjacency, sensory = np.zeros((units, units), dtype=np.int32), np.zeros((inputs, units), dtype=np.int32)
    motors, commands, inters = np.arange(motor), np.arange(motor, motor + command), np.arange(motor + command, units)
    signs = np.array([-1, 1])

    def draw(members: NDArray[Any], count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """So many of ``members``, and a sign for the synapse of each; as ``rng.choice`` draws them, only faster."""
        return members[rng.permutation(len(members))[:count]], signs[rng.randint(0, 2, size=count)]

    def fan_out(sources: NDArray[Any], targets: NDArray[Any], fan: int, synapses: Synapses) -> None:
        for source in sources:
            reached, sign = draw(targets, fan)
            synapses[source, reached] = sign
        # A neuron that nobody reached gets the mean fan-in, so that none is deaf.
        mean_fan_in = int(np.clip(int(len(sources) * fan / len(targets)), 1, len(sources)))
        for target in targets[~synapses[np.ix_(sources, targets)].any(axis=0)]:
            reaching, sign = draw(sources, mean_fan_in)
            synapses[reaching, target] = sign

    fan_out(np.arange(inputs), inters, sensory_fanout, sensory)
    fan_out(inters, commands, inter_fanout, adjacency)
    for _ in range(recurrent_command_synapses):
        source, target = rng.choice(commands), rng.choice(commands)
        adjacency[source, target] = rng.choice(signs)
    for target in motors:
        reaching, sign = draw(commands, motor_fanin)
        adjacency[reaching, target] = sign
    mean_fan_out = int(np.clip(int(motor * motor_fanin / command), 1, motor))
    for source in commands[~adjacency[np.ix_(commands, motors)].any(axis=1)] if mean_fan_out else ():
        reached, sign = draw(motors, mean_fan_out)
        adjacency[source, reached] = sign
    return adjacency, sensory


def auto_ncp(inputs: int, units: int, outputs: int, sparsity: float = 0.5, seed: int = DEFAULT_SEED) -> Wiring:
    """NCP wiring from a size and a sparsity, equal to ``ncps.wirings.AutoNCP(...).build(inputs)``.

    Of ``units`` neurons ``outputs`` are motor neurons, less than ``units - 2``; ``sparsity``, the share of absent
    synapses, is 0.1 to 0.9.
    """
    require(0.1 <= sparsity <= 0.9, "sparsity", sparsity, "0.1 to 0.9")
    if outputs >= units - 2:
        raise ValueError(f"outputs={outputs} with units={units}; outputs must be less than units - 2")
    density = 1.0 - sparsity
    command = max(int(0.4 * (units - outputs)), 1)
    inter = units - outputs - command
    return ncp(
        inputs,
        inter,
        command,
        outputs,
        sensory_fanout=max(int(inter * density), 1),
        inter_fanout=max(int(command * density), 1),
        recurrent_command_synapses=max(int(command * density * 2), 1),
        motor_fanin=max(int(command * density), 1),
        seed=seed,
    )


def full_wiring(inputs: int, inter: int, command: int, motor: int, recurrent: bool = True) -> Wiring:
    """Every synapse that an NCP of this size could have (sparsity 0; Theorem 2 of the paper needs it)."""
    return layered_wiring(
        np.ones((inputs, inter), dtype=np.int32),
        np.ones((inter, command), dtype=np.int32),
        np.full((command, command), int(recurrent), dtype=np.int32),
        np.ones((command, motor), dtype=np.int32),
    )


def random_wiring(
    inputs: int, inter: int, command: int, motor: int, sparsity: float, *, recurrent: bool, seed: int = DEFAULT_SEED
) -> Wiring:
    """Layers of an NCP's size whose synapses are drawn blindly (the paper's FC ablation with matched sparsity).

    Every neuron keeps at least one incoming synapse.
    """
    require(0.0 <= sparsity < 1.0, "sparsity", sparsity, "0 <= sparsity < 1")
    rng = np.random.RandomState(seed)

    def layer(sources: int, targets: int) -> Synapses:
        present = rng.permutation(sources * targets) >= round(sources * targets * sparsity)
        synapses = present.reshape(sources, targets) * rng.choice([-1, 1], size=(sources, targets))
        for target in np.flatnonzero(~synapses.any(axis=0)):
            synapses[rng.randint(sources), target] = rng.choice([-1, 1])
        return np.asarray(synapses, dtype=np.int32)

    loops = layer(command, command) if recurrent else np.zeros((command, command), dtype=np.int32)
    return layered_wiring(layer(inputs, inter), layer(inter, command), loops, layer(command, motor))


def layered_wiring(sensory: Synapses, inter: Synapses, command: Synapses, motor: Synapses) -> Wiring:
    """A wiring from its four blocks: ``[inputs, I]``, ``[I, C]``, ``[C, C]`` and ``[C, motors]``."""
    commands, motors = motor.shape
    units = sensory.shape[1] + commands + motors
    adjacency = np.zeros((units, units), dtype=np.int32)
    adjacency[motors + commands :, motors : motors + commands] = inter
    adjacency[motors : motors + commands, motors : motors + commands] = command
    adjacency[motors : motors + commands, :motors] = motor
    reached = np.zeros((sensory.shape[0], units), dtype=np.int32)
    reached[:, motors + commands :] = sensory
    return Wiring(adjacency, reached, motors=motors, commands=commands)


def from_ncps(wiring: Any) -> Wiring:
    """The same circuit from a built ``ncps.wirings`` object of any kind (read by its attributes).

    Neurons that ncps calls neither motor nor command are inter neurons; a wiring without command neurons
    (``Random``, ``FullyConnected``) has all its hidden neurons as command neurons, which are recurrent.
    """
    if wiring.sensory_adjacency_matrix is None:
        raise ValueError("wiring is not built: call wiring.build(inputs) first")
    kinds = [wiring.get_type_of_neuron(i) for i in range(wiring.units)]
    motors = kinds.count("motor")
    commands = kinds.count("command") or wiring.units - motors
    adjacency = np.asarray(wiring.adjacency_matrix, dtype=np.int32)
    sensory = np.asarray(wiring.sensory_adjacency_matrix, dtype=np.int32)
    return Wiring(adjacency.copy(), sensory.copy(), motors=motors, commands=commands)


def sensory_wiring(features: int, d_model: int, sparsity: float, gate: str, seed: int) -> Wiring:
    """Circuit of a sensory gate: AutoNCP(ceil((d - 0.5) / 0.6), 0), which has d_model inter neurons."""
    units = math.ceil((d_model - 0.5) / 0.6)
    if sparsity == 0:
        return full_wiring(features, d_model, units - d_model, 0)
    if gate == "fc":
        return random_wiring(features, d_model, units - d_model, 0, sparsity, recurrent=False, seed=seed)
    return auto_ncp(features, units, 0, sparsity, seed)


def backbone_wiring(
    inputs: int, d_model: int, sparsity: float, gate: str, seed: int, units: int | None = None
) -> Wiring:
    """Circuit of the backbone: AutoNCP(d + floor(d / 0.6), 2) over the pair's inputs."""
    units = units or d_model + math.floor(d_model / 0.6)
    command = max(int(0.4 * (units - 2)), 1)
    inter = units - 2 - command
    if gate == "fc":
        return random_wiring(inputs, inter, command, 2, sparsity, recurrent=False, seed=seed)
    if sparsity == 0:
        return full_wiring(inputs, inter, command, 2)
    return auto_ncp(inputs, units, 2, sparsity, seed)
