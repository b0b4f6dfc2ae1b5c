"""Several processes that search together: each runs, judges and counts batches; one hands them out and adds them up.

Which cases there are does not depend on how many processes there are, or on which is how fast: a batch is made of its
number and of the elites of batches that lie far enough back (fuzz/elites.py), and what comes back is taken in order.
"""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from corpus.campaign import Campaign
from corpus.errors import InternalError, UsageError
from corpus.parent import die_with_parent
from fuzz.check import Examiner
from fuzz.collector import seldom
from fuzz.elites import Elites, seen_by
from fuzz.engine import BATCH, propose
from fuzz.plan import targets
from fuzz.rounds import Round, Runner
from kernels.mps import side_by_side
from kernels.nursery import Nursery
from kernels.places import Place

DEPTH = 2
"""Batches that a process has at once: one runs, while another is judged."""
_WAIT_SECONDS = 0.1
_END_SECONDS = 5.0

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


@dataclass(slots=True)
class _Member:
    """One of the processes."""

    process: BaseProcess
    conn: Connection
    told: int = 0
    """Admissions it knows."""
    under_way: int = 0
    """Batches it has."""


class Fleet:
    """As many processes as there are places. Use it as a context manager."""

    def __init__(
        self,
        examiner: Examiner,
        campaign: Campaign,
        places: Sequence[Place],
        most: int | None = None,
        *,
        share: bool = True,
    ) -> None:
        """examiner: has loaded every subject; most: elements of the largest tensor of a case.

        share: use a GPU together, if that can be.
        Raises UsageError for an engine whose cases are no function of their index.
        """
        if campaign.engine != "conjecture":
            raise UsageError(f"several processes need the engine 'conjecture', and not {campaign.engine!r}")
        self._most_lead = campaign.most_lead
        self._stack = ExitStack()
        places = side_by_side(places, self._stack) if share else places
        self.shared = any(p.shared for p in places)
        """Whether processes use a GPU together, instead of in turns."""
        self._members = [_start(examiner, campaign, p, most) for p in places]
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

    def close(self) -> None:
        """End all processes."""
        for member in self._members:
            member.conn.close()
        for member in self._members:
            member.process.join(_END_SECONDS)
            if member.process.is_alive():
                member.process.kill()
                member.process.join()
        self._members = []
        self._stack.close()

    def rounds(self, begin: int, last: int, over: Over, admit: Admit, known: Iterable[Said] = ()) -> Iterator[Round]:
        """What comes of the batches from case `begin` to the one before `last`, in their order.

        over: whether the batch that begins at an index is wanted no more; admit: called in the order of batches, gives
        the elites that count from then on; known: those that do already. Raises what a process raised.
        """
        self._begin, self._next, self._last = begin, begin // BATCH, last
        self._admitted = self._next - 1
        self._log, self._over, self._admit = list(known), over, admit
        while True:
            self.pump()
            if self._ready:
                yield self._ready.popleft()
            elif any(m.under_way for m in self._members):
                wait([m.conn for m in self._members if m.under_way], _WAIT_SECONDS)
            else:
                return

    def pump(self) -> None:
        """Take in what has come back and hand out what may begin, without waiting."""
        for member in self._members:
            while member.under_way and member.conn.poll():
                self._receive(member)
        while (done := self._done.pop(self._admitted + 1, None)) is not None:
            self._admitted = done.batch
            self._log += self._admit(done)
            self._ready.append(done)
        while (free := min(self._members, key=lambda m: m.under_way)).under_way < DEPTH and self._may_begin():
            self._hand_out(free)

    def _may_begin(self) -> bool:
        first = max(self._next * BATCH, self._begin)
        known = seen_by(self._next, self._most_lead) <= self._admitted
        return known and first < self._last and not self._over(first)

    def _hand_out(self, member: _Member) -> None:
        begin, end = max(self._next * BATCH, self._begin), min((self._next + 1) * BATCH, self._last)
        try:
            member.conn.send(Order(self._next, begin, end, self._log[member.told :]))
        except OSError:
            raise _death(member) from None
        member.told = len(self._log)
        member.under_way += 1
        self._next += 1

    def _receive(self, member: _Member) -> None:
        try:
            said = member.conn.recv()
        except (EOFError, OSError):
            raise _death(member) from None
        if isinstance(said, BaseException):
            raise said
        member.under_way -= 1
        self._done[said.batch] = said


def _death(member: _Member) -> InternalError:
    member.process.join(_END_SECONDS)
    return InternalError(f"a process of the search died (its exit code is {member.process.exitcode})")


def _start(examiner: Examiner, campaign: Campaign, place: Place, most: int | None) -> _Member:
    ours, theirs = Pipe()
    nursery = examiner.sandbox.nursery.branch(place.environment)
    with warnings.catch_warnings():
        # Some library's threads wait for work that this process does not give them.
        warnings.simplefilter("ignore", DeprecationWarning)
        arguments = (theirs, examiner, nursery, place, campaign, most)
        process = get_context("fork").Process(target=_serve, args=arguments, daemon=True)
        process.start()
    theirs.close()
    nursery.let_go()
    return _Member(process, ours)


def _serve(
    conn: Connection, examiner: Examiner, nursery: Nursery, place: Place, campaign: Campaign, most: int | None
) -> None:
    """A process's life: orders come in, rounds go out, until the other side hangs up."""
    die_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # ending is for the one that hands out
    _keep_only({0, 1, 2, conn.fileno(), nursery.fileno()})
    try:
        with examiner.twin(nursery, place) as mine, seldom():
            _work(conn, mine, campaign, most)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except (UsageError, InternalError) as error:
        conn.send(error)
    except Exception:  # noqa: BLE001  whatever it is, the one that hands out must know
        conn.send(InternalError(traceback.format_exc()))


def _work(conn: Connection, examiner: Examiner, campaign: Campaign, most: int | None) -> None:
    elites = Elites((), campaign.most_lead)
    runner, aims = Runner(examiner, campaign, elites), targets(campaign, most)
    proposals = flight = None
    while True:
        following = None
        if flight is None or conn.poll():
            order: Order = conn.recv()
            elites.learn(order.admitted)
            following = [propose(aims, campaign.seed, i, elites) for i in range(order.begin, order.end)]
        if proposals is None or flight is None:
            proposals, flight = following, runner.launch(following or ())
            continue
        outcomes = examiner.collect(flight)
        upcoming = runner.launch(following) if following else None
        conn.send(runner.judge(proposals, flight, outcomes, upcoming))
        proposals, flight = following, upcoming


def _keep_only(wanted: set[int]) -> None:
    """Close what the process has inherited: whoever waits for another's end must not wait for this one's."""
    for inherited in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if inherited not in wanted:
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(inherited)
