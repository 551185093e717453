"""The paper's network (Table 4) for driving: convolutions per frame, one sequence layer, a dense head."""

from __future__ import annotations

import math
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

    pair: Tensor
    share: Tensor

    def __init__(self, first: int, last: int) -> None:
        super().__init__()
        self.first, self.last, width, steps = first, last, camera_mount.WIDTH, camera_mount.STEPS
        across, down = (torch.from_numpy(x).flatten() for x in camera_mount.places(first, last))
        # The last pixel has none behind it, and is a whole step from the one before.
        column, row = (across // steps).clamp(max=width - 2), (down // steps).clamp(max=camera_mount.HEIGHT - 2)
        self.rows = int(row.min()), int(row.max()) + 2
        corner = (row - self.rows[0]) * width + column
        pair = corner // 2 + corner % 2 * ((self.rows[1] - self.rows[0]) * width // 2)
        self.register_buffer("pair", torch.cat([pair, pair + width // 2]).int(), persistent=False)
        right, below = (torch.stack([1 - part, part]) for part in (across / steps - column, down / steps - row))
        share = (below.unsqueeze(1) * right).transpose(1, 2).flatten(0, 1)
        self.register_buffer("share", share.float(), persistent=False)

    def forward(self, frames: Tensor) -> Tensor:
        if frames.dtype == torch.uint8 and frames.device.type == "cpu" and not torch.compiler.is_compiling():
            # A tenth of the time.
            turned = [camera_mount.upright(frame.numpy(), self.first, self.last) for frame in frames]
            return torch.stack([torch.from_numpy(one) for one in turned])
        # Two pixels beside one another are looked up at once (those from an odd place on come behind the others):
        # ONNX Runtime takes its time by the place. Of bytes all is exact in float32: 32nds times 32nds.
        x = frames[:, slice(*self.rows)].flatten(1, 2)
        pairs = torch.cat([x.reshape(len(x), -1, 6), x[:, 1:-1].reshape(len(x), -1, 6)], dim=1)
        both = pairs.index_select(1, self.pair).to(self.share.dtype)
        above, below = (both * self.share.unsqueeze(2).expand(-1, -1, 3).flatten(1)).chunk(2, dim=1)
        left, right = (above + below).transpose(1, 2).chunk(2, dim=1)
        y = (left + right).view(len(x), 3, self.last - self.first, camera_mount.WIDTH).permute(0, 2, 3, 1)
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
        self.register_buffer("down", block_weights(self.last - self.first, rows), persistent=False)
        self.register_buffer("across", block_weights(config.width, columns).T.contiguous(), persistent=False)
        self.register_buffer("colour", torch.tensor(colour), persistent=False)
        self.register_buffer("offset", torch.tensor(offset).unsqueeze(1), persistent=False)
        self.size = rows, columns

    def forward(self, frames: Tensor) -> Tensor:
        kept = frames[:, self.first : self.last] if self.upright is None else self.upright(frames)
        x = kept.permute(0, 3, 1, 2).to(self.down.dtype, memory_format=torch.contiguous_format)
        x = (x.unflatten(3, (-1, len(self.across))) @ self.across).flatten(3)
        y: Tensor = self.colour @ (self.down @ x.unflatten(2, (-1, self.down.shape[1]))).flatten(2) + self.offset
        y = y.round().clamp(0, 255).to(torch.uint8) if frames.dtype == torch.uint8 else y
        return y.view(-1, 3, *self.size).permute(0, 2, 3, 1).contiguous()


def area_weights(before: int, after: int) -> Tensor:
    """[after, before]: each new pixel is the mean of the stretch that it covers, its ends weighted by their share."""
    edges = torch.arange(after + 1, dtype=torch.float64) * (before / after)
    pixels = torch.arange(before, dtype=torch.float64)
    weights = (torch.minimum(edges[1:, None], pixels + 1) - torch.maximum(edges[:-1, None], pixels)).clamp(min=0)
    return (weights / weights.sum(dim=1, keepdim=True)).float()


def block_weights(before: int, after: int) -> Tensor:
    """``area_weights`` of one of the equal blocks that both sizes fall into, of at least 24 pixels where they do."""
    common = math.gcd(before, after)
    blocks = max(k for k in range(1, common + 1) if common % k == 0 and (before >= 24 * k or k == 1))
    return area_weights(before // blocks, after // blocks)


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
        # As pictures lie, or every decision would turn the weights around.
        self.vision.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
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
