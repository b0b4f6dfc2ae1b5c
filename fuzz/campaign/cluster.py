"""A search over the machines of a Ray cluster: another carrier of the batches that parallel.py hands out.

An actor on a node has an examiner of its own, whose sandboxed workers run the code under test there; failures are
looked into where the run was begun. A node that is lost costs its batches a second run, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import platform
import queue
import signal
import socket
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from kernel_assay import __version__
from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.fuzz.campaign.batches import Round
from kernel_assay.fuzz.campaign.clock import Clock
from kernel_assay.fuzz.campaign.examiners import examiner_of
from kernel_assay.fuzz.campaign.garbage import seldom
from kernel_assay.fuzz.campaign.hang_allowance import HANG_SHARE
from kernel_assay.fuzz.campaign.parallel import DEPTH, Fleet, Member, Order, Work, patience, work_on
from kernel_assay.fuzz.checking.user_contracts import know_run
from kernel_assay.kernels.boundary.devices import Place, places_of
from kernel_assay.kernels.catalog import resolve, source_digest

START_SECONDS = 180.0
"""For which a search waits for an actor while it has none."""
_WAIT_SECONDS = 0.1
KNOCK_SECONDS = 5.0
"""For a cluster's port to answer."""


@dataclass(frozen=True, slots=True)
class _Task:
    """Work for an actor."""

    campaign: Campaign
    most: int | None
    left: float
    """Seconds until the search is over: clocks of two machines do not agree."""
    grace: float
    hang_seconds: float
    folder: str
    version: str


class _Actor:
    """A process on a node, which lives in a thread: calls come in others. It is the other end of a _Line."""

    def __init__(self, task: _Task) -> None:
        self._orders: queue.Queue[Order] = queue.Queue()
        self._answers: deque[Future[Round | None]] = deque()
        self._began: Future[None] = Future()
        self._turn, self._turns = 0, threading.Condition()
        # A sandbox dies with the thread that has started it, so that one does all the work.
        threading.Thread(target=self._live, args=(task,), daemon=True).start()

    def begun(self) -> None:
        """Wait until all is ready. Raises what is in the way."""
        self._began.result()

    def work(self, number: int, order: Order) -> Round | None:
        """Do a batch; number: of the order, as calls may overtake one another."""
        answer: Future[Round | None] = Future()
        with self._turns:
            self._turns.wait_for(lambda: self._turn == number)
            self._answers.append(answer)
            self._orders.put(order)
            self._turn += 1
            self._turns.notify_all()
        return answer.result()

    def _live(self, task: _Task) -> None:
        try:
            _look_around(task)
            place = places_of(task.campaign.chosen.device.partition(":")[0])[0]
            clock = Clock(task.left, task.grace).theirs()
            work = Work(know_run(task.campaign), task.most, clock, task.hang_seconds)
            with examiner_of(task.campaign, place) as examiner, seldom():
                examiner.sandbox.beside = clock.check
                self._began.set_result(None)
                work_on(self, examiner, work)
        except BaseException as error:  # noqa: BLE001  whatever it is, the one that hands out must know
            known = isinstance(error, UsageError | InternalError)
            self._fail(error if known else InternalError(traceback.format_exc()))

    def _fail(self, error: BaseException) -> None:
        waiting: tuple[Future[Any], ...] = (self._began, *self._answers)
        for one in waiting:
            if not one.done():
                one.set_exception(error)

    # as work_on sees it

    def recv(self) -> Order:
        """Wait for the next order."""
        return self._orders.get()

    def poll(self) -> bool:
        """Whether there is one."""
        return not self._orders.empty()

    def send(self, said: Round | None, /) -> None:
        """Answer the first of the orders that has no answer yet."""
        self._answers.popleft().set_result(said)

    def close(self) -> None:
        """Do nothing: an actor is ended from outside."""


def _look_around(task: _Task) -> None:
    """See that this node has what the search needs. Raises UsageError."""
    node = platform.node()
    if __version__ != task.version:
        raise UsageError(f"node {node} has version {__version__} of this tool, and not {task.version}")
    try:
        os.chdir(task.folder)
    except OSError as error:
        raise UsageError(f"node {node} has no folder {task.folder} ({error.strerror}); share it, or copy it") from None
    for subject in task.campaign.subjects:
        file = resolve(subject)
        if not file.is_file() or source_digest(file, subject.launch) != subject.source_digest:
            raise UsageError(f"node {node} has no {file}, or another one than here; share its folder, or copy it")


