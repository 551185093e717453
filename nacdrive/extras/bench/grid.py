"""The grid of models x tasks x folds x seeds: which cells there are, which are done, and computing the others."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, get_args

from nacdrive.common.errors import UserError
from nacdrive.common.files import result_folder, write_text
from nacdrive.common.parallel import run_jobs
from nacdrive.common.paths import shipped
from nacdrive.common.runs import RUN, check_resumable
from nacdrive.datasets.synthetic import GENERATORS, generate, is_synthetic
from nacdrive.extras.bench.cell import REFERENCES, Cell, Result, cell_folder, compute_cell, failure, lost_process
from nacdrive.extras.bench.config import TableConfig
from nacdrive.extras.bench.paper import in_order
from nacdrive.layers import names
from nacdrive.layers.registry import LAYERS, of_lag
from nacdrive.models.files import check_device
from nacdrive.tasks import load_task
from nacdrive.tasks.base import ProtocolName, Size
from nacdrive.tasks.registry import PAPER_TASKS, trained_on
from nacdrive.tasks.series import SeriesTask
from nacdrive.tasks.splits import fingerprint
from nacdrive.training.log import read_rows

RESULTS = "results.jsonl"
FREE_TO_CHANGE = (
    "tasks", "models", "seeds", "references", "workers", "ray", "out", "resume", "overwrite", "device", "hours",
)  # fmt: skip
"""Options that a resumed run may have changed; with the others its cells could not stand in one table."""
# Optimizers import torch._dynamo when the first of them is made, which takes seconds.
PRELOADED = ("nacdrive.extras.bench.cell", "torch._dynamo", "torch.utils.tensorboard")
EVALUATED_FOLDERS: dict[str, tuple[str, ...]] = {
    "xjtu-sy": ("xjtu-sy", "xjtu_sy", "xjtu_features"),
    "hust": ("hust", "hust_features"),
}
"""Folders of tasks that are tested with the model of another."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """Everything that a run computes."""

    cells: list[Cell]  # in the order of computing
    data_dirs: dict[str, Path]  # folder of each task's data
    folder: Path
    learnt: dict[str, str]  # fingerprint of what the models of each task that trains learn from


def plan(config: TableConfig, *, claim: bool = True) -> Grid:
    """Check names and data, claim the folder, list the cells; without ``claim`` nothing is written or made up."""
    groups, folder, made_up = tasks_by_training(config), config.folder, None
    if claim:
        check_device(config.device)
        # Data are made up before there is a record.
        own = "" if (folder / "made-up").is_dir() else RUN
        result_folder(folder, overwrite=config.overwrite, resume=config.resume, own=own)
        made_up = folder / "made-up" if config.budget == "smoke" else None
    tasks = dict.fromkeys([*groups, *(task for tested in groups.values() for task in tested)])
    grid = grid_of(config, groups, find_data_dirs(tasks, config.data, made_up))
    if claim:
        check_resumable(folder, config, FREE_TO_CHANGE, grid.learnt)
    return grid


def find_data_dirs(tasks: Iterable[str], data: Path, made_up: Path | None) -> dict[str, Path]:
    """Folder of each task's data within ``data``; a task that needs none has none.

    What is absent is made up in ``made_up``, or a mistake without that; the sentence names all of it.
    """
    folders, absent = {}, []
    for task in tasks:
        loaded = load_task(task)
        # The usual name first; it may be that of an archive NAME.tar.xz.
        names = EVALUATED_FOLDERS.get(task, loaded.data_folders)
        names = (task.rpartition(":")[2],) if names is None else names
        candidates = [data / f"{name}{ending}" for name in names for ending in ("", ".tar.xz")]
        place = next((c for c in candidates if c.is_file() or (c.is_dir() and any(c.iterdir()))), None)
        if place is not None:
            folders[task] = place
        elif made_up is not None and task in GENERATORS:
            generate(task, made_up / task)
            folders[task] = made_up / task
        elif made_up is not None and loaded.sample_recording is not None:
            folders[task] = shipped("recordings") / loaded.sample_recording
        elif names:
            absent.append(f"{data / names[0]} ({task})")
    if absent:
        what = f"there are no data in {', '.join(absent)}"
        raise UserError(f"{what}: see 'nacdrive data fetch', name their folder with --data, or drop the task.")
    return folders


def describe(data_dirs: dict[str, Path]) -> list[str]:
    """One line per task: where its data come from, and whether they are any."""
    return [
        f"{task}: MADE-UP DATA, not {task}" if is_synthetic(folder) else f"{task}: {folder}"
        for task, folder in data_dirs.items()
    ]


def tasks_by_training(config: TableConfig) -> dict[str, list[str]]:
    """The tasks that are asked for, by the task whose models are tested on them."""
    check_models(config.models)
    groups: dict[str, list[str]] = {}
    for name in list(config.tasks) or [t for t in PAPER_TASKS if load_task(t, config.protocol).metrics_of(t)]:
        groups.setdefault(trained_on(name), []).append(name)
        task = load_task(name, config.protocol)
        if not task.metrics_of(name):
            others = " or ".join(protocol for protocol in task.protocols if protocol != config.protocol)
            why = task.note_of(name) if config.protocol in task.protocols else f"give {others}."
            raise UserError(f"{name} has no place under --protocol {config.protocol}: {why}")
    fixed = [name for name in groups if config.parameters and not isinstance(load_task(name), SeriesTask)]
    if fixed:
        raise UserError(f"the network of {fixed[0]} has no width to choose: leave --parameters out.")
    return groups


def grid_of(config: TableConfig, groups: dict[str, list[str]], data_dirs: dict[str, Path]) -> Grid:
    """What ``config`` asks for."""
    models = in_order(list(dict.fromkeys(config.models)) or names(ablations=True))
    cells, learnt = list[Cell](), {}
    for trained, tested in groups.items():
        wanted = tuple(dict.fromkeys([trained, *tested]))
        common: dict[str, Any] = {
            **{"task": trained, "tasks": wanted, "folds": config.fold_count, "size": size(config, trained)},
            **{name: getattr(config, name) for name in ("protocol", "seed", "device", "learning_rates", "parameters")},
            "data_dirs": {name: data_dirs[name] for name in wanted if name in data_dirs},
        }
        folds = load_task(trained, config.protocol).folds(
            common["data_dirs"], config.fold_count, config.seed, common["size"]
        )
        if config.learning_rates and not folds[0].valid:
            raise UserError(f"{trained} has no validation part to choose --learning-rates by: leave them out.")
        learnt[f"{trained}, all of it"] = fingerprint(sample for fold in folds for sample in (*fold.train, *fold.valid))
        for fold in range(len(folds)):
            kinds = [(REFERENCES, 0)] if config.references else []
            kinds += [(model, repeat) for repeat in range(config.seeds) for model in models]
            for model, repeat in kinds:
                cell = Cell(**common, model=model, fold=fold, repeat=repeat, folder=config.folder)
                cells.append(dataclasses.replace(cell, folder=cell_folder(config.folder, cell.key)))
    # Fold by fold, then seed by seed: the table of a run that is stopped half way is whole as far as it goes.
    cells.sort(key=lambda cell: (cell.repeat, cell.fold))
    return Grid(cells, data_dirs, config.folder, learnt)


def check_models(models: Sequence[str]) -> None:
    """Raise a ``UserError`` for a sequence layer that is unknown, or a user's own that cannot be imported."""
    for model in models:
        LAYERS.load(of_lag(model) or model)


