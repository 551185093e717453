"""The rounds of a teaching on the disk: what was learnt from which corrections; whole after a kill at any moment."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from nacdrive.common.errors import MISFITS, UserError, named, quoted
from nacdrive.common.files import atomic_path, file_checksum, result_folder, write_json
from nacdrive.common.foreign_json import read_object
from nacdrive.common.result_folder import RESULT_MARKER, note_own
from nacdrive.common.runs import plain
from nacdrive.datasets.manifest import EpisodeInfo
from nacdrive.datasets.recording import Recording, load_episode
from nacdrive.rollout.train_config import TrainConfig
from nacdrive.rollout.train_policy import round_path
from nacdrive.training.fit import checkpoint_path

TEACHING, TRAINING = "teaching.json", "training"


@dataclass(frozen=True)
class Round:
    """A round that was learnt."""

    lesson: str
    """Recording that was learnt from, a folder within that of the teaching."""
    corrections: tuple[str, ...]
    """Files of the corrections in it."""
    agreement: tuple[float, float]
    """Share of the decisions of all corrections so far that are the person's: of the first policy, and now."""
    old: tuple[float, float]
    """The same of what is recorded in the old laps."""


@dataclass(frozen=True)
class Job:
    """A round to learn; plain data."""

    round: int
    """Its number, from 1; 0 only reads the old laps."""
    lesson: Path
    """Where the recording of its corrections shall lie."""
    corrections: tuple[Path, ...]
    lessons: tuple[Path, ...]
    """Recordings of the rounds before."""


