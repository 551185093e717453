"""A driving network that also has to tell the car's speed from each of its frames, while it learns."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from nacdrive.models.driving import DrivingNetwork


class SpeedPrediction(nn.Module):
    """``network`` with a linear layer that predicts the speed from a frame's features: speed prediction regularization
    (Codevilla et al. 2019, https://arxiv.org/abs/1904.08980, who predict it from the features of the picture, too).

    An instrument of a few pixels is read by some training seeds and never by others, who learn the average over all
    speeds. Nothing of it is kept: ``network`` has the same parameters as without.

    Args:
        speeds: [N] m/s that are learnt from, NaN where unknown: the error counts as a share of their variance.
        weight: of that share beside the loss of the decisions.
    """

    def __init__(self, network: DrivingNetwork, speeds: Tensor, weight: float) -> None:
        super().__init__()
        self.network, self.weight = network, weight
        known = speeds[~speeds.isnan()]
        self.mean, self.std = float(known.mean()), max(float(known.std(correction=0)), 1e-3)
        self.speed = nn.Linear(network.features_width, 1)

    def forward(self, frames: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        self.seen = self.network.features(frames.flatten(0, 1)).view(*frames.shape[:2], -1)
        return self.network.decide(self.seen, t, padding)

    def penalty(self, batch: Mapping[str, Tensor]) -> Tensor:
        """What the last forward pass has missed of the batch's ``speed`` [B, T], to be added to its mean loss."""
        known = ~batch["padding"] & ~batch["speed"].isnan()
        error = self.speed(self.seen.float())[..., 0][known] - (batch["speed"][known] - self.mean) / self.std
        mean: Tensor = error.square().sum() / known.sum().clamp(min=1)
        return self.weight * mean
