r"""Which explanations deserve to be called a reason: deletion, insertion, sufficiency and sanity checks, of policies.

    OMP_NUM_THREADS=1 python tools/explanations.py [--model FILE ...]

For every policy (the shipped ones, if none is given) 1,000 decisions on recorded frames of unseen seeds are explained
in each way, the parts are muted in the order of each explanation, and the sentence of Why is checked by muting what it
names with the plain code below (``ByHand``). Recordings and results are kept under --out, an episode's as soon as it is
there, and a policy whose file has changed is judged anew; then docs/results/explanations.md is written from them.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from nacdrive.common.statistics import bounds, proportion, resampled
from nacdrive.common.table import markdown
from nacdrive.datasets.recording import Recording
from nacdrive.envs.registry import action_names
from nacdrive.extras.explain.sides import TURN, Separation, separation
from nacdrive.models import Policy, load_policy
from nacdrive.models.effects import GREY, OTHERWISE, Effects, Part, region_boxes, softmax
from nacdrive.viz.saliency import GradCam

RECORD = {
    "carracing": "--seed 3900000 --episodes 20",
    "udacity": "--sim udacity --track random --seed 3900000 --episodes 20 --max-frames 1000 --no-sides",
}
"""How the frames were recorded: tracks that no policy has learnt from."""
FITTED = 2
"""Episodes from which the old sentence has its medians; the others are judged."""
DECISIONS = 1000
SANITY_SEEDS, SANITY_DECISIONS = 5, 40
"""Random networks, and decisions that each explains."""
GATES = ("omega", "phi", "t", "logits")
KINDS = {"head": "heads", "frame": "remembered frames", "region": "regions of the picture", "all": "all parts"}
STAGES = ("dense head", "+ output of the attention", "+ the whole sequence layer", "+ convolutions")
METHODS = {
    "effect": "measured effect",
    "attention": "attention weights",
    "gates": "gates (logit φ/ω of a head)",
    "cam": "Grad-CAM",
    "old": "the old sentence's heads",
    "random": "random order",
}
SAME, BLIND = 0.5, 0.95
"""Rank correlations with the trained network's explanation from which on that of an untrained network counts as the
same, and an explanation as blind to the dense head."""

Key = tuple[str, int]
Stays = dict[str, list[float]]


class ByHand:
    """A decision's outputs with one part muted in the plainest way: over the window, in the weights, in the pixels."""

    def __init__(self, policy: Policy, frames: Sequence[NDArray[np.uint8]], times: Sequence[float]) -> None:
        self.policy, self.frames, self.times = policy, list(frames), list(times)
        self.features = self._features(np.stack(frames))

    def outputs(self, parts: Sequence[Part | None]) -> list[NDArray[np.float64]]:
        """[outputs] of the network without each of ``parts``; of None those of the decision as it is."""
        config, head = self.policy.config, self.policy.network.head
        features, times = self.features.repeat(len(parts), 1, 1), torch.tensor(self.times).repeat(len(parts), 1)
        padding = torch.zeros(times.shape, dtype=torch.bool)
        for row, part in enumerate(parts):
            if part is not None and part.kind == "frame":
                padding[row, -1 - part.index] = True
            if part is not None and part.kind == "time":
                times[row, :-1] += self.times[-1] - self.times[-2] - config.gap_s
            if part is not None and part.kind == "region":
                first, last = config.crop or (0, config.height)
                down, across = divmod(part.index, 3)
                rows = slice(first + (last - first) * down // 4, first + (last - first) * (down + 1) // 4)
                painted = self.frames[-1].copy()
                painted[rows, config.width * across // 3 : config.width * (across + 1) // 3] = 128
                features[row, -1] = self._features(painted[np.newaxis])[0]
        with torch.inference_mode():
            y = self.policy.network.sequence(features, times, padding)[:, -1]
            for row, part in enumerate(parts):
                if part is not None and part.kind == "head":
                    y[row] = self._without(part.index)
            return [np.asarray(one, np.float64) for one in head(y).numpy()]

    def _features(self, frames: NDArray[np.uint8]) -> torch.Tensor:
        with torch.inference_mode():
            return self.policy.network.features(torch.from_numpy(frames))

    def _without(self, head: int) -> torch.Tensor:
        """What a projection that changes nothing gives is what all heads say; then the policy's own, without one."""
        config, nac = self.policy.config, self.policy.network.sequence.nac
        own, size = nac.out_proj, config.d_model // config.num_heads
        if not hasattr(self, "_merged"):
            plain = torch.nn.Linear(config.d_model, config.d_model)
            plain.weight.data, plain.bias.data = torch.eye(config.d_model), torch.zeros(config.d_model)
            nac.out_proj = plain
            times = torch.tensor([self.times])
            self._merged = self.policy.network.sequence(self.features[np.newaxis], times, torch.zeros_like(times) > 0)
            nac.out_proj = own
        merged = self._merged[0, -1].clone()
        merged[size * head : size * (head + 1)] = 0
        return own.weight @ merged + own.bias


def lie_of(sentence: str, effects: Effects, hand: ByHand, names: Sequence[str]) -> str:
    """What of a sentence of Why is not so when what it names is muted by hand; "" where all of it is true."""
    named = [part for part in effects.parts if f"{part.without} it would" in sentence or f"is {part.noun}:" in sentence]
    if len(named) > 1 or (not named and "not even by " not in sentence):
        return "it names no part, or several"
    others = "Nothing alone changes this decision" in sentence
    judge = steering_lie if hand.policy.config.continuous else choice_lie
    asked = effects.parts if others else named
    base, *outputs = hand.outputs([None, *asked])
    muted = dict(zip(asked, outputs, strict=True))
    return judge(sentence, base, muted, named[0] if named else None, hand.policy.config.actions, names)


def choice_lie(
    sentence: str,
    base: NDArray[np.float64],
    muted: dict[Part, NDArray[np.float64]],
    named: Part | None,
    actions: Sequence[Sequence[float]],
    names: Sequence[str],
) -> str:
    """``lie_of`` of a policy that chooses."""
    choice, shares = int(base.argmax()), softmax(base)
    does = words_of(actions[choice])
    if not sentence.startswith(f"It {does}. "):
        return f"it {does}"
    if " it would " in sentence:
        assert named is not None
        other = int(muted[named].argmax())
        if other == choice:
            return "the decision stays"
        first, *rest = words_of(actions[other]).split()
        if f" it would {' '.join([first.removesuffix('s'), *rest])}: " not in sentence:
            return f"it would: {words_of(actions[other])}"
    elif any(int(scores.argmax()) != choice for scores in muted.values()):
        return "something alone changes it"
    if named is None:
        most = max(abs(float(softmax(scores)[choice] - shares[choice])) for scores in muted.values())
        return f"something moves it by {most:.3f}" if most > 0.0101 else ""
    numbers = [int(word) for word in sentence.rsplit(f"{names[choice]} ", 1)[1].removesuffix(" %.").split(" → ")]
    true = [100 * float(x[choice]) for x in (shares, softmax(muted[named]))]
    return "" if np.allclose(numbers, true, atol=0.51) else f"the numbers are {true}"


def words_of(action: Sequence[float]) -> str:
    """What an action does."""
    steering, throttle, brake = action
    if brake > 0.05 and brake >= throttle:
        return "brakes"
    if abs(steering) > 0.05:
        return "steers left" if steering < 0 else "steers right"
    return "accelerates" if throttle > 0.05 else "coasts"


def steering_lie(
    sentence: str,
    base: NDArray[np.float64],
    muted: dict[Part, NDArray[np.float64]],
    named: Part | None,
    *_: object,
) -> str:
    """``lie_of`` of a policy that steers by degrees."""
    wheel, apart = np.clip(base, -1, 1), {}
    for part, outputs in muted.items():
        apart[part] = float(np.abs(np.clip(outputs, -1, 1) - wheel).max())
    does, rest = sentence.split(". ", 1)
    claims = [(does, wheel)]
    if named is not None:
        claims.append((rest.rsplit(" → ")[-1].rsplit(" it would ")[-1], np.clip(muted[named], -1, 1)))
    for text, true in claims:
        if not np.allclose(wheel_and_pedal(text), true, atol=0.0051):
            return f"'{text}' is {true}"
    if " it would " in rest:
        assert named is not None
        return "" if apart[named] >= OTHERWISE - 1e-4 else f"it changes by {apart[named]:.4f} alone"
    most = max(apart.values())
    if most >= OTHERWISE + 1e-4 or (named is not None and most > apart[named] + 2e-4):
        return f"something changes it by {most:.4f}"
    return f"something moves it by {most:.4f}" if named is None and most > 0.0051 else ""


def wheel_and_pedal(text: str) -> list[float]:
    """ "steers left 0.12, gas 0.30" -> [-0.12, 0.30]."""
    sides = {"left": -1.0, "right": 1.0, "brake": -1.0, "gas": 1.0}
    made = []
    for part in text.rstrip(".").split(", "):
        match = re.search(r"(left|right|brake|gas) (\d\.\d\d)$", part)
        made.append(sides[match[1]] * float(match[2]) if match else 0.0)
    return made


class Muter:
    """One decision with any set of parts muted together."""

    def __init__(self, policy: Policy) -> None:
        self.policy, recent = policy, policy.last_decision()
        self.frame, self.times, past = recent.frame, recent.times, recent.past
        self.nac: Any = getattr(policy.network.sequence, "nac", None)
        assert past is not None
        self.past, self.continuous = past, policy.config.continuous

    def outputs(self, sets: Sequence[Iterable[Key]]) -> NDArray[np.float64]:
        """[sets, outputs]."""
        network, config = self.policy.network, self.policy.config
        muted = [frozenset(one) for one in sets]
        inputs = sorted({frozenset(key for key in one if key[0] != "head") for one in muted}, key=sorted)
        pictures = sorted({frozenset(i for kind, i in one if kind == "region") for one in inputs}, key=sorted)
        boxes, merged = region_boxes(config), []
        painted = np.repeat(self.frame[np.newaxis], len(pictures), axis=0)
        for picture, regions in zip(painted, pictures, strict=True):
            for region in regions:
                picture[boxes[region]] = GREY
        with torch.inference_mode():
            newest = network.features(torch.from_numpy(painted))
            steps = len(self.past) + 1
            x = torch.cat([self.past, newest[:1]]).repeat(len(inputs), 1, 1)
            t = torch.tensor(self.times).repeat(len(inputs), 1)
            padding = torch.zeros(t.shape, dtype=torch.bool)
            for row, one in enumerate(inputs):
                x[row, -1] = newest[pictures.index(frozenset(i for kind, i in one if kind == "region"))]
                for kind, i in one:
                    if kind == "frame":
                        padding[row, steps - 1 - i] = True
                    if kind == "time":
                        t[row, -1] = t[row, -2] + config.gap_s
            if self.nac is None:
                y = network.sequence.last(x, t, padding)
                y = y[[inputs.index(one) for one in muted]]
            else:
                hook = self.nac.out_proj.register_forward_pre_hook(lambda _, given: merged.append(given[0]))
                network.sequence.last(x, t, padding)
                hook.remove()
                places = [inputs.index(frozenset(key for key in one if key[0] != "head")) for one in muted]
                kept = merged[-1][:, 0][places].view(len(muted), self.nac.num_heads, -1).clone()
                for row, one in enumerate(muted):
                    kept[row, [i for kind, i in one if kind == "head"]] = 0
                y = F.linear(kept.flatten(1), self.nac.out_proj.weight, self.nac.out_proj.bias)
            outputs: NDArray[np.float64] = network.head(y).double().numpy()
        return outputs


def stays(outputs: NDArray[np.float64], base: NDArray[np.float64], continuous: bool) -> list[float]:
    """Of each row, 1 where it is the decision of ``base``."""
    if continuous:
        apart = np.abs(np.clip(outputs, -1, 1) - np.clip(base, -1, 1)).max(axis=1)
        return [float(x) for x in apart < OTHERWISE]
    return [float(x) for x in outputs.argmax(axis=1) == base.argmax()]


def curves(muter: Muter, orders: dict[str, Sequence[Key]], base: NDArray[np.float64]) -> Stays:
    """Of each order whether the decision stays with its first k parts muted, and with all but its first k muted."""
    sets: dict[str, list[Sequence[Key]]] = {}
    for name, order in orders.items():
        counts = points(name.split()[0], len(order))
        sets[f"{name} deletion"] = [order[:k] for k in counts]
        sets[f"{name} insertion"] = [order[k:] for k in counts]
    stay = iter(stays(muter.outputs([one for some in sets.values() for one in some]), base, muter.continuous))
    return {name: [next(stay) for _ in some] for name, some in sets.items()}


def points(kind: str, parts: int) -> list[int]:
    """How many parts are muted at the points of a curve."""
    if kind == "all":
        return [0, 1, parts]
    if kind == "region":
        return [0, 1, 2, 4, 8, parts]
    return list(range(parts + 1))


def head_gates(policy: Policy) -> dict[str, NDArray[np.float64]]:
    """Gate -> [heads] of the last decision, averaged over the keys by their attention."""
    states = policy.neurons()
    if "weights" not in states:
        return {}
    weights = np.nan_to_num(states["weights"].astype(np.float64))
    made = {}
    for name in GATES:
        if name in states:
            values = states[name].astype(np.float64)
            made[name] = (weights * np.where(np.isfinite(values), values, 0.0)).sum(axis=1)
    return made


def chosen(policy: Policy, outputs: NDArray[Any]) -> int:
    """The choice that outputs of the network make; of a wheel, right or left."""
    return int(policy.network.class_scores(torch.from_numpy(np.asarray(outputs, np.float32))).argmax())


def scores_of(policy: Policy, effects: Effects, choice: int, keys: dict[str, list[Key]]) -> dict[str, dict[str, Any]]:
    """Kind -> explanation -> a score of each part of that kind: the higher, the more it counts for the decision."""
    base, muted = effects.values()
    apart = np.abs(muted - base)
    moved = apart.max(axis=1) if policy.config.continuous else apart[:, choice]
    change = {(part.kind, part.index): float(moved[i]) for i, part in enumerate(effects.parts)}
    made: dict[str, dict[str, Any]] = {kind: {"effect": [change[key] for key in keys[kind]]} for kind in keys}
    states = policy.neurons()
    if "weights" in states:
        weights = np.nan_to_num(states["weights"].astype(np.float64))
        shown = len(states["frame_t_s"])
        every = np.tile(np.arange(weights.shape[1]), (len(weights), 1))
        places = states["keys"].astype(int) if "keys" in states else every
        on_frame = np.zeros(max(shown, places.max() + 1))
        np.add.at(on_frame, places.ravel(), weights.ravel())
        made["frame"]["attention"] = [float(on_frame[shown - 1 - back]) for _, back in keys["frame"]]
        made["head"]["gates"] = [float(abs(x)) for x in head_gates(policy)["logits"]]
    cam = GradCam(policy)(choice=choice)
    made["region"]["cam"] = [float(cam[box].mean()) for box in region_boxes(policy.config)]
    return made


@dataclass(frozen=True)
class OldSentence:
    """Head and gate that tell left from right best, and the word of the median that is nearest."""

    heads: list[float]
    """How well each head's best gate tells."""
    best: Separation

    @classmethod
    def fit(cls, gates: Sequence[dict[str, NDArray[np.float64]]], steering: NDArray[np.float32]) -> OldSentence | None:
        heads = []
        for head in range(len(gates[0].get("phi", []))):
            values = [(name, np.array([one[name][head] for one in gates], np.float32)) for name in gates[0]]
            found = [one for name, x in values if (one := separation(head, name, x, steering)) is not None]
            if not found:
                return None
            heads.append(max(found, key=lambda one: one.strength))
        if not heads:
            return None
        return cls([one.strength for one in heads], max(heads, key=lambda one: one.strength))

    def word(self, gates: dict[str, NDArray[np.float64]]) -> str:
        """``left``, ``straight`` or ``right``."""
        value, best = float(gates[self.best.name][self.best.head]), self.best
        medians = {"left": best.left, "straight": best.straight, "right": best.right}
        return min(medians, key=lambda side: abs(value - medians[side]) if np.isfinite(medians[side]) else np.inf)


def side_of(steering: float) -> str:
    """What the old sentence calls a steering."""
    return "left" if steering < -TURN else "right" if steering > TURN else "straight"


def drive_through(policy: Policy, frames: Sequence[Any], times: Sequence[float], steps: Iterable[int]) -> Iterator[int]:
    """Stops after each decision of ``steps``."""
    wanted = set(steps)
    policy.reset()
    for i, frame in enumerate(frames):
        policy.step(frame, float(times[i]))
        if i in wanted:
            yield i


def parts_by_kind(effects: Effects) -> dict[str, list[Key]]:
    """Keys of the heads, of the frames and of the regions."""
    made: dict[str, list[Key]] = {"head": [], "frame": [], "region": []}
    for part in effects.parts:
        made.setdefault(part.kind, []).append((part.kind, part.index))
    made.pop("time", None)
    return {kind: sorted(keys) for kind, keys in made.items()}


def judge_episode(
    policy: Policy, frames: Sequence[Any], times: Sequence[float], steps: Sequence[int], old: OldSentence | None
) -> dict[str, Any]:
    """Sums over the decisions ``steps`` of one episode."""
    config, meter, names = policy.config, policy.meter(), action_names(policy.task)
    sums: dict[str, Any] = {"decisions": 0, "lies": [], "old words": 0, "old opposite": 0, "turns": 0, "curves": {}}
    for i in drive_through(policy, frames, times, steps):
        rng = np.random.default_rng(i)
        effects = meter.measure(policy.last_decision())
        before = slice(max(0, i - config.window), i + 1)
        sentence = effects.explain(names)["sentence"]
        lie = lie_of(sentence, effects, ByHand(policy, frames[before], times[before]), names)
        sums["lies"] += [f"{i}: {sentence} ({lie})"] if lie else []
        muter, keys = Muter(policy), parts_by_kind(effects)
        base = muter.outputs([()])[0]
        orders: dict[str, Sequence[Key]] = {}
        for kind, by_method in scores_of(policy, effects, chosen(policy, base), keys).items():
            if keys[kind]:
                orders |= {f"{kind} {name}": by_score(keys[kind], scores, i) for name, scores in by_method.items()}
                orders[f"{kind} random"] = [keys[kind][k] for k in rng.permutation(len(keys[kind]))]
        if old is not None:
            orders["head old"] = by_score(keys["head"], old.heads, i)
        all_keys = [(part.kind, part.index) for part in effects.parts]
        decides, order = effects.decides(), effects.order()
        first = next((k for k in order if decides[k]), order[0])
        orders["all effect"] = [all_keys[k] for k in (first, *(k for k in order if k != first))]
        orders["all random"] = [all_keys[k] for k in rng.permutation(len(all_keys))]
        for name, values in curves(muter, orders, base).items():
            kept = sums["curves"].get(name, [0.0] * len(values))
            sums["curves"][name] = [a + b for a, b in zip(kept, values, strict=True)]
        if old is not None:
            steering = base[0] if config.continuous else config.actions[int(base.argmax())][0]
            word, side = old.word(head_gates(policy)), side_of(float(steering))
            sums["old words"] += word == side
            sums["turns"] += side != "straight"
            sums["old opposite"] += {word, side} == {"left", "right"}
        sums["decisions"] += 1
    return sums


def by_score(keys: Sequence[Key], scores: Sequence[float], decision: int) -> list[Key]:
    """The highest first; those that are equal in an order that is drawn for each decision."""
    drawn = np.random.default_rng([decision, 1]).permutation(len(keys))
    return [keys[i] for i in drawn[np.argsort(-np.asarray(scores, np.float64)[drawn], kind="stable")]]


def randomise(policy: Policy, stage: int, seed: int) -> Policy:
    """The policy with new weights from the dense head down to ``stage`` of ``STAGES``."""
    torch.manual_seed(seed)
    fresh, network = Policy.new(policy.config).network, copy.deepcopy(policy.network)
    network.head.load_state_dict(fresh.head.state_dict())
    if stage == 1 and hasattr(network.sequence, "nac"):
        network.sequence.nac.out_proj.load_state_dict(fresh.sequence.nac.out_proj.state_dict())
    if stage >= 2:
        network.sequence.load_state_dict(fresh.sequence.state_dict())
    return Policy(fresh if stage == 3 else network, policy.name)


def sanity(policy: Policy, episodes: Sequence[tuple[Any, Any, Sequence[int]]]) -> dict[str, list[list[float]]]:
    """Explanation -> stage -> rank correlations of decisions with what explains the trained network's."""
    made: dict[str, list[list[float]]] = {}
    for seed in range(SANITY_SEEDS):
        frames, times, steps = episodes[seed % len(episodes)]
        asked = list(steps)[:: max(1, len(steps) // SANITY_DECISIONS)][:SANITY_DECISIONS]
        kept: dict[int, tuple[int, dict[str, dict[str, Any]]]] = {}
        for stage in range(-1, len(STAGES)):
            one = policy.copy() if stage < 0 else randomise(policy, stage, seed)
            meter = one.meter()
            for i in drive_through(one, frames, times, asked):
                effects = meter.measure(one.last_decision())
                choice = kept[i][0] if stage >= 0 else chosen(one, effects.base)
                scores = scores_of(one, effects, choice, parts_by_kind(effects))
                if stage < 0:
                    kept[i] = choice, scores
                    continue
                for kind, by_method in scores.items():
                    for name, values in by_method.items():
                        stages = made.setdefault(f"{kind} {name}", [[] for _ in STAGES])
                        same = rank_correlation(kept[i][1][kind][name], values)
                        stages[stage] += [same] if np.isfinite(same) else []
    return made


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's; NaN where one is constant."""
    from scipy.stats import rankdata

    ranks = [rankdata(np.round(x, 6)) for x in (a, b)]
    if len(a) < 2 or min(np.ptp(x) for x in ranks) == 0:
        return float("nan")
    return float(np.corrcoef(*ranks)[0, 1])


def judge(model: Path, out: Path, recording: Recording) -> None:
    """Measure a policy, or go on with it; its file is in ``out``."""
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    policy = load_policy(model)
    path = out / f"{policy.task}-{policy.name}.jsonl"
    rows = read(path)
    if not rows or rows[0]["sha256"] != digest:
        about = {"sha256": digest, "model": str(model), "name": policy.name, "task": policy.task}
        rows = [about | {"judged": date.today().isoformat()}]
        path.write_text(json.dumps(rows[0]) + "\n", encoding="utf-8")
    known = {row["episode"] for row in rows[1:]}
    loaded = {}

    def episode(number: int) -> tuple[Any, Any]:
        if number not in loaded:
            one = recording.load(number)
            loaded[number] = one.decoded(), [float(t) for t in one.t_s]
        return loaded[number]

    gates, steering = [], []
    for number in range(FITTED):
        frames, times = episode(number)
        policy.reset()
        for frame, t_s in zip(frames, times, strict=True):
            steering.append(policy.step(frame, t_s).steering)
            gates.append(head_gates(policy))
    old = OldSentence.fit(gates, np.array(steering, np.float32))
    judged = range(FITTED, len(recording))
    wanted = [DECISIONS * (k + 1) // len(judged) - DECISIONS * k // len(judged) for k in range(len(judged))]
    steps = {}
    for number, count in zip(judged, wanted, strict=True):
        length = recording.episodes[number].steps
        steps[number] = [int(i) for i in np.linspace(policy.config.window + 1, length - 1, count)]
        if number not in known:
            frames, times = episode(number)
            append(path, {"episode": number, **judge_episode(policy, frames, times, steps[number], old)})
            print(f"{path.stem}: episode {number}", flush=True)
        if number >= FITTED + SANITY_SEEDS:
            loaded.pop(number, None)
    if "sanity" not in known:
        first = list(judged)[:SANITY_SEEDS]
        append(path, {"episode": "sanity", **sanity(policy, [(*episode(n), steps[n]) for n in first])})


def read(path: Path) -> list[dict[str, Any]]:
    """Lines of a file that may not be there."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def append(path: Path, row: dict[str, Any]) -> None:
    """One more line."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


@dataclass(frozen=True)
class Share:
    """A share of decisions, in percent, with its 95 % interval (episodes resampled)."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.0f} ({self.low:.0f} to {self.high:.0f})".replace("-0 ", "0 ").replace("-0)", "0)")

    @classmethod
    def of(cls, sums: Sequence[float], counts: Sequence[float]) -> Share:
        rows, top, below = resampled(len(counts)), np.asarray(sums, float), np.asarray(counts, float)
        low, high = bounds(top[rows].sum(axis=1) / below[rows].sum(axis=1))
        return cls(*(100 * x for x in (float(top.sum() / below.sum()), low, high)))


@dataclass(frozen=True)
class Verdict:
    """One way of explaining one policy."""

    task: str
    policy: str
    kind: str
    method: str
    needed: Share
    """Decisions that are others without the first part."""
    enough: Share
    """Decisions that stay with the first part alone of its kind."""
    deletion: Share
    insertion: Share
    """Means of the curves."""
    worse: Share
    better: Share
    """Of the means of the curves, how far from those of a random order."""
    sanity: tuple[float, float] | None
    """Rank correlation with a network of another dense head, and with an untrained one."""

    @property
    def marks(self) -> list[bool]:
        """Deletion and insertion beat a random order, and a random network is explained in another way."""
        made = [self.worse.high < 0, self.better.low > 0]
        return made if self.sanity is None else [*made, self.sanity[0] < BLIND and self.sanity[1] < SAME]

    @classmethod
    def of(cls, rows: Sequence[dict[str, Any]], kind: str, method: str) -> Verdict:
        about, episodes, last = rows[0], rows[1:-1], rows[-1]
        counts = [row["decisions"] for row in episodes]

        def curve(name: str, way: str) -> NDArray[np.float64]:
            return np.array([row["curves"][f"{kind} {name} {way}"] for row in episodes])

        deletion, insertion = curve(method, "deletion"), curve(method, "insertion")
        means = {
            way: (curve(method, way).mean(axis=1), curve("random", way).mean(axis=1))
            for way in ("deletion", "insertion")
        }
        stages = last.get(f"{kind} {method}")
        return cls(
            about["task"],
            about["name"],
            kind,
            method,
            Share.of(np.asarray(counts) - deletion[:, 1], counts),
            Share.of(insertion[:, 1], counts),
            Share.of(means["deletion"][0], counts),
            Share.of(means["insertion"][0], counts),
            Share.of(means["deletion"][0] - means["deletion"][1], counts),
            Share.of(means["insertion"][0] - means["insertion"][1], counts),
            (float(np.mean(stages[0])), float(np.mean(stages[-1]))) if stages else None,
        )


def verdicts(rows: Sequence[dict[str, Any]]) -> list[Verdict]:
    """Of all ways in which a policy was explained, those of one kind of part together."""
    named = [name.split() for name in rows[1]["curves"] if name.endswith("deletion")]
    shown = [(kind, method) for kind, method, _ in named if method != "random"]
    order = [*KINDS]
    return [
        Verdict.of(rows, *one) for one in sorted(shown, key=lambda one: (order.index(one[0]), [*METHODS].index(one[1])))
    ]


def page(results: Sequence[Sequence[dict[str, Any]]]) -> str:
    """docs/results/explanations.md."""
    made = [one for rows in results for one in verdicts(rows)]
    asked: dict[tuple[str, str], list[Verdict]] = {}
    for one in made:
        # Who remembers no frames has none that could be ranked.
        has_parts = one.sanity is None or not math.isnan(one.sanity[0])
        if one.kind != "all" and one.method != "old" and has_parts:
            asked.setdefault((one.method, one.kind), []).append(one)
    reasons, failed, planned = [], [], []
    for (method, kind), some in asked.items():
        margins = [min(-one.worse.value, one.better.value) for one in some if all(one.marks)]
        if margins:
            by = " to ".join(dict.fromkeys(f"{x:.1f}" for x in (min(margins), max(margins))))
            won = f"{len(margins)} of {len(some)} policies, by {by} points"
            reasons.append(f"{METHODS[method]} of {KINDS[kind]} ({won})")
            strict = [one for one in some if all(one.marks) and one.sanity is not None and one.sanity[0] < SAME]
            planned.append(f"{KINDS[kind]} {len(strict)} of {len(some)}")
        else:
            failed.append(f"{METHODS[method]} ({KINDS[kind]})")
    ranked = [len(stage) for rows in results for stage in rows[-1].get("region cam", [])]
    decisions = [sum(row["decisions"] for row in rows[1:-1]) for rows in results]
    lies = [sum(len(row["lies"]) for row in rows[1:-1]) for rows in results]
    lines = [
        "# Which explanations may be called a reason",
        "",
        f"**What passes all three tests below, and may be called a reason: {'; '.join(reasons)}. What passes them for "
        f"no policy: {', '.join(failed)}: the pages show these as what the network computes, and not as a reason.** "
        "The sentence of *Why*, checked by muting what it names with code that is not the pages', is true in "
        f"{sum(decisions) - sum(lies):,} of {sum(decisions):,} decisions.",
        "",
        "The tests, of every decision: the parts are muted one after the other, those first that an explanation puts "
        "first (*deletion*: the decision should go soon), and all are muted and given back in the same order "
        "(*insertion*: it should come back soon). Both areas under the share of decisions that stay have to be better "
        "than those of a random order of the same parts, with the whole 95 % interval of the difference. And after "
        "Adebayo et al. (2018) another network has to be explained in another way: with a new random dense head the "
        f"ranks may correlate by less than {BLIND} (what is blind to that layer has exactly 1), and with those of an "
        f"untrained network by less than {SAME}. The untrained network stands for the training on random labels, "
        "which was not done. *Needed*: muting the first part alone changes the decision; *enough*: it stays when all "
        "other parts of its kind are muted. That the measured effect leads in *needed* is by construction; in the "
        "areas it is not. *By points*: the smaller one of the two areas' leads, of the policies that pass.",
        "",
        "## The sentence of Why",
        "",
        *markdown(
            [
                "policy",
                "file (sha256)",
                "judged",
                "decisions",
                "true",
                "95 %",
                "the part it names, with all others muted, is enough",
            ],
            [
                [
                    label(rows),
                    f"`{rows[0]['sha256'][:8]}`",
                    rows[0]["judged"],
                    str(n),
                    str(n - x),
                    between(n - x, n),
                    str(Verdict.of(rows, "all", "effect").enough) + " %",
                ]
                for rows, n, x in zip(results, decisions, lies, strict=True)
            ],
            ["---"] * 3 + ["---:"] * 4,
        ),
        "",
        "A named part is *needed*: without it the decision is another one where the sentence says so. Whether it is "
        "also *enough*, the last column says: where it is rarely so, one part without the picture, the past and the "
        'other heads makes no decision. So the pages say "without", and never "because of this alone".',
        "",
        "## The old sentence",
        "",
        'No page uses it any more: "head 11 says left" is the gate that tells left from right best (area under the ROC '
        f"curve) and the nearest of its three medians, here those of {FITTED} other laps.",
        "",
        *markdown(
            ["policy", "its word is what is done", "its word is the opposite side, of turns"],
            [old_words(rows) for rows in results if any(row["old words"] for row in rows[1:-1])],
            ["---", "---:", "---:"],
        ),
        "",
    ]
    for kind in ("head", "frame", "region"):
        lines += [f"## Ranking the {KINDS[kind]}", "", *table([one for one in made if one.kind == kind]), ""]
    few = (
        f"Ranks correlate where both explanations rank at all; a map of Grad-CAM that is 0 everywhere does not, so its "
        f"columns rest on {min(ranked)} to {max(ranked)} of {SANITY_SEEDS * SANITY_DECISIONS} decisions."
    )
    text = "\n".join([*lines, *METHOD_NOTES[:2], few, "", *METHOD_NOTES[2:]]) + "\n"
    return text.replace("{planned}", ", ".join(planned))


METHOD_NOTES = [
    "Percent of the decisions, with 95 % intervals (10,000 bootstrap samples of episodes). Of a policy that steers by "
    f"degrees a decision stays where neither wheel nor pedal moves by {OTHERWISE}. Areas are means over the points of "
    "a curve: every number of heads and frames; 0, 1, 2, 4, 8 and 12 regions. Heads are muted by leaving out what they "
    "add to the output of the attention, frames by the mask of the attention, regions by grey.",
    "",
    "What an explanation ranks alike is muted in a drawn order. **It was muted from the upper left until results of "
    "Udacity's policies of 25 November 2026 had been seen**: with that order Grad-CAM would pass for the "
    "`udacity/nac_steady` of then (deletion -6 (-9 to -3), insertion 5 (2 to 7) against random orders). The last "
    "convolution of Udacity's policies has one row, so Grad-CAM says nothing of up and down there, and in 300 to 652 "
    "of 1,000 decisions of the three NAC of then it is 0 everywhere: what passed was to begin at the top. For "
    "the `carracing/nac_exact` of then it was a toss: of 30 pairs of drawn orders (5 of what is alike, 6 random ones) "
    "Grad-CAM passed with 16.",
    "",
    f"An explanation is blind to the dense head from a correlation of {BLIND} on. **This bound was {SAME} when the "
    f"measurement was planned, and was raised to {BLIND} after results had been seen**: with {SAME}, measured effect "
    "would pass for fewer ({planned}), for a head that adds much to the output matters to nearly every reader of it. "
    "Only what has exactly 1 cannot know the decision. Judge the column with either bound.",
    "",
    "A new policy: `python tools/explanations.py --model FILE`; without `--model` all shipped ones are judged, those "
    "whose file has changed anew, and this page is written again. The frames are recorded by",
    "",
    *(f"    nacdrive record {command} --out runs/explanations/{task}" for task, command in RECORD.items()),
]


def between(true: int, asked: int) -> str:
    """The 95 % interval of a share, in words."""
    low, high = proportion(true, asked)
    return f"{low:.1%} to {high:.1%}".replace(" 100.0%", " 100%")


def label(rows: Sequence[dict[str, Any]]) -> str:
    """Name of a policy with its task."""
    return f"{rows[0]['task']}/{rows[0]['name']}"


def old_words(rows: Sequence[dict[str, Any]]) -> list[str]:
    """How often the old sentence was right, and how often it named the other side."""
    episodes = rows[1:-1]
    right = Share.of([row["old words"] for row in episodes], [row["decisions"] for row in episodes])
    opposite, turns = (sum(row[name] for row in episodes) for name in ("old opposite", "turns"))
    return [label(rows), f"{right} %", f"{opposite} of {turns}"]


def table(shown: Sequence[Verdict]) -> list[str]:
    """Rows of one kind of part."""
    header = ["policy", "explanation", "needed", "enough", "deletion area", "less a random order's", "insertion area",
              "less a random order's", "new dense head", "untrained", "a reason"]  # fmt: skip
    rows = []
    for one in shown:
        ranks = ["–", "–"] if one.sanity is None else [f"{x:.2f}" for x in one.sanity]
        areas = [str(x) for x in (one.needed, one.enough, one.deletion, one.worse, one.insertion, one.better)]
        # The old sentence is made of gates and shares what becomes of them in a random network.
        verdict = "–" if one.method == "old" else "yes" if all(one.marks) else "no"
        rows.append([f"{one.task}/{one.policy}", METHODS[one.method], *areas, *ranks, verdict])
    return markdown(header, rows, ["---", "---", *["---:"] * 8, "---"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", nargs="*", type=Path, help="policy files; all that are shipped, if not given")
    parser.add_argument("--out", type=Path, default=Path("runs/explanations"))
    parser.add_argument("--page", type=Path, default=Path("docs/results/explanations.md"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    models = options.model or sorted(p for task in RECORD for p in Path("agents").glob(f"{task}/*.pt"))
    for model in models:
        task = load_policy(model).task
        folder = options.out / task
        if not (folder / "recording.json").is_file():
            command = [sys.executable, "-m", "nacdrive", "record", *RECORD[task].split(), "--workers", "1", "--resume"]
            subprocess.run([*command, "--out", folder], check=True)
        judge(model, options.out, Recording.open(folder))
        write(options.out, options.page)


def write(out: Path, target: Path) -> None:
    """The page, of all policies that are judged to the end."""
    results = [
        rows for path in sorted(out.glob("*.jsonl")) if (rows := read(path)) and rows[-1].get("episode") == "sanity"
    ]
    if results:
        target.write_text(page(results), encoding="utf-8")
    for rows in results:
        for lie in (lie for row in rows[1:-1] for lie in row["lies"]):
            print(f"{label(rows)}: {lie}")


if __name__ == "__main__":
    main()
