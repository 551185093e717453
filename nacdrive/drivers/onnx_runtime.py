"""Drive with a policy that ``nacdrive export --to onnx`` wrote; needs numpy and onnxruntime, OpenCV for pictures.

This file stands alone: the distribution ``nacdrive-run`` ships it as the module ``nacdrive_run``, without torch and
without the rest of nacdrive, and ``nacdrive drive|eval --model x.onnx`` use it as it is.

    policy = Policy("nac_steady.onnx")
    policy.reset()                       # at the beginning of every episode
    decision = policy.step(frame, t_s)   # uint8 RGB [height, width, 3]; seconds since the episode began
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray

FORMAT = 1
"""Version of the inputs, outputs and metadata that are read here."""
ABOUT, CHECKSUM, DIGEST = "nacdrive", "nacdrive_sha256", 64
"""Keys of the metadata: what the policy is, as JSON; and the checksum of all that stands before it in the file."""

LATEST_S = 2.0**18
"""Behind it single precision, in which times are computed, is off by more than 0.01 s."""


class PolicyError(ValueError):
    """A file, frame, time or state that a policy cannot take: one sentence."""


class Decision(NamedTuple):
    """Steering -1 full left .. 1 full right; throttle and brake 0 .. 1, both 0 for a policy that steers alone.

    Where the policy chooses among a few actions: which, and the scores of all of them.
    """

    steering: float
    throttle: float
    brake: float
    choice: int | None = None
    logits: NDArray[np.float32] | None = None


# Field 14 of ModelProto, metadata_props: key (1) and value (2). Protobuf reads appended fields as part of a file.
_ENTRY = b"\x0a" + bytes([len(CHECKSUM)]) + CHECKSUM.encode() + b"\x12" + bytes([DIGEST])
_SEAL = b"\x72" + bytes([len(_ENTRY) + DIGEST]) + _ENTRY


def seal(model: bytes) -> bytes:
    """``model`` (a serialized ONNX ModelProto) with its checksum behind it, as one more entry of its metadata."""
    return model + _SEAL + hashlib.sha256(model).hexdigest().encode()


def read_sealed(path: Path) -> bytes:
    """Bytes of an exported policy; ``PolicyError`` if it is missing, of another producer, or not as it was exported."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PolicyError(f"{path} cannot be read ({error.strerror}): check the path.") from error
    end = len(data) - DIGEST
    if CHECKSUM.encode() not in data:
        raise PolicyError(f"{path} was not made by 'nacdrive export' (or is cut off): export a policy to ONNX with it.")
    model = data[:end].removesuffix(_SEAL)
    if len(model) == end or seal(model) != data:
        raise PolicyError(f"{path} was changed since it was exported (its checksum does not match): export it anew.")
    return data


