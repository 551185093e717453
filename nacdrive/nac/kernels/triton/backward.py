"""Triton kernel of the backward pass: recomputes every pair from its tokens and saves nothing per pair.

A program owns tiles of queries of one head, as in the forward pass. What belongs to a query is summed over its keys
and stored; what belongs to a key is added atomically, since several queries share a key; gradients of the weights
stay in registers over all tiles of the program and leave it once, as one partial sum per program.

The compiler spills registers here (0.7 KiB per thread at 32 neurons per layer, 1.6 at 64, 3.6 at 128): the first
thing to measure on a GPU.
"""

# Triton types and compiles these functions itself, from annotations mypy cannot read.
# mypy: disallow-untyped-defs=false, disallow-untyped-decorators=false, disallow-incomplete-defs=false
# mypy: disallow-untyped-calls=false

from __future__ import annotations

import triton
import triton.language as tl

from nacdrive.nac.kernels.triton.forward import (
    act,
    bound,
    command,
    decay_mean,
    dot,
    euler_step,
    first_layer,
    keys_of,
    linear_motor,
    logit_of,
    queries_of,
    slope,
    slot_range,
    softplus,
    weights_of,
)


@triton.jit
def decay_mean_slope(x):
    """Derivative of ``decay_mean``."""
    a = 1.0 / 840 - x * (1.0 / 5760 - x * (1.0 / 45360 - x * (1.0 / 403200)))
    series = -1.0 / 2 + x * (1.0 / 3 - x * (1.0 / 8 - x * (1.0 / 30 - x * (1.0 / 144 - x * a))))
    safe = tl.where(x < 0.5, 1.0, x)
    e = tl.exp(-safe)
    return tl.where(x < 0.5, series, (e - (1.0 - e) / safe) / safe)


@triton.jit
def logit_slopes(phi, omega, t, MODE: tl.constexpr, STEPS: tl.constexpr, STEP: tl.constexpr):
    """Derivatives of ``logit_of`` by phi, omega and t."""
    if MODE == "exact":
        x = omega * t
        g = decay_mean(x)
        return t * g, phi * t * t * decay_mean_slope(x), phi * tl.exp(-x)
    elif MODE == "steady":
        return 1.0 / omega, -phi / (omega * omega), t * 0.0
    else:
        h = euler_step(omega, t, STEPS, STEP)
        r = 1.0 - h * omega
        total = t * 0.0 + 1.0
        by_r = t * 0.0
        for _ in tl.static_range(STEPS - 1):
            by_r = total + r * by_r
            total = 1.0 + r * total
        by_h = phi * (total - h * omega * by_r)
        by_omega = -phi * h * h * by_r
        # The same comparison as in the minimum: where it chose 1/omega, the step moves with omega and not with t.
        capped = 1.0 / omega < (STEP if STEP > 0 else t / STEPS)
        by_omega = tl.where(capped, by_omega - by_h / (omega * omega), by_omega)
        by_t = t * 0.0
        if STEP <= 0:
            by_t = tl.where(capped, 0.0, by_h / STEPS)
        return h * total, by_omega, by_t


@triton.jit
def add_to_keys(
    into, at, values, use, WIDTH: tl.constexpr, PADDED_WIDTH: tl.constexpr,
    BQ: tl.constexpr, BK: tl.constexpr, INDEXED: tl.constexpr,
):  # fmt: skip
    """Add the pairs' rows ``values`` to rows ``at`` of ``into``; pairwise, the tile's queries share their keys."""
    column = tl.arange(0, PADDED_WIDTH)
    wide = (column < WIDTH)[None, :]
    if INDEXED:
        tl.atomic_add(into + at[:, None] * WIDTH + column[None, :], values, mask=use[:, None] & wide, sem="relaxed")
    else:
        # Key block first: rows and the question whether anyone uses them are the same for each query of the tile.
        rows = tl.max(tl.reshape(tl.where(use, at, 0), [BQ, BK]), 0)
        used = tl.max(tl.reshape(use.to(tl.int32), [BQ, BK]), 0) > 0
        merged = tl.sum(tl.reshape(tl.where(use[:, None], values, 0.0), [BQ, BK, PADDED_WIDTH]), 0)
        tl.atomic_add(into + rows[:, None] * WIDTH + column[None, :], merged, mask=used[:, None] & wide, sem="relaxed")


