"""The Neuronal Attention Circuit as a torch layer (paper, section 2)."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nacdrive.nac.backbone import ACTIVATIONS, POLARITIES, Backbone, FirstLayer, FusedWeights, Synapses, TimeGate
from nacdrive.nac.dynamics import Dynamics, Steady, as_dynamics
from nacdrive.nac.kernels import numba, pair_attention
from nacdrive.nac.kernels.numba.step import CompiledStep
from nacdrive.nac.mask import AttentionMask
from nacdrive.nac.pairwise import PairOptions, PairProblem, Pairs, Tokens, all_pairs, attend, pair_logits, pair_scores
from nacdrive.nac.streaming import Snapshot, State, StepWeights, check_state
from nacdrive.nac.topk import SELECTIONS, Choice, Chosen, is_exact, select, top_k
from nacdrive.nac.validation import check_inputs, check_sizes, check_step, check_times, one_of, require, tracing, whole
from nacdrive.nac.wiring import DEFAULT_SEED, Wiring, backbone_wiring, sensory_wiring

GATES = ("ncp", "fc", "constant")
Map = int | Sequence[int | None]
"""New inputs or outputs: how many, or which old one's synapses each of them takes; see ``NAC.rewire``."""


class NAC(nn.Module):
    """Attention whose logits are the solution of da/dt = -omega a + phi (paper, Eqns. 1-3, 13-19).

    phi and omega of a query-key pair come from an NCP circuit. Called like
    ``nn.MultiheadAttention(batch_first=True)``, except that ``forward`` returns the output alone unless
    ``need_weights=True``, and has no ``attn_mask``: it is no drop-in for the attention inside
    ``nn.TransformerEncoderLayer``, which gives a mask and takes the first of two results.

    Args:
        d_model: width of the layer; a multiple of ``num_heads``, at least 2.
        num_heads: attention heads H; a head has ``d_model / H`` channels.
        mode: ``Exact()``, ``Euler(steps=6)``, ``Steady()`` or their lower-case names.
        topk: keys per query K; None pairs every query with every key.
        selection: ``exact`` Top-K, ``sqrt`` (square-root partition, Algorithm 2), or ``auto``: exact up to 1024
            keys and the partition above.
        sparsity: share of absent synapses, 0.1 to 0.9; 0 = fully connected.
        share_backbone: one circuit's weights for all heads instead of one set per head.
        backbone_units: neurons of the backbone; d_model + floor(d_model / 0.6) by default.
        activation: of inter and command neurons: ``tanh``, ``sigmoid``, ``silu`` or ``linear``.
        unfolds: updates R of the command neurons; recurrent synapses act from 2 on.
        quadrature: values are weighted by ``time`` (t_ij) or by a ``constant`` (``delta_t``).
        delta_t: the constant, in seconds.
        phi: bound of the content gate: ``sigmoid``, ``tanh`` or ``none``.
        gate: ``ncp`` circuits; ``fc``: plain layers of the same sizes and sparsity (the paper's ablation); or
            ``constant``: circuits that see nothing of the pair, as the authors' code computes them.
        wiring: circuit of the backbone instead of the one made from ``sparsity``: ``2 * d_model / H`` inputs, 2 motors.
        polarity: sign of a synapse: ``free``, ``initial`` (weights start with it) or ``fixed`` (they keep it).
        time_scale: seconds that count as one unit of time; time stamps are divided by it.
        learn_time_scale: train it.
        time_input: tau of the time gate: ``absolute`` time of the query (the paper's); the ``gap`` since the step
            before it (1 unit for the first), which does not grow while a vehicle keeps driving; or the time
            ``elapsed`` between key and query, t_i - t_j.
        time_features: frequencies f of learned time features: sin(f t) and cos(f t), appended to what queries and keys
            are made from; 0 for none (the paper's).
        input_norm: normalise every token (LayerNorm over its features) before anything else.
        eps: lower bound of omega, 1/s.
        logit_scale: multiply the logits by a learned factor: a number is its value at first, one factor a head;
            True is one factor for all heads that begins at 1.
        score_gradient: how the score q.k by which Top-K chooses is trained: not at all (``none``, the paper's);
            ``straight-through``: its softmax over the chosen keys gets the gradient of the attention weights, the
            output stays as it is; ``gated``: q.k / sqrt(D) is added to the logits of the chosen keys.
        dropout: of attention weights, in training.
        in_features: features of the inputs; ``d_model`` by default.
        out_features: features of the output; ``d_model`` by default.
        sqrt_blocks: blocks searched by the square-root partition; at least ceil(K / block) + 1.
        sqrt_block: keys per block of the partition; ceil(sqrt(Tk)) by default.
        seed: of the wiring (22222, as in ncps, by default). Weights come from torch's generator.

    Raises:
        ValueError: an argument is out of range.
    """

    time_scale: Tensor

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        mode: Dynamics | str = "exact",
        topk: int | None = 8,
        selection: str = "auto",
        sparsity: float = 0.5,
        share_backbone: bool = False,
        backbone_units: int | None = None,
        activation: str = "tanh",
        unfolds: int = 2,
        quadrature: str = "time",
        delta_t: float = 1.0,
        phi: str = "sigmoid",
        gate: str = "ncp",
        wiring: Wiring | None = None,
        polarity: str = "free",
        time_scale: float = 1.0,
        learn_time_scale: bool = False,
        time_input: str = "absolute",
        time_features: int = 0,
        input_norm: bool = False,
        eps: float = 1e-3,
        logit_scale: bool | float = False,
        score_gradient: str = "none",
        dropout: float = 0.0,
        in_features: int | None = None,
        out_features: int | None = None,
        sqrt_blocks: int | None = None,
        sqrt_block: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        whole(d_model >= 2, "d_model", d_model, "2 or more")
        check_sizes(d_model, num_heads, in_features, topk, sparsity, time_scale, time_features, dropout)
        whole(backbone_units is None or backbone_units >= 5, "backbone_units", backbone_units, "5 or more, or None")
        whole(unfolds >= 1, "unfolds", unfolds, "1 or more")
        for name, size in {"out_features": out_features, "sqrt_blocks": sqrt_blocks, "sqrt_block": sqrt_block}.items():
            whole(size is None or size >= 1, name, size, "1 or more, or None")
        one_of("selection", selection, SELECTIONS)
        one_of("activation", activation, ACTIVATIONS)
        one_of("gate", gate, GATES)
        one_of("polarity", polarity, POLARITIES)
        one_of("time_input", time_input, ("absolute", "gap", "elapsed"))
        self.options = PairOptions(as_dynamics(mode), phi, quadrature, delta_t, eps, score_gradient)
        require(score_gradient == "none" or topk is not None, "score_gradient", score_gradient, "none without topk")
        scaled = isinstance(logit_scale, bool) or 0 < logit_scale < math.inf
        require(scaled, "logit_scale", logit_scale, "True, False or a positive number")

        self.d_model, self.num_heads = d_model, num_heads
        self.head_dim = depth = d_model // num_heads
        self.topk, self.selection, self.sqrt_blocks, self.sqrt_block = topk, selection, sqrt_blocks, sqrt_block
        self.time_input = time_input
        self.in_features, self.out_features = in_features or d_model, out_features or d_model
        self.dropout = dropout
        seed = DEFAULT_SEED if seed is None else seed
        self.time_features, self.polarity = time_features, polarity
        self._sensory_wiring = partial(sensory_wiring, d_model=d_model, sparsity=sparsity, gate=gate, seed=seed)
        self.wiring = wiring or backbone_wiring(2 * depth, d_model, sparsity, gate, seed, backbone_units)
        inputs = self.wiring.inputs
        require(inputs == 2 * depth, "wiring.inputs", inputs, f"2 * d_model / num_heads = {2 * depth}")
        require(self.wiring.motors == 2, "wiring.motors", self.wiring.motors, "2 (phi and omega)")

        copies = 1 if share_backbone else num_heads
        self.q_gate, self.k_gate, self.v_gate = self._sensory_gates()
        self.backbone = Backbone(self.wiring, copies, activation, unfolds, polarity)
        if gate == "constant":
            self.backbone.mask("sensory", None)
            for name, parameter in self.backbone.named_parameters():
                parameter.requires_grad_(name.endswith("bias"))  # the neurons send nothing until their biases do
        self.time_gate = TimeGate(depth, copies)
        self.out_proj = self._projection()
        scale = torch.tensor(float(time_scale))
        if learn_time_scale:
            self.time_scale = nn.Parameter(scale)
        else:
            self.register_buffer("time_scale", scale)
        # True is one factor of all heads.
        factors = torch.full(() if logit_scale is True else (num_heads,), float(logit_scale))
        self.logit_scale = nn.Parameter(factors) if logit_scale else None
        self.input_norm = nn.LayerNorm(self.in_features) if input_norm else None
        # From one radian a unit of time to a thousandth of it: what differs within a second, and what within minutes.
        self.time_frequencies = nn.Parameter(torch.logspace(0, -3, time_features)) if time_features else None
        if isinstance(self.options.dynamics, Steady) and quadrature == "constant":
            # No time reaches the output: distributed training waits for gradients that never come.
            self.time_gate.requires_grad_(False)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        t: Tensor | None = None,
        key_t: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        window: int | None = None,
        need_weights: bool = False,
        last_only: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend.

        Args:
            query: ``[B, Tq, in_features]``.
            key: ``[B, Tk, in_features]``; the query by default.
            value: ``[B, Tk, in_features]``; the key by default.
            t: times of the queries in seconds, ``[Tq]`` or ``[B, Tq]``. Without, tau is 1; where keys have times too
                (lags, time features), steps are then one ``time_scale`` apart.
            key_t: times of the keys, ``[Tk]`` or ``[B, Tk]``, where they have times and are not the queries.
            key_padding_mask: bool ``[B, Tk]``, True = padding. What stands there (features, times) never matters.
            is_causal: a query sees only keys up to its own position; needs Tq = Tk.
            window: with ``is_causal``, only the last ``window`` of those: what ``step`` sees. Top-K is exact for
                queries that have more keys than that.
            need_weights: also return the attention weights.
            last_only: compute only the last query; in self-attention the last that is not padding.

        Returns:
            ``[B, Tq, out_features]`` (Tq = 1 with ``last_only``); with ``need_weights`` also the weights
            ``[B, H, Tq, Tk]``, zero for keys that were not selected. A query that may see no key gives the output
            bias; the rows of padding have no meaning.

        Raises:
            ValueError: a shape or dtype is not allowed, or ``time_input="gap"`` meets times that go back or are not
                finite. Otherwise the values of times are not looked at, which would wait for a GPU: NaN gives NaN.
        """
        y, details = self._attend(
            query, key, value, t, key_t, key_padding_mask, is_causal, window, last_only, need_weights
        )
        heads, batch, queries = self.num_heads, query.shape[0], y.shape[1] // query.shape[0]
        merged = y.view(heads, batch, queries, self.head_dim).permute(1, 2, 0, 3).reshape(batch, queries, self.d_model)
        out: Tensor = self.out_proj(merged if torch.is_autocast_enabled(query.device.type) else merged.to(query.dtype))
        if not need_weights:
            return out
        keys = (query if key is None else key).shape[1]
        dense = out.new_zeros(batch, heads, queries, keys, dtype=details["weights"].dtype)
        return out, dense.scatter_add(-1, details["keys"], details["weights"])

    def neuron_states(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        t: Tensor | None = None,
        key_t: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        window: int | None = None,
        last_only: bool = False,
    ) -> dict[str, Tensor]:
        """Every neuron's value: what ``forward`` computes with the same arguments.

        Returns:
            ``q`` ``[B, H, Tq, D]``, ``k`` and ``v`` ``[B, H, Tk, D]``; per selected pair ``keys`` (index of the key),
            ``phi``, ``omega`` (1/s), ``t``, ``logits``, ``weights`` ``[B, H, Tq, n]``, ``inter`` ``[B, H, Tq, n, I]``
            and ``command`` ``[B, H, Tq, n, C]``. A pair that is not allowed has logit -inf and weight 0.
        """
        return self._attend(query, key, value, t, key_t, key_padding_mask, is_causal, window, last_only, True)[1]

    def init_state(self, batch_size: int, window: int) -> State:
        """An empty memory of ``window`` steps for ``step``."""
        whole(batch_size >= 1, "batch_size", batch_size, "1 or more")
        whole(window >= 1, "window", window, "1 or more steps")
        width, dtype = self._row
        sizes = self.num_heads, batch_size, window, width
        return State(torch.zeros(sizes, dtype=dtype, device=self.out_proj.weight.device))

    def step(self, x: Tensor, t: Tensor | None, state: State) -> tuple[Tensor, State]:
        """One live step: the last row of causal attention over the last ``window`` steps.

        Without gradients the weights are prepared once for a state. Changes of parameters are noticed, but not writes
        through ``.data``: begin a new state after those.

        Args:
            x: ``[B, in_features]``.
            t: times in seconds, ``[B]``; or None.
            state: of ``init_state`` or of the step before; it is not changed.

        Returns:
            ``[B, out_features]`` and the next state.
        """
        heads, (width, dtype) = self.num_heads, self._row
        check_state(state, State, "memory", (heads, -1, -1, width), dtype, x)
        batch = state.memory.shape[1]
        check_step(x, t, batch, self.in_features, self.out_proj.weight)
        t = None if t is None else t.clone()  # the state keeps it, and a caller may fill its own anew
        now = None if t is None else t.unsqueeze(1)
        clock = self._clock("t", now, x.unsqueeze(1), None, state.seen) if self.keys_have_times else None
        lags, times = self._lags(clock, state)
        tau = self._tau(now, x.unsqueeze(1), None, state.t) if lags is None else lags
        weights = self._step_weights(dtype, state.weights)
        if self.input_norm is not None:
            x = self.input_norm(x)
        qkv = F.linear(self._timed(x.unsqueeze(1), clock)[:, 0], weights.qkv, weights.qkv_bias)
        like, compiled = self.out_proj.weight.dtype, weights.compiled
        if compiled is not None and numba.ENABLED and qkv.dtype == dtype and not (self.training and self.dropout):
            memory, here = compiled.advance(qkv, state.memory)
            state = State(memory, state.seen + 1, t, times, weights)
            q = qkv.view(batch, 3, heads, -1)[:, 0].transpose(0, 1)
            topk = self.topk if self.topk is not None and self.topk < memory.shape[2] else None
            scores: Tensor | None = None
            chosen: Chosen = None, None
            if topk is not None and (state.seen > memory.shape[2] or self.chooses_exactly(state.seen)):
                scores = self._scores(q, memory)
            elif topk is not None:
                chosen = self._chosen(q, state)
            y = compiled.attend(here, tau.to(dtype), state.seen, topk, scores, chosen)
            return self.out_proj(y.to(like)), state
        qkv = qkv.view(batch, 3, heads, self.head_dim).permute(1, 2, 0, 3)  # [3, H, B, D]
        with torch.autocast(x.device.type, enabled=False):
            qkv = qkv.to(dtype)
            q, k, v = qkv.unbind(0)
            halves = torch.baddbmm(weights.halves_bias, qkv[:2].flatten(0, 1), weights.halves)
            of_q, of_k = halves.view(2, heads, batch, -1).unbind(0)
            memory = torch.cat([state.memory[:, :, 1:], torch.cat([k, v, of_k], 2).unsqueeze(2)], 2)
            tau = tau if lags is None else lags.expand(heads, -1, -1)
            state = State(memory, state.seen + 1, t, times, weights if weights.made_from is not None else None)
            y = self.attend_memory(q, of_q, tau.to(dtype), memory, self._chosen(q, state), weights.fused)
        merged = y.transpose(0, 1).reshape(batch, self.d_model)
        return self.out_proj(merged if torch.is_autocast_enabled(x.device.type) else merged.to(like)), state

    def mask_group(self, group: str, neurons: Iterable[int] | None = None) -> None:
        """Cut neurons of the backbone off from all others; weights stay (paper, section 2.2).

        Args:
            group: ``sensory``, ``inter``, ``command`` or ``motor``.
            neurons: positions inside the group; all of it by default.
        """
        self.backbone.mask(group, neurons)

    def rewire(self, in_features: Map | None = None, out_features: Map | None = None) -> NAC:
        """A new layer with other inputs or outputs that keeps the trained synapses (paper, section 2.2).

        Args:
            in_features: their new number (those beyond the old number are new), or for each new input the index
                of the old one whose synapses it takes, None for fresh ones.
            out_features: the same for outputs.
        """
        inputs = sources_of("in_features", in_features, self.in_features)
        outputs = sources_of("out_features", out_features, self.out_features)
        fresh = copy.deepcopy(self)
        fresh.in_features, fresh.out_features = len(inputs), len(outputs)
        fresh.q_gate, fresh.k_gate, fresh.v_gate = fresh._sensory_gates()
        fresh.out_proj = fresh._projection()
        fresh.input_norm = None if self.input_norm is None else nn.LayerNorm(len(inputs))
        fresh.to(self.out_proj.weight)
        state = fresh.state_dict()
        for name, old in self.state_dict().items():
            if name.startswith(("q_gate.", "k_gate.", "v_gate.")) and not name.endswith("bias"):
                # The synapses of an input that stays, mask and sign included: the circuit stays, not only its numbers.
                features = range(self.in_features, old.shape[-2])  # of time, behind the inputs
                take(state[name], old, [*inputs, *features], dim=old.ndim - 2)
            elif name.startswith("input_norm."):
                take(state[name], old, inputs, dim=0)
            elif name.startswith("out_proj."):
                take(state[name], old, outputs, dim=0)
            else:
                state[name] = old
        fresh.load_state_dict(state)
        return fresh.train(self.training)

    # ------------------------------------------------------------------ inside

    def _sensory_gates(self) -> list[Synapses]:
        """Fresh ones of q, k and v: values have no time features."""
        timed = self._sensory_wiring(self.in_features + 2 * self.time_features)
        return [
            Synapses(torch.from_numpy(w.sensory_adjacency[:, w.neurons("inter")]), 1, 1.0, self.polarity)
            for w in (timed, timed, self._sensory_wiring(self.in_features) if self.time_features else timed)
        ]

    def _projection(self) -> nn.Linear:
        fresh = nn.Linear(self.d_model, self.out_features)
        nn.init.xavier_uniform_(fresh.weight)
        nn.init.zeros_(fresh.bias)
        return fresh

    @property
    def keys_have_times(self) -> bool:
        """Whether keys know when they happened: without, attention is blind to their order and times."""
        return self.time_input == "elapsed" or self.time_frequencies is not None

    def _clock(self, name: str, t: Tensor | None, like: Tensor, padding: Tensor | None, seen: int = 0) -> Tensor:
        """Times ``[B, T]`` in seconds, 0 in padding; without ``t`` the real steps are one ``time_scale`` apart."""
        batch, steps = like.shape[0], like.shape[1]
        if t is None:
            wide = torch.promote_types(self.time_scale.dtype, torch.float32)
            real = like.new_ones(batch, steps, dtype=wide) if padding is None else (~padding).to(wide)
            return (real.cumsum(1) + (seen - 1)) * self.time_scale
        t = check_times(name, t, batch, steps)
        return t if padding is None else t.masked_fill(padding, 0.0)

    def _tau(self, t: Tensor | None, like: Tensor, padding: Tensor | None, before: Tensor | None = None) -> Tensor:
        """What the time gate gets of the queries' times: ``[B, Tq]`` units; ``before [B]``: of the step before them."""
        wide = torch.promote_types(self.time_scale.dtype, torch.float32)
        if t is None:
            return torch.ones(like.shape[:2], device=like.device, dtype=wide)
        t = self._clock("t", t, like, padding)
        if self.time_input == "absolute":
            return t.to(wide) / self.time_scale
        # The gap since the last real step: the latest time so far, since times must not decrease.
        counted = t if padding is None else t.masked_fill(padding, -math.inf)
        first = torch.full_like(t[:, :1], -math.inf) if before is None else before.to(t.dtype).unsqueeze(1)
        latest = torch.cat([first, counted], 1)[:, :-1].cummax(1).values
        none = latest == -math.inf
        if padding is not None:
            none = none | padding
        gaps = torch.where(none, 0.0, t - torch.where(none, t, latest))
        if not tracing() and not bool(((gaps >= 0) & t.isfinite()).all()):  # a decision by values breaks the graph
            what = f"goes back by {-gaps.min():g} s" if bool(t.isfinite().all()) else "holds NaN or infinity"
            raise ValueError(f"t {what}; allowed are times that do not decrease (time_input='gap')")
        return torch.where(none, 1.0, gaps.to(wide) / self.time_scale)

    def _timed(self, x: Tensor, clock: Tensor | None) -> Tensor:
        """``[B, T, features]`` and behind them the features of times in seconds, where the layer has such."""
        if self.time_frequencies is None or clock is None:
            return x
        phase = (clock / self.time_scale).unsqueeze(-1) * self.time_frequencies
        return torch.cat([x, phase.sin().to(x.dtype), phase.cos().to(x.dtype)], -1)

    def _attend(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        t: Tensor | None,
        key_t: Tensor | None,
        padding: Tensor | None,
        causal: bool,
        window: int | None,
        last_only: bool,
        detailed: bool,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        itself = key is None or key is query  # self-attention: padding and times of the keys are the queries' too
        key = query if key is None else key
        value = key if value is None else value
        check_inputs(query, key, value, padding, self.in_features, self.out_proj.weight)
        batch, queries, keys = query.shape[0], query.shape[1], key.shape[1]
        require(not causal or queries == keys, "is_causal", causal, f"False where Tq={queries} differs from Tk={keys}")
        whole(window is None or (causal and window >= 1), "window", window, "1 or more, together with is_causal=True")
        of_query = padding if itself else None
        clock = clock_k = None
        if self.keys_have_times:
            given = itself or (t is None) == (key_t is None)
            require(given, "key_t", None if key_t is None else "...", "given exactly where t is (keys have times here)")
            clock = self._clock("t", t, query, of_query)
            clock_k = clock if itself and key_t is None else self._clock("key_t", key_t, key, padding)
        tau = tau_k = None
        if self.time_input == "elapsed" and clock is not None and clock_k is not None:
            wide = torch.promote_types(self.time_scale.dtype, torch.float32)
            # Counted from the last key's time, or float32 could not tell neighbours of a clock since 1970 apart.
            base = clock_k.gather(1, clock_k.abs().argmax(1, keepdim=True))
            tau, tau_k = (((x - base).to(wide) / self.time_scale) for x in (clock, clock_k))
        else:
            tau = self._tau(t, query, of_query)
        if padding is not None:
            # Not even NaN there may matter.
            blank = padding.unsqueeze(-1)
            filled = {id(x): x.masked_fill(blank, 0.0) for x in (key, value)}
            query, key, value = filled[id(key)] if itself else query, filled[id(key)], filled[id(value)]
        position = torch.arange(queries, device=query.device).expand(batch, queries)
        if last_only:
            if of_query is not None:
                position = torch.where(of_query, -1, position).amax(1, keepdim=True).clamp(min=0)
            else:
                position = position[:, -1:]
            tau = tau.gather(1, position)
            clock = None if clock is None else clock.gather(1, position)
        if self.input_norm is not None:
            normed = {id(x): self.input_norm(x) for x in {id(x): x for x in (query, key, value)}.values()}
            query, key, value = (normed[id(x)] for x in (query, key, value))
        if last_only:
            query = query.gather(1, position.unsqueeze(-1).expand(-1, -1, query.shape[-1]))
        q, k = self._project(self.q_gate, query, clock), self._project(self.k_gate, key, clock_k)
        v = self._project(self.v_gate, value, None)
        with torch.autocast(query.device.type, enabled=False):
            return self._pairs(q, k, v, tau, tau_k, AttentionMask(position, padding, causal, window), detailed)

    def _project(self, gate: Synapses, x: Tensor, clock: Tensor | None) -> Tensor:
        """``[H, B, T, D]``: q, k or v of a sensory gate."""
        y: Tensor = gate(self._timed(x, clock))
        return y.view(*y.shape[:2], self.num_heads, self.head_dim).permute(2, 0, 1, 3)

    def _pairs(
        self, q: Tensor, k: Tensor, v: Tensor, tau: Tensor, tau_k: Tensor | None, mask: AttentionMask, detailed: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        # Logits and softmax stay in float32: half precision cannot hold phi/omega as omega nears eps.
        wide = torch.promote_types(q.dtype, torch.float32)
        low = q.dtype != wide
        # In one piece, or every chunk of pairs would copy them.
        q, k, v = q.to(wide), k.to(wide).contiguous(), v.to(wide).contiguous()
        with torch.no_grad():
            index = select(q.detach(), k.detach(), mask, self._choice)
            flat = None if index is None else index.flatten(1, 2)
        first, w = self._fused(wide, not detailed and q.device.type == "cpu" and not tracing())
        tokens = self._tokens(q, k, v, tau.to(wide), None if tau_k is None else tau_k.to(wide), first)
        problem = PairProblem(flat, mask, k.shape[2], self.options, self.dropout if self.training else 0.0, low)
        if self._score_counts:
            tokens = tokens._replace(score=pair_scores(q.flatten(1, 2), k.flatten(1, 2), problem))
        if not detailed:
            return pair_attention(tokens, w, self._scale(wide), problem), {}
        pairs = all_pairs(tokens, w, self._scale(wide), problem)
        return pairs.y, self._details(q, k, v, pairs)

    @property
    def _score_counts(self) -> bool:
        """Whether the score of a pair goes beyond choosing it."""
        kind = self.options.score_gradient
        return kind == "gated" or (kind == "straight-through" and torch.is_grad_enabled())

    def _scale(self, dtype: torch.dtype) -> Tensor | None:
        scale = self.logit_scale
        return None if scale is None else (scale.view(-1, 1, 1) if scale.ndim else scale).to(dtype)

    def _fused(
        self, dtype: torch.dtype, prune: bool = False, prune_inter: bool = True
    ) -> tuple[FirstLayer, FusedWeights]:
        first, w = self.backbone.fuse(self.num_heads, prune, prune_inter)
        fused = w.with_tensors(None if x is None else x.to(dtype) for x in w.tensors().values())
        return FirstLayer(*(x.to(dtype) for x in first)), fused

    def _tokens(self, q: Tensor, k: Tensor, v: Tensor, tau: Tensor, tau_k: Tensor | None, first: FirstLayer) -> Tokens:
        q, k, v = q.flatten(1, 2), k.flatten(1, 2), v.flatten(1, 2)
        flat = tau.reshape(-1)
        tq, tk = self.time_gate.halves(q, k, flat, None if tau_k is None else tau_k.reshape(-1))
        return Tokens(torch.baddbmm(first.b1.unsqueeze(1), q, first.wq), k @ first.wk, tq, tk, v, flat)

    @property
    def _row(self) -> tuple[int, torch.dtype]:
        """Width and dtype of what the memory of a state has of one step."""
        dtype = torch.promote_types(self.out_proj.weight.dtype, torch.float32)
        return 2 * self.head_dim + self.backbone.first_width + 2, dtype

    def _step_weights(self, dtype: torch.dtype, before: StepWeights | None) -> StepWeights:
        keep = not torch.is_grad_enabled() and not tracing()
        if keep and before is not None and before.made_from is not None and before.made_from.is_current(self):
            return before
        of_q, of_k, of_v = (gate.effective()[0] for gate in (self.q_gate, self.k_gate, self.v_gate))
        of_v = F.pad(of_v, (0, 0, 0, len(of_q) - len(of_v)))  # values have no time features
        qkv = torch.cat([of_q, of_k, of_v], 1).T.contiguous()
        biases = [gate.bias[0] for gate in (self.q_gate, self.k_gate, self.v_gate) if gate.bias is not None]
        # The inter neurons keep their width, which is the memory's, whatever is masked between two steps.
        first, w = self._fused(dtype, qkv.device.type == "cpu" and not tracing(), prune_inter=False)
        depth, heads = self.head_dim, self.num_heads
        time = self.time_gate.weight.to(dtype).expand(heads, -1, -1)
        time_bias = self.time_gate.bias.to(dtype).expand(heads, -1)
        halves = torch.cat([torch.cat([first.wq, time[:, :depth]], 2), torch.cat([first.wk, time[:, depth:]], 2)])
        bias = torch.cat([first.b1, time_bias], 1).unsqueeze(1)
        halves_bias = torch.cat([bias, torch.zeros_like(bias)])
        made_from = Snapshot.of(self) if keep else None
        compiled = None
        if made_from is not None and CompiledStep.supports(halves, w, self.options):
            compiled = CompiledStep(halves, halves_bias, w, self._scale(dtype), self.options)
        return StepWeights(qkv, torch.cat(biases), halves, halves_bias, w, made_from, compiled)

    def attend_memory(
        self, q: Tensor, halves: Tensor, tau: Tensor, memory: Tensor, chosen: Chosen, w: FusedWeights
    ) -> Tensor:
        """Attention ``[H, B, D]`` of the newest step; ``tau`` is ``[B, 1]``, or the lags ``[H, B, W]``."""
        heads, batch, window, width = memory.shape
        depth = self.head_dim
        best, allowed = chosen
        if best is not None:
            first = torch.arange(heads * batch, device=best.device).view(heads, batch, 1) * window
            memory = memory.flatten(0, 2).index_select(0, (best + first).flatten()).view(heads, batch, -1, width)
            tau = tau.gather(2, best) if tau.ndim == 3 else tau
        v, zk, tk = memory[..., depth : 2 * depth], memory[..., 2 * depth : -2], memory[..., -2:]
        motor, _, _ = pair_logits((zk + halves[..., :-2].unsqueeze(2)).flatten(1, 2), w)
        # (slope of key + slope of query) * tau + both offsets
        slope, offset = (tk + halves[..., -2:].unsqueeze(2)).unbind(-1)
        gate = tau * slope + offset
        keep = F.dropout(torch.ones_like(gate), self.dropout) if self.training and self.dropout else None
        score = None
        if self._score_counts:
            score = (memory[..., :depth] @ (q / depth**0.5).unsqueeze(-1)).squeeze(-1)
        motor = motor.reshape(heads, 2, batch, -1)
        a = attend(motor, gate, allowed, self._scale(gate.dtype), keep, self.options, score)
        return torch.bmm(a.mix.view(heads * batch, 1, -1), v.flatten(0, 1)).view(heads, batch, depth)

    def _lags(self, clock: Tensor | None, state: State) -> tuple[Tensor | None, Tensor | None]:
        """Time from each step of the memory to the newest, in units of ``time_scale``, and their times: ``[B, W]``."""
        if self.time_input != "elapsed" or clock is None:
            return None, None
        before = clock.new_zeros(state.memory.shape[1:3]) if state.clock is None else state.clock
        times = torch.cat([before[:, 1:], clock], 1)
        return (clock - times).to(state.memory.dtype) / self.time_scale, times

    def _chosen(self, q: Tensor, state: State) -> Chosen:
        memory, seen, depth = state.memory, state.seen, self.head_dim
        heads, batch, window, _ = memory.shape
        filled = None
        if seen < window:
            filled = (torch.arange(window, device=q.device) >= window - seen).expand(heads, batch, window)
        if self.topk is None or self.topk >= window:
            return None, filled
        if seen > window or self.chooses_exactly(seen):
            scores = self._scores(q, memory)
            best = top_k(scores if filled is None else scores.masked_fill(~filled, -torch.inf), self.topk)
            return best, None if filled is None else filled.gather(2, best)
        position = torch.full((batch, 1), seen - 1, device=q.device)
        keys = memory.detach()[:, :, window - seen :, :depth]
        mask = AttentionMask(position, None, causal=True, window=None)
        index = select(q.detach().unsqueeze(2), keys, mask, self._choice)
        if index is None:
            index = torch.arange(seen, device=q.device).expand(heads, batch, 1, seen)
        index = index[:, :, 0]
        return index.clamp(min=0) + (window - seen), mask.allowed(index.unsqueeze(2))[:, :, 0]

    def chooses_exactly(self, keys: int) -> bool:
        """Whether a query of so many keys gets those with the highest scores, not those of a partition."""
        return is_exact(self.selection, keys)

    @property
    def _choice(self) -> Choice | None:
        return None if self.topk is None else Choice(self.topk, self.selection, self.sqrt_blocks, self.sqrt_block)

    def _scores(self, q: Tensor, memory: Tensor) -> Tensor:
        """q.k of the newest step and those of the memory, ``[H, B, W]``."""
        heads, batch, window, width = memory.shape
        depth = self.head_dim
        rows = memory.detach().view(-1, window, width)[..., :depth]  # bmm reads it as it lies, unlike matmul
        return torch.bmm(rows, q.detach().reshape(-1, depth, 1)).view(heads, batch, window)

    def _details(self, q: Tensor, k: Tensor, v: Tensor, pairs: Pairs) -> dict[str, Tensor]:
        heads, batch, queries, _ = q.shape

        def front(x: Tensor) -> Tensor:
            return x.reshape(heads, batch, queries, *x.shape[2:]).transpose(0, 1)

        a, inter, command = pairs.attention, pairs.inter, pairs.command
        logits = a.logits if pairs.allowed is None else a.logits.masked_fill(~pairs.allowed, -math.inf)
        if self.backbone.activation == "tanh":
            inter, command = 2 * inter - 1, 2 * command - 1
        if self.backbone.activation != "linear":
            inters, commands = self.backbone.sensory.weight.shape[-1], self.backbone.motor.weight.shape[1]
            inter, command = inter[..., :inters], command[..., :commands]
        return {
            "q": q.transpose(0, 1),
            "k": k.transpose(0, 1),
            "v": v.transpose(0, 1),
            "keys": front(pairs.index),
            "inter": front(inter),
            "command": front(command),
            "phi": front(a.phi),
            "omega": front(a.omega),
            "t": front(a.t_ij),
            "logits": front(logits),
            "weights": front(a.weights),
        }


def sources_of(name: str, wanted: Map | None, present: int) -> list[int | None]:
    """For each new input or output the old one whose synapses it takes; None for fresh ones."""
    if wanted is None:
        return list(range(present))
    sources = [i if i < present else None for i in range(wanted)] if isinstance(wanted, int) else list(wanted)
    good = bool(sources) and all(i is None or 0 <= i < present for i in sources)
    require(good, name, wanted, f"1 or more, or a list of 0 to {present - 1} and None (= new)")
    return sources


def take(new: Tensor, old: Tensor, sources: list[int | None], dim: int) -> None:
    """Copy the slices of ``old`` that ``sources`` names to ``new``, in their order."""
    with torch.no_grad():
        for target, source in enumerate(sources):
            if source is not None:
                new.select(dim, target).copy_(old.select(dim, source))
