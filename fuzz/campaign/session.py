"""One run, from its settings to its result: select, load, search, compare with the base. Nothing here prints."""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from random import SystemRandom

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.model.campaign import Campaign, Statistics
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.protocol import RunStore
from kernel_assay.fuzz.campaign.clock import LOAD, Clock, Ended
from kernel_assay.fuzz.campaign.cluster import ClusterSearch
from kernel_assay.fuzz.campaign.examiners import examiner_of
from kernel_assay.fuzz.campaign.parallel import Fleet, ParallelSearch
from kernel_assay.fuzz.campaign.search import Limits, Search
from kernel_assay.fuzz.checking import check_mode
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.head_start import HeadStart, head_start
from kernel_assay.fuzz.checking.library_calls import asked_of
from kernel_assay.fuzz.checking.selection import as_is, of_described_dtype, only_dtypes, placed, select
from kernel_assay.fuzz.checking.user_contracts import know_run
from kernel_assay.fuzz.checking.user_references import lent_references, named_in
from kernel_assay.fuzz.events import Listener, RunStarted, nobody
from kernel_assay.fuzz.planning.plan import fitted, limited, new_campaign
from kernel_assay.fuzz.planning.workload import with_workload
from kernel_assay.fuzz.replay.baseline import known_on_base
from kernel_assay.fuzz.settings import RunSettings
from kernel_assay.fuzz.triage.failures import Failure
from kernel_assay.kernels.backends.simt.toolchain import Mode, build_ahead
from kernel_assay.kernels.boundary.devices import Place, crew_of
from kernel_assay.kernels.sandbox.probing import ReadyBy
from kernel_assay.oracles.judging.precompile import compile_beside, compiled
from kernel_assay.reports.book import Book, in_order, planted_missed

LOAD_SECONDS = 8.0
"""For loading built-in implementations, where half of the time is less."""
_NAMED = 3
"""Subjects that a sentence names; others are counted."""


class CancelledError(UsageError):
    """A run was stopped before its search had begun; the store holds nothing of it that was not there before."""


class Stop:
    """Ends a run from outside: from a handler of signals, or from another thread."""

    def __init__(self) -> None:
        self.asked = False
        self._clock: Clock | None = None

    @property
    def begun(self) -> bool:
        """Whether the search has begun, which ends with care, within seconds; before, there is nothing to lose."""
        return self._clock is not None and self._clock.begun

    def ask(self) -> None:
        """End it; what was found is filed, and the run can be resumed."""
        self.asked = True
        if self._clock is not None:
            self._clock.stop()

    def enough(self) -> None:
        """End the search, as if its time were up: what was found is what was looked for."""
        if self._clock is not None:
            self._clock.finish()

    def bind(self, clock: Clock) -> None:
        """Say whose time it ends. Raises Ended if that was asked for already."""
        self._clock = clock
        self.check()

    def check(self) -> None:
        """Raise Ended if an end was asked for."""
        if self.asked:
            raise Ended


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run."""

    campaign: Campaign
    """The record, as it is in the store."""
    findings: tuple[Finding, ...]
    """Those that were met, the most important first."""
    known: frozenset[str] = frozenset()
    """Ids of those that the base has, too."""
    pending: tuple[Failure, ...] = ()
    """Failures in the run's journal that nobody has looked into: resume the run."""
    troubles: tuple[UsageError | InternalError, ...] = ()
    """What went wrong while failures were looked into."""
    error: UsageError | InternalError | None = None
    """What ended the search before its time."""

    def book(self, corpus: str = "corpus") -> Book:
        """The book that reports are made of (reports/forms.py). corpus: the folder that its commands shall name."""
        return Book(self.findings, self.campaign, self.known, corpus)

    @property
    def failed(self) -> bool:
        """Whether there is news: a failure that nobody expects, or a seeded bug that was not found."""
        book = self.book()
        unseen = any(not failure.subject.planted for failure in self.pending)
        return unseen or any(map(book.news, book.real)) or bool(planted_missed(self.campaign))

    @property
    def untested(self) -> str:
        """The reason why "nothing found" says nothing; empty if it says something."""
        c = self.campaign
        if c.finished and not c.cases:
            return "nothing was tested: the budget was used up before the first cases came back; give it more time"
        for subject in (s for s in c.subjects if s.is_own):
            if c.cases and not set(c.by_subject.get(subject.key, {})) - {Kind.UNSUPPORTED}:
                seen = c.statistics.get(subject.key, Statistics())
                why = max(seen.skipped, key=seen.skipped.__getitem__, default="no case had a dtype that it takes")
                return f"nothing of {subject.key} was tested in {c.cases:,} cases: {why}"
        return ""

    def verify(self) -> None:
        """Raise what ended the run early; if nothing failed, also what leaves that in doubt (UsageError: untested)."""
        if self.error is not None:
            raise self.error
        if not self.failed and self.troubles:
            raise self.troubles[0]
        if not self.failed and self.untested:
            raise UsageError(self.untested)


