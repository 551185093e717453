"""A task small enough to be learnt in a second."""

import dataclasses

import pytest
import torch
from torch import nn

from nacdrive.tasks import Sample
from nacdrive.tasks.carracing import CarRacing

torch.set_num_threads(1)


class SmallNetwork(nn.Module):
    """Mean colour -> scores, through dropout, so that random numbers matter."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 5))

    def forward(self, frames, t, padding):
        return self.layers(frames.float().mean(dim=(2, 3)) / 127.5 - 1)


def make_samples(count=6, steps=40, seed=0):
    """Episodes whose right action follows from the colour of the frame."""
    generator = torch.Generator().manual_seed(seed)
    samples = []
    for i in range(count):
        target = torch.randint(5, (steps,), generator=generator)
        colour = torch.tensor([[0, 0, 0], [250, 0, 0], [0, 250, 0], [0, 0, 250], [250, 250, 250]])[target]
        frames = colour[:, None, None].expand(-1, 24, 24, -1).to(torch.uint8).clone()
        teacher = torch.nn.functional.one_hot(target, 5).float() * 4
        fields = {"frames": frames, "t": torch.arange(steps) * 0.08, "target": target, "teacher": teacher}
        samples.append(Sample(f"episode-{i}", fields))
    return samples


@pytest.fixture
def samples():
    return make_samples()


@pytest.fixture
def network():
    torch.manual_seed(0)
    return SmallNetwork()


@pytest.fixture
def task():
    return CarRacing()


@pytest.fixture
def config():
    from nacdrive.training.config import FitConfig

    return dataclasses.replace(FitConfig(), epochs=3, batch_size=4, learning_rate=1e-2, checkpoint_steps=2)
