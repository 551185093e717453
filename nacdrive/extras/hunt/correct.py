"""``nacdrive hunt --train``: DAgger from the episodes that failed, mixed with the old data, judged before and after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nacdrive.common.errors import UserError
from nacdrive.common.files import write_json
from nacdrive.common.foreign_json import read_object
from nacdrive.common.progress import progress_bar, resumable
from nacdrive.common.runs import check_resumable, plain
from nacdrive.common.statistics import paired_difference
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.writer import RecordingWriter
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.envs.seeds import POLICY_TEST
from nacdrive.extras.hunt.config import HuntConfig
from nacdrive.extras.hunt.drives import HuntWorker, Work, hunt_results
from nacdrive.extras.hunt.search import EPISODES, Case, Search
from nacdrive.models.policy import Policy
from nacdrive.rollout.dagger import check_kind, check_pace
from nacdrive.rollout.results import Row
from nacdrive.rollout.train_config import FREE_TO_CHANGE, TrainConfig, as_taught
from nacdrive.rollout.train_policy import TrainCallbacks, learning_task, read_data, train_policy
from nacdrive.training.fit import FitUpdate
from nacdrive.viz.report import between

LEARNING_RATE = 3e-4
"""A third of the usual: it learns on."""
TRAINED, CONTROL, KEPT = "train", "control", "kept"
"""Folders within the hunt's: trainings from the failures and, undisturbed, on their tracks; the policy's drives."""
FIRST_JUDGED = POLICY_TEST.start + 500_000
"""Seed of the first track on which it is judged whether learning has helped."""


def training_of(config: HuntConfig, here: HuntWorker, folder: Path) -> TrainConfig:
    """How the policy is to learn, in the hunt's ``folder``; ``UserError`` if it cannot so, or began otherwise."""
    driver, reference = here.loaded.driver, here.reference.driver
    policy = driver.policy if isinstance(driver, PolicyDriver) else None
    if not isinstance(policy, Policy):
        raise UserError(f"--train teaches a policy of a .pt file, and {driver.name} is none.")
    check_kind(here.loaded.spec, reference, policy.config)
    check_pace(here.loaded.spec, reference, policy.repeat)
    same = ("data", "env", "dagger", "dagger_episodes", "epochs", "seed", "workers", "ray", "device")
    training = TrainConfig(
        **{name: getattr(config, name) for name in same}, **as_taught(policy, drives=True), first=Path(config.model),
        expert=here.drive.expert, dagger_epochs=config.epochs, learning_rate=LEARNING_RATE, out=folder / TRAINED,
        resume=True,
    )  # fmt: skip
    if config.resume:
        check_resumable(training.folder, training, [x for x in FREE_TO_CHANGE if x != "epochs"], write=False)
    read_data(training)
    return training


