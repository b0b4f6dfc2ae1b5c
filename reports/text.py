"""Say what a run found, in plain text for a terminal or a log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from corpus.campaign import Campaign
from corpus.records import BLAMELESS, Finding, Kind, Subject

MAX_HOLES = 12
"""Holes of coverage that are named one by one."""


def campaign_text(campaign: Campaign, findings: Sequence[Finding], store: str) -> str:
    """The whole summary of a run; findings: those met in it; store: the folder that keeps them."""
    planted = {s.key for s in campaign.subjects if s.planted}
    ours = [f for f in findings if f.subject.key not in planted]
    parts = [
        _head(campaign),
        _subjects(campaign),
        _planted(campaign, findings) if planted else "",
        _findings(ours, store),
        _coverage(campaign),
        _goals(campaign.goals),
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def _head(c: Campaign) -> str:
    rate = c.judged / c.seconds if c.seconds else 0.0
    state = "" if c.finished else "  (interrupted: go on with --resume)"
    unknown = f"; {c.known_hits:,} more failures of kinds already known" if c.known_hits else ""
    return (
        f"run {c.run}  seed {c.seed}{state}\n"
        f"{c.cases:,} cases, {c.judged:,} outputs judged in {c.seconds:.1f} s ({rate:,.0f}/s), "
        f"{_count(len(c.ops), 'op')}, {_count(len(c.subjects), 'subject')}{unknown}"
    )


def _subjects(c: Campaign) -> str:
    rows = []
    for subject in c.subjects:
        if subject.planted:
            continue
        kinds = c.by_subject.get(subject.key, {})
        failing = sum(n for k, n in kinds.items() if Kind(k) not in BLAMELESS)
        rho = c.max_rho.get(subject.key)
        rows.append(
            (
                subject.key,
                f"{sum(kinds.values()):,}",
                f"{kinds.get(Kind.PASS, 0):,}",
                f"{kinds.get(Kind.UNSUPPORTED, 0):,}",
                f"{failing:,}",
                f"{rho:.2f}" if rho is not None else "-",
                claims(subject),
            )
        )
    return table(("subject", "judged", "pass", "unsupported", "failing", "budget used", "claims"), rows)


def claims(subject: Subject) -> str:
    """What a subject declares that is not the default, so that no claim is silent."""
    said = subject.numerics.model_dump(exclude_defaults=True)
    return ", ".join(f"{k}={v}" for k, v in said.items())


def _planted(c: Campaign, findings: Sequence[Finding]) -> str:
    rows, again = [], ""
    for subject in (s for s in c.subjects if s.planted):
        mine = [f for f in findings if f.subject.key == subject.key and f.verdict.kind == subject.planted]
        smallest = min(mine, key=lambda f: (f.case.elements, len(f.case.label)), default=None)
        earned = c.by_subject.get(subject.key, {}).get(subject.planted, 0)
        shown = (smallest.id, smallest.case.label) if smallest else ("", "")
        rows.append((subject.key, subject.planted, f"{earned:,}" if earned else "NOT FOUND", *shown))
        if smallest and not again:
            again = f"\n  any of them again: python -m fuzz replay {smallest.id}, python -m fuzz shrink {smallest.id}"
    missed = len(planted_missed(c))
    head = f"planted bugs: {len(rows) - missed} of {len(rows)} earned their verdict"
    return f"{head}\n{table(('planted', 'verdict', 'times', 'finding', 'smallest case'), rows)}{again}"


def planted_missed(c: Campaign) -> list[str]:
    """Keys of planted subjects that did not earn their verdict."""
    return [s.key for s in c.subjects if s.planted and not c.by_subject.get(s.key, {}).get(s.planted, 0)]


def _findings(findings: Sequence[Finding], store: str) -> str:
    if not findings:
        return "findings: none"
    groups = grouped(findings)
    blocks = [_group_text(group, number) for number, group in enumerate(groups, 1)]
    dtypes = f", {len(findings)} counted by dtype and pattern" if len(findings) > len(groups) else ""
    return f"findings: {len(groups)}{dtypes} (kept in {store})\n\n" + "\n\n".join(blocks)


def grouped(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Findings of one subject and kind together, the smallest case first: most often they are one bug."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for f in findings:
        groups.setdefault((f.subject.key, f.verdict.kind.value), []).append(f)
    return [sorted(g, key=lambda f: (f.case.elements, len(f.case.label), f.id)) for g in groups.values()]


def _group_text(group: Sequence[Finding], number: int) -> str:
    others = [f"   also      {f.case.label}  [{f.id}]" for f in group[1:]]
    return "\n".join([finding_text(group[0], number), *others])


def finding_text(f: Finding, number: int = 1) -> str:
    """One finding: what is wrong, who says so, the smallest case, and the commands that show it again."""
    lines = [
        f"{number}. {f.subject.key}: {f.verdict.kind} ({f.verdict.rule}), {f.state}, seen {_count(f.count, 'time')}",
        f"   {f.verdict.message}",
        f"   blame     {f.verdict.blame}" if f.verdict.blame else "",
        f"   smallest  {f.case.label}  ({_count(f.case.elements, 'element')}; found with {f.original.elements:,})",
        *(f"   learned   {gate}" for gate in f.gates),
        f"   shows in  {f.probability:.0%} of runs" if f.probability < 1 else "",
        _metrics(f),
        f"   replay    python -m fuzz replay {f.id}",
        f"   shrink    python -m fuzz shrink {f.id}",
    ]
    return "\n".join(line for line in lines if line)


def _metrics(f: Finding) -> str:
    shown = [f"{m.metric} {m.value:.3g}" for m in f.verdict.measurements if m.metric != "budget"]
    return f"   metrics   {', '.join(shown)}" if shown else ""


def _coverage(c: Campaign) -> str:
    seen: Counter[str] = Counter()
    for cell, cases in c.coverage.items():
        op, dtype, *_ = cell.split("|")
        seen[f"{op} {dtype}"] += cases
    rows = [(name, f"{cases:,}") for name, cases in sorted(seen.items())]
    classes = {i: {cell.split("|")[i] for cell in c.coverage} for i in (2, 3, 4)}
    head = (
        f"coverage: {len(c.coverage):,} cells of op x dtype x shape class x layout x value class x subject "
        f"({len(classes[2])} shape classes, {len(classes[3])} layouts, {len(classes[4])} value classes)"
    )
    thin = [name for name, cases in rows if int(cases.replace(",", "")) < 20]
    return head + (f"\n  thin: {', '.join(thin[:MAX_HOLES])} (fewer than 20 outputs each)" if thin else "")


def _goals(goals: Mapping[str, int]) -> str:
    open_goals = [name for name, index in goals.items() if index < 0]
    if not open_goals:
        return f"goals: all {len(goals)} reached"
    return f"goals: {len(goals) - len(open_goals)} of {len(goals)} reached; NOT reached: {', '.join(open_goals)}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns padded to their widest entry; numbers (from the second column on) to the right."""
    all_rows = [tuple(head), *(tuple(r) for r in rows)]
    widths = [max(len(r[i]) for r in all_rows) for i in range(len(head))]
    return "\n".join(_row(r, widths) for r in all_rows)


def _row(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [c.rjust(w) if _numeric(c) else c.ljust(w) for c, w in zip(row, widths, strict=True)]
    return "  " + "  ".join(cells).rstrip()


def _numeric(text: str) -> bool:
    return text.replace(",", "").replace(".", "", 1).isdigit() or text == "-"


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'s' * (n != 1)}"
