"""``nacdrive hunt``: search for episodes that a policy fails and a reference driver passes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nacdrive.common.errors import UserError
from nacdrive.common.files import result_folder, write_json, write_text
from nacdrive.common.paths import find_model
from nacdrive.common.progress import progress_bar, resumable
from nacdrive.common.result_folder import is_own
from nacdrive.common.runs import RUN, check_resumable, plain, run_record
from nacdrive.common.table import markdown
from nacdrive.drivers.options import NOBODY
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.extras.hunt.config import HuntConfig
from nacdrive.extras.hunt.judge import count_areas, knob_map, patterns
from nacdrive.extras.hunt.search import KNOBS, Area, Case, Knob, Search, command, knobs_of
from nacdrive.rollout.drive import Drive, usual_expert
from nacdrive.rollout.results import ResultsFile, Row

if TYPE_CHECKING:
    from nacdrive.extras.hunt.drives import HuntWorker, Work

MINUTES = 15.0
"""Of search, if nobody says how long."""
FILMS = 5
"""Of the worst failures."""
SHOWN = 20
"""Failures in the table of the terminal; the report has all."""
RESULTS, SUMMARY, REPORT, BEFORE = "results.jsonl", "hunt.json", "report.md", "before"
FREE_TO_CHANGE = (
    "minutes", "episodes", "train", "judged", "control", "dagger", "dagger_episodes", "epochs", "data", "out", "resume",
    "overwrite", "device", "workers", "ray",
)  # fmt: skip
"""Options that a resumed hunt may have changed; with the others it would be another search."""


def run(config: HuntConfig) -> dict[str, Any]:
    """Search, drive what failed again, print the list; returns the summary."""
    from nacdrive.extras.hunt.drives import HuntWorker, Work, hunt_results
    from nacdrive.rollout.evaluate import claim, identify

    spec = config.spec
    drive = config.driven(find_model(config.model, spec.task) if config.driver is None else None)
    # What can be refused is refused before a folder is made or deleted.
    import imageio_ffmpeg  # noqa: F401

    driver = drive.load().driver
    if config.expert is None and isinstance(driver, PolicyDriver):
        drive = replace(drive, expert=usual_expert(spec, driver.policy))
    here = HuntWorker(drive, config.least_share)
    _ = here.reference.driver
    if config.train:
        from nacdrive.extras.hunt.correct import correct, learnable, training_of

        training = training_of(config, here, config.folder)
    knobs = [knob for knob in knobs_of(spec, drive, config.areas) if knob.option != "speed" or config.speed is None]
    areas = tuple(area for area in config.areas if area == "seeds" or any(knob.area == area for knob in knobs))
    if not areas:
        raise UserError(f"nothing of {', '.join(config.areas)} is left to search on {spec.name}: give other --areas.")
    reads = [drive.model, drive.driver, drive.expert, *config.data]
    folder = result_folder(config.folder, overwrite=config.overwrite, resume=config.resume, reads=reads, own=RUN)
    check_resumable(folder, config, FREE_TO_CHANGE)
    claim(folder / "drive.json", identify(drive))
    results = hunt_results(folder / RESULTS)
    work = Work(drive, config.least_share, 0 if config.at_once == 1 else config.at_once, config.ray)
    cases, stopped = search(config, work, knobs, areas, results)
    if not stopped:
        drive_again(work, here, results, folder)
    summary = report(config, drive, knobs, results, folder)
    if stopped:
        problem = f"{len(results.rows)} episodes are kept in {folder}"
        raise KeyboardInterrupt(f"{problem}: the same command with --resume goes on, and films what failed.")
    cases.failures = [case_of(row) for row in worst_first(results.rows.values())]
    taught = learnable(cases.failures) if config.train else []
    if config.train and not taught:
        what = "nothing failed but for bad cameras, which this does not mend" if cases.failures else "nothing failed"
        print(f"{what}, so nothing was learnt: search longer (--resume, --minutes), or in other --areas.")
    elif config.train:
        others = [case for row in results.rows.values() if not row["unfair"] and (case := case_of(row)) not in taught]
        summary["train"] = correct(config, work, training, cases, others, folder)
        write_json(folder / SUMMARY, plain({**summary, "run": run_record(config)}))
    return summary


def search(
    config: HuntConfig, work: Work, knobs: Sequence[Knob], areas: Sequence[Area], results: ResultsFile
) -> tuple[Search, bool]:
    """Drive until the budget is spent; the search, and whether Ctrl-C ended it before."""
    ends = time.monotonic() + 60 * (config.minutes or MINUTES)
    timed = config.episodes is None or config.minutes is not None

    def more(count: int) -> bool:
        return (config.episodes is None or count < config.episodes) and not (timed and time.monotonic() > ends)

    cases = Search(knobs, areas, config.seed, dict(results.rows), more)
    failed = sum(row["failed"] for row in results.rows.values())
    try:
        with progress_bar() as bar, work.do("judge", cases) as done:
            task = bar.add_task("searching", total=config.episodes, state="")
            for case, row in done:
                results.add({**row, "command": command(case, work.drive)})
                cases.add(case, failed=row["failed"])
                failed += row["failed"]
                if row["failed"]:
                    bar.console.print(f"{failed}: {describe(row)}")
                left = f", {max(0.0, ends - time.monotonic()) / 60:.1f} minutes left" if timed else ""
                state = f"{failed} failures in {len(results.rows)} episodes{left}"
                bar.update(task, completed=len(results.rows), state=state)
    except KeyboardInterrupt:
        return cases, True
    return cases, False


def drive_again(work: Work, here: HuntWorker, results: ResultsFile, folder: Path) -> None:
    """Drive each failure again: to record the moments before it, film the worst, and see whether it repeats."""
    from nacdrive.datasets.writer import RecordingWriter
    from nacdrive.extras.hunt.drives import Replay

    ranked = worst_first(results.rows.values())
    films = {row["seed"]: folder / f"worst_{place}_{row['seed']}.mp4" for place, row in enumerate(ranked[:FILMS], 1)}
    for old in folder.glob("worst_*.mp4"):
        if old not in films.values() and is_own(old):
            old.unlink()
    for row in ranked[FILMS:]:
        if row.get("film"):
            results.add({**row, "film": None})
    expert = here.reference.driver.name if here.labels else NOBODY
    source = here.loaded.spec.source
    missing = [
        Replay(case_of(row), row["failed_s"], films.get(row["seed"]))
        for row in ranked
        if "repeats" not in row or (row["seed"] in films and not films[row["seed"]].exists())
    ]
    if not missing:
        return
    writer = RecordingWriter(folder / BEFORE, source=source, fps=here.loaded.fps, expert=expert, resume=True)
    kept = {info.seed for info in writer.episodes}
    with resumable(lambda: f"what was filmed is kept in {folder}"), progress_bar() as bar:
        task = bar.add_task("again", total=len(missing), state="failures, for films and the recording")
        with work.do("replay", missing) as done:
            for replay, (again, episode) in done:
                row = results.rows[replay.case.seed]
                same = again["episode_return"] == row["episode_return"] and again["decisions"] == row["decisions"]
                film = {"film": replay.film.name} if replay.film is not None else {}
                if episode is not None and episode.seed not in kept:
                    writer.add(episode)
                results.add({**row, "repeats": same, **film})
                bar.update(task, advance=1)


def case_of(row: Row) -> Case:
    """The case that a row is of."""
    return Case(row["number"], row["area"], row["seed"], row["knobs"], row["near"])


def worst_first(rows: Any) -> list[Row]:
    """The failures; of the worst the return is farthest below the reference's."""
    failed = [row for row in rows if row["failed"]]
    return sorted(failed, key=lambda row: (row["episode_return"] - (row["reference_return"] or 0), row["seed"]))


