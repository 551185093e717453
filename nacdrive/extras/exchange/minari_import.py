"""A recording from a Minari data set in HDF5: one of ours without loss, a stranger's checked.

Its environment is never made: its specification names code to import. Only plain numbers, strings and images are read,
from the file itself, through no link and no filter but those that HDF5 and h5py bring along.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError, first_line, quoted
from nacdrive.common.foreign_json import parse_object, read_object
from nacdrive.datasets.episode import OPTIONAL, SIDES, Episode, unknown_columns
from nacdrive.datasets.images import check_size, encode_png
from nacdrive.datasets.staging import Converted, Progress, unseen, write_recording
from nacdrive.envs.registry import spec_of_source
from nacdrive.extras.exchange import limits
from nacdrive.extras.exchange.minari_export import BATCH, INFOS, MAIN, METADATA, SMALLEST_IMAGE

VERSIONS = re.compile(r"0\.[45]\.\d+")
FILTERS = (1, 2, 3, 4, 5, 6, 32000)
"""Deflate, shuffle, Fletcher32, szip, n-bit, scale-offset, and h5py's LZF. Any other one is code from elsewhere."""
LARGEST_RATIO = 2000
"""Of unpacked to packed; deflate reaches 1032."""
HARMLESS_BYTES = 2**26
"""Up to here it does not matter what the ratio is."""


@dataclass(frozen=True)
class MinariSet:
    """A Minari data set whose description has been read and makes sense."""

    folder: Path
    episodes: int
    frames: int  # steps together
    cameras: dict[str, tuple[str, ...]]  # center, left, right -> where its frames lie in an episode
    shapes: dict[str, tuple[int, int]]
    jpeg: bool  # whether images are stored encoded
    pedals: int  # numbers for the pedals in an action: 2, 1, or 0 where it is one of choices
    choices: int
    header: dict[str, Any] | None  # what the recording said of itself, where nacdrive wrote the data set

    @classmethod
    def open(cls, folder: Path) -> MinariSet:
        if not (folder / METADATA).is_file() and (folder / Path(METADATA).name).is_file():
            folder = folder.absolute().parent
        if not (folder / METADATA).is_file():
            raise UserError(f"there is no Minari data set in {folder} (no {METADATA}): check the path and --from.")
        about = read_object(limits.within(folder, METADATA))
        version, storage = str(about.get("minari_version"))[:20], str(about.get("data_format", "hdf5"))[:20]
        if not VERSIONS.fullmatch(version):
            raise UserError(f"{folder} is a Minari data set of version {version}, and this nacdrive reads 0.4 and 0.5.")
        if storage != "hdf5":
            raise UserError(f"{folder} is a Minari data set stored as {storage}, and this nacdrive reads hdf5.")
        ours = about.get("nacdrive")
        header = limits.own_header(folder / METADATA, ours) if ours is not None else None
        try:
            episodes, frames = int(about["total_episodes"]), int(about["total_steps"])
            if not (0 < episodes <= frames <= limits.MAX_FRAMES):
                raise ValueError(f"{frames} steps in {episodes} episodes")
            spaces = [parse_object(about[name]) for name in ("observation_space", "action_space")]
        except KeyError as error:
            raise UserError(
                f"{folder / METADATA} lacks {error}: it would have to be asked of the environment, which is not made "
                "here; write the data set again with Minari 0.5."
            ) from error
        except (TypeError, ValueError, OverflowError) as error:
            raise UserError(f"{folder / METADATA} is damaged ({first_line(error)[:160]}): get it again.") from error
        cameras, shapes = camera_spaces(folder, spaces[0])
        pedals, choices = action_space(folder, spaces[1])
        jpeg = bool(about.get("jpeg_encoding", True))
        return cls(folder, episodes, frames, cameras, shapes, jpeg, pedals, choices, header)


