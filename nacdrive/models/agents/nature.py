"""What most agents of stable-baselines3 see pictures with, ``NatureCNN`` (Mnih et al., 2015): the actor alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from nacdrive.common.errors import first_line, quoted
from nacdrive.models.agents.view import View
from nacdrive.models.driving import convolutions

ACTIVATIONS: dict[str, type[nn.Module]] = {"Tanh": nn.Tanh, "ReLU": nn.ReLU, "ELU": nn.ELU, "GELU": nn.GELU}
KIND = "nature-cnn"


class NatureNet(nn.Module):
    """uint8 frames -> three convolutions and ``features`` -> ``hidden`` dense layers -> scores, or numbers of a Box.

    ``ValueError`` for an unknown activation of the dense layers, or frames too small for the convolutions.
    """

    def __init__(
        self, view: View, outputs: int, features: int = 512, hidden: Sequence[int] = (), activation: str = "Tanh"
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation={activation}; allowed are {', '.join(ACTIVATIONS)}")
        if min(view.height, view.width) < 36:
            raise ValueError(f"frames of {view.height} x {view.width} are too small for {KIND}: 36 x 36 at least")
        self.view, self.memory = view, None
        self.about = {"kind": KIND, "features": features, "hidden": list(hidden), "activation": activation}
        self.vision = nn.Sequential(*convolutions(view.shape[0], (32, 8, 4), (64, 4, 2), (64, 3, 1)), nn.Flatten())
        with torch.no_grad():
            seen = self.vision(torch.zeros(1, *view.shape)).shape[1]
        self.vision.extend([nn.Linear(seen, features), nn.ReLU()])
        widths, kind = (features, *hidden), ACTIVATIONS[activation]
        self.hidden = nn.Sequential(*(part for a, b in pairwise(widths) for part in (nn.Linear(a, b), kind())))
        self.head = nn.Linear(widths[-1], outputs)

    def forward(self, stacks: Tensor) -> Tensor:
        """Uint8 [N, *view.shape] -> float32 [N, outputs]."""
        scores: Tensor = self.head(self.hidden(self.vision(stacks.float() / 255.0)))
        return scores


NAMES = {
    "pi_features_extractor.cnn.": "vision.",
    "pi_features_extractor.linear.0.": "vision.7.",
    "mlp_extractor.policy_net.": "hidden.",
    "action_net.": "head.",
}
"""What stable-baselines3's policy calls the parts of its actor, and ``NatureNet``."""


def rename(tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """Those of ``tensors`` whose name begins as one of ``names``, under the name that stands for it there."""
    return {
        ours + name.removeprefix(theirs): value
        for name, value in tensors.items()
        for theirs, ours in names.items()
        if name.startswith(theirs)
    }


def of_sb3(tensors: dict[str, Tensor], view: View, activation: str) -> NatureNet:
    """The actor of a stable-baselines3 policy, of its ``state_dict``; ``ValueError`` if it is another network."""
    renamed = rename(tensors, NAMES)
    before = f"its tensors are not those of {KIND} ("
    with quoted(before, ")", KeyError, RuntimeError, say=first_line, kind=ValueError):
        count = sum(name.startswith("hidden.") for name in renamed) // 2
        hidden = [int(renamed[f"hidden.{2 * i}.weight"].shape[0]) for i in range(count)]
        outputs, features = int(renamed["head.weight"].shape[0]), int(renamed["vision.7.weight"].shape[0])
        net = NatureNet(view, outputs, features, tuple(hidden), activation)
        net.load_state_dict(renamed)
    return net.eval()
