"""`replay`: run stored cases again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from textwrap import indent

import click

from kernel_assay.corpus.storage.opening import open_store
from kernel_assay.corpus.storage.place import Place
from kernel_assay.fuzz import api
from kernel_assay.fuzz.checking.selection import UserKernels
from kernel_assay.fuzz.checking.user_references import notes_of
from kernel_assay.fuzz.cli.options import (
    base_option,
    box_options,
    contract_option,
    device_option,
    json_option,
    launch_blocking_option,
    old_corpus_option,
    own_option,
    reference_option,
)
from kernel_assay.fuzz.cli.output import FOUND, check_files, write_json
from kernel_assay.fuzz.replay.replay import Outcome, Replayed
from kernel_assay.fuzz.settings import SandboxLimits
from kernel_assay.reports.book import Book
from kernel_assay.reports.forms import formats, write
from kernel_assay.reports.junit import Result
from kernel_assay.reports.junit import junit as junit_of
from kernel_assay.reports.plain.replay_markdown import Told
from kernel_assay.reports.plain.replay_markdown import markdown as markdown_of
from kernel_assay.reports.plain.terminal import say


@click.command("replay")
@click.argument("targets", nargs=-1, metavar="[FINDING|FILE|FOLDER|RUN:INDEX|case:TOKEN]...")
@own_option
@contract_option
@reference_option
@base_option
@device_option("", "Where the subjects run (cpu, cuda or cuda:NUMBER), those that can; default: where each failed.")
@launch_blocking_option
@click.option("--strict", is_flag=True, help="Failures that do not show, and may still be there, count, too; for CI.")
@click.option("--junit", type=click.Path(path_type=Path), help="Write the results as JUnit XML.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the results as GitHub shows them.")
@click.option("--sarif", type=click.Path(path_type=Path), help="Write the failures as SARIF.")
@box_options
@old_corpus_option
@json_option
def command(
    *,
    targets: tuple[str, ...],
    own: UserKernels,
    base: Path | None,
    device: str,
    strict: bool,
    junit: Path | None,
    markdown: Path | None,
    sarif: Path | None,
    limits: SandboxLimits,
    corpus: Place,
    json_path: str | None,
) -> int:
    """Run stored cases again (default: the whole corpus) and say what has changed. Exit code 1 if one fails.

    A failure that showed once, and does not show now, counts with --strict.
    """
    check_files(json_path, junit, markdown, sarif)
    with open_store(corpus) as store:
        results = api.replay(targets, store=store, own=own, device=device, base=base, limits=limits)
    return conclude(results, corpus, json_path, strict=strict, junit=junit, markdown=markdown, sarif=sarif)


def conclude(
    results: Sequence[Replayed],
    corpus: Place,
    json_path: str | None = None,
    *,
    strict: bool = False,
    junit: Path | None = None,
    markdown: Path | None = None,
    sarif: Path | None = None,
) -> int:
    """Say what came of a replay, and write it in the forms that CI servers show; the exit code.

    strict: failures that do not show, and may still be there, count.
    """
    for r in results:
        say(_line(r), err=json_path == "-")
    write_json(json_path, [_summary(r) for r in results])
    if junit:
        write(junit, junit_of("replay", [_result(r) for r in results]))
    if markdown:
        write(markdown, markdown_of([_told(r) for r in results]))
    if sarif:
        failing = tuple(r.as_finding() for r in results if r.verdict.failed and not r.item.subject.planted)
        quiet = frozenset(r.as_finding().id for r in results if r.good)
        write(sarif, formats()["sarif"].render(Book(failing, known=quiet, corpus=str(corpus))))
    for note in notes_of([r.item.case.op for r in results]):
        click.echo(f"warning: {note}", err=True)
    click.echo(tally(results), err=json_path == "-")
    doubtful = [r for r in results if r.doubtful]
    if doubtful and not strict:
        click.echo(f"{len(doubtful)} may still be there: exit code 1 with --strict", err=True)
    return 0 if all(r.good for r in results) and not (strict and doubtful) else FOUND


def tally(results: Sequence[Replayed]) -> str:
    """One line for all of them."""
    counted = Counter(r.outcome.value for r in results)
    said = ", ".join(f"{n} {word}" for word, n in counted.items())
    return f"{len(results)} replayed: {said}" if results else "nothing to replay"


def _line(r: Replayed) -> str:
    lost = " (a seeded bug is not caught any more)" if r.lost else ""
    meant = r.item.subject.planted and r.good  # of hundreds of seeded bugs nobody reads more than a line each
    message = f"\n{indent(f'{r.verdict.kind}: {r.verdict.message}', '    ')}" if r.verdict.message and not meant else ""
    blame = f"\n    {r.verdict.blame}" if r.verdict.blame and not meant else ""
    return f"{r.outcome.value}{lost}: {r.item.subject.key}  {r.item.case.label}  [{r.item.name}]{message}{blame}"


def _summary(r: Replayed) -> dict[str, str | bool]:
    return {
        "item": r.item.name,
        "case_id": r.item.case.id,
        "subject": r.item.subject.key,
        "outcome": r.outcome.value,
        "good": r.good,
        "kind": r.verdict.kind.value,
        "message": r.verdict.message,
    }


def _result(r: Replayed) -> Result:
    name = f"{r.item.case.label} [{r.item.name}]"
    if r.good:
        skipped = "" if r.outcome is Outcome.PASSES else r.outcome.value if r.verdict.failed else ""
        return Result(name, r.item.subject.key, skipped=skipped)
    return Result(name, r.item.subject.key, failure=r.verdict.message or r.outcome.value)


def _told(r: Replayed) -> Told:
    return Told(r.item.subject.key, r.outcome.value, r.item.case.label, r.verdict.message, good=r.good)
