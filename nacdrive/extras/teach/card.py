"""A card of the page: a person's corrections, what the policy learns from them beside the drive, undo, keep, drop."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Condition, Thread
from typing import Any

from nacdrive.common.errors import UserError
from nacdrive.common.files import os_error_sentence
from nacdrive.common.parallel import END_S, Worker, start_worker
from nacdrive.datasets.manifest import MANIFEST
from nacdrive.datasets.recording import Recording
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.drivers.tick import Tick
from nacdrive.extras.teach.pupil import Outcome, learn_rounds
from nacdrive.extras.teach.rounds import TRAINING, Job, Teaching
from nacdrive.models import load_policy
from nacdrive.models.policy import Policy
from nacdrive.rollout.drive import LoadedDrive
from nacdrive.rollout.recorder import EpisodeRecorder
from nacdrive.rollout.train_config import TrainConfig, as_taught
from nacdrive.tasks import load_driving_task
from nacdrive.tasks.driving import chooses
from nacdrive.web.card import Card, LivePage

ROUND: dict[str, Any] = {
    "epochs": 1, "lesson_frames": 1024, "batch_size": 2, "learning_rate": 5e-4, "schedule": "hat", "average": 0.96,
}  # fmt: skip
"""How a round is learnt, in some seconds on one core: by small steps, for there are few, to their running mean."""
WORSE = 0.0
"""A round that is taken for more than so much worse with 95 % certainty is not taken over."""
STANDS_MPS = 0.1
"""In a simulator whose time passes by itself, a new network takes over below this speed."""
POLL_S = 0.5
"""While a round is learnt, the end of the drive is looked for this often."""
RETRY_S = 2.0
"""After so long a correction is offered again to a disk that would not take it."""


class TeachCard(Card):
    """Listens to a drive, and lets the policy of its ``driver`` learn what a person does in its stead.

    It begins with the drive if told to ``begin``, else with the button of the page. With ``standing`` a new network
    takes over only while the car stands, or on request.
    """

    name = "teach"

    def __init__(
        self,
        teaching: Teaching,
        driver: PolicyDriver,
        *,
        begin: bool,
        standing: bool,
        overwrite: bool = False,
        resume: bool = False,
    ) -> None:
        self.teaching, self.driver, self.standing = teaching, driver, standing
        self._begin_at_once, self._folder = begin, {"overwrite": overwrite, "resume": resume}
        self.commands = {"teach": self._command}
        self.page: LivePage | None = None
        self.recorder: EpisodeRecorder | None = None
        self._changed = Condition()
        self._thread: Thread | None = None
        self._closed = self._asked = False
        self._weights: Any = None
        """Of the network that takes over at the next safe moment."""
        self._ended = ""
        """``keep`` or ``drop``, where the person has chosen."""
        self._job: Job | None = None
        self._share = 0.0
        self._tried: tuple[Path, ...] = ()
        """Corrections of the last round that was not taken over, and is not tried again without others."""
        self._news, self._retry_s = "", 0.0

    def around(self, recorder: EpisodeRecorder) -> Callable[[Tick], None]:
        """``recorder`` of the corrections as a listener that also lets the policy learn from them."""
        self.recorder = recorder
        return self.listen

    def listen(self, tick: Tick) -> None:
        """Keep what the person does, and let a new network take over where that is safe."""
        assert self.recorder is not None
        kept = self.recorder.kept
        if tick.human or time.monotonic() >= self._retry_s:
            try:
                self.recorder(tick)
            except (UserError, OSError) as error:
                # The recorder still has what was corrected.
                if not self._retry_s:
                    self._say(f"corrections wait in memory until they can be written: {why_of(error)}")
                self._retry_s = time.monotonic() + RETRY_S
            else:
                self._retry_s = 0.0
        with self._changed:
            if self.recorder.kept > kept:
                self._changed.notify_all()
            safe = not self.standing or self._asked or (tick.speed_mps or 0.0) < STANDS_MPS
            weights = self._weights if safe and not tick.human else None
            if weights is not None:
                self._weights, self._asked = None, False
                self._changed.notify_all()
        if weights is not None:
            self.driver.replace_weights(weights)
            self._show()

    def attach(self, page: LivePage) -> None:
        self.page = page
        if self._begin_at_once:
            self.begin()
        self._show()

    def begin(self) -> None:
        """Learn from now on; ``UserError`` if the folder of the teaching holds something else."""
        with self._changed:
            if self._thread is None:
                self.teaching.open(**self._folder)
                self._weights = weights_of(self.teaching.policy) if self.teaching.rounds else None
                self._thread = Thread(target=self._learn, name="nacdrive-teach", daemon=True)
                self._thread.start()
            self._ended = ""
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(END_S)
            if self.teaching.rounds:
                print(f"{self._result()}\nagain: {self.teaching.command()}", flush=True)
            if not self._ended and (left := len(self.teaching.pending)):
                print(f"not learnt yet: {counted(left)}; the same command with --resume learns from them.", flush=True)
            elif not self.teaching.rounds:
                print("nothing was corrected, so nothing is learnt.", flush=True)

    def _command(self, value: Any) -> Callable[[], None] | None:
        wishes = {"begin": self.begin, "undo": self._undo, "keep": self._keep, "drop": self._drop, "now": self._now}
        return partial(self._carry_out, wishes[value]) if isinstance(value, str) and value in wishes else None

    def _carry_out(self, wish: Callable[[], None]) -> None:
        try:
            wish()
        except (UserError, OSError) as error:
            self._say(why_of(error))
        self._show()

    def _undo(self, rounds: int = 1) -> None:
        with self._changed:
            if not self._learning and self.teaching.rounds:
                self.teaching.undo(rounds)
                self._weights = weights_of(self.teaching.policy)
                which = f"{rounds} rounds" if rounds > 1 else f"round {len(self.teaching.rounds) + 1}"
                self._news = f"undone: {which}, with the corrections, as if never learnt"

    def _keep(self) -> None:
        self._ended = "keep"

    def _drop(self) -> None:
        with self._changed:
            self._undo(len(self.teaching.rounds))
            if not self._learning:
                self._ended = "drop"

    def _now(self) -> None:
        with self._changed:
            # A second press asks nothing of the network of a later round.
            self._asked = self._weights is not None

    @property
    def _learning(self) -> bool:
        return self._job is not None and self._job.round > 0

    def _say(self, news: str) -> None:
        """Say what has happened beside the drive, on the terminal and on the page."""
        self._news = news
        (print if self.page is None else self.page.note)(f"Teaching: {news}")
        self._show()

    def _show(self) -> None:
        if self.page is None:
            return
        with self._changed:
            begun, learning = self._thread is not None, self._learning
            about = {
                "begun": begun and not self._ended,
                "taught": bool(self.teaching.rounds),
                "text": self._text(),
                "news": self._news,
                "share": self._share if learning else None,
                "can": {
                    "undo": bool(self.teaching.rounds) and not learning and not self._ended,
                    "keep": bool(self.teaching.rounds) and not self._ended,
                    "drop": bool(self.teaching.rounds) and not learning and self._ended != "drop",
                    "now": self.standing and self._weights is not None,
                },
            }
        self.page.set(teach=about)

    def _text(self) -> str:
        if self._thread is None:
            return "Teach it: take the wheel where it goes wrong, and it learns from what you do."
        if self._ended == "keep":
            return f"Kept. {self._result()}"
        if self._ended == "drop":
            return f"Dropped: the policy of before drives. What you did stays recorded in {self.teaching.recording}."
        if self._job is not None and not self._learning:
            return "Reading the old laps. You may take the wheel already."
        news = self._result() or "Take the wheel where it goes wrong, and hand back when it is well again."
        if self._job is not None:
            return f"{news} Learning round {self._job.round} from {counted(len(self._job.corrections))} ..."
        if self._weights is not None and self.standing:
            return f"{news} The new network takes over when the car stands."
        return news

    def _result(self) -> str:
        """What the rounds have changed; '' before the first."""
        if not self.teaching.rounds:
            return ""
        last, rounds = self.teaching.rounds[-1], len(self.teaching.rounds)
        return (
            f"{counted(self.teaching.count)} in {rounds} round{'s' * (rounds > 1)}, agreement with you "
            f"{shift(last.agreement)}, the old laps {shift(last.old)}: {self.teaching.model}."
        )

    def _learn(self) -> None:
        """A thread of its own: a round whenever there are corrections, in a process of its own."""
        worker: Worker | None = None
        corrections: tuple[Path, ...] = ()
        while not self._closed:
            with self._changed:
                self._job, self._share = self.teaching.begin_round(corrections), 0.0
            self._show()
            worker = worker or start_worker(learn_rounds, self.teaching.training, name="nacdrive-teach")
            try:
                worker.pipe.send(self._job)
                self._finish(self._job, self._answer(worker))
            except (UserError, OSError, EOFError) as error:
                ended = isinstance(error, EOFError | ConnectionError)
                self._fail(self._job, "the process that learns has ended." if ended else why_of(error))
                worker.end()
                worker.join()
                worker = None
            corrections = self._wait_for_more()
        if worker is not None:
            worker.end()
            worker.join()

    def _answer(self, worker: Worker) -> Outcome | None:
        """What a round came to, or None; ``UserError`` if it could not be learnt, ``EOFError`` if the process died."""
        while not self._closed:
            if worker.pipe.poll(POLL_S):
                answer = worker.pipe.recv()
                if isinstance(answer, UserError):
                    raise answer
                if not isinstance(answer, float):
                    return answer  # type: ignore[no-any-return]
                self._share = answer
                self._show()
        return None

    def _fail(self, job: Job, why: str) -> None:
        with self._changed:
            self._job, self._tried = None, job.corrections
        what = f"round {job.round} is not learnt, and its corrections wait for others" if job.round else "not begun"
        self._say(f"{what}: {why}")

    def _wait_for_more(self) -> tuple[Path, ...]:
        """The corrections of the next round, as soon as there are others than those tried last."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (not self._ended and self._pending() != self._tried))
            corrections = () if self._closed else self._pending()
        for why in (damaged := list(self.teaching.leave_out(corrections))):
            self._say(f"a correction is left out: {why}")
        return self._wait_for_more() if damaged else corrections

    def _pending(self) -> tuple[Path, ...]:
        # Until the last round has taken over, nothing is learnt from what a former network did.
        return self._tried if self._weights is not None else self.teaching.pending or self._tried

    def _finish(self, job: Job, outcome: Outcome | None) -> None:
        """Take a learnt round over, if the old laps are as well driven as before and nobody has ended the teaching."""
        weights, why = None, ""
        if outcome is not None and not self._ended and not (why := objection(outcome)):
            self.teaching.accept(job, outcome.agreement, outcome.old)
            weights = weights_of(self.teaching.policy)
        with self._changed:
            self._job, self._weights = None, weights or self._weights
            self._tried = () if weights or not job.corrections else job.corrections
        if why:
            self._say(f"round {job.round} is not taken over: {why}; its corrections are learnt again with the next.")
        elif weights:
            self._say(self._result())
        self._show()


