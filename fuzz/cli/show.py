"""`show` and `explain`: everything that is known of a finding, and what a verdict means."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.findings import Finding, State
from kernel_assay.corpus.storage.opening import open_store
from kernel_assay.corpus.storage.place import Place
from kernel_assay.fuzz.checking.check import Examiner, all_laws
from kernel_assay.fuzz.checking.requests import Checked, CheckRequest
from kernel_assay.fuzz.checking.selection import UserKernels
from kernel_assay.fuzz.cli.options import (
    box_options,
    contract_option,
    json_option,
    old_corpus_option,
    own_option,
    reference_option,
)
from kernel_assay.fuzz.cli.output import write_json
from kernel_assay.fuzz.replay.replay import Item, gather
from kernel_assay.fuzz.settings import SandboxLimits
from kernel_assay.fuzz.triage.failures import Failure, Observed, event, file
from kernel_assay.kernels.backends.support.edits import read_source
from kernel_assay.kernels.backends.support.includes import standalone
from kernel_assay.kernels.catalog import resolve
from kernel_assay.reports.book import Book, judged
from kernel_assay.reports.explain import explain
from kernel_assay.reports.forms import write
from kernel_assay.reports.json_model import finding_report
from kernel_assay.reports.plain.finding_text import case_text, closeup
from kernel_assay.reports.plain.terminal import table
from kernel_assay.reports.reproducer.script import reproducer as script_of
from kernel_assay.reports.words import times


@click.command("show")
@click.argument("target", metavar="FINDING|FILE|RUN:INDEX|case:TOKEN")
@click.option("--reproducer", metavar="FILE", help="Only write the stand-alone program that shows the failure.")
@click.option("--source", metavar="FILE", help="Only write the kernel's source, with its edits made.")
@own_option
@contract_option
@reference_option
@box_options
@old_corpus_option
@json_option
def command(
    *,
    target: str,
    reproducer: str | None,
    source: str | None,
    own: UserKernels,
    limits: SandboxLimits,
    corpus: Place,
    json_path: str | None,
) -> int:
    """Show all there is to know of a finding, with a program that reproduces it; a bare case is run first."""
    with open_store(corpus) as store:
        items = gather(store, [target], own)
    found = [i.finding for i in items if i.finding is not None] if not own.files else []
    found = found or _observed(items, limits, aside=json_path == "-")
    book = Book(tuple(found), corpus=str(corpus))
    subjects = [f.subject for f in found] or [i.subject for i in items]
    if source:
        write(Path(source), read_source(resolve(subjects[0])).text)
        return 0
    if reproducer:
        return _write_reproducer(found, Path(reproducer))
    if json_path:
        write_json(json_path, [finding_report(book, f) for f in found])
        return 0
    for f in found:
        click.echo(closeup(book, f, script_of(f)))
    return 0


def _write_reproducer(found: Sequence[Finding], path: Path) -> int:
    if not found:
        raise UsageError("there is no failure to reproduce: the case passes")
    save_reproducer(found[0], path)
    click.echo(f"python {shlex.quote(str(path))}")
    return 0


def save_reproducer(finding: Finding, path: Path) -> None:
    """Write the program that shows a finding's failure, and beside it a kernel that is made by edits.

    Raises UsageError for a file that cannot be written.
    """
    write(path, script_of(finding))
    kernel = resolve(finding.subject)
    if kernel.suffix == ".toml":
        _write_beside(path.with_name(f"{kernel.stem}.cu"), standalone(kernel))


def _write_beside(path: Path, text: str) -> None:
    """Write what edits make of a kernel, which nobody else has. Raises UsageError rather than write over another."""
    if path.exists() and path.read_text("utf-8", "replace") != text:
        raise UsageError(f"{path} exists and is another kernel; name another folder for the reproducer")
    write(path, text)


def _observed(items: list[Item], limits: SandboxLimits, *, aside: bool) -> list[Finding]:
    """Run the cases, say what every subject makes of them, and give the failures the form of findings."""
    subjects = list({i.subject.key: i.subject for i in items}.values())
    found = []
    with Examiner(subjects, **asdict(limits)) as examiner:
        for case in {i.case.id: i.case for i in items}.values():
            keys = tuple(i.subject.key for i in items if i.case.id == case.id)
            checked = examiner.check([CheckRequest(case, keys, all_laws(case))])[0]
            click.echo(f"{case_text(case)}\n\n{_verdicts(checked)}\n", err=aside)
            found += [_as_finding(examiner, checked, key) for key, v in checked.verdicts.items() if v.failed]
    return found


def _verdicts(checked: Checked) -> str:
    rows = [(key, v.kind.value, times(v.rho), v.message or judged(v.shares)) for key, v in checked.verdicts.items()]
    return table(("subject", "verdict", "rho", ""), rows)


def _as_finding(examiner: Examiner, checked: Checked, key: str) -> Finding:
    verdict, subject = checked.verdicts[key], examiner.subjects[key]
    shown = examiner.look_at(checked.case, key, verdict).exhibit
    seen = Observed(checked.case, verdict, checked.input_digest, exhibit=shown)
    failure = Failure(checked.case, subject, verdict, checked.case.token)
    return file(failure, seen, [event(State.NEW, "shown, not filed")])


@click.command("explain")
@click.argument("topic", metavar="VERDICT|RULE")
def explain_command(topic: str) -> int:
    """Explain a verdict or a rule: what it means, how it is decided, what causes it."""
    click.echo(explain(topic).rstrip())
    return 0
