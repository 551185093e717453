"""Grad-CAM of a policy's last convolution (Selvaraju et al. 2017): gradients, and not what decides."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from nacdrive.common.errors import UserError
from nacdrive.models.effects import LastDecision
from nacdrive.models.policy import Policy


class GradCam:
    """Saliency of a policy's present frame: call it right after ``policy.step``.

    The frames before it in the window count with the features they had; the gradient runs through the present frame.
    """

    def __init__(self, policy: Policy) -> None:
        layer = getattr(policy, "last_conv", None)
        if layer is None:
            raise UserError(f"{policy.name} has no convolution to look into: saliency needs one.")
        self.policy = policy
        self._layer: nn.Module = layer

    def __call__(self, frame: NDArray[np.uint8] | None = None, choice: int | None = None) -> NDArray[np.float32]:
        """Saliency [height, width] in 0 .. 1 of the newest frame for ``choice``, by default the one that is taken.

        Of a policy that steers continuously, the choices are right and left. Rows that it does not get to see stay 0.
        ``frame`` is not needed: the policy remembers it; the argument is there for the closed loop, which passes it.
        """
        recent = self.policy.last_decision()
        network, device = self.policy.network, self.policy.device
        newest = torch.from_numpy(np.ascontiguousarray(recent.frame)).to(device).unsqueeze(0).float()
        if choice is None:
            choice = int(network.class_scores(torch.from_numpy(recent.scores).unsqueeze(0)).argmax())
        maps: list[Tensor] = []
        hook = self._layer.register_forward_hook(lambda module, inputs, output: maps.append(output))
        try:
            score = self._scores(newest, recent)[0, choice]
        finally:
            hook.remove()
        (gradient,) = torch.autograd.grad(score, maps[0])
        # Only what speaks for the choice, as in the paper's figures.
        cam = F.relu((gradient.mean(dim=(2, 3), keepdim=True) * maps[0]).sum(dim=1, keepdim=True))
        first, last = network.config.crop or (0, network.config.height)
        seen = F.interpolate(cam, (last - first, newest.shape[2]), mode="bilinear")[0, 0].detach().float().cpu()
        seen[slice(*network.config.masked_rows or (0, 0))] = 0
        map_ = torch.zeros(newest.shape[1:3])
        map_[first:last] = seen
        return scaled(map_.numpy())

    def _scores(self, newest: Tensor, recent: LastDecision) -> Tensor:
        """[1, height, width, 3] floats of 0 .. 255 -> scores of the choices [1, choices]."""
        network = self.policy.network
        features = network.features(newest)
        if recent.past is not None:
            features = torch.cat([recent.past, features])
        times = torch.from_numpy(recent.times).to(newest.device).unsqueeze(0)
        return network.class_scores(network.head(network.sequence.last(features.unsqueeze(0), times, None)))


def scaled(map_: NDArray[np.float32]) -> NDArray[np.float32]:
    """``map_`` divided by its maximum; all zeros stay zeros (nothing spoke for the choice)."""
    top = float(map_.max())
    return (map_ / top if top > 0 else np.zeros_like(map_)).astype(np.float32)
