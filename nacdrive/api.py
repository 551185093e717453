"""The functions behind the public names of ``nacdrive``: the verbs' own work, called with Python's objects.

Options are those of the verb of that name, with underscores: ``noise`` is ``disturbance=CameraNoise(noise=...)``, and
``--no-videos`` does not come up, for nothing is written but what a function is asked to write. All of them work in this
process; ``workers=N`` takes N processes, and a script that asks for them keeps its calls behind
``if __name__ == "__main__":``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

from nacdrive.common.errors import UserError, instead_of, quoted
from nacdrive.common.optional import named_extras
from nacdrive.common.paths import find_model, find_recording
from nacdrive.common.result_folder import release_folders

if TYPE_CHECKING:
    from nacdrive.datasets.recording import Recording
    from nacdrive.drivers.exported import ExportedPolicy
    from nacdrive.envs.base import DrivingEnv
    from nacdrive.models.policy import Policy
    from nacdrive.rollout.loading import Who, World

    Data: TypeAlias = str | Path | Recording


@dataclass(frozen=True, repr=False)
class Evaluation:
    """What came of the drives of a policy on tracks of their own."""

    returns: list[float]
    """Of each episode."""
    metrics: dict[str, Any]
    """What ``nacdrive eval`` writes of all episodes together: ``return`` with its 95 % interval, ``expert_fraction``,
    ``safety_stops``, ... and on tracks with names ``tracks``."""
    episodes: list[dict[str, Any]]
    """A row per episode: seed, return, progress, how it ended, ..."""
    expert_episodes: list[dict[str, Any]]
    """The same of the expert on the same tracks; empty where none was asked for."""

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(self.metrics["return"]["mean"])

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the mean over tracks; None of a single episode."""
        bounds = self.metrics["return"]["interval95"]
        return None if bounds is None else (float(bounds[0]), float(bounds[1]))

    def __repr__(self) -> str:
        sure = "" if self.interval is None else " (95 %: {:.1f} to {:.1f})".format(*self.interval)
        stops = f", {count} ended by the safety stop" if (count := self.metrics.get("safety_stops")) else ""
        return f"Evaluation(return {self.mean:.1f}{sure} over {len(self.returns)} episodes{stops})"


def path_of(given: Any, what: str) -> Path:
    """``given`` as a path; ``UserError`` for what is none."""
    with instead_of(TypeError, f"{given!r} is no {what}: give its name or path."):
        return Path(given)


@named_extras()
def load_policy(
    name: str | Path, *, device: str = "cpu", layer: str | None = None, trust: Sequence[str] = (), **options: Any
) -> Policy | ExportedPolicy:
    """A policy: the name of a shipped one, such as ``nac_steady`` or ``udacity/pilotnet``, or a file (also ``.onnx``).

    With ``layer`` its convolutions and head stay, around another sequence layer with its ``options``, untrained.
    ``trust`` names the modules whose code the file may name.

    Raises:
        UserError: if there is none, or its file is damaged or no policy.
    """
    from nacdrive.common import plugins
    from nacdrive.drivers.exported import load_any_policy
    from nacdrive.layers import check_name
    from nacdrive.models.policy import Policy

    if options and layer is None:
        raise UserError(f"{', '.join(options)}: such options are a layer's, and none is given: say layer=NAME too.")
    plugins.trust(*trust)
    policy = load_any_policy(path_of(name, "policy"), device=device)
    if layer is None:
        return policy
    check_name(layer)
    if not isinstance(policy, Policy):
        raise UserError(f"{name} is a graph, whose layer cannot be exchanged: give the .pt file.")
    with quoted(f"{layer} cannot be made with these options (", "): see docs/sequence.md.", TypeError, ValueError):
        return policy.with_layer(layer, **options)


@named_extras()
def make_env(name: str = "carracing", **options: Any) -> DrivingEnv:
    """What ``--env`` names, as a Gymnasium environment that takes an ``Action`` too, with colours.

    Args:
        name: ``carracing``, ``udacity-track``, ``gym:ID``, ``module:make_env``, ...
        options: Of the environment, such as ``renderer``, ``repeat``, ``max_frames``, ``continuous``, ``track``.

    Raises:
        UserError: if there is none of that name, or it has no such option.
    """
    from nacdrive.envs.registry import env_spec

    spec = env_spec(name)
    return spec.make(({"colours": True} if "colours" in signature(spec.build).parameters else {}) | options)


