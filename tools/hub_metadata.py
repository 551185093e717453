"""What a model hub reads at the top of a model card: YAML with the licence, tags and results, made from the card.

    python tools/hub_metadata.py        # writes it anew into every card of agents/

The numbers are those of the card's own tables, so nothing is measured here and none can differ. The makers of cards
(``carracing_card.py``, ``udacity_card.py``) put it above what they write.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from nacdrive.common.files import write_text
from nacdrive.common.paths import shipped

EXPERTS = ("ppo", "continuous")
"""Folders of trained experts, each with one card."""
PAPER = "arxiv:2512.10282"
FRONT = re.compile(r"\A---\n.*?\n---\n\n?", re.DOTALL)
NUMBER = r"(-?\d+(?:\.\d+)?)"


def with_front_matter(path: Path, text: str) -> str:
    """The card ``text`` of the file ``path`` in ``agents/TASK/`` with its metadata above it."""
    body = FRONT.sub("", text)
    return f"---\n{yaml.safe_dump(metadata(path, body), sort_keys=False, allow_unicode=True, width=120)}---\n\n{body}"


def metadata(path: Path, body: str) -> dict[str, Any]:
    """The metadata of a card.

    Raises:
        ValueError: if the card lacks a number that belongs into it.
    """
    folder = path.relative_to(shipped("agents")).parts[0]
    expert = path.parent.name if path.parent.name in EXPERTS else None
    layer = expert or path.stem.replace("_", "-")
    kind, pipeline, tags, datasets, results = CARDS[expert or folder]
    by_paper = [layer, "neuronal-attention-circuit", "continuous-time", PAPER] if layer.startswith("nac") else [layer]
    return {
        "license": "mit",
        "library_name": "nacdrive",
        **({"pipeline_tag": pipeline} if pipeline else {}),
        "tags": [*tags, *([] if expert else by_paper)],
        **({"datasets": datasets} if datasets else {}),
        "model-index": [
            {
                "name": f"nacdrive {folder} {layer}",
                "results": [
                    {
                        "task": {"type": kind, "name": kind.replace("-", " ")},
                        "dataset": dict(zip(("type", "name"), where, strict=True)),
                        "metrics": [{"type": type_, "name": name, "value": value} for type_, name, value in metrics],
                    }
                    for where, metrics in results(body)
                ],
            }
        ],
    }


Result = tuple[tuple[str, str], list[tuple[str, str, Any]]]
"""Type and name of what was measured on, and type, name and value of each metric."""


def find(pattern: str, body: str) -> tuple[str, ...]:
    """The groups of the first match."""
    match = re.search(pattern, body)
    if match is None:
        raise ValueError(f"the card has nothing like {pattern!r}")
    return match.groups()


def carracing(body: str) -> list[Result]:
    """Mean return, and its share of the expert's."""
    tracks, mean, std = find(rf"return over (\d+) unseen tracks [^|]*\| \*\*{NUMBER}\*\* ± {NUMBER}", body)
    (share,) = find(rf"expert fraction \| \*\*{NUMBER}%\*\*", body)
    where = ("CarRacing-v3", f"CarRacing-v3, {tracks} unseen tracks")
    return [
        (
            where,
            [
                ("mean_reward", "mean return", f"{mean} +/- {std}"),
                ("expert_fraction", "share of the expert's return, %", float(share)),
            ],
        )
    ]


def expert(body: str) -> list[Result]:
    """Mean return."""
    (tracks,) = find(r"over the (\d+) test tracks", body)
    mean, std = find(rf"\*\*{NUMBER} ± {NUMBER}\*\*", body)
    where = ("CarRacing-v3", f"CarRacing-v3, {tracks} unseen tracks")
    return [(where, [("mean_reward", "mean return", f"{mean} +/- {std}")])]


def udacity(body: str) -> list[Result]:
    """Drives without leaving the road, and autonomy, of each column: unseen roads at a speed, or a fixed track."""
    (header,) = find(r"\| \| ([^\n]*) \|\n\|---\|", body)
    columns = header.split(" | ")
    cell = r"([^|]*) \|"
    flawless = find(r"drives that never left the road \| " + cell * len(columns), body)
    autonomy = find(r"autonomy [^|]*\| " + cell * len(columns), body)
    offset = find(r"from the middle, mean, m \| " + cell * len(columns), body)
    results: list[Result] = []
    for i, column in enumerate(columns):
        good, drives = map(int, find(r"(\d+) of (\d+)", flawless[i]))
        metrics: list[tuple[str, str, Any]] = [
            ("flawless_drives", "drives that never left the road, %", round(100 * good / drives, 1)),
            ("autonomy", "autonomy, %", float(find(NUMBER, autonomy[i])[0])),
            ("lane_offset", "mean distance from the middle, m", float(find(NUMBER, offset[i])[0])),
        ]
        kind = "random" if "road" in column else column.partition(",")[0]
        results.append(((f"nacdrive/UdacityTrack-v0 {kind}", f"built in, {column}: {drives} drives"), metrics))
    return results


def emnist(body: str) -> list[Result]:
    """Accuracy on the test images."""
    (accuracy,) = find(rf"\*\*{NUMBER} %\*\* right", body)
    return [(("ylecun/mnist", "MNIST test images as events"), [("accuracy", "accuracy, %", float(accuracy))])]


def pronostia(body: str) -> list[Result]:
    """Error of the wear on bearings held out."""
    rows = re.findall(rf"^\| ([^|]+?) \| {NUMBER} \| {NUMBER} \|$", body, re.MULTILINE)
    if not rows:
        raise ValueError("the card has no table of errors")
    return [(("bearing-wear", name), [("rmse", "RMSE of wear, 0 to 1", float(value))]) for name, value, _ in rows]


Card = tuple[str, str | None, list[str], list[str], Callable[[str], list[Result]]]
DRIVING = ["autonomous-driving", "imitation-learning"]
CARDS: dict[str, Card] = {
    "ppo": ("reinforcement-learning", "reinforcement-learning", ["CarRacing-v3", "ppo"], [], expert),
    "continuous": ("reinforcement-learning", "reinforcement-learning", ["CarRacing-v3", *DRIVING], [], expert),
    "carracing": ("reinforcement-learning", "reinforcement-learning", ["CarRacing-v3", *DRIVING], [], carracing),
    "udacity": ("reinforcement-learning", "reinforcement-learning", ["udacity", *DRIVING], [], udacity),
    "emnist": ("sequence-classification", None, ["event-based", "irregular-time-series"], ["ylecun/mnist"], emnist),
    "pronostia": ("time-series-regression", None, ["predictive-maintenance", "irregular-time-series"], [], pronostia),
}
"""Kind of task, the hub's pipeline, tags, data sets that the hub knows, and where the results stand; by task."""


def main() -> None:
    for path in sorted(shipped("agents").rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        write_text(path, with_front_matter(path, text))
        print(path)


if __name__ == "__main__":
    main()
