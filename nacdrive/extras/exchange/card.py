"""The card of a recording: what it holds, how it was made, who may use it; read by people and by the Hugging Face Hub.

Everything in it is computed from the files, each of which is compared with its checksum on the way.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.errors import UserError
from nacdrive.common.files import write_text
from nacdrive.common.result_folder import locked
from nacdrive.common.table import markdown
from nacdrive.datasets import manifest
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.episode_file import JPEG, OPTIONAL_UNITS, UNITS
from nacdrive.datasets.images import image_header
from nacdrive.datasets.manifest import EpisodeInfo
from nacdrive.datasets.recording import Recording

SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B")
"""The Hub's classes of size, by rows; from the second on each begins at ten times as many."""
HUB_LICENSES = frozenset(json.loads(Path(__file__).with_name("hub_licenses.json").read_text(encoding="utf-8")))
"""Licences that the Hub knows by these names; any other one is ``other`` there."""
SHOWN = 20
"""Episodes that the table of a card lists."""


@dataclass
class Summary:
    """What the episodes of a recording hold together; one of them is held at a time."""

    frames: int = 0
    seconds: float = 0.0
    """Simulated, from the first to the last frame of each episode."""
    bytes: int = 0
    sizes: Counter[str] = field(default_factory=Counter)
    """``96 x 96 PNG``, ... -> frames of that size, all cameras."""
    columns: dict[str, None] = field(default_factory=dict)
    """Optional columns that some episode has."""
    choices: Counter[int] = field(default_factory=Counter)
    drivers: Counter[str] = field(default_factory=Counter)
    labelled: int = 0
    values: dict[str, list[NDArray[np.float64]]] = field(default_factory=dict)
    """Column -> its known values in each episode."""

    def add(self, info: EpisodeInfo, episode: Episode) -> None:
        self.frames += len(episode)
        self.seconds += info.duration_s
        self.bytes += info.size_bytes
        self.drivers[info.driver] += 1
        for frames in episode.cameras.values():
            for data in frames:
                height, width, _ = image_header(data)
                self.sizes[f"{width} x {height} {'JPEG' if data[:2] == JPEG else 'PNG'}"] += 1
        self.columns |= dict.fromkeys((*episode.side_frames, *episode.optional))
        self.choices.update(int(choice) for choice in episode.choice)
        known = episode.expert_choice >= 0 if episode.expert_steering is None else np.ones(len(episode), bool)
        self.labelled += int(known.sum())
        columns = {name: getattr(episode, name) for name in ("steering", "throttle", "brake", "speed_mps", "reward")}
        for name, values in (columns | {"expert_steering": episode.label}).items():
            self.values.setdefault(name, []).append(values[np.isfinite(values)].astype(np.float64))

    def range_of(self, name: str) -> tuple[float, float, float, float] | None:
        """Least, most, mean and standard deviation of a column, or None where it is not known."""
        known = np.concatenate(self.values.get(name, [np.zeros(0)]))
        return (known.min(), known.max(), known.mean(), known.std()) if len(known) else None


def write_card(folder: Path, *, license: str | None = None, overwrite: bool = False) -> tuple[Path, str | None]:
    """Write a recording's ``README.md``, over ours that nobody edited. The card, and the licence that it names."""
    recording, path = Recording.open(folder), folder / manifest.CARD
    if license is not None:
        manifest.check_license(license)
    if path.exists() and not overwrite and not manifest.is_own_card(path):
        raise UserError(f"{path} was written or edited by somebody: give --overwrite to replace it, or move it away.")
    text = card_text(recording, license or recording.meta.get("license"))
    if license is not None and recording.meta.get("license") != license:
        with locked(folder):
            about, listed = manifest.read_manifest(folder)
            manifest.write_manifest(folder, {**about, "license": license}, listed)
    write_text(path, manifest.sign_card(text))
    return path, license or recording.meta.get("license")


def card_text(recording: Recording, license: str | None) -> str:
    """The card, unsigned: YAML front matter as the Hub reads it, then Markdown."""
    summary = Summary()
    for index, info in enumerate(recording.episodes):
        summary.add(info, recording.load(index))
    meta = recording.meta
    # YAML reads JSON.
    front = (f"{name}: {json.dumps(value)}" for name, value in front_matter(recording, summary, license).items())
    sections = [
        "\n".join(("---", *front, "---")),
        cell(f"# Driving in {meta['source']} by {meta['expert']}"),
        f"{len(recording)} episodes, {summary.frames} frames at {meta['fps']:g} a second "
        f"({summary.seconds / 60:.1f} minutes), recorded with nacdrive. Each row of a file is one camera frame, the "
        "action that was driven from it on, and what the expert would have done there: for imitation learning.",
        facts(recording, summary, license),
        "## Columns\n\n" + columns_table(summary),
        "## Actions\n\n" + actions_table(summary),
        "## Episodes\n\n" + episodes_table(recording.episodes),
        "## How it was recorded\n\n```json\n"
        + json.dumps({"recipe": meta["recipe"], "versions": meta.get("versions", {})}, indent=2)
        + "\n```",
        "## Reading it\n\n```python\n"
        "from datasets import load_dataset  # rows of all episodes, frames as images\n"
        f'rows = load_dataset("parquet", data_files="{manifest.EPISODE_GLOB}", split="train")\n\n'
        "from nacdrive.datasets.recording import Recording  # one episode: columns as arrays\n"
        'frames = Recording.open(".").load(0).decoded()  # uint8 [frames, height, width, 3]\n```',
    ]
    return "\n\n".join(sections) + "\n"


