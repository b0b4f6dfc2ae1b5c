"""`promote` and `expect-failure`: what a person decides about findings."""

from __future__ import annotations

import click

from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.storage.opening import open_store
from kernel_assay.corpus.storage.place import Place
from kernel_assay.corpus.storage.protocol import CorpusStore
from kernel_assay.fuzz.cli.options import old_corpus_option
from kernel_assay.fuzz.triage.lifecycle import expect_failure, expect_pass, promote


@click.command("promote")
@click.argument("targets", nargs=-1, required=True, metavar="FINDING...")
@old_corpus_option
def promote_command(*, targets: tuple[str, ...], corpus: Place) -> int:
    """Keep findings for good: copy them to regressions/, which is committed and replayed in CI."""
    with open_store(corpus) as store:
        store.prepare()
        for target in targets:
            finding = store.finding(target)
            click.echo(f"promoted: {promote(store, finding)}")
            _mention_siblings(store, finding, {f.id for _, f in store.regressions()})
    return 0


def _mention_siblings(store: CorpusStore, finding: Finding, done: set[str]) -> None:
    """Findings of the same subject and kind, most often of other dtypes, for which nothing was said."""
    kin = [f for f in store.findings(finding.case.op) if f.subject.key == finding.subject.key and f.id not in done]
    ids = " ".join(f.id for f in kin if f.verdict.kind is finding.verdict.kind and f.id != finding.id)
    if ids:
        click.echo(f"not so its siblings, most often the same bug: {ids}", err=True)


@click.command("expect-failure")
@click.argument("target", metavar="FINDING")
@click.option("--reason", default="", metavar="TEXT", help="Why it may fail: an issue, a sentence.")
@click.option(
    "--until", default="", metavar="DATE", help="Last day on which it may, as 2030-12-31.  [default: for good]"
)
@click.option("--clear", is_flag=True, help="It may not fail any more.")
@old_corpus_option
def expect_command(*, target: str, reason: str, until: str, clear: bool, corpus: Place) -> int:
    """Say that a finding is a known, open bug: its failure is no news. Replay says when it starts to pass."""
    with open_store(corpus) as store:
        store.prepare()
        finding = store.finding(target)
        if clear:
            expect_pass(store, finding)
            click.echo(f"{finding.id}: its failure is news again")
        else:
            kept = expect_failure(store, finding, reason, until)
            click.echo(f"{finding.id}: {kept.history[-1].what}")
            _mention_siblings(store, finding, {f.id for f in store.all_findings() if f.expected()})
    return 0