@dataclass
class Teaching:
    """What was learnt from the corrections in the folder ``recording``, and what is still to be learnt; ``open`` makes
    its own ``folder`` this process's. ``training`` is how a round is learnt; its ``out`` lies in ``folder``.
    """

    folder: Path
    recording: Path
    training: TrainConfig
    rounds: list[Round] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)
    """Files of corrections that shall not be learnt."""
    begun: int = 0
    """Rounds that were begun: no two lessons have one name."""
    damaged: set[str] = field(default_factory=set)
    """Files of corrections that cannot be read: the others are learnt."""

    @cached_property
    def first_sha256(self) -> str:
        assert self.training.first is not None
        return file_checksum(self.training.first)

    @property
    def model(self) -> Path:
        return self.folder / self.training.file_name

    @property
    def policy(self) -> Path:
        """The policy that drives now."""
        assert self.training.first is not None
        return round_path(self.training.folder, len(self.rounds)) if self.rounds else self.training.first

    @property
    def pending(self) -> tuple[Path, ...]:
        """Corrections that are in no round yet."""
        known = {*self.undone, *self.damaged, *(name for one in self.rounds for name in one.corrections)}
        return tuple(info.path for info in self.listed() if info.path.name not in known)

    def listed(self) -> list[EpisodeInfo]:
        """All corrections."""
        try:
            return Recording.open(self.recording).episodes
        except UserError:
            # The recording begins before its first correction is written, which a full disk may hold up.
            return []

    def leave_out(self, corrections: tuple[Path, ...]) -> Iterator[str]:
        """Those of ``corrections`` that are damaged are pending no more; a sentence of each."""
        for info in [one for one in self.listed() if one.path in corrections]:
            try:
                load_episode(info)
            except UserError as error:
                self.damaged.add(info.path.name)
                yield str(error)

    @property
    def count(self) -> int:
        return sum(len(one.corrections) for one in self.rounds)

    def open(self, *, overwrite: bool, resume: bool) -> None:
        """Make the folder this process's, and go on with what is in it; ``UserError`` if it is something else."""
        assert self.training.first is not None
        result_folder(self.folder, overwrite=overwrite, resume=resume, reads=(self.training.first, *self.training.data))
        note_own(self.training.folder / RESULT_MARKER)
        if (path := self.folder / TEACHING).exists():
            stored = read_object(path)
            first, checksum = str(stored.get("first")), stored.get("first_sha256")
            named_so = Path(first).resolve() == self.training.first.resolve()
            if self.first_sha256 != checksum if checksum else not named_so:
                changed = ", which has changed since" * named_so
                raise UserError(f"{self.folder} is a teaching of {first}{changed}: give another --out.")
            if Path(before := str(stored.get("recording", self.recording))).resolve() != self.recording.resolve():
                raise UserError(f"{self.folder} learns from {before}: give --corrections {before}, or another --out.")
            lists = ("corrections", "agreement", "old")
            with quoted(f"{path} is damaged (", "): give another --out.", *MISFITS, say=named):
                rounds = [Round(**one | {name: tuple(one[name]) for name in lists}) for one in stored["rounds"]]
                undone, self.begun = [*stored["undone"], *self.undone], int(stored["begun"])
            self.save(rounds, undone)
        self.clear_unfinished()

    def begin_round(self, corrections: tuple[Path, ...]) -> Job:
        """A round that learns ``corrections``; of none, the job that only reads the old laps."""
        self.clear_unfinished()
        self.begun += bool(corrections)
        lessons = tuple(self.folder / one.lesson for one in self.rounds)
        number = len(self.rounds) + 1 if corrections else 0
        return Job(number, self.folder / f"lesson-{self.begun}", corrections, lessons)

    def accept(self, job: Job, agreement: tuple[float, float], old: tuple[float, float]) -> None:
        """The round's policy is the one that drives now."""
        learnt = Round(job.lesson.name, tuple(path.name for path in job.corrections), agreement, old)
        self.save([*self.rounds, learnt], self.undone)

    def undo(self, rounds: int = 1) -> None:
        """Forget the last rounds, and do not learn from their corrections again; they stay recorded."""
        left = len(self.rounds) - rounds
        self.save(self.rounds[:left], [*self.undone, *(name for one in self.rounds[left:] for name in one.corrections)])
        self.clear_unfinished()

    def save(self, rounds: list[Round], undone: list[str]) -> None:
        """Write down where the teaching stands now, and its policy; if the disk does not take it, nothing changes."""
        about = {"first": str(self.training.first), "recording": str(self.recording)}
        about |= {"first_sha256": self.first_sha256}
        stand = {"rounds": plain(rounds), "undone": undone, "begun": self.begun}
        with atomic_path(self.model) if rounds else nullcontext() as partial:
            if partial is not None:
                partial.write_bytes(round_path(self.training.folder, len(rounds)).read_bytes())
            write_json(self.folder / TEACHING, {**about, **stand})
        self.rounds, self.undone = rounds, undone
        if not rounds:
            self.model.unlink(missing_ok=True)

    def clear_unfinished(self) -> None:
        """Remove what a round left that was not learnt to its end, or is undone."""
        last, out = len(self.rounds), self.training.folder
        for number in range(last + 1, last + 2 + self.begun):
            round_path(out, number).unlink(missing_ok=True)
            checkpoint_path(out, number).unlink(missing_ok=True)
        lessons = {one.lesson for one in self.rounds}
        for path in self.folder.glob("lesson-*"):
            if path.name not in lessons:
                shutil.rmtree(path, ignore_errors=True)

    def command(self) -> str:
        """The command that trains the same policy."""
        config = replace(self.training, lessons=tuple(self.folder / one.lesson for one in self.rounds))
        balance = "" if config.class_weights is None else f" --class-weights {config.class_weights:g}"
        first, data, lessons = (shlex.join(map(str, paths)) for paths in ([config.first], config.data, config.lessons))
        return (
            f"nacdrive train --task {config.task} --model {config.model} --first {first} --data {data} "
            f"--lessons {lessons} --lesson-frames {config.lesson_frames} --epochs {config.epochs} "
            f"--batch-size {config.batch_size} --learning-rate {config.learning_rate:g} --schedule {config.schedule} "
            f"--average {config.average:g} --seed {config.seed} --window {config.window} --soft {config.soft:g}"
            f"{balance}"
        )
