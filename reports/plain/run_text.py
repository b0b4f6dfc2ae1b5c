"""A run in plain text, for a terminal or a log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

from kernel_assay.corpus.model.campaign import Campaign, Statistics
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.model.interpreter_mends import is_mended
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.program import program
from kernel_assay.corpus.storage.place import DatabaseUrl, place_of
from kernel_assay.reports.book import (
    DEFAULT_CORPUS,
    Book,
    after,
    blind,
    checked_here,
    code_file,
    commands,
    failing,
    judged,
    judged_of,
    planted_missed,
    sanitized,
    shows_in,
    stopped_at,
)
from kernel_assay.reports.plain.matrix_text import matrix_text
from kernel_assay.reports.plain.terminal import table
from kernel_assay.reports.words import count, estimates, largest_first, notes, percent, times, workloads

MAX_HOLES = 12
"""Holes of coverage that are named one by one."""
MAX_DTYPES = 4
"""That were judged and are named one by one."""
MAX_ALSO = 6
"""Findings of one kind that are named beside the one that leads their bug."""
MAX_REASONS = 3
"""For which a kernel declines cases."""
MANY_DECLINED = 0.5
"""Of the cases: a warning, for what was not judged was not searched."""


def campaign_text(book: Book) -> str:
    """The whole summary of a run; without a run, the findings alone."""
    c = book.campaign
    if c is None:
        matrix = [matrix_text(book.matrix)] if book.matrix else []
        return "\n".join([*matrix, findings_text(book)]) + "\n"
    planted = any(s.planted for s in c.subjects)
    parts = [
        _head(c),
        _estimated(c),
        "\n".join(workloads(c)),
        _mended(c),
        _subjects(c),
        declined(c),
        _sizes(c),
        _fidelity(c),
        _checked(c),
        _limits(c),
        "\n".join(f"note: {said}" for said in notes(c)),
        _warnings(c),
        _elusive(book),
        _planted(c, book) if planted else "",
        findings_text(book),
        _coverage(c),
        _goals(c.goals),
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def _head(c: Campaign) -> str:
    rate = c.judged / c.seconds if c.seconds else 0.0
    state = "" if c.finished else "  (interrupted: go on with --resume)"
    declined = c.kinds.get(Kind.UNSUPPORTED, 0)
    apart = f" and {declined:,} declined" if declined else ""
    unknown = f"; {c.known_hits:,} more failures of kinds already known" if c.known_hits else ""
    return (
        f"run {c.run}  seed {c.seed}{state}\n"
        f"{c.cases:,} cases, {c.judged:,} outputs judged{apart} in {c.seconds:.1f} s ({rate:,.0f}/s), "
        f"{count(len(c.ops), 'op')}, {count(len(c.subjects), 'subject')}{unknown}"
    )


def _estimated(c: Campaign) -> str:
    return "\n".join(estimates(c))


def _mended(c: Campaign) -> str:
    return "Triton's interpreter is mended here (doctor lists how); --as-is runs it as it is" if is_mended(c) else ""


def _subjects(c: Campaign) -> str:
    """Inconclusive outputs are rare: they have a column where there are any."""
    subjects = [s for s in c.subjects if not s.planted]
    undecided = [Kind.INCONCLUSIVE] if any(kinds_of(c, s).get(Kind.INCONCLUSIVE) for s in subjects) else []
    shown = [Kind.PASS, Kind.UNSUPPORTED, *undecided]
    rows = []
    for subject in subjects:
        kinds, rho = kinds_of(c, subject), c.max_rho.get(subject.key)
        counts = [judged_of(kinds), *(kinds.get(kind, 0) for kind in shown), failing(kinds)]
        used = f"{rho:.2f}" if rho is not None else "-"
        rows.append((subject.key, *(f"{n:,}" for n in counts), used, claims(subject)))
    return table(("subject", "judged", *shown, "failing", "budget used", "claims"), rows)


def kinds_of(c: Campaign, subject: Subject) -> dict[str, int]:
    """Counts of a subject's verdicts."""
    return c.by_subject.get(subject.key, {})