@named_extras()
def evaluate(
    policy: Who = "nac_steady", env: World = "carracing", episodes: int = 20, *, workers: int = 0, **options: Any
) -> Evaluation:
    """Drive tracks that no policy learns from, as ``nacdrive eval`` does, and write nothing.

    ``expert="ppo"`` drives them too, and ``seed`` is that of the first. Of several tracks with names each is driven
    ``episodes`` times.

    Raises:
        UserError: as the verb; for ``workers`` with what cannot travel to another process.
    """
    from nacdrive.rollout.evaluate import EvalJob, RolloutWorker, by_track, drive_jobs, numbers
    from nacdrive.rollout.loading import load_drive

    loaded, opened_env, config = load_drive(policy, env, {**options, "episodes": episodes})
    drive = loaded.drive
    if workers and (opened_env is not None or not (drive.model or isinstance(policy, str))):
        raise UserError("processes of their own open what they drive by its name: give names or files, or no workers.")
    tracks = ("",) if opened_env is not None else loaded.spec.tracks_of(config.track)
    jobs = [
        EvalJob(who, k, config.seed + k, track)
        for who in (("policy", "expert") if drive.expert else ("policy",)) for track in tracks for k in range(episodes)
    ]  # fmt: skip
    worker = RolloutWorker(loaded, env=opened_env)
    done = dict(drive_jobs(drive, jobs, workers) if workers else ((job, worker.drive(job)) for job in jobs))
    rows = [done[job] for job in jobs if job.who == "policy"]
    expert_rows = [done[job] for job in jobs if job.who == "expert"]
    named = {"tracks": by_track(rows, drive)} if any(tracks) else {}
    return Evaluation([row["episode_return"] for row in rows], numbers(rows, expert_rows) | named, rows, expert_rows)


@named_extras()
def record(out: str | Path, env: str = "carracing", episodes: int = 8, **options: Any) -> Recording:
    """Let an expert (``expert``, or a ``driver`` of one's own) drive, and keep its episodes in the folder ``out``.

    ``options`` are those of ``nacdrive record``, such as ``resume``, ``overwrite``, ``max_frames`` or ``min_return``.

    Raises:
        UserError: as the verb.
    """
    from nacdrive.datasets.recording import Recording
    from nacdrive.rollout.record import record_episodes
    from nacdrive.rollout.record_config import RecordConfig

    log = None if options.get("log") is None else Path(options["log"])
    config = RecordConfig(out=path_of(out, "folder"), env=env, episodes=episodes, **options | {"log": log})
    record_episodes(config, listeners=None if config.workers or config.ray else ())
    return Recording.open(config.folder)


@named_extras()
def train(data: Data | Sequence[Data], layer: str = "nac-steady", **options: Any) -> Policy:
    """Train a policy around the sequence layer ``layer`` on recordings; with ``dagger=N`` it then drives in N rounds.

    ``options`` are those of ``nacdrive train``, such as ``epochs``, ``window``, ``out`` or ``overwrite``. The result
    is in ``out``, or under ``runs/``.

    Raises:
        UserError: as the verb.
    """
    from nacdrive.datasets.recording import Recording
    from nacdrive.models.files import load_policy
    from nacdrive.rollout.train_config import AUTO, TrainConfig
    from nacdrive.rollout.train_policy import train_policy

    several: Iterable[Any] = data if isinstance(data, Iterable) and not isinstance(data, (str, Recording)) else [data]
    folders = tuple(
        one.folder if isinstance(one, Recording) else find_recording(path_of(one, "recording")) for one in several
    )
    paths: dict[str, Any] = {name: Path(options[name]) for name in ("out", "first") if options.get(name) is not None}
    paths["lessons"] = tuple(find_recording(Path(one)) for one in options.get("lessons", ()))
    usual: dict[str, Any] = {"task": AUTO, "workers": 1}
    config = TrainConfig(data=folders, model=layer, **usual | options | paths)
    try:
        return load_policy(train_policy(config))
    finally:
        # A notebook lives longer than its trainings.
        release_folders(config.folder)


@named_extras()
def export_onnx(policy: str | Path | Policy, out: str | Path) -> Path:
    """Write a policy to the file ``out`` as ONNX, for machines without torch; what is there is replaced.

    Raises:
        UserError: if its layer cannot be exported, or the packages that write ONNX are not installed.
    """
    from nacdrive.extras.export.onnx import export_onnx as export
    from nacdrive.models.files import save_policy

    with TemporaryDirectory() as folder:
        model = find_model(policy) if isinstance(policy, (str, Path)) else Path(folder) / f"{policy.name}.pt"
        if not isinstance(policy, (str, Path)):
            save_policy(policy, model)
        return export(model, Path(out))[0]