def run(
    settings: RunSettings,
    *,
    store: RunStore,
    on_event: Listener = nobody,
    stop: Stop | None = None,
    resume: bool = False,
    began: float | None = None,
    ahead: HeadStart | None = None,
) -> RunResult:
    """Search for failures; what was found, and whether that is news.

    resume: go on with the latest run of the store that was interrupted, for what is left of its time, or for the
    settings' own; of these only the limits, jobs, strict and base count. began: when its time began, by
    `time.monotonic`; None: now. ahead: what workers come from, if somebody has started it, who closes it. A listener
    that raises ends the run with care, and its exception is raised then.

    Raises UsageError for what cannot be searched, CancelledError if it was stopped before it began, InternalError for a
    fault of the tool before the search. What ends the search itself is in the result: what was found first is kept.
    """
    began = time.monotonic() if began is None else began
    # What is wrong with them is said before anything else happens.
    crew_of(settings.device, None if settings.ray else settings.jobs)
    store.prepare()
    with (
        nullcontext(ahead) if ahead else HeadStart() if resume else head_start(settings) as start,
        lent_references(() if resume else settings.references, grad=settings.grad, named=named_in(store)) as referred,
    ):
        search = _run(settings, store, on_event, stop or Stop(), began, start, referred, resume=resume)
        if search.deaf is not None:
            raise search.deaf
        found = in_order(search.queue.findings.values())
        return RunResult(
            search.campaign,
            tuple(found),
            _known(found, settings, search.clock),
            tuple(search.queue.pending.values()),
            tuple(search.queue.troubles),
            search.ended_by,
        )


def _run(
    settings: RunSettings,
    store: RunStore,
    on_event: Listener,
    stop: Stop,
    began: float,
    ahead: HeadStart,
    referred: Sequence[str],
    *,
    resume: bool,
) -> Search:
    """The search of a run, when it is over. referred: ops of its references. Raises as `run` does."""
    campaign = know_run(_resumed(store)) if resume else _fresh(store, settings, referred)
    if settings.strict and not campaign.chosen.strict:
        campaign = campaign.but(options=asdict(replace(campaign.chosen, strict=True)))
    clock = (limits := _limits(settings, campaign if resume else None)).clock(began)
    try:
        stop.bind(clock)
        return _loaded_and_searched(store, campaign, limits, clock, settings, on_event, stop, ahead, resume=resume)
    except Ended:
        raise CancelledError("the run was stopped before it had begun") from None


def _loaded_and_searched(
    store: RunStore,
    campaign: Campaign,
    limits: Limits,
    clock: Clock,
    settings: RunSettings,
    on_event: Listener,
    stop: Stop,
    ahead: HeadStart,
    *,
    resume: bool,
) -> Search:
    """The search, when it is over, whatever has ended it."""
    chosen = campaign.chosen
    crew = crew_of(chosen.device, None if settings.ray else settings.jobs or chosen.jobs)
    _compile_ahead(campaign, crew)
    with (
        examiner_of(campaign, crew[0], ready_by(campaign, clock), ahead.take(campaign.subjects)) as examiner,
        ExitStack() as stack,
    ):
        left_out: tuple[str, ...] = ()
        if not resume:
            campaign, left_out = _ready(campaign, examiner)
            campaign = check_mode.noted(fitted(campaign, examiner.sandbox), examiner)
            campaign = campaign.but(calls=examiner.sandbox.calls())
            stop.check()
        fleet = _fleet(settings, examiner, campaign, crew, clock)
        if fleet is not None:
            stack.enter_context(fleet)
        if not resume:
            store.start_run(campaign)  # now that every kernel has loaded
        search = Search(examiner, store, campaign, limits, chosen.max_elements or None, on_event, fleet, clock)
        search.tell(RunStarted(campaign, resume, left_out, examiner.sandbox.pool.why_open))
        try:
            search.run()
        except (UsageError, InternalError) as error:
            search.ended_by = error
    return search


def _fleet(
    settings: RunSettings, examiner: Examiner, campaign: Campaign, crew: Sequence[Place], clock: Clock
) -> Fleet | None:
    """The processes that search, where one of this machine is not enough. Raises UsageError."""
    most = campaign.chosen.max_elements or None
    if settings.ray:
        timeout = campaign.chosen.timeout
        return ClusterSearch(settings.ray, campaign, timeout, most, clock, settings.jobs or campaign.chosen.jobs)
    return ParallelSearch(examiner, campaign, crew, most, clock) if len(crew) > 1 else None


