"""The step with a state of fixed size gives what the layer's own ``step`` gives, in torch and in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nacdrive.common.errors import UserError
from nacdrive.extras.export.onnx import record
from nacdrive.extras.export.streaming import LayerStep, step_of
from nacdrive.layers import build
from nacdrive.layers.base import SequenceLayer
from nacdrive.layers.registry import names
from nacdrive.nac import Euler

IN, OUT, HEADS, GAP_S = 6, 8, 2, 0.08
EPISODE, EPISODES = 24, 2  # a state that outlives a reset shows in the second

# Beyond the registered names: modes and levers of NAC, stacks of several kinds, a window of one.
OPTIONS: dict[str, tuple[str, int, dict]] = {
    **{name: (name, 4, {}) for name in names()},
    # Written out step by step and unfold by unfold, which is what an export costs: the fewest that fill, then shift.
    **{name: (name, 3, {}) for name in ("cfc-ncp", "contiformer", "cta", "phased-lstm")},
    **{name: (name, 3, {"unfolds": 2}) for name in ("ct-rnn", "gru-ode", "ltc", "ltc-ncp", "mmrnn", "odeformer")},
    "nac-chosen": ("nac-exact", 6, {"topk": 2}),
    "nac-adaptive": ("nac-exact", 4, {"mode": Euler(steps=2, adaptive=True, doublings=3), "quadrature": "constant"}),
    "nac-elapsed-chosen": ("nac-elapsed", 6, {"topk": 3}),
    "nac-absolute": ("nac-exact", 4, {"time_input": "absolute", "learn_time_scale": True}),
    "nac-shared-silu": ("nac-exact", 4, {"share_backbone": True, "activation": "silu", "polarity": "fixed"}),
    "nac-key-chosen": ("nac-key", 6, {"topk": 3, "time_features": 0, "mode": "euler"}),
    "nac-linear": ("nac-steady", 4, {"activation": "linear", "phi": "none"}),
    "stack-gru": ("stack", 5, {"layer": "gru"}),
    "stack-mha": ("stack", 7, {"layer": "mha", "depth": 3, "expansion": 0}),
    **{f"{name}-alone": (name, 1, {}) for name in ("nac-steady", "nac-elapsed", "nac-key", "gru", "mha", "s4")},
}


def made(case: str) -> SequenceLayer:
    name, window, options = OPTIONS[case]
    torch.manual_seed(sum(map(ord, case)))
    return build(name, OUT, HEADS, window, in_features=IN, gap_s=GAP_S, **options).eval()


def stream(seed: int) -> Iterator[tuple[bool, Tensor, Tensor]]:
    """Steps at uneven times, over several episodes: whether one begins, x, t."""
    torch.manual_seed(seed)
    for _ in range(EPISODES):
        t = torch.rand(1)
        for i in range(EPISODE):
            t = t + GAP_S * (1 if i % 7 else 3 * torch.rand(1))
            yield i == 0, torch.randn(1, IN), t


@cache
@torch.no_grad()
def expected_of(case: str) -> list[Tensor]:
    layer, outputs, state = made(case), [], None
    for first, x, t in stream(0):
        state = layer.init_state(1) if first else state
        y, state = layer.step(x, t, state)
        outputs.append(y)
    return outputs


@pytest.mark.parametrize("case", OPTIONS)
@torch.no_grad()
def test_a_state_of_fixed_size_gives_what_the_growing_one_gives(case: str) -> None:
    step = step_of(made(case)).eval()
    state: list[Tensor] = []
    worst = 0.0
    for (first, x, t), expected in zip(stream(0), expected_of(case), strict=True):
        state = list(step.initial().values()) if first else state
        y, *after = step(x, t, *state)
        assert [s.shape for s in after] == [s.shape for s in state]
        state = after
        worst = max(worst, float((y - expected).abs().max()))
    assert worst < 1e-5


class Together(nn.Module):
    """Several layers in one graph: recording one takes seconds."""

    def __init__(self, steps: list[LayerStep]) -> None:
        super().__init__()
        self.steps = nn.ModuleList(steps)
        self.sizes = [len(step.initial()) for step in steps]

    def forward(self, x: Tensor, t: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        outputs, after, first = [], [], 0
        for step, size in zip(self.steps, self.sizes, strict=True):
            y, *kept = step(x, t, *state[first : first + size])
            outputs.append(y)
            after += kept
            first += size
        return *outputs, *after


CHEAP = (
    "nac-steady",
    "nac-key",
    "nac-key-chosen",
    "nac-exact",
    "nac-euler",
    "nac-elapsed-chosen",
    "nac-lag",
    "gru",
    "lstm",
    "cfc",
    "mha",
    "s4",
)
# Presets that differ from one of the others in numbers alone, not in the graph; torch's own test has them all.
ALIKE = ("nac-lag-8k",)
REST = [case for case in OPTIONS if case not in CHEAP + ALIKE]
# A phase is what is left of t over a period: its last digits count for more the longer an episode lasts.
LOOSE = {"phased-lstm": 1e-4}
GROUPS = {"usual": CHEAP, **{f"rest-{i}": REST[i::3] for i in range(3)}}


# By day tests/extras/export/test_onnx.py has whole policies, of two layers.
@pytest.mark.nightly
@pytest.mark.parametrize("group", GROUPS)
def test_onnx_runtime_gives_what_torch_gives(group: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    cases = GROUPS[group]
    steps = [step_of(made(case)).eval() for case in cases]
    initial = [value for step in steps for value in step.initial().values()]
    inputs = ["x", "t", *(f"state{i}" for i in range(len(initial)))]
    outputs = [*(f"y{i}" for i in range(len(steps))), *(f"next{i}" for i in range(len(initial)))]
    proto = record(Together(steps).eval(), (torch.zeros(1, IN), torch.zeros(1), *initial), inputs, outputs)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = [expected_of(case) for case in cases]
    asked = {i.name for i in session.get_inputs()}
    worst = dict.fromkeys(cases, 0.0)
    state: list[np.ndarray] = []
    for n, (first, x, t) in enumerate(stream(0)):
        state = [value.numpy() for value in initial] if first else state
        feed = dict(zip(inputs, [x.numpy(), t.numpy(), *state], strict=True))
        results = session.run(None, {name: value for name, value in feed.items() if name in asked})
        for i, case in enumerate(cases):
            worst[case] = max(worst[case], float(np.abs(results[i] - expected[i][n].numpy()).max()))
        state = results[len(steps) :]
    apart = {case: value for case, value in worst.items() if not value < LOOSE.get(case, 1e-5)}
    assert not apart, apart


def test_a_layer_with_a_state_of_its_own_is_refused_in_a_sentence() -> None:
    class Counter(SequenceLayer):
        def forward(self, x, t=None, padding=None):
            return x

        def init_state(self, batch_size, window=None):
            return 0

        def step(self, x, t, state):
            return x, state + 1

    with pytest.raises(UserError, match="a Counter cannot be exported"):
        step_of(Counter(4, 4, 1, 2))


def test_keys_chosen_by_the_partition_are_refused_in_a_sentence() -> None:
    with pytest.raises(UserError, match="square-root partition"):
        step_of(build("nac-exact", OUT, HEADS, 8, in_features=IN, topk=2, selection="sqrt"))