def report(
    config: HuntConfig, drive: Drive, knobs: Sequence[Knob], results: ResultsFile, folder: Path
) -> dict[str, Any]:
    """Write and print what there is; returns the summary."""
    rows = sorted(results.rows.values(), key=lambda row: row["number"])
    ranked, shown = worst_first(rows), patterns(rows, knobs)
    again = [row["repeats"] for row in ranked if "repeats" in row]
    counts = count_areas(rows)
    unfair = sum(row["unfair"] for row in rows)
    where = f"{drive.name} on {drive.env_spec.title}"
    columns = ("where they fail, near failures too", "as usual", "thirds at", "lowest", "middle", "highest")
    lines = [
        f"{where}: fails {len(ranked)} of {len(rows)} episodes that {drive.expert} passes"
        + (f"; {unfair} both fail" if unfair else "")
        + (f"; driven again, {sum(again)} of {len(again)} failures are the same to the decision" if again else "")
        + ".",
        "",
        *markdown(
            ("searched", "failed", "near failures", "both fail"),
            (
                (area, f"{n['failed']} of {n['drawn']}", f"{n['near_failed']} of {n['near']}", str(n["unfair"]))
                for area, n in counts["areas"].items()
            ),
        ),
        "",
        *([*markdown(columns, by_knob), ""] if (by_knob := knob_map(rows, knobs)) else []),
        *(["Fails more often (of the episodes drawn regardless of failures):", ""] if shown else []),
        *(f"- {pattern}" for pattern in shown),
        *(["Nothing is shown to go with failing: too few episodes, or no one cause."] if not shown and ranked else []),
        "",
    ]
    header = ("", "seed", "what", "after", "return", "reference", "knobs")
    table = [
        (
            str(place), str(row["seed"]), str(row["fault"]), f"{row['failed_s']:.1f} s",
            f"{row['episode_return']:.0f}", f"{row['reference_return']:.0f}", in_words(row["knobs"]),
        )
        for place, row in enumerate(ranked, 1)
    ]  # fmt: skip
    print("\n".join(lines + markdown(header, table[:SHOWN])) if ranked else "\n".join(lines))
    commands = [f"{place}. `{row['command']}`" for place, row in enumerate(ranked, 1)]
    listed = [*markdown(header, table), "", "Again:", "", *commands, ""] if ranked else []
    write_text(folder / REPORT, "\n".join([*lines, *listed]))
    summary = {
        "episodes": len(rows), "failures": len(ranked), "unfair": unfair,
        "repeated": {"driven": len(again), "same": sum(again)}, **counts, "patterns": plain(shown),
        "worst": [{name: row.get(name) for name in LISTED} for row in ranked],
    }  # fmt: skip
    write_json(folder / SUMMARY, {**summary, "run": run_record(config)})
    if len(ranked) > SHOWN:
        print(f"and {len(ranked) - SHOWN} more")
    print(f"{'commands that repeat them' if ranked else 'report'}: {folder / REPORT}")
    return summary


LISTED = ("seed", "fault", "failed_s", "episode_return", "reference_return", "knobs", "command", "film", "repeats")
"""Of a failure's row, what the summary says."""


def in_words(knobs: dict[str, float]) -> str:
    """Knobs and their values for people."""
    words = {knob.option: knob.words for knob in KNOBS}
    return ", ".join(f"{words[name]} {value:g}" for name, value in knobs.items()) or "-"


def describe(row: Row) -> str:
    """A failure in a line."""
    return (
        f"seed {row['seed']}: {row['fault']} after {row['failed_s']:.1f} s, return {row['episode_return']:.0f} "
        f"(reference {row['reference_return']:.0f}); {in_words(row['knobs'])}"
    )