def ready_by(campaign: Campaign, clock: Clock) -> ReadyBy:
    """Make the time limit for loading: a person's own subjects have all the time there is, others half of it."""
    own, last = {s.key for s in campaign.subjects if s.is_own}, clock.at(LOAD)
    others = min(last, clock.began + max(LOAD_SECONDS, clock.seconds / 2))
    return lambda key: last if key in own else others


def _ready(campaign: Campaign, examiner: Examiner) -> tuple[Campaign, tuple[str, ...]]:
    """The campaign with the subjects that have loaded, and the keys of the others.

    Raises UsageError if one of a person's own has not.
    """
    late = [s for s in examiner.unready if s.is_own] or examiner.unready
    if not late:
        return campaign, ()
    keys = tuple(s.key for s in late)
    if not examiner.subjects or late[0].is_own:
        raise UsageError(
            f"the budget is too short: {listed(keys)} had not loaded when it was used up; give it more time"
        )
    rest, c = list(examiner.subjects.values()), campaign
    made = new_campaign(c.run, c.seed, c.engine, rest, c.chosen, c.revision)
    return made.but(workload={op: one for op, one in c.workload.items() if op in made.ops}), keys


def listed(keys: Sequence[str]) -> str:
    """The first of many names, and how many more there are."""
    return ", ".join(keys[:_NAMED]) + (f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else "")


def _compile_ahead(campaign: Campaign, crew: Sequence[Place]) -> None:
    """Begin with what takes seconds where nothing is kept yet, beside the start of the first worker."""
    compile_beside()
    if len(crew) > 1:  # once for all of them
        compiled()
    if cuda := {s.device for s in campaign.subjects if s.backend == "cuda"}:
        emulated = "cpu" in cuda or "" in campaign.checked.values()
        build_ahead(Mode if emulated else (Mode.FAST,))


def _limits(settings: RunSettings, resumed: Campaign | None) -> Limits:
    """The limits of the search: as the settings say, or what is left of the limits a run began with."""
    if resumed is None or settings.seconds is not None or settings.cases is not None:
        return Limits(*settings.until, settings.after_seconds)
    chosen = resumed.chosen
    if chosen.cases:
        return Limits(math.inf, chosen.cases, settings.after_seconds)
    return Limits(max(1.0, chosen.seconds - resumed.seconds), None, settings.after_seconds)


def _fresh(store: RunStore, settings: RunSettings, referred: Sequence[str]) -> Campaign:
    """The record of a run that has not begun."""
    names = dict(zip(settings.references, referred, strict=True))
    chosen = select(
        (*settings.ops, *referred) if settings.held else settings.ops or tuple(referred),
        files=settings.subjects,
        held=[names.get(one, one) for one in settings.held],
        backends=settings.backends,
        peers=settings.peers,
        planted=settings.planted,
        launch=settings.launch,
        python=settings.python,
    )
    chosen = chosen if settings.dtypes else [of_described_dtype(s) for s in chosen]
    if settings.judged:  # nobody who is judged says that he is meant to be wrong
        chosen = [s.but(planted="") for s in chosen]
    subjects = placed(only_dtypes(chosen, settings.dtypes), settings.device)
    subjects = as_is(subjects) if settings.as_is else subjects
    seed = settings.seed if settings.seed is not None else SystemRandom().getrandbits(32)
    name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-s{seed}"
    while name in store.runs():
        name += "x"
    made = new_campaign(name, seed, settings.engine, subjects, settings.options, _revision())
    made = made.but(library={s.key: "" for s in made.subjects if asked_of(s, judged=settings.judged)})
    if settings.shapes or settings.layouts:
        made = limited(made, settings.shapes, settings.layouts)
    return made if settings.workload is None else with_workload(made, settings.workload)


def _resumed(store: RunStore) -> Campaign:
    """The run to go on with, which nobody else goes on with from now on."""
    campaign = store.latest_unfinished()
    if campaign is None:
        raise UsageError(f"there is no interrupted run in {store.name}; start one without --resume")
    store.hold(campaign.run)
    return campaign


def _revision() -> str:
    """The git revision of the working directory, if it is one."""
    here = Path.cwd()
    if "GIT_DIR" not in os.environ and not any((folder / ".git").exists() for folder in (here, *here.parents)):
        return ""  # a process is not started for that
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, timeout=5)  # noqa: S607
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def _known(findings: Iterable[Finding], settings: RunSettings, clock: Clock) -> frozenset[str]:
    """Ids of the findings that the base has, too, as far as there is time to ask."""
    if settings.base is None:
        return frozenset()
    late: Callable[[], bool] = lambda: clock.stopped or time.monotonic() > clock.at(1.0)  # noqa: E731
    real = [f for f in findings if not f.subject.planted]
    limits = settings.limits
    return known_on_base(
        real, settings.base, timeout=limits.timeout, memory_mb=limits.memory_mb, closed=limits.closed, late=late
    )
