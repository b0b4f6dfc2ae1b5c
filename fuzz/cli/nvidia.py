"""What `sanitize` and `profile` do, below the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.findings import Finding, Sanitized
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.checking.selection import Own
from kernel_assay.fuzz.cli.output import FOUND, check_json, write_json
from kernel_assay.fuzz.replay.replay import Item, gather
from kernel_assay.fuzz.triage.sanitize import first_words, on_gpu, order_of, said_of, sanitize
from kernel_assay.kernels.nvidia import profiler
from kernel_assay.kernels.nvidia.profiler import Profile
from kernel_assay.kernels.nvidia.run_under_tool import watch
from kernel_assay.kernels.nvidia.sanitizer import PROGRAM, TOOLS, missing
from kernel_assay.reports.plain.terminal import table
from kernel_assay.reports.words import figure


def sanitize_stored(**options: Any) -> int:
    """The command `sanitize`. Raises UsageError if a tool gave no answer, after all that others have said."""
    items = _items(options, PROGRAM)
    rows: list[tuple[str, ...]] = []
    plain: list[dict[str, Any]] = []
    unanswered, errors = "", 0
    for item in items:
        said = sanitize(item.case, item.subject, options["tools"] or tuple(TOOLS), options["timeout"])
        _remember(options, item, said)
        rows += [(item.subject.key, s.tool, "-" if s.trouble else str(s.errors), _words(s)) for s in said]
        plain += [_plain(item, s.model_dump(mode="json")) for s in said]
        errors += sum(s.errors for s in said)
        unanswered = unanswered or next((f"{item.subject.key}: {s.tool}: {s.trouble}" for s in said if s.trouble), "")
    _tell(options, ("subject", "tool", "errors", ""), rows, plain)
    if unanswered and not errors:
        raise UsageError(f"there is no answer for {unanswered}")
    return FOUND if errors else 0


def profile(case: Case, subject: Subject, seconds: float) -> list[Profile]:
    """What ncu measured of each kernel that a subject launches for a case. Raises UsageError if it measured nothing."""
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


def profile_stored(**options: Any) -> int:
    """The command `profile`."""
    items = _items(options, profiler.PROGRAM)
    rows: list[tuple[str, ...]] = []
    plain: list[dict[str, Any]] = []
    for item in items:
        for one in profile(item.case, item.subject, options["timeout"]):
            numbers = (one.microseconds, one.dram, one.sm, one.registers, one.occupancy)
            rows.append((item.subject.key, one.kernel, *map(figure, numbers)))
            plain.append(_plain(item, asdict(one)))
    _tell(options, ("subject", "kernel", "us", "DRAM %", "SM %", "registers", "occupancy %"), rows, plain)
    return 0


def _items(options: dict[str, Any], program: str) -> list[Item]:
    """What is to be run, placed on the GPU. Raises UsageError if it cannot be, or if there is no such program."""
    check_json(options["json_path"])
    if why := missing(program):
        raise UsageError(f"nothing can be asked of {program} here: {why}")
    with Store(options["corpus"]) as store:
        items = gather(store, [options["target"]], Own(options["files"], options["launch"]))
    placed, refused = [], []
    for item in items:
        try:
            placed.append(replace(item, subject=on_gpu(item.subject)))
        except UsageError as error:
            refused.append(error)
    if not placed:
        raise refused[0]
    return placed


def _remember(options: dict[str, Any], item: Item, said: Sequence[Sanitized]) -> None:
    """A stored finding keeps what was said of its very case and kernel."""
    finding: Finding | None = item.finding
    heard = tuple(s for s in said if not s.trouble)
    if finding is None or options["files"] or not heard:
        return
    with Store(options["corpus"]) as store:
        if store.has(finding):
            store.save_finding(finding.but(sanitized=heard, count=0))


def _words(said: Sanitized) -> str:
    return said.message or (f"no answer: {said.trouble}" if said.trouble else "silent")


def _plain(item: Item, said: dict[str, Any]) -> dict[str, Any]:
    return {"subject": item.subject.key, "case_id": item.case.id, **said}


def _tell(
    options: dict[str, Any], head: Sequence[str], rows: list[tuple[str, ...]], plain: list[dict[str, Any]]
) -> None:
    click.echo(table(head, rows), err=options["json_path"] == "-")
    write_json(options["json_path"], plain)