def draw_cases(config: HuntConfig, search: Search, others: Sequence[Case], path: Path) -> dict[str, list[Case]]:
    """What is learnt from, of the ``others`` those in which the policy is ``kept`` as it is, at most twice as many, and
    what is judged: of the failures' ``kind``, and ``plain``. Once drawn it stands in the file ``path``, so that a
    training that goes on has the same; more rounds are added.
    """
    if path.exists():
        stored = {name: [Case(**case) for case in cases] for name, cases in {"kept": [], **read_object(path)}.items()}
    else:
        end, most = FIRST_JUDGED + config.judged, 2 * config.dagger * config.dagger_episodes
        chosen = np.random.default_rng(config.seed).permutation(len(others))[:most]
        stored = {
            "kept": [others[k] for k in sorted(chosen)], "learn": [],
            "kind": [of_kind(search, search.failures, k) for k in range(FIRST_JUDGED, end)],
            "plain": [Case(k, "seeds", k, {}) for k in range(end, end + config.judged)],
        }  # fmt: skip
    if (judged := len(stored["plain"])) != config.judged:
        problem = f"{path.parent} was begun with --judged {judged} instead of {config.judged}"
        raise UserError(f"{problem}: resume with the same, or give another --out.")
    failures, learn, count = learnable(search.failures), stored["learn"], config.dagger_episodes
    again = min((count + 1) // 2, len(failures))
    for round_ in range(len(learn) // count, config.dagger):
        # Every round has other failures, until all have had their turn.
        learn += (failures * (round_ + 1))[round_ * again : (round_ + 1) * again]
        first = search.first_seed + EPISODES // 2 + round_ * count
        learn += [of_kind(search, failures, k) for k in range(first, first + count - again)]
    write_json(path, plain(stored))
    return stored


def learnable(failures: Sequence[Case]) -> list[Case]:
    """Those that the reference can show the way out of: what a bad camera hides cannot be done as one who sees does."""
    return [case for case in failures if case.area != "cameras"]


def of_kind(search: Search, failures: Sequence[Case], seed: int) -> Case:
    """A case of the kind of the ``failures`` on the track of ``seed``."""
    return search.near(seed, seed, failures) or Case(seed, "seeds", seed, {})


def correct(
    config: HuntConfig, work: Work, training: TrainConfig, search: Search, others: Sequence[Case], folder: Path
) -> dict[str, Any]:
    """Teach the policy what it failed, and say what that changed on other tracks: its path, and how often each policy
    fails episodes of that kind and what it drives undisturbed.

    ``search`` knows the failures, the worst first, and draws more of their kind; in ``others``, of which nothing is
    taught, the policy is to stay as it is. In ``folder``, the hunt's, the training goes on where an earlier call was
    stopped.
    """
    drive = work.drive
    cases = draw_cases(config, search, others, folder / "cases.json")
    own, task = keep(work, cases["kept"], folder / KEPT), learning_task(training)
    fresh = [*cases["kind"], *cases["plain"]]
    before = judge(work, fresh, folder / "before.jsonl", "before")

    def load(data: Sequence[Path]) -> list[Any]:
        # Where the hunt lies is no part of how the training was begun.
        return task.load([*data, *own])

    def teach(name: str, rows: str, lessons: Sequence[Case]) -> tuple[Path, dict[int, Row]]:
        resume = resumable(lambda: f"the last checkpoint is kept in {folder / name}")
        with resume, show_training(config, name) as callbacks:
            learnt = [(case.seed, case.of(drive)) for case in lessons]
            path = train_policy(replace(training, out=folder / name), callbacks, cases=learnt, load=load)
        # Who learns more rounds later is another policy.
        taught = replace(work, drive=replace(drive, model=path))
        return path, judge(taught, fresh, folder / f"{rows}-{config.dagger}.jsonl", f"after {name}")

    path, after = teach(TRAINED, "after", cases["learn"])
    result = {"model": path, **change(cases, before, after)}
    print(in_words(result, "before", len(cases["plain"])))
    if config.control:
        path, control = teach(CONTROL, CONTROL, [replace(case, knobs={}) for case in cases["learn"]])
        result["control"] = {"model": path, **change(cases, control, after)}
        print("against as many drives on the same tracks, undisturbed:")
        print(in_words(result["control"], "of the control", len(cases["plain"])))
    print(f"{verdict(result)}\npolicy: {result['model']}")
    return result


def keep(work: Work, cases: Sequence[Case], folder: Path) -> list[Path]:
    """Record what the policy does in these episodes in ``folder``, the missing ones alone; the folder, if any."""
    if not cases:
        return []
    here = work.drive.load()
    writer = RecordingWriter(folder, source=here.spec.source, fps=here.fps, expert=here.driver.name, resume=True)
    there = {info.seed for info in writer.episodes}
    missing = [case for case in cases if case.seed not in there]
    with resumable(lambda: f"what was driven is kept in {folder}"), progress_bar() as bar:
        task = bar.add_task("kept", total=len(missing), state="what it is not to unlearn")
        with work.do("keep", missing) as done:
            for _, episode in done:
                writer.add(episode)
                bar.update(task, advance=1)
    return [folder]


def change(cases: dict[str, list[Case]], old: dict[int, Row], new: dict[int, Row]) -> dict[str, Any]:
    """How often each of two policies fails the fresh episodes, and what the new one gains undisturbed."""
    pairs = [(old[case.seed], new[case.seed]) for case in cases["kind"]]
    fair = [(one, other) for one, other in pairs if not (one["unfair"] or other["unfair"])]
    failed = [[float(row["failed"]) for row in rows] for rows in zip(*fair, strict=True)]
    returns = [[rows[case.seed]["episode_return"] for case in cases["plain"]] for rows in (new, old)]

    def counted(pairs: Sequence[tuple[Row, Row]]) -> dict[str, int]:
        before, after = (sum(pair[k]["failed"] for pair in pairs) for k in (0, 1))
        return {"episodes": len(pairs), "failed_before": before, "failed_after": after}

    areas = {area: counted([p for p in fair if p[0]["area"] == area]) for area in sorted({p[0]["area"] for p in fair})}
    return {
        **counted(fair), "areas": areas,
        "fewer": paired_difference(*failed) if fair else None, "undisturbed_gain": paired_difference(*returns),
    }  # fmt: skip


def judge(work: Work, cases: Sequence[Case], path: Path, title: str) -> dict[int, Row]:
    """Rows of the cases by their seeds; those that are in ``path`` are not driven again."""
    results = hunt_results(path)
    missing = [case for case in cases if case.seed not in results.rows]
    with resumable(lambda: f"{len(results.rows)} of {len(cases)} drives are kept in {path}"), progress_bar() as bar:
        task = bar.add_task(title, total=len(missing), state="fresh tracks")
        with work.do("judge", missing) as done:
            for _, row in done:
                results.add(row)
                bar.update(task, advance=1)
    return results.rows


@contextmanager
def show_training(config: HuntConfig, name: str) -> Iterator[TrainCallbacks]:
    """A bar for a training."""
    with progress_bar() as bar:
        task = bar.add_task(name, total=None, state="reading the recordings")

        def on_step(update: FitUpdate) -> None:
            p = update.progress
            state = f"round {p.round}, epoch {p.epoch + 1} of {update.epochs}, loss {update.train_loss:.3f}"
            bar.update(task, total=update.steps * update.epochs, completed=update.steps * p.epoch + p.step, state=state)

        def on_episode(round_: int, episode: Episode) -> None:
            state = f"round {round_}: seed {episode.seed}, {len(episode)} frames, {episode.meta['ended']}"
            bar.update(task, total=config.dagger_episodes, state=state)

        yield TrainCallbacks(on_step=on_step, on_episode=on_episode)


def in_words(result: dict[str, Any], old: str, plain: int) -> str:
    """What the training changed, against the ``old`` policy."""

    def sure(numbers: dict[str, Any] | None, form: str, unit: str = "") -> str:
        if numbers is None or numbers["interval95"] is None:
            return "too few to say"
        return f"{numbers['value']:{form}}{unit}, {between(numbers['interval95'], form)}"

    areas = result["areas"]
    parts = [f"{area} {a['failed_before']} -> {a['failed_after']} of {a['episodes']}" for area, a in areas.items()]
    each = f": {', '.join(parts)}" if len(parts) > 1 else ""
    return (
        f"fresh episodes of that kind: {result['failed_before']} of {result['episodes']} failed {old}, "
        f"{result['failed_after']} after ({sure(result['fewer'], '+.0%', ' fewer')}){each}\n"
        f"undisturbed, {plain} other tracks: return {sure(result['undisturbed_gain'], '+.1f')}"
    )


def verdict(result: dict[str, Any]) -> str:
    """Which policy to keep, by what is shown."""
    gain, fewer = (result[name] and result[name]["interval95"] for name in ("undisturbed_gain", "fewer"))
    if gain and gain[1] < 0:
        return "undisturbed it is shown to be worse: keep the policy of before."
    if fewer and fewer[0] > 0:
        return "it is shown to fail less often, and not shown to be worse undisturbed: keep this one."
    return (
        "that it fails less often is not shown: keep the policy of before, or teach more rounds (--resume, --dagger)."
    )