def left_out(config: TableConfig) -> dict[str, str]:
    """Tasks that all tasks do not include under this protocol, and why, in a line each."""
    # The challenge is about one task; which others it lacks is no news.
    if config.tasks or config.protocol == "challenge":
        return {}
    return {
        name: f"{name}: only under --protocol {other_protocol(config)}. {task.note_of(name)}"
        for name in PAPER_TASKS
        if not (task := load_task(name, config.protocol)).metrics_of(name)
    }


def other_protocol(config: TableConfig) -> ProtocolName:
    """The one that ``config`` does not ask for."""
    return "paper" if config.protocol == "sequence" else "sequence"


def rest_of_smoke(config: TableConfig) -> TableConfig | None:
    """A smoke run of every task also runs those of the other protocol: in a table of their own, in a folder within."""
    tasks = tuple(left_out(config))
    if config.budget != "smoke" or not tasks:
        return None
    other = other_protocol(config)
    return dataclasses.replace(config, tasks=tasks, protocol=other, out=config.folder / other)


def size(config: TableConfig, task: str) -> Size:
    """The budget of one training, with what the command line says."""
    given = {"epochs": config.epochs, "max_samples": config.most, "drive": config.drive}
    return dataclasses.replace(
        load_task(task).sizes[config.budget], **{name: value for name, value in given.items() if value}
    )


def finished(folder: Path) -> dict[str, Result]:
    """Results in a run's folder by cell; of a cell that was computed again, the last."""
    return {row["key"]: row for row in read_cells(folder / RESULTS)}


FIELDS: dict[str, type] = {
    **dict.fromkeys(("key", "task", "model", "status"), str),
    **dict.fromkeys(("asked", "made_up"), list),
}
"""What a result must hold, ..."""
OF_STATUS: dict[str, dict[str, type]] = {"done": {"scores": dict, "record": dict, "fold": int}, "failed": {"kind": str}}
"""... and what besides."""
NUMBERS = ("repeat", "epochs", "train_sequences", "parameters", "train_s", "wall_s", "cpu_s")
"""What it may hold."""
OF_TRAINING = ("epochs", "train_sequences", "train_s", "wall_s")
"""What of these a layer's result must."""


