"""Several processes that search together: each runs, judges and counts batches; one hands them out and adds them up.

Which cases there are does not depend on how many processes there are, or on which is how fast: a batch is made of its
number and of the elites of batches that lie far enough back (fuzz/generation/elites.py), and what comes back is taken
in order.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
import warnings
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.process import forked_child
from kernel_assay.corpus.process.parent_death import die_with_parent
from kernel_assay.fuzz.campaign.batches import Round, Runner
from kernel_assay.fuzz.campaign.clock import Clock
from kernel_assay.fuzz.campaign.garbage import seldom
from kernel_assay.fuzz.campaign.hang_allowance import HANG_SHARE
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.generation.elites import Elites, seen_by
from kernel_assay.fuzz.generation.engines import BATCH, propose
from kernel_assay.fuzz.planning.plan import targets
from kernel_assay.kernels.boundary.devices import Place
from kernel_assay.kernels.sandbox.mps import side_by_side
from kernel_assay.kernels.sandbox.worker_pool import WorkerPool

DEPTH = 2
"""Batches that a process has at once: one runs, while another is judged."""
_WAIT_SECONDS = 0.1
_END_SECONDS = 0.5
STOPPED_SECONDS = 5.0
"""After which a process that was stopped, and does not go on, is replaced."""
BATCH_SECONDS = 600.0
"""The same of one that has answered nothing, besides BATCH_TIMEOUTS of the longest times of executions."""
BATCH_TIMEOUTS = 60
_STEP_SECONDS = 0.5
"""What counts at most between two looks: when all of them stand still, as in a laptop that sleeps, nobody is late."""

Said = dict[str, Any]
Over = Callable[[int], bool]
Admit = Callable[[Round], list[Said]]


@dataclass(frozen=True, slots=True)
class Order:
    """A batch to be run: its number, the indices it has of it, and the elites that were admitted since the last one."""

    batch: int
    begin: int
    end: int
    admitted: list[Said]


class Line(Protocol):
    """A connection that carries orders and answers: a pipe's end, or what stands for one."""

    def send(self, obj: Any, /) -> None:
        """Send an order, or an answer. Raises OSError if the other side has gone."""

    def recv(self) -> Any:
        """Wait for the next. Raises EOFError or OSError if the other side has gone."""

    def poll(self) -> bool:
        """Whether there is one."""

    def close(self) -> None:
        """Hang up."""


@dataclass(slots=True)
class Member:
    """One of the processes, here or on another machine."""

    conn: Line
    place: Place
    told: int = 0
    """Admissions it knows."""
    orders: deque[Order] = field(default_factory=deque)
    """Batches it has, in the order in which it answers."""
    silent: float = 0.0
    """Seconds since it was given something to do, or has answered."""
    stopped: float = 0.0
    """Seconds for which it has stood still."""


@dataclass(slots=True, kw_only=True)
class _Member(Member):
    """One here."""

    process: BaseProcess
    conn: Connection