def objection(outcome: Outcome) -> str:
    """Why a round is not taken over; '' where nothing speaks against it."""
    if outcome.gains[1] < -WORSE:
        return f"it would make the old laps worse ({shift(outcome.old)} as recorded)"
    return f"it would agree with you less ({shift(outcome.agreement)})" if outcome.gains[0] < -WORSE else ""


def weights_of(path: Path) -> dict[str, Any]:
    """Those of a policy's file."""
    return dict(load_policy(path).network.state_dict())


def why_of(error: Exception) -> str:
    """What went wrong, in a sentence."""
    return os_error_sentence(error) or str(error)


def counted(corrections: int) -> str:
    """A number of corrections."""
    return f"{corrections} correction{'s' * (corrections != 1)}"


def shift(shares: tuple[float, float]) -> str:
    """Two shares, in percent."""
    first, last = (round(100 * share) for share in shares)
    return f"unchanged at {last} %" if first == last else f"{first} → {last} %"


def teach_card(config: Any, loaded: LoadedDrive) -> TeachCard | None:
    """The card of a drive whose ``config`` has ``TeachOptions``; None without ``--teach`` if nobody can be taught."""
    driver, spec = loaded.driver, loaded.spec
    policy = driver.policy if isinstance(driver, PolicyDriver) else None
    if not (isinstance(driver, PolicyDriver) and isinstance(policy, Policy)):
        if config.teach:
            raise UserError(f"--teach teaches a policy of a .pt file, and {driver.name} is none.")
        return None
    learnt, task = policy.meta.get("config") or {}, load_driving_task(policy.config.task)
    usual = (*map(Path, learnt.get("data", ())), spec.recording_folder)
    data = config.data or tuple(dict.fromkeys(folder for folder in usual if task.knows(folder)))
    if not data and not config.teach:
        print("the page has no Teach button: give --data the recordings that the policy has learnt from.", flush=True)
        return None
    for folder in data:
        if not task.knows(folder):
            task.load([folder])  # which says what it is in its place
    if not data or not all(map(task.knows, data)):
        problem = f"--teach mixes what you do with what {driver.name} has learnt from, so that nothing is unlearnt"
        raise UserError(f"{problem}: give --data its recordings, of {spec.title}.")
    recorded = [one for one in data if config.teach and (one / MANIFEST).is_file()]
    if any(chooses(Recording.open(one).load(0)) == policy.config.continuous for one in recorded):
        kind = "steering and pedals" if policy.config.continuous else "choices"
        raise UserError(f"{driver.name} has learnt {kind}, and --data holds others: give what it has learnt from.")
    folder = config.teach_folder(policy.name)
    training = TrainConfig(
        **{**as_taught(policy), **ROUND}, first=loaded.drive.model, data=data, seed=0, device=config.device,
        out=folder / TRAINING,
    )  # fmt: skip
    teaching = Teaching(folder, config.corrections or config.corrections_of(driver.name, spec.source), training)
    if not (config.teach or config.corrections or config.resume):
        # Those of earlier drives nobody has asked to learn.
        teaching.undone = [path.name for path in teaching.pending]
    return TeachCard(
        teaching, driver, begin=config.teach, standing=spec.realtime, overwrite=config.overwrite, resume=config.resume
    )
