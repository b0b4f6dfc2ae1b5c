"""What `run` and `shrink` do, below the command line."""

from __future__ import annotations

import math
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import SystemRandom
from types import FrameType
from typing import Any

import click

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.model.campaign import Campaign, Statistics
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.program import program
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.campaign.clock import LOAD, Clock, Ended
from kernel_assay.fuzz.campaign.parallel import Fleet
from kernel_assay.fuzz.campaign.search import Limits, Search
from kernel_assay.fuzz.checking import check_mode
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.selection import Own, as_is, only_dtypes, placed, select
from kernel_assay.fuzz.checking.subjects import is_own
from kernel_assay.fuzz.checking.user_contracts import know_run
from kernel_assay.fuzz.cli.output import FOUND, check_json, write_json
from kernel_assay.fuzz.cli.progress import Progress
from kernel_assay.fuzz.planning.plan import fitted, new_campaign
from kernel_assay.fuzz.replay.baseline import known_on_base
from kernel_assay.fuzz.replay.replay import Item, gather, moved, rerun
from kernel_assay.fuzz.triage.failures import Failure, Found, put_away
from kernel_assay.fuzz.triage.triage import investigate
from kernel_assay.kernels.backends.simt.toolchain import Mode, build_ahead
from kernel_assay.kernels.boundary.devices import Place, crew_of, places_of
from kernel_assay.kernels.sandbox.probing import ReadyBy
from kernel_assay.oracles.judging.precompile import compile_beside
from kernel_assay.reports.book import DEFAULT_CORPUS, Book, in_order, planted_missed
from kernel_assay.reports.json_model import finding_report, report
from kernel_assay.reports.plain.run_text import campaign_text, finding_text
from kernel_assay.reports.plain.terminal import say

DEFAULT_SECONDS = 60.0
INTERRUPTED = 130
"""Exit code of what is ended at once."""
_SHOW_CURSOR = b"\x1b[?25h\n" if os.isatty(2) else b""
"""A live line hides it."""
LOAD_SECONDS = 8.0
"""For loading the house's subjects, where half of the budget is less."""
_NAMED = 3
"""Subjects that a sentence names; others are counted."""
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(text: str) -> float:
    """`90`, `90s`, `5m` or `8h` in seconds. Raises UsageError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not match or float(match[1]) == 0:
        raise UsageError(f"{text!r} is no length of time above 0; write 90s, 5m or 8h")
    return float(match[1]) * _UNITS[match[2]]


def run(**options: Any) -> int:
    """The command `run`."""
    began = time.monotonic()
    crew_of(options["device"], options["jobs"])  # what is wrong with them is said before anything else happens
    limits = _limits(options)
    check_json(options["json_path"])
    with Store(options["corpus"]) as store:
        store.prepare()
        campaign = know_run(_resumed(store)) if options["resume"] else _fresh(store, options, limits)
        campaign = _strict(campaign) if options["strict"] else campaign
        if options["resume"] and not (options["budget"] or options["case_limit"]):
            limits = _rest(campaign)
        with stopping(limits.clock(began)) as clock:
            search = _loaded_and_searched(store, campaign, limits, clock, options)
            return _conclude(search, options)


def _loaded_and_searched(
    store: Store, campaign: Campaign, limits: Limits, clock: Clock, options: dict[str, Any]
) -> Search:
    """The search, when it is over."""
    crew = crew_of(str(campaign.options.get("device", "cpu")), options["jobs"] or int(campaign.options.get("jobs", 0)))
    _compile_ahead(campaign)
    with (
        examiner_of(campaign, crew[0], ready_by(campaign, clock)) as examiner,
        Progress(quiet=options["quiet"]) as progress,
    ):
        if not options["resume"]:
            campaign = check_mode.noted(fitted(_ready(campaign, examiner), examiner.sandbox), examiner)
            store.start_run(campaign)  # now that every kernel has loaded
        return _search(examiner, store, campaign, limits, crew, progress, clock)


def ready_by(campaign: Campaign, clock: Clock) -> ReadyBy:
    """Until when a subject may take to load: one of a person's own all the time there is, others half of it."""
    own, last = {s.key for s in campaign.subjects if is_own(s)}, clock.at(LOAD)
    others = min(last, clock.began + max(LOAD_SECONDS, clock.seconds / 2))
    return lambda key: last if key in own else others


def _ready(campaign: Campaign, examiner: Examiner) -> Campaign:
    """The campaign with the subjects that have loaded. Raises UsageError if one of a person's own has not."""
    late = [s for s in examiner.unready if is_own(s)] or examiner.unready
    if not late:
        return campaign
    named = ", ".join(s.key for s in late[:_NAMED]) + (f" and {len(late) - _NAMED} more" if len(late) > _NAMED else "")
    if not examiner.subjects or is_own(late[0]):
        raise UsageError(f"the budget is too short: {named} had not loaded when it was used up; give it more time")
    click.echo(f"left out, for loading took half of the budget (the next run is faster): {named}", err=True)
    rest = list(examiner.subjects.values())
    return new_campaign(campaign.run, campaign.seed, campaign.engine, rest, campaign.options, campaign.revision)


