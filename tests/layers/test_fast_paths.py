"""Every fast path beside a naive twin that follows the equation step by step or pair by pair, in double precision."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from nacdrive import layers
from nacdrive.layers import attention, contiformer, ltc
from nacdrive.layers.contiformer import INSTANT
from nacdrive.layers.cta import _AttendingState
from nacdrive.layers.state_space import _Recurrence, linear_scan, parallel, sequential
from nacdrive.layers.windowed import WindowedLayer

B, T, F, D, H = 2, 11, 5, 8, 2
WINDOWED = [n for n in layers.names() if isinstance(layers.build(n, D, H, 1), WindowedLayer)]


def layer_of(name, window=50, in_features=F, **options):
    torch.manual_seed(0)
    return layers.build(name, D, H, window, in_features=in_features, **options).double().eval()


def random(*shape, seed=1, **options):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed), **options)


def times(seed=2):
    return torch.rand(B, T, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).cumsum(dim=1)


def gaps(t):
    return torch.cat([torch.ones_like(t[:, :1]), t.diff(dim=1)], dim=1)


@pytest.mark.parametrize("name", WINDOWED)
def test_a_window_is_a_fresh_pass_over_its_steps(name):
    layer, x, t = layer_of(name, 4), random(B, T, F), times()
    fresh = [layer(x[:, max(0, i - 3) : i + 1], t[:, max(0, i - 3) : i + 1])[:, -1] for i in range(T)]
    torch.testing.assert_close(layer(x, t), torch.stack(fresh, dim=1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("scan", [sequential, parallel])
def test_scans_equal_the_loop(scan, dtype):
    a, b = (torch.randn(13, 3, dtype=dtype, generator=torch.Generator().manual_seed(s)) for s in (1, 2))
    h, rows = torch.zeros(3, dtype=dtype), []
    for i in range(13):
        h = a[i] * h + b[i]
        rows.append(h)
    torch.testing.assert_close(scan(a, b), torch.stack(rows))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_gradient_of_the_linear_scan(dtype):
    a, b = (torch.randn(5, 2, dtype=dtype, requires_grad=True) for _ in range(2))
    assert gradcheck(linear_scan, (a, b))


def test_decays_that_underflow_stay_finite():
    a, b = torch.full((300, 2), 1e-30), torch.ones(300, 2)
    assert parallel(a, b).isfinite().all()


def test_s4_convolution_equals_its_recurrence():
    layer, u = layer_of("s4", state=8), random(B, T, D)
    torch.testing.assert_close(layer.convolve(u), layer.recur(u, torch.ones(B, T, dtype=torch.float64)))


def test_gradients_of_the_recurrence_of_s4():
    u, gap = random(4, 2, 3, requires_grad=True), torch.rand(4, 2, dtype=torch.float64)
    rate, readout = (torch.complex(-random(3, 2, seed=s).abs(), random(3, 2, seed=s + 1)) for s in (3, 5))
    assert gradcheck(_Recurrence.apply, (u, gap, rate.requires_grad_(), readout.requires_grad_()))


def test_s4_takes_the_recurrence_where_one_gap_is_uneven():
    layer, x = layer_of("s4", state=8), random(B, T, F)
    t = torch.arange(T, dtype=torch.float64).repeat(B, 1)
    torch.testing.assert_close(layer(x, t), layer(x))
    t[1, 6:] += 0.5
    changed = (layer(x, t) - layer(x)).abs().amax(dim=2) > 1e-9
    assert changed[1, 6:].all() and not changed[0].any() and not changed[1, :6].any()


def test_deepstate_equals_the_loop():
    layer, x, t = layer_of("deepstate"), random(B, T, F), times()
    rate, gain, readout, offset = layer.system(layer.lstm(x)[0]).chunk(4, dim=2)
    level, rows = x.new_zeros(B, D), []
    for i in range(T):
        decay = torch.exp(-torch.nn.functional.softplus(rate[:, i]) * gaps(t)[:, i, None])
        level = decay * level + gain[:, i] * layer.innovation(x[:, i])
        rows.append(readout[:, i] * level + offset[:, i])
    torch.testing.assert_close(layer(x, t), torch.stack(rows, dim=1))


def test_synaptic_currents_of_ltc_in_chunks_equal_the_sum_over_synapses(monkeypatch):
    monkeypatch.setattr(ltc, "CHUNK", 3 * D * F)  # three samples at once
    synapses, v = ltc.Synapses(F, D).double(), random(7, F, requires_grad=True)
    s = torch.sigmoid(synapses.sigma * (v[:, None] - synapses.mu))
    w = torch.nn.functional.softplus(synapses.weight)
    expected = torch.stack([(w * synapses.reversal * s).sum(dim=2), (w * s).sum(dim=2)], dim=1)
    torch.testing.assert_close(synapses(v), expected)
    assert gradcheck(lambda v, *_: synapses(v), (v, *synapses.parameters()))


def test_phased_lstm_equals_the_equations_of_its_paper():
    layer, x, t = layer_of("phased-lstm", open_ratio=0.5, leak=0.1).train(), random(B, T, F), times() * 3
    tau, r = layer.log_tau.exp(), 0.5
    c = h = x.new_zeros(B, D)
    rows = []
    for i in range(T):
        phase = torch.remainder(t[:, i, None] - layer.shift, tau) / tau
        k = torch.where(phase < r / 2, 2 * phase / r, torch.where(phase < r, 2 - 2 * phase / r, 0.1 * phase))
        gate, forget, out, g = (layer.input(x[:, i]) + h @ layer.recurrent.t()).chunk(4, dim=1)
        gate, forget = gate + layer.peephole[0] * c, forget + layer.peephole[1] * c
        proposed = forget.sigmoid() * c + gate.sigmoid() * g.tanh()
        out = out + layer.peephole[2] * proposed
        h = k * out.sigmoid() * proposed.tanh() + (1 - k) * h
        c = k * proposed + (1 - k) * c
        rows.append(h)
    torch.testing.assert_close(layer(x, t), torch.stack(rows, dim=1))


@pytest.mark.parametrize("window", [4, 32, 256])
def test_nearly_every_unit_of_a_phased_lstm_opens_within_its_window(window):
    torch.manual_seed(0)
    layer = layers.build("phased-lstm", 512, 1, window, in_features=2).eval()
    answer = layer(torch.randn(1, window, 2), torch.arange(100.0, 100 + window)[None])[0, -1]
    assert (answer == 0).float().mean() < 0.05


def test_phased_lstm_leaks_in_training_alone():
    layer = layer_of("phased-lstm")
    closed = layer.shift.detach() + 0.9 * layer.log_tau.detach().exp()
    units = range(D)
    assert not layer.openness(closed)[units, units].any()
    assert layer.train().openness(closed)[units, units].gt(0).all()


def score_by_score(layer, x, weigh):
    """y_i = sum_j weigh(q_i, k_j) v_j over the past, per head: [B, H, T, D / H]."""
    q, k, v = layer._heads(x)
    y = torch.zeros_like(v)
    for b, h, i in ((b, h, i) for b in range(B) for h in range(H) for i in range(T)):
        y[b, h, i] = weigh(torch.stack([q[b, h, i]] * (i + 1)), k[b, h, : i + 1]) @ v[b, h, : i + 1]
    return y


def test_linear_attention_in_chunks_equals_its_sum_over_pairs(monkeypatch):
    monkeypatch.setattr(attention, "CHUNK", 3)
    monkeypatch.setattr(attention, "TINY", 0.0)

    def weigh(q, k):
        w = ((torch.nn.functional.elu(q) + 1) * (torch.nn.functional.elu(k) + 1)).sum(dim=1)
        return w / w.sum()

    layer, x = layer_of("linear-attention"), random(B, T, F)
    torch.testing.assert_close(layer(x), layer.merge(score_by_score(layer, x, weigh)))


def test_performer_tends_to_softmax_attention():
    layer, x = layer_of("performer", features=40000), 0.5 * random(B, T, F)
    exact = score_by_score(layer, x, lambda q, k: ((q * k).sum(dim=1) / math.sqrt(D // H)).softmax(dim=0))
    torch.testing.assert_close(layer(x), layer.merge(exact), atol=5e-3, rtol=5e-2)


def test_performer_redraws_in_training_alone():
    layer, x = layer_of("performer", redraw=2), random(B, T, F)
    before = layer.projection.clone()
    for _ in range(4):
        layer(x)
    assert torch.equal(layer.projection, before)
    layer.train()
    layer(x)
    assert torch.equal(layer.projection, before)
    layer(x)
    assert not torch.equal(layer.projection, before)


def test_performer_may_redraw_between_two_forwards_of_one_backward():
    layer, x = layer_of("performer", redraw=2).to(torch.float64).train(), random(B, T, F).double()
    (layer(x).sum() + layer(x).sum()).backward()
    assert layer.projection.dtype == torch.float64 and "projection" in layer.state_dict()


def test_rela_equals_its_sum_over_pairs():
    layer, x = layer_of("rela"), random(B, T, F)
    z = score_by_score(layer, x, lambda q, k: ((q * k).sum(dim=1) / math.sqrt(D // H)).relu())
    z = z.transpose(1, 2).flatten(2)
    normed = layer.gain * z / (z.square().mean(dim=2, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(layer(x), layer.out(torch.sigmoid(layer.gate * z) * normed))


@pytest.mark.parametrize("in_features", [F, D + 1])
@pytest.mark.parametrize("same_times", [True, False])
def test_mtan_equals_its_sum_over_pairs(in_features, same_times):
    layer, x = layer_of("mtan", in_features=in_features), random(B, T, in_features)
    t = times()[:1].expand(B, T) if same_times else times()
    phi = layer.embed(t)
    q, k = layer.query(phi).unflatten(2, (H, -1)), layer.key(phi).unflatten(2, (H, -1))
    rows = []
    for i in range(T):
        scores = torch.einsum("bhd,bjhd->bhj", q[:, i], k[:, : i + 1]) / math.sqrt(D // H)
        rows.append(layer.out(torch.einsum("bhj,bjf->bhf", scores.softmax(dim=2), x[:, : i + 1]).flatten(1)))
    torch.testing.assert_close(layer(x, t), torch.stack(rows, dim=1))


def test_cta_equals_the_loop():
    layer, x, t = layer_of("cta"), random(B, T, F), times()
    drive, k, v = layer.input(x).chunk(3, dim=2)
    z, rows = x.new_zeros(B, D), []
    for i in range(T):
        q = layer.query(z).unflatten(1, (H, -1))
        keys, values = (s[:, : i + 1].unflatten(2, (H, -1)) for s in (k, v))
        weights = (torch.einsum("bhd,bjhd->bhj", q, keys) / math.sqrt(D // H)).softmax(dim=2)
        c = torch.einsum("bhj,bjhd->bhd", weights, values).flatten(1)
        target = torch.tanh(drive[:, i] + z @ layer.state.t() + c @ layer.context.t())
        z = target + (z - target) * torch.exp(-gaps(t)[:, i, None])
        rows.append(z)
    torch.testing.assert_close(layer(x, t), torch.stack(rows, dim=1))


def test_gradients_of_cta():
    L, N, d, heads = 4, 2, 4, 2
    shapes = [
        (L, N, d),
        (N * heads, L, d // heads),
        (N * heads, L, d // heads),
        (L, N, 1),
        (d, d),
        (d,),
        (d, d),
        (d, d),
    ]
    inputs = [random(*shape, seed=i).requires_grad_() for i, shape in enumerate(shapes)]
    assert gradcheck(_AttendingState.apply, inputs)


def trajectories_pair_by_pair(layer, q, t, carried):
    """ContiFormer by its definition: ``carried(j, i)`` gives key and value j [B, H, D / H] at the time of step i."""
    rows = []
    for i in range(T):
        logits, values = [], []
        for j in range(i + 1):
            scores = [(q[:, :, m] * carried(j, m)[0]).sum(dim=-1) for m in range(j, i + 1)]
            steps = [(scores[n] + scores[n + 1]) / 2 * (t[:, j + n + 1] - t[:, j + n])[:, None] for n in range(i - j)]
            integral = torch.stack([torch.zeros_like(scores[0]), *steps]).sum(dim=0)
            logits.append((integral + INSTANT * scores[-1]) / ((t[:, i] - t[:, j])[:, None] + INSTANT))
            values.append(carried(j, i)[1])
        weights = torch.stack(logits, dim=2).softmax(dim=2)
        rows.append(torch.einsum("bhj,bhjd->bhd", weights, torch.stack(values, dim=2)).flatten(1))
    return layer.out(torch.stack(rows, dim=1))


def heads_of(layer, x):
    q, k, v = layer.qkv(x).view(B, T, 3, H, -1).permute(2, 0, 3, 1, 4)
    return q / math.sqrt(D // H), k, v


def test_contiformer_equals_its_trajectories_pair_by_pair(monkeypatch):
    monkeypatch.setattr(contiformer, "BLOCK", 4)
    layer, x, t = layer_of("contiformer"), random(B, T, F), times()
    q, k, v = heads_of(layer, x)

    def carried(j, i):
        pair = torch.cat([k[:, :, j], v[:, :, j]], dim=-1)
        for m in range(j, i):
            pair = contiformer.flow(pair, (t[:, m + 1] - t[:, m])[:, None, None], layer.weights())
        return pair.chunk(2, dim=-1)

    torch.testing.assert_close(layer(x, t), trajectories_pair_by_pair(layer, q, t, carried))


def test_gradients_of_contiformer(monkeypatch):
    monkeypatch.setattr(contiformer, "BLOCK", 2)
    shapes = [(1, 2, 5, 2), (1, 2, 5, 4), (1, 5), (4, 4), (4,), (4, 4), (4,)]
    inputs = [random(*shape, seed=i) for i, shape in enumerate(shapes)]
    inputs[2] = inputs[2].abs()
    assert gradcheck(contiformer._Rows.apply, [s.requires_grad_(i != 2) for i, s in enumerate(inputs)])


def test_contiformer_linear_equals_its_trajectories_pair_by_pair(monkeypatch):
    monkeypatch.setattr(contiformer, "QUERIES", 4)
    layer, x, t = layer_of("contiformer-linear"), random(B, T, F), times()
    q, k, v = heads_of(layer, x)

    def turned(state, rate, elapsed):
        # dk/ds = S k by the matrix exponential of a skew-symmetric S.
        half = D // H // 2
        S = torch.zeros(H, 2 * half, 2 * half, dtype=torch.float64)
        for p in range(half):
            S[:, p, p + half], S[:, p + half, p] = -rate[:, p].detach(), rate[:, p].detach()
        return torch.einsum("bhde,bhe->bhd", torch.matrix_exp(S * elapsed[:, None, None, None]), state)

    def carried(j, i):
        elapsed = t[:, i] - t[:, j]
        return turned(k[:, :, j], layer.key_rate, elapsed), turned(v[:, :, j], layer.value_rate, elapsed)

    torch.testing.assert_close(layer(x, t), trajectories_pair_by_pair(layer, q, t, carried))