def read_cells(path: Path) -> list[Result]:
    """Results of cells from a file of JSON lines."""
    rows = read_rows(path)
    for row in rows:
        if not {"key", "status", "asked"} <= set(row):
            raise UserError(f"{path} holds lines that are no results of 'nacdrive bench table': name another file.")
        if (why := row_problem(row)) is not None:
            raise UserError(f"{path} holds a damaged result ({why}): compute that cell again, or leave the line out.")
    return rows


def row_problem(row: Result) -> str | None:
    """What keeps a cell from being shown or compared, or None."""
    status = str(row["status"])
    if status not in OF_STATUS:
        return f"its status is {status[:40]!r}"
    wrong = [name for name, kind in (FIELDS | OF_STATUS[status]).items() if not isinstance(row.get(name), kind)]
    wrong += [name for name in NUMBERS if not isinstance(row.get(name, 0), (int, float))]
    wrong += [name for name in OF_TRAINING if status == "done" and name not in row and row.get("model") != REFERENCES]
    references = row.get("references", {} if row.get("model") != REFERENCES or status == "failed" else None)
    if wrong or not isinstance(references, dict):
        return f"{', '.join(wrong or ['references'])} missing or of another type"
    if status == "failed":
        return None
    config = row["record"].get("config")
    if not isinstance(config, dict) or not {"protocol", "size", "folds", "seed"} <= set(config):
        return "it does not say how it was made"
    if config["protocol"] not in get_args(ProtocolName):
        return f"there is no protocol {str(config['protocol'])[:40]!r}"
    named = [row["scores"], *references.values()]
    tested = [values for scores in named for values in (scores.values() if isinstance(scores, dict) else [None])]
    numbers = [score for values in tested for score in (values.values() if isinstance(values, dict) else [None])]
    return None if all(isinstance(score, (int, float, list)) for score in numbers) else "a score is no number"


def compute(
    grid: Grid,
    config: TableConfig,
    on_progress: Callable[[Cell, dict[str, Any]], None],
    on_result: Callable[[Cell, Result], None],
    *,
    until: float = math.inf,
) -> dict[str, Result]:
    """Compute what is missing, keep each result at once; returns the results of the cells of the grid that have one.

    At ``until`` (of ``time.monotonic``) cells under way are ended; they keep their checkpoints.

    Each cell has a process of its own, and one that is killed takes no other with it. On a Ray cluster the data and
    the run's folder must lie under the same paths on every node.
    """

    def listen(cell: Cell, news: dict[str, Any]) -> None:
        """A cell under way reports twice a second."""
        on_progress(cell, news)
        if time.monotonic() > until:
            raise TimeUpError

    results = finished(grid.folder)
    for cell in grid.cells:
        if complete(with_rate(cell, results), results.get(cell.key)):
            on_result(cell, results[cell.key])
    path = grid.folder / RESULTS
    # A line that a crash cut short must not swallow the next.
    write_text(path, "".join(json.dumps(row) + "\n" for row in results.values()))
    with path.open("a", encoding="utf-8") as file, suppress(TimeUpError):
        # The cells that choose a learning rate come before those that take it.
        for turn in (True, False):
            cells = [with_rate(cell, results) for cell in grid.cells if cell.chooses == turn]
            computed = run_jobs(
                compute_cell, [cell for cell in cells if not complete(cell, results.get(cell.key))],
                workers=config.workers if config.ray else config.parallel, ray=config.ray or None, preload=PRELOADED,
                on_message=listen, on_lost=lambda cell, exit_code: failure(cell, *lost_process(exit_code)),
                max_tasks_per_child=1, gpus=float(config.device.startswith("cuda")),
            )  # fmt: skip
            with closing(computed):
                for cell, result in computed:
                    results[cell.key] = result
                    file.write(json.dumps(result, allow_nan=False) + "\n")
                    file.flush()
                    on_result(cell, result)
                    if time.monotonic() > until:
                        raise TimeUpError
    return {cell.key: results[cell.key] for cell in grid.cells if cell.key in results}


def with_rate(cell: Cell, results: Mapping[str, Result]) -> Cell:
    """``cell`` with the learning rate that its model's first one has chosen, if it is to have it."""
    if not cell.learning_rates or cell.chooses:
        return cell
    first = results.get(dataclasses.replace(cell, fold=0, repeat=0).key, {})
    # Where that cell failed, the task's own is as good as any.
    return dataclasses.replace(cell, learning_rate=first.get("fit", {}).get("learning_rate"))


class TimeUpError(Exception):
    """The time that was given is over."""


def complete(cell: Cell, result: Result | None) -> bool:
    """Whether a result holds everything that is asked of a cell, at the learning rate that its model's first chose."""
    if not result or result["status"] != "done" or not set(cell.tasks) <= set(result["asked"]):
        return False
    return cell.chooses or cell.learning_rate in (None, result.get("fit", {}).get("learning_rate"))
