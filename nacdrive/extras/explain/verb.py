"""``nacdrive explain``: which part decides how often, figures of a policy's gradients, of its neurons and wiring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Interval

from nacdrive.common.errors import UserError
from nacdrive.common.files import refuse_existing
from nacdrive.common.options import Options, Target
from nacdrive.datasets.options import EpisodeOption, RecordingOption
from nacdrive.drivers.options import ModelOption

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from nacdrive.datasets.recording import Recording
    from nacdrive.drivers.tick import Tick
    from nacdrive.extras.explain.effect import PartCount
    from nacdrive.models.policy import Policy

SAMPLE = {"data": Path("recordings/carracing-sample")}


class SaliencyConfig(
    ModelOption, RecordingOption, EpisodeOption, Target, defaults=SAMPLE | {"out": Path("saliency.png")}
):
    """Grad-CAM of the last convolution over recorded frames: a picture of gradients; what decides, effect measures."""

    positional = ("model", "data")

    pictures: Annotated[int, Interval(ge=1, le=1000)] = 8
    """How many frames to show: where the expert would do something else, turns, and doubts first."""


class HeadOption(Options):
    """Which head."""

    head: int = 0
    """Which head, from 1; 0 takes the one whose muting changes most on the recorded laps of its task, or the first."""


class NeuronsConfig(
    ModelOption, RecordingOption, EpisodeOption, HeadOption, Target, defaults=SAMPLE | {"out": Path("neurons.png")}
):
    """Neuron states of one head over an episode, and whether they tell left from right over all episodes."""

    positional = ("model", "data")


class WiringConfig(ModelOption, HeadOption, Target, defaults={"out": Path("wiring.png")}):
    """The circuit of one head of a policy's NAC layer: its strongest synapses, bundled by groups of neurons."""


class EffectConfig(ModelOption, RecordingOption, Target, defaults=SAMPLE | {"out": Path("effect.png")}):
    """Mute each part of a policy alone (heads, remembered frames, regions of the picture, the time): which decides."""

    positional = ("model", "data")

    every: Annotated[int, Interval(ge=1, le=1000)] = 1
    """Decisions of the recording between two that are measured."""


def effect(config: EffectConfig) -> tuple[Figure, str, list[PartCount]]:
    """Bars and a table of which part decides how often, and its rows."""
    from nacdrive.extras.explain.effect import count_parts, effect_figure, measure_recording, report

    policy, recording = opened(config.model, config.data)
    measured = list(measure_recording(policy, recording, config.every))
    figure = effect_figure(measured, f"{policy.name} on {config.data.name}: what decides")
    return figure, f"{report(measured)}\n", count_parts(measured)


def saliency(config: SaliencyConfig) -> tuple[Figure, str]:
    """Frames and what the policy looks at in them."""
    from nacdrive.extras.explain.figures import saliency_figure, telling_moments
    from nacdrive.viz.trace import retrace

    policy, recording = opened(config.model, config.data, config.episode)
    ticks = retrace(policy, recording.load(config.episode), neurons=False, saliency_every=1)
    chosen = telling_moments(ticks, config.pictures)
    return saliency_figure([ticks[i] for i in chosen], f"{policy.name}: Grad-CAM of the last convolution"), ""


def neurons(config: NeuronsConfig) -> tuple[Figure, str]:
    """Every neuron group over time, and what tells left from right."""
    from nacdrive.extras.explain.figures import neurons_figure
    from nacdrive.extras.explain.sides import report, separations
    from nacdrive.viz.trace import Trace, retrace

    policy, recording = opened(config.model, config.data, config.episode)
    episodes: list[Sequence[Tick]] = [retrace(policy, recording.load(i), number=i) for i in range(len(recording))]
    Trace.of(episodes[0], 0)  # a policy without such neurons is refused here, in one sentence
    gates, head = separations(episodes), head_of(policy, config)
    trace = Trace.of(episodes[config.episode], head)
    title = f"{policy.name}, head {head + 1}, track {episodes[config.episode][0].seed}"
    return neurons_figure(trace, title), f"{report(gates)}\n"


def wiring(config: WiringConfig) -> tuple[Figure, str]:
    """The circuit."""
    from nacdrive.extras.explain.wiring import wiring_figure
    from nacdrive.models import load_policy

    policy = load_policy(config.model)
    return wiring_figure(policy, head_of(policy, config)), ""


def head_of(policy: Policy, config: HeadOption) -> int:
    """The head that is asked for, from 0."""
    from nacdrive.extras.explain.effect import strongest_head

    return config.head - 1 if config.head else strongest_head(policy)


def opened(model: str, data: Path, episode: int = 0) -> tuple[Policy, Recording]:
    """The policy and the recording that it is to look at."""
    import torch

    from nacdrive.datasets.recording import Recording
    from nacdrive.envs.registry import task_of_source
    from nacdrive.models import load_policy

    torch.set_num_threads(1)
    recording = Recording.open(data)
    policy = load_policy(model, expect_task=task_of_source(str(recording.meta["source"])))
    if not 0 <= episode < len(recording):
        raise UserError(f"--episode is {episode}: {data} has episodes 0 to {len(recording) - 1}.")
    return policy, recording


def draw(make: Callable[[Any], tuple[Any, ...]], config: Target) -> Any:
    """Write the figure that ``make`` makes of ``config``, and print what it says besides; what comes after that."""
    from nacdrive.viz.figures import FORMATS, save

    out = config.out
    refuse_existing(out, overwrite=config.overwrite)
    if out.suffix not in FORMATS:
        raise UserError(
            f"--out is {out}: figures are written as .png, .svg or .pdf, give a name such as {out.with_suffix('.png')}."
        )
    figure, text, *result = make(config)
    save(figure, out)
    print(f"{text}figure: {out}")
    return result[0] if result else None


VERBS = {
    "effect": (EffectConfig, partial(draw, effect)),
    "saliency": (SaliencyConfig, partial(draw, saliency)),
    "neurons": (NeuronsConfig, partial(draw, neurons)),
    "wiring": (WiringConfig, partial(draw, wiring)),
}
