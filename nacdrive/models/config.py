"""What a policy is made of, as plain JSON: enough to build its network again from a model file."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, Self

from nacdrive.common.runs import plain


@dataclass(frozen=True)
class NetworkConfig:
    """Architecture of a network, to be kept in its file."""

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """The config that ``to_json`` wrote; ``ValueError`` if it has an unknown field, or lacks one."""
        known = {item.name: item.default is MISSING and item.default_factory is MISSING for item in fields(cls)}
        unknown, lacking = set(value) - set(known), {name for name, needed in known.items() if needed} - set(value)
        if unknown or lacking:
            raise ValueError(f"its config has unknown {sorted(unknown)} and lacks {sorted(lacking)}")
        return cls(**{key: _tuples(item) for key, item in value.items()})

    def to_json(self) -> dict[str, Any]:
        result = plain(self)
        assert isinstance(result, dict)
        return result


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


@dataclass(frozen=True)
class PolicyConfig(NetworkConfig):
    """Architecture of a policy that looks at frames (paper, Table 4; the defaults are those of CarRacing).

    With ``actions`` it chooses among a few, without it steers continuously and may hold the pedal too.
    """

    task: str
    """Task the policy was made for, such as ``carracing``."""
    model: str
    """Registered name of the sequence layer, such as ``nac-steady``."""
    actions: tuple[tuple[float, float, float], ...]
    """Steering (-1 left .. 1 right), throttle (0 .. 1) and brake (0 .. 1) of each choice; empty: continuous control."""
    window: int = 1
    """Frames that a decision may depend on, the present one included; 1 is the paper's form."""
    repeat: int = 4
    """Frames of the simulator per decision that the policy was trained at."""
    gap_s: float = 0.08
    """Typical time between two decisions, in seconds."""
    height: int = 96
    width: int = 96
    masked_rows: tuple[int, int] | None = None
    """Rows [from, to) that the network does not get to see, such as the instruments of CarRacing; None for none."""
    crop: tuple[int, int] | None = None
    """Rows [from, to) that are kept of a frame; None for all."""
    resize: tuple[int, int] | None = None
    """Rows and columns to which the kept part is resized; None to leave it as it is."""
    yuv: bool = False
    activation: Literal["relu", "elu"] = "relu"
    """Non-linearity of the convolutions and of the dense layer."""
    channels: tuple[int, ...] = (10, 20, 30)
    """Of the convolutions, as ``kernels`` and ``strides``."""
    kernels: tuple[int, ...] = (5, 5, 3)
    strides: tuple[int, ...] = (2, 2, 2)
    dropout: float = 0.2
    """Dropout on the features of the convolutions."""
    projection: int = 0
    """Width to which the features are projected before the sequence layer; 0 leaves them as they are."""
    d_model: int = 64
    """Width of the sequence layer."""
    num_heads: int = 16
    dense: int = 64
    """Width of the dense layer before the scores."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the sequence layer, such as ``topk``, ``sparsity`` or ``seed``."""
    pedal: bool = False
    """Whether a policy without ``actions`` also gives throttle minus brake; if not, its speed is held by others."""
    upright: bool = False
    """Turn each picture upright first, as that of the Udacity simulator's camera (``common.camera_mount``)."""
    between_frames: bool = False
    """Whether it decides at its own pace, too, where frames come more slowly: in between from a black one."""

    @property
    def continuous(self) -> bool:
        return not self.actions

    @property
    def outputs(self) -> int:
        """Numbers that the network gives per frame: a score per action, or steering and perhaps the pedal."""
        return len(self.actions) or 1 + self.pedal

    @property
    def input_size(self) -> tuple[int, int]:
        """Rows and columns that the convolutions see."""
        first, last = self.crop or (0, self.height)
        return self.resize or (last - first, self.width)