def declined(c: Campaign) -> str:
    """Reasons of a person's own kernels to decline cases, most frequent first."""
    lines = []
    for subject in c.subjects:
        skipped = c.statistics[subject.key].skipped if subject.key in c.statistics else {}
        if skipped and Path(subject.path).is_absolute():
            most = list(largest_first(skipped).items())[:MAX_REASONS]
            told = "; ".join(f"{reason} ({count(cases, 'case')})" for reason, cases in most)
            out, every = sum(skipped.values()), sum(kinds_of(c, subject).values())
            many = f"{percent(out / every)} of its cases, " if out >= MANY_DECLINED * every else ""
            lines.append(f"{'warning: ' * bool(many)}{subject.key} declined {many}{out:,} of {every:,}: {told}")
    return "\n".join(lines)


def _checked(c: Campaign) -> str:
    """Words for what share was judged access by access, which kernels on a GPU were, too, and who was not, and why."""
    seen = {key: c.statistics.get(key, Statistics()) for key, why in c.checked.items() if not why}
    cases = sum(s.checked for s in seen.values())
    there = f"check mode: {count(cases, 'case')} of {count(len(seen), 'kernel')} on the processors beside the GPU"
    why = {key: f"it does not run in check mode: {said}" for key, said in c.checked.items() if said}
    why |= {key: f"check mode ended early: {s.unchecked}" for key, s in seen.items() if s.unchecked}
    told = [f"warning: {key}: races and reads out of bounds are not looked for; {said}" for key, said in why.items()]
    return "\n".join([*checked_here(c), *([there] if seen else []), *told])


def _limits(c: Campaign) -> str:
    """Words for what would be wrong with larger tensors."""
    said = [(key, sentence) for key, sentences in c.limits.items() for sentence in sentences]
    return "\n".join(f"warning: {key}: not tested, would be wrong with {words}" for key, words in said)


def _sizes(c: Campaign) -> str:
    """Words for the sizes that implementations were judged on: bugs of larger ones were out of reach."""
    lines = []
    for op in c.ops:
        everyone = [s for s in c.subjects if s.op == op and not s.planted and s.key in c.reach]
        mine = [s for s in everyone if Path(s.path).is_absolute()] or everyone
        reached = {s.backend: _largest(c.reach[o.key] for o in mine if o.backend == s.backend) for s in mine}
        told = [f"{', '.join(backends)} {_extents(sizes)}" for sizes, *backends in _alike(reached)]
        lines += [f"  {op}: {'; '.join(told)}"] if told else []
    return "\n".join(["largest sizes that were judged, by backend; nothing larger was tried", *lines]) if lines else ""


def _largest(reached: Iterable[Mapping[str, int]]) -> dict[str, int]:
    some = list(reached)
    return {name: max(sizes[name] for sizes in some) for name in some[0]}


def _alike(reached: Mapping[str, dict[str, int]]) -> list[tuple[Any, ...]]:
    """Sizes, each with the backends that reached just those, largest first."""
    distinct = sorted({tuple(sizes.items()) for sizes in reached.values()}, key=lambda s: -dict(s)["elements"])
    return [(dict(one), *(b for b, sizes in reached.items() if sizes == dict(one))) for one in distinct]


def _extents(sizes: Mapping[str, int]) -> str:
    dims = ", ".join(f"{name} {extent:,}" for name, extent in sizes.items() if name != "elements")
    return f"{dims} ({sizes['elements']:,} elements)"


def _warnings(c: Campaign) -> str:
    """Doubtful things that backends saw, and that are no fault."""
    seen = ((s.key, c.statistics[s.key]) for s in c.subjects if s.key in c.statistics and not s.planted)
    warned = ((key, f"{said.warning}  ({count(said.warned, 'case')})") for key, said in seen if said.warned)
    return "\n".join(f"warning (doubtful, but no finding): {key}: {words}" for key, words in warned)


