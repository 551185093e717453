"""What the published package (torch-nac 0.0.2) computes, beside this layer."""

from __future__ import annotations

import importlib.util
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nacdrive.nac import NAC
from theory.keys import effective
from theory.report import BLUE, RED, Section, canvas


class Gates(NamedTuple):
    """Gates of all selected pairs, ``[B, H, T, K]``, and how phi answers to the input."""

    phi: Tensor
    omega: Tensor
    slope: float  # mean |d phi / d x| over pairs and inputs


def installed() -> bool:
    return importlib.util.find_spec("torch_nac") is not None


def published_layer(seed: int, scramble: bool = False, **options: object) -> nn.Module:
    """A torch-nac layer (d=64, H=4, K=8); ``scramble`` draws every parameter anew, as training might."""
    from torch_nac.layers import neuronal_attention_circuit

    torch.manual_seed(seed)
    layer = neuronal_attention_circuit.NAC(64, 4, topk=8, return_sequences=True, **options)
    if scramble:
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.normal_()
    return layer


def mean_slope(phi: Tensor, x: Tensor, probes: int = 16) -> float:
    """Mean over a few pairs and all inputs of |d phi / d x|."""
    flat = phi.flatten()
    chosen = torch.linspace(0, flat.numel() - 1, probes).long()
    slopes = []
    for i in chosen.tolist():
        (slope,) = torch.autograd.grad(flat[i], x, retain_graph=True, allow_unused=True)
        slopes.append(0.0 if slope is None else float(slope.abs().sum()))
    return sum(slopes) / probes


def gates_of_published(seed: int, scramble: bool = False) -> Gates:
    layer = published_layer(seed, scramble)
    x = torch.randn(1, 64, 64, generator=torch.Generator().manual_seed(seed), requires_grad=True)
    q, k = layer.split_heads(layer.q_proj(x)), layer.split_heads(layer.k_proj(x))
    phi, omega, _, _ = layer.compute_phi_tau(q, k)
    return Gates(phi.detach(), omega.detach(), mean_slope(phi, x))


def gates_of_ours(seed: int) -> Gates:
    torch.manual_seed(seed)
    layer = NAC(64, 4, topk=8)
    x = torch.randn(1, 64, 64, generator=torch.Generator().manual_seed(seed), requires_grad=True)
    states = layer.neuron_states(x)
    return Gates(states["phi"].detach(), states["omega"].detach(), mean_slope(states["phi"], x))


def published_weights(mode: str, seed: int = 0) -> Tensor:
    layer = published_layer(seed, scramble=True, mode=mode, return_attention=True)
    with torch.no_grad():
        return layer(torch.randn(1, 64, 64))[1]


def padded_weight() -> float:
    """Weight that torch-nac gives to keys that its mask calls invalid, when half of the keys are."""
    layer = published_layer(0, mode="exact", return_attention=True)
    x = torch.randn(1, 64, 64)
    mask = (torch.arange(64) < 32).float().unsqueeze(0)
    with torch.no_grad():
        _, weights = layer(x, mask=mask)
        q, k = layer.split_heads(layer.q_proj(x)), layer.split_heads(layer.k_proj(x))
        keys = layer.compute_phi_tau(q, k)[3]
    return float((weights * (keys >= 32)).sum(-1).mean())


def never_selected(length: int = 62) -> int:
    """How many of the last keys torch-nac cannot select: those after the last full block."""
    layer = published_layer(0)
    g = torch.Generator().manual_seed(0)
    seen = set()
    for _ in range(20):
        q = torch.randn(1, 4, 200, 16, generator=g)
        k = torch.randn(1, 4, length, 16, generator=g)
        k[:, :, -8:] *= 100  # the last keys would win any honest comparison
        seen |= set(layer.sparse_topk_pairwise(q, k)[1].flatten().tolist())
    return length - 1 - max(seen)


def padded_weight_here() -> float:
    """The same for this layer."""
    torch.manual_seed(0)
    layer = NAC(64, 4, topk=8)
    padding = (torch.arange(64) >= 32).unsqueeze(0)
    with torch.no_grad():
        states = layer.neuron_states(torch.randn(1, 64, 64), key_padding_mask=padding)
    return float((states["weights"] * (states["keys"] >= 32)).sum(-1).mean())


def never_selected_here(length: int = 62) -> int:
    """The same for this layer's partition: how many of the last keys no query selects, over some random inputs."""
    torch.manual_seed(0)
    layer = NAC(64, 4, topk=8, selection="sqrt")
    with torch.no_grad():
        last = max(int(layer.neuron_states(torch.randn(1, length, 64))["keys"].max()) for _ in range(20))
    return length - 1 - last


def measure(seeds: int = 5) -> Section:
    section = Section("This layer beside torch-nac 0.0.2")
    if not installed():
        section.say("torch-nac is not installed (`pip install torch-nac==0.0.2`): not measured.")
        return section
    rows: list[list[object]] = []
    for name, runs in (
        ("torch-nac, fresh", [gates_of_published(s) for s in range(seeds)]),
        ("torch-nac, all parameters N(0, 1)", [gates_of_published(s, True) for s in range(seeds)]),
        ("nacdrive, fresh", [gates_of_ours(s) for s in range(seeds)]),
    ):
        rows.append(
            [
                name,
                float(torch.stack([g.phi.std() for g in runs]).mean()),
                float(torch.stack([g.omega.std() for g in runs]).mean()),
                sum(g.slope for g in runs) / seeds,
                len(torch.unique(runs[0].phi)),
            ]
        )
    section.say(f"T = 64 random tokens, d = 64, H = 4, K = 8 (2048 pairs), mean of {seeds} seeds.")
    section.table(["layer", "std of phi", "std of omega", "mean of sum abs(dphi/dx)", "distinct phi (seed 0)"], rows)
    rows = [[mode, float(effective(published_weights(mode)).mean())] for mode in ("exact", "euler", "steady")]
    section.say("Effective keys of 8 in torch-nac (all parameters N(0, 1)); 8 = uniform, the keys' content has no say:")
    section.table(["mode", "effective keys of 8"], rows)
    section.say(
        f"Mask: with keys 32-63 of 64 masked, torch-nac gives them {padded_weight():.0%} of the weight, "
        f"this layer {padded_weight_here():.0%}. "
        f"Tail: of 62 keys the last {never_selected()} are never selected; here the last "
        f"{never_selected_here()} of 62."
    )
    figure, (axis,) = canvas(1, width=5.2, height=3.0)
    ours, theirs = gates_of_ours(0), gates_of_published(0, True)
    axis.scatter(ours.phi.flatten(), ours.omega.flatten(), s=4, color=BLUE, alpha=0.35, label="nacdrive, 2048 pairs")
    axis.scatter(
        theirs.phi.flatten(), theirs.omega.flatten(), s=60, color=RED, marker="X", label="torch-nac, 2048 pairs"
    )
    axis.set(title="gates of every selected pair", xlabel="φ (1/s)", ylabel="ω (1/s)")
    axis.legend(loc="upper right")
    section.figures["published"] = figure
    return section
