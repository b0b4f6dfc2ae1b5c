"""`list` and `doctor`: what there is, and what can run here."""

from __future__ import annotations

import platform
from collections.abc import Sequence

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.inputs.specials import PLACES, VALUES
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.model.interpreter_mends import mended_text
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.process.interpreter import LIBRARIES, Interpreter, interpreter, path_of
from kernel_assay.corpus.storage.opening import open_store
from kernel_assay.corpus.storage.place import Place, served_in
from kernel_assay.fuzz.cli.options import contract_option, json_option, old_corpus_option, reference_option
from kernel_assay.fuzz.cli.output import FOUND, write_json
from kernel_assay.fuzz.planning.goals import GOALS
from kernel_assay.kernels.backend_registry import loader_of, loaders
from kernel_assay.kernels.catalog import subjects_of
from kernel_assay.kernels.environment import OPTIONAL, TOOLS, environment, gpus, tool_version, version_of
from kernel_assay.kernels.sandbox.closing import why_open
from kernel_assay.oracles.catalog import load_contracts
from kernel_assay.oracles.judging.criteria import CRITERIA
from kernel_assay.oracles.spec.contract import Contract
from kernel_assay.reports.bugs import grouped
from kernel_assay.reports.explain import short
from kernel_assay.reports.plain.run_text import claims
from kernel_assay.reports.plain.terminal import table

Row = tuple[str, ...]
_BUG = "bug"
"""The column with the finding that leads the bug; people see it by what stands below what."""


def _list(what: str, words: Sequence[str], corpus: Place, json_path: str | None) -> int:
    head, rows = _LISTS[what](corpus)
    _refuse_lost_columns(what, words, head, rows)
    rows = [row for row in rows if all(_matches(word, head, row) for word in words)]
    if json_path:
        write_json(json_path, [dict(zip(head, row, strict=True)) for row in rows])
    else:
        click.echo(table(*_by_bug(head, rows)))
    return 0


def _by_bug(head: Row, rows: list[Row]) -> tuple[Row, list[Row]]:
    """Findings, those of one bug below one another: what all of them have in common is said once."""
    if _BUG not in head:
        return head, rows
    bugs: dict[str, list[Row]] = {}
    for row in rows:
        bugs.setdefault(row[head.index(_BUG)], []).append(row)
    shown = [_below(row, first=not i) for same in bugs.values() for i, row in enumerate(same)]
    return tuple(name for name in head if name != _BUG), shown


def _below(row: Row, *, first: bool) -> Row:
    """A finding as people see it: its label without op and dtype, which have columns of their own."""
    name, subject, *middle, _, label = row
    shown = (name, subject) if first else (f"  {name}", "")
    return (*shown, *middle, label.split(" ", 2)[-1])


def _refuse_lost_columns(what: str, words: Sequence[str], head: Row, rows: list[Row]) -> None:
    """Raise UsageError for COLUMN=VALUE without such a column, unless it is a word of some row, as `x=3x5` may be."""
    for word in words:
        column, equals, _ = word.partition("=")
        if equals and column not in head and not any(word in cell for row in rows for cell in row):
            raise UsageError(f"{column!r} is no column of `list {what}`; there are {', '.join(head)}")


def _matches(word: str, head: Row, row: Row) -> bool:
    """`COLUMN=VALUE`: that column says just this; any other word: it occurs in some column."""
    column, equals, value = word.partition("=")
    if equals and column in head:
        return row[head.index(column)] == value
    return any(word in cell for cell in row)


def _ops(_: Place) -> tuple[Row, list[Row]]:
    rows: list[Row] = []
    for c in load_contracts().values():
        subjects = subjects_of(c.name)
        planted = sum(bool(s.planted) for s in subjects)
        rows.append((c.name, _call(c), str(len(subjects) - planted), str(planted), " ".join(c.dtypes), c.summary))
    return ("op", "call", "subjects", "seeded", "dtypes", "summary"), rows


def _call(contract: Contract) -> str:
    """Words for the call of a kernel that returns its result; what stands in brackets may be left out."""
    inputs = [name for name in contract.inputs if name not in contract.optional]
    named = [name for name in contract.inputs if name in contract.optional] + list(contract.attrs)
    named = [f"[{name}]" if name in contract.optional else name for name in named]
    return f"({', '.join([*inputs, *(['*', *named] if named else [])])})"


def _subjects(_: Place) -> tuple[Row, list[Row]]:
    rows: list[Row] = []
    for op in load_contracts():
        for s in subjects_of(op):
            why = loader_of(s.loader).unavailable()
            state = f"not available here, because {why}" if why else "seeded " + s.planted if s.planted else "runs here"
            rows.append((s.key, s.backend, state, claims(s), s.summary))
    return ("subject", "backend", "state", "claims", "summary"), rows


def _backends(_: Place) -> tuple[Row, list[Row]]:
    return ("backend", "state"), [(name, _backend_state(name)) for name in loaders()]


