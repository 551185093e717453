"""The whole training of a policy: learn from recordings, then drive in rounds of DAgger. Resumable at any moment."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os.path import relpath
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nacdrive.common.errors import UserError
from nacdrive.common.files import result_folder
from nacdrive.common.paths import MODEL_SUFFIXES, find_model
from nacdrive.common.runs import RUN, check_resumable, run_record, seed_everything
from nacdrive.datasets.episode import Episode
from nacdrive.drivers import load_expert
from nacdrive.layers import check_name
from nacdrive.models import Policy, PolicyConfig, load_policy, save_policy
from nacdrive.models.files import check_device
from nacdrive.models.presets import MEMORYLESS
from nacdrive.models.speed_prediction import SpeedPrediction
from nacdrive.rollout.dagger import DaggerRound, check_kind, check_pace, collect
from nacdrive.rollout.drive import Drive
from nacdrive.rollout.record_config import OFFICIAL_FRAMES
from nacdrive.rollout.train_config import FREE_TO_CHANGE, TrainConfig, as_taught
from nacdrive.tasks import Sample, load_driving_task
from nacdrive.tasks.driving import DrivingTask, Imitation, is_continuous
from nacdrive.tasks.splits import fingerprint, mix
from nacdrive.training.fit import FitResult, FitUpdate, checkpoint_path, fit


@dataclass(frozen=True)
class TrainCallbacks:
    """Called after each step of the optimizer, each round's fit, and each episode driven in DAgger."""

    on_step: Callable[[FitUpdate], None] = lambda update: None
    on_round: Callable[[int, FitResult], None] = lambda round_, result: None
    on_episode: Callable[[int, Episode], None] = lambda round_, episode: None


def train_policy(
    config: TrainConfig,
    callbacks: TrainCallbacks = TrainCallbacks(),
    *,
    cases: Sequence[tuple[int, Drive]] = (),
    load: Callable[[tuple[Path, ...]], list[Sample]] | None = None,
) -> Path:
    """Train as ``config`` says and return the path of the model file; ``UserError`` if a loss is not finite.

    The run's folder holds ``run.json``, ``metrics.jsonl``, ``tensorboard/``, the recordings of DAgger, the policy after
    each round, and at the end the model file with all of that in its ``meta``. ``cases`` are episodes that are driven
    in the place of tracks, ``dagger_episodes`` in each round, from the first again where they end (see
    ``DaggerRound``); ``load`` reads recordings in the place of the task, such as one that remembers them.
    """
    if Path(config.model).suffix in MODEL_SUFFIXES:
        raise UserError(f"--model names a layer: to learn on from {config.model}, give --first {config.model}.")
    if config.lesson_frames and not config.lessons:
        raise UserError("--lesson-frames is of the rounds of --lessons: name recordings there, or leave it out.")
    check_name(config.model)
    task, device = learning_task(config), check_device(config.device)
    # What can be refused is refused before hours of work, and before a folder is made or deleted.
    env, expert = config.env_spec, None
    if config.dagger and config.expert is not None:
        expert = load_expert(config.expert, discrete_only=False)
    load = load or task.load
    first, new, train, valid = read_data(config, load)
    if first is not None:
        own = as_taught(first)
        config = dataclasses.replace(config, model=own["model"], window=own["window"], out=config.folder)
    if expert is not None and env is not None:
        check_kind(env, expert, new)
        check_pace(env, expert, new.repeat if first is None else first.repeat)
    reads = [config.first, *config.data, *config.lessons]
    folder = result_folder(config.folder, overwrite=config.overwrite, resume=config.resume, reads=reads, own=RUN)
    # Of lessons nothing is kept aside.
    data = {} if config.lessons else {", ".join(map(str, config.data)): fingerprint([*train, *valid])}
    check_resumable(folder, config, FREE_TO_CHANGE, data)
    refuse_more_epochs(config, folder)
    refuse_other_lessons(config, folder)
    began = time.perf_counter()
    if first is not None and config.rounds and not round_path(folder, 0).exists():
        save_policy(first, round_path(folder, 0), first.meta)
    old, lessons = train, list[Sample]()
    for round_ in range(config.rounds + 1):
        done = round_path(folder, round_)
        if round_ > 0 and config.lessons:
            # Of the little that a person shows nothing is kept aside.
            lessons += load(config.lessons[round_ - 1 : round_])
            train, valid = mix(old, lessons, config.lesson_frames, config.seed, round_), []
        elif round_ > 0:
            # Each round keeps some of its own episodes aside: none is ever moved from one side to the other.
            driven = collect_round(config, folder, round_, callbacks, cases)
            learn, keep = task.split(driven, config.valid_share if len(driven) > 1 else 0.0, config.seed + round_)
            train, valid = train + learn, valid + keep
        if done.exists():
            continue
        seed_everything(config.seed)
        policy = first or Policy.new(new, config.model) if round_ == 0 else load_policy(round_path(folder, round_ - 1))
        # All samples so far.
        epochs = config.dagger_epochs if 0 < round_ < config.dagger else config.epochs
        learner: nn.Module = policy.network
        if config.speed_weight:
            learner = SpeedPrediction(policy.network, speeds_of(train), config.speed_weight)
        result = fit(
            learner, task, train, valid, dataclasses.replace(config, epochs=epochs), folder,
            round_=round_, device=device, on_step=callbacks.on_step,
        )  # fmt: skip
        policy.network.to("cpu")
        rewarded = {name: value for name, value in (first.meta if first else {}).items() if name == "reinforced"}
        save_policy(policy, done, describe(config, result, len(train) + len(valid), round_) | rewarded)
        checkpoint_path(folder, round_).unlink(missing_ok=True)
        callbacks.on_round(round_, result)
    final = load_policy(round_path(folder, config.rounds))
    target = folder / config.file_name
    save_policy(final, target, {**final.meta, "session_s": round(time.perf_counter() - began, 1)})
    return target


