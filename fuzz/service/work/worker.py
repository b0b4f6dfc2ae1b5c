"""The worker: leases tasks over HTTP, has an executor do each, keeps the lease by heartbeats, and reports.

It imports no code under test, and none of what it is sent: that is its executors' business, one for each task at a
time. A server that is away is waited for. SIGTERM hands tasks back; kill -9 costs a lease each.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from kernel_assay import __version__
from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.process.channel import Message
from kernel_assay.corpus.process.child import GoneError
from kernel_assay.fuzz.service.client import AwayError, Client, ServiceError
from kernel_assay.fuzz.service.protocol import (
    Heartbeat,
    JobKind,
    JobState,
    Lease,
    LeaseRequest,
    Orders,
    Outcome,
    Progress,
)
from kernel_assay.fuzz.service.work.bisect import Replay, bisected, verified
from kernel_assay.fuzz.service.work.checkouts import Checkouts
from kernel_assay.fuzz.service.work.slot import Slot
from kernel_assay.kernels.environment import environment
from kernel_assay.kernels.sandbox.compiler_caches import cache_home

LOG = logging.getLogger("kassay.worker")
POLL_SECONDS = 4.0
"""A question for a task waits so long at the server, and so long at most a worker without one takes to end."""
FIRST_BEAT, BEAT_SECONDS = 1.0, 5.0
"""After which a server is told of a task first, and then again and again; most that judge are over before."""
STOP_SECONDS, KILL_SECONDS = 4.0, 8.0
"""For a task that is to end: until it is handed back without its findings, and until it is cancelled by force."""
LONGEST_PAUSE = 30.0
"""Between two questions to a server that is away."""
LATE_SECONDS = 3600.0
"""For which an outcome is kept for a server that is away."""
EXTRA_SECONDS = 900.0
"""What a task may take besides twice the time that it was given."""
MOST_LOG = 65_536


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Settings of a worker."""

    name: str
    jobs: int = 1
    devices: tuple[str, ...] = ()
    """Names of its GPUs, which take tasks in turn; none: it takes no jobs for CUDA."""
    kinds: tuple[JobKind, ...] = ()
    memory_mb: int = 4096
    """Of a kernel, at most."""
    closed: bool = True
    """Whether executors are closed in. Raises UsageError at the start where the system refuses that."""
    hidden: tuple[Path, ...] = ()
    """Files and folders that nobody may see who runs what was sent: the token's, for one."""
    readable: tuple[Path, ...] = ()
    """What is seen there besides the system, the interpreter and where programs lie."""
    gpu_only: bool = False
    """Whether it takes jobs for its GPUs alone."""
    idle_seconds: float = math.inf
    """Without a task, after which it ends by itself."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a machine needs to be a worker."""

    server: str
    token: str
    settings: WorkerSettings
    allow_local: bool = False
    allow_private: bool = False
    repositories: Path | None = None
    """Where clones are kept there; None: in the cache."""
    version: str = __version__

    def checkouts(self, agent: str) -> Checkouts:
        """What may be fetched here; agent: the socket of the one for ssh."""
        folder = self.repositories or cache_home() / "kernel-assay-repositories"
        return Checkouts(folder, allow_local=self.allow_local, allow_private=self.allow_private, ssh_agent=agent)


class LeaseLostError(Exception):
    """The task is another worker's, or nobody's any more."""