def _elusive(book: Book) -> str:
    """Failures that did not show again: told always, whether they count or not."""
    return "\n".join(f"warning: {words}" for words in book.elusive)


def _fidelity(c: Campaign) -> str:
    """The loss of right results by design, where an op has one."""
    seen = {s.key: c.statistics[s.key].fidelity for s in c.subjects if not s.planted and s.key in c.statistics}
    limits = {kind: one for each in seen.values() for kind, one in each.items()}
    if not limits:
        return ""
    head = f"{limits[min(limits)].what} of random numbers, at worst (and up to where it is in use); told, not judged"
    columns = ("subject", *(f"{kind} ({percent(one.limit)})" for kind, one in sorted(limits.items())))
    rows = [
        (key, *(percent(each[kind].worst) if kind in each else "-" for kind in sorted(limits)))
        for key, each in seen.items()
        if each
    ]
    return f"{head}\n{table(columns, rows)}"


def claims(subject: Subject) -> str:
    """Words for what a subject declares that is not the default, so that no claim is silent."""
    said = subject.numerics.model_dump(exclude_defaults=True)
    return ", ".join(k.replace("_", "-") if v is True else f"{k}={v}" for k, v in said.items())


def _planted(c: Campaign, book: Book) -> str:
    rows, again = [], ""
    for subject in (s for s in c.subjects if s.planted):
        mine = [f for f in book.planted if f.subject.key == subject.key and f.verdict.kind == subject.planted]
        smallest = min(mine, key=lambda f: (f.case.elements, len(f.case.label)), default=None)
        earned = c.by_subject.get(subject.key, {}).get(subject.planted, 0)
        shown = (smallest.id, smallest.case.label) if smallest else ("", "")
        rows.append((subject.key, subject.planted, f"{earned:,}" if earned else "NOT FOUND", *shown))
        if smallest and not again:
            said = book.commands(smallest)
            again = f"\n  any of them again: {said['replay']}, {said['shrink']}"
    missed = len(planted_missed(c))
    head = f"seeded bugs: {len(rows) - missed} of {len(rows)} earned their verdict"
    return f"{head}\n{table(('seeded bug', 'verdict', 'times', 'finding', 'smallest case'), rows)}{again}"


def findings_text(book: Book) -> str:
    """All that was found."""
    if not book.real:
        return "findings: none"
    groups = book.groups
    blocks = [_group_text(book, group, number) for number, group in enumerate(groups, 1)]
    dtypes = f" ({len(book.real)} records by dtype and pattern)" if len(book.real) > len(groups) else ""
    old = sum(not book.news(f) for f in book.real)
    quiet = f", {old} of them no news (known, expected, fixed or not reproduced)" if old else ""
    where = book.corpus if isinstance(place_of(book.corpus), DatabaseUrl) else f"{book.corpus}/local/findings"
    return f"findings: {len(groups)}{dtypes}{quiet}, kept in {where}\n\n" + "\n\n".join(blocks)


def _group_text(book: Book, group: Sequence[Finding], number: int) -> str:
    lead = book.standing(group[0])
    return "\n".join(
        [
            finding_text(group[0], number, lead, book.corpus, sum(f.count for f in group)),
            *_seen_beside(book, group[0]),
            *_also(book, group[1:], lead),
        ]
    )


def _also(book: Book, others: Sequence[Finding], lead: str) -> Iterator[str]:
    """The same bug in other dtypes, and as it shows otherwise: a line a kind, with the ids."""
    kinds: dict[str, list[Finding]] = {}
    for f in others:
        kinds.setdefault(f.verdict.kind, []).append(f)
    for kind, found in kinds.items():
        named = (f"{f.signature.dtype} {f.id}{_unlike(book.standing(f), lead)}" for f in found[:MAX_ALSO])
        left = len(found) - MAX_ALSO
        more = f" and {left} more: {program()} list findings {found[0].subject.key}" if left > 0 else ""
        yield f"   also      {kind}: {', '.join(named)}{more}"


def _unlike(standing: str, lead: str) -> str:
    return "" if standing == lead else f" ({standing})"