def learning_task(config: TrainConfig) -> DrivingTask:
    """The task, whose pictures are cut as those of the policy that learns on."""
    first = None if config.first is None else load_policy(find_model(config.first, config.task)).config
    return load_driving_task(config.task, first)


def read_data(
    config: TrainConfig, load: Callable[[tuple[Path, ...]], list[Sample]] | None = None
) -> tuple[Policy | None, PolicyConfig, list[Sample], list[Sample]]:
    """Who learns on, if anybody, what network is new otherwise, what is learnt from, and what is kept aside.

    ``UserError`` for recordings of other actions, or of pictures of another size, than the first policy has learnt
    from, for options of a new network that it has otherwise, and for a memory longer than any episode.
    """
    task = learning_task(config)
    form, folders = config.form, ", ".join(map(str, config.data))
    first = None if config.first is None else load_policy(find_model(config.first, config.task))
    window = config.window or (form if first is None else first.config).window
    if first is not None:
        taught = as_taught(first)
        for option, given, usual, own in (
            ("--model", config.model, TrainConfig.model, taught["model"]),
            ("--window", window, None, taught["window"]),
            ("--paper-form", config.paper_form, False, not first.config.projection),
            ("--no-instruments", not config.instruments, False, first.config.masked_rows is not None),
            ("--between-frames", config.between_frames, False, first.config.between_frames),
        ):
            if given not in (usual, own):
                raise UserError(f"{option} is {given}, and {config.first}, which learns on, has {own}: leave it out.")
    train, valid = task.split((load or task.load)(config.data), config.valid_share, config.seed)
    idle = (None, 0.0, None if first is None else taught.get("class_weights"))
    if config.class_weights not in idle and isinstance(task, Imitation) and is_continuous(train):
        raise UserError(f"--class-weights weighs choices, and {folders}: steering by degrees. Leave it out.")
    if config.speed_weight and bool(speeds_of(train).isnan().all()):
        raise UserError(f"--speed-weight is for recordings that hold the car's speed, not for {folders}: leave it out.")
    longest = max(map(len, (*train, *valid)), default=0)
    if first is None and window > max(longest, form.window):
        raise UserError(f"--window is {window}, and the longest episode has {longest} decisions: give less.")
    if config.between_frames and (window == 1 or form.layer == MEMORYLESS):
        raise UserError(f"--between-frames needs a memory, not --model {MEMORYLESS} or --window 1: leave it out.")
    more = {"between_frames": config.between_frames, "options": form.options, **form.sizes}
    new = task.policy_config(form.layer, window, train, config.instruments, **more)
    for name in ("continuous", "pedal", "height", "width"):
        if first is not None and (own := getattr(first.config, name)) != (there := getattr(new, name)):
            but = f"{name} is {there} there, and {own} in the policy"
            raise UserError(f"{folders}: not what {first.name} has learnt from ({but}).")
    return first, new, train, valid


