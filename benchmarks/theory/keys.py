"""How many keys a query really attends to, in each mode, with random weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nacdrive.nac import NAC
from theory.report import BLACK, BLUE, GREEN, ORANGE, PINK, Section, canvas

MODES = ("exact", "euler", "steady")
COLORS = {"exact": BLUE, "euler": ORANGE, "steady": GREEN, "dot product": PINK}
STYLES = {"euler": "--"}
# Softmax weights whose ratios are at most e: the smallest possible share of effective keys (Kantorovich's inequality).
FLOOR = 4 * math.e / (1 + math.e) ** 2


def effective(weights: Tensor) -> Tensor:
    """1 / sum of squares over the last axis: n equal weights count n keys."""
    return 1 / weights.square().sum(-1)


def perplexity(weights: Tensor) -> Tensor:
    """exp(entropy) over the last axis: another count of keys, kinder to small weights."""
    return torch.special.entr(weights).sum(-1).exp()


def logits(mode: str, length: int, seed: int, topk: int | None = None) -> Tensor:
    """Logits ``[1, H, T, n]`` of a fresh layer (d=64, H=4) on random tokens; or scaled dot products of its q and k."""
    torch.manual_seed(seed)
    layer = NAC(64, 4, mode="exact" if mode == "dot product" else mode, topk=topk)
    with torch.no_grad():
        states = layer.neuron_states(torch.randn(1, length, 64))
        if mode == "dot product":
            return states["q"] @ states["k"].transpose(-1, -2) / math.sqrt(layer.head_dim)
    return states["logits"]


def measure(length: int = 256, seeds: int = 5) -> Section:
    section = Section("Effective number of keys")
    drawn = {mode: torch.cat([logits(mode, length, seed) for seed in range(seeds)]) for mode in COLORS}
    rows: list[list[object]] = []
    for mode, a in drawn.items():
        w = a.softmax(-1)
        ratio = (w.amax(-1) / w.amin(-1)).median()
        rows.append([mode, float(a.std()), float(effective(w).mean()), float(perplexity(w).mean()), float(ratio)])
    section.say(
        f"T = {length} keys, pairwise, d = 64, H = 4, phi = sigmoid, fresh weights, random tokens, {seeds} seeds. "
        "Effective keys = 1 / sum of squared weights (mean over queries, heads, seeds); perplexity = exp(entropy)."
    )
    section.table(["mode", "std of logits", "effective keys", "perplexity", "largest / smallest weight (median)"], rows)
    rows = []
    for mode in MODES:
        w = torch.cat([logits(mode, length, seed, 8) for seed in range(seeds)]).softmax(-1)
        rows.append([mode, float(effective(w).mean())])
    section.say("The same for the 8 keys of Top-8:")
    section.table(["mode", "effective keys of 8"], rows)
    figure, (spread, scaled) = canvas(2, width=4.4)
    for mode, a in drawn.items():
        ranked = a.softmax(-1).sort(-1, descending=True).values.flatten(0, 2).mean(0)
        spread.loglog(range(1, length + 1), ranked, color=COLORS[mode], linestyle=STYLES.get(mode, "-"), label=mode)
    spread.axhline(1 / length, color=BLACK, linestyle=":", linewidth=1, label="uniform")
    spread.set(title="weight by rank (mean)", xlabel="rank of the key", ylabel="attention weight")
    spread.legend(fontsize=7)
    scales = [2.0**i for i in range(-1, 7)]
    rows = []
    for mode, a in drawn.items():
        counts = [float(effective((a * s).softmax(-1)).mean()) for s in scales]
        scaled.loglog(scales, counts, color=COLORS[mode], linestyle=STYLES.get(mode, "-"), label=mode)
        rows.append([mode, *counts])
    scaled.axhline(FLOOR * length, color=BLACK, linestyle=":", linewidth=1, label="floor of exact at scale 1")
    scaled.set(title="logit_scale sharpens", xlabel="logit scale", ylabel=f"effective keys of {length}")
    scaled.legend(fontsize=7, loc="lower left")
    section.say("Effective keys when all logits are multiplied by a scale (`logit_scale=True` learns it):")
    section.table(["mode", *(f"x{s:g}" for s in scales)], rows)
    section.figures["keys"] = figure
    return section
