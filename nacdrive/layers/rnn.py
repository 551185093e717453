"""Vanilla RNN, LSTM and GRU: PyTorch's own cells, restarted at every window. They have no use for heads or time."""

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
