"""Layers beside public implementations of the same equations, in double precision."""

import math

import pytest
import torch
from torch import nn

from nacdrive import layers
from nacdrive.layers import contiformer

B, T, F, D, H = 3, 7, 5, 8, 2


def layer_of(name, window=50, **options):
    torch.manual_seed(0)
    return layers.build(name, D, H, window, in_features=F, **options).double().eval()


@pytest.fixture
def x():
    return torch.randn(B, T, F, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def t():
    return torch.rand(B, T, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).cumsum(dim=1)


def gaps(t):
    return torch.cat([torch.ones_like(t[:, :1]), t.diff(dim=1)], dim=1)


@pytest.mark.parametrize(("name", "kind"), [("rnn", nn.RNNCell), ("lstm", nn.LSTMCell), ("gru", nn.GRUCell)])
def test_recurrences_of_torch_equal_their_cells(name, kind, x):
    layer, cell = layer_of(name), kind(F, D).double()
    for p, q in zip(cell.parameters(), layer.parameters(), strict=True):
        p.data = q.data
    state, rows = None, []
    for i in range(T):
        state = cell(x[:, i], state)
        rows.append(state[0] if isinstance(state, tuple) else state)
    torch.testing.assert_close(layer(x), torch.stack(rows, dim=1))


def test_cfc_equals_the_cell_of_ncps(x, t):
    from ncps.torch import CfCCell

    layer, cell = layer_of("cfc", backbone_units=12), CfCCell(F, D, backbone_units=12).double()
    cell.backbone[0].weight.data = torch.cat([layer.input.weight, layer.recurrent], dim=1).detach()
    cell.backbone[0].bias.data = layer.input.bias.detach()
    heads = (cell.ff1, cell.ff2, cell.time_a, cell.time_b)
    for head, weight, bias in zip(heads, layer.heads.weight.chunk(4), layer.heads.bias.chunk(4), strict=True):
        head.weight.data, head.bias.data = weight.detach(), bias.detach()
    h, rows, dt = x.new_zeros(B, D), [], gaps(t)
    for i in range(T):
        _, h = cell(x[:, i], h, dt[:, i : i + 1])
        rows.append(h)
    torch.testing.assert_close(layer(x, t), torch.stack(rows, dim=1))


UNITS = 20


def wiring_of_ncps():
    from ncps.wirings import AutoNCP

    return AutoNCP(UNITS, D, sparsity_level=0.6)  # the cells build it


def test_ltc_with_ncp_wiring_equals_the_cell_of_ncps(x, t):
    from ncps.torch import LTCCell

    layer = layer_of("ltc-ncp", units=UNITS, sparsity=0.6)
    cell = LTCCell(wiring_of_ncps(), F, implicit_param_constraints=True).double()
    for prefix, synapses in (("", layer.recurrent), ("sensory_", layer.sensory)):
        torch.testing.assert_close(getattr(cell, prefix + "erev"), synapses.reversal.t())
        for theirs, ours in (("w", "weight"), ("sigma", "sigma"), ("mu", "mu")):
            getattr(cell, prefix + theirs).data = getattr(synapses, ours).detach().t().contiguous()
    for theirs, ours in (("gleak", "leak"), ("vleak", "resting"), ("cm", "capacity")):
        getattr(cell, theirs).data = getattr(layer, ours).detach()
    h, rows, dt = x.new_zeros(B, UNITS), [], gaps(t)
    for i in range(T):
        y, h = cell(x[:, i], h, dt[:, i : i + 1])
        rows.append(y)
    torch.testing.assert_close(layer(x, t), torch.stack(rows, dim=1), atol=1e-6, rtol=1e-5)


def test_cfc_with_ncp_wiring_equals_the_cell_of_ncps(x, t):
    from ncps.torch import WiredCfCCell

    layer = layer_of("cfc-ncp", units=UNITS, sparsity=0.6)
    cell = WiredCfCCell(F, wiring_of_ncps()).double()
    for mine, theirs in zip(layer.cells, cell._layers, strict=True):
        heads = (theirs.ff1, theirs.ff2, theirs.time_a, theirs.time_b)
        for head, weight, bias in zip(heads, mine.linear.weight.chunk(4), mine.linear.bias.chunk(4), strict=True):
            head.weight.data, head.bias.data = weight.detach(), bias.detach()
    h, rows, dt = x.new_zeros(B, UNITS), [], gaps(t)
    for i in range(T):
        y, h = cell(x[:, i], h, dt[:, i : i + 1])
        rows.append(y)
    torch.testing.assert_close(layer(x, t), torch.stack(rows, dim=1))


def test_ltc_equals_the_cell_of_ncps(x, t):
    from ncps.torch import LTCCell
    from ncps.wirings import FullyConnected

    layer = layer_of("ltc")
    cell = LTCCell(FullyConnected(D), F, implicit_param_constraints=True).double()
    for prefix, synapses in (("", layer.recurrent), ("sensory_", layer.sensory)):
        for theirs, ours in (("w", "weight"), ("sigma", "sigma"), ("mu", "mu"), ("erev", "reversal")):
            getattr(cell, prefix + theirs).data = getattr(synapses, ours).detach().t().contiguous()
    for theirs, ours in (("gleak", "leak"), ("vleak", "resting"), ("cm", "capacity")):
        getattr(cell, theirs).data = getattr(layer, ours).detach()
    h, rows, dt = x.new_zeros(B, D), [], gaps(t)
    for i in range(T):
        y, h = cell(x[:, i], h, dt[:, i : i + 1])
        rows.append(y)
    torch.testing.assert_close(layer(x, t), torch.stack(rows, dim=1), atol=1e-6, rtol=1e-5)


def solved(change, h, dt):
    """h after dt [N]: each sample's own gap, mapped to [0, 1]."""
    # Imported here: SciPy takes seconds, and every process of the tests collects this file.
    from torchdiffeq import odeint

    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    return odeint(lambda s, h: dt.unsqueeze(1) * change(h), h, ends, rtol=1e-9, atol=1e-9)[-1]


def test_gru_ode_converges_to_the_solution_of_its_ode(x, t):
    layer = layer_of("gru-ode", unfolds=800)
    u, h, rows, dt = layer.input(x), x.new_zeros(B, D), [], gaps(t)
    for i in range(T):
        into_r, into_z, into_g = u[:, i].chunk(3, dim=1)

        def change(h, into_r=into_r, into_z=into_z, into_g=into_g):
            of_r, of_z = (h @ layer.gates.t()).chunk(2, dim=1)
            g = torch.tanh(into_g + (torch.sigmoid(into_r + of_r) * h) @ layer.candidate.t())
            return torch.sigmoid(into_z + of_z) * (g - h)

        h = solved(change, h, dt[:, i])
        rows.append(h)
    torch.testing.assert_close(layer(x, t), torch.stack(rows, dim=1), atol=2e-4, rtol=1e-3)


def test_ct_rnn_converges_to_the_solution_of_its_ode(x, t):
    layer = layer_of("ct-rnn", unfolds=800)
    flow, h, rows, dt = layer.relaxation, x.new_zeros(B, D), [], gaps(t)
    with torch.no_grad():
        flow.scale.uniform_(0.5, 1.5)
        flow.log_tau.uniform_(-0.5, 0.5)
    for i in range(T):
        z = layer.input(x[:, i])
        h = solved(
            lambda h, z=z: flow.scale * torch.tanh(z + h @ flow.recurrent.t()) - h / flow.log_tau.exp(), h, dt[:, i]
        )
        rows.append(h)
    torch.testing.assert_close(layer(x, t), torch.stack(rows, dim=1), atol=1e-3, rtol=1e-3)


def test_mmrnn_is_an_lstm_whose_output_flows(x, t):
    layer = layer_of("mmrnn", unfolds=800)
    flow, dt = layer.flow, gaps(t)
    c, h, rows = x.new_zeros(B, D), x.new_zeros(B, D), []
    for i in range(T):
        i_, f, o, g = (layer.input(x[:, i]) + h @ layer.recurrent.t()).chunk(4, dim=1)
        c = f.sigmoid() * c + i_.sigmoid() * g.tanh()
        h = solved(
            lambda h: flow.scale * torch.tanh(layer.flow_bias + h @ flow.recurrent.t()) - h / flow.log_tau.exp(),
            o.sigmoid() * c.tanh(),
            dt[:, i],
        )
        rows.append(h)
    torch.testing.assert_close(layer(x, t), torch.stack(rows, dim=1), atol=1e-3, rtol=1e-3)


def test_s4_follows_the_solution_of_its_system(x, t):
    layer = layer_of("s4", state=6)
    A = torch.complex(-layer.log_decay.exp(), layer.frequency)
    C, u, dt = torch.view_as_complex(layer.C), layer.input(x), gaps(t)
    state, rows = torch.zeros(B, D * 3, dtype=torch.complex128), []
    for i in range(T):
        rate = (A * layer.log_delta.exp().unsqueeze(1)).flatten()
        drive = (u[:, i].unsqueeze(-1) * layer.log_delta.exp().unsqueeze(1)).expand(B, D, 3).flatten(1)
        state = solved(lambda z, rate=rate, drive=drive: rate * z + drive, state, dt[:, i])
        y = 2 * (state.view(B, D, 3) * C).sum(dim=-1).real + layer.D * u[:, i]
        rows.append(nn.functional.glu(layer.out(nn.functional.gelu(y))))
    torch.testing.assert_close(layer(x, t), torch.stack(rows, dim=1), atol=1e-6, rtol=1e-5)


def test_mha_equals_the_attention_of_torch(x):
    x = torch.cat([x, x], dim=2)[:, :, :D]
    layer = layers.build("mha", D, H, 50).double()
    oracle = nn.MultiheadAttention(D, H, batch_first=True).double()
    oracle.in_proj_weight.data, oracle.in_proj_bias.data = layer.qkv.weight.data, layer.qkv.bias.data
    oracle.out_proj.load_state_dict(layer.out.state_dict())
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    torch.testing.assert_close(layer(x), oracle(x, x, x, attn_mask=hidden, need_weights=False)[0])


def test_one_step_of_odeformer_is_a_block_of_a_transformer(x):
    layer = layer_of("odeformer", unfolds=1)
    block = nn.TransformerEncoderLayer(D, H, 2 * D, 0.0, "gelu", batch_first=True, norm_first=True).double().eval()
    block.self_attn.in_proj_weight.data = layer.attention.qkv.weight.data
    block.self_attn.in_proj_bias.data = layer.attention.qkv.bias.data
    block.self_attn.out_proj.load_state_dict(layer.attention.out.state_dict())
    block.linear1.load_state_dict(layer.perceptron[0].state_dict())
    block.linear2.load_state_dict(layer.perceptron[2].state_dict())
    start = layer.input(x) + layer.gap(x.new_tensor([math.log(2)]))
    hidden = nn.Transformer.generate_square_subsequent_mask(T, dtype=torch.float64)
    torch.testing.assert_close(layer(x), block(start, hidden))


def test_pairs_of_contiformer_follow_their_ode(x):
    layer = layer_of("contiformer")
    pairs, gap = torch.randn(B, 2 * D // H, dtype=torch.float64), x.new_full((B,), 0.5)

    def change(p):
        return layer.outer(layer.inner(p).tanh())

    torch.testing.assert_close(
        contiformer.flow(pairs, gap[:, None], layer.weights()), solved(change, pairs, gap), atol=1e-6, rtol=1e-5
    )
