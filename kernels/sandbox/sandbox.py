"""Send batches to worker processes, watch them, and find out which subject a death is due to.

One active worker, one hot spare. A batch is one message to the worker; every execution comes back as one message, so
what was done before a death is kept. Whatever kills a worker is named by the journal, run again alone, and is called a
crash only if it does it again.
"""

from __future__ import annotations

import contextlib
import math
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Self

from kernel_assay.corpus.errors import InternalError
from kernel_assay.corpus.formats import FORMATS
from kernel_assay.corpus.model.campaign import Call
from kernel_assay.corpus.model.execution import Execution
from kernel_assay.corpus.model.kinds import Status
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.process.channel import GarbledError, Message, frame
from kernel_assay.kernels.backends.cuda_support.driver import GPU_LOST
from kernel_assay.kernels.backends.support.signature import Interface
from kernel_assay.kernels.boundary.devices import Place
from kernel_assay.kernels.boundary.output_transfer import SHARED
from kernel_assay.kernels.boundary.protocol import (
    CHANNEL_LOST,
    IDLE,
    WORKER_FAILED,
    ZYGOTE_LOST,
    Task,
    encode_batch,
    encode_subjects,
)
from kernel_assay.kernels.sandbox.batch import Key, LostError, NoRoomError, Outcome, PendingBatch, Taker
from kernel_assay.kernels.sandbox.crash_attribution import (
    Death,
    accuse,
    is_convicted,
    release,
    take_at_its_word,
    unexplained,
)
from kernel_assay.kernels.sandbox.decode import answer_of, death_of, left_undone
from kernel_assay.kernels.sandbox.mps import Sharing
from kernel_assay.kernels.sandbox.patience import PAUSE_SECONDS, Rest, Stopwatch
from kernel_assay.kernels.sandbox.probing import Probing, ReadyBy
from kernel_assay.kernels.sandbox.worker_pool import MAX_WARM, SPARE_AFTER, Ending, Handle, WorkerPool, pool_of

RECYCLE = 20_000
"""Tasks after which a worker is replaced, so that slow leaks of subjects do not add up."""
LOOK_BACK = 8
"""Executions before an unexplained death that are tried again, to see which of them caused it."""
_MOST_STACK = 2000
"""Characters of where a late run is, the innermost calls first, that are kept."""
_LOST_SECONDS = 1.0
"""In which the death of a worker is known whose outputs cannot be had."""


