"""Sequences in memory -> batches of chunks. What batch k of epoch e holds follows from the seed alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from nacdrive.common.errors import shortlist
from nacdrive.tasks.sample import Batch, Sample
from nacdrive.tasks.splits import Block, seeded


class Batches:
    """Hands out samples, as they lie in memory, in batches of ``size`` sequences of ``chunk`` consecutive steps.

    Samples with labels are never cut.
    """

    def __init__(self, samples: Sequence[Sample], chunk: int, size: int) -> None:
        self.names = [sample.name for sample in samples]
        self.lengths = [len(sample) for sample in samples]
        self.labels = {name: torch.stack([s.labels[name] for s in samples]) for name in samples[0].labels}
        self.chunk, self.size = max(self.lengths) if self.labels else chunk, size
        self.fields = {name: [s.fields[name] for s in samples] for name in samples[0].fields}

    @property
    def steps(self) -> int:
        return sum(self.lengths)

    def chunks(self, epoch: int | None, seed: int) -> list[Block]:
        """Cuts every sample into chunks, shuffled, differently in each epoch; ``None``: in order, from the start."""
        generator = None if epoch is None else seeded(seed, 1, epoch)
        cuts: list[Block] = []
        for sample, length in enumerate(self.lengths):
            first = 0
            if generator is not None and length > self.chunk:
                first = int(torch.randint(self.chunk, (), generator=generator))
            edges = [0, *range(first or self.chunk, length, self.chunk), length]
            cuts += [Block(sample, a, b) for a, b in pairwise(edges)]
        return cuts if generator is None else [cuts[i] for i in torch.randperm(len(cuts), generator=generator).tolist()]

    def epoch(self, epoch: int | None, seed: int) -> list[list[Block]]:
        """The chunks of each batch of an epoch; ``None``: everything once, in order, for validation."""
        chunks = self.chunks(epoch, seed)
        return [chunks[i : i + self.size] for i in range(0, len(chunks), self.size)]

    def load(self, chunks: Sequence[Block]) -> Batch:
        """Fields [B, T, ...], labels [B, ...] and ``padding`` [B, T], in CPU memory; T is the longest chunk's."""
        length = torch.tensor([chunk.stop - chunk.start for chunk in chunks]).unsqueeze(1)
        offsets = torch.arange(int(length.max())).unsqueeze(0)
        # Shorter ones repeat their last step.
        rows = length.cumsum(0) - length + torch.minimum(offsets, length - 1)
        batch: Batch = {}
        for name, field in self.fields.items():
            steps = torch.cat([field[chunk.sample][chunk.start : chunk.stop] for chunk in chunks])
            batch[name] = steps.index_select(0, rows.flatten()).view(*rows.shape, *steps.shape[1:])
        of = torch.tensor([chunk.sample for chunk in chunks])
        batch |= {name: label[of] for name, label in self.labels.items()}
        batch["padding"] = offsets >= length
        return batch

    def describe(self, chunks: Sequence[Block]) -> str:
        """Which steps of which samples, for a message."""
        return shortlist([f"{self.names[c.sample]} frames {c.start}-{c.stop - 1}" for c in chunks], 4)
