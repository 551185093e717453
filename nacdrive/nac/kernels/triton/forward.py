"""Triton kernel of the forward pass: the backbone of many query-key pairs, dynamics, softmax, weighted sum of values.

One program owns tiles of ``BQ`` queries of one head and walks over their keys in blocks of ``BK`` with an online
softmax, so that nothing of the size of the pairs is ever written: a tile is a matrix of ``BQ * BK`` pairs (rows) by
neurons (columns), small enough for registers. Two ways to name the keys share the kernel: an index per query
(Top-K), or every key of the query's sequence under a causal, windowed and padded mask (pairwise).

Widths are padded to powers of two of at least 16, as ``tl.dot`` demands; absent weights are loaded as zeros, so the
padded neurons neither act nor learn. Logits and softmax are float32; the matrix products take ``LOW`` (bfloat16
operands, float32 sums) or float32 operands at ``PRECISION``.
"""

# Triton types and compiles these functions itself, from annotations mypy cannot read.
# mypy: disallow-untyped-defs=false, disallow-untyped-decorators=false, disallow-incomplete-defs=false
# mypy: disallow-untyped-calls=false

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def act(x, ACT: tl.constexpr):
    """Activation of inter and command neurons (tanh is folded into the weights as sigmoid)."""
    s = 1.0 / (1.0 + tl.exp(-x))
    if ACT == "silu":
        s = x * s
    return s


@triton.jit
def slope(x, ACT: tl.constexpr):
    """Derivative of ``act`` at ``x``."""
    s = 1.0 / (1.0 + tl.exp(-x))
    d = s * (1.0 - s)
    if ACT == "silu":
        d = s + x * d
    return d


@triton.jit
def dot(a, b, LOW: tl.constexpr, PRECISION: tl.constexpr):
    """Matrix product with float32 sums."""
    if LOW:
        return tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16))
    else:
        return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def softplus(x):
    """log(1 + exp(x)) to float32's relative accuracy for any x: omega may be divided by, so its tail matters."""
    e = tl.exp(-tl.abs(x))
    r = e / (2.0 + e)  # log1p(e) = 2 atanh(r), r <= 1/3
    q = r * r
    tail = 1.0 / 9 + q * (1.0 / 11 + q * (1.0 / 13 + q * (1.0 / 15)))
    series = 1.0 + q * (1.0 / 3 + q * (1.0 / 5 + q * (1.0 / 7 + q * tail)))
    return tl.maximum(x, 0.0) + 2.0 * r * series


@triton.jit
def tanh(x):
    """tanh(x) = 1 - 2 / (1 + exp(2 x)); libdevice is not needed."""
    return 1.0 - 2.0 / (1.0 + tl.exp(2.0 * x))


@triton.jit
def bound(content, PHI: tl.constexpr):
    """The content gate phi."""
    if PHI == "sigmoid":
        return 1.0 / (1.0 + tl.exp(-content))
    elif PHI == "tanh":
        return tanh(content)
    else:
        return content


@triton.jit
def decay_mean(x):
    """(1 - exp(-x)) / x, a series below 1/2 where the quotient cancels."""
    a = 1.0 / 120 - x * (1.0 / 720 - x * (1.0 / 5040 - x * (1.0 / 40320 - x * (1.0 / 362880))))
    series = 1.0 - x * (1.0 / 2 - x * (1.0 / 6 - x * (1.0 / 24 - x * a)))
    safe = tl.where(x < 0.5, 1.0, x)
    return tl.where(x < 0.5, series, (1.0 - tl.exp(-safe)) / safe)


@triton.jit
def euler_step(omega, t, STEPS: tl.constexpr, STEP: tl.constexpr):
    """Step size of ``Euler``; it never exceeds 1/omega. ``STEP`` 0 stands for t/STEPS."""
    if STEP > 0:
        return tl.minimum(t * 0.0 + STEP, 1.0 / omega)
    else:
        return tl.minimum(t / STEPS, 1.0 / omega)


@triton.jit
def logit_of(phi, omega, t, MODE: tl.constexpr, STEPS: tl.constexpr, STEP: tl.constexpr):
    """Solution of da/dt = -omega a + phi; see ``nacdrive.nac.dynamics``."""
    if MODE == "exact":
        return phi * t * decay_mean(omega * t)
    elif MODE == "steady":
        return phi / omega
    else:
        h = euler_step(omega, t, STEPS, STEP)
        r = 1.0 - h * omega
        total = t * 0.0 + 1.0
        for _ in tl.static_range(STEPS - 1):
            total = 1.0 + r * total
        return h * phi * total


