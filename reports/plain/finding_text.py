"""A finding, or a case, in plain text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import indent

from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.findings import STATES, Element, Exhibit, Finding, Variant
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Measurement
from kernel_assay.corpus.program import program
from kernel_assay.reports.book import Book, code_file, judged, sanitized, shows_in, stopped_at
from kernel_assay.reports.plain.terminal import table
from kernel_assay.reports.tensors import described
from kernel_assay.reports.words import bits, count, only_bits_tell, relation, times, value


def closeup(book: Book, f: Finding, reproducer: str = "") -> str:
    """All of a finding; reproducer: the text of its stand-alone file, printed at the end."""
    shown = f.exhibit
    parts = [
        _head(book, f),
        _cases(f),
        _elements(shown) if shown else "",
        _picture(shown) if shown else "",
        _measurements(f),
        _opinions(shown) if shown else "",
        _matrix(f.variants),
        _sanitizer(f),
        _history(f),
        _detail(shown) if shown else "",
        "again\n" + "\n".join(f"  {name:8} {command}" for name, command in book.commands(f).items()),
        f"reproducer\n{_indented(reproducer.splitlines())}" if reproducer else "",
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def case_text(case: Case) -> str:
    """A case: its label, and what its tensors hold."""
    attrs = [f"  {name} = {value}" for name, value in case.attrs.items()]
    return "\n".join([f"case {case.id}", f"  {case.label}", _tensors(case), *attrs])


def _head(book: Book, f: Finding) -> str:
    lines = [
        f"finding {f.id}: {f.subject.key}, {f.verdict.kind} ({f.verdict.rule}), {book.standing(f)}",
        "",
        indent(f.verdict.message, "  "),
        f"  at        {_place(f)}" if stopped_at(f) else "",
        f"  python    {f.subject.python}" if f.subject.python else "",
        f"  consensus {f.verdict.blame}" if f.verdict.blame else "",
        f"  claim     {f.claim}" if f.claim else "",
        f"  judged    {judged(f.verdict.shares)}" if f.verdict.shares else "",
        *(f"  condition {gate}" for gate in f.gates),
        f"  shows in  {shows_in(f)}" if f.probability < 1 else "",
        f"  means     {program()} explain {f.verdict.kind}",
    ]
    return "\n".join(line for i, line in enumerate(lines) if line or i == 1)


def _place(f: Finding) -> str:
    """The line in which it stopped; the file that edits make is written nowhere yet."""
    written = " (of what `show --source FILE` writes)" if f.subject.path.endswith(".toml") else ""
    return f"{code_file(f)}, line {stopped_at(f)}{written}"


def _cases(f: Finding) -> str:
    text = f"smallest case, {count(f.case.elements, 'element')}\n  {f.case.label}\n{_tensors(f.case)}"
    if f.exhibit is not None and f.exhibit.partner is not None:
        other = f.exhibit.partner
        text += f"\n\nthe other case of the pair{relation(f.exhibit)}\n  {other.label}\n{_tensors(other)}"
    for number, case in enumerate(f.before, 1):
        text += f"\n\nmust run before it, {number} of {len(f.before)}\n  {case.label}\n{_tensors(case)}"
    if f.original.id == f.case.id:
        return text
    found = f"\n\nfound with, {count(f.original.elements, 'element')}\n  {f.original.label}"
    return text + found


def _tensors(case: Case) -> str:
    return table(("tensor", "dtype", "shape", "layout", "values", "smallest", "largest", "holds"), described(case))


def _elements(shown: Exhibit) -> str:
    if not shown.elements:
        return ""
    rows = [_element(e, shown.dtype) for e in shown.elements]
    title = f"elements of {shown.output or 'the output'}, worst first ({shown.failing:,} fail)"
    return f"{title}\n" + table(("", "index", "got", "wanted", "bound", "rho", "ulps"), rows)


def _element(e: Element, dtype: str) -> Sequence[str]:
    index = f"[{', '.join(map(str, e.index))}]"
    steps = f"{e.ulps:,}" if e.ulps >= 0 else "-"
    got, wanted = value(e.got, dtype), value(e.wanted, dtype)
    if only_bits_tell(e, got, wanted):
        got, wanted = f"{got} ({bits(e.bits, dtype)})", f"{wanted} ({bits(e.wanted_bits, dtype)})"
    return ("x" if e.fails else " ", index, got, wanted, f"{e.bound:.3g}", times(e.rho), steps)


def _picture(shown: Exhibit) -> str:
    picture = shown.picture
    if picture is None or picture.height * picture.width <= 1 or not picture.lines:
        return ""
    scale = ""
    if picture.scaled:
        rows, columns = -(-picture.height // len(picture.lines)), -(-picture.width // len(picture.lines[0]))
        scale = f", {rows} x {columns} elements a cell"
    size = f"{picture.height} rows x {picture.width} columns"
    return f"where it fails, {size}{scale} (. none, 1-9 tenths, # all)\n" + _indented(picture.lines)


def _line(m: Measurement) -> str:
    return "" if m.limit is None else f"line {m.limit:.3g}"


def _measurements(f: Finding) -> str:
    rows = [
        (m.metric, times(m.value) if m.metric == "rho" else f"{m.value:.6g}", _line(m)) for m in f.verdict.measurements
    ]
    return "metrics\n" + table(("metric", "value", ""), rows) if rows else ""


def _opinions(shown: Exhibit) -> str:
    rows = [(o.check, o.value, "would have passed it" if o.passes else "would have failed it") for o in shown.opinions]
    return "what customary checks say of this output\n" + table(("check", "value", ""), rows) if rows else ""


def _matrix(variants: Iterable[Variant]) -> str:
    """Subjects by dtypes."""
    cells = {(v.subject, v.dtype): _cell(v) for v in variants}
    if not cells:
        return ""
    subjects, dtypes = dict.fromkeys(s for s, _ in cells), dict.fromkeys(d for _, d in cells)
    rows = [(s, *(cells.get((s, d), "-") for d in dtypes)) for s in subjects]
    return "who else fails on it\n" + table(("subject", *dtypes), rows)


def _cell(v: Variant) -> str:
    return "passes" if v.kind is Kind.PASS else v.kind.value


def _sanitizer(f: Finding) -> str:
    versions = dict.fromkeys(s.version for s in f.sanitized if s.version)
    head = " ".join(["what compute-sanitizer", *versions, "says of it"])
    return f"{head}\n{_indented(sanitized(f))}" if f.sanitized else ""


def _history(f: Finding) -> str:
    lines = [f"seen {count(f.count, 'time')}, first {f.first_seen or 'unknown'}, last {f.last_seen or 'unknown'}"]
    lines += [f"{e.at}  {e.state.value}: {e.what or STATES[e.state]}" for e in f.history]
    if f.expect == "fail":
        lines.append(f"expected to fail{f' until {f.expires}' if f.expires else ''}: {f.reason}")
    return "history\n" + _indented(lines)


def _detail(shown: Exhibit) -> str:
    return f"what it printed\n{_indented(shown.detail.rstrip().splitlines())}" if shown.detail.strip() else ""


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(_spaced(lines))


def _spaced(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield f"  {line}".rstrip()
