"""How many of the true Top-K the square-root partition (Algorithm 2) finds, by the number of blocks it searches."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nacdrive.nac import NAC
from theory.report import BLACK, BLUE, GREEN, ORANGE, Section, canvas

LENGTH, TOPK, DEPTH = 1024, 8, 16
CORRELATION = 32  # steps over which smooth tokens stay alike


def iid(length: int, width: int, generator: torch.Generator) -> Tensor:
    return torch.randn(length, width, generator=generator)


def smooth(length: int, width: int, generator: torch.Generator, correlation: float = CORRELATION) -> Tensor:
    """A stationary first-order autoregression of unit variance: what frames of a drive look like."""
    rho = math.exp(-1 / correlation)
    noise = torch.randn(length, width, generator=generator)
    rows = [noise[0]]
    for row in noise[1:]:
        rows.append(rho * rows[-1] + math.sqrt(1 - rho * rho) * row)
    return torch.stack(rows)


def partition(q: Tensor, k: Tensor, topk: int, blocks: int, causal: bool = False) -> Tensor:
    """Algorithm 2 for ``[T, D]``, written plainly: for each query the sorted indices of its keys, -1 where fewer."""
    length = k.shape[0]
    size = math.isqrt(length - 1) + 1
    starts = range(0, length, size)
    centroids = torch.stack([k[i : i + size].mean(0) for i in starts])
    coarse = q @ centroids.T
    own = torch.arange(q.shape[0]) // size
    if causal:  # whole past blocks compete; the query's own block is always searched
        number = torch.arange(len(starts))
        coarse = coarse.masked_fill(number > own[:, None], -math.inf).masked_fill(number == own[:, None], math.inf)
    chosen = coarse.topk(min(blocks, len(starts)), -1).indices
    block_of = torch.arange(length) // size
    candidate = (block_of == chosen[:, :, None]).any(1)
    return best(q, k, topk, candidate, causal)


def best(q: Tensor, k: Tensor, topk: int, candidate: Tensor | None = None, causal: bool = False) -> Tensor:
    """The ``topk`` candidates with the largest dot products, sorted by index; -1 where there are fewer."""
    scores = q @ k.T
    if candidate is not None:
        scores = scores.masked_fill(~candidate, -math.inf)
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
    top = scores.topk(topk, -1)
    return top.indices.masked_fill(top.values == -math.inf, -1).sort(-1).values


def recall(found: Tensor, true: Tensor) -> float:
    """Share of the true keys (-1 not counted) that were found, over all queries."""
    hit = (true[..., :, None] == found[..., None, :]).any(-1) & (true >= 0)
    return float(hit.sum() / (true >= 0).sum())


def curve(kind: str, counts: list[int], causal: bool, seeds: int) -> list[float]:
    """Mean recall by number of searched blocks, q and k drawn independently."""
    totals = torch.zeros(len(counts))
    draw = iid if kind == "iid" else smooth
    for seed in range(seeds):
        g = torch.Generator().manual_seed(seed)
        q, k = draw(LENGTH, DEPTH, g), draw(LENGTH, DEPTH, g)
        true = best(q, k, TOPK, causal=causal)
        totals += torch.tensor([recall(partition(q, k, TOPK, m, causal), true) for m in counts])
    return (totals / seeds).tolist()


def of_layer(kind: str, blocks: int, causal: bool, seeds: int) -> float:
    """The same, by the layer itself: its own projections of random tokens (d=64, H=4)."""
    total = 0.0
    for seed in range(seeds):
        g = torch.Generator().manual_seed(seed)
        x = (iid if kind == "iid" else smooth)(LENGTH, 64, g).unsqueeze(0)
        keys = []
        for selection in ("sqrt", "exact"):
            torch.manual_seed(seed)
            size = math.isqrt(LENGTH - 1) + 1  # as above, for causal queries too
            layer = NAC(64, 4, topk=TOPK, selection=selection, sqrt_blocks=blocks, sqrt_block=size)
            with torch.no_grad():
                states = layer.neuron_states(x, is_causal=causal)
            keys.append(states["keys"].masked_fill(states["weights"] == 0, -1))
        total += recall(keys[0].masked_fill(keys[0] < 0, -2), keys[1])
    return total / seeds


def measure(seeds: int = 3) -> Section:
    section = Section("Recall of the square-root partition")
    counts = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
    lines = (("iid", False, BLUE, "-"), ("smooth", False, ORANGE, "-"), ("smooth", True, GREEN, "--"))
    figure, (axis,) = canvas(1, width=5.2, height=3.2)
    rows: list[list[object]] = [[m, m * 32 / LENGTH * 100] for m in counts]
    for kind, causal, color, style in lines:
        values = curve(kind, counts, causal, seeds)
        label = kind + (", causal" if causal else "")
        axis.plot(counts, values, color=color, linestyle=style, marker="o", markersize=4, label=label)
        for row, value in zip(rows, values, strict=True):
            row.append(value)
    axis.axvline(2, color=BLACK, linestyle=":", linewidth=1, label="default for K = 8: 2 blocks")
    axis.set_xscale("log", base=2)
    axis.set_xticks([1, 2, 4, 8, 16, 32], ["1", "2", "4", "8", "16", "32"])
    axis.set(
        title=f"T = {LENGTH}, Top-{TOPK}, blocks of 32 keys",
        xlabel="blocks searched m (of 32)",
        ylabel="recall of the true Top-8",
        ylim=(0, 1.02),
    )
    axis.legend(loc="lower right")
    section.say(
        f"T = {LENGTH}, K = {TOPK}, D = {DEPTH}, 32 blocks of 32 keys, q and k independent, {seeds} seeds. Smooth: "
        f"autoregression with a correlation time of {CORRELATION} steps. One block is what torch-nac 0.0.2 takes here."
    )
    section.table(["blocks", "keys scored (%)", "iid", "smooth", "smooth, causal"], rows)
    rows = []
    for blocks in (2, 4, 8):
        cells = [of_layer(kind, blocks, causal, seeds) for kind, causal, _, _ in lines]
        rows.append([blocks, *cells])
    section.say("By the layer itself (fresh weights, d = 64, H = 4; q and k are projections of the same tokens):")
    section.table(["blocks", "iid", "smooth", "smooth, causal"], rows)
    section.figures["recall"] = figure
    return section
