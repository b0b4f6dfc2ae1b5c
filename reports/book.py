"""The content of a report: one run and what was found, read from the store and from nothing else."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.campaign import Campaign, Statistics
from kernel_assay.corpus.model.case import TOKEN
from kernel_assay.corpus.model.coverage_share import Share
from kernel_assay.corpus.model.findings import BESIDE, Finding, State
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.reference_place import option_for
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.program import program
from kernel_assay.corpus.storage.matrix_journal import MatrixJournal
from kernel_assay.corpus.storage.matrix_record import MatrixRun
from kernel_assay.corpus.storage.protocol import CorpusStore
from kernel_assay.reports.bugs import grouped, rank
from kernel_assay.reports.words import count, percent

DEFAULT_CORPUS = "corpus"
"""Folder that commands use if none is named."""
_WITH_STRICT = "; it does not count, but with --strict"
MOST_BEFORE = 5
"""Cases of a sequence that are named in a list."""


def elsewhere(corpus: object) -> str:
    """The option of a printed command that names a corpus; empty: it is where commands look by themselves."""
    return f" --corpus {shlex.quote(str(corpus))}" if str(corpus) != DEFAULT_CORPUS else ""


@dataclass(frozen=True)
class Book:
    """The content of a report."""

    findings: tuple[Finding, ...]
    """Those met in the run; without a run, all there are."""
    campaign: Campaign | None = None
    known: frozenset[str] = field(default_factory=frozenset)
    """Ids of findings that the base has, too."""
    corpus: str = DEFAULT_CORPUS
    """The folder of the corpus, as a person named it."""
    matrix: MatrixRun | None = None
    """A run of a test matrix, whose cells these are the findings of."""

    def commands(self, finding: Finding) -> dict[str, str]:
        """Commands that a person types next about a finding, by name."""
        return commands(finding, self.corpus)

    @property
    def planted(self) -> tuple[Finding, ...]:
        """Findings about seeded bugs."""
        return tuple(f for f in self.findings if f.subject.planted)

    @property
    def real(self) -> tuple[Finding, ...]:
        """All others."""
        return tuple(f for f in self.findings if not f.subject.planted)

    def news(self, finding: Finding) -> bool:
        """Whether it needs a person: it stands, is not expected, and the base does not have it.

        What did not show again stands if it is all that was ever seen of a kernel: no case of it has passed.
        """
        alone = BESIDE not in _rerun(finding)  # else another kernel has brought it about
        shown = finding.proven or self.strict or (alone and self._never_passes(finding.subject))
        stands = finding.state is not State.FIXED and not finding.expected()
        return shown and stands and finding.id not in self.known and finding.id not in self._of_expected_cells

    @cached_property
    def _of_expected_cells(self) -> frozenset[str]:
        """Ids of findings that only cells have that are expected to fail."""
        return self.matrix.expected if self.matrix else frozenset()

    def _never_passes(self, subject: Subject) -> bool:
        return self.campaign is not None and not self.campaign.by_subject.get(subject.key, {}).get(Kind.PASS)

    @property
    def strict(self) -> bool:
        """Whether a failure counts that did not show again, and proves nothing by itself; the run was asked to."""
        return self.campaign is not None and self.campaign.chosen.strict

    @property
    def elusive(self) -> list[str]:
        """Words for failures that did not show again when they were run again, those of one kind together.

        Of kernels that are meant to be right: how often each was seen, why it is doubtful, whether it counts.
        """
        alike: dict[tuple[str, str, bool], list[Finding]] = {}
        for finding in self.real:
            if not finding.shows_again:
                told = f"{finding.subject.key}: {finding.verdict.kind}", _rerun(finding), self.news(finding)
                alike.setdefault(told, []).append(finding)
        return [
            f"{what}, seen {count(sum(f.count for f in findings), 'time')}, did not show again when it was run again "
            f"({runs}){'' if counts else _WITH_STRICT}  [{', '.join(f.id for f in findings)}]"
            for (what, runs, counts), findings in alike.items()
        ]

    @cached_property
    def groups(self) -> list[list[Finding]]:
        """Findings that are not about seeded bugs, those that are most likely one bug together."""
        return grouped(self.real, self.news)

    def standing(self, finding: Finding) -> str:
        """The place of a finding in the life of findings, in a few words."""
        if finding.subject.planted:
            return "seeded bug"
        if finding.state is State.FIXED:
            return finding.state.value
        if finding.id in self.known:
            return "known on the base"
        if finding.id in self._of_expected_cells:
            return "expected to fail"
        if finding.expect == "fail":
            return "expectation expired" if finding.expired() else "expected to fail"
        return "new" if self.campaign is not None and finding.id in self.campaign.fresh else finding.state.value


def _rerun(finding: Finding) -> str:
    """What came of running a failure again that did not show any more."""
    said = (event.what for event in reversed(finding.history) if event.what.startswith("0 of "))
    return next(said, "none of the runs failed")


def open_book(store: CorpusStore, run: str | None = None, *, known: Iterable[str] = ()) -> Book:
    """The book of a run, of the latest run, or of everything that was found if there was no run.

    Raises UsageError for an unknown run.
    """
    matrices = MatrixJournal(store)
    if run in matrices.names():
        return matrix_book(store, matrices.read(run))
    campaign = store.load_run(run) if run else store.latest_run()
    latest = None if run or campaign is None else matrices.latest()
    if latest and campaign and any(campaign.run == one.run for one in latest.results):
        return matrix_book(store, latest)
    found = store.findings()
    if campaign is not None:
        found = [f for f in found if f.id in campaign.findings]
    elif not found:
        raise UsageError(f"there is nothing to report in {store.name}: no run and no finding")
    return Book(in_order(found), campaign, frozenset(known), store.name)


def matrix_book(store: CorpusStore, matrix: MatrixRun) -> Book:
    """The book of a run of a test matrix: its cells, and the findings of all of them."""
    met = {finding for one in matrix.results for finding in one.findings}
    return Book(in_order(f for f in store.findings() if f.id in met), corpus=store.name, matrix=matrix)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Subjects together, and of each subject kinds together."""
    return tuple(sorted(findings, key=lambda f: (f.subject.key, rank(f.verdict.kind), f.id)))