class Sandbox:
    """Runs cases for a fixed set of subjects. Use it as a context manager."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        faces: dict[str, Interface],
        *,
        timeout: float = 10.0,
        memory_mb: int = 4096,
        closed: bool = True,
        place: Place | None = None,
        pool: WorkerPool | None = None,
    ) -> None:
        """Raises UsageError for a subject whose backend, or interpreter, is not here; they share one interpreter.

        timeout: seconds for one execution (two runs), with more for first calls and builds (patience.py).
        memory_mb: what a worker may allocate on top of its start. closed: whether workers are closed in, where the
        system allows it. place: which device they see, and whether they share it. pool: where workers come from,
        closed with the sandbox; None: one of its own.
        """
        self._subjects = {s.key: s for s in subjects}
        self.returning: set[str] = set()
        """Keys of the subjects that return their result; the others write into their first arguments. Set by probe."""
        self.lacks: dict[str, frozenset[str]] = {}
        """By key: what is optional for the op and a subject does not take. Set by probe."""
        self.needs: dict[str, frozenset[str]] = {}
        """By key: optional inputs that a subject cannot do without. Set by probe."""
        self.unready: set[str] = set()
        """Keys of the subjects that there was no time to load. Set by probe."""
        self.timeout = timeout
        """Seconds for one execution; may be changed between batches."""
        self._introduction = encode_subjects(self._subjects, {op: asdict(f) for op, f in faces.items()})
        self.pool = pool_of(subjects, pool, memory_mb=memory_mb, closed=closed, place=place)
        self._sharing = Sharing(place.shared if place else {})
        self._watch = Stopwatch()
        self._hung: set[str] = set()
        """Keys of the subjects that were killed because they were late."""
        self._slow: set[str] = set()
        """Keys of those that were late once, and came back when they were given more time."""
        self._active = self._ready()
        self._spare: Handle | None = None
        self._spare_after = 0 if self.pool.on_gpu or self._sharing.wanted else SPARE_AFTER
        self._have_spare()
        self._share()
        self.deaths = 0
        """Workers lost so far."""
        self.beside: Callable[[], object] | None = None
        """Called again and again while a worker is waited for."""

    def __enter__(self) -> Self:
        """The sandbox itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all its processes."""
        self.close()

    def close(self) -> None:
        """End all processes."""
        for handle in filter(None, (self._active, self._spare)):
            handle.close()
        self.pool.close()

    def calls(self) -> dict[str, Call]:
        """What probe has found out about how subjects are called."""
        return {
            key: Call(returns=key in self.returning, lacks=tuple(sorted(lacks)), needs=tuple(sorted(self.needs[key])))
            for key, lacks in self.lacks.items()
        }

    def know(self, calls: Mapping[str, Call]) -> None:
        """Take up what was found out before about the same files, instead of a probe."""
        self.returning = {key for key, call in calls.items() if call.returns}
        self.lacks = {key: frozenset(call.lacks) for key, call in calls.items()}
        self.needs = {key: frozenset(call.needs) for key, call in calls.items()}

    def probe(self, ready_by: ReadyBy = lambda _: math.inf) -> dict[str, str]:
        """Load every subject once: key -> what is wrong with it, for those that cannot be loaded or called."""
        probing = Probing(list(self._subjects), self._active, self.pool, self._ready, ready_by)
        found, self._active = probing.run(), probing.first
        self.unready = found.unready
        wrong = {key: f"{self._subjects[key].path} {why}" for key, why in found.wrong.items()}
        self.know(found.said)
        return wrong | {key: said.error for key, said in found.said.items() if said.error}

    def stretch(self, key: str, message: Message, seconds: float, *, again: bool = True) -> Message:
        """The subject's launch for tensors larger than any memory (worker/stretched.py); {}: it gave no answer."""
        try:
            self._active.channel.send(frame({"stretch": key, **message}, []))
            again = False
            if self._active.channel.ready(seconds):
                return self._active.channel.receive()[0]
            self.pool.kill(self._active)
        except (EOFError, OSError):
            self.pool.ending(self._active)
        self._promote(dead=True)
        return self.stretch(key, message, seconds, again=False) if again else {}

    def ask(self, key: str, message: Message, seconds: float) -> Message:
        """What a new worker answers to a question, where a subject would run; {}: nothing."""
        worker = self._ready()
        try:
            worker.channel.send(frame({**message, "subject": key}, []))
            return worker.channel.receive()[0] if worker.channel.ready(seconds) else {}
        except (EOFError, OSError):
            return {}
        finally:
            self.pool.discard(worker, dead=False)

    def waited(self, key: str) -> float:  # noqa: ARG002  whoever has several workers needs it
        """Seconds for which the worker of a subject was ready to run, and others ran; 0 where the system hides it."""
        return self.pool.waited(self._active)

    def run(self, tasks: Sequence[Task]) -> list[dict[str, Outcome]]:
        """Run tasks now; for each, subject key -> outcome."""
        return self.collect(self.submit(tasks))

    def submit(
        self, tasks: Sequence[Task], taker: Taker | None = None, most_deaths: int = 0, hang_counts: int = 1
    ) -> PendingBatch:
        """Start a batch. Only one may be on its way. taker: who gets outputs of large cases; None: they are sent.

        most_deaths: crashes and time-outs of one subject after which its other executions are not run; 0: all are.
        hang_counts: as how many of those a time-out counts.
        """
        waiting = [(n, task) for n, task in enumerate(tasks) if task.subjects]
        pending = PendingBatch(tasks, waiting=waiting, taker=taker, most_deaths=most_deaths, hang_counts=hang_counts)
        self._send(pending, pending.waiting)
        return pending

    def pump(self, pending: PendingBatch) -> None:
        """Take in what has come back already, without waiting, so that the worker never stalls."""
        self._drain(pending)  # collect() will see a death again, and act
        self._watch.spent(self._active.running())

    def collect(self, pending: PendingBatch) -> list[dict[str, Outcome]]:
        """Wait for a batch, whatever it does to its workers; for each task, subject key -> outcome."""
        while not pending.done:
            if pending.under_way:
                self._wait(pending)
            elif pending.waiting:
                self._send(pending, pending.waiting)
            elif pending.again:
                self._send(pending, [pending.again.pop(0)])
            elif not pending.suspects:
                release(pending)
            elif not is_convicted(pending, suspect := pending.suspects.pop(0)):
                self._try_alone(pending, suspect)
        for key, first in unexplained(pending):
            if not self._find_cause(pending, key, first.ran):
                take_at_its_word(pending, key, first)
        return [{k: pending.outcomes[n, k] for k in task.subjects} for n, task in enumerate(pending.tasks)]

    def abandon(self) -> None:
        """Let go of a batch that nobody waits for any more, with the worker that has it."""
        self._promote()

    def give_up(self, pending: PendingBatch, why: str) -> list[dict[str, Outcome]]:
        """The results of a batch so far; the rest is left undone, with the worker that has it."""
        self.pump(pending)
        self.abandon()
        return [
            {k: pending.outcomes.get((n, k)) or left_undone(k, why) for k in task.subjects}
            for n, task in enumerate(pending.tasks)
        ]

    def renew(self, *keys: str) -> None:
        """Have what is submitted next, for these subjects, run in a worker that has run nothing else, and loaded none.

        A batch under way is given up. The worker after that one loads them while it waits.
        """
        for _ in range(2):
            if not self._active.is_alone_with(keys):
                self._promote(warm=keys)

    def _send(self, pending: PendingBatch, batch: list[tuple[int, Task]]) -> None:
        if self._active.served > RECYCLE or (self._sharing.wanted and not self._active.shared):
            self._promote()
            if self._active.warm and self._sharing.wanted:
                self._promote()
            self._share()
        self._have_spare()
        self._give(pending, batch)

    def _give(self, pending: PendingBatch, batch: list[tuple[int, Task]]) -> None:
        pending.send(batch)
        self._active.served += len(batch)
        self._active.loaded.update(key for _, task in batch for key in task.subjects)
        self._active.history.extend(task for _, task in batch)
        with contextlib.suppress(OSError):  # the worker is dead; _wait finds out how
            self._active.channel.send(encode_batch(batch, pending.token, pending.taker.way if pending.taker else ""))

    def _try_alone(self, pending: PendingBatch, suspect: tuple[int, Task]) -> None:
        """Run a suspect in a worker that has run nothing else, and that nobody else's errors reach."""
        key = suspect[0], suspect[1].subjects[0]
        ending = pending.endings.get(key)
        if ending is None or ending.code != ZYGOTE_LOST:
            if self._active.served or self._active.shared:
                self._promote(warm=suspect[1].subjects)
            self._give(pending, [suspect])
            return
        self._begin_anew(*suspect[1].subjects)
        self._give(pending, [suspect])
        worker = self._active
        while pending.under_way:
            self._wait(pending)
        if self.pool.loses(worker):  # it came back, for its own process dies a little later
            pending.outcomes[key] = death_of(key[1], ending, None)

    def _begin_anew(self, *warm: str) -> None:
        """Have workers of a zygote of their own: who ended the last one may have run under this one since."""
        old = filter(None, (self._active, self._spare))
        self.pool.renew()
        self._active, self._spare = self._ready(*warm), self._ready(*warm)
        for worker in old:
            self.pool.discard(worker, dead=True)  # it ends with its zygote

    def _find_cause(self, pending: PendingBatch, victim: Key, before: list[Key]) -> bool:
        """Somebody died who does not die alone: whether another one that ran before leaves the process to die."""
        others = [k for k in before[-LOOK_BACK:] if k[1] != victim[1]]  # its own are what its death is told with
        suspects = [k for k in others if pending.outcomes[k].execution.status is Status.OK]
        if len(suspects) > 1 and self._die_together(pending, [*suspects, victim]) is None:
            return False
        for suspect in reversed(suspects):
            ending = self._die_together(pending, [suspect, victim])
            if ending is not None:
                how = "it left the process so that the next died: "
                pending.outcomes[suspect] = death_of(suspect[1], ending, None, how)
                return True
        return False

    def _die_together(self, pending: PendingBatch, keys: list[Key]) -> Ending | None:
        """The end of a worker of their own that runs these one after the other; None: it lives."""
        self._promote()
        tasks = [pending.only(key)[1] for key in keys]
        trial = PendingBatch(tasks, waiting=[], taker=pending.taker)
        self._give(trial, list(enumerate(tasks)))
        try:
            while trial.under_way:
                if not self._hears(lambda: not self._is_late(trial)):
                    return None
                self._receive(trial)
        except (EOFError, OSError):
            ending = self.pool.ending(self._active)
            self.deaths += 1
            self._promote(dead=True)
            return ending
        return Ending(ZYGOTE_LOST, "") if self.pool.loses(self._active) else None

    def _ready(self, *warm: str) -> Handle:
        """A new worker that has been told who its subjects are; warm: those that it will be asked for first."""
        handle = self.pool.spawn()
        handle.due = warm
        with contextlib.suppress(OSError):  # it is dead; _wait finds out how
            handle.channel.send(self._introduction)
        return handle

    def _have_spare(self) -> None:
        if self._spare is None and self._active.served >= self._spare_after:
            self._spare = self._ready(*list(self._subjects)[:MAX_WARM])

    def _share(self) -> None:
        """Have a new worker, which has done nothing yet, use its GPU together with others, if it may."""
        if self._sharing.wanted:
            self._active.shared = self._sharing.environment
            with contextlib.suppress(OSError):  # it is dead; _wait finds out how
                self._active.channel.send(frame({"environment": self._active.shared}, []))

    def _hears(self, patient: Callable[[], bool]) -> bool:
        """Whether the active worker says something before patience is lost with it.

        Raises EOFError where it hangs up, GarbledError where it begins a message and does not go on.
        """
        channel, rest = self._active.channel, Rest(self.timeout)
        while not channel.ready(PAUSE_SECONDS):
            if self.beside is not None:
                self.beside()
            if not patient():
                return channel.ready(0)
            if rest.is_overdue(channel.begun):
                raise GarbledError("a message that does not end")
        return True

    def _wait(self, pending: PendingBatch) -> None:
        """Wait until one message, one death or one timeout."""
        try:
            if self._active.lost or self._active.failed:
                raise EOFError  # noqa: TRY301  as when the channel says it
            if self._hears(lambda: not self._is_late(pending)):
                self._receive(pending)
            else:
                self._account_for_death(pending, late=self._active.running()[:2])
        except (EOFError, OSError) as error:
            self._account_for_death(pending, late=None, garbled=isinstance(error, GarbledError))

    def _is_late(self, pending: PendingBatch) -> bool:
        """Whether the run in progress has had its time, and what it may have beyond that."""
        running = self._active.running()
        if self._watch.spent(running) < self.timeout + self._watch.granted:
            return False
        key = pending.at(*running[:2])
        stack = self._active.stack = self.pool.stack(self._active)
        first = key is not None and self._is_first(key[1])
        if key is None or not self._watch.grant(self.timeout, stack, first=first):
            return True
        pending.excused[key] = first
        return False

    def _is_first(self, subject: str) -> bool:
        """Whether a subject makes its first call in the active worker; of who hangs, all calls are alike."""
        return subject not in self._active.warmed and (subject in self._slow or subject not in self._hung)

    def _receive(self, pending: PendingBatch) -> None:
        head, payload = self._active.channel.receive()
        if "lost" in head and self.pool.on_gpu:
            self._active.lost = str(head["lost"])
            raise EOFError
        if "internal" in head:
            self._active.failed = str(head["internal"])
            raise EOFError
        try:
            key, outcome, offers = answer_of(pending, head, payload)
        except ValueError as error:  # a kernel wrote it
            self._active.channel.distrust()
            raise GarbledError(str(error)) from error
        pending.histories[key] = self._active.history
        if self._spare and not self._sharing.wanted:  # what the spare makes on a GPU now, it cannot share
            self._spare.warm_up()
        if outcome.execution.status != Status.UNSUPPORTED:
            self._active.warmed.add(key[1])
        if key in pending.excused:
            self._slow.add(key[1])
        if offers is not None:
            self._take_over(pending, key, outcome.execution, offers)
        elif not pending.repeat(key):
            pending.outcomes[key] = outcome

    def _take_over(self, pending: PendingBatch, key: Key, execution: Execution, offers: list[Message]) -> None:
        """Have outputs copied that a worker keeps until it hears of it."""
        if pending.taker is None or len(offers) != len(execution.outputs):
            self._active.channel.distrust()
            raise GarbledError("outputs are offered that nobody has asked for")
        again = ""
        pid = self.pool.pid_of(self._active)  # where it lives, it has another
        offers = [{**offer, "pid": pid} if "pid" in offer else offer for offer in offers]
        try:
            taken = {
                report.name: pending.taker.take(key[1], report, offer)
                for report, offer in zip(execution.outputs, offers, strict=True)
                if report.dtype in FORMATS
            }
            pending.outcomes[key] = Outcome(execution, {}, taken)
        except NoRoomError as error:
            why = f"its outputs do not fit beside what the oracle holds: {error}"
            pending.outcomes[key] = left_undone(key[1], why)
        except LostError as error:
            if self._has_gone():
                pending.lost.add(key)
                return
            if pending.taker.way == SHARED:
                raise InternalError(f"the oracle cannot get at what {key[1]} left: {error}") from error
            again = pending.taker.way = SHARED
        with contextlib.suppress(OSError):  # a dead one is met later
            self._active.channel.send(frame({"again": again}, []))

    def _has_gone(self) -> bool:
        """Whether a worker that waits for an answer is dead, or says that it is about to be."""
        try:
            return self._active.channel.ready(_LOST_SECONDS)
        except (EOFError, OSError):
            return True

    def _account_for_death(self, pending: PendingBatch, *, late: tuple[int, int] | None, garbled: bool = False) -> None:
        """The active worker is dead, or must die because a run is late: name the culprit, give its work to the spare.

        late: (task, position) of the run that took too long. If it ended after all before it could be killed, whatever
        was killed in its stead is only suspected. garbled: results come in order, so the first missing one is the
        culprit's; as it is where the channel is gone.
        """
        self.deaths += 1
        if shared := bool(self._active.shared):
            self._sharing.lose()
        lost = self._active.lost if self._is_first_death(pending) else ""  # the second one's last words are wanted
        ending = Ending(GPU_LOST, lost) if lost else self._end(late)
        garbled |= ending.code == CHANNEL_LOST or (bool(self._active.failed) and ending.code != WORKER_FAILED)
        self._drain(pending)
        number, position, _ = self._active.running()
        timed_out = late is not None and late == (number, position) and not shared  # others may have kept it waiting
        left = pending.unfinished()
        culprit = next((w for w in left if w[0] == number and not garbled), left[0] if left else None)
        if culprit is not None and ending.code == -signal.SIGSEGV:
            touch = self._active.touched(culprit[1].case)
            ending = replace(ending, touch=touch, aimless=touch is None and self._active.is_between_walls())
        # Who shared its GPU was most likely killed by somebody else: none of those before it is suspected.
        told = set() if shared else {(n, k) for n, task in pending.sent for k in task.subjects}
        history = self._active.history
        self._promote(dead=not lost, warm=[key for _, task in left[:1] for key in task.subjects])
        pending.sent = []
        if culprit is None:
            return
        leaving = (culprit[0], culprit[1].subjects[0]) in pending.lost
        materializing = position == IDLE and not garbled and not leaving
        late_after, granted = (self.timeout, self._watch.granted) if timed_out else (None, 0.0)
        if timed_out:
            self._hung.add(culprit[1].subjects[0])
        accuse(pending, Death(culprit, left, told, history, ending, late_after, granted, not shared, materializing))

    def _end(self, late: tuple[int, int] | None) -> Ending:
        """The active worker's end, which is waited for."""
        if late is not None:
            ending = self.pool.kill(self._active)
            return Ending(ending.code, ending.tail + self._active.stack[:_MOST_STACK])
        said = self._active.lost
        ending = self.pool.ending(self._active)
        if self._active.failed:
            return replace(ending, tail=self._active.failed)
        return Ending(GPU_LOST, f"{ending.tail}\n{said}") if said else ending

    def _is_first_death(self, pending: PendingBatch) -> bool:
        return bool(left := pending.unfinished()) and (left[0][0], left[0][1].subjects[0]) not in pending.deaths

    def _drain(self, pending: PendingBatch) -> None:
        """Read what the worker has sent, dead or alive."""
        try:
            while self._active.channel.ready(0):
                self._receive(pending)
        except (EOFError, OSError):
            return

    def _promote(self, *, dead: bool = False, warm: Sequence[str] = ()) -> None:
        """The spare becomes active, and a new spare is ordered."""
        old, self._active = self._active, self._spare or self._ready()
        self._spare = self._ready(*warm)
        if self.pool.lost(self._active):
            self._active.close()
            self._active, self._spare = self._spare, self._ready(*warm)
        self.pool.discard(old, dead=dead)
