"""`sanitize` and `profile`: ask NVIDIA's tools, and torch's profiler, about one case."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.findings import Finding, Sanitized
from kernel_assay.corpus.storage.atomic_files import named_trouble
from kernel_assay.corpus.storage.opening import open_store
from kernel_assay.corpus.storage.place import Place
from kernel_assay.fuzz.checking.selection import UserKernels
from kernel_assay.fuzz.cli.options import (
    Seconds,
    contract_option,
    device_option,
    json_option,
    old_corpus_option,
    own_option,
)
from kernel_assay.fuzz.cli.output import FOUND, check_files, write_json
from kernel_assay.fuzz.debugging.profiling import TOOLS as TOOLS_OF_TIME
from kernel_assay.fuzz.debugging.profiling import by_ncu, by_nsys, by_torch, lacking
from kernel_assay.fuzz.debugging.target import TARGET, aimed
from kernel_assay.fuzz.replay.replay import Item, moved
from kernel_assay.fuzz.settings import LONGEST
from kernel_assay.fuzz.triage.sanitize import placed_here, placed_on_gpu, sanitize
from kernel_assay.kernels.nvidia.sanitizer import PROGRAM, TOOLS
from kernel_assay.reports.plain.terminal import table
from kernel_assay.reports.words import figure

_timeout = click.option(
    "--timeout",
    type=Seconds(1.0, LONGEST),
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
    *, target: str, tools: tuple[str, ...], own: UserKernels, timeout: float, corpus: Place, json_path: str | None
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


@click.command("profile")
@click.argument("target", metavar=TARGET)
@click.option("--tool", type=click.Choice(TOOLS_OF_TIME), default="ncu", show_default=True, help="The profiler.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("kassay-profile"),
    show_default=True,
    help="Folder for the recordings of nsys, and the traces of torch, which Chrome and Perfetto show.",
)
@device_option("", "Where torch's profiler looks: cpu, cuda, cuda:NUMBER; default: where it failed.")
@_asking
def profile_command(
    *,
    target: str,
    tool: str,
    out: Path,
    device: str,
    own: UserKernels,
    timeout: float,
    corpus: Place,
    json_path: str | None,
) -> int:
    """Run a case under a profiler, and say what each kernel took: ncu and nsys on the GPU, torch's where it failed.

    ncu leaves the clocks alone; torch tells of the second of two runs, operator by operator.
    """
    items = _items(target, own, corpus, json_path, tool, device)
    if tool != "ncu":
        with named_trouble(out):
            out.mkdir(exist_ok=True)
    rows: list[tuple[str, ...]] = []
    plain: list[dict[str, Any]] = []
    refused = []
    for item in items:
        try:
            found = _profiled(tool, item, timeout, out)
        except UsageError as error:
            refused.append(error)
            continue
        rows += [(item.subject.key, *map(_cell, one.values())) for one in found[:_MOST_ROWS]]
        plain += [_plain(item, one) for one in found]
    if not plain:
        raise refused[0]
    if tool == "nsys":
        click.echo("\n".join(one["text"] for one in plain), err=json_path == "-")
    _tell(json_path, _HEADS[tool], rows if tool != "nsys" else [], plain)
    for why in refused:
        click.echo(f"warning: {why}", err=True)
    if tool != "ncu":
        click.echo(f"recorded in {out}", err=True)
    return 0


def _profiled(tool: str, item: Item, seconds: float, out: Path) -> list[dict[str, Any]]:
    asked, name = (item.case, item.subject, seconds), re.sub(r"\W", "-", f"{item.subject.key}-{item.case.id[:8]}")
    if tool == "nsys":
        return [{"report": str(out / f"{name}.nsys-rep"), "text": by_nsys(*asked, out / name)}]
    return [asdict(one) for one in (by_ncu(*asked) if tool == "ncu" else by_torch(*asked, out / f"{name}.json"))]


_PROFILED = 1 << 22
"""Elements of a case of an op."""
_HEADS = {
    "ncu": ("subject", "kernel", "us", "DRAM %", "SM %", "registers", "occupancy %"),
    "nsys": (),
    "torch": ("subject", "operator", "calls", "CPU us", "GPU us"),
}
_MOST_ROWS = 20
"""Of a subject; --json has all."""


def _cell(value: str | float | None) -> str:
    return value if isinstance(value, str) else figure(value)


def _items(
    target: str, own: UserKernels, corpus: Place, json_path: str | None, program: str, device: str = ""
) -> list[Item]:
    """Items to be run, placed on the GPU if the tool looks there. Raises UsageError if nobody can run them."""
    check_files(json_path)
    if why := lacking(program):
        raise UsageError(f"nothing can be asked of {program} here: {why}")
    with open_store(corpus) as store:
        items = moved(aimed(store, target, own, _PROFILED), device)
    placed, refused = [], []
    place = placed_here if program == "torch" else placed_on_gpu
    for item in items:
        try:
            placed.append(replace(item, subject=place(item.subject)))
        except UsageError as error:
            refused.append(error)
    if not placed:
        raise refused[0]
    return placed


def _remember(corpus: Place, item: Item, said: Sequence[Sanitized], *, mine: bool) -> None:
    """Note with a stored finding what was said of its very case and kernel. mine: another kernel was named."""
    finding: Finding | None = item.finding
    heard = tuple(s for s in said if not s.trouble)
    if finding is None or mine or not heard:
        return
    with open_store(corpus) as store:
        if store.has(finding):
            store.save_finding(finding.but(sanitized=heard, count=0))


def _words(said: Sanitized) -> str:
    return said.message or (f"no answer: {said.trouble}" if said.trouble else "silent")


def _plain(item: Item, said: dict[str, Any]) -> dict[str, Any]:
    return {"subject": item.subject.key, "case_id": item.case.id, **said}


def _tell(json_path: str | None, head: Sequence[str], rows: list[tuple[str, ...]], plain: list[dict[str, Any]]) -> None:
    if rows:
        click.echo(table(head, rows), err=json_path == "-")
    write_json(json_path, plain)