class Fleet(ABC):
    """Processes that search together, wherever they are. Use it as a context manager."""

    losses = 1
    """Processes that a batch may cost."""
    shared = False
    """Whether processes use a GPU together, instead of in turns."""

    def __init__(self, campaign: Campaign, patience: float) -> None:
        """patience: seconds in which a process has to answer.

        Raises UsageError for an engine whose cases are no function of their index.
        """
        if campaign.engine != "conjecture":
            raise UsageError(f"several processes need the engine 'conjecture', and not {campaign.engine!r}")
        self._most_lead, self._patience = campaign.most_lead, patience
        self._members: list[Any] = []
        self._looked = time.monotonic()
        self._again: list[int] = []
        """Batches that a process had which was lost."""
        self._lost: Counter[int] = Counter()
        """Batch -> processes that were lost with it."""
        self._log: list[Said] = []
        self._done: dict[int, Round] = {}
        """Those that came before their turn."""
        self._ready: deque[Round] = deque()
        self._admitted = self._next = self._last = 0
        """The last batch whose elites are known, the next one to hand out, and the index behind the last case."""
        self._begin = 0
        self._over: Over = lambda _: True
        self._admit: Admit = lambda _: []

    def __enter__(self) -> Self:
        """The fleet itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """End all its processes."""
        self.close()

    @abstractmethod
    def close(self) -> None:
        """End all processes."""

    @abstractmethod
    def _replace(self, member: Any) -> None:
        """Give the work of a process that is lost to others, and its place to a new one."""

    @abstractmethod
    def _wait(self, busy: Sequence[Any]) -> None:
        """Wait a moment for an answer of theirs."""

    def _expecting(self) -> bool:
        """Whether a process is about to begin that has something to do."""
        return False

    def rounds(
        self,
        begin: int,
        last: int,
        over: Over,
        admit: Admit,
        known: Iterable[Said] = (),
        check: Callable[[], None] = lambda: None,
    ) -> Iterator[Round]:
        """Yield what comes of the batches from case `begin` to the one before `last`, in their order.

        over: whether the batch that begins at an index is wanted no more; admit: called in the order of batches, gives
        the elites that count from then on; known: those that do already; check: called again and again, may raise.
        Raises what a process raised.
        """
        self._begin, self._next, self._last = begin, begin // BATCH, last
        self._admitted = self._next - 1
        self._log, self._over, self._admit = list(known), over, admit
        while True:
            self.pump()
            if self._ready:
                yield self._ready.popleft()
            elif (busy := [m for m in self._members if m.orders]) or self._expecting():
                self._wait(busy)
                check()
            else:
                return

    def pump(self) -> None:
        """Take in what has come back and hand out what may begin, without waiting."""
        for member in list(self._members):
            while member.orders and member.conn.poll() and self._receive(member):
                pass
        self._replace_the_stuck()
        while (done := self._done.pop(self._admitted + 1, None)) is not None:
            self._admitted = done.batch
            self._log += self._admit(done)
            self._ready.append(done)
        while (free := self._free()) is not None and self._may_begin():
            self._hand_out(free)

    def _free(self) -> Any:
        """The member with the least to do, if that is not enough; None: there is none."""
        free = min(self._members, key=lambda m: len(m.orders), default=None)
        return free if free is not None and len(free.orders) < DEPTH else None

    def _may_begin(self) -> bool:
        if self._again:
            return True
        first = max(self._next * BATCH, self._begin)
        known = seen_by(self._next, self._most_lead) <= self._admitted
        return known and first < self._last and not self._over(first)

    def _hand_out(self, member: Member) -> None:
        batch = self._again.pop(0) if self._again else self._next
        begin, end = max(batch * BATCH, self._begin), min((batch + 1) * BATCH, self._last)
        order = Order(batch, begin, end, self._log[member.told :])
        self._next = max(self._next, batch + 1)
        member.orders.append(order)
        member.silent = 0.0 if len(member.orders) == 1 else member.silent
        try:
            member.conn.send(order)
        except OSError:
            self._replace(member)
            return
        member.told = len(self._log)

    def _receive(self, member: Member) -> bool:
        """Take in an answer; whether the process is still there."""
        try:
            said = member.conn.recv()
        except (EOFError, OSError):
            self._replace(member)
            return False
        if isinstance(said, BaseException):
            raise said
        member.orders.popleft()
        member.silent = 0.0
        if said is not None:
            self._done[said.batch] = said
        return True

    def _replace_the_stuck(self) -> None:
        """Replace processes that stand still; of the time that passes, as much counts as this process was awake."""
        now = time.monotonic()
        step, self._looked = min(_STEP_SECONDS, now - self._looked), now
        for member in [m for m in self._members if m.orders]:
            member.silent += step
            member.stopped = member.stopped + step if self._is_stopped(member) else 0.0
            if member.stopped > STOPPED_SECONDS or member.silent > self._patience:
                self._replace(member)

    def _is_stopped(self, member: Any) -> bool:
        """Whether somebody has stopped it, as far as one can see."""
        del member
        return False

    def _take_back(self, member: Member, why: str) -> None:
        """Have others do the work of a process that is lost. Raises InternalError if it has cost too many."""
        self._lost[member.orders[0].batch] += 1
        if self._lost[member.orders[0].batch] > self.losses:
            raise InternalError(f"a process of the search died again ({why})")
        self._again = sorted([*self._again, *(order.batch for order in member.orders)])


class ParallelSearch(Fleet):
    """Processes of this machine that search together, one a place. Use it as a context manager."""

    def __init__(
        self,
        examiner: Examiner,
        campaign: Campaign,
        places: Sequence[Place],
        most: int | None = None,
        clock: Clock | None = None,
        *,
        share: bool = True,
    ) -> None:
        """examiner: has loaded every subject; most: elements of the largest tensor of a case.

        clock: when the search is over. share: use a GPU together, if that can be.
        Raises UsageError for an engine whose cases are no function of their index.
        """
        super().__init__(campaign, patience(examiner.sandbox.timeout))
        self._stack = ExitStack()
        places = side_by_side(places, self._stack) if share else places
        self.shared = any(p.shared for p in places)
        clock = clock or Clock()
        hangs = HANG_SHARE * clock.seconds / len(places)
        self._start: Callable[[Place], _Member] = partial(
            _start, examiner, work=Work(campaign, most, clock.theirs(), hangs)
        )
        self._members = [self._start(p) for p in places]

    def close(self) -> None:
        """End all processes."""
        for member in self._members:
            member.conn.close()
        deadline = time.monotonic() + _END_SECONDS
        for member in self._members:
            member.process.join(max(0.0, deadline - time.monotonic()))
        for member in self._members:
            _end(member)
        self._members = []
        self._stack.close()

    def _wait(self, busy: Sequence[_Member]) -> None:
        wait([m.conn for m in busy], _WAIT_SECONDS)

    def _is_stopped(self, member: _Member) -> bool:
        """Whether somebody has stopped it, as Ctrl-Z or a debugger does."""
        try:
            said = Path(f"/proc/{member.process.pid}/stat").read_text("utf-8", "replace")
        except OSError:
            return False
        return said.rpartition(")")[2].split()[0] in "Tt"

    def _replace(self, member: _Member) -> None:
        """Give the work of a process that is lost to others, and its place to a new one.

        Raises InternalError if the batch that it was at has cost a process before.
        """
        _end(member)
        self._take_back(member, f"its exit code is {member.process.exitcode}")
        self._members[self._members.index(member)] = self._start(member.place)


def patience(timeout: float) -> float:
    """Seconds in which a process has to answer; timeout: of an execution."""
    return BATCH_SECONDS + BATCH_TIMEOUTS * timeout


def _end(member: _Member) -> None:
    member.conn.close()
    member.process.kill()
    member.process.join()


@dataclass(frozen=True, slots=True)
class Work:
    """Work for a process."""

    campaign: Campaign
    most: int | None
    clock: Clock
    hang_seconds: float
    """What time-outs may cost it in all."""


def _start(examiner: Examiner, place: Place, work: Work) -> _Member:
    ours, theirs = Pipe()
    pool = examiner.sandbox.pool.branch(place.environment)
    with warnings.catch_warnings():
        # Some library's threads wait for work that this process does not give them.
        warnings.simplefilter("ignore", DeprecationWarning)
        arguments = (theirs, examiner, pool, place, work)
        process = get_context("fork").Process(target=_serve, args=arguments, daemon=True)
        process.start()
    theirs.close()
    pool.let_go()
    return _Member(process=process, conn=ours, place=place)


def _serve(conn: Connection, examiner: Examiner, pool: WorkerPool, place: Place, work: Work) -> None:
    """A process's life: orders come in, rounds go out, until the other side hangs up."""
    die_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # ending is for the one that hands out
    _keep_only({0, 1, 2, conn.fileno(), pool.fileno(), *forked_child.descriptors()})
    try:
        with examiner.twin(pool, place) as mine, seldom():
            mine.sandbox.beside = work.clock.check
            work_on(conn, mine, work)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except (UsageError, InternalError) as error:
        conn.send(error)
    except Exception:  # noqa: BLE001  whatever it is, the one that hands out must know
        conn.send(InternalError(traceback.format_exc()))


def work_on(conn: Line, examiner: Examiner, work: Work) -> None:
    """Take orders and answer them, for ever: one batch runs, while the one before it is judged."""
    elites = Elites((), work.campaign.most_lead)
    runner = Runner(examiner, work.campaign, elites, work.hang_seconds)
    aims, proposals, in_flight = targets(work.campaign, work.most), None, None
    while True:
        following = None
        if in_flight is None or conn.poll():
            order: Order = conn.recv()
            elites.learn(order.admitted)
            following = [propose(aims, work.campaign.seed, i, elites) for i in range(order.begin, order.end)]
        if proposals is None or in_flight is None:
            proposals, in_flight = following, runner.launch(following or ())
            continue
        outcomes = runner.collect(in_flight)
        late = following is not None and work.clock.over
        upcoming = runner.launch(following) if following and not late else None
        conn.send(runner.judge(proposals, in_flight, outcomes, upcoming))
        if late:
            conn.send(None)  # nobody wants that batch any more
        proposals, in_flight = (following, upcoming) if upcoming else (None, None)


def _keep_only(wanted: set[int]) -> None:
    """Close what the process has inherited: whoever waits for another's end must not wait for this one's."""
    for inherited in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if inherited not in wanted:
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(inherited)
