"""`sanitize` and `profile`: ask NVIDIA's tools about one case. They need a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.findings import Finding, Sanitized
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.checking.selection import UserKernels
from kernel_assay.fuzz.cli.options import AtLeast, contract_option, json_option, old_corpus_option, own_option
from kernel_assay.fuzz.cli.output import FOUND, check_files, write_json
from kernel_assay.fuzz.replay.replay import Item, gather
from kernel_assay.fuzz.settings import LONGEST
from kernel_assay.fuzz.triage.sanitize import first_words, order_of, placed_on_gpu, said_of, sanitize
from kernel_assay.kernels.nvidia import profiler
from kernel_assay.kernels.nvidia.profiler import Profile
from kernel_assay.kernels.nvidia.run_under_tool import watch
from kernel_assay.kernels.nvidia.sanitizer import PROGRAM, TOOLS, missing
from kernel_assay.reports.plain.terminal import table
from kernel_assay.reports.words import figure

TARGET = "FINDING|FILE|RUN:INDEX|case:TOKEN"

_timeout = click.option(
    "--timeout",
    type=AtLeast(1.0, LONGEST),
    default=60.0,
    show_default=True,
    help="Seconds for one run under one tool.",
)


def _asking(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that both have."""
    for option in (json_option, old_corpus_option, _timeout, contract_option, own_option):
        command = option(command)
    return command


@click.command("sanitize")
@click.argument("target", metavar=TARGET)
@click.option(
    "--tool",
    "tools",
    multiple=True,
    type=click.Choice(list(TOOLS)),
    help="One of compute-sanitizer's; repeatable.  [default: all four]",
)
@_asking
def sanitize_command(
    *, target: str, tools: tuple[str, ...], own: UserKernels, timeout: float, corpus: Path, json_path: str | None
) -> int:
    """Run a case on the GPU under compute-sanitizer, every tensor in an allocation of exactly its size.

    Says what each tool reports, and notes it with a stored finding. Exit code 1 if one reports an error, 2 if one gave
    no answer.
    """
    items = _items(target, own, corpus, json_path, PROGRAM)
    rows: list[tuple[str, ...]] = []
    plain: list[dict[str, Any]] = []
    unanswered, errors = "", 0
    for item in items:
        said = sanitize(item.case, item.subject, tools or tuple(TOOLS), timeout)
        _remember(corpus, item, said, mine=bool(own.files))
        rows += [(item.subject.key, s.tool, "-" if s.trouble else str(s.errors), _words(s)) for s in said]
        plain += [_plain(item, s.model_dump(mode="json")) for s in said]
        errors += sum(s.errors for s in said)
        unanswered = unanswered or next((f"{item.subject.key}: {s.tool}: {s.trouble}" for s in said if s.trouble), "")
    _tell(json_path, ("subject", "tool", "errors", ""), rows, plain)
    if unanswered and not errors:
        raise UsageError(f"there is no answer for {unanswered}")
    return FOUND if errors else 0


def profile(case: Case, subject: Subject, seconds: float) -> list[Profile]:
    """Profile each kernel that a subject launches for a case by ncu. Raises UsageError if it measured nothing."""
    seen = watch(profiler.command(), order_of(case, subject), seconds=seconds, env={})
    found = profiler.read(seen.log) or profiler.read(seen.out)
    if found:
        return found
    if seen.code is None:
        raise UsageError(f"{profiler.PROGRAM} gave no answer within {seconds:.0f} s")
    status, message = said_of(seen.out)
    ran = f"the subject did not run through ({status}): {message}" if status not in {"", "ok"} else ""
    why = ran or profiler.complaint(seen.log + seen.out) or first_words(seen) or "it ended and said nothing"
    raise UsageError(f"{profiler.PROGRAM} measured nothing of {subject.key}: {why}")


@click.command("profile")
@click.argument("target", metavar=TARGET)
@_asking
def profile_command(*, target: str, own: UserKernels, timeout: float, corpus: Path, json_path: str | None) -> int:
    """Run a case on the GPU under Nsight Compute (ncu), whose clocks are left alone, and say what each kernel took."""
    items = _items(target, own, corpus, json_path, profiler.PROGRAM)
    rows: list[tuple[str, ...]] = []
    plain: list[dict[str, Any]] = []
    for item in items:
        for one in profile(item.case, item.subject, timeout):
            numbers = (one.microseconds, one.dram, one.sm, one.registers, one.occupancy)
            rows.append((item.subject.key, one.kernel, *map(figure, numbers)))
            plain.append(_plain(item, asdict(one)))
    _tell(json_path, ("subject", "kernel", "us", "DRAM %", "SM %", "registers", "occupancy %"), rows, plain)
    return 0


def _items(target: str, own: UserKernels, corpus: Path, json_path: str | None, program: str) -> list[Item]:
    """Items to be run, placed on the GPU. Raises UsageError if they cannot be, or if there is no such program."""
    check_files(json_path)
    if why := missing(program):
        raise UsageError(f"nothing can be asked of {program} here: {why}")
    with Store(corpus) as store:
        items = gather(store, [target], own)
    placed, refused = [], []
    for item in items:
        try:
            placed.append(replace(item, subject=placed_on_gpu(item.subject)))
        except UsageError as error:
            refused.append(error)
    if not placed:
        raise refused[0]
    return placed


def _remember(corpus: Path, item: Item, said: Sequence[Sanitized], *, mine: bool) -> None:
    """Note with a stored finding what was said of its very case and kernel. mine: another kernel was named."""
    finding: Finding | None = item.finding
    heard = tuple(s for s in said if not s.trouble)
    if finding is None or mine or not heard:
        return
    with Store(corpus) as store:
        if store.has(finding):
            store.save_finding(finding.but(sanitized=heard, count=0))


def _words(said: Sanitized) -> str:
    return said.message or (f"no answer: {said.trouble}" if said.trouble else "silent")


def _plain(item: Item, said: dict[str, Any]) -> dict[str, Any]:
    return {"subject": item.subject.key, "case_id": item.case.id, **said}


def _tell(json_path: str | None, head: Sequence[str], rows: list[tuple[str, ...]], plain: list[dict[str, Any]]) -> None:
    click.echo(table(head, rows), err=json_path == "-")
    write_json(json_path, plain)
