"""8-bit convolutions and dense layers, with the ranges of numbers that occur when the policy sees recorded frames."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nacdrive.common.errors import UserError
from nacdrive.common.paths import find_recording, shipped
from nacdrive.datasets.recording import Recording
from nacdrive.extras.export.policy_step import INPUTS, PolicyStep
from nacdrive.extras.export.quiet import quiet
from nacdrive.models.policy import Policy

if TYPE_CHECKING:
    from onnx import ModelProto

FRAMES = 300
"""Decisions that show which numbers occur."""
QUANTIZED = ("Conv", "Gemm")


def quantize(proto: ModelProto, policy: Policy, calibration: Sequence[Path]) -> ModelProto:
    """``proto`` with the convolutions and the head in 8 bits; preprocessing and the sequence layer stay as they are.

    Raises:
        UserError: if there are no recordings with frames of the policy's size.
    """
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    folders = [find_recording(folder) for folder in calibration]
    if not folders:
        folders = [shipped("recordings") / f"{policy.task}-sample"]
        if not folders[0].is_dir():
            raise UserError(f"no recording of '{policy.task}' is shipped: give some with --calibration.")

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        """Recorded frames with the states that the policy has there."""

        def __init__(self) -> None:
            self.feeds = islice(feeds(policy, folders), FRAMES)

        def get_next(self) -> dict[str, Any] | None:
            return next(self.feeds, None)

    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        onnx.save(proto, before)
        with quiet():
            quantize_static(
                before,
                after,
                Reader(),
                quant_format=QuantFormat.QDQ,
                nodes_to_quantize=weighted_nodes(proto),
                per_channel=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
            )
        return onnx.load(after)


def weighted_nodes(proto: ModelProto) -> list[str]:
    """Names of the convolutions and of the dense layers.

    Products of matrices by themselves are left alone: those of the preprocessing must keep each byte, and the small
    ones inside the sequence layer would lose more by rounding than they gain in time.
    """
    return [node.name for node in proto.graph.node if node.op_type in QUANTIZED]


def feeds(policy: Policy, folders: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Inputs of the graph at every recorded frame, with the state that the policy has there.

    Raises:
        UserError: if a recording holds frames of another size.
    """
    import torch

    step = PolicyStep(policy).eval()
    shape = (policy.config.height, policy.config.width, 3)
    for folder in folders:
        recording = Recording.open(folder)
        for index in range(len(recording)):
            episode = recording.load(index)
            state = list(step.step.initial().values())
            for frame, t_s in zip(episode.decoded(), episode.t_s, strict=True):
                if frame.shape != shape:
                    raise UserError(f"{folder} holds frames of {frame.shape}, and {policy.name} takes {shape}.")
                now = [torch.from_numpy(np.ascontiguousarray(frame)), torch.tensor([t_s]).float(), torch.zeros(1)]
                names = [*INPUTS, *(f"state.{name}" for name in step.step.initial())]
                yield dict(zip(names, (x.numpy() for x in (*now, *state)), strict=True))
                with torch.no_grad():
                    state = list(step(*now, *state)[len(step.outputs) :])