class _Line:
    """The connection to an actor: sends orders, and receives its answers."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor
        self.begun = actor.begun.remote()
        self.answers: deque[Any] = deque()
        self._number = 0

    def send(self, order: Order, /) -> None:
        """Send an order."""
        self.answers.append(self._actor.work.remote(self._number, order))
        self._number += 1

    def poll(self) -> bool:
        """Whether the first answer is there, or none will come."""
        return self.is_over(self.answers[0])

    def is_over(self, call: Any) -> bool:
        """Whether a call has ended."""
        return bool(self._ray.wait([call], timeout=0)[0])

    def recv(self) -> Round | None:
        """The first answer. Raises EOFError if the actor is lost, and what it raised."""
        said: Round | None = self.result(self.answers.popleft())
        return said

    def result(self, call: Any) -> Any:
        """Wait for the end of a call. Raises as recv."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(call)
        except errors.RayTaskError as error:
            raise (
                error.cause if isinstance(error.cause, UsageError | InternalError) else InternalError(str(error))
            ) from None
        except errors.RayError as error:
            raise EOFError from error

    def close(self) -> None:
        """End the actor."""
        with contextlib.suppress(Exception):  # its node may be gone
            self._ray.kill(self._actor)


class ClusterSearch(Fleet):
    """Actors of a Ray cluster that search together. Use it as a context manager."""

    losses = 5

    def __init__(
        self, address: str, campaign: Campaign, timeout: float, most: int | None, clock: Clock, jobs: int = 0
    ) -> None:
        """address: as for `joined`. jobs: actors; 0: one a processor, or one a GPU.

        Raises UsageError if there is no such cluster, or nothing in it to run on.
        """
        super().__init__(campaign, patience(timeout))
        self._ray = joined(address)
        self._on_gpu = campaign.chosen.device != "cpu"
        what = "GPU" if self._on_gpu else "CPU"
        number = jobs or int(self._ray.cluster_resources().get(what, 0))
        if not number:
            self.close()
            raise UsageError(f"the Ray cluster {address} has no {what}")
        self._campaign, self._most, self._clock = campaign, most, clock
        self._hangs = HANG_SHARE * clock.seconds / number
        self._starting = [self._start() for _ in range(number)]
        self._alone_since = time.monotonic()

    def _start(self) -> Member:
        left, here = self._clock.over_at - time.monotonic(), str(Path.cwd())
        task = _Task(self._campaign, self._most, left, self._clock.grace, self._hangs, here, __version__)
        needs = {"num_cpus": 1, "num_gpus": int(self._on_gpu), "max_concurrency": DEPTH + 1}
        actor = self._ray.remote(_Actor).options(**needs, scheduling_strategy="SPREAD").remote(task)
        return Member(_Line(self._ray, actor), Place(self._campaign.chosen.device))

    def pump(self) -> None:
        """Take in what has come back, let those begin that have started, and hand out, without waiting."""
        for member in [m for m in self._starting if m.conn.is_over(m.conn.begun)]:  # type: ignore[attr-defined]
            self._starting.remove(member)
            try:
                member.conn.result(member.conn.begun)  # type: ignore[attr-defined]
                self._members.append(member)
            except EOFError:  # its node went while it started
                self._starting.append(self._start())
        super().pump()
        if self._members:
            self._alone_since = time.monotonic()
        elif time.monotonic() - self._alone_since > START_SECONDS:
            raise UsageError("no node of the Ray cluster has room for the search; free some, or name fewer --jobs")

    def _expecting(self) -> bool:
        return not self._members and self._may_begin()

    def _wait(self, busy: Sequence[Member]) -> None:
        calls = [m.conn.answers[0] for m in busy] + [m.conn.begun for m in self._starting]  # type: ignore[attr-defined]
        self._ray.wait(calls, timeout=_WAIT_SECONDS)

    def _replace(self, member: Member) -> None:
        """Give the work of an actor that is lost to others; a new one joins them once a node has room for it."""
        member.conn.close()
        self._members.remove(member)
        self._take_back(member, "its node may be short of memory")
        self._starting.append(self._start())

    def close(self) -> None:
        """End all actors, and leave the cluster."""
        for member in [*self._members, *self.__dict__.get("_starting", ())]:
            member.conn.close()
        self._members, self._starting = [], []
        with handlers_kept():
            self._ray.shutdown()


def joined(address: str) -> Any:
    """Join a cluster: `auto`, `local`, `HOST:PORT` or `ray://HOST:PORT`; Ray, connected. Raises UsageError."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # it would warn of what it will do one day
    try:
        ray: Any = import_module("ray")  # it is large, and seldom there
    except ModuleNotFoundError as error:
        raise UsageError("--ray needs Ray: pip install 'kernel-assay[ray]'") from error
    _knock(address)
    try:
        with handlers_kept(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        hint = "" if address in {"auto", "local"} else "; where Ray asks for tokens, set RAY_AUTH_MODE=token"
        raise _unreachable(address, f"{error}{hint}") from error
    return ray


def _knock(address: str) -> None:
    """Raise UsageError if nobody listens there: Ray itself would try for minutes, deaf to signals."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, error) from error


def _unreachable(address: str, error: object) -> UsageError:
    said = " ".join(str(error).split())[:300]
    return UsageError(
        f"the Ray cluster {address!r} cannot be reached ({said}); name auto, local, HOST:PORT or ray://HOST:PORT"
    )


@contextlib.contextmanager
def handlers_kept() -> Iterator[None]:
    """Leave our handlers of signals where they are: Ray puts its own in their place."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
