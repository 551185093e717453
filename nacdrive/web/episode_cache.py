"""What can be replayed: runs of several episodes, each turned into Ticks when someone first looks at it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from threading import Lock
from typing import Any

from nacdrive.common.action import Action
from nacdrive.drivers.tick import Tick

KEPT_EPISODES = 6


@dataclass(frozen=True)
class EpisodeLabel:
    """What is known of an episode before it is loaded."""

    seed: int
    steps: int
    """Recorded frames."""
    episode_return: float
    driver: str
    expert_return: float | None = None
    """Sum of the rewards of the expert on the same track, where it drove there too."""


@dataclass(frozen=True)
class ReplaySource:
    """One run: a recording, or a recording as a policy sees it."""

    name: str
    """For people."""
    labels: Sequence[EpisodeLabel]
    load: Callable[[int], Sequence[Tick]]
    """Ticks of an episode; may take seconds."""
    choices: Sequence[str] = ()
    """Names of the actions."""
    circuit: Mapping[str, Any] | None = field(default=None, repr=False)
    """Wiring of the policy's sequence layer, where neurons come with the Ticks."""
    policy: str | None = None
    """Name of a policy that only looks on: the actions are its own, all else came of the recorded driving."""
    expert: str | None = None
    """Name of the expert that gave the labels; where it drove too, it is not compared with itself."""
    network_input: Mapping[str, Any] | None = None
    """What the policy gets of a frame, as for ``LiveServer``."""
    driven: Callable[[int], Sequence[Action]] | None = None
    """What was done in an episode, where ``load`` gives what a policy that looks on would have done."""

    why: Callable[[Sequence[Tick], int], Mapping[str, Any]] | None = None
    """What muting each part of the policy alone does to a decision of an episode; asked of one at a time."""

    def caption(self, episode: int) -> str:
        """Who drove and who only looks on, for a film; empty where the policy that is shown drove."""
        return f"{self.labels[episode].driver} drove; {self.policy} only looks on" if self.policy else ""


class EpisodeCache:
    """Runs and the few episodes that were looked at last."""

    def __init__(self, runs: Sequence[ReplaySource]) -> None:
        self.runs = list(runs)
        self._lock, self._asking = Lock(), Lock()
        self._load = lru_cache(KEPT_EPISODES)(lambda run, episode: self.runs[run].load(episode))
        self._load_driven = lru_cache(1)(lambda run, episode: self.runs[run].driven(episode))  # type: ignore[misc]

    def has(self, run: int, episode: int) -> bool:
        return 0 <= run < len(self.runs) and 0 <= episode < len(self.runs[run].labels)

    def ticks(self, run: int, episode: int) -> Sequence[Tick]:
        """All Ticks of an episode; the first look loads it, one at a time."""
        with self._lock:
            return self._load(run, episode)

    def driven(self, run: int, episode: int) -> Sequence[Action]:
        if self.runs[run].driven is None:
            return [tick.action for tick in self.ticks(run, episode)]
        with self._lock:
            return self._load_driven(run, episode)

    def why(self, run: int, episode: int, step: int) -> Mapping[str, Any] | None:
        """Why a policy that looks on decides so at a step; None where nobody can say."""
        ticks, ask = self.ticks(run, episode), self.runs[run].why
        if ask is None or not 0 <= step < len(ticks):
            return None
        with self._asking:
            return ask(ticks, step)

    def listing(self) -> list[dict[str, Any]]:
        """The runs and their episodes as plain JSON."""
        plain = ("name", "choices", "circuit", "policy", "expert", "network_input")
        return [
            {**{name: getattr(run, name) for name in plain}, "episodes": [asdict(label) for label in run.labels]}
            for run in self.runs
        ]
