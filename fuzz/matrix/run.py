"""Run the cells of a matrix, in one process or in several, and keep what became of each before the next begins."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Self

from kernel_assay import __version__
from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.process.parent_death import die_with_parent
from kernel_assay.corpus.storage.matrix_journal import MatrixJournal
from kernel_assay.corpus.storage.matrix_record import ANY, BUILTIN, CellResult, MatrixRun, Standing
from kernel_assay.corpus.storage.opening import open_store
from kernel_assay.corpus.storage.place import Place
from kernel_assay.corpus.storage.protocol import CorpusStore
from kernel_assay.fuzz import api
from kernel_assay.fuzz.campaign.clock import Ended
from kernel_assay.fuzz.checking.head_start import HeadStart
from kernel_assay.fuzz.matrix.cells import Cells
from kernel_assay.fuzz.matrix.spec import load
from kernel_assay.fuzz.settings import seconds_of
from kernel_assay.fuzz.triage.failures import now
from kernel_assay.kernels.environment import environment
from kernel_assay.kernels.sandbox.worker_pool import WorkerPool, pool_ahead
from kernel_assay.reports.book import judged_of

LEAST_END, MOST_END = 6.0, 20.0
"""Seconds for the end of a cell's run, in which failures are shrunk and filed: half of its budget, within these."""
Told = Callable[[CellResult], None]


@dataclass
class CellRunner:
    """Runs cells one after another, whose workers come from a few processes that are kept. Use as a context manager."""

    cells: Cells
    store: CorpusStore
    limits: api.SandboxLimits = field(default_factory=api.SandboxLimits)
    stop: api.Stop = field(default_factory=api.Stop)
    _pools: dict[str, WorkerPool] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        """The runner itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End those processes."""
        self.close()

    def close(self) -> None:
        """End those processes."""
        self._stack.close()
        self._pools.clear()

    def run(self, planned: CellResult) -> CellResult:
        """Run the cases of a cell; what became of it, which no journal has yet.

        Raises what a run raises, but for a UsageError, which is why the cell was not run.
        """
        began, settings = time.monotonic(), self.settings(planned)
        longest = seconds_of(self.cells.definition.matrix.budget)
        watch = threading.Timer(longest, self.stop.enough)
        watch.daemon = True
        watch.start()
        try:
            result = api.run(settings, store=self.store, stop=self.stop, ahead=self._ahead(planned))
            found = self._told(planned, result)
        except api.CancelledError:
            raise
        except UsageError as error:
            found = planned.but(reason=str(error))
        finally:
            watch.cancel()
        return found.but(seed=settings.seed, seconds=round(time.monotonic() - began, 3))

    def settings(self, planned: CellResult) -> api.RunSettings:
        """The run of a cell."""
        cell, matrix = planned.cell, self.cells.definition.matrix
        shapes = self.cells.shapes(cell)
        kernels = api.RunSettings(ops=(cell.op,), backends=(cell.backend,))
        if cell.subject in self.cells.own:
            kernels = api.RunSettings(ops=(cell.op,), subjects=(self.cells.own[cell.subject][0],), peers=("none",))
        return replace(
            kernels,
            dtypes=(cell.dtype,),
            shapes=shapes,
            layouts=() if cell.layout == ANY else (cell.layout,),
            device=cell.device,
            cases=max(matrix.cases, len(shapes)),
            seed=zlib.crc32(f"{matrix.seed}:{cell.name}".encode()),
            after_seconds=min(MOST_END, max(LEAST_END, seconds_of(matrix.budget) / 2)),
            jobs=1,
            limits=self.limits,
        )

    def _ahead(self, planned: CellResult) -> HeadStart:
        """Workers of a process that has imported what a backend needs; none where the device or interpreter differs."""
        cell = planned.cell
        own = self.cells.own.get(cell.subject)
        if cell.device != "cpu" or (own is not None and own[1].python):
            return HeadStart()
        if cell.backend not in self._pools:
            pool = pool_ahead((cell.backend,), self.limits.memory_mb, closed=self.limits.closed)
            self._stack.callback(pool.close)
            self._pools[cell.backend] = pool
        return HeadStart(self._pools[cell.backend].branch({}))

    def _told(self, planned: CellResult, result: api.RunResult) -> CellResult:
        """What became of a cell, by its run. Raises what has ended that."""
        result.verify()
        book, c = result.book(), result.campaign
        news = [f for f in book.real if book.news(f)]
        found = planned.but(
            run=c.run, cases=c.cases, judged=c.judged, kinds=c.kinds, findings=tuple(f.id for f in news or book.real)
        )
        if result.failed:
            return self._failed(found, news)
        if not judged_of(c.kinds):
            declined = c.kinds and found.cell.subject == BUILTIN  # of one's own `verify` has said it
            return found.but(standing=Standing.SKIPPED if declined else Standing.NOT_RUN, reason=_why_nothing(result))
        entry = self.cells.expected(found.cell)
        if entry is None:
            return found.but(standing=Standing.PASSED, reason="")
        why = f"it passed, and was expected to fail ({entry.issue}): take the entry out of xfail"
        return found.but(standing=Standing.XPASSED, reason=why, issue=entry.issue, until=entry.until.isoformat())

    def _failed(self, found: CellResult, news: Sequence[Finding]) -> CellResult:
        said = f"{news[0].verdict.kind}: {news[0].verdict.message} [{news[0].id}]" if news else "it failed"
        said += f" and {len(news) - 1} more" if len(news) > 1 else ""
        entry = self.cells.expected(found.cell)
        if entry is None:
            return found.but(standing=Standing.FAILED, reason=said)
        over = entry.until < self.cells.today
        return found.but(
            standing=Standing.FAILED if over else Standing.XFAILED,
            reason=f"expected to fail until {entry.until}, which is over: {said}" if over else said,
            issue=entry.issue,
            until=entry.until.isoformat(),
        )


