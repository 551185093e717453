"""Cost of a memory in PPO: a decision of 16 environments, and a minibatch of 256 decisions, forward and backward.

Run: python benchmarks/ppo_memory.py [--quick]. Beside the batch of windows that rollouts use stands its naive twin:
each environment streams by itself. Everything is timed in this process, one after the other; medians.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch

from nacdrive.models.agents.memory import Memory, MemorySpec
from nacdrive.models.agents.network import FEATURES

ENVS, SEQUENCE, SEQUENCES, GAP_S = 16, 32, 8, 0.08
LAYERS = ("lstm", "gru", "cfc", "ltc-ncp", "nac-steady", "nac-exact", "s4", "mha")


def median_ms(job: Callable[[], object], count: int) -> float:
    """Median of ``count`` runs after a first one."""
    job()
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        job()
        taken.append(1e3 * (time.perf_counter() - began))
    return statistics.median(taken)


def measure(layer: str, count: int) -> tuple[float, float, float]:
    """Milliseconds of a decision of all environments, of its naive twin, and of a minibatch."""
    torch.manual_seed(0)
    memory = Memory(MemorySpec(layer, gap_s=GAP_S), FEATURES)
    steps = memory.spec.window - 1 + SEQUENCE
    x = torch.randn(ENVS, steps, FEATURES)
    t = GAP_S * torch.arange(steps, dtype=torch.float64).repeat(ENVS, 1)
    starts, padding = torch.zeros(ENVS, dtype=torch.bool), torch.zeros(SEQUENCES, steps, dtype=torch.bool)
    window, alone = memory.init_state(ENVS), memory.layer.init_state(1)
    with torch.no_grad():
        for i in range(memory.spec.window):
            _, window = memory.advance(x[:, i], t[:, i], starts, window)
            _, alone = memory.step(x[:1, i], t[:1, i], alone)
        now = x[:, -1], t[:, -1]
        batched = median_ms(lambda: memory.advance(*now, starts, window), count)
        single = median_ms(lambda: memory.step(now[0][:1], now[1][:1], alone), count)

    def update() -> None:
        memory(x[:SEQUENCES], t[:SEQUENCES], padding)[:, -SEQUENCE:].sum().backward()

    return batched, ENVS * single, median_ms(update, max(2, count // 5))


def main() -> None:
    count = 4 if "--quick" in sys.argv[1:] else 30
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, window 16, width 64, {FEATURES} features")
    print(f"{'memory':<12} {'decision of 16, ms':>20} {'one by one, ms':>16} {'minibatch of 256, ms':>22}")
    for layer in LAYERS:
        batched, single, update = measure(layer, count)
        print(f"{layer:<12} {batched:>20.2f} {single:>16.2f} {update:>22.1f}")


if __name__ == "__main__":
    main()
