"""A sequence layer of one's own: neurons that leak away with the time that has really passed.

nacdrive train --task imitation --data road --model my_layer:MyLayer
"""

import torch
from torch import nn

from nacdrive.layers.windowed import WindowedLayer


class MyLayer(WindowedLayer):
    """h_i = exp(-dt_i / tau) h_{i-1} + (1 - exp(-dt_i / tau)) tanh(W x_i), a time constant tau for each neuron.

    ``WindowedLayer`` brings windows, padding, missing times and streaming; times reach ``scan`` as multiples of the
    typical gap between two steps.
    """

    time_sense = "gaps"

    def build(self):
        """Its parts, of the sizes that every layer has; options of its own would be arguments."""
        self.input = nn.Linear(self.in_features, self.d_model)
        self.log_tau = nn.Parameter(torch.linspace(-1.0, 3.0, self.d_model))

    def project(self, x):
        """What each step needs of itself alone."""
        return torch.tanh(self.input(x))

    def scan(self, u, dt, t):
        """The recurrence over a window: ``u`` [B, T, d_model], gaps ``dt`` [B, T] -> [B, T, d_model]."""
        keep = torch.exp(-dt[:, :, None] / self.log_tau.exp())
        h, found = torch.zeros_like(u[:, 0]), []
        for i in range(u.shape[1]):
            h = keep[:, i] * h + (1 - keep[:, i]) * u[:, i]
            found.append(h)
        return torch.stack(found, dim=1)
