"""A whole policy as one step: from the camera's bytes to the pedals."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nacdrive.extras.export.streaming import step_of
from nacdrive.models.policy import Policy

INPUTS = ("frame", "t_s", "speed_mps")
ACTION = ("steering", "throttle", "brake")


class PolicyStep(nn.Module):
    """Preprocessing, convolutions, a step of the sequence layer, head and decision, as ``Policy.step`` does them."""

    table: Tensor

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.config = policy.config
        self.network = policy.network.eval()
        self.step = step_of(policy.network.sequence)
        self.register_buffer("table", torch.tensor(self.config.actions or ((0.0, 0.0, 0.0),)), persistent=False)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs before the state."""
        return ACTION if self.config.continuous else (*ACTION, "logits", "action")

    def example(self) -> tuple[Tensor, ...]:
        """Inputs of the right shapes: those of the first decision on a black frame."""
        frame = torch.zeros((self.config.height, self.config.width, 3), dtype=torch.uint8)
        return frame, torch.zeros(1), torch.zeros(1), *self.step.initial().values()

    def forward(self, frame: Tensor, t_s: Tensor, speed_mps: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        """Decide.

        Args:
            frame: uint8 [height, width, 3], RGB.
            t_s: [1], seconds since the episode began.
            speed_mps: [1]; no network of today looks at it.
            state: of the step before, in the order of ``step.initial()``.

        Returns:
            steering, throttle and brake, [1] each; of a policy that chooses, also logits [actions] and action [1];
            then the next state.
        """
        y, *after = self.step(self.network.features(frame.unsqueeze(0)), t_s, *state)
        scores = self.network.head(y)[0]
        if self.config.continuous:
            clamped = scores.clamp(-1.0, 1.0)
            pedal = clamped[1:] if self.config.pedal else torch.zeros_like(clamped[:1])
            return clamped[:1], pedal.clamp(min=0.0), (-pedal).clamp(min=0.0), *after
        choice = scores.argmax(dim=0, keepdim=True)
        return *self.table[choice].unbind(1), scores, choice, *after