def speeds_of(samples: Sequence[Sample]) -> Tensor:
    """[N] m/s at every step, NaN where unknown."""
    return torch.cat([s.fields.get("speed", torch.full((len(s),), torch.nan)) for s in samples])


def refuse_more_epochs(config: TrainConfig, folder: Path) -> None:
    """Refuse to go on with a complete run for other epochs, which would do nothing."""
    last = round_path(folder, config.rounds)
    if last.exists() and (epochs := load_policy(last).meta["config"]["epochs"]) != config.epochs:
        raise UserError(
            f"{folder} is complete, trained with --epochs {epochs}, and would not change with --epochs "
            f"{config.epochs}: give another --out."
        )


def refuse_other_lessons(config: TrainConfig, folder: Path) -> None:
    """Refuse to go on from rounds that have learnt other lessons."""
    done = max((k for k in range(1, config.rounds + 1) if round_path(folder, k).exists()), default=0)
    about = load_policy(round_path(folder, done)).meta["config"] if done else {}
    before, out = about.get("lessons", [])[:done], about.get("out") or folder
    # As seen from the result: a teaching has its lessons beside it, and may be moved with them.
    if [relpath(one, out) for one in before] != [relpath(one, folder) for one in config.lessons[:done]]:
        what = f"{folder} has learnt {' '.join(before) or 'no lessons'} up to round {done}"
        raise UserError(f"{what}: give --lessons that begin so, or another --out.")


def round_path(folder: Path, round_: int) -> Path:
    """Where the policy after a round lies."""
    return folder / f"policy-round-{round_}.pt"


def collect_round(
    config: TrainConfig, folder: Path, round_: int, callbacks: TrainCallbacks, cases: Sequence[tuple[int, Drive]]
) -> list[Sample]:
    """Samples of a round of DAgger; what is recorded already is only read."""
    recording = folder / f"dagger-{round_}"
    assert config.expert is not None and config.env_spec is not None
    seen = {"rule": config.rule, "renderer": config.renderer}
    drive = Drive(
        config.env_spec.name,
        round_path(folder, round_ - 1),
        expert=config.expert,
        options=seen | {"max_frames": config.max_frames or OFFICIAL_FRAMES, **config.road.given},
        camera=config.disturbance,
        track=config.track,
        roads=config.roads,
        beta=config.beta * 0.5 ** (round_ - 1),
    )
    count = min(config.dagger_episodes, len(cases))
    turn = ([*cases] * round_)[(round_ - 1) * count : round_ * count]
    mine = tuple((seed, dataclasses.replace(case, model=drive.model, expert=drive.expert)) for seed, case in turn)
    dagger = DaggerRound(
        drive, round_, config.dagger_episodes, config.seed, config.vary_camera, config.bad_starts, mine
    )
    workers = config.processes(config.dagger_episodes)
    collect(dagger, recording, workers, lambda episode: callbacks.on_episode(round_, episode), ray=config.ray)
    return learning_task(config).load([recording])


def describe(config: TrainConfig, result: FitResult, episodes: int, round_: int) -> dict[str, Any]:
    """What a model file says of its training."""
    p = result.progress
    return {
        **run_record(config), "round": round_, "best_epoch": p.best_epoch,
        "valid_loss": p.best_loss if p.best_epoch >= 0 and p.best_loss < float("inf") else None,
        f"valid_{load_driving_task(config.task).measure_name}": p.best_measure,
        "train_frames": result.train_steps, "valid_frames": result.valid_steps, "episodes": episodes,
        "fit_s": round(p.seconds, 1),
    }  # fmt: skip