def camera_spaces(
    folder: Path, space: Mapping[str, Any]
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[int, int]]]:
    """Where the pictures of each camera lie, and their sizes."""
    boxes: dict[tuple[str, ...], tuple[int, int]] = {}
    parts = space.get("subspaces") if space.get("type") == "Dict" else None
    places: dict[tuple[str, ...], Any] = {("observations",): space}
    if isinstance(parts, dict):
        places = {("observations", str(name)): part for name, part in parts.items()}
    for place, part in places.items():
        shape = part.get("shape") if isinstance(part, dict) and part.get("type") == "Box" else None
        if isinstance(shape, list) and len(shape) == 3 and shape[2] == 3 and part.get("dtype") == "uint8":
            before = f"{folder} says that its pictures have the shape {str(shape)[:80]}: "
            with quoted(before, ".", TypeError, ValueError):
                height, width = int(shape[0]), int(shape[1])
                check_size(height, width)
            boxes[place] = height, width
    cameras = {place[-1]: place for place in boxes if place[-1] in ("center", *SIDES)}
    if len(boxes) == 1:
        cameras = {"center": next(iter(boxes))}
    if "center" not in cameras:
        kind = f"{space.get('type')} {str(space.get('shape', ''))[:40]}".strip()
        what = "several pictures, and none is called 'center'" if boxes else f"no picture ({kind})"
        raise UserError(f"the observations of {folder} are {what}: driving takes uint8 frames, height x width x 3.")
    return cameras, {camera: boxes[place] for camera, place in cameras.items()}


def action_space(folder: Path, space: Mapping[str, Any]) -> tuple[int, int]:
    """Numbers for the pedals (0 for choices) and the number of choices."""
    kind, shape, low, high, n = (space.get(name) for name in ("type", "shape", "low", "high", "n"))
    if kind == "Discrete" and isinstance(n, int) and space.get("start") == 0 and 0 < n <= limits.MAX_LIST:
        return 0, n
    if kind == "Box" and shape == [3] and low == [-1, 0, 0] and high == [1, 1, 1]:
        return 2, 0
    if kind == "Box" and shape == [2] and low == [-1, -1] and high == [1, 1]:
        return 1, 0
    described = f"{kind} {shape} from {low} to {high}" if kind == "Box" else str(kind)
    raise UserError(
        f"the action space of {folder} is {described[:120]}: driving takes choices, or a Box of steering -1 .. 1, "
        "throttle 0 .. 1, brake 0 .. 1, or of steering and pedals -1 .. 1."
    )


def import_minari(
    folder: Path,
    out: Path,
    *,
    source: str | None = None,
    fps: float | None = None,
    action_of: Callable[[int], Action] | None = None,
    overwrite: bool = False,
    progress: Progress = unseen,
) -> Converted:
    """Make a recording in ``out`` of the Minari data set in ``folder``; one episode is held at a time.

    Of a data set that is none of ours, ``source`` is what was driven, such as ``carracing``, ``fps`` the frames a
    second where its ``infos`` tell no ``t_s``, ``action_of`` what a choice means, if not known of ``source``.
    """
    import h5py

    data_set = MinariSet.open(folder)
    spec = spec_of_source(source) if source else None
    action_of = action_of or (spec.action_of if spec else None)
    if data_set.header is None and not data_set.pedals and action_of is None:
        problem = f"the actions of {folder} are one of {data_set.choices} choices, and what they do is not known"
        raise UserError(f"{problem}: give what was driven, such as --source carracing.")
    path = limits.within(data_set.folder, MAIN)
    try:
        with h5py.File(path, "r") as file:
            reader = Reader(h5py, file, data_set, path)
            seeds = [reader.seed(i) for i in range(data_set.episodes)]
            rate = fps or (float(data_set.header["fps"]) if data_set.header else reader.rate())
            named = str(data_set.header["source"]) if data_set.header else source or "minari"
            header = data_set.header or limits.strangers_header(data_set.folder, named, rate, "minari")
            episodes = (reader.episode(i, seeds[i], rate, named, action_of) for i in range(data_set.episodes))
            return write_recording(out, header, seeds, episodes, overwrite=overwrite, progress=progress)
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            # Of a disk or a path, not of the file's content.
            raise
        raise UserError(
            f"{path} is truncated or damaged, or no HDF5 file ({first_line(error)[:160]}): get it again."
        ) from error