def _compile_ahead(campaign: Campaign) -> None:
    """Begin with what takes seconds where nothing is kept yet, beside the start of the first worker."""
    compile_beside()
    if cuda := {s.device for s in campaign.subjects if s.backend == "cuda"}:
        emulated = "cpu" in cuda or "" in campaign.checked.values()
        build_ahead(Mode if emulated else (Mode.FAST,))


def examiner_of(campaign: Campaign, place: Place, ready_by: ReadyBy = lambda _: math.inf) -> Examiner:
    """One for a campaign's subjects, as its options say."""
    timeout, memory_mb = float(campaign.options["timeout"]), int(campaign.options["memory_mb"])
    examiner = Examiner(campaign.subjects, timeout=timeout, memory_mb=memory_mb, place=place, ready_by=ready_by)
    if emulated := [s for s in examiner.subjects.values() if campaign.checked.get(s.key) == ""]:
        examiner.beside = check_mode.Beside(emulated, timeout=timeout, memory_mb=memory_mb)
    return examiner


def _search(
    examiner: Examiner,
    store: Store,
    campaign: Campaign,
    limits: Limits,
    crew: Sequence[Place],
    progress: Progress,
    clock: Clock,
) -> Search:
    """Search alone, or with others if the crew is more than one; the search when it is over, whatever ended it.

    What was found by then is told before that.
    """
    most = int(campaign.options["max_elements"]) or None
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet(examiner, campaign, crew, most, clock)) if len(crew) > 1 else None
        search = Search(examiner, store, campaign, limits, most, progress, fleet, clock)
        try:
            search.run()
        except (UsageError, InternalError) as error:
            search.ended_by = error
    return search


def _limits(options: dict[str, Any]) -> Limits:
    if options["budget"] and options["case_limit"]:
        raise UsageError("--budget and --cases exclude one another; name one of them")
    if options["case_limit"]:
        return Limits(math.inf, options["case_limit"])
    return Limits(seconds_of(options["budget"]) if options["budget"] else DEFAULT_SECONDS)


def _rest(campaign: Campaign) -> Limits:
    """What is left of the limits a run began with."""
    seconds, cases = float(campaign.options.get("seconds", DEFAULT_SECONDS)), int(campaign.options.get("cases", 0))
    click.echo(f"resuming {campaign.run} after {campaign.seconds:.0f} s and {campaign.cases:,} cases", err=True)
    return Limits(math.inf, cases) if cases else Limits(max(1.0, seconds - campaign.seconds))


def _fresh(store: Store, options: dict[str, Any], limits: Limits) -> Campaign:
    chosen = select(
        options["ops"],
        files=options["files"],
        backends=options["backends"],
        peers=options["peers"],
        planted=options["planted"],
        launch=options["launch"],
    )
    subjects = placed(only_dtypes(chosen, options["dtypes"]), options["device"])
    subjects = as_is(subjects) if options["as_is"] else subjects
    seed = options["seed"] if options["seed"] is not None else SystemRandom().getrandbits(32)
    run_name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-s{seed}"
    while run_name in store.runs():
        run_name += "x"
    kept = {
        "timeout": options["timeout"],
        "memory_mb": options["memory_mb"],
        "max_elements": options["max_elements"] or 0,
        "device": options["device"],
        "jobs": options["jobs"] or 0,
        "case_memory": options["case_memory"] or 0,
        "seconds": limits.seconds if limits.cases is None else 0.0,
        "cases": limits.cases or 0,
    }
    return new_campaign(run_name, seed, options["engine"], subjects, kept, _revision())


def _resumed(store: Store) -> Campaign:
    campaign = store.latest_unfinished()
    if campaign is None:
        raise UsageError(f"there is no interrupted run in {store.root}; start one without --resume")
    store.hold(campaign.run)
    return campaign