@triton.jit
def backward_kernel(
    zq, zk, tq, tk, v, tau, w2, b2, wr, br, w3, b3, scale,
    index, index_head, index_row, position, padding,
    top, total, dy, delta,
    dzq, dzk, dtq, dtk, dv, dtau, dw2, db2, dwr, dbr, dw3, db3, dscale,
    N, M, QUERIES, KEYS, slots, window, tiles, span, tiles_per_span,
    IW: tl.constexpr, IP: tl.constexpr, C: tl.constexpr, CP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr,
    BQ: tl.constexpr, BK: tl.constexpr, INDEXED: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr, PADDED: tl.constexpr, LINEAR: tl.constexpr, INTER: tl.constexpr, R: tl.constexpr,
    ACT: tl.constexpr, PHI: tl.constexpr, MODE: tl.constexpr, STEPS: tl.constexpr, STEP: tl.constexpr,
    EPS: tl.constexpr, TIME: tl.constexpr, DELTA: tl.constexpr, SCALED: tl.constexpr, LOW: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of ``forward_kernel``'s inputs; ``delta [H, N]`` is the dot product of ``dy`` and ``y``.

    Grid as in the forward pass. Gradients of weights and scale are ``[H, programs per head, ...]``, to be summed.
    """
    h = tl.program_id(1).to(tl.int64)
    part = h * tl.num_programs(0) + tl.program_id(0)
    if not LINEAR:
        m2, v2, mr, vr, of_phi, of_omega, b_phi, b_omega = weights_of(
            h, w2, b2, wr, br, w3, b3, IW, IP, C, CP, INTER, R
        )
        sum_phi = tl.zeros([CP], tl.float32)
        sum_omega = tl.zeros([CP], tl.float32)
        sum_2 = tl.zeros([CP], tl.float32)
        sum_r = tl.zeros([CP], tl.float32)
        sum_b_phi = 0.0
        sum_b_omega = 0.0
        if INTER:
            sum_w2 = tl.zeros([IP, CP], tl.float32)
        if R > 1:
            sum_wr = tl.zeros([CP, CP], tl.float32)
    factor = 1.0
    sum_scale = 0.0
    if SCALED:
        factor = tl.load(scale + h)
    d = tl.arange(0, DP)
    depth = (d < D)[None, :]
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        row_q, there = queries_of(tile, span, tiles_per_span, tl.arange(0, BQ * BK) // BK, BQ)
        q_at = h * N + row_q
        row, real = queries_of(tile, span, tiles_per_span, tl.arange(0, BQ), BQ)
        low, high = slot_range(row, real, slots, window, position, BK, INDEXED, CAUSAL, WINDOWED)
        tau_i = tl.load(tau + row_q, mask=there, other=0.0)
        of_q = tl.load(tq + q_at, mask=there, other=0.0)
        largest = tl.load(top + q_at, mask=there, other=0.0)
        denominator = tl.load(total + q_at, mask=there, other=1.0)
        centre = tl.load(delta + q_at, mask=there, other=0.0)
        grad_y = tl.load(dy + q_at[:, None] * D + d[None, :], mask=there[:, None] & depth, other=0.0)
        to_tq = tl.zeros([BQ], tl.float32)
        to_tau = tl.zeros([BQ], tl.float32)
        if LINEAR:
            to_phi = tl.zeros([BQ], tl.float32)
            to_omega = tl.zeros([BQ], tl.float32)
        else:
            to_zq = tl.zeros([BQ, IP], tl.float32)
        for first in range(low, high, BK):
            row_k, seen = keys_of(
                h, row_q, there, first, slots, KEYS, QUERIES, window, index, index_head, index_row, position, padding,
                BQ, BK, INDEXED, CAUSAL, WINDOWED, PADDED,
            )  # fmt: skip
            k_at = h * M + row_k

            # Forward, again.
            if LINEAR:
                content = linear_motor(zq, zk, q_at, k_at, there, seen, 0)
                rate = linear_motor(zq, zk, q_at, k_at, there, seen, 1)
            else:
                z = first_layer(zq, zk, q_at, k_at, there, seen, IW, IP)
                s = z
                if INTER:
                    s = dot(act(z, ACT), m2, LOW, PRECISION) + v2[None, :]
                x, c = command(s, vr, mr, R - 1, ACT, LOW, PRECISION)
                content = tl.sum(c * of_phi[None, :], 1) + b_phi
                rate = tl.sum(c * of_omega[None, :], 1) + b_omega
            slope_j = tl.load(tk + k_at * 2, mask=seen, other=0.0)
            offset = tl.load(tk + k_at * 2 + 1, mask=seen, other=0.0)
            t = 1.0 / (1.0 + tl.exp(-(tau_i * slope_j + offset + of_q)))
            phi = bound(content, PHI)
            omega = softplus(rate) + EPS
            raw = logit_of(phi, omega, t, MODE, STEPS, STEP)
            weight = tl.where(seen, tl.exp(tl.where(seen, raw * factor - largest, 0.0)) / denominator, 0.0)

            # Values, quadrature, softmax, dynamics.
            values = tl.load(v + k_at[:, None] * D + d[None, :], mask=seen[:, None] & depth, other=0.0)
            along = tl.sum(grad_y * values, 1)
            quadrature = t if TIME else t * 0.0 + DELTA
            add_to_keys(dv, k_at, (weight * quadrature)[:, None] * grad_y, seen, D, DP, BQ, BK, INDEXED)
            to_logit = weight * (along * quadrature - centre)
            if SCALED:
                sum_scale += tl.sum(tl.where(seen, to_logit * raw, 0.0), 0)
                to_logit = to_logit * factor
            slope_phi, slope_omega, slope_t = logit_slopes(phi, omega, t, MODE, STEPS, STEP)
            to_t = to_logit * slope_t
            if TIME:
                to_t += weight * along
            to_gate = tl.where(seen, to_t * t * (1.0 - t), 0.0)
            to_content = to_logit * slope_phi
            if PHI == "sigmoid":
                to_content = to_content * phi * (1.0 - phi)
            elif PHI == "tanh":
                to_content = to_content * (1.0 - phi * phi)
            to_content = tl.where(seen, to_content, 0.0)
            to_rate = tl.where(seen, to_logit * slope_omega / (1.0 + tl.exp(-rate)), 0.0)

            # Time gate.
            to_tq += tl.sum(tl.reshape(to_gate, [BQ, BK]), 1)
            to_tau += tl.sum(tl.reshape(to_gate * slope_j, [BQ, BK]), 1)
            two = tl.arange(0, 2)[None, :]
            pair = tl.where(two == 0, (to_gate * tau_i)[:, None], to_gate[:, None])
            add_to_keys(dtk, k_at, pair, seen, 2, 2, BQ, BK, INDEXED)

            # Circuit.
            if LINEAR:
                to_phi += tl.sum(tl.reshape(to_content, [BQ, BK]), 1)
                to_omega += tl.sum(tl.reshape(to_rate, [BQ, BK]), 1)
                motors = tl.where(two == 0, to_content[:, None], to_rate[:, None])
                add_to_keys(dzk, k_at, motors, seen, 2, 2, BQ, BK, INDEXED)
            else:
                sum_b_phi += tl.sum(to_content, 0)
                sum_b_omega += tl.sum(to_rate, 0)
                sum_phi += tl.sum(c * to_content[:, None], 0)
                sum_omega += tl.sum(c * to_rate[:, None], 0)
                to_c = to_content[:, None] * of_phi[None, :] + to_rate[:, None] * of_omega[None, :]
                to_s = tl.zeros([BQ * BK, CP], tl.float32)
                for r in tl.static_range(R - 1):
                    to_x = to_c * slope(x, ACT)
                    x, c = command(s, vr, mr, R - 2 - r, ACT, LOW, PRECISION)
                    sum_r += tl.sum(to_x, 0)
                    sum_wr += dot(tl.trans(c), to_x, LOW, PRECISION)
                    to_s += to_x
                    to_c = dot(to_x, tl.trans(mr), LOW, PRECISION)
                to_s += to_c * slope(s, ACT)
                to_z = to_s
                if INTER:
                    sum_2 += tl.sum(to_s, 0)
                    sum_w2 += dot(tl.trans(act(z, ACT)), to_s, LOW, PRECISION)
                    to_z = dot(to_s, tl.trans(m2), LOW, PRECISION) * slope(z, ACT)
                to_zq += tl.sum(tl.reshape(to_z, [BQ, BK, IP]), 1)
                add_to_keys(dzk, k_at, to_z, seen, IW, IP, BQ, BK, INDEXED)

        tl.store(dtq + h * N + row, to_tq, mask=real)
        tl.store(dtau + h * N + row, to_tau, mask=real)
        if LINEAR:
            tl.store(dzq + (h * N + row) * 2, to_phi, mask=real)
            tl.store(dzq + (h * N + row) * 2 + 1, to_omega, mask=real)
        else:
            column = tl.arange(0, IP)
            at = (h * N + row)[:, None] * IW + column[None, :]
            tl.store(dzq + at, to_zq, mask=real[:, None] & (column < IW)[None, :])

    if SCALED:
        tl.store(dscale + part, sum_scale)
    if not LINEAR:
        rows, columns = tl.arange(0, IP), tl.arange(0, CP)
        wide = columns < C
        tl.store(db3 + part * 2, sum_b_phi)
        tl.store(db3 + part * 2 + 1, sum_b_omega)
        tl.store(dw3 + (part * C + columns) * 2, sum_phi, mask=wide)
        tl.store(dw3 + (part * C + columns) * 2 + 1, sum_omega, mask=wide)
        if INTER:
            at = part * IW * C + rows[:, None] * C + columns[None, :]
            tl.store(dw2 + at, sum_w2, mask=(rows < IW)[:, None] & wide[None, :])
            tl.store(db2 + part * C + columns, sum_2, mask=wide)
        if R > 1:
            at = part * C * C + columns[:, None] * C + columns[None, :]
            tl.store(dwr + at, sum_wr, mask=wide[:, None] & wide[None, :])
            tl.store(dbr + part * C + columns, sum_r, mask=wide)
