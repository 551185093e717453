"""``export_html``: one page with a recorded lap and the network that looks at it, in one file that fetches nothing.

The page's parts are the files of ``page/``; the network, the lap and the live page's colours are written into it.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.errors import UserError, quoted
from nacdrive.common.files import write_text
from nacdrive.common.paths import shipped
from nacdrive.common.version import __version__
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.episode_file import NotAnEpisodeError, from_parquet
from nacdrive.datasets.images import decode_image
from nacdrive.datasets.recording import Recording, kept_in
from nacdrive.drivers.base import SAME_MPS, Rerun
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.registry import spec_of_source
from nacdrive.extras.export.network_description import NetworkDescription, describe
from nacdrive.models import load_policy
from nacdrive.rollout.drive import Drive, LoadedDrive
from nacdrive.rollout.rollout import rollout
from nacdrive.viz.recorded import driven_actions
from nacdrive.web.bundle import bundle
from nacdrive.web.protocol import road_json

PARTS = Path(__file__).parent / "page"
SECONDS = 60.0
"""How much of a drive is shared if nobody says otherwise; a minute of the Udacity camera takes 10 MB."""
ROAD_OPTIONS = ("road_difficulty", "scene_variety")
"""Options of an environment on which its roads depend, beside track and seed."""


def export_html(
    model: Path,
    lap: Path,
    out: Path,
    *,
    episode: int = 0,
    seconds: float = SECONDS,
    playground: Callable[[Path], str] | None = None,
) -> Path:
    """Write the page of a policy's ``.pt`` file into ``out``, an ``.html`` file or a folder for it.

    ``lap`` is a folder of recorded episodes, an evaluation that kept its drives, or one ``episode-*.parquet``;
    ``playground`` makes of the model a page without weights in which it drives; a button opens it with those of this.

    Raises:
        UserError: if the model is no policy that drives or has no JavaScript, the lap is none that it can look at, or
            ``out`` cannot be written.
    """
    target = out if out.suffix in (".html", ".htm") else out / f"{model.stem}.html"
    write_text(target, lap_page(model, load_lap(lap, episode), seconds, playground))
    return target


def lap_page(model: Path, lap: Episode, seconds: float, playground: Callable[[Path], str] | None = None) -> str:
    """The page itself; see ``export_html``."""
    net = describe(load_policy(model))
    return page(net, lap_record(net, lap, seconds), playground(model) if playground else "")


def load_lap(lap: Path, episode: int) -> Episode:
    """The episode of a folder, of an evaluation or of a file."""
    if lap.is_file():
        if episode:
            raise UserError(f"{lap} is one episode: leave out --episode {episode}.")
        with quoted(f"{lap} ", ": give a folder of recorded episodes, or one episode-*.parquet.", NotAnEpisodeError):
            return from_parquet(lap.read_bytes())
    recording = Recording.open(kept_in(lap))
    if not 0 <= episode < len(recording):
        raise UserError(f"there is no episode {episode} in {lap}: it has episodes 0 to {len(recording) - 1}.")
    return recording.load(episode)


def lap_record(net: NetworkDescription, episode: Episode, seconds: float) -> dict[str, Any]:
    """The first ``seconds`` of an episode as the page reads it: plain JSON."""
    shape = (net.preprocessing.height, net.preprocessing.width, 3)
    with quoted("the lap's first frame cannot be read (", "): record it anew.", ValueError):
        lap_shape = decode_image(episode.frames[0]).shape
    spec = spec_of_source(episode.source)
    if lap_shape != shape or (spec is not None and spec.task != net.task):
        raise UserError(
            f"{net.name} was trained for '{net.task}' on frames of {shape[0]} x {shape[1]}, this lap is of "
            f"'{episode.source}' with frames of {lap_shape[0]} x {lap_shape[1]}: give another lap or another model."
        )
    new = np.flatnonzero(episode.is_new)
    cut = new[: max(2, int(np.searchsorted(episode.taken_s[new], episode.taken_s[0] + seconds)))]

    def column(values: Any) -> list[float | None]:
        return [round(float(v), 5) if math.isfinite(v) else None for v in values[cut]]

    record: dict[str, Any] = {
        "where": f"{spec.title if spec is not None else episode.source}, track {episode.seed}",
        "seed": episode.seed,
        "driver": episode.driver,
        "t_s": [float(t) for t in episode.taken_s[cut]],
        "frames": [base64.b64encode(frame).decode("ascii") for frame in map(episode.frames.__getitem__, cut)],
        **{name: column(getattr(episode, name)) for name in ("steering", "throttle", "brake")},
        "choice": [int(c) for c in episode.choice[cut]],
        "speed_mps": column(episode.speed_mps),
    }
    line, road = map_of(episode)
    if line is not None and np.isfinite(line[cut]).all(axis=1).sum() > 1:
        record |= {"x_m": column(line[:, 0]), "y_m": column(line[:, 1]), "road": road}
    return record


def map_of(episode: Episode) -> tuple[NDArray[np.floating] | None, list[Any] | None]:
    """Places of the car [steps, 2] in metres and the road as of ``road_json``, each None where it cannot be known."""
    line = None
    if episode.x_m is not None and episode.y_m is not None:
        line = np.stack([episode.x_m, episode.y_m], axis=1)
    spec = spec_of_source(episode.source)
    if spec is None or spec.realtime or len(episode) < 2 or (line is not None and not np.isfinite(line).any()):
        return line, None
    again = Rerun(driven_actions(episode))
    options = {name: episode.meta.get(name) for name in ROAD_OPTIONS}
    drive = Drive(spec.name, options=options | ({"renderer": "fast"} if spec.honours("renderer") else {}))
    repeat = round((spec.frames_per_second or 1) * float(np.median(np.diff(episode.t_s))))
    try:
        env = LoadedDrive(drive, driver=again, repeat=repeat).make_env(episode.seed, track=episode.meta.get("track"))
    except UserError:
        return line, None
    with closing(env):
        if line is None:
            line = line_driven_again(env, again, episode)
        else:
            env.reset(seed=episode.seed)
        return line, road_json(env) if line is not None and lies_on_road(line, env) else None


def line_driven_again(env: DrivingEnv, again: Rerun, episode: Episode) -> NDArray[np.floating] | None:
    """Places of the car when it does what it did; None where it becomes another drive."""
    ticks = list(rollout(env, again, episode.seed))
    speeds = np.array([tick.speed_mps for tick in ticks], dtype=float)
    if len(ticks) != len(episode) or not np.allclose(speeds, episode.speed_mps, atol=SAME_MPS):
        return None
    return np.array([(tick.x_m, tick.y_m) for tick in ticks], dtype=float)


def lies_on_road(line: NDArray[np.floating], env: DrivingEnv) -> bool:
    """Whether it is the road of this line: a recording may be of another version or of options that it does not say."""
    edges = env.road_edges()
    if edges is None:
        return False
    apart = np.linalg.norm(line[np.isfinite(line).all(axis=1)][:, None] - edges.mean(axis=0), axis=2).min(axis=1)
    return bool(np.median(apart) < np.linalg.norm(edges[0] - edges[1], axis=1).mean())


def plain(value: Any, block: list[NDArray[np.float32]]) -> Any:
    """A description as plain JSON; float arrays go into ``block``, each is told by where it begins, and its shape."""
    if isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.floating):
        place = {"at": sum(map(len, block)), "shape": list(value.shape)}
        block.append(np.ascontiguousarray(value, dtype=np.float32).ravel())
        return place
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return [plain(item, block) for item in value]
    if not hasattr(value, "__dataclass_fields__"):
        return value
    members = {item.name: plain(getattr(value, item.name), block) for item in fields(value)}
    return members | ({"kind": value.kind} if hasattr(value, "kind") else {})


def network_json(net: NetworkDescription) -> tuple[dict[str, Any], str]:
    """A network as ``network.js`` takes it: its description, and its numbers in base64, little-endian."""
    block: list[NDArray[np.float32]] = []
    description: dict[str, Any] = plain(net, block)
    # Few, and read as they are.
    description["actions"] = net.actions.astype(float).round(6).tolist()
    return description, base64.b64encode(np.concatenate(block).astype("<f4").tobytes()).decode("ascii")


def in_script(value: Any) -> str:
    """JSON that no HTML parser takes for an end of its element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def script(module: Path, seen: set[Path] | None = None) -> str:
    """A module and all that it imports as a script that is no module; see ``bundle``."""
    return re.sub(r"^export ", "", bundle(module, seen), flags=re.MULTILINE)


def page_style() -> str:
    """Of a shared lap: the live page's colours and bars, and its own."""
    css = shipped("www") / "css"
    files = css / "tokens.css", css / "why.css", PARTS / "page.css"
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def page(net: NetworkDescription, record: dict[str, Any], playground: str = "") -> str:
    """The whole page."""
    description, weights = network_json(net)
    return Template((PARTS / "page.html").read_text(encoding="utf-8")).substitute(
        version=__version__,
        title=escape(f"{net.name}: {record['where']}"),
        heading="nacdrive",
        style=page_style(),
        description=in_script(description),
        record=in_script(record),
        weights=weights,
        playground=base64.b64encode(gzip.compress(playground.encode(), mtime=0)).decode("ascii") if playground else "",
        scripts=f'<script>\n"use strict";\n{script(PARTS / "player.js")}</script>',
    )
