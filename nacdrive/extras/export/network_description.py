"""A policy's network as plain numbers and arrays, from which every export that is no torch is written.

Shapes: H heads of D channels, I inter and C command neurons, F features of a frame, d outputs of the sequence
layer, U units of a recurrence. All arrays are float32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nacdrive.common import camera_mount
from nacdrive.common.errors import UserError
from nacdrive.envs.registry import action_names
from nacdrive.layers.base import SequenceLayer
from nacdrive.layers.nac import NACKeyLayer, NACLayer
from nacdrive.layers.ncp import CfCLayer
from nacdrive.layers.rnn import DenseLayer, GRULayer, LSTMLayer
from nacdrive.models.driving import area_weights
from nacdrive.models.policy import Policy
from nacdrive.nac import NAC, Euler, NACKey
from nacdrive.nac.backbone import Synapses
from nacdrive.nac.dynamics import Dynamics

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Linear:
    """y = W x + b."""

    weight: Array  # [outputs, inputs]
    bias: Array  # [outputs]


@dataclass(frozen=True)
class Convolution:
    """A convolution without padding."""

    weight: Array  # [out channels, in channels, kernel, kernel]
    bias: Array  # [out channels]
    stride: int  # of rows and of columns


@dataclass(frozen=True)
class Taps:
    """Each new row (or column) is a weighted sum of neighbouring old ones."""

    first: NDArray[np.int32]  # [new] index of the first old one
    weight: Array  # [new, taps] weights of that and those behind it


@dataclass(frozen=True)
class Preprocessing:
    """From the camera's uint8 frame to the numbers -1 .. 1 that the convolutions see."""

    height: int
    width: int
    first_row: int  # first row that is kept; the rows are those that down reaches
    rows: int  # rows that the convolutions see
    columns: int
    masked_rows: tuple[int, int] | None  # rows [from, to) of what they see that are set to 0; None for none
    turn: tuple[tuple[float, ...], ...] | None = None
    """[3, 3]: pixel (column, row, 1) of the upright picture -> pixel of the frame, up to a factor; None where a frame
    is not turned upright. Numbers of double precision: ``common.camera_mount`` says how places are rounded."""
    down: Taps | None = None  # new rows from old ones; None where a frame is neither turned, cut, resized nor made YUV
    across: Taps | None = None  # new columns from old ones; None as above
    colour: Array | None = None  # [old channel, new channel]; None where colours stay as they are
    offset: Array | None = None  # [new channel] added behind colour; None as above


@dataclass(frozen=True, kw_only=True)
class CircuitStep:
    """What both forms of NAC have, one frame at a time over the last ``window`` frames."""

    window: int  # frames that a decision may depend on
    heads: int  # H
    topk: int  # keys that a query is paired with, at most
    mode: str  # exact, euler or steady
    euler_steps: int
    euler_step_s: float | None  # fixed step of euler; None divides the pair's time by euler_steps
    time_scale: float  # seconds that count as one unit of time
    out: Linear  # [d, d] behind the heads


@dataclass(frozen=True, kw_only=True)
class NACStep(CircuitStep):
    """A Neuronal Attention Circuit (paper, Eqns. 13-19)."""

    kind: ClassVar[str] = "nac"
    phi: str  # bound of the content gate: sigmoid, tanh or none
    time_quadrature: bool  # whether values are weighted by the pair's time; by delta_t if not
    delta_t: float  # the constant weight of values
    eps: float
    activation: str  # of inter and command neurons: tanh, sigmoid, silu or linear
    unfolds: int  # updates of the command neurons
    time_input: str  # tau of the time gate: gap, absolute or elapsed
    query: Linear  # [d, F] sensory gate of the queries
    key: Linear  # [d, F] of the keys
    value: Linear  # [d, F] of the values
    first_query: Array  # [H, D, I] first layer of the pair backbone, from the query
    first_key: Array  # [H, D, I] the same, from the key
    first_bias: Array  # [H, I]
    inter: Array | None  # [H, I, C] to command neurons; None in a circuit whose first layer they are (I = C)
    inter_bias: Array | None  # [H, C]; None as above
    command: Array | None  # [H, C, C] recurrent synapses of the command neurons; None without any
    motor: Array  # [H, C, 2] to phi and omega
    motor_bias: Array  # [H, 2]
    time_query: Array  # [H, D, 2] slope and offset of the time gate, from the query
    time_key: Array  # [H, D, 2] the same, from the key
    time_bias: Array  # [H, 2]
    logit_scale: Array  # [H] factor of the logits

    @property
    def head_dim(self) -> int:
        return int(self.first_query.shape[1])


