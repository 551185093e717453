"""NAC with its circuit on the key alone and the true lag: one circuit for each moment instead of one for each pair."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nacdrive.nac.backbone import Backbone
from nacdrive.nac.dynamics import Dynamics, Exact, Steady, as_dynamics
from nacdrive.nac.kernels import key as key_kernel
from nacdrive.nac.kernels.key_step import KeyStep
from nacdrive.nac.mask import AttentionMask
from nacdrive.nac.streaming import check_state
from nacdrive.nac.validation import check_inputs, check_sizes, check_step, check_times, tracing, whole
from nacdrive.nac.wiring import DEFAULT_SEED, Wiring, auto_ncp, full_wiring


@dataclass(frozen=True)
class KeyState:
    """The last W steps; the newest is last. ``step`` makes a new one and changes none."""

    memory: Tensor  # [B, W, H, 2 D + 3]: of each step k [D], v [D], phi, omega and rho
    clock: Tensor  # [B, W] times of these in seconds
    seen: int = 0  # number of steps so far
    weights: KeyStep | None = None  # what the last step used


class NACKey(nn.Module):
    """Causal self-attention by content, moved in time by a circuit that reads each moment once.

    For a query at time t_i, a key at t_j <= t_i and their lag l = (t_i - t_j) / time_scale, head h, x normalised:

        z       = [x, sin(f t), cos(f t)]
        content = q(z_i) . k(z_j) / sqrt(D)
        phi, omega, rho of h and j = motor neurons of an NCP circuit that reads x_j
        a_ij    = phi_j (1 - exp(-omega_j l))       the solution of da/dl = omega (phi - a) from 0 (paper, Eqn. 3)
        logit   = content + gamma_h (a_ij - omega_j l)
        y_i     = sum_j softmax_j(logit) exp(-rho_j l) v_j

    phi is bounded by tanh, omega and rho are softplus around a rate of the head's own, from 1 per unit of time to a
    hundredth of it over the heads. ``Euler`` solves the same equation by its steps, ``Steady`` takes a = phi.
    What the equations leave open, in its simplest form: q, k and v are dense; the circuit has no recurrent synapses;
    Top-K keeps the keys with the highest content, exactly; gamma begins at 1.

    Arguments and errors are those of ``NAC`` of the same names, and ``units``, neurons of the circuit beside the motor
    neurons (5/4 of ``d_model`` by default). ``d_model`` is at least 4; ``time_features`` 0 leaves lags alone, so that
    nothing depends on when the clock began.
    """

    time_scale: Tensor

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        mode: Dynamics | str = "exact",
        topk: int | None = None,
        sparsity: float = 0.5,
        units: int | None = None,
        time_scale: float = 1.0,
        time_features: int = 16,
        dropout: float = 0.0,
        in_features: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        whole(d_model >= 4, "d_model", d_model, "4 or more")
        check_sizes(d_model, num_heads, in_features, topk, sparsity, time_scale, time_features, dropout)
        whole(units is None or units >= 4, "units", units, "4 or more, or None")
        self.d_model, self.num_heads, self.head_dim = d_model, num_heads, d_model // num_heads
        self.in_features = features = in_features or d_model
        self.dynamics, self.topk, self.dropout = as_dynamics(mode), topk, dropout
        self.wiring = _wiring(features, units or d_model + d_model // 4, 3 * num_heads, sparsity, seed)
        self.input_norm = nn.LayerNorm(features)
        self.query = nn.Linear(features + 2 * time_features, d_model)
        self.key = nn.Linear(features + 2 * time_features, d_model, bias=False)  # softmax would not feel one
        self.value = nn.Linear(features, d_model)
        self.backbone = Backbone(self.wiring, 1, "tanh", 1, "free")
        self.out_proj = nn.Linear(d_model, d_model)
        for dense in (self.query, self.key, self.value, self.out_proj):
            nn.init.xavier_uniform_(dense.weight)
            if dense.bias is not None:
                nn.init.zeros_(dense.bias)
        self.gamma = nn.Parameter(torch.ones(num_heads))
        rates = torch.logspace(0, -2, num_heads)
        # Where softplus gives the rates.
        self.omega, self.rho = nn.Parameter(rates.expm1().log()), nn.Parameter(rates.expm1().log())
        self.time_frequencies = nn.Parameter(torch.logspace(0, -3, time_features)) if time_features else None
        self.register_buffer("time_scale", torch.tensor(float(time_scale)))

    def forward(
        self,
        x: Tensor,
        *,
        t: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        window: int | None = None,
        need_weights: bool = False,
        last_only: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend to the past of ``x [B, T, in_features]``; arguments, results and errors are those of ``NAC.forward``.

        Without ``t`` the real steps are one ``time_scale`` apart.
        """
        y, states = self._attend(x, t, key_padding_mask, window, last_only, need_weights)
        return (y, states["weights"]) if need_weights else y

    def neuron_states(
        self, x: Tensor, *, t: Tensor | None = None, window: int | None = None, last_only: bool = False
    ) -> dict[str, Tensor]:
        """Every neuron's value: what ``forward`` computes with the same arguments.

        Returns:
            ``q`` ``[B, H, Tq, D]``; of every moment ``k`` and ``v`` ``[B, H, T, D]``, ``phi``, ``omega`` and ``rho`` (a
            unit of time) ``[B, H, T]``, ``sensory`` ``[B, T, in_features]``, ``inter`` ``[B, T, I]`` and ``command``
            ``[B, T, C]``; of every pair ``t`` (the lag), ``a``, ``logits`` (-inf where it is not allowed) and
            ``weights`` ``[B, H, Tq, T]``.
        """
        return self._attend(x, t, None, window, last_only, True)[1]

    def init_state(self, batch_size: int, window: int) -> KeyState:
        """An empty memory of ``window`` steps for ``step``."""
        whole(batch_size >= 1, "batch_size", batch_size, "1 or more")
        whole(window >= 1, "window", window, "1 or more steps")
        weight = self.out_proj.weight
        memory = weight.new_zeros(batch_size, window, self.num_heads, 2 * self.head_dim + 3)
        return KeyState(memory, torch.zeros(batch_size, window, dtype=torch.float64, device=weight.device))

    def step(self, x: Tensor, t: Tensor | None, state: KeyState) -> tuple[Tensor, KeyState]:
        """One live step, of one circuit and one row of attention: the last row of ``forward`` over the window.

        ``x [B, in_features]`` at ``t [B]`` seconds or None -> ``[B, d_model]`` and the next state; see ``NAC.step``.
        """
        weight, width = self.out_proj.weight, 2 * self.head_dim + 3
        check_state(state, KeyState, "memory", (-1, -1, self.num_heads, width), weight.dtype, x)
        batch, window = state.clock.shape
        check_step(x, t, batch, self.in_features, weight)
        now = self.time_scale.double() * state.seen if t is None else t
        clock = torch.cat([state.clock[:, 1:], now.to(state.clock).expand(batch).unsqueeze(1)], 1)
        by_numpy = not torch.is_grad_enabled() and self._on_cpu(weight.device.type) and type(self) is NACKey
        if by_numpy and (weights := KeyStep.of(self, state.weights)) is not None:
            y, memory = weights.step(x, clock, state.memory, min(state.seen + 1, window))
            return y, KeyState(memory, clock, state.seen + 1, weights)
        q, moment, _ = self.read(x.unsqueeze(1), clock[:, -1:])
        memory = torch.cat([state.memory[:, 1:], moment], 1)
        state = KeyState(memory, clock, state.seen + 1)
        seen = (torch.arange(window, device=x.device) >= window - state.seen).expand(batch, 1, window)
        return self.attend(q, memory, self._lags(clock[:, -1:], clock), seen)[0][:, 0], state

    def mask_group(self, group: str, neurons: Iterable[int] | None = None) -> None:
        """Cut neurons of the circuit off from all others; weights stay. See ``NAC.mask_group``."""
        self.backbone.mask(group, neurons)

    def read(self, x: Tensor, clock: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """What each moment ``[B, T, in_features]`` at ``clock [B, T]`` seconds is by itself.

        Queries ``[B, T, H, D]``; k, v, phi, omega and rho ``[B, T, H, 2 D + 3]``; the circuit's neurons by group.
        """
        x = z = self.input_norm(x)
        if self.time_frequencies is not None:
            phase = (clock / self.time_scale).unsqueeze(-1) * self.time_frequencies
            z = torch.cat([x, phase.sin().to(x.dtype), phase.cos().to(x.dtype)], -1)
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)) for part in (self.query(z), self.key(z), self.value(x)))
        motor, neurons = self.circuit(x)
        phi, omega, rho = motor.view(*motor.shape[:-1], 3, self.num_heads).unbind(-2)
        gates = torch.stack([phi.tanh(), F.softplus(omega + self.omega), F.softplus(rho + self.rho)], -1)
        return q, torch.cat([k, v, gates], -1), neurons

    def circuit(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Motor neurons ``[B, T, 3 H]`` for normalised features ``[B, T, in_features]``, and the others by group."""
        assert self.backbone.inter is not None
        inter = self.backbone.sensory(x).tanh()
        command = self.backbone.inter(inter).tanh()
        return self.backbone.motor(command), {"sensory": x, "inter": inter, "command": command}

    def attend(self, q: Tensor, moments: Tensor, lags: Tensor, allowed: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """From ``moments`` of ``read`` and ``q [B, q, H, D]`` to outputs ``[B, q, d_model]``, and what is on the way.

        ``lags [B, q, T]`` are units of time, 0 or more; so is the shape of ``allowed``.
        """
        depth = self.head_dim
        q, moments, lags, seen = q.transpose(1, 2), moments.transpose(1, 2), lags.unsqueeze(1), allowed.unsqueeze(1)
        k, v = moments[..., :depth], moments[..., depth : 2 * depth]
        phi, omega, rho = (part.unsqueeze(2) for part in moments[..., 2 * depth :].unbind(-1))
        content = (q / depth**0.5) @ k.transpose(-1, -2)
        if self.topk is not None and self.topk < k.shape[2]:
            best = content.detach().masked_fill(~seen, -math.inf).topk(self.topk, -1).indices
            seen = seen & torch.zeros_like(content, dtype=torch.bool).scatter(-1, best, True)
        a = self.dynamics(omega * phi, omega, lags)
        logits = content + self.gamma.view(-1, 1, 1) * (a - omega * lags)
        # A row without any key must give zeros, not NaN, also in its gradient: hence no -inf here.
        weights = logits.masked_fill(~seen, torch.finfo(logits.dtype).min).softmax(-1).masked_fill(~seen, 0.0)
        mix = F.dropout(weights * (-rho * lags).exp(), self.dropout, self.training)
        y: Tensor = self.out_proj((mix @ v).transpose(1, 2).flatten(2))
        return y, {"a": a.expand_as(logits), "logits": logits.masked_fill(~seen, -math.inf), "weights": weights}

    def _on_cpu(self, device: str) -> bool:
        """Whether NumPy and own gradients may be used here, and not torch alone."""
        drops = self.training and self.dropout > 0
        return device == "cpu" and not (drops or tracing() or torch.is_autocast_enabled(device))

    def _lags(self, of_query: Tensor, of_key: Tensor) -> Tensor:
        """``[B, q, T]`` in units of time; 0 of keys that come later, which no query sees."""
        lags = (of_query.unsqueeze(2) - of_key.unsqueeze(1)) / self.time_scale.double()
        return lags.clamp(min=0).to(self.out_proj.weight.dtype)

    def _attend(
        self, x: Tensor, t: Tensor | None, padding: Tensor | None, window: int | None, last_only: bool, detailed: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        check_inputs(x, x, x, padding, self.in_features, self.out_proj.weight)
        batch, steps = x.shape[:2]
        whole(window is None or window >= 1, "window", window, "1 or more")
        real = x.new_ones(batch, steps, dtype=torch.bool) if padding is None else ~padding
        clock = (real.cumsum(1) - 1).double() * self.time_scale if t is None else check_times("t", t, batch, steps)
        if padding is not None:
            x, clock = x.masked_fill(padding.unsqueeze(-1), 0.0), clock.masked_fill(padding, 0.0)
        clock = clock.double()
        q, moments, neurons = self.read(x, clock)
        position = torch.arange(steps, device=x.device).expand(batch, steps)
        of_query = clock
        if last_only:
            position = torch.where(real, position, -1).amax(1, keepdim=True).clamp(min=0)
            q = q.gather(1, position.view(-1, 1, 1, 1).expand(-1, 1, *q.shape[2:]))
            of_query = clock.gather(1, position)
        mask = AttentionMask(position, padding, True, window)
        k, v, gates = moments.transpose(1, 2).tensor_split([self.head_dim, 2 * self.head_dim], -1)
        solved = isinstance(self.dynamics, (Exact, Steady)) and not clock.requires_grad
        if not detailed and solved and self._on_cpu(clock.device.type):
            scale, exact = self.time_scale.double(), isinstance(self.dynamics, Exact)
            plan = key_kernel.Plan(of_query / scale, clock / scale, mask, self.topk, exact)
            tensors = (q.transpose(1, 2) / self.head_dim**0.5, k, v, *gates.unbind(-1), self.gamma)
            inputs = [x.contiguous() for x in tensors]
            y: Tensor = key_kernel.KeyAttention.apply(plan, *inputs)  # type: ignore[no-untyped-call]
            return self.out_proj(y.transpose(1, 2).flatten(2)), {}
        every = torch.arange(steps, device=x.device).expand(*position.shape, -1)
        lags = self._lags(of_query, clock)
        y, pairs = self.attend(q, moments, lags, mask.allowed(every))
        phi, omega, rho = gates.unbind(-1)
        of_key = {"k": k, "v": v, "phi": phi, "omega": omega, "rho": rho, **neurons}
        return y, {"q": q.transpose(1, 2), **of_key, "t": lags.unsqueeze(1).expand_as(pairs["logits"]), **pairs}


def _wiring(inputs: int, units: int, motors: int, sparsity: float, seed: int | None) -> Wiring:
    """AutoNCP without recurrent synapses."""
    command = max(int(0.4 * units), 1)
    if sparsity == 0:
        return full_wiring(inputs, units - command, command, motors, recurrent=False)
    wiring = auto_ncp(inputs, units + motors, motors, sparsity, DEFAULT_SEED if seed is None else seed)
    adjacency, commands = wiring.adjacency.copy(), wiring.neurons("command")
    adjacency[commands[:, None], commands] = 0
    return replace(wiring, adjacency=adjacency)
