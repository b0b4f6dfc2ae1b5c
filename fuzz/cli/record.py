"""`record`: write down what a model run asks of torch."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.kernels.recording.recorder import record
from kernel_assay.reports.words import count


@click.command("record", context_settings={"allow_interspersed_args": False})
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("workload.jsonl"),
    show_default=True,
    help="The file.",
)
@click.option(
    "--function", "functions", multiple=True, metavar="MODULE:NAME", help="Only calls of this function; repeatable."
)
@click.option(
    "--module", "modules", multiple=True, metavar="CLASS", help="Only calls of modules of this class; repeatable."
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(*, output: Path, functions: tuple[str, ...], modules: tuple[str, ...], command: tuple[str, ...]) -> int:
    """Run COMMAND, as `python serve.py` or `python -m serve`, and write the shapes that it asks of torch to a file.

    Distinct calls are a line each, and of tensors nothing but shape, dtype and strides is kept. `run --workload` tries
    them first. The exit code is that of COMMAND, and 2 if it succeeded and nothing was recorded.
    """
    if not output.resolve().parent.is_dir():
        raise UsageError(f"{output} cannot be written: {output.resolve().parent} is no folder")
    found = record(command, output, functions=functions, modules=modules)
    for words in found.warnings:
        click.echo(f"warning: {words}", err=True)
    if found.empty and not found.exit_code:
        raise UsageError(f"nothing was recorded: {found.empty}")
    made = sum(one.count for one in found.calls)
    said = f"{count(len(found.calls), 'distinct call')} of {made:,} in {output}"
    click.echo(f"nothing was recorded: {found.empty}" if found.empty else f"recorded  {said}", err=True)
    return found.exit_code
