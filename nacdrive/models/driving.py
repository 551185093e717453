"""The paper's network (Table 4) for driving: convolutions per frame, one sequence layer, a dense head."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from nacdrive.common import camera_mount
from nacdrive.layers import build
from nacdrive.models.config import PolicyConfig
from nacdrive.nac.validation import require

# BT.601 as in OpenCV's RGB2YUV: rows Y, U, V.
YUV = ((0.299, 0.587, 0.114), (-0.147108, -0.288804, 0.435912), (0.614777, -0.514799, -0.099978))
NEUTRAL = (0.0, 128.0, 128.0)


class Upright(nn.Module):
    """[N, 160, 320, 3] of the crooked camera -> rows [first, last) as a straight one would have seen them.

    Bytes stay bytes, the same as ``camera_mount.upright`` gives; floats stay differentiable.
    """

    corner: Tensor
    right: Tensor
    below: Tensor

    def __init__(self, first: int, last: int) -> None:
        super().__init__()
        self.first, self.last = first, last
        across, down = (torch.from_numpy(x) for x in camera_mount.places(first, last))
        # The last pixel has none behind it, and is a whole step from the one before.
        column = (across // camera_mount.STEPS).clamp(max=camera_mount.WIDTH - 2)
        row = (down // camera_mount.STEPS).clamp(max=camera_mount.HEIGHT - 2)
        self.register_buffer("corner", (row * camera_mount.WIDTH + column).flatten(), persistent=False)
        for name, part in (("right", across / camera_mount.STEPS - column), ("below", down / camera_mount.STEPS - row)):
            self.register_buffer(name, part.flatten().unsqueeze(1).float(), persistent=False)

    def forward(self, frames: Tensor) -> Tensor:
        if frames.dtype == torch.uint8 and frames.device.type == "cpu" and not torch.compiler.is_compiling():
            # A tenth of the time.
            turned = [camera_mount.upright(frame.numpy(), self.first, self.last) for frame in frames]
            return torch.stack([torch.from_numpy(one) for one in turned])
        x = frames.flatten(1, 2).to(self.right.dtype)
        four = [x.index_select(1, self.corner + step) for step in (0, 1, camera_mount.WIDTH, camera_mount.WIDTH + 1)]
        # Places by one axis, factors of one shape: half of the time in ONNX Runtime.
        right, below = self.right.expand(-1, 3), self.below.expand(-1, 3)
        above, under = four[0] + (four[1] - four[0]) * right, four[2] + (four[3] - four[2]) * right
        y = (above + (under - above) * below).view(len(frames), self.last - self.first, camera_mount.WIDTH, 3)
        # Of bytes all of this is exact in float32: 32nds times 32nds.
        return (y + 0.5).floor().to(torch.uint8) if frames.dtype == torch.uint8 else y


class Preprocess(nn.Module):
    """[N, height, width, 3] RGB -> [N, rows, columns, 3]; bytes stay bytes, floats of 0 .. 255 stay differentiable."""

    down: Tensor
    across: Tensor
    colour: Tensor
    offset: Tensor

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.first, self.last = config.crop or (0, config.height)
        self.upright = Upright(self.first, self.last) if config.upright else None
        rows, columns = config.input_size
        colour, offset = (YUV, NEUTRAL) if config.yuv else (torch.eye(3).tolist(), (0.0, 0.0, 0.0))
        # They follow from the config, so no file need hold them.
        self.register_buffer("down", area_weights(self.last - self.first, rows), persistent=False)
        self.register_buffer("across", area_weights(config.width, columns).T.contiguous(), persistent=False)
        self.register_buffer("colour", torch.tensor(colour).T.contiguous(), persistent=False)
        self.register_buffer("offset", torch.tensor(offset), persistent=False)

    def forward(self, frames: Tensor) -> Tensor:
        kept = frames[:, self.first : self.last] if self.upright is None else self.upright(frames)
        x = kept.to(self.down.dtype).permute(0, 3, 1, 2)
        y = (self.down @ (x @ self.across)).permute(0, 2, 3, 1) @ self.colour + self.offset
        return y.round().clamp(0, 255).to(torch.uint8) if frames.dtype == torch.uint8 else y


def area_weights(before: int, after: int) -> Tensor:
    """[after, before]: each new pixel is the mean of the stretch that it covers, its ends weighted by their share."""
    edges = torch.arange(after + 1, dtype=torch.float64) * (before / after)
    pixels = torch.arange(before, dtype=torch.float64)
    weights = (torch.minimum(edges[1:, None], pixels + 1) - torch.maximum(edges[:-1, None], pixels)).clamp(min=0)
    return (weights / weights.sum(dim=1, keepdim=True)).float()


class DrivingNetwork(nn.Module):
    """Frames and their times -> scores of the actions, or the steering, at every frame of the sequence.

    Frame i is judged from the frames i-window+1 .. i; the convolutions see every frame once.
    """

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.config = config
        first, last = config.crop or (0, config.height)
        require(0 <= first < last <= config.height, "crop", config.crop, f"(first, end) within {config.height} rows")
        size, camera = (config.height, config.width), (camera_mount.HEIGHT, camera_mount.WIDTH)
        require(not config.upright or size == camera, "upright", True, f"False but for frames of {camera}")
        allowed = "some of the rows, or a resize, with yuv or upright: by their size it is known that they were done"
        require(config.input_size != size or not (config.yuv or config.upright), "crop", config.crop, allowed)
        changed = config.upright or config.crop is not None or config.resize is not None or config.yuv
        self.preprocess = Preprocess(config) if changed else None
        activation = {"relu": nn.ReLU, "elu": nn.ELU}[config.activation]
        layers = zip(config.channels, config.kernels, config.strides, strict=True)
        self.vision = nn.Sequential(*convolutions(3, *layers, activation=activation))
        if config.activation == "elu":
            # Those of He et al. (2015) keep the scale through five convolutions: under PyTorch's own the features of
            # two roads differ by 0.01 at first, and what comes behind learns nothing.
            for layer in self.vision.modules():
                if isinstance(layer, nn.Conv2d):
                    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                    assert layer.bias is not None
                    nn.init.zeros_(layer.bias)
        with torch.no_grad():
            features = self.vision(torch.zeros(1, 3, *config.input_size)).numel()
        self.dropout = nn.Dropout(config.dropout)
        self.projection = nn.Linear(features, config.projection) if config.projection else None
        self.features_width = config.projection or features
        options = {"gap_s": config.gap_s, **config.options}
        sizes = config.d_model, config.num_heads, config.window
        self.sequence = build(config.model, *sizes, in_features=self.features_width, **options)
        dense, answer = nn.Linear(config.d_model, config.dense), nn.Linear(config.dense, config.outputs)
        self.head = nn.Sequential(dense, activation(), answer)

    def class_scores(self, outputs: Tensor) -> Tensor:
        """Scores [..., choices] between which a decision was made: those of the actions, or of right and left."""
        steering = outputs[..., :1]
        return torch.cat([steering, -steering], dim=-1) if self.config.continuous else outputs

    def features(self, frames: Tensor) -> Tensor:
        """[N, height, width, 3] (uint8, or floats of 0 .. 255) -> [N, features], what enters the sequence layer.

        Frames that ``preprocess`` has already been through are known by their size, and are taken as they are.
        """
        if self.preprocess is not None and frames.shape[1:3] != self.config.input_size:
            frames = self.preprocess(frames)
        x = frames.to(next(self.parameters()).dtype).mul(2 / 255).sub(1.0).permute(0, 3, 1, 2)
        if self.config.masked_rows is not None:
            first, last = self.config.masked_rows
            x = torch.cat([x[:, :, :first], torch.zeros_like(x[:, :, first:last]), x[:, :, last:]], dim=2)
        y: Tensor = self.dropout(self.vision(x).flatten(1))
        return y if self.projection is None else self.projection(y)

    def forward(self, frames: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        """Frames [B, T, height, width, 3] (see ``features``) at ``t`` [B, T] seconds -> [B, T, outputs], not clamped:
        scores, or steering (-1 left .. 1 right) and perhaps the pedal (throttle minus brake).

        ``padding`` [B, T] is True where a frame is padding.
        """
        B, T = frames.shape[:2]
        return self.decide(self.features(frames.flatten(0, 1)).view(B, T, -1), t, padding)

    def decide(self, features: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        """``forward`` from the ``features`` [B, T, features] of the frames."""
        scores: Tensor = self.head(self.sequence(features, t, padding))
        return scores


def convolutions(incoming: int, *layers: tuple[int, ...], activation: type[nn.Module] = nn.ReLU) -> Iterator[nn.Module]:
    """Convolutions of so many channels, kernel size, stride and perhaps padding, each with its ``activation``."""
    for layer in layers:
        out, kernel, stride, padding = (*layer, 0)[:4]
        yield from (nn.Conv2d(incoming, out, kernel, stride, padding), activation())
        incoming = out