@dataclass(frozen=True, kw_only=True)
class NACKeyStep(CircuitStep):
    """NAC with its circuit on the key; all heads share the circuit's neurons."""

    kind: ClassVar[str] = "nac-key"
    norm: Linear  # [F] factors and offsets behind the features' normalisation
    norm_eps: float
    frequencies: Array  # [m] of the time features: sine and cosine of each, behind the features, for queries and keys
    query: Linear  # [d, F + 2 m], divided by the root of D
    key: Linear  # [d, F + 2 m]
    value: Linear  # [d, F]
    inter: Linear  # [I, F] synapses of the circuit's inter neurons, whose function is tanh
    command: Linear  # [C, I] of its command neurons, likewise
    motor: Linear  # [3 H, C] to phi, omega and rho of every head, the rates of the heads in their bias
    gamma: Array  # [H] factor of the circuit's part of the logits

    @property
    def head_dim(self) -> int:
        return len(self.query.bias) // self.heads


@dataclass(frozen=True)
class RecurrentStep:
    """A GRU or LSTM, begun anew for every window of frames."""

    kind: str  # gru or lstm
    window: int  # frames that a decision may depend on
    input: Linear  # [gates d, F]; r, z, n of a GRU, i, f, g, o of an LSTM, whose recurrent bias is added to this one
    recurrent: Array  # [gates d, d]
    recurrent_bias: Array  # [gates d]; of an LSTM zeros


@dataclass(frozen=True)
class CfCStep:
    """A closed-form continuous-time network, begun anew for every window of frames."""

    kind: ClassVar[str] = "cfc"
    window: int  # frames that a decision may depend on
    gap_s: float  # seconds that count as one unit of time
    input: Linear  # [U, F] of the backbone, its slope included
    recurrent: Array  # [U, d] the same, from the state
    heads: Linear  # [4 d, U] from the backbone's tanh, its scale included: f, k, a, b


@dataclass(frozen=True)
class DenseStep:
    """A dense layer with ELU on the present frame alone."""

    kind: ClassVar[str] = "dense"
    layer: Linear  # [d, F]


Sequence = NACStep | NACKeyStep | RecurrentStep | CfCStep | DenseStep


