"""A policy's eyes on a recorded episode: what it would have done at every frame, and every neuron on the way."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError, quoted
from nacdrive.datasets.episode import Episode
from nacdrive.drivers.exported import AnyPolicy
from nacdrive.drivers.tick import Tick
from nacdrive.models.effects import EffectMeter, StepMeter
from nacdrive.viz.recorded import replayed

if TYPE_CHECKING:
    from nacdrive.models.policy import Policy


def retrace(
    policy: Policy, episode: Episode, *, number: int = 0, neurons: bool = True, saliency_every: int = 0
) -> list[Tick]:
    """Ticks of the episode with the policy's decisions in place of those driven (the frames stay the recorded ones).

    Args:
        policy: who looks; reset first. Where no newer frame had come, its last decision is held, as in a drive.
        number: the episode's place in its recording.
        saliency_every: Grad-CAM at every so many decisions; 0 never.
    """
    from nacdrive.viz.saliency import GradCam

    cam = GradCam(policy) if saliency_every else None
    frames = episode.decoded()
    policy.reset()
    states: list[dict[str, NDArray[np.float32]]] = []
    maps: list[NDArray[np.float32] | None] = []
    taken_s, is_new, action = episode.taken_s, episode.is_new, Action(0.0, 0.0, 0.0)

    def decide(i: int) -> tuple[Action, float]:
        nonlocal action
        began = time.perf_counter()
        if is_new[i]:
            action = policy.step(frames[i], float(taken_s[i]), float(episode.speed_mps[i]))
        spent = (time.perf_counter() - began) * 1e3
        states.append((policy.neurons() if is_new[i] else states[-1]) if neurons else {})
        maps.append(cam() if cam is not None and is_new[i] and i % saliency_every == 0 else None)
        return action, spent

    with quoted(f"{policy.name} cannot look at this recording: ", ".", ValueError):
        ticks = list(replayed(episode, number, decide))
    return [replace(tick, neurons=states[i], saliency=maps[i]) for i, tick in enumerate(ticks)]


def why_of(
    policy: AnyPolicy, meter: EffectMeter | StepMeter, ticks: Sequence[Tick], step: int, names: Sequence[str]
) -> dict[str, Any]:
    """What muting each part alone does to the decision of ``step``, as of ``Effects.explain``; the policy is reset."""
    policy.reset()
    for tick in [tick for tick in ticks[: step + 1] if not tick.held][-policy.config.window - 1 :]:
        policy.step(tick.frame, tick.taken_s, tick.speed_mps)
    return meter.measure(policy.last_decision()).explain(names)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Trace:
    """Neuron states of one head over an episode, weighted over the window as the attention weighs it."""

    t_s: NDArray[np.float64]
    """[N] times of the frames, in seconds."""
    steering: NDArray[np.float32]
    """[N] what the policy decided."""
    states: dict[str, NDArray[np.float32]]
    """``q``, ``k``, ``v``, ``inter``, ``command`` [N, neurons]; ``phi``, ``omega``, ``rho``, ``t``, ``logits`` [N]."""

    @staticmethod
    def of(ticks: Sequence[Tick], head: int) -> Trace:
        if not ticks[0].neurons or "phi" not in ticks[0].neurons:
            raise UserError("this policy has no NAC layer, so there are no neuron states to show: give a nac_* model.")
        heads = len(ticks[0].neurons["phi"])
        if not 0 <= head < heads:
            raise UserError(f"--head is {head + 1}: this policy has heads 1 to {heads}.")
        rows = [one_head(tick.neurons, head) for tick in ticks]
        states = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        steering = np.array([tick.action.steering for tick in ticks], dtype=np.float32)
        return Trace(np.array([tick.t_s for tick in ticks]), steering, states)


def one_head(neurons: Mapping[str, NDArray[np.float32]], head: int) -> dict[str, NDArray[np.float32]]:
    """The states of one head at one decision, averaged over the selected keys by their attention weights."""
    weights = np.nan_to_num(neurons["weights"][head])
    keys = neurons["keys"][head].astype(int) if "keys" in neurons else np.arange(len(weights))

    def mean(values: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(np.tensordot(weights, np.nan_to_num(values, posinf=0.0, neginf=0.0), axes=1), np.float32)

    pairs = ("inter", "command", "phi", "omega", "rho", "t", "logits")
    keyed = {"q": neurons["q"][head], **{name: mean(neurons[name][head][keys]) for name in "kv"}}
    return keyed | {name: mean(neurons[name][head]) for name in pairs if name in neurons}
