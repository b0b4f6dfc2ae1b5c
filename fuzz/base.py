"""The base that a change is compared with: what fails there, too, is not the change's fault.

A base is a checkout of another revision. A finding is known on it if its corpus has it as an open or an expected one,
or if its version of the subject's file fails on the same case in the same way: the second is a fact of today, whatever
anybody recorded. A regression test that is kept there without an expectation is one that has to pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from corpus.errors import UsageError
from corpus.findings import Finding, State
from corpus.records import Signature, Subject
from corpus.store import Store
from fuzz.check import Examiner, Inquiry
from kernels.catalog import read_subject, resolve


def known_on_base(
    findings: Iterable[Finding],
    base: Path,
    *,
    timeout: float,
    memory_mb: int,
    late: Callable[[], bool] = lambda: False,
) -> frozenset[str]:
    """Ids of those that the base has, too. late: whether there is no more time to run anything there.

    Raises UsageError if base is no folder.
    """
    check_base(base)
    recorded = _recorded(base)
    return frozenset(
        f.id
        for f in findings
        if _today(f).key in recorded or (not late() and _fails_there(f, base, timeout=timeout, memory_mb=memory_mb))
    )


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
    """How it fails now; what it was filed under may be another failure."""
    return finding.verdict.signature or finding.signature


def _fails_there(finding: Finding, base: Path, *, timeout: float, memory_mb: int) -> bool:
    """Whether the base's version of the subject fails on the case in the same way."""
    laws = (finding.verdict.law,) if finding.verdict.law else ()
    try:
        subject = subject_on(finding.subject, base)
        if subject is None:
            return False
        with Examiner([subject], timeout=timeout, memory_mb=memory_mb) as examiner:
            verdict = examiner.check([Inquiry(finding.case, (subject.key,), laws)])[0].verdicts[subject.key]
    except UsageError:  # it does not even load there
        return False
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
    if relative is None or not (base / relative).is_file():
        return None
    there = read_subject((base / relative).resolve(), op=subject.op, function=subject.function)
    return there.but(name=subject.name)