@triton.jit
def queries_of(tile, span, tiles_per_span, offset, BQ: tl.constexpr):
    """Row among all queries of each query ``offset`` of a tile, and whether there is such a query.

    Queries are tiled span by span: pairwise, a span is one sequence, whose queries share their keys.
    """
    i = (tile % tiles_per_span) * BQ + offset
    return ((tile // tiles_per_span) * span + i).to(tl.int64), i < span


@triton.jit
def keys_of(
    h, row_q, there, first, slots, KEYS, QUERIES, window, index, index_head, index_row, position, padding,
    BQ: tl.constexpr, BK: tl.constexpr, INDEXED: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """For the pairs of a tile and a key block: row of the key among all keys, and whether the query may see it."""
    slot = first + tl.arange(0, BQ * BK) % BK
    seen = there & (slot < slots)
    if INDEXED:
        key = tl.load(index + h * index_head + row_q * index_row + slot, mask=seen, other=-1)
    else:
        key = slot.to(tl.int64)
    row_k = row_q // QUERIES * KEYS + tl.maximum(key, 0)
    if INDEXED:
        seen = seen & (key >= 0)
    if CAUSAL:
        at = tl.load(position + row_q, mask=there, other=-1)
        seen = seen & (key <= at)
        if WINDOWED:
            seen = seen & (key > at - window)
    if PADDED:
        seen = seen & (tl.load(padding + row_k, mask=seen, other=1) == 0)
    return row_k, seen


@triton.jit
def slot_range(
    row, real, slots, window, position,
    BK: tl.constexpr, INDEXED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
):  # fmt: skip
    """First slot (a multiple of ``BK``) and end of the slots that hold keys which some query of the tile may see."""
    low = slots * 0
    high = slots
    if CAUSAL and not INDEXED:
        at = tl.load(position + row, mask=real, other=-1)
        high = tl.minimum(slots, tl.max(at, 0).to(tl.int32) + 1)
        if WINDOWED:
            nearest = tl.min(tl.where(real, at, slots), 0).to(tl.int32)
            low = tl.maximum(0, nearest - window + 1) // BK * BK
    return low, high


@triton.jit
def first_layer(zq, zk, q_at, k_at, there, seen, IW: tl.constexpr, IP: tl.constexpr):
    """z = zq + zk of the pairs, ``[BQ * BK, IP]``."""
    column = tl.arange(0, IP)
    width = column < IW
    of_q = tl.load(zq + q_at[:, None] * IW + column[None, :], mask=there[:, None] & width[None, :], other=0.0)
    of_k = tl.load(zk + k_at[:, None] * IW + column[None, :], mask=seen[:, None] & width[None, :], other=0.0)
    return of_q + of_k


@triton.jit
def command(s, br, wr, COUNT: tl.constexpr, ACT: tl.constexpr, LOW: tl.constexpr, PRECISION: tl.constexpr):
    """Command neurons after ``COUNT`` recurrent updates: their inputs and their values."""
    x = s
    c = act(s, ACT)
    for _ in tl.static_range(COUNT):
        x = s + br[None, :] + dot(c, wr, LOW, PRECISION)
        c = act(x, ACT)
    return x, c


@triton.jit
def weights_of(
    h, w2, b2, wr, br, w3, b3, IW: tl.constexpr, IP: tl.constexpr, C: tl.constexpr, CP: tl.constexpr,
    INTER: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """The backbone's weights of one head, padded with zeros; what a circuit lacks is a zero that nobody reads."""
    i, c = tl.arange(0, IP), tl.arange(0, CP)
    wide = c < C
    m2 = tl.zeros([16, 16], tl.float32)
    mr = m2
    v2 = tl.zeros([CP], tl.float32)
    vr = v2
    if INTER:
        at = h * IW * C + i[:, None] * C + c[None, :]
        m2 = tl.load(w2 + at, mask=(i < IW)[:, None] & wide[None, :], other=0.0)
        v2 = tl.load(b2 + h * C + c, mask=wide, other=0.0)
    if R > 1:
        mr = tl.load(wr + h * C * C + c[:, None] * C + c[None, :], mask=wide[:, None] & wide[None, :], other=0.0)
        vr = tl.load(br + h * C + c, mask=wide, other=0.0)
    of_phi = tl.load(w3 + (h * C + c) * 2, mask=wide, other=0.0)
    of_omega = tl.load(w3 + (h * C + c) * 2 + 1, mask=wide, other=0.0)
    return m2, v2, mr, vr, of_phi, of_omega, tl.load(b3 + h * 2), tl.load(b3 + h * 2 + 1)


@triton.jit
def linear_motor(zq, zk, q_at, k_at, there, seen, NEURON: tl.constexpr):
    """A motor neuron of a circuit without nonlinearity: the halves are already its two inputs."""
    return tl.load(zq + q_at * 2 + NEURON, mask=there, other=0.0) + tl.load(
        zk + k_at * 2 + NEURON, mask=seen, other=0.0
    )


@triton.jit
def forward_kernel(
    zq, zk, tq, tk, v, tau, w2, b2, wr, br, w3, b3, scale,
    index, index_head, index_row, position, padding,
    y, top, total,
    N, M, QUERIES, KEYS, slots, window, tiles, span, tiles_per_span,
    IW: tl.constexpr, IP: tl.constexpr, C: tl.constexpr, CP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr,
    BQ: tl.constexpr, BK: tl.constexpr, INDEXED: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr, PADDED: tl.constexpr, LINEAR: tl.constexpr, INTER: tl.constexpr, R: tl.constexpr,
    ACT: tl.constexpr, PHI: tl.constexpr, MODE: tl.constexpr, STEPS: tl.constexpr, STEP: tl.constexpr,
    EPS: tl.constexpr, TIME: tl.constexpr, DELTA: tl.constexpr, SCALED: tl.constexpr, LOW: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """``y [H, N, D]`` and, for the backward pass, each row's largest logit and its sum of exponentials ``[H, N]``.

    Grid: (programs per head, heads). A program keeps its head's weights and takes every so many tiles.
    """
    h = tl.program_id(1).to(tl.int64)
    if not LINEAR:
        m2, v2, mr, vr, of_phi, of_omega, b_phi, b_omega = weights_of(
            h, w2, b2, wr, br, w3, b3, IW, IP, C, CP, INTER, R
        )
    factor = 1.0
    if SCALED:
        factor = tl.load(scale + h)
    d = tl.arange(0, DP)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        row_q, there = queries_of(tile, span, tiles_per_span, tl.arange(0, BQ * BK) // BK, BQ)
        q_at = h * N + row_q
        row, real = queries_of(tile, span, tiles_per_span, tl.arange(0, BQ), BQ)
        low, high = slot_range(row, real, slots, window, position, BK, INDEXED, CAUSAL, WINDOWED)
        tau_i = tl.load(tau + row_q, mask=there, other=0.0)
        of_q = tl.load(tq + q_at, mask=there, other=0.0)
        largest = tl.full([BQ], float("-inf"), tl.float32)
        denominator = tl.zeros([BQ], tl.float32)
        mean = tl.zeros([BQ, DP], tl.float32)
        for first in range(low, high, BK):
            row_k, seen = keys_of(
                h, row_q, there, first, slots, KEYS, QUERIES, window, index, index_head, index_row, position, padding,
                BQ, BK, INDEXED, CAUSAL, WINDOWED, PADDED,
            )  # fmt: skip
            k_at = h * M + row_k
            if LINEAR:
                content = linear_motor(zq, zk, q_at, k_at, there, seen, 0)
                rate = linear_motor(zq, zk, q_at, k_at, there, seen, 1)
            else:
                s = first_layer(zq, zk, q_at, k_at, there, seen, IW, IP)
                if INTER:
                    s = dot(act(s, ACT), m2, LOW, PRECISION) + v2[None, :]
                _, c = command(s, vr, mr, R - 1, ACT, LOW, PRECISION)
                content = tl.sum(c * of_phi[None, :], 1) + b_phi
                rate = tl.sum(c * of_omega[None, :], 1) + b_omega
            slope_j = tl.load(tk + k_at * 2, mask=seen, other=0.0)
            offset = tl.load(tk + k_at * 2 + 1, mask=seen, other=0.0)
            t = 1.0 / (1.0 + tl.exp(-(tau_i * slope_j + offset + of_q)))
            logit = logit_of(bound(content, PHI), softplus(rate) + EPS, t, MODE, STEPS, STEP) * factor
            logit = tl.reshape(tl.where(seen, logit, float("-inf")), [BQ, BK])

            new = tl.maximum(largest, tl.max(logit, 1))
            base = tl.where(new == float("-inf"), 0.0, new)  # -inf minus -inf would be NaN in a row without keys
            shrink = tl.exp(largest - base)
            e = tl.exp(logit - base[:, None])
            largest = new
            denominator = denominator * shrink + tl.sum(e, 1)
            mix = tl.reshape(e, [BQ * BK])
            mix = mix * t if TIME else mix * DELTA
            values = tl.load(v + k_at[:, None] * D + d[None, :], mask=seen[:, None] & (d < D)[None, :], other=0.0)
            mean = mean * shrink[:, None] + tl.sum(tl.reshape(mix[:, None] * values, [BQ, BK, DP]), 1)

        empty = denominator == 0.0
        denominator = tl.where(empty, 1.0, denominator)
        out = h * N + row
        tl.store(y + out[:, None] * D + d[None, :], mean / denominator[:, None], mask=real[:, None] & (d < D)[None, :])
        tl.store(top + out, tl.where(empty, 0.0, largest), mask=real)
        tl.store(total + out, denominator, mask=real)