def failing(kinds: dict[str, int]) -> int:
    """Executions that failed, of a count by kind."""
    return sum(n for kind, n in kinds.items() if Kind(kind).facts.fails)


def judged_of(kinds: dict[str, int]) -> int:
    """Executions that were judged, of a count by kind: those that were declined were not."""
    return sum(n for kind, n in kinds.items() if kind != Kind.UNSUPPORTED)


def checked_here(c: Campaign) -> list[str]:
    """A sentence about how many cases of emulated kernels ran in check mode; none if there are no such kernels."""
    statistics = {
        s.key: c.statistics.get(s.key, Statistics()) for s in c.subjects if s.device == "cpu" and not s.planted
    }
    mine = [s for s in c.subjects if s.key in statistics and (s.backend == "cuda" or statistics[s.key].checked)]
    if not mine:
        return []
    cases, judged = (
        sum(statistics[s.key].checked for s in mine),
        sum(judged_of(c.by_subject.get(s.key, {})) for s in mine),
    )
    share = f" ({percent(cases / judged)})" if judged else ""
    return [
        f"checked: {cases:,} of {count(judged, 'case')} of {count(len(mine), 'emulated kernel')} in check mode{share}"
    ]


def planted_missed(campaign: Campaign) -> list[str]:
    """Keys of planted subjects that did not earn their verdict."""
    return [s.key for s in campaign.subjects if s.planted and not campaign.by_subject.get(s.key, {}).get(s.planted, 0)]


def commands(finding: Finding, corpus: str = DEFAULT_CORPUS) -> dict[str, str]:
    """Commands that a person types next, by name."""
    target, extra = finding.id, ""
    if finding.found_by.startswith(TOKEN):
        target, extra = (
            finding.found_by,
            f" --subject {shlex.quote(finding.subject.place)}",
        )
    extra += option_for(finding.contract)
    extra += elsewhere(corpus)
    names = ("show", "replay", "shrink") if finding.cliff is None else ("show", "replay")
    return {name: f"{program()} {name} {target}{extra}" for name in names}


def code_file(finding: Finding) -> str:
    """The file that messages name: of edits the changed kernel, which `show --source` writes."""
    path = Path(finding.subject.path)
    return path.with_suffix(".cu").name if path.suffix == ".toml" else path.name


def stopped_at(finding: Finding) -> int:
    """The line of the kernel's file in which it raised or died; 0 if nothing tells."""
    detail = finding.exhibit.detail if finding.exhibit else ""
    name = re.escape(code_file(finding))
    lines = re.findall(rf'File "[^"\n]*?{name}", line (\d+)', detail)
    if finding.verdict.rule == "check":
        lines = re.findall(rf"\({name}, line (\d+)\)", finding.verdict.message)[:1]
    inmost = 0 if "most recent call first" in detail else -1
    return int(lines[inmost]) if lines else 0


def blind(finding: Finding) -> Sequence[str]:
    """Customary checks that would have passed this failure."""
    return [o.check for o in finding.exhibit.opinions if o.passes] if finding.exhibit else []


def sanitized(finding: Finding) -> list[str]:
    """Lines of compute-sanitizer on the smallest case: one a tool, but one for all that are silent."""
    said = finding.sanitized
    lines = [f"{s.tool}: {s.message} ({count(s.errors, 'error')})" for s in said if s.errors]
    lines += [f"{s.tool}: no answer, for {s.trouble}" for s in said if s.trouble]
    silent = [s.tool for s in said if s.silent]
    return [*lines, *([f"{', '.join(silent)}: silent"] if silent else [])]


def after(finding: Finding, lead: str = "") -> list[str]:
    """The cases that must run before a stateful failure, first to last, a line each; the middle of many is left out."""
    labels = [case.label for case in finding.before]
    if len(labels) > MOST_BEFORE:
        labels[1 : 2 - MOST_BEFORE] = [f"... {len(labels) - MOST_BEFORE + 1} more ..."]
    return [f"{lead}{label}" for label in labels]


def shows_in(finding: Finding) -> str:
    """Words for how often a failure shows that does so in some runs only."""
    return (
        f"{finding.probability:.0%} of runs" if finding.shows_again else "none of the runs that were made of it again"
    )


def judged(shares: Sequence[Share]) -> str:
    """Words for how much of a large case was judged, and by what; empty for any other."""
    return "; ".join(share.text for share in shares)


def headline(book: Book) -> str:
    """The outcome in one sentence."""
    outputs = f" in {book.campaign.judged:,} outputs" if book.campaign else ""
    if not book.real:
        return f"No findings{outputs}"
    groups, kernels = book.groups, {f.subject.key for f in book.real}
    news = sum(any(book.news(f) for f in group) for group in groups)
    said = f"{count(len(groups), 'finding')} in {count(len(kernels), 'kernel')}"
    return said if news == len(groups) else f"{said}, {news or 'none'} of them news"
