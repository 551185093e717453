"""A task of one's own: does a noisy oscillation, seen at irregular times, swing slowly or quickly?

nacdrive bench table --tasks my_task:MyTask --models my_layer:MyLayer gru --budget smoke
"""

import torch

from nacdrive.tasks.base import Size
from nacdrive.tasks.sample import Sample
from nacdrive.tasks.series import Classification


class MyTask(Classification):
    """Samples have ``x`` [T, 1], times ``t`` [T] in seconds and a class ``target``; all else is done."""

    outputs = 2
    read = "last"  # one answer per sequence, at its last step
    data_folders = ()  # it needs no data from outside
    meta = {"classes": ["slow", "quick"]}
    settings = {"batch_size": 16, "learning_rate": 5e-3}
    sizes = {"smoke": Size(epochs=6), "cpu": Size(epochs=20), "full": Size()}
    note = "Made-up data: chance is 50 %."

    def load(self, folders):
        """All data; ``nacdrive`` holds whole sequences out."""
        random = torch.Generator().manual_seed(0)
        return [self.sample(number, random) for number in range(200)]

    def sample(self, number, random):
        """An oscillation of 0.5 Hz or 1 Hz over 40 readings in about 4 s."""
        quick = number % 2
        t = (torch.rand(40, generator=random) * 0.2).cumsum(dim=0)
        phase = torch.rand(1, generator=random)
        x = torch.sin(2 * torch.pi * (0.5 * (1 + quick) * t + phase)) + 0.1 * torch.randn(40, generator=random)
        return Sample(f"oscillation {number}", {"x": x[:, None], "t": t}, {"target": torch.tensor(quick)})
