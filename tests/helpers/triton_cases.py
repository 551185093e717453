"""The Triton kernels against ``all_pairs`` in float64: output and every gradient, case by case.

Imported by ``test_triton.py``; run as a program (``TRITON_INTERPRET=1 python triton_cases.py CASE ...``) it prints
their errors as JSON. A program of its own, because triton decides on import whether it interprets.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from nacdrive.nac.backbone import FusedWeights
from nacdrive.nac.dynamics import Dynamics, Euler, Exact, Steady
from nacdrive.nac.kernels import triton as kernels
from nacdrive.nac.mask import AttentionMask
from nacdrive.nac.pairwise import PairOptions, PairProblem, Tokens, all_pairs

MODES: dict[str, Dynamics] = {
    "exact": Exact(),
    "euler": Euler(steps=6),
    "euler1": Euler(steps=1),
    "euler-fixed": Euler(steps=3, step=0.4),
    "steady": Steady(),
}


@dataclass(frozen=True)
class Case:
    mode: str = "exact"
    keys: str = "topk"  # or "pairwise"
    mask: str = "open"  # "padded", "causal", "window", "padded+causal"
    unfolds: int = 2
    shared: bool = False
    act: str = "sigmoid"  # "tanh" is folded into "sigmoid" with an unfold bias
    phi: str = "sigmoid"
    quadrature: str = "time"
    scaled: bool = False
    head_scaled: bool = False
    inter: bool = True
    low: bool = False
    rates: float = 1.0  # deviation of the motor neurons
    steps: int = 6

    def __str__(self) -> str:
        changed = [(f.name, getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) != f.default]
        flags = []
        for name, value in changed:
            flags.append(
                name
                if value is True
                else f"no-{name}"
                if value is False
                else value
                if isinstance(value, str)
                else f"{name}{value}"
            )
        return "-".join(flags) or "default"


def all_cases() -> list[Case]:
    """Every two of modes, keys and masks, R and the sharing of the backbone varied along; each further option once."""
    keys, masks = ("topk", "pairwise"), ("open", "padded", "causal", "window")
    combinations = [
        *(("exact", key, mask) for key in keys for mask in masks),
        # Keys and masks decide which pairs there are, a mode what one pair gives: no line of a kernel reads all three.
        *(("euler", keys[i in (1, 2)], mask) for i, mask in enumerate(masks)),
        *(("steady", keys[i in (0, 3)], mask) for i, mask in enumerate(masks)),
    ]
    cases = [
        Case(mode, key, mask, 1 if mask in ("padded", "window") else 2, shared=(mode == "euler") == (mask[0] in "pc"))
        for mode, key, mask in combinations
    ]
    topk = Case(mask="padded+causal", scaled=True)
    pairwise = replace(topk, keys="pairwise")
    return [
        *cases,
        topk,
        replace(topk, act="tanh"),
        replace(topk, head_scaled=True),
        replace(topk, act="silu", unfolds=3),
        replace(topk, act="linear"),
        replace(topk, inter=False),
        replace(topk, inter=False, unfolds=1),
        replace(topk, phi="tanh", quadrature="constant"),
        replace(topk, phi="none", mode="steady", act="tanh"),
        replace(topk, mode="euler-fixed", rates=4.0),
        replace(topk, mode="euler1"),
        replace(topk, mode="euler", rates=8.0),
        replace(topk, unfolds=4, act="tanh"),
        replace(topk, rates=30.0),
        replace(topk, steps=1),
        replace(topk, low=True, act="tanh"),
        pairwise,
        replace(pairwise, act="silu"),
        replace(pairwise, act="linear"),
        replace(pairwise, steps=1),
        replace(pairwise, low=True, act="tanh"),
    ]


def build(case: Case, device: str, dtype: torch.dtype) -> tuple[Tokens, FusedWeights, Tensor | None, PairProblem]:
    """Random tokens and weights: 2 heads, 2 sequences, widths that fill no block."""
    g = torch.Generator().manual_seed(5)
    heads, batch, inter, commands, depth = 2, 2, 18, 5, 3
    steps = case.steps
    if case.act == "linear":
        inter = 2
    elif not case.inter:
        commands = inter

    def normal(*shape: int, deviation: float = 1.0) -> Tensor:
        return (torch.randn(shape, generator=g, dtype=torch.float64) * deviation).to(device, dtype).requires_grad_()

    n = batch * steps
    spread = case.rates if case.act == "linear" else 1.0
    tokens = Tokens(
        normal(heads, n, inter, deviation=spread),
        normal(heads, n, inter, deviation=spread),
        normal(heads, n),
        normal(heads, n, 2),
        normal(heads, n, depth),
        normal(n),
    )
    copies = 1 if case.shared else heads

    def weight(*shape: int, deviation: float = 1.0) -> Tensor:
        return normal(copies, *shape, deviation=deviation)

    w2 = b2 = wr = br = w3 = b3 = None
    if case.act != "linear":
        if case.inter:
            w2, b2 = weight(inter, commands, deviation=0.5), weight(commands)
        if case.unfolds > 1:
            wr = weight(commands, commands, deviation=0.5)
            br = weight(commands) if case.act == "tanh" else None
        w3, b3 = weight(commands, 2, deviation=case.rates), weight(2)
    act = "sigmoid" if case.act == "tanh" else case.act
    w = FusedWeights(w2, b2, wr, br, w3, b3, act, case.unfolds if wr is not None else 1)

    padding = None
    if "padded" in case.mask:
        padding = torch.rand(batch, steps, generator=g) < 0.3
        padding[1] = True  # a sequence without any key
        padding = padding.to(device)
    position = torch.arange(steps, device=device).expand(batch, steps)
    causal = "causal" in case.mask or case.mask == "window"
    mask = AttentionMask(position, padding, causal, 3 if case.mask == "window" else None)
    index = None
    if case.keys == "topk":
        index = torch.rand(heads, n, steps, generator=g).topk(min(5, steps)).indices.to(device)
    options = PairOptions(MODES[case.mode], case.phi, case.quadrature, 0.7, 1e-3)
    scale = normal(heads, 1, 1) if case.head_scaled else normal() if case.scaled else None
    return tokens, w, scale, PairProblem(index, mask, steps, options, 0.0, case.low)


def expanded(w: FusedWeights, heads: int) -> FusedWeights:
    """Shared weights for every head, as ``Backbone.fuse`` gives them."""
    return w.with_tensors(None if x is None else x.expand(heads, *x.shape[1:]) for x in w.tensors().values())


def run(case: Case, device: str, dtype: torch.dtype, kernel: bool) -> dict[str, Tensor]:
    """Output and gradients by name, in float64 on the CPU."""
    tokens, w, scale, problem = build(case, device, dtype)
    leaves = {name: x for name, x in zip(Tokens._fields, tokens, strict=True) if x is not None}
    leaves |= {n: x for n, x in w.tensors().items() if x is not None}
    if scale is not None:
        leaves["scale"] = scale
    full = expanded(w, tokens.zq.shape[0])
    if kernel:
        assert kernels.supported(tokens, full, problem)
        y = kernels.attend(tokens, full, scale, problem)
    else:
        y = all_pairs(tokens, full, scale, problem).y
    direction = torch.randn(y.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    grads = torch.autograd.grad(y, list(leaves.values()), direction.to(y), allow_unused=True, materialize_grads=True)
    results = {"y": y.detach(), **dict(zip(leaves, grads, strict=True))}
    return {name: x.double().cpu() for name, x in results.items()}


def errors(case: Case, device: str) -> dict[str, float]:
    """Largest error of output and gradients, each over the largest entry of what it should be (at least 1)."""
    wanted = run(case, "cpu", torch.float64, kernel=False)
    got = run(case, device, torch.float32, kernel=True)
    return {n: float((got[n] - x).abs().max() / x.abs().max().clamp(min=1)) for n, x in wanted.items()}


def main() -> None:
    """Print the errors of the cases that are named; tiles are made small so that small cases fill several."""
    torch.set_num_threads(1)
    kernels.PAIRS_PER_TILE, kernels.KEYS_PER_BLOCK = 16, 4
    # The interpreter multiplies the bit patterns of bfloat16 numbers: those cases are for a GPU alone.
    json.dump({str(case): errors(case, "cpu") for case in all_cases() if str(case) in sys.argv[1:]}, sys.stdout)


if __name__ == "__main__":
    main()