class Policy:
    """The exported policy in ``path`` and its memory of the episode; raises what ``read_sealed`` raises."""

    def __init__(self, path: str | Path, threads: int = 1) -> None:
        self.path = Path(path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        data = read_sealed(self.path)
        try:
            self._session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            self.about: dict[str, Any] = json.loads(self._session.get_modelmeta().custom_metadata_map[ABOUT])
            version = self.about["format"]
        except Exception as error:  # onnxruntime has a family of its own, without a common base
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise PolicyError(f"{path} cannot be run by onnxruntime {onnxruntime.__version__} ({reason}).") from error
        if version != FORMAT:
            raise PolicyError(f"{path} has format {version}, and {FORMAT} is read here: use the matching nacdrive.")
        self.name: str = self.about["name"]
        self.frame_shape: tuple[int, ...] = tuple(self.about["frame"]["shape"])
        self._outputs = [output.name for output in self._session.get_outputs()]
        self.reset()

    def reset(self) -> None:
        self._state: dict[str, NDArray[Any]] = {
            part["name"]: np.full(part["shape"], part["initial"], part["dtype"]) for part in self.about["state"]
        }
        self._last_s = -math.inf

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        """What is remembered of the episode, by name; copies. May be set, to go on from there."""
        return {name: value.copy() for name, value in self._state.items()}

    @state.setter
    def state(self, state: Mapping[str, NDArray[Any]]) -> None:
        if set(state) != set(self._state):
            raise PolicyError(f"the state of {self.name} holds {sorted(self._state)}, this one {sorted(state)}.")
        for name, own in self._state.items():
            if (given := np.asarray(state[name])).shape != own.shape or given.dtype != own.dtype:
                raise PolicyError(
                    f"the state '{name}' of {self.name} is {own.dtype} {own.shape}, of one car, and this one is "
                    f"{given.dtype} {given.shape}: give a state of this policy."
                )
        self._state = {name: np.array(state[name]) for name in self._state}
        self._last_s = -math.inf

    def step(self, frame: NDArray[np.uint8], t_s: float, speed_mps: float | None = None) -> Decision:
        """Decide on one frame: uint8 RGB [height, width, 3], taken ``t_s`` seconds after the episode began.

        Raises:
            PolicyError: if the frame has another shape or type, or the time is no number or goes back.
        """
        if frame.shape != self.frame_shape or frame.dtype != np.uint8:
            given = f"this one is {frame.dtype} {frame.shape}: give a policy of this environment, or its own"
            raise PolicyError(f"{self.name} was trained on frames of uint8 {self.frame_shape}, {given}.")
        if not self._last_s <= t_s < LATEST_S:
            times = f"the time goes from {self._last_s:g} to {t_s:g} s"
            raise PolicyError(f"{times}: call reset() before a new episode, and count seconds from its beginning.")
        self._last_s = t_s
        feed = {
            "frame": np.ascontiguousarray(frame),
            "t_s": np.array([t_s], np.float32),
            "speed_mps": np.array([speed_mps or 0.0], np.float32),
            **self._state,
        }
        outputs = dict(zip(self._outputs, self._session.run(None, feed), strict=True))
        self._state = {name: outputs[f"next.{name}"] for name in self._state}
        choice, logits = (int(outputs["action"][0]), outputs["logits"]) if "action" in outputs else (None, None)
        steering, throttle, brake = (float(outputs[name][0]) for name in ("steering", "throttle", "brake"))
        return Decision(steering, throttle, brake, choice, logits)


def pictures(video: str | None, images: list[str], shape: tuple[int, ...], gap_s: float) -> Iterator[tuple[float, Any]]:
    """Times and RGB frames of ``shape`` of a film, about ``gap_s`` apart, or of image files exactly so."""
    import cv2

    film = cv2.VideoCapture(video) if video else None
    if film is not None and not film.isOpened():
        raise PolicyError(f"{video} cannot be read as a video: check the path.")
    fps = (film.get(cv2.CAP_PROP_FPS) or 30.0) if film is not None else 1 / gap_s
    every = max(1, round(gap_s * fps))
    count = 0
    while film is not None or count < len(images):
        is_read, picture = film.read() if film is not None else (True, cv2.imread(images[count]))
        if not is_read:
            return
        if picture is None:
            raise PolicyError(f"{images[count]} cannot be read as an image: check the path.")
        if count % every == 0 or film is None:
            if picture.shape != shape:
                picture = cv2.resize(picture, (shape[1], shape[0]), interpolation=cv2.INTER_AREA)
            yield count / fps, cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)
        count += 1


def main(arguments: list[str] | None = None) -> int:
    """Print what a policy decides on each picture, as CSV."""
    parser = argparse.ArgumentParser(prog="nacdrive_run", description=main.__doc__)
    parser.add_argument("model", help="file that 'nacdrive export --to onnx' wrote")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--video", help="film to decide on")
    source.add_argument("--images", nargs="+", default=[], help="image files to decide on, in the order of time")
    given = parser.parse_args(arguments)
    try:
        policy = Policy(given.model)
        print("t_s,steering,throttle,brake,choice")
        for t_s, frame in pictures(given.video, given.images, policy.frame_shape, policy.about["gap_s"]):
            d = policy.step(frame, t_s)
            choice = "" if d.choice is None else d.choice
            print(f"{t_s:.3f},{d.steering:.6f},{d.throttle:.6f},{d.brake:.6f},{choice}")
    except PolicyError as error:
        print(f"nacdrive_run: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()  # the reader (such as `head`) has gone, and Python would complain of it at its end
    return 0


if __name__ == "__main__":
    sys.exit(main())