def _seen_beside(book: Book, f: Finding) -> list[str]:
    """Lines that say that a kernel on a GPU was caught beside it."""
    beside = book.campaign is not None and f.subject.key in book.campaign.checked and f.subject.device == "cpu"
    return ["   ran in    check mode, on the processors beside the GPU; a replay goes there, too"] if beside else []


def finding_text(f: Finding, number: int = 1, standing: str = "", corpus: str = DEFAULT_CORPUS, seen: int = 0) -> str:
    """One finding: what is wrong, who says so, the smallest case, and the commands that show it again.

    seen: times that the bug was met, in all its forms; 0: those of this finding.
    """
    said = standing if standing in {"", f.state.value} else f"{f.state}, {standing}"
    life, times = said or f.state.value, count(seen or f.count, "time")
    lines = [
        f"{number}. {f.subject.key}: {f.verdict.kind} ({f.verdict.rule}), {life}, seen {times}",
        indent(f.verdict.message, "   "),
        f"   at        {code_file(f)}, line {stopped_at(f)}" if stopped_at(f) else "",
        f"   consensus {f.verdict.blame}" if f.verdict.blame else "",
        f"   claim     {f.claim}" if f.claim else "",
        f"   judged    {judged(f.verdict.shares)}" if f.verdict.shares else "",
        f"   smallest  {f.case.label}  ({count(f.case.elements, 'element')}; found with {f.original.elements:,})",
        *after(f, "   after     "),
        *(f"   condition {gate}" for gate in f.gates),
        *(f"   sanitizer {line}" for line in sanitized(f)),
        f"   shows in  {shows_in(f)}" if f.probability < 1 else "",
        _metrics(f),
        f"   missed by {', '.join(blind(f))}" if blind(f) else "",
        f"   reason    {_expectation(f)}" if f.expect == "fail" else "",
        *(f"   {name:9} {command}" for name, command in commands(f, corpus).items()),
    ]
    return "\n".join(line for line in lines if line)


def _expectation(f: Finding) -> str:
    end = f" (expected to fail until {f.expires})" if f.expires else " (expected to fail)"
    return f.reason + end


def _metrics(f: Finding) -> str:
    if f.verdict.kind is Kind.NONFINITE:
        return ""  # metrics leave out what is not finite, which is what is wrong here
    shown = [
        f"{m.metric} {times(m.value) if m.metric == 'rho' else f'{m.value:.3g}'}"
        for m in f.verdict.measurements
        if m.metric != "budget"
    ]
    return f"   metrics   {', '.join(shown)}" if shown else ""


def _coverage(c: Campaign) -> str:
    seen: Counter[str] = Counter()
    for cell, cases in c.coverage.items():
        op, dtype, *_ = cell.split("|")
        seen[f"{op} {dtype}"] += cases
    rows = [(name, f"{cases:,}") for name, cases in sorted(seen.items())]
    classes = {i: {cell.split("|")[i] for cell in c.coverage} for i in (1, 2, 3, 4)}
    named = ", ".join(sorted(classes[1])) if len(classes[1]) <= MAX_DTYPES else f"{len(classes[1])} dtypes"
    counted = [f"{len(classes[i])} {what}" for i, what in ((2, "shape classes"), (3, "layouts"), (4, "value classes"))]
    told = "; ".join([*([named] if named else []), ", ".join(counted)])
    cells = "cells of op x dtype x shape class x layout x value class x subject"
    head = f"coverage: {len(c.coverage):,} {cells} ({told})"
    thin = [name for name, cases in rows if int(cases.replace(",", "")) < 20]
    return head + (f"\n  thin: {', '.join(thin[:MAX_HOLES])} (fewer than 20 outputs each)" if thin else "")


def _goals(goals: Mapping[str, int]) -> str:
    open_goals = [name for name, index in goals.items() if index < 0]
    if not open_goals:
        return f"goals: all {len(goals)} reached"
    return f"goals: {len(goals) - len(open_goals)} of {len(goals)} reached; NOT reached: {', '.join(open_goals)}"
