"""The base that a change is compared with: what fails there, too, is not the change's fault.

A base is a checkout of another revision. A finding is known on it if its version of the subject's file fails on the
same case in the same way: a fact of today, whatever anybody recorded. Where there is no such file, or none that can be
run, its corpus is asked for an open or an expected finding of the same signature; a regression test that is kept there
without an expectation is one that has to pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.findings import Finding, State
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Signature
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.replay.replay import Item, Outcome, Replayed, rerun
from kernel_assay.kernels.backends.support.edits import present
from kernel_assay.kernels.catalog import read_subject, resolve


def known_on_base(
    findings: Iterable[Finding],
    base: Path,
    *,
    timeout: float,
    memory_mb: int,
    closed: bool = True,
    late: Callable[[], bool] = lambda: False,
) -> frozenset[str]:
    """Ids of those that the base has, too. late: whether there is no more time to run anything there.

    Raises UsageError if base is no folder.
    """
    check_base(base)
    recorded = _recorded(base)
    limits = {"timeout": timeout, "memory_mb": memory_mb, "closed": closed}
    return frozenset(f.id for f in findings if _is_known(f, base, recorded, late, limits))


def beside_base(
    results: Sequence[Replayed], base: Path, *, timeout: float, memory_mb: int, closed: bool = True
) -> list[Replayed]:
    """The results, with those told apart that fail on the base, too."""
    failing = [r.as_finding() for r in results if not r.good and r.verdict.failed]
    known = known_on_base(failing, base, timeout=timeout, memory_mb=memory_mb, closed=closed)

    def told(r: Replayed) -> Replayed:
        theirs = not r.good and r.verdict.failed and r.as_finding().id in known
        return replace(r, outcome=Outcome.KNOWN_ON_BASE) if theirs else r

    return [told(r) for r in results]


def check_base(base: Path) -> None:
    """Raises UsageError if base is no folder."""
    if not base.is_dir():
        raise UsageError(f"the base {base} is no folder; name a checkout of the revision to compare with")


def _recorded(base: Path) -> set[str]:
    """Signatures of what fails there by its own records."""
    with Store(base / "corpus") as store:
        there = [f for f in store.findings() if f.state not in {State.FIXED, State.REGRESSION}]
        there += [f for _, f in store.regressions() if f.expected()]
    return {key for f in there for key in (f.signature.key, *f.aliases)}


def _today(finding: Finding) -> Signature:
    """The way it fails now; what it was filed under may be another failure."""
    return finding.verdict.signature or finding.signature


def _is_known(
    finding: Finding, base: Path, recorded: Collection[str], late: Callable[[], bool], limits: dict[str, Any]
) -> bool:
    """Whether the base fails in the same way: by what its version of the subject does, or by records if it has none.

    A record of the same signature alone may be another bug's, which is no excuse for this one.
    """
    try:
        subject = None if late() else subject_on(finding.subject, base)
        if subject is None:
            return _today(finding).key in recorded
        with Examiner([subject], **limits) as examiner:
            _, verdict = rerun(examiner, Item(finding.id, finding.case, subject, finding))
    except UsageError:  # it does not even load there
        return _today(finding).key in recorded
    return verdict.failed and verdict.signature is not None and verdict.signature.coarse == _today(finding).coarse


def subject_on(subject: Subject, base: Path) -> Subject | None:
    """The same subject in the base's checkout; None if it has no such file.

    Raises UsageError if that file makes no sense.
    """
    path = resolve(subject)
    here = Path.cwd()
    relative = Path(subject.path) if not Path(subject.path).is_absolute() else None
    if relative is None and path.is_relative_to(here):
        relative = path.relative_to(here)
    if relative is None or not (file := present(base / relative)).is_file():
        return None
    there = read_subject(file.resolve(), op=subject.op, function=subject.function)
    return there.but(name=subject.name, python=subject.python)