def _why_nothing(result: api.RunResult) -> str:
    """The reason for which most cases of a run were declined."""
    reasons = [(n, why) for seen in result.campaign.statistics.values() for why, n in seen.skipped.items()]
    if not reasons:
        return "the budget was over before the first cases came back; give it more time"
    return f"it declines all of {result.campaign.cases:,} cases: {max(reasons)[1]}"


def begun(cells: Cells, store: CorpusStore, only: Sequence[str] = (), *, resume: bool = False) -> MatrixRun:
    """The record of a run of a matrix, before its first cell, or as far as the latest one of this matrix got.

    Results of kernels that have changed since are not taken over. Raises UsageError as `Cells.plan` does, and if there
    is nothing to go on with.
    """
    matrix = cells.definition.matrix
    run = MatrixRun(
        name=f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-matrix",
        file=str(cells.definition.path),
        digest=matrix.id,
        version=__version__,
        started=now(),
        seed=matrix.seed,
        environment=environment(),
        results=tuple(cells.plan(only)),
    )
    if not resume:
        return run
    journal = MatrixJournal(store)
    for name in reversed(journal.names()):
        before = journal.read(name)
        if (before.digest, before.version) == (run.digest, run.version) and not before.finished:
            sources = {one.cell.name: one.source for one in run.results}
            known = {r.cell.name: r for r in before.results if r.done and sources.get(r.cell.name) == r.source}
            return run.updated(known).but(name=name, started=before.started)
    raise UsageError(f"no run of {run.file} as it is now was interrupted; start one without --resume")


def run_matrix(runner: CellRunner, run: MatrixRun, *, jobs: int = 1, on_result: Told = lambda _: None) -> MatrixRun:
    """Run what is left of a matrix; what became of all its cells, each in the store as soon as it is known.

    jobs: processes, each with a cell at a time. The runner's `stop` ends it: cells that were not over are not reached.
    Raises InternalError.
    """
    found: dict[str, CellResult] = {}
    left = [one for one in run.results if one.to_run]
    began = time.monotonic()
    runner.store.prepare()
    journal = MatrixJournal(runner.store)
    journal.begin(run)
    try:
        for result in _spread(runner, left, jobs) if jobs > 1 and len(left) > 1 else map(runner.run, left):
            found[result.cell.name] = result
            journal.add(run.name, result)
            on_result(result)
    except (Ended, api.CancelledError):
        runner.stop.asked = True
    return run.updated(found, run.seconds + time.monotonic() - began)


def _spread(runner: CellRunner, left: Sequence[CellResult], jobs: int) -> Iterator[CellResult]:
    """Yield what becomes of cells, as several processes come to their ends. Raises InternalError if one dies."""
    context, others = multiprocessing.get_context("spawn"), set(multiprocessing.active_children())
    arguments = (runner.cells.definition.path, runner.cells.today, runner.store.place, runner.limits)
    with ProcessPoolExecutor(min(jobs, len(left)), context, _begin, arguments) as crew:
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, _OURS)  # they inherit that, and Ctrl-C is not for them
            waiting = [crew.submit(_run, one) for one in left]
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _OURS)
            for done in as_completed(waiting):
                yield done.result()
        except BrokenProcessPool as error:
            raise InternalError("a process that runs cells of the matrix died") from error
        except BaseException:
            crew.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - others:  # as safe as a kill, which loses nothing
                child.terminate()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _OURS)


_OURS = (signal.SIGINT, signal.SIGHUP)
_RUNNER: list[CellRunner] = []
"""That of a process which runs cells for another."""


def _begin(path: Path, today: date, place: Place, limits: api.SandboxLimits) -> None:
    """Begin the life of such a process; its end is for the one that has started it."""
    die_with_parent()
    for number in _OURS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OURS)
    cells = Cells(load(path), today)
    assert cells.ops is not None  # from here on they are known
    _RUNNER.append(CellRunner(cells, open_store(place), limits))
    Finalize(None, _RUNNER[-1].close, exitpriority=1)


def _run(planned: CellResult) -> CellResult:
    return _RUNNER[-1].run(planned)
