"""What is installed only with an extra, and the command that adds it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from nacdrive.common.errors import UserError

EXTRAS = {
    "drive": (
        "Box2D", "PIL", "annotated_types", "cv2", "flask", "gymnasium", "pyarrow", "pygame", "rich", "safetensors",
        "simple_websocket", "tyro", "werkzeug", "wsproto",
    ),
    "udacity": ("engineio", "eventlet", "panda3d", "socketio"),
    "rl": ("stable_baselines3", "tensorboard"),
    "viz": ("imageio_ffmpeg", "matplotlib"),
    "data": ("pooch", "requests", "scipy"),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "minari": ("h5py", "minari"),
}  # fmt: skip
"""Extra of ``pyproject.toml`` -> modules that come with it, and that nacdrive imports when they are needed."""


def missing_extra(error: ModuleNotFoundError) -> UserError | None:
    """What to say of a module that was not found: the command that brings it; None if no extra does."""
    module = (error.name or "").split(".")[0]
    if module == "Box2D" and sys.version_info >= (3, 14):
        return UserError("CarRacing needs Box2D, which has no wheel for this Python yet: use Python 3.11 to 3.13.")
    for extra, modules in EXTRAS.items():
        if module in modules:
            return UserError(f"{module} is not installed: add it with pip install 'nacdrive[{extra}]'.")
    return None


@contextmanager
def named_extras() -> Iterator[None]:
    """A package that is not installed is named with the command that adds it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from error
