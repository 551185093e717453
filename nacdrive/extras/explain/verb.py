"""``nacdrive explain``: which part decides how often, figures of a policy's gradients, of its neurons and wiring."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Interval

from nacdrive.common.errors import UserError
from nacdrive.common.options import Options, Target
from nacdrive.datasets.options import EpisodeOption, RecordingOption
from nacdrive.drivers.options import ModelOption

if TYPE_CHECKING:
    from nacdrive.datasets.recording import Recording
    from nacdrive.drivers.tick import Tick
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
    ModelOption,
    RecordingOption,
    EpisodeOption,
    HeadOption,
    Target,
    defaults=SAMPLE | {"out": Path("neurons.png")},
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


def effect(config: EffectConfig) -> int:
    """Draw bars and print a table of which part decides how often."""
    from nacdrive.extras.explain.effect import effect_figure, measure_recording, report
    from nacdrive.viz.figures import save

    check_target(config.out, config.overwrite)
    policy, recording = opened(config.model, config.data)
    measured = list(measure_recording(policy, recording, config.every))
    save(effect_figure(measured, f"{policy.name} on {config.data.name}: what decides"), config.out)
    print(f"{report(measured)}\nfigure: {config.out}")
    return 0


def saliency(config: SaliencyConfig) -> int:
    """Draw frames and what the policy looks at in them."""
    from nacdrive.extras.explain.figures import saliency_figure, telling_moments
    from nacdrive.viz.figures import save
    from nacdrive.viz.trace import retrace

    check_target(config.out, config.overwrite)
    policy, recording = opened(config.model, config.data, config.episode)
    ticks = retrace(policy, recording.load(config.episode), neurons=False, saliency_every=1)
    chosen = telling_moments(ticks, config.pictures)
    figure = saliency_figure([ticks[i] for i in chosen], f"{policy.name}: Grad-CAM of the last convolution")
    save(figure, config.out)
    print(f"figure: {config.out}")
    return 0


def neurons(config: NeuronsConfig) -> int:
    """Draw every neuron group over time and say what tells left from right."""
    from nacdrive.extras.explain.effect import strongest_head
    from nacdrive.extras.explain.figures import neurons_figure
    from nacdrive.extras.explain.sides import report, separations
    from nacdrive.viz.figures import save
    from nacdrive.viz.trace import Trace, retrace

    check_target(config.out, config.overwrite)
    policy, recording = opened(config.model, config.data, config.episode)
    episodes: list[Sequence[Tick]] = [retrace(policy, recording.load(i), number=i) for i in range(len(recording))]
    Trace.of(episodes[0], 0)  # a policy without such neurons is refused here, in one sentence
    gates = separations(episodes)
    head = config.head - 1 if config.head else strongest_head(policy)
    trace = Trace.of(episodes[config.episode], head)
    save(neurons_figure(trace, f"{policy.name}, head {head + 1}, track {episodes[config.episode][0].seed}"), config.out)
    print(report(gates))
    print(f"figure: {config.out}")
    return 0


def wiring(config: WiringConfig) -> int:
    """Draw the circuit."""
    from nacdrive.common.paths import find_model
    from nacdrive.extras.explain.effect import strongest_head
    from nacdrive.extras.explain.wiring import wiring_figure
    from nacdrive.models import load_policy
    from nacdrive.viz.figures import save

    check_target(config.out, config.overwrite)
    policy = load_policy(find_model(config.model, "carracing"))
    head = config.head - 1 if config.head else strongest_head(policy)
    save(wiring_figure(policy, head), config.out)
    print(f"figure: {config.out}")
    return 0


def opened(model: str, data: Path, episode: int = 0) -> tuple[Policy, Recording]:
    """The policy and the recording that it is to look at."""
    import torch

    from nacdrive.common.paths import find_model
    from nacdrive.datasets.recording import Recording
    from nacdrive.models import load_policy

    torch.set_num_threads(1)
    recording = Recording.open(data)
    source = str(recording.meta["source"])
    policy = load_policy(find_model(model, source), expect_task=source)
    if not 0 <= episode < len(recording):
        raise UserError(f"--episode is {episode}: {data} has episodes 0 to {len(recording) - 1}.")
    return policy, recording


def check_target(out: Path, overwrite: bool) -> None:
    """Figures are PNG, SVG or PDF files, and one that is there is not replaced unasked.

    Raises:
        UserError: for another kind of file, or one that exists.
    """
    from nacdrive.common.files import refuse_existing
    from nacdrive.viz.figures import FORMATS

    refuse_existing(out, overwrite=overwrite)
    if out.suffix not in FORMATS:
        raise UserError(
            f"--out is {out}: figures are written as .png, .svg or .pdf, give a name such as {out.with_suffix('.png')}."
        )


VERBS = {
    "effect": (EffectConfig, effect),
    "saliency": (SaliencyConfig, saliency),
    "neurons": (NeuronsConfig, neurons),
    "wiring": (WiringConfig, wiring),
}
