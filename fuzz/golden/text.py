"""Golden outputs as people read of them: counts, what is different here, and the cases that are not what they were."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.reference_place import option_for
from kernel_assay.corpus.program import program
from kernel_assay.fuzz.golden.check import GoldenCheck, Rechecked, Same
from kernel_assay.fuzz.golden.save import Saved
from kernel_assay.oracles.catalog import origin_of
from kernel_assay.reports.plain.terminal import table
from kernel_assay.reports.words import count, figure, first_of, times

_MOST = 10
"""Cases of a kind that are told one by one."""


def told_saved(saved: Saved, folder: str) -> Iterator[str]:
    """Lines of text about what was saved."""
    golden, failing = saved.golden, saved.failing
    for case, verdict in failing[:_MOST]:
        yield f"fails already: {case.label}\n   {verdict.kind}: {verdict.message}"
    yield from _rest(len(failing))
    parts = [f"{count(len(golden.cases), 'case')} of {golden.subject.key} saved in {folder}"]
    parts += [f"{len(failing):,} failing already"] if failing else []
    parts += [f"{len(saved.lost):,} that gave no outputs left out"] if saved.lost else []
    parts += [f"{saved.declined:,} declined"] if saved.declined else []
    yield ", ".join(parts)


def told(check: GoldenCheck) -> Iterator[str]:
    """Lines of text about a check."""
    found = {same: cases for same in Same if (cases := check.of(same))}
    yield table(("outputs", "cases", "max ULP", "budget used"), [_row(same, cases) for same, cases in found.items()])
    yield ""
    if check.differences:
        yield table(("different here", "then", "now"), [(n, a or "-", b or "-") for n, a, b in check.differences])
    else:
        yield "the kernel, its libraries and the machine are what they were"
    changed = found.get(Same.CHANGED, [])
    for one in changed[:_MOST]:
        yield from ("", *_changed(one))
    yield from _rest(len(changed))
    if changed:
        case, place = changed[0].case, shlex.quote(check.subjects[1].place)
        yield f"\nsee one    {program()} show {case.token} --subject {place}{option_for(origin_of(case.op))}"
    if near := found.get(Same.WITHIN_BUDGET, []):
        yield ""
        yield table(("differ", "max ULP", "budget used", "then", "within budget"), [_near(one) for one in near[:_MOST]])
        yield from _rest(len(near))
    if lost := found.get(Same.NOT_TOLD, []):
        yield f"\ncannot be told: {first_of(list(dict.fromkeys(one.now.message for one in lost)), 3)}"
    counts = ", ".join(f"{len(cases):,} {same}" for same, cases in found.items())
    yield f"\n{count(len(check.cases), 'case')} of {check.subjects[0].key}, saved {check.at}: {counts}"


def _rest(cases: int) -> Iterator[str]:
    if cases > _MOST:
        yield f"  and {count(cases - _MOST, 'more case')}, which --json has, too"


def _row(same: Same, cases: Sequence[Rechecked]) -> tuple[str, ...]:
    ulps = max(one.max_ulp for one in cases)
    return same.value, f"{len(cases):,}", figure(ulps), times(max(one.now.rho for one in cases))


def _near(one: Rechecked) -> tuple[str, ...]:
    n = sum(one.differing.values())
    return f"{n:,}", figure(one.max_ulp), times(one.now.rho), times(one.then.rho), one.case.label


def _changed(one: Rechecked) -> Iterator[str]:
    yield f"changed: {one.case.label}"
    yield f"   {one.now.kind}: {one.now.message}"
    if one.then.kind is not Kind.PASS:
        yield f"   then, too: {one.then.kind}: {one.then.message}"
    for name, d in one.distances.items():
        words = [f"{count(one.differing[name], 'element')} of {name} differ{'s' * (one.differing[name] == 1)}"]
        words += [f"by at most {figure(d.max_ulp)} ULP"] if d.max_ulp else []
        words += [f"{d.unlike:,} of another class (NaN, Inf, number)"] if d.unlike else []
        yield f"   from what was saved {', '.join(words)}"
