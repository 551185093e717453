"""Layers of PyTorch's own that have no use for heads or time: vanilla RNN, LSTM and GRU, restarted at every window, and
a dense layer on each step by itself, as in networks without a sequence layer such as PilotNet (Bojarski, 2016).
"""

from __future__ import annotations

from torch import Tensor, nn

from nacdrive.layers.windowed import WindowedLayer


class RNNLayer(WindowedLayer):
    """h_i = tanh(W x_i + U h_{i-1} + b) with ``d_model`` hidden units."""

    def build(self) -> None:
        self.rnn = nn.RNN(self.in_features, self.d_model, batch_first=True)

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        (cell,) = self.children()
        y: Tensor = cell(u)[0]
        return y


class LSTMLayer(RNNLayer):
    """c_i = f c_{i-1} + g tanh(W x_i + U h_{i-1} + b),  h_i = o tanh(c_i),  gates f, g, o sigmoid alike."""

    def build(self) -> None:
        self.lstm = nn.LSTM(self.in_features, self.d_model, batch_first=True)


class GRULayer(RNNLayer):
    """h_i = (1 - z) n + z h_{i-1},  n = tanh(W x_i + r (U h_{i-1} + b)),  gates r, z sigmoid of the same inputs."""

    def build(self) -> None:
        self.gru = nn.GRU(self.in_features, self.d_model, batch_first=True)


class DenseLayer(WindowedLayer):
    """y_i = elu(W x_i + b): no other step is looked at, whatever the window. It has no use for heads or time."""

    past_sense = "bag"

    def build(self) -> None:
        self.dense = nn.Sequential(nn.Linear(self.in_features, self.d_model), nn.ELU())

    def project(self, x: Tensor) -> Tensor:
        y: Tensor = self.dense(x)
        return y

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        return u
