"""JUnit XML, which every CI server shows: one test a subject that passed, one a finding."""

from collections.abc import Iterator

from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.storage.matrix_record import CellResult, Standing
from kernel_assay.reports.book import Book
from kernel_assay.reports.form import Format
from kernel_assay.reports.junit import Result, junit


def render(book: Book) -> str:
    """Findings that need nobody (known, expected, not reproduced) are skipped tests, not failures."""
    if book.matrix is not None:
        return junit("matrix", [_cell(book, one) for one in book.matrix.results])
    return junit("fuzz", [*_subjects(book), *(_finding(book, f) for f in book.real)])


def _cell(book: Book, one: CellResult) -> Result:
    """A cell of a test matrix; one that could not be run is a failure, if it was asked for."""
    name, group = one.cell.name, f"matrix.{one.cell.op}"
    if one.standing is Standing.PASSED:
        return Result(name, group)
    said = f"{one.standing}: {one.reason}" + (f" ({one.issue}, until {one.until})" if one.issue else "")
    if one.standing.bad or (one.wanted and one.standing is Standing.NOT_RUN):
        commands = [c for f in book.findings if f.id in one.findings for c in book.commands(f).values()]
        return Result(name, group, failure=said, text="\n".join([said, *commands]))
    return Result(name, group, skipped=said)


def _subjects(book: Book) -> Iterator[Result]:
    if book.campaign is None:
        return
    found = {f.subject.key for f in book.real}
    for subject in book.campaign.subjects:
        if not subject.planted and subject.key not in found:
            cases = sum(book.campaign.by_subject.get(subject.key, {}).values())
            yield Result(f"{subject.name}: {cases:,} cases", subject.op)


def _finding(book: Book, f: Finding) -> Result:
    name = f"{f.subject.name}: {f.verdict.kind} in {f.case.label} [{f.id}]"
    told = [f.verdict.message, f.verdict.blame, *([f.claim] if f.claim else []), *f.gates]
    text = "\n".join([*told, *book.commands(f).values()])
    if book.news(f):
        return Result(name, f.subject.op, failure=f.verdict.message, text=text)
    return Result(name, f.subject.op, skipped=f"{book.standing(f)}: {f.verdict.message}")


FORMAT = Format("junit", "JUnit XML for CI servers.", render)