def _backend_state(name: str) -> str:
    loader = loader_of(name)
    if why := loader.unavailable():
        return f"not available here, because {why}"
    return "runs here" + "".join(f", {p} {v}" for p, v in loader.versions().items())


def _distributions(_: Place) -> tuple[Row, list[Row]]:
    rows: list[Row] = [("distribution", d.name, d.nature, d.summary) for d in DISTRIBUTIONS.values()]
    rows += [("layout", name, "", (f.__doc__ or "").splitlines()[0]) for name, f in LAYOUTS.items()]
    rows += [("special", name, "", "") for name in VALUES]
    rows += [("place", name, "", (f.__doc__ or "").splitlines()[0]) for name, f in PLACES.items()]
    return ("what", "name", "nature", "summary"), rows


def _findings(corpus: Place) -> tuple[Row, list[Row]]:
    with open_store(corpus) as store:
        found = store.all_findings()
    if served := served_in(corpus):
        click.echo(f"those of the service are in another place: --corpus {served}", err=True)
    rows: list[Row] = [
        (f.id, f.subject.key, f.verdict.kind.value, _state(f), str(f.count), f.signature.dtype, bug[0].id, f.case.label)
        for bug in grouped(found, lambda f: not f.expected())
        for f in bug
    ]
    return ("finding", "subject", "verdict", "state", "count", "dtype", _BUG, "smallest case"), rows


def _state(f: Finding) -> str:
    if f.expect == "fail" and not f.subject.planted:
        return f"{f.state.value}, expectation expired" if f.expired() else f"{f.state.value}, expected"
    return f.state.value


def _goals(_: Place) -> tuple[Row, list[Row]]:
    return ("goal", "reached by"), [(name, (f.__doc__ or "").strip()) for name, f in GOALS.items()]


def _verdicts(_: Place) -> tuple[Row, list[Row]]:
    about = {True: "the subject", False: "the question"}
    return ("verdict", "about", "means"), [(k.value, about[k.facts.fails], short(k.value)) for k in Kind]


def _criteria(_: Place) -> tuple[Row, list[Row]]:
    return ("criterion", "in use by"), [(c.name, c.source) for c in CRITERIA]


_LISTS = {
    "ops": _ops,
    "subjects": _subjects,
    "backends": _backends,
    "distributions": _distributions,
    "findings": _findings,
    "goals": _goals,
    "verdicts": _verdicts,
    "criteria": _criteria,
}


@click.command("list")
@click.argument("what", type=click.Choice(list(_LISTS)), default="ops")
@click.argument("words", nargs=-1, metavar="[WORD|COLUMN=VALUE]...")
@contract_option
@reference_option
@old_corpus_option
@json_option
def command(*, what: str, words: tuple[str, ...], corpus: Place, json_path: str | None) -> int:
    """List what there is: all of it, or the rows in which every WORD occurs and every COLUMN has its VALUE."""
    return _list(what, words, corpus, json_path)


def _doctor_of(other: Interpreter) -> int:
    """Say what kernels find in another interpreter. Exit code 1 if none can run there."""
    click.echo(f"python {'.'.join(map(str, other.version))} of {other.path}")
    without = "".join(f"without {name}: {why}\n" for name, why in other.goes_without.items())
    click.echo(f"lent to it: {', '.join(other.lent) or 'nothing'}\n{without}")
    names = ["numpy", *(name for name in LIBRARIES if name in loaders())]
    click.echo(table(("backend", "state"), [(name, other.refusal((name,)) or "ready") for name in names]))
    return FOUND if other.refusal() else 0


@click.command("doctor")
@click.option("--python", metavar="PATH", help="Say only what another interpreter, or environment, lacks.")
def doctor(*, python: str | None) -> int:
    """Say what is installed, which backends can run here, and why the others cannot. Exit code 1 if none can."""
    if python:
        return _doctor_of(interpreter(path_of(python)))
    env = environment()
    click.echo(f"python {env.python} on {env.platform}\nprocessor {env.processor or env.machine}\n")
    versions = env.packages | {name: version_of(name) or "not installed" for name in OPTIONAL}
    rows = [(name, version, OPTIONAL.get(name, "")) for name, version in versions.items()]
    click.echo(table(("package", "version", "for"), rows) + "\n")
    click.echo(table(("tool", "version"), [(tool, tool_version(tool)) for tool in TOOLS]) + "\n")
    click.echo(table(("gpu", "driver"), gpus() or [("none found", "-")]) + "\n")
    click.echo(table(("backend", "state"), [(name, _backend_state(name)) for name in loaders()]))
    click.echo(f"\n{mended_text()}")
    why = why_open()
    click.echo(f"kernels run in the open, with your rights, because {why}" if why else "kernels are closed in here")
    if platform.system() != "Linux":
        click.echo("subjects cannot run here: the sandbox needs Linux")
        return FOUND
    return 0
