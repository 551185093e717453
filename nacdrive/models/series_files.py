"""Model files of networks for series: tensors and a plain-JSON config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nacdrive.common.compat import series_tensors
from nacdrive.common.errors import UserError
from nacdrive.common.plugins import check_trusted
from nacdrive.common.tensor_file import json_object, read_tensor_file, write_tensor_file
from nacdrive.models.files import check_device, wrong_content
from nacdrive.models.series import SeriesConfig, SeriesNetwork

KIND = "nacdrive series model"
VERSION = 1


def save_series(network: SeriesNetwork, path: Path, meta: dict[str, Any]) -> None:
    """Write ``network`` and ``meta``, plain JSON about its training, to ``path`` atomically."""
    content = {"config": json.dumps(network.config.to_json()), "meta": json.dumps(meta), "time": "seconds"}
    write_tensor_file(path, KIND, VERSION, content, network.state_dict())


def load_series(path: Path, *, task: str, device: str = "cpu") -> tuple[SeriesNetwork, dict[str, Any]]:
    """The network in ``path``, ready to answer, and what is known of its training.

    ``UserError`` also where it was made for another task, or by the ``paper`` protocol, whose networks take rows scaled
    with what they are tested on.
    """
    content = read_tensor_file(path, KIND, VERSION, name="model file")
    try:
        config = SeriesConfig.from_json(json_object(content, "config"))
        check_trusted(path, config.task, config.model, config.options)
        meta = json_object(content, "meta")
        if config.task != task:
            raise UserError(f"{path} was trained for '{config.task}', not for '{task}': give another --model.")
        if config.protocol == "paper":
            raise UserError(f"{path} was trained under the {config.protocol} protocol: train one under 'sequence'.")
        network = SeriesNetwork(config)
        network.load_state_dict(series_tensors(content["tensors"], config.gap_s, content.get("time")))
    except (KeyError, TypeError, ValueError, RuntimeError, ArithmeticError, AttributeError) as error:
        raise wrong_content(path, error) from error
    return network.to(check_device(device)).eval(), meta