def front_matter(recording: Recording, summary: Summary, license: str | None) -> dict[str, Any]:
    """What the Hub reads: https://github.com/huggingface/hub-docs/blob/main/datasetcard.md"""
    meta = recording.meta
    result: dict[str, Any] = {"pretty_name": f"nacdrive: {meta['source']} by {meta['expert']}"}
    if license is not None:
        known = license.lower() in HUB_LICENSES
        result |= {"license": license.lower()} if known else {"license": "other", "license_name": license.lower()}
    return result | {
        "task_categories": ["robotics", "reinforcement-learning"],
        "tags": ["nacdrive", "autonomous-driving", "imitation-learning", tag_of(str(meta["source"]))],
        "size_categories": [SIZES[bisect([10**k for k in range(3, 9)], summary.frames)]],
        "configs": [{"config_name": "default", "data_files": manifest.EPISODE_GLOB}],
        # The Hub passes this by; a script may read it.
        "nacdrive": {
            "schema_version": meta["schema_version"],
            "environment": meta["source"],
            "episodes": len(recording),
            "frames": summary.frames,
            "frames_per_second": meta["fps"],
            "labels_by": meta["expert"],
            "actions": {name: UNITS[name] for name in ("steering", "throttle", "brake", "choice")},
            "sha256": content_checksum(recording.episodes),
        },
    }


def tag_of(source: str) -> str:
    """A source as a tag: letters, digits and hyphens."""
    return "".join(letter.lower() if letter.isalnum() else "-" for letter in source).strip("-")


def facts(recording: Recording, summary: Summary, license: str | None) -> str:
    """The short list at the top."""
    meta, returns = recording.meta, [info.episode_return for info in recording.episodes]
    rows = {
        "Environment": meta["source"],
        "Driven by": ", ".join(f"{name} ({count} episodes)" for name, count in summary.drivers.most_common()),
        "Labels by": f"{meta['expert']}, of {summary.labelled} of {summary.frames} frames",
        "Frames": ", ".join(f"{count} of {size}" for size, count in summary.sizes.most_common()),
        "Size": f"{summary.bytes / 1e6:.1f} MB in {len(recording)} Parquet files, schema {meta['schema_version']}",
        "Return": f"{np.mean(returns):.1f} on average, {min(returns):.1f} to {max(returns):.1f}",
        "Licence": license or "none named: without one, nobody but its maker may use it",
        "Checksum": f"`sha256:{content_checksum(recording.episodes)}` (see below)",
    }
    if dropped := meta["dropped"]:
        seeds = ", ".join(str(row["seed"]) for row in dropped[:SHOWN])
        rows["Dropped"] = f"{len(dropped)} episodes whose return was too low, seeds {seeds}"
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {cell(value)} |" for name, value in rows.items())


def content_checksum(episodes: Sequence[EpisodeInfo]) -> str:
    """SHA-256 of the lines ``SHA256  FILE`` of all episodes, sorted by file name, as ``sha256sum`` writes them."""
    lines = sorted((info.path.name, info.sha256) for info in episodes)
    return hashlib.sha256("".join(f"{digest}  {name}\n" for name, digest in lines).encode()).hexdigest()


def columns_table(summary: Summary) -> str:
    """Every column, its type and its unit."""
    kinds = {"choice": "int64", "expert_choice": "int64", "expert_logits": "float32 list"}
    rows = {"frame": ("image", "what the camera ahead saw")}
    rows |= {side: ("image", f"what the {side} camera saw") for side in ("left", "right") if side in summary.columns}
    for name, unit in (UNITS | OPTIONAL_UNITS).items():
        if name not in ("expert_logits", *OPTIONAL_UNITS) or name in summary.columns:
            rows[name] = (kinds.get(name, "float64" if name.endswith("t_s") else "float32"), unit)
    cells = ((f"`{name}`", kind, cell(unit)) for name, (kind, unit) in rows.items())
    return "\n".join(markdown(("column", "type", "unit"), cells))


def actions_table(summary: Summary) -> str:
    """What was driven, in numbers."""
    rows = []
    for name in ("steering", "throttle", "brake", "expert_steering", "speed_mps", "reward"):
        if (statistics := summary.range_of(name)) is not None:
            title = "label of steering" if name == "expert_steering" else f"`{name}`"
            rows.append(f"| {title} | " + " | ".join(f"{value:.4g}" for value in statistics) + " |")
    table = "| | least | most | mean | standard deviation |\n|---|---:|---:|---:|---:|\n" + "\n".join(rows)
    if chosen := {choice: count for choice, count in sorted(summary.choices.items()) if choice >= 0}:
        shares = ", ".join(f"{choice}: {count / summary.frames:.1%}" for choice, count in chosen.items())
        table += f"\n\nDriven choices: {shares}."
    return table


def episodes_table(episodes: Sequence[EpisodeInfo]) -> str:
    """The first episodes, and how to check all files."""
    rows = [
        (f"`{info.path.name}`", str(info.seed), str(info.steps), f"{info.duration_s:.1f}", f"{info.episode_return:.1f}",
         f"`{info.sha256[:16]}`")
        for info in episodes[:SHOWN]
    ]  # fmt: skip
    header = ("file", "seed", "frames", "seconds", "return", "SHA-256 begins with")
    return (
        "\n".join(markdown(header, rows, ["---", *["---:"] * 4, "---"]))
        + (f"\n\n... and {len(episodes) - SHOWN} more, in `recording.json`." if len(episodes) > SHOWN else "")
        + f"\n\nThe checksum above is that of all files: `LC_ALL=C sha256sum {manifest.EPISODE_GLOB} | sha256sum`. "
        "`nacdrive recordings check .` reads every file to its last pixel."
    )


def cell(value: object) -> str:
    """A value on one line that cannot break a table."""
    return " ".join(str(value).splitlines()).replace("|", "\\|")
