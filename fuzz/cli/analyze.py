"""`analyze`: kept outputs under the contracts of today."""

from __future__ import annotations

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.storage.opening import open_store
from kernel_assay.corpus.storage.place import Place
from kernel_assay.corpus.storage.protocol import CorpusStore
from kernel_assay.corpus.storage.saved_outputs import Kept
from kernel_assay.fuzz.checking.user_contracts import know_contracts
from kernel_assay.fuzz.cli.options import (
    contract_option,
    json_option,
    old_corpus_option,
    reference_option,
)
from kernel_assay.fuzz.cli.output import FOUND, write_json
from kernel_assay.fuzz.replay.rejudge import analyze, said
from kernel_assay.reports.plain.terminal import table


@click.command("analyze")
@click.argument("targets", nargs=-1, metavar="[FINDING|RUN]...")
@contract_option
@reference_option
@old_corpus_option
@json_option
def command(*, targets: tuple[str, ...], corpus: Place, json_path: str | None) -> int:
    """Judge kept outputs again under the contracts of today, running nothing. Exit code 1 if a verdict changed."""
    with open_store(corpus) as store:
        names = targets or store.kept_names()
        kept = [(name, one) for name in names for one in _kept(store, name)]
    results = [(name, analyze(one)) for name, one in kept]
    changed = [(name, a) for name, a in results if a.changed]
    rows = [(name, a.kept.subject.key, said(a.kept.verdict), said(a.verdict), a.kept.case.label) for name, a in changed]
    aside = json_path == "-"
    if rows:
        click.echo(table(("kept", "subject", "then", "now", "case"), rows), err=aside)
    drifted = sum(a.verdict is None for _, a in results)
    laws = sum(bool(a.kept.verdict.law) for _, a in results)
    parts = [f"{len(results)} judged again, {len(changed)} changed"]
    parts += [f"{drifted} with other inputs today"] if drifted else []
    parts += [f"{laws} broke a law, of which one run was kept: what was said stands"] if laws else []
    click.echo("; ".join(parts) if results else "no outputs are kept: search first", err=aside)
    write_json(json_path, [_change(name, a.kept, said(a.verdict)) for name, a in results])
    return FOUND if changed else 0


def _kept(store: CorpusStore, name: str) -> list[Kept]:
    """Outputs kept for a finding (or the beginning of its id) or a run."""
    whole = name in store.kept_names() or name in store.runs()
    found = store.kept(name if whole else store.finding(name).id)
    if not found:
        raise UsageError(f"no outputs of {name} were kept: they were too large, or nothing was returned")
    for kept in found:
        know_contracts({kept.case.op: kept.contract}, name)
    return found


def _change(name: str, kept: Kept, now: str) -> dict[str, str]:
    return {"kept": name, "subject": kept.subject.key, "case_id": kept.case.id, "then": said(kept.verdict), "now": now}
