"""Recorded episodes as Ticks: what was seen and done, once more."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from nacdrive.common.action import KEYBOARD, Action
from nacdrive.datasets.episode import SEEN, Episode
from nacdrive.drivers.tick import Tick
from nacdrive.envs.registry import spec_of_source


def recorded_ticks(episode: Episode, number: int = 0, teacher: str | None = None) -> list[Tick]:
    """The Ticks of a recorded episode, ``number`` being its place in the recording; decision times are unknown.

    ``teacher``: name of the expert that gave the labels. Only where it drove itself are its scores those of what was
    done: of another driver nobody kept how sure it was.
    """
    own = teacher is not None and episode.driver == teacher
    ticks = replayed(episode, number, lambda i: (driven(episode, i, scored=own), math.nan))
    if episode.driver != KEYBOARD:
        # An expert that labels sees the true frames, whatever is recorded.
        return [replace(tick, held=False) if own else tick for tick in ticks]
    return [replace(tick, human=True, policy=policy(episode, i), held=False) for i, tick in enumerate(ticks)]


def replayed(episode: Episode, number: int, decide: Callable[[int], tuple[Action, float]]) -> Iterator[Tick]:
    """Ticks with the recorded frames, rewards and expert, and the action and decision time (ms) of ``decide``."""
    gaps = np.diff(episode.t_s)
    usual = float(np.median(gaps)) if len(gaps) else 0.08
    total = 0.0
    frames, is_new = episode.decoded(), episode.is_new
    seen = {name: column for name, column in episode.optional.items() if name in SEEN}
    last = len(episode) - 1
    ending = str(episode.meta.get("ended", "ended"))
    for i in range(len(episode)):
        action, decision_ms = decide(i)
        total += float(episode.reward[i])
        where: dict[str, Any] = {name: float(values[i]) for name, values in seen.items() if np.isfinite(values[i])}
        yield Tick(
            episode=number,
            seed=episode.seed,
            step=i,
            t_s=float(episode.t_s[i]),
            frame=frames[i],
            action=action,
            reward=float(episode.reward[i]),
            episode_return=total,
            speed_mps=float(episode.speed_mps[i]),
            **where,
            decision_ms=decision_ms,
            budget_ms=(float(gaps[i]) if i < last else usual) * 1e3,
            held=not is_new[i],
            expert=expert(episode, i),
            events=("started",) * (i == 0) + (ending,) * (i == last),
            done=i == last,
        )


def driven(episode: Episode, i: int, *, scored: bool = False) -> Action:
    """What was done at frame ``i``; with the expert's scores if ``scored``, where it is what the expert chose."""
    choice = int(episode.choice[i])
    scores = episode.expert_logits if scored else None
    own = choice == int(episode.expert_choice[i])
    return Action(
        float(episode.steering[i]),
        float(episode.throttle[i]),
        float(episode.brake[i]),
        choice if choice >= 0 else None,
        scores[i] if own and scores is not None else None,
    )


def driven_actions(episode: Episode) -> list[Action]:
    """All that was done."""
    return [driven(episode, i) for i in range(len(episode))]


def expert(episode: Episode, i: int) -> Action | None:
    """What the expert would have done at frame ``i``; None where nobody was asked."""
    if episode.expert_steering is not None:
        if episode.expert_pedal is None:
            return Action(float(episode.expert_steering[i]), float(episode.throttle[i]), float(episode.brake[i]))
        pedal = float(episode.expert_pedal[i])
        return Action(float(episode.expert_steering[i]), max(0.0, pedal), max(0.0, -pedal))
    choice = int(episode.expert_choice[i])
    spec = spec_of_source(episode.source)
    if choice < 0 or spec is None or spec.action_of is None or episode.driver == KEYBOARD:
        return None
    return spec.action_of(choice, None if episode.expert_logits is None else episode.expert_logits[i])


def policy(episode: Episode, i: int) -> Action | None:
    """What the policy would have done where a person drove in its stead; None where there was none."""
    beside = episode.meta.get("policy")
    if beside is None or beside["steering"][i] is None:
        return None
    return Action(*(beside[name][i] for name in ("steering", "throttle", "brake", "choice")))
