"""nacdrive's vision as a features extractor of stable-baselines3."""

from __future__ import annotations

from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor

from nacdrive.drivers.ppo_network import FEATURES, Vision


class VisionExtractor(BaseFeaturesExtractor):
    """``Vision`` where stable-baselines3 expects a features extractor; it scales the bytes to [0, 1] itself."""

    def __init__(self, observation_space: spaces.Box) -> None:
        super().__init__(observation_space, FEATURES)
        self.vision = Vision()

    def forward(self, observations: Tensor) -> Tensor:
        """[N, 4, 48, 48] float in [0, 1] -> [N, 256]."""
        features: Tensor = self.vision(observations)
        return features