@dataclass
class Worker:
    """All slots of one worker."""

    client: Client
    settings: WorkerSettings
    checkouts: Checkouts
    say: Callable[[str], None] = lambda _: None
    ending: threading.Event = field(default_factory=threading.Event)
    refused: str = ""
    """Why the server does not take this worker, or could not be asked to the end."""

    def run(self) -> None:
        """Work until `end`, or Ctrl-C, or for idle_seconds in vain. Raises UsageError if the server refuses it."""
        slots = [Slot(number, self.settings.memory_mb, closed=self.settings.closed) for number in range(self.count)]
        try:
            for slot in slots:
                others = (s.folder for s in slots if s is not slot)
                slot.hide([*self.settings.hidden, self.checkouts.folder, *others], self.settings.readable)
            slots[0].try_out()
            threads = [threading.Thread(target=self._serve, args=(slot,), daemon=True) for slot in slots]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                try:
                    time.sleep(0.25)  # a join that is interrupted takes the thread for ended
                except KeyboardInterrupt:
                    self.end()
        finally:
            for slot in slots:
                slot.close()
        if self.refused:
            raise UsageError(self.refused)

    @property
    def count(self) -> int:
        """Tasks at a time."""
        return self.settings.jobs

    def end(self) -> None:
        """Hand back what is under way, and end; for a handler of signals, too."""
        self.ending.set()

    def _serve(self, slot: Slot) -> None:
        """Do one task after the other."""
        waits, question, idle_since = pauses(), "", time.monotonic()
        while not self.ending.is_set():
            with suppress(GoneError):
                slot.warm_up()
            question = question or uuid.uuid4().hex  # the same, until there is an answer
            lease, trouble = None, ""
            try:
                lease = self.client.lease(self._question(question))
                waits, question = pauses(), ""
            except UsageError as error:
                trouble = str(error)
                if isinstance(error, ServiceError) and error.status in {401, 403}:
                    self.refused = trouble
                    self.ending.set()
                    return
                self._wait(next(waits), trouble)
            if lease is not None:
                self._do(slot, lease)
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > self.settings.idle_seconds:
                self.refused = trouble
                return

    def _wait(self, seconds: float, why: str) -> None:
        self.say(f"{why}; asking again in {seconds:.1f} s")
        self.ending.wait(seconds)

    def _question(self, name: str) -> LeaseRequest:
        s = self.settings
        said = {"worker": s.name, "devices": s.devices, "gpu_only": s.gpu_only, "kinds": s.kinds, "question": name}
        local = self.checkouts.allow_local
        return LeaseRequest(**said, local=local, environment=environment(), wait=POLL_SECONDS)

    def _do(self, slot: Slot, lease: Lease) -> None:
        """Do a task, and report it; one that is lost is nobody's business any more."""
        began = time.monotonic()
        task = Task(self, slot, lease)
        try:
            outcome = task.outcome()
        except LeaseLostError:
            self.say(f"{lease.task}: the lease was lost")
            return
        self._report(lease, outcome.but(epoch=lease.epoch))
        seconds = time.monotonic() - began
        what = outcome.reason or outcome.verdict
        self.say(f"{lease.task} {lease.request.kind.value}: {outcome.state.value} {what} in {seconds:.1f} s")

    def _report(self, lease: Lease, outcome: Outcome) -> None:
        """Tell the server, as often as it takes."""
        until = time.monotonic() + LATE_SECONDS
        for pause in pauses():
            try:
                self.client.end(lease.task, outcome)
            except ServiceError as error:
                if error.status in {404, 409}:
                    self.say(f"{lease.task}: {error}")
                    return
                if outcome.state is JobState.FAILED and not outcome.findings:
                    return
                reason = f"the server does not take what the worker reports: {error}"
                outcome = Outcome(epoch=lease.epoch, state=JobState.FAILED, reason=reason[:2000])
            except AwayError as error:
                if time.monotonic() > until or (self.ending.is_set() and pause > 2 * STOP_SECONDS):
                    return
                self.say(f"{lease.task}: {error}; it will be told again")
                time.sleep(pause)
            else:
                return


def pauses() -> Iterator[float]:
    """Seconds between tries: twice as many each time, and not the same for all workers."""
    pause = 0.5
    while True:
        yield pause * random.uniform(0.7, 1.3)
        pause = min(LONGEST_PAUSE, 2 * pause)


