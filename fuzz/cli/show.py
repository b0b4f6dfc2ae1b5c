"""What `show`, `explain`, `analyze`, `promote` and `expect-failure` do, below the command line."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.findings import Finding, State
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.corpus.storage.saved_outputs import Kept
from kernel_assay.fuzz.checking.check import Checked, Examiner, Inquiry, all_laws
from kernel_assay.fuzz.checking.selection import Own, only_dtypes, placed
from kernel_assay.fuzz.checking.user_contracts import know_contracts
from kernel_assay.fuzz.cli.output import FOUND, write_json
from kernel_assay.fuzz.exhaustive.prove import lines, prove
from kernel_assay.fuzz.replay.rejudge import analyze, said
from kernel_assay.fuzz.replay.replay import Item, gather
from kernel_assay.fuzz.triage.failures import Failure, Observed, event, file
from kernel_assay.fuzz.triage.lifecycle import expect_failure, expect_pass, promote
from kernel_assay.kernels.backends.support.edits import read_source
from kernel_assay.kernels.backends.support.includes import standalone
from kernel_assay.kernels.catalog import resolve, subjects_of, user_subject
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.reports.book import Book, judged
from kernel_assay.reports.explain import explain
from kernel_assay.reports.forms import write
from kernel_assay.reports.json_model import finding_report
from kernel_assay.reports.plain.finding_text import case_text, closeup
from kernel_assay.reports.plain.terminal import table
from kernel_assay.reports.reproducer.script import reproducer
from kernel_assay.reports.words import times


def show(**options: Any) -> int:
    """The command `show`: a finding as it is stored; a bare case is run first."""
    with Store(options["corpus"]) as store:
        items = gather(store, [options["target"]], Own(options["files"], options["launch"]))
        found = [i.finding for i in items if i.finding is not None] if not options["files"] else []
        if not found:
            found = _observed(items, options)
        book = Book(tuple(found), corpus=str(options["corpus"]))
        subjects = [f.subject for f in found] or [i.subject for i in items]
    if options["source"]:
        write(Path(options["source"]), read_source(resolve(subjects[0])).text)
        return 0
    if options["reproducer"]:
        return _write_reproducer(found, Path(options["reproducer"]))
    if options["json_path"]:
        write_json(options["json_path"], [finding_report(book, f) for f in found])
        return 0
    for f in found:
        click.echo(closeup(book, f, reproducer(f)))
    return 0


def _write_reproducer(found: list[Finding], path: Path) -> int:
    if not found:
        raise UsageError("there is no failure to reproduce: the case passes")
    write(path, reproducer(found[0]))
    kernel = resolve(found[0].subject)
    if kernel.suffix == ".toml":
        _write_beside(path.with_name(f"{kernel.stem}.cu"), standalone(kernel))
    click.echo(f"python {shlex.quote(str(path))}")
    return 0


def _write_beside(path: Path, text: str) -> None:
    """Write what edits make of a kernel, which nobody else has. Raises UsageError rather than write over another."""
    if path.exists() and path.read_text("utf-8", "replace") != text:
        raise UsageError(f"{path} exists and is another kernel; name another folder for the reproducer")
    write(path, text)


def _observed(items: list[Item], options: dict[str, Any]) -> list[Finding]:
    """Run the cases, say what every subject makes of them, and give the failures the form of findings."""
    subjects = list({i.subject.key: i.subject for i in items}.values())
    found = []
    with Examiner(subjects, timeout=options["timeout"], memory_mb=options["memory_mb"]) as examiner:
        for case in {i.case.id: i.case for i in items}.values():
            keys = tuple(i.subject.key for i in items if i.case.id == case.id)
            checked = examiner.check([Inquiry(case, keys, all_laws(case))])[0]
            click.echo(f"{case_text(case)}\n\n{_verdicts(checked)}\n", err=options["json_path"] == "-")
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


def explain_topic(topic: str) -> int:
    """The command `explain`."""
    click.echo(explain(topic).rstrip())
    return 0


def analyze_kept(**options: Any) -> int:
    """The command `analyze`: exit code 1 if a verdict changed."""
    with Store(options["corpus"]) as store:
        names = options["targets"] or store.kept_names()
        kept = [(name, one) for name in names for one in _kept(store, name)]
    results = [(name, analyze(one)) for name, one in kept]
    changed = [(name, a) for name, a in results if a.changed]
    rows = [(name, a.kept.subject.key, said(a.kept.verdict), said(a.verdict), a.kept.case.label) for name, a in changed]
    aside = options["json_path"] == "-"
    if rows:
        click.echo(table(("kept", "subject", "then", "now", "case"), rows), err=aside)
    drifted = sum(a.verdict is None for _, a in results)
    laws = sum(bool(a.kept.verdict.law) for _, a in results)
    parts = [f"{len(results)} judged again, {len(changed)} changed"]
    parts += [f"{drifted} with other inputs today"] if drifted else []
    parts += [f"{laws} broke a law, of which one run was kept: what was said stands"] if laws else []
    click.echo("; ".join(parts) if results else "no outputs are kept: search first", err=aside)
    write_json(options["json_path"], [_change(name, a.kept, said(a.verdict)) for name, a in results])
    return FOUND if changed else 0


def _kept(store: Store, name: str) -> list[Kept]:
    """What was kept for a finding (or the beginning of its id) or a run."""
    whole = name in store.kept_names() or name in store.runs()
    found = store.kept(name if whole else store.finding(name).id)
    if not found:
        raise UsageError(f"no outputs of {name} were kept: they were too large, or nothing was returned")
    for kept in found:
        know_contracts({kept.case.op: kept.contract}, name)
    return found


def _change(name: str, kept: Kept, now: str) -> dict[str, Any]:
    return {"kept": name, "subject": kept.subject.key, "case_id": kept.case.id, "then": said(kept.verdict), "now": now}


def promote_findings(**options: Any) -> int:
    """The command `promote`."""
    with Store(options["corpus"]) as store:
        store.prepare()
        for target in options["targets"]:
            finding = store.finding(target)
            click.echo(f"promoted: {promote(store, finding)}")
            _mention_siblings(store, finding, {f.id for _, f in store.regressions()})
    return 0


def _mention_siblings(store: Store, finding: Finding, done: set[str]) -> None:
    """Findings of the same subject and kind, most often of other dtypes, for which nothing was said."""
    kin = [f for f in store.findings(finding.case.op) if f.subject.key == finding.subject.key and f.id not in done]
    ids = " ".join(f.id for f in kin if f.verdict.kind is finding.verdict.kind and f.id != finding.id)
    if ids:
        click.echo(f"not so its siblings, most often the same bug: {ids}", err=True)


def expect(**options: Any) -> int:
    """The command `expect-failure`."""
    with Store(options["corpus"]) as store:
        store.prepare()
        finding = store.finding(options["target"])
        if options["clear"]:
            expect_pass(store, finding)
            click.echo(f"{finding.id}: its failure is news again")
        else:
            kept = expect_failure(store, finding, options["reason"], options["until"])
            click.echo(f"{finding.id}: {kept.history[-1].what}")
            _mention_siblings(store, finding, {f.id for f in store.all_findings() if f.expected()})
    return 0


def prove_subject(**options: Any) -> int:
    """The command `prove`: exit code 1 if an input fails."""
    contract = contract_of(options["op"])
    (named,) = only_dtypes([_named_subject(options["op"], options["subject"])], options["dtypes"])
    subject = named if options["device"] == "cpu" else placed([named], options["device"])[0]
    if options["device"] != "cpu" and subject.device == "cpu":
        raise UsageError(f"{named.key} does not run on device {options['device']!r}")
    proof = prove(contract, subject, timeout=options["timeout"], memory_mb=options["memory_mb"])
    with Store(options["corpus"]) as store:
        store.prepare()
        path = store.save_proof(proof)
    click.echo(table(("inputs", "number", "verdict", ""), list(lines(proof))))
    said = "holds for every one of them" if proof.holds else "does not hold"
    where = "".join(f" on {device}" for device in proof.environment.devices[:1])
    click.echo(f"{subject.key} ({subject.source_digest}){where}: {said}; kept in {path}")
    return 0 if proof.holds else FOUND


def _named_subject(op: str, name: str) -> Subject:
    """A kernel of the house by its name, or a file."""
    house = next((s for s in subjects_of(op) if s.name == name), None)
    return house or user_subject(name, (op,))