@dataclass(frozen=True)
class NetworkDescription:
    """All that a policy computes from a frame and its time to an action."""

    name: str
    task: str
    model: str  # registered name of its sequence layer
    gap_s: float  # typical time between two decisions, in seconds
    preprocessing: Preprocessing
    activation: str  # of convolutions and of the head: relu or elu
    convolutions: tuple[Convolution, ...]
    projection: Linear | None  # [F, outputs of the last convolution] behind them; None where those are the features
    sequence: Sequence
    hidden: Linear  # [dense, d] of the head; activation follows
    output: Linear  # [outputs, dense] scores of the actions; or steering, and perhaps throttle minus brake
    actions: Array  # [outputs, 3] steering, throttle and brake of each choice; [0, 3] where control is continuous
    labels: tuple[str, ...]

    @property
    def features(self) -> int:
        """F, what the sequence layer gets of a frame."""
        return int(np.prod(self.feature_shape())) if self.projection is None else len(self.projection.bias)

    def feature_shape(self) -> tuple[int, int, int]:
        """Channels, rows and columns behind the last convolution; they are flattened in that order."""
        return self.shapes()[-1]

    def shapes(self) -> list[tuple[int, int, int]]:
        """Channels, rows and columns before the first convolution and behind each."""
        result = [(3, self.preprocessing.rows, self.preprocessing.columns)]
        for layer in self.convolutions:
            out, _, kernel, _ = layer.weight.shape
            _, rows, columns = result[-1]
            result.append((out, (rows - kernel) // layer.stride + 1, (columns - kernel) // layer.stride + 1))
        return result


def describe(policy: Policy) -> NetworkDescription:
    """What ``policy`` computes."""
    config, network = policy.config, policy.network
    actions = np.array(() if config.continuous else config.actions, dtype=np.float32).reshape(-1, 3)
    head = [layer for layer in network.head if isinstance(layer, nn.Linear)]
    return NetworkDescription(
        name=policy.name,
        task=config.task,
        model=config.model,
        gap_s=config.gap_s,
        preprocessing=_preprocessing(policy),
        activation=config.activation,
        convolutions=tuple(
            Convolution(_array(layer.weight), _bias(layer), int(layer.stride[0]))
            for layer in network.vision
            if isinstance(layer, nn.Conv2d)
        ),
        projection=None if network.projection is None else _linear(network.projection),
        sequence=_sequence(network.sequence, policy),
        hidden=_linear(head[0]),
        output=_linear(head[1]),
        actions=actions,
        labels=_labels(policy),
    )


def without_idle_neurons(step: NACStep) -> NACStep:
    """The same circuit without the neurons from which no synapse leads on to phi or omega; the result is the same."""
    needed = (step.motor != 0).any(axis=(0, 2))
    loops = None if step.command is None or step.unfolds == 1 else (step.command != 0).any(axis=0)
    if loops is not None:
        for _ in range(step.unfolds - 1):
            needed = needed | loops[:, needed].any(axis=1)
    if not needed.any():
        needed[0] = True  # arrays without entries are no C
    command = None if loops is None or step.command is None else step.command[:, needed][:, :, needed]
    step = replace(step, command=command, motor=step.motor[:, needed])
    used = needed
    if step.inter is not None and step.inter_bias is not None:
        inter = step.inter[..., needed]
        used = (inter != 0).any(axis=(0, 2))
        if not used.any():
            used[0] = True
        step = replace(step, inter=inter[:, used], inter_bias=step.inter_bias[:, needed])
    return replace(
        step,
        first_query=step.first_query[..., used],
        first_key=step.first_key[..., used],
        first_bias=step.first_bias[:, used],
    )


def _array(x: Tensor) -> Array:
    return np.ascontiguousarray(x.detach().float().cpu().numpy())


def _bias(layer: nn.Linear | nn.Conv2d) -> Array:
    return np.zeros(len(layer.weight), np.float32) if layer.bias is None else _array(layer.bias)


def _linear(layer: nn.Linear) -> Linear:
    return Linear(_array(layer.weight), _bias(layer))


def _labels(policy: Policy) -> tuple[str, ...]:
    config = policy.config
    if config.continuous:
        return ("steering", "pedal")[: config.outputs]
    names = action_names(config.task)
    if len(names) == len(config.actions):
        return tuple(names)
    return tuple(f"steering {s:g}, throttle {t:g}, brake {b:g}" for s, t, b in config.actions)


def _preprocessing(policy: Policy) -> Preprocessing:
    config, preprocess = policy.config, policy.network.preprocess
    rows, columns = config.input_size
    plain = Preprocessing(config.height, config.width, 0, rows, columns, config.masked_rows)
    if preprocess is None:
        return plain
    return replace(
        plain,
        first_row=preprocess.first,
        turn=tuple(map(tuple, camera_mount.homography().tolist())) if config.upright else None,
        down=_taps(_array(area_weights(preprocess.last - preprocess.first, rows))),
        across=_taps(_array(area_weights(config.width, columns))),
        colour=_array(preprocess.colour.T) if config.yuv else None,
        offset=_array(preprocess.offset[:, 0]) if config.yuv else None,
    )


def _taps(matrix: Array) -> Taps:
    """``matrix`` [new, old], in which each row has few entries, all beside one another."""
    starts = [np.flatnonzero(row)[0] for row in matrix]
    width = max(int(np.flatnonzero(row)[-1]) + 1 - int(start) for row, start in zip(matrix, starts, strict=True))
    first = np.array([min(int(start), matrix.shape[1] - width) for start in starts], dtype=np.int32)
    weight = np.stack([row[start : start + width] for row, start in zip(matrix, first, strict=True)])
    return Taps(first, np.ascontiguousarray(weight))


@singledispatch
def _sequence(layer: SequenceLayer, policy: Policy) -> Sequence:
    what = f"the sequence layer '{policy.config.model}' has no export to C or HTML"
    raise UserError(f"{what}: those are for NAC, gru, lstm, cfc and dense.")


@_sequence.register
def _nac(layer: NACLayer, policy: Policy) -> NACStep:
    nac = layer.nac
    circuit = _circuit(policy, nac, nac.options.dynamics, layer.window)
    exact = nac.chooses_exactly(layer.window)
    _refuse(policy, "time_features", nac.time_frequencies is not None)
    _refuse(policy, "input_norm", nac.input_norm is not None)
    _refuse(policy, "the square-root partition of Top-K", circuit["topk"] < layer.window and not exact)
    net, heads, depth = nac.backbone, nac.num_heads, nac.head_dim

    def each(x: Tensor) -> Array:
        """One copy per head."""
        return _array(x.expand(heads, *x.shape[1:]))

    first, time = each(net.sensory.effective()), each(nac.time_gate.weight)
    inter, command = net.inter, net.command
    scale = np.ones(heads, np.float32) if nac.logit_scale is None else _array(nac.logit_scale.expand(heads))
    assert net.sensory.bias is not None and net.motor.bias is not None
    return NACStep(
        **circuit,
        phi=nac.options.phi,
        time_quadrature=nac.options.quadrature == "time",
        delta_t=nac.options.delta_t,
        eps=nac.options.eps,
        activation=net.activation,
        unfolds=net.unfolds if command is not None else 1,
        time_input=nac.time_input,
        query=_synapses(nac.q_gate),
        key=_synapses(nac.k_gate),
        value=_synapses(nac.v_gate),
        first_query=np.ascontiguousarray(first[:, :depth]),
        first_key=np.ascontiguousarray(first[:, depth:]),
        first_bias=each(net.sensory.bias),
        inter=None if inter is None else each(inter.effective()),
        inter_bias=None if inter is None or inter.bias is None else each(inter.bias),
        command=None if command is None or net.unfolds == 1 else each(command.effective()),
        motor=each(net.motor.effective()),
        motor_bias=each(net.motor.bias),
        time_query=np.ascontiguousarray(time[:, :depth]),
        time_key=np.ascontiguousarray(time[:, depth:]),
        time_bias=each(nac.time_gate.bias),
        logit_scale=scale,
    )


def _refuse(policy: Policy, option: str, present: bool) -> None:
    if present:
        raise UserError(f"{policy.name} uses {option}, which has no export to C or HTML: give another model.")


def _circuit(policy: Policy, nac: NAC | NACKey, dynamics: Dynamics, window: int) -> dict[str, Any]:
    _refuse(policy, "an adaptive Euler step", isinstance(dynamics, Euler) and dynamics.adaptive)
    euler = dynamics if isinstance(dynamics, Euler) else None
    return {
        "window": window,
        "heads": nac.num_heads,
        "topk": window if nac.topk is None else min(nac.topk, window),
        "mode": type(dynamics).__name__.lower(),
        "euler_steps": euler.steps if euler else 0,
        "euler_step_s": euler.step if euler else None,
        "time_scale": float(nac.time_scale),
        "out": _linear(nac.out_proj),
    }


def _synapses(synapses: Synapses) -> Linear:
    """Those of a circuit of which there is one copy, as they act."""
    assert synapses.bias is not None
    return Linear(np.ascontiguousarray(_array(synapses.effective()[0]).T), _array(synapses.bias[0]))


@_sequence.register
def _nac_key(layer: NACKeyLayer, policy: Policy) -> NACKeyStep:
    nac, net = layer.nac, layer.nac.backbone
    query, motor = _linear(nac.query), _synapses(net.motor)
    rates = torch.cat([torch.zeros_like(nac.omega), nac.omega, nac.rho])
    frequencies = nac.time_frequencies
    assert net.inter is not None
    return NACKeyStep(
        **_circuit(policy, nac, nac.dynamics, layer.window),
        norm=Linear(_array(nac.input_norm.weight), _array(nac.input_norm.bias)),
        norm_eps=nac.input_norm.eps,
        frequencies=np.zeros(0, np.float32) if frequencies is None else _array(frequencies),
        query=Linear(query.weight / nac.head_dim**0.5, query.bias / nac.head_dim**0.5),
        key=_linear(nac.key),
        value=_linear(nac.value),
        inter=_synapses(net.sensory),
        command=_synapses(net.inter),
        motor=Linear(motor.weight, motor.bias + _array(rates)),
        gamma=_array(nac.gamma),
    )


@_sequence.register
def _recurrent(layer: GRULayer | LSTMLayer, policy: Policy) -> RecurrentStep:
    cell = layer.gru if isinstance(layer, GRULayer) else layer.lstm
    bias: Tensor = cell.get_parameter("bias_ih_l0")
    recurrent_bias: Tensor = cell.get_parameter("bias_hh_l0")
    if isinstance(layer, LSTMLayer):  # a GRU has a gate between the two
        bias, recurrent_bias = bias + recurrent_bias, torch.zeros_like(bias)
    return RecurrentStep(
        "gru" if isinstance(layer, GRULayer) else "lstm",
        layer.window,
        Linear(_array(cell.get_parameter("weight_ih_l0")), _array(bias)),
        _array(cell.get_parameter("weight_hh_l0")),
        _array(recurrent_bias),
    )


@_sequence.register
def _cfc(layer: CfCLayer, policy: Policy) -> CfCStep:
    with torch.no_grad():
        return CfCStep(
            layer.window,
            layer.gap_s,
            Linear(_array(0.666 * layer.input.weight), _array(0.666 * layer.input.bias)),
            _array(0.666 * layer.recurrent),
            Linear(_array(1.7159 * layer.heads.weight), _array(layer.heads.bias)),
        )


@_sequence.register
def _dense(layer: DenseLayer, policy: Policy) -> DenseStep:
    linear = layer.dense[0]
    assert isinstance(linear, nn.Linear)
    return DenseStep(_linear(linear))