class Task:
    """A task under way: the executor is listened to, and the server is told how far it is."""

    def __init__(self, worker: Worker, slot: Slot, lease: Lease) -> None:
        self._worker, self._slot, self._lease = worker, slot, lease
        self._progress, self._log = Progress(), ""
        self._beat_at = time.monotonic() + FIRST_BEAT
        self._ordered: JobState | None = None
        """The state it is to end with: cancelled, or handed back."""
        self._ordered_at = 0.0
        self._told_drain = False

    def outcome(self) -> Outcome:
        """Do it. Raises LeaseLostError."""
        try:
            return self._done()
        except _EndedError as ended:
            return ended.outcome
        except UsageError as error:
            state = JobState.QUEUED if isinstance(error, AwayError) else JobState.FAILED
            return Outcome(epoch=1, state=state, reason=str(error)[:2000])
        except LeaseLostError:
            raise
        except Exception:  # whatever a strange request brings about: the slot goes on with the next task
            LOG.exception("%s: the worker made a mistake", self._lease.task)
            self._slot.renew()
            return Outcome(
                epoch=1, state=JobState.FAILED, reason="the worker made a mistake; its own output says which"
            )

    def _done(self) -> Outcome:
        request = self._lease.request
        if request.checkout is None:
            return self._once(self._slot.written(self._files()))
        if request.kind is JobKind.BISECT:
            return bisected(request, self._at_commits())
        if request.kind is JobKind.VERIFY:
            return verified(request, self._at_commits())
        return self._once(self._checked_out(request.checkout.commit))

    def _files(self) -> Mapping[str, str]:
        """The files that were sent with the job. Raises UsageError if they cannot be had, or are not what they were."""
        lease = self._lease
        if not lease.sources:
            return {}
        return lease.files or self._worker.client.sources(lease.task, lease.epoch).files

    def _at_commits(self) -> Replay:
        """The finding, to be replayed at one commit after another."""

        def replay(commit: str, times: int) -> Outcome:
            done = self._once(self._checked_out(commit), times)
            if done.state not in {JobState.DONE, JobState.FAILED}:
                raise _EndedError(done)
            self._log += f"{commit[:12]}: {done.verdict or done.reason}\n"
            return done

        checkout = self._lease.request.checkout
        assert checkout is not None
        return Replay(replay, self._worker.checkouts.history(checkout.repository, self._patience))

    def _checked_out(self, commit: str) -> Path:
        checkout = self._lease.request.checkout
        assert checkout is not None
        return self._worker.checkouts.files(checkout.repository, commit, self._slot.folder, self._patience)

    def _patience(self) -> None:
        """Called while git is waited for. Raises _EndedError if the task is to end."""
        self._beat_if_due()
        if self._ordered is not None:
            raise _EndedError(self._ended())

    def _once(self, sources: Path, times: int = 0) -> Outcome:
        """Have it executed with these files; once more, if the executor dies."""
        message = {
            "request": self._lease.request.model_dump(mode="json"),
            "sources": str(sources),
            "work": {
                "seed": self._lease.seed,
                "cases": self._lease.cases,
                "times": times,
                "device": self._slot.device(len(self._worker.settings.devices)),
                "memory_mb": self._worker.settings.memory_mb,
            },
        }
        try:
            return self._executed(message)
        except GoneError as gone:
            self._log += f"the executor has ended, and is started anew: {gone}\n"
            self._slot.renew()
        try:
            return self._executed(message)
        except GoneError as gone:
            self._slot.renew()
            return Outcome(epoch=1, state=JobState.FAILED, reason=f"twice while it was executed, {gone}")

    def _executed(self, message: Message) -> Outcome:
        """The outcome. Raises GoneError and LeaseLostError."""
        executor = self._slot.executor()
        executor.say(message)
        hard = time.monotonic() + 2 * (self._lease.request.settings.seconds or 0.0) + EXTRA_SECONDS
        while True:
            heard = self._heard(executor.hear)
            if "outcome" in heard:
                return self._taken(heard["outcome"])
            if "progress" in heard:
                self._progress = Progress.model_validate(heard["progress"])
                if self._progress.line:
                    self._log = f"{self._log}{self._progress.line}\n"[-MOST_LOG:]
            self._beat_if_due()
            if self._ordered is not None and time.monotonic() > self._ordered_at + (
                STOP_SECONDS if self._ordered is JobState.QUEUED else KILL_SECONDS
            ):
                self._slot.renew()
                return self._ended()
            if time.monotonic() > hard:
                self._slot.renew()
                return Outcome(epoch=1, state=JobState.FAILED, reason="it took far longer than it was given")

    @staticmethod
    def _heard(hear: Callable[[float], Message]) -> Message:
        """The next message; nothing, if there is none within a moment."""
        try:
            return hear(0.25)
        except GoneError as gone:
            if not gone.silent:
                raise
            return {}

    def _taken(self, said: Message) -> Outcome:
        """The outcome as the executor tells it, which is not to be trusted; with the state that was ordered."""
        self._slot.done()
        try:
            outcome = Outcome.model_validate(said)
        except ValidationError as error:
            why = f"what came of it is not as it should be: {error.error_count()} faults"
            return Outcome(epoch=1, state=JobState.FAILED, reason=why)
        outcome = outcome.but(log=(self._log + outcome.log)[-MOST_LOG:])
        known = self._lease.request.kind is JobKind.JUDGE and outcome.verdict == "wrong"  # whatever was not tried
        finished = outcome.state in {JobState.DONE, JobState.FAILED} and (known or not self._worker.ending.is_set())
        return outcome if self._ordered is None or finished else outcome.but(state=self._ordered)

    def _ended(self) -> Outcome:
        assert self._ordered is not None
        words = "the worker was told to end" if self._ordered is JobState.QUEUED else "cancelled"
        return Outcome(epoch=1, state=self._ordered, reason=words, progress=self._progress, log=self._log)

    def _beat_if_due(self) -> None:
        """Tell the server how far it is, and obey. Raises LeaseLostError."""
        if self._worker.ending.is_set():
            self._order(JobState.QUEUED)
        if time.monotonic() < self._beat_at or self._ordered is JobState.QUEUED:
            return
        self._beat_at = time.monotonic() + BEAT_SECONDS
        log, self._log = self._log, ""
        try:
            orders = self._worker.client.heartbeat(
                self._lease.task, Heartbeat(epoch=self._lease.epoch, progress=self._progress, log=log)
            )
        except ServiceError as error:
            if error.status in {404, 409}:
                self._slot.renew()
                raise LeaseLostError from error
            return
        except UsageError:
            self._log = log + self._log
            return
        self._obey(orders)

    def _obey(self, orders: Orders) -> None:
        if orders.cancel:
            self._order(JobState.CANCELLED)
        if orders.drain and not self._told_drain:
            self._told_drain = True
            self._worker.say("drained: this task is the last one until the server says otherwise")

    def _order(self, state: JobState) -> None:
        if self._ordered is None:
            self._ordered, self._ordered_at = state, time.monotonic()
            with suppress(GoneError):
                self._slot.executor().say({"stop": True})


class _EndedError(Exception):
    """A task was ended in the middle of something."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome
