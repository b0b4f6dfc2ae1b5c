"""Markdown as GitHub shows it: for the summary of a CI job, or a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.findings import Element, Finding
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.matrix_record import MatrixRun, Standing
from kernel_assay.reports.book import (
    Book,
    after,
    blind,
    code_file,
    headline,
    judged,
    planted_missed,
    sanitized,
    shows_in,
    stopped_at,
)
from kernel_assay.reports.coverage_gaps import holes
from kernel_assay.reports.form import Format
from kernel_assay.reports.plain.matrix_text import matrix_headline
from kernel_assay.reports.plain.run_text import kinds_of
from kernel_assay.reports.words import count, estimates, first_of, notes, times, value, workloads

DETAILED = 20
"""Groups of findings that are told in full."""
ELEMENTS = 5
_CALLS = re.compile(r"@|#(?=\d)|(?<=\])\(|!(?=\[)|(?<=http):|(?<=https):|(?<=www)\.")
HOLES = 10


def render(book: Book) -> str:
    """A headline, a table of findings, each of them folded, and what was not covered."""
    parts = [
        f"## {headline(book)}",
        _run(book.campaign) if book.campaign else "",
        _matrix(book.matrix) if book.matrix else "",
        _table(book),
        *(_details(book, group) for group in book.groups[:DETAILED]),
        _coverage(book.campaign) if book.campaign else "",
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def _run(c: Campaign) -> str:
    totals = f"{c.cases:,} cases, {c.judged:,} outputs judged in {c.seconds:,.0f} s"
    lines = [f"Run `{c.run}`, seed {c.seed}: {totals}, {count(len(c.ops), 'op')}, {count(len(c.subjects), 'subject')}."]
    if missed := planted_missed(c):
        lines.append(f"**Seeded bugs that were not found:** {first_of([f'`{key}`' for key in missed])}")
    if undecided := [f"{n:,} of `{s.key}`" for s in c.subjects if (n := kinds_of(c, s).get(Kind.INCONCLUSIVE, 0))]:
        lines.append(f"Inconclusive, neither pass nor finding: {', '.join(undecided)}.")
    lines += [f"{said[:1].upper()}{said[1:]}." for said in (*estimates(c), *workloads(c), *notes(c))]
    return "\n\n".join(lines)


def _matrix(run: MatrixRun) -> str:
    told = [one for one in run.results if one.standing.bad or (one.wanted and one.standing is Standing.NOT_RUN)]
    rows = [f"| {one.standing} | `{one.cell.name}` | {_cell(one.reason)} |" for one in told]
    head = ["", "| | cell | why |", "|---|---|---|"] if rows else []
    return "\n".join([f"Matrix `{run.file}`: {matrix_headline(run)}.", *head, *rows])


def _table(book: Book) -> str:
    if not book.real:
        return ""
    rows = [_row(book, group) for group in book.groups]
    head = ("| | kernel | verdict | what is wrong | smallest case | seen |", "|---|---|---|---|---|---|")
    return "\n".join([*head, *rows])


def _row(book: Book, group: Sequence[Finding]) -> str:
    first = group[0]
    mark = "❌" if any(book.news(f) for f in group) else "✔️"
    standing = ", ".join(dict.fromkeys(book.standing(f) for f in group))
    seen = sum(f.count for f in group)
    cells = (
        f"{mark} {standing}",
        f"`{first.subject.key}`",
        first.verdict.kind.value,
        _cell(first.verdict.message),
        f"`{first.case.label}`",
        f"{seen:,}",
    )
    return f"| {' | '.join(cells)} |"


def _details(book: Book, group: Sequence[Finding]) -> str:
    f = group[0]
    parts = [
        f"<details><summary><b>{_html(f.subject.key)}</b>: {_cell(f.verdict.message)}</summary>",
        "\n".join(_facts(f, group)),
        _elements(f),
        _picture(f),
        "```sh\n" + "\n".join(book.commands(f).values()) + "\n```",
        "</details>",
    ]
    return "\n\n".join(p for p in parts if p)


def _facts(f: Finding, group: Sequence[Finding]) -> Iterator[str]:
    yield f"- smallest case: `{f.case.label}` ({f.case.elements:,} elements; found with {f.original.elements:,})"
    yield from (f"- after: `{line}`" for line in after(f))
    yield from (f"- condition: {_cell(gate)}" for gate in f.gates)
    yield from (f"- compute-sanitizer {_cell(line)}" for line in sanitized(f))
    if stopped_at(f):
        yield f"- at: {_cell(code_file(f))}, line {stopped_at(f)}"
    if f.verdict.blame:
        yield f"- consensus: {_cell(f.verdict.blame)}"
    if f.claim:
        yield f"- claim: {_cell(f.claim)}"
    if f.verdict.shares:
        yield f"- judged: {_cell(judged(f.verdict.shares))}"
    if f.probability < 1:
        yield f"- shows in {shows_in(f)}"
    if blind(f):
        yield f"- would have passed: {', '.join(blind(f))}"
    if len(group) > 1:
        yield f"- also: {', '.join(f'`{other.id}` ({other.signature.dtype})' for other in group[1:])}"


def _elements(f: Finding) -> str:
    if f.exhibit is None or not f.exhibit.elements:
        return ""
    rows = [_element(e, f.exhibit.dtype) for e in f.exhibit.elements[:ELEMENTS]]
    return "\n".join(["| index | got | wanted | bound | rho |", "|---|---:|---:|---:|---:|", *rows])


def _element(e: Element, dtype: str) -> str:
    return f"| `{list(e.index)}` | {value(e.got, dtype)} | {value(e.wanted, dtype)} | {e.bound:.3g} | {times(e.rho)} |"


def _picture(f: Finding) -> str:
    picture = f.exhibit.picture if f.exhibit else None
    if picture is None or picture.height * picture.width <= 1 or not picture.lines:
        return ""
    head = f"{picture.height} rows x {picture.width} columns (. none fails, # all)"
    return "\n".join(["```text", head, *picture.lines, "```"])


def _coverage(c: Campaign) -> str:
    missing = [name for name, index in c.goals.items() if index < 0]
    goals = f"{len(c.goals) - len(missing)} of {len(c.goals)} goals reached"
    goals += f"; **not reached:** {', '.join(missing)}" if missing else ""
    found = holes(c)
    lines = [f"- {hole}" for hole in found[:HOLES]]
    if len(found) > HOLES:
        lines.append(f"- and {len(found) - HOLES} more")
    never = f"\n\n<details><summary>Never tried</summary>\n\n{chr(10).join(lines)}\n\n</details>" if lines else ""
    return f"Coverage: {len(c.coverage):,} cells; {goals}.{never}"


def _cell(text: str) -> str:
    """Text of a subject's own making inside of a table."""
    return _html(text).replace("|", "\\|").replace("\n", " ")


def _html(text: str) -> str:
    """The text without tags, people who would be told of it, and links: what a kernel says must call nobody."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _CALLS.sub(lambda found: f"{found[0]}<!-- -->" if found[0] in "@#" else f"&#{ord(found[0])};", plain)


FORMAT = Format("markdown", "Markdown as GitHub shows it.", render)