def _revision() -> str:
    """The git revision of the working directory, if it is one."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, timeout=5)  # noqa: S607
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


@contextmanager
def stopping(clock: Clock) -> Iterator[Clock]:
    """Ctrl-C (or SIGTERM, or a terminal that is closed) ends a run cleanly; a second one ends the process at once."""

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        with suppress(OSError):  # who has listened may have gone
            os.write(2, _SHOW_CURSOR if clock.stopped else b"stopping; what was found is kept (again: at once)\n")
        if clock.stopped:
            os._exit(INTERRUPTED)  # as safe as kill -9, which loses nothing
        clock.stop()
        if not clock.begun:
            raise Ended

    old = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield clock
    except Ended:
        raise click.Abort from None
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _strict(campaign: Campaign) -> Campaign:
    """Which takes every failure for news."""
    return campaign.but(options={**campaign.options, "strict": True})


def _conclude(search: Search, options: dict[str, Any]) -> int:
    """Say what was found; the exit code. The summary comes first: whoever reads the rest may have gone."""
    campaign, found, corpus = search.campaign, in_order(search.findings.values()), Path(options["corpus"])
    book = Book(found, campaign, _known(found, options, search.clock), str(corpus))
    to_stdout = options["json_path"] == "-"
    path = corpus / "local" / "runs" / campaign.run / "summary.json"
    summary = report(book)
    write_json(str(path), summary)
    say(campaign_text(book), err=to_stdout)
    write_json(options["json_path"], summary)
    elsewhere = f" --corpus {shlex.quote(str(corpus))}" if str(corpus) != DEFAULT_CORPUS else ""
    click.echo(f"summary   {path}", err=to_stdout)
    click.echo(f"page      {program()} report --html report.html{elsewhere}", err=to_stdout)
    if search.pending:
        left = f"{len(search.pending):,} more failures are in the run's journal, which nobody has looked into"
        click.echo(f"left      {left}: {program()} run --resume{elsewhere}", err=to_stdout)
    for told in search.troubles:
        click.echo(f"warning: {told}", err=True)
    if search.ended_by is not None:
        raise search.ended_by
    unseen = any(not failure.subject.planted for failure in search.pending.values())
    if unseen or any(map(book.news, book.real)) or planted_missed(campaign):
        return FOUND
    if search.troubles:
        raise search.troubles[0]
    _refuse_untested(campaign)
    return 0


def _refuse_untested(campaign: Campaign) -> None:
    """Raise UsageError if nothing was tested, or a person's own kernel was not: that nothing was found says nothing."""
    if campaign.finished and not campaign.cases:
        raise UsageError(
            "nothing was tested: the budget was used up before the first cases came back; give it more time"
        )
    for subject in filter(is_own, campaign.subjects):
        kinds = campaign.by_subject.get(subject.key, {})
        if campaign.cases and not set(kinds) - {Kind.UNSUPPORTED}:
            seen = campaign.statistics.get(subject.key, Statistics())
            why = max(seen.skipped, key=seen.skipped.__getitem__, default="no case had a dtype that it takes")
            raise UsageError(f"nothing of {subject.key} was tested in {campaign.cases:,} cases: {why}")


def _known(findings: Iterable[Finding], options: dict[str, Any], clock: Clock) -> frozenset[str]:
    """Ids of the findings that the base has, too, as far as there is time to ask."""
    if options["base"] is None:
        return frozenset()
    real = [f for f in findings if not f.subject.planted]
    limits = {"timeout": options["timeout"], "memory_mb": options["memory_mb"]}
    return known_on_base(
        real, options["base"], **limits, late=lambda: clock.stopped or time.monotonic() > clock.at(1.0)
    )


def shrink_stored(**options: Any) -> int:
    """The command `shrink`."""
    seconds = seconds_of(options["budget"])
    with Store(options["corpus"]) as store:
        own = Own(options["files"], options["launch"])
        items = moved(gather(store, [options["target"]], own), options["device"])
        subjects: list[Subject] = list({i.subject.key: i.subject for i in items}.values())
        box = {"timeout": options["timeout"], "memory_mb": options["memory_mb"]}
        place = places_of(options["device"])[0] if options["device"] else None
        with Examiner(subjects, **box, place=place) as examiner:
            found = [(i.finding, f) for i in items if (f := _shrink_one(examiner, i, seconds)) is not None]
        if not found:
            click.echo(f"nothing to shrink: {options['target']} does not fail")
            return 0
        store.prepare()
        kept = [_file(store, *f) for f in found]
    book = Book(tuple(kept), corpus=str(options["corpus"]))
    for number, finding in enumerate(kept, 1):
        say(finding_text(finding, number, corpus=book.corpus), err=options["json_path"] == "-")
    write_json(options["json_path"], [finding_report(book, f) for f in kept])
    return FOUND


def _file(store: Store, before: Finding | None, found: Found) -> Finding:
    """Store what has become of a finding.

    Findings are told apart by how they fail, and a smaller case may fail otherwise: then it takes the place of what was
    stored before, unless that is expected to fail as it is.
    """
    finding = put_away(store, found, before)
    if before is not None and before.id != finding.id and before.expect != "fail" and store.has(before):
        store.drop(before)
        click.echo(f"{finding.id} takes the place of {before.id}", err=True)
    return finding


def _shrink_one(examiner: Examiner, item: Item, seconds: float) -> Found | None:
    begin = time.monotonic()
    checked, verdict = rerun(examiner, item)
    if not verdict.failed:
        return None
    found_by, before = (item.finding.found_by, item.finding.before) if item.finding else (item.name, ())
    failure = Failure(
        item.case, item.subject, checked.verdicts[item.subject.key] if before else verdict, found_by, before
    )
    found = investigate(examiner, failure, seconds=seconds)
    finding = found.finding
    took = time.monotonic() - begin
    gained = f"{item.case.elements:,} -> {finding.case.elements:,} elements"
    said = gained if finding.case.id != item.case.id else "nothing smaller was found"
    click.echo(f"{said} in {took:.1f} s", err=True)
    if item.finding is not None:
        known = item.finding
        finding = finding.but(
            aliases=tuple(sorted({*finding.aliases, *known.keys})),
            original=known.original,
            first_seen=known.first_seen,
        )
    return replace(found, finding=finding)
