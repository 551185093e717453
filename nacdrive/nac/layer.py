"""The Neuronal Attention Circuit as a torch layer (paper, section 2)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from nacdrive.nac.backbone import ACTIVATIONS, POLARITIES, Backbone, Folded, Synapses, TimeGate
from nacdrive.nac.dispatch import pair_attention
from nacdrive.nac.dynamics import Dynamics, as_dynamics
from nacdrive.nac.mask import Rules
from nacdrive.nac.pairwise import PHIS, QUADRATURES, Job, PairOptions, Pairs, Tokens, all_pairs
from nacdrive.nac.rewiring import Map, rewire
from nacdrive.nac.selection import SELECTIONS, select
from nacdrive.nac.streaming import Prepared, State, stream_step
from nacdrive.nac.validation import check_gaps, check_inputs, check_padding, check_times, one_of, require
from nacdrive.nac.wiring import DEFAULT_SEED, Wiring, backbone_wiring, sensory_wiring

GATES = ("ncp", "fc")
STAMPS = ("absolute", "gap")


class NAC(nn.Module):
    """Attention whose logits are the solution of da/dt = -omega a + phi (paper, Eqns. 1-3, 13-19).

    phi and omega of a query-key pair come from an NCP circuit. Usable like
    ``nn.MultiheadAttention(batch_first=True)``, except that ``forward`` returns the output alone unless
    ``need_weights=True``.

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
        gate: ``ncp`` circuits, or ``fc``: plain layers of the same sizes and sparsity (the paper's ablation).
        wiring: circuit of the backbone instead of the one made from ``sparsity``: ``2 * d_model / H`` inputs, 2 motors.
        polarity: sign of a synapse: ``free``, ``initial`` (weights start with it) or ``fixed`` (they keep it).
        time_scale: seconds that count as one unit of time; time stamps are divided by it.
        learn_time_scale: train it.
        stamps: what of ``t`` a query feels: ``absolute`` time, or the ``gap`` since the step before (1 unit for the
            first), which does not grow while a vehicle keeps driving.
        eps: lower bound of omega, 1/s.
        logit_scale: multiply the logits by a learned scalar (1 at first).
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
        stamps: str = "absolute",
        eps: float = 1e-3,
        logit_scale: bool = False,
        dropout: float = 0.0,
        in_features: int | None = None,
        out_features: int | None = None,
        sqrt_blocks: int | None = None,
        sqrt_block: int | None = None,
        seed: int | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__()
        self.configuration: dict[str, Any] = given
        require(d_model >= 2, "d_model", d_model, "2 or more")
        require(num_heads >= 1, "num_heads", num_heads, "1 or more")
        require(d_model % num_heads == 0, "d_model", d_model, f"a multiple of num_heads ({num_heads})")
        require(topk is None or topk >= 1, "topk", topk, "1 or more, or None for all keys")
        require(sparsity == 0 or 0.1 <= sparsity <= 0.9, "sparsity", sparsity, "0 or 0.1 to 0.9")
        require(backbone_units is None or backbone_units >= 5, "backbone_units", backbone_units, "5 or more, or None")
        require(unfolds >= 1, "unfolds", unfolds, "1 or more")
        require(delta_t > 0, "delta_t", delta_t, "a positive number of seconds")
        require(0 < time_scale < math.inf, "time_scale", time_scale, "a positive number of seconds")
        require(eps > 0, "eps", eps, "a positive rate in 1/s")
        require(0 <= dropout < 1, "dropout", dropout, "0 <= dropout < 1")
        for name, size in (
            ("in_features", in_features),
            ("out_features", out_features),
            ("sqrt_blocks", sqrt_blocks),
            ("sqrt_block", sqrt_block),
        ):
            require(size is None or size >= 1, name, size, "1 or more, or None")
        one_of("selection", selection, SELECTIONS)
        one_of("activation", activation, ACTIVATIONS)
        one_of("quadrature", quadrature, QUADRATURES)
        one_of("phi", phi, PHIS)
        one_of("gate", gate, GATES)
        one_of("polarity", polarity, POLARITIES)
        one_of("stamps", stamps, STAMPS)

        self._prepared: tuple[list[Any], Prepared] | None = None  # weights of ``step``; made there, never saved
        self.d_model = d_model
        self.num_heads = num_heads
        self.head_dim = depth = d_model // num_heads
        self.topk = topk
        self.selection = selection
        self.sqrt_blocks = sqrt_blocks
        self.sqrt_block = sqrt_block
        self.stamps = stamps
        self.in_features = in_features or d_model
        self.out_features = out_features or d_model
        self.options = PairOptions(as_dynamics(mode), phi, quadrature, delta_t, eps)
        self.dropout = dropout
        seed = DEFAULT_SEED if seed is None else seed
        self.sensory_wiring = sensory_wiring(self.in_features, d_model, sparsity, gate, seed)
        self.wiring = wiring or backbone_wiring(2 * depth, d_model, sparsity, gate, seed, backbone_units)
        inputs = self.wiring.inputs
        require(inputs == 2 * depth, "wiring.inputs", inputs, f"2 * d_model / num_heads = {2 * depth}")
        require(self.wiring.motors == 2, "wiring.motors", self.wiring.motors, "2 (phi and omega)")

        sensory = torch.from_numpy(self.sensory_wiring.sensory_adjacency[:, self.sensory_wiring.neurons("inter")])
        copies = 1 if share_backbone else num_heads
        self.q_gate, self.k_gate, self.v_gate = (Synapses(sensory, 1, 1.0, polarity) for _ in range(3))
        self.backbone = Backbone(self.wiring, copies, activation, unfolds, polarity)
        self.time_gate = TimeGate(depth, copies)
        self.out_proj = nn.Linear(d_model, self.out_features)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)
        scale = torch.tensor(float(time_scale))
        if learn_time_scale:
            self.time_scale = nn.Parameter(scale)
        else:
            self.register_buffer("time_scale", scale)
        self.logit_scale = nn.Parameter(torch.ones(())) if logit_scale else None

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        t: Tensor | None = None,
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
            t: time stamps of the queries in seconds, ``[Tq]`` or ``[B, Tq]``; all 1 by default.
            key_padding_mask: bool ``[B, Tk]``, True = padding.
            is_causal: a query sees only keys up to its own position; needs Tq = Tk.
            window: with ``is_causal``, only the last ``window`` of those: what ``step`` sees. Top-K is exact then.
            need_weights: also return the attention weights.
            last_only: compute only the last query: of the steps that are not padding where query and key have
                one length, else the last one.

        Returns:
            ``[B, Tq, out_features]`` (Tq = 1 with ``last_only``); with ``need_weights`` also the weights
            ``[B, H, Tq, Tk]``, zero for keys that were not selected. A query that may see no key gives the output bias.

        Raises:
            ValueError: a shape, dtype or time stamp is not allowed.
        """
        y, details = self._attend(query, key, value, t, key_padding_mask, is_causal, window, last_only, need_weights)
        heads, batch, queries = self.num_heads, query.shape[0], y.shape[1] // query.shape[0]
        merged = y.view(heads, batch, queries, self.head_dim).permute(1, 2, 0, 3).reshape(batch, queries, self.d_model)
        out: Tensor = self.out_proj(merged if torch.is_autocast_enabled(query.device.type) else merged.to(query.dtype))
        if not need_weights:
            return out
        assert details is not None
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
        key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        window: int | None = None,
        last_only: bool = False,
    ) -> dict[str, Tensor]:
        """Every neuron's value: what ``forward`` computes with the same arguments, laid open.

        Returns:
            ``q`` ``[B, H, Tq, D]``, ``k`` and ``v`` ``[B, H, Tk, D]``; per selected pair ``keys`` (index of the key),
            ``phi``, ``omega`` (1/s), ``t``, ``logits``, ``weights`` ``[B, H, Tq, n]``, ``inter`` ``[B, H, Tq, n, I]``
            and ``command`` ``[B, H, Tq, n, C]``. A pair that is not allowed has logit -inf and weight 0.
        """
        _, details = self._attend(query, key, value, t, key_padding_mask, is_causal, window, last_only, True)
        assert details is not None
        return details

    def init_state(self, batch_size: int, window: int) -> State:
        """An empty memory of ``window`` steps for ``step``."""
        require(batch_size >= 1, "batch_size", batch_size, "1 or more")
        require(window >= 1, "window", window, "1 or more steps")
        return State.empty(self, batch_size, window)

    def step(self, x: Tensor, t: Tensor | None, state: State) -> tuple[Tensor, State]:
        """One live step: the last row of causal attention over the last ``window`` steps.

        Args:
            x: ``[B, in_features]``.
            t: time stamps in seconds, ``[B]``; or None.
            state: of ``init_state`` or of the step before; it is not changed.

        Returns:
            ``[B, out_features]`` and the next state.
        """
        return stream_step(self, x, t, state)

    def mask_group(self, group: str, neurons: Iterable[int] | None = None) -> None:
        """Cut neurons of the backbone off from all others; weights stay. See ``Wiring.mask_group``."""
        self.backbone.mask(group, neurons)

    def rewire(self, in_features: Map | None = None, out_features: Map | None = None) -> NAC:
        """A new layer with other inputs or outputs that keeps the trained synapses (paper, section 2.2).

        Args:
            in_features: their new number (those beyond the old number are new), or for each new input the index
                of the old one whose synapses it takes, None for fresh ones.
            out_features: the same for outputs.
        """
        return rewire(self, in_features, out_features)

    # ------------------------------------------------------------------ inside

    def _split(self, x: Tensor) -> Tensor:
        batch, steps, _ = x.shape
        return x.view(batch, steps, self.num_heads, self.head_dim).permute(2, 0, 1, 3)

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Sensory gates: q, k, v as ``[H, B, T, D]``."""
        projected = []
        for gate, x in ((self.q_gate, query), (self.k_gate, key), (self.v_gate, value)):
            projected.append(self._split(gate(x)))
        return projected[0], projected[1], projected[2]

    def _stamps(self, t: Tensor | None, like: Tensor, padding: Tensor | None) -> Tensor:
        """What the time gate feels of ``t``: ``[B, Tq]`` in units of ``time_scale``."""
        batch, queries = like.shape[0], like.shape[1]
        wide = torch.promote_types(self.time_scale.dtype, torch.float32)
        if t is None:
            return torch.ones(batch, queries, device=like.device, dtype=wide)
        t = check_times(t, batch, queries)
        if self.stamps == "absolute":
            return t.to(wide) / self.time_scale
        gaps = t.diff(dim=1)
        counted = None if padding is None or padding.shape[1] != queries else ~(padding[:, 1:] | padding[:, :-1])
        check_gaps(gaps, counted)
        gaps = gaps.to(wide) / self.time_scale
        return torch.cat([torch.ones_like(gaps[:, :1]) if queries > 1 else gaps.new_ones(batch, 1), gaps], dim=1)

    def _attend(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        t: Tensor | None,
        padding: Tensor | None,
        causal: bool,
        window: int | None,
        last_only: bool,
        detailed: bool,
    ) -> tuple[Tensor, dict[str, Tensor] | None]:
        key = query if key is None else key
        value = key if value is None else value
        check_inputs(query, key, value, self.in_features, self.out_proj.weight)
        batch, queries, keys = query.shape[0], query.shape[1], key.shape[1]
        check_padding(padding, batch, keys)
        require(not causal or queries == keys, "is_causal", causal, f"False where Tq={queries} differs from Tk={keys}")
        require(window is None or (causal and window >= 1), "window", window, "1 or more, together with is_causal=True")
        stamps = self._stamps(t, query, padding)
        position = torch.arange(queries, device=query.device).expand(batch, queries)
        if last_only:
            if padding is not None and queries == keys:
                position = torch.where(padding, -1, position).amax(1, keepdim=True).clamp(min=0)
            else:
                position = position[:, -1:]
            stamps = stamps.gather(1, position)
            query = query.gather(1, position.unsqueeze(-1).expand(-1, -1, query.shape[-1]))
        q, k, v = self._project(query, key, value)
        with torch.autocast(query.device.type, enabled=False):
            return self._pairs(q, k, v, stamps, Rules(position, padding, causal, window), detailed)

    def _pairs(
        self, q: Tensor, k: Tensor, v: Tensor, stamps: Tensor, rules: Rules, detailed: bool
    ) -> tuple[Tensor, dict[str, Tensor] | None]:
        # Logits and softmax stay in float32: half precision cannot hold phi/omega as omega nears eps.
        wide = torch.promote_types(q.dtype, torch.float32)
        low = q.dtype != wide
        # In one piece, or every chunk of pairs would copy them.
        q, k, v = q.to(wide), k.to(wide).contiguous(), v.to(wide).contiguous()
        with torch.no_grad():
            index = select(q.detach(), k.detach(), rules, self.topk, self.selection, self.sqrt_blocks, self.sqrt_block)
            flat = None if index is None else index.flatten(1, 2)
        prune = not detailed and q.device.type == "cpu" and not torch.compiler.is_compiling()
        w = self._folded(wide, prune)
        tokens = self._tokens(q, k, v, stamps.to(wide), w)
        job = Job(flat, rules, k.shape[2], self.options, self.dropout if self.training else 0.0, low)
        if not detailed:
            return pair_attention(tokens, w, self.logit_scale, job), None
        found = all_pairs(tokens, w, self.logit_scale, job)
        return found.y, self._details(q, k, v, found)

    def _folded(self, dtype: torch.dtype, prune: bool = False, prune_inter: bool = True) -> Folded:
        folded = self.backbone.fold(self.num_heads, prune, prune_inter)
        if folded.wq.dtype == dtype:
            return folded
        return Folded(*(x.to(dtype) if isinstance(x, Tensor) else x for x in folded))  # type: ignore[arg-type]

    def _tokens(self, q: Tensor, k: Tensor, v: Tensor, stamps: Tensor, w: Folded) -> Tokens:
        q, k, v = q.flatten(1, 2), k.flatten(1, 2), v.flatten(1, 2)
        flat = stamps.reshape(-1)
        tq, tk = self.time_gate.halves(q, k, flat)
        return Tokens(torch.baddbmm(w.b1.unsqueeze(1), q, w.wq), k @ w.wk, tq, tk, v, flat)

    def _details(self, q: Tensor, k: Tensor, v: Tensor, found: Pairs) -> dict[str, Tensor]:
        heads, batch, queries, _ = q.shape

        def front(x: Tensor) -> Tensor:
            return x.reshape(heads, batch, queries, *x.shape[2:]).transpose(0, 1)

        a, inter, command = found.attention, found.inter, found.command
        logits = a.logits if found.allowed is None else a.logits.masked_fill(~found.allowed, -math.inf)
        if self.backbone.activation == "tanh":
            inter, command = 2 * inter - 1, 2 * command - 1
        if self.backbone.activation != "linear":
            inters, commands = self.backbone.sensory.weight.shape[-1], self.backbone.motor.weight.shape[1]
            inter, command = inter[..., :inters], command[..., :commands]
        return {
            "q": q.transpose(0, 1),
            "k": k.transpose(0, 1),
            "v": v.transpose(0, 1),
            "keys": front(found.index),
            "inter": front(inter),
            "command": front(command),
            "phi": front(a.phi),
            "omega": front(a.omega),
            "t": front(a.t),
            "logits": front(logits),
            "weights": front(a.weights),
        }
