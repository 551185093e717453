"""``.onnx`` files: the whole policy in one graph, its state in and out, all that a user must know inside."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nacdrive.common.errors import UserError
from nacdrive.common.files import atomic_path, file_checksum
from nacdrive.common.version import __version__
from nacdrive.drivers.onnx_runtime import ABOUT, FORMAT, seal
from nacdrive.envs.registry import action_names
from nacdrive.extras.export.streaming import step_of
from nacdrive.models.files import load_policy
from nacdrive.models.policy import Policy

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 20
"""The newest that onnxruntime 1.20 knows."""
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
        return ACTION if self.config.continuous else (*ACTION, "logits", "action")

    def example(self) -> tuple[Tensor, ...]:
        """Inputs of the right shapes: those of the first decision on a black frame."""
        frame = torch.zeros((self.config.height, self.config.width, 3), dtype=torch.uint8)
        return frame, torch.zeros(1), torch.zeros(1), *self.step.initial().values()

    def forward(self, frame: Tensor, t_s: Tensor, speed_mps: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        """Decide on a frame, uint8 [height, width, 3], RGB, taken ``t_s`` [1] seconds after the episode began.

        Gives steering, throttle and brake, [1] each; of a policy that chooses, also logits [actions] and action [1];
        then the next state, in the order of ``step.initial()``.
        """
        y, *after = self.step(self.network.features(frame.unsqueeze(0)), t_s, *state)
        scores = self.network.head(y)[0]
        if self.config.continuous:
            clamped = scores.clamp(-1.0, 1.0)
            pedal = clamped[1:] if self.config.pedal else torch.zeros_like(clamped[:1])
            return clamped[:1], pedal.clamp(min=0.0), (-pedal).clamp(min=0.0), *after
        choice = scores.argmax(dim=0, keepdim=True)
        return *self.table[choice].unbind(1), scores, choice, *after


def export_onnx(model: Path, out: Path) -> list[Path]:
    """Write the policy in ``model`` to ``out`` as ONNX; returns the files written. ``UserError`` if it cannot be
    loaded, its layer cannot be exported, or the packages are not installed.
    """
    policy = load_policy(model)
    step = PolicyStep(policy).eval()
    state = step.step.initial()
    inputs = [*INPUTS, *(f"state.{name}" for name in state)]
    proto = record(step, step.example(), inputs, [*step.outputs, *(f"next.state.{name}" for name in state)])
    from onnx.helper import set_model_props

    proto.producer_name, proto.producer_version = "nacdrive", __version__
    set_model_props(proto, {ABOUT: json.dumps(describe(policy, model, state))})
    with atomic_path(out) as partial:
        partial.write_bytes(seal(proto.SerializeToString()))
    return [out]


def record(
    module: torch.nn.Module, example: tuple[Tensor, ...], inputs: Sequence[str], outputs: Sequence[str]
) -> ModelProto:
    """``module`` as an ONNX graph with these names."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is not installed, which writes ONNX: pip install 'nacdrive[onnx]'.") from error
    with torch.no_grad(), quiet():
        program = torch.onnx.export(
            module,
            example,
            input_names=list(inputs),
            output_names=list(outputs),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    proto: ModelProto = program.model_proto
    # Where in whose files each node came from is nobody's business.
    for node in proto.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for value in (*proto.graph.value_info, *proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        del value.metadata_props[:]
    del proto.graph.metadata_props[:], proto.metadata_props[:]
    return proto


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what others print, log below errors and warn of from the user."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def describe(policy: Policy, model: Path, state: dict[str, Tensor]) -> dict[str, Any]:
    """What stands in the file beside the graph."""
    config = policy.config
    labels = action_names(config.task)
    if len(labels) != len(config.actions):
        # Nobody has named them.
        labels = tuple(map(str, range(len(config.actions))))
    return {
        "format": FORMAT,
        "nacdrive": __version__,
        "name": policy.name,
        "source": {"file": model.name, "sha256": file_checksum(model)},
        "task": config.task,
        "precision": "float32",
        "frame": {"shape": [config.height, config.width, 3], "dtype": "uint8", "colours": "RGB"},
        "normalisation": "inside the graph: crop, area resize, colours, then pixel * 2 / 255 - 1",
        "units": {
            "t_s": "seconds since the episode began, not decreasing",
            "speed_mps": "metres a second",
            "steering": "-1 full left .. 1 full right",
            "throttle": "0 .. 1",
            "brake": "0 .. 1",
        },
        "gap_s": config.gap_s,
        "action_repeat": config.repeat,
        "actions": list(labels),
        "state": [
            {"name": f"state.{name}", "shape": list(x.shape), "dtype": str(x.dtype)[len("torch.") :], "initial": 0}
            for name, x in state.items()
        ],
        "config": config.to_json(),
        "training": policy.meta,
    }