class Reader:
    """Reads episodes from Minari's HDF5 file, and nothing that leads out of it."""

    def __init__(self, h5py: Any, file: Any, data_set: MinariSet, path: Path) -> None:
        self.h5py, self.file, self.data_set, self.path = h5py, file, data_set, path

    def seed(self, index: int) -> int:
        """The seed of an episode; its number where it tells none."""
        seed = self.group(self.file, f"episode_{index}").attrs.get("seed")
        if seed is None and self.data_set.header is not None:
            raise ValueError(f"episode {index} tells no seed")
        return index if seed is None else int(seed)

    def rate(self) -> float:
        """Frames a second of the first episode of a stranger's data set, from its times."""
        group = self.group(self.file, "episode_0")
        t_s = self.info(group, "t_s", self.column(group, "rewards").shape[0])
        if t_s is None or len(t_s) < 2 or not np.median(np.diff(t_s)) > 0:
            raise UserError(f"{self.path} does not tell when its frames were taken: give --fps.")
        return round(1 / float(np.median(np.diff(t_s))), 3)

    def group(self, parent: Any, name: str) -> Any:
        return self._member(parent, name, self.h5py.Group)

    def column(self, parent: Any, name: str) -> Any:
        """A data set of the file itself, without foreign filters, and no larger than what is stored can unpack to."""
        column = self._member(parent, name, self.h5py.Dataset)
        plist = column.id.get_create_plist()
        filters = {plist.get_filter(i)[0] for i in range(plist.get_nfilters())}
        if column.external or column.is_virtual or not filters <= set(FILTERS):
            raise ValueError(f"'{name}' lies in another file or needs a foreign filter")
        unpacked = column.dtype.itemsize * column.size if column.shape is not None else 0
        if unpacked > max(HARMLESS_BYTES, LARGEST_RATIO * column.id.get_storage_size()):
            raise ValueError(f"'{name}' unpacks to {unpacked >> 20} MiB")
        return column

    def _member(self, parent: Any, name: str, kind: type) -> Any:
        if not isinstance(parent.get(name, getlink=True), self.h5py.HardLink):
            raise ValueError(f"'{name}' is missing or a link")
        member = parent[name]
        if not isinstance(member, kind):
            raise ValueError(f"'{name}' is of another kind")
        return member

    def numbers(self, parent: Any, name: str, rows: int, more: int = 0) -> NDArray[Any]:
        """The first ``rows`` rows of a column of numbers, which may have up to ``more`` rows more."""
        column = self.column(parent, name)
        width = int(np.prod(column.shape[1:])) if column.shape else 0
        if not column.shape or not rows <= column.shape[0] <= rows + more or width > limits.MAX_LIST:
            raise ValueError(f"'{name}' has the shape {column.shape} in an episode of {rows} steps")
        if column.dtype.kind not in "fiub":
            raise ValueError(f"'{name}' holds no numbers")
        return np.asarray(column[:rows])

    def info(self, group: Any, name: str, rows: int) -> NDArray[Any] | None:
        """A column of an episode's infos, or None where there is none of plain numbers."""
        if "infos" not in group or name not in self.group(group, "infos"):
            return None
        return self.numbers(self.group(group, "infos"), name, rows, more=1)

    def episode(
        self, index: int, seed: int, fps: float, source: str, action_of: Callable[[int], Action] | None
    ) -> Episode:
        """One episode, which must not contradict itself or what the data set says."""
        before = f"episode {index} in {self.path}: "
        mistakes = ValueError, TypeError, KeyError, RuntimeError
        with quoted(before, "; get the data set again.", *mistakes, say=lambda error: first_line(error)[:160]):
            group = self.group(self.file, f"episode_{index}")
            rewards = self.column(group, "rewards")
            N = rewards.shape[0] if len(rewards.shape) == 1 else 0
            if not 0 < N <= self.data_set.frames:
                raise ValueError(f"'rewards' has the shape {rewards.shape}")
            frames = {camera: self.frames(group, camera, N) for camera in self.data_set.cameras}
            is_own = self.data_set.header is not None
            columns = self.own(group, N) if is_own else self.stranger(group, N, fps, action_of)
            limits.check_range(columns["steering"], columns["throttle"], columns["brake"])
            return Episode(frames=frames.pop("center"), side_frames=frames, seed=seed, source=source, **columns)

    def own(self, group: Any, N: int) -> dict[str, Any]:
        text = self.column(group, "nacdrive")
        if text.shape != () or self.h5py.check_string_dtype(text.dtype) is None:
            raise ValueError("'nacdrive' is no text")
        ours = parse_object(text[()])
        wanted = (*INFOS, *(name for name in OPTIONAL if name in ours["columns"]))
        infos = dict.fromkeys(OPTIONAL) | {name: self.info(group, name, N) for name in wanted}
        if missing := [name for name in wanted if infos[name] is None]:
            raise ValueError(f"infos lack {', '.join(missing)}")
        more = {"driver": str(ours["driver"]), "episode_return": float(ours["return"]), "meta": dict(ours["meta"])}
        return {**infos, **more, "reward": self.numbers(group, "rewards", N)}

    def stranger(self, group: Any, N: int, fps: float, action_of: Callable[[int], Action] | None) -> dict[str, Any]:
        actions, given = self.numbers(group, "actions", N), unknown_columns(N)
        width = 1 + self.data_set.pedals
        if actions.size != N * width:
            raise ValueError(f"its actions are {list(actions.shape)}, and its space says {width} a step")
        if self.data_set.pedals == 0:
            choice = actions.reshape(N).astype(np.int64)
            if ((choice < 0) | (choice >= self.data_set.choices)).any() or action_of is None:
                raise ValueError(f"an action is not one of {self.data_set.choices}")
            # Each choice is looked up once.
            table = [action_of(i) for i in range(int(choice.max()) + 1)]
            given |= {name: np.array([getattr(table[i], name) for i in choice]) for name in limits.ACTION_NAMES}
            given["choice"] = choice
        else:
            steering, pedal, *brake = actions.reshape(N, width).T
            pedals = (pedal, *brake) if brake else (pedal.clip(0), (-pedal).clip(0))
            given |= zip(limits.ACTION_NAMES, (steering, *pedals), strict=True)
        given["t_s"] = np.arange(N) / fps
        given |= {name: values for name in ("t_s", "speed_mps") if (values := self.info(group, name, N)) is not None}
        reward = self.numbers(group, "rewards", N)
        return {
            **given,
            "t_s": limits.clock(given["t_s"], fps),
            "reward": reward,
            "driver": "minari",
            "episode_return": float(reward.astype(np.float64).sum()),
            "meta": {"ended": "terminated" if self.numbers(group, "terminations", N)[-1] else "truncated"},
        }

    def frames(self, group: Any, camera: str, N: int) -> list[bytes]:
        """The encoded frames of a camera, the last observation, after which nothing is done, left out."""
        *above, name = self.data_set.cameras[camera]
        for part in above:
            group = self.group(group, part)
        column, size = self.column(group, name), self.data_set.shapes[camera]
        if not column.shape or column.shape[0] not in (N, N + 1):
            raise ValueError(f"'{name}' has the shape {column.shape} in an episode of {N} steps")
        encoded = self.data_set.jpeg and min(size) >= SMALLEST_IMAGE and len(column.shape) < 4  # until 0.5.3 pixels
        return list(self.encoded(column, N, size) if encoded else self.pixels(column, N, size))

    def encoded(self, column: Any, N: int, size: tuple[int, int]) -> Iterator[bytes]:
        plain = column.dtype == np.uint8 and len(column.shape) == 2
        if self.h5py.check_vlen_dtype(column.dtype) != np.dtype(np.uint8) and not plain:
            raise ValueError("its pictures are not stored as JPEG, though the data set says so")
        total = 0
        for i in range(N):
            data = np.asarray(column[i], dtype=np.uint8).tobytes()
            total += len(data)
            if total > limits.MAX_EPISODE_BYTES:
                raise ValueError(f"it has more than {limits.MAX_EPISODE_BYTES >> 30} GiB of pictures")
            with quoted(f"frame {i} has ", "", ValueError, kind=ValueError):
                yield limits.as_rgb(data, size)

    def pixels(self, column: Any, N: int, size: tuple[int, int]) -> Iterator[bytes]:
        if column.dtype != np.uint8 or column.shape[1:] != (*size, 3):
            raise ValueError(
                f"its frames are {column.dtype} {list(column.shape[1:])}, and the data set says uint8 {[*size, 3]}"
            )
        for start in range(0, N, BATCH):
            yield from (encode_png(frame) for frame in column[start : min(start + BATCH, N)])
