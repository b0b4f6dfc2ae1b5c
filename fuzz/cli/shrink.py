"""`shrink`: make a failing case smaller."""

from __future__ import annotations

import click

from kernel_assay.corpus.storage.opening import open_store
from kernel_assay.corpus.storage.place import Place
from kernel_assay.fuzz import api
from kernel_assay.fuzz.checking.selection import UserKernels
from kernel_assay.fuzz.cli.options import (
    box_options,
    contract_option,
    corpus_option,
    device_option,
    json_option,
    own_option,
    reference_option,
)
from kernel_assay.fuzz.cli.output import FOUND, write_json
from kernel_assay.fuzz.settings import SandboxLimits, seconds_of
from kernel_assay.reports.book import Book
from kernel_assay.reports.json_model import finding_report
from kernel_assay.reports.plain.run_text import finding_text
from kernel_assay.reports.plain.terminal import say


@click.command("shrink")
@click.argument("target", metavar="FINDING|FILE|RUN:INDEX|case:TOKEN")
@own_option
@contract_option
@reference_option
@device_option("", "Where the subject runs (cpu, cuda or cuda:NUMBER), if it can; default: where it failed.")
@click.option("--budget", default="30s", show_default=True, metavar="TIME", help="How long to try.")
@box_options
@corpus_option
@json_option
def command(
    *,
    target: str,
    own: UserKernels,
    device: str,
    budget: str,
    limits: SandboxLimits,
    corpus: Place,
    json_path: str | None,
) -> int:
    """Make a failing case smaller while it still fails in the same way."""
    with open_store(corpus) as store:
        found = api.shrink(target, store=store, own=own, device=device, seconds=seconds_of(budget), limits=limits)
    if not found:
        click.echo(f"nothing to shrink: {target} does not fail")
        return 0
    for shrunk in found:
        _tell(shrunk)
    book = Book(tuple(s.finding for s in found), corpus=str(corpus))
    for number, finding in enumerate(book.findings, 1):
        say(finding_text(finding, number, corpus=book.corpus), err=json_path == "-")
    write_json(json_path, [finding_report(book, f) for f in book.findings])
    return FOUND


def _tell(shrunk: api.Shrunk) -> None:
    before, after = shrunk.item.case, shrunk.finding.case
    gained = f"{before.elements:,} -> {after.elements:,} elements"
    click.echo(
        f"{gained if after.id != before.id else 'nothing smaller was found'} in {shrunk.seconds:.1f} s", err=True
    )
    if shrunk.replaced is not None:
        click.echo(f"{shrunk.finding.id} takes the place of {shrunk.replaced.id}", err=True)
