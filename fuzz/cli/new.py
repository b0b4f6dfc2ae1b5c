"""`new`, `record` and `trace`: files that a run starts from, and programs that are run and watched."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from importlib.metadata import packages_distributions
from importlib.resources import files
from pathlib import Path
from string import Template

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.program import program
from kernel_assay.fuzz.checking.selection import claims
from kernel_assay.fuzz.cli.options import contract_option, reference_option
from kernel_assay.fuzz.cli.output import check_files, write_json
from kernel_assay.kernels.catalog import resolve, subjects_of
from kernel_assay.kernels.recording.recorder import record
from kernel_assay.kernels.recording.traced import trace_program
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.reports.forms import write
from kernel_assay.reports.words import count

BACKENDS = ("numpy", "torch")
"""Of which a built-in subject is copied: the first there is, ..."""
PLAIN = "numpy_float32"
"""... or this one, which takes nothing that is optional."""


@click.command("new")
@click.argument("what", type=click.Choice(["op", "subject", "cuda"]))
@click.argument("name")
@click.option("--op", default="silu", show_default=True, help="The op of a new subject.")
@click.option("--folder", type=click.Path(path_type=Path), default=Path(), help="Where to write.  [default: here]")
@contract_option
@reference_option
def command(*, what: str, name: str, op: str, folder: Path) -> int:
    """Write a small file that runs, to start from: an op with its contract, a subject, a CUDA kernel."""
    paths, run = new(what, name, op, folder)
    click.echo("\n".join([*(f"wrote {path}" for path in paths), f"run it: {run}"]))
    return 0


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
def record_command(
    *, output: Path, functions: tuple[str, ...], modules: tuple[str, ...], command: tuple[str, ...]
) -> int:
    """Write down the shapes that COMMAND asks of torch; it is run as it is, as `python serve.py` or `python -m serve`.

    Distinct calls are a line each, and of tensors nothing but shape, dtype and strides is kept. `run --workload` tries
    them first. The exit code is that of COMMAND, and 2 if it succeeded and nothing was recorded.
    """
    found = record(command, output, functions=functions, modules=modules)
    for words in found.warnings:
        click.echo(f"warning: {words}", err=True)
    if found.empty and not found.exit_code:
        raise UsageError(f"nothing was recorded: {found.empty}")
    made = sum(one.count for one in found.calls)
    said = f"{count(len(found.calls), 'distinct call')} of {made:,} in {output}"
    click.echo(f"nothing was recorded: {found.empty}" if found.empty else f"recorded  {said}", err=True)
    return found.exit_code


@click.command("trace", context_settings={"allow_interspersed_args": False})
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("kassay-trace"),
    show_default=True,
    help="Folder for the inputs of what made a NaN or Inf, with a program that runs it again.",
)
@click.option("--stop", is_flag=True, help="End the program at the first NaN or Inf that comes through.")
@click.option("--every-call", is_flag=True, help="Watch every call of a model on a CPU, however long it takes.")
@click.option("--json", "json_path", metavar="FILE", help="Write all that was seen as JSON.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def trace_command(
    *, output: Path, stop: bool, every_call: bool, json_path: str | None, command: tuple[str, ...]
) -> int:
    """Say which operator of COMMAND made the first NaN or Inf, forward or backward, and from what.

    COMMAND is run as it is, as `python train.py`; what was seen is told on standard error, the first failure within a
    second. The exit code is that of COMMAND, and 2 if it succeeded and torch was never called.
    """
    check_files(json_path)
    traced = trace_program(
        command,
        output,
        stop=stop,
        every_call=every_call,
        found=lambda event: click.echo(f"trace: {event.title()}", err=True),
    )
    if traced.empty and not traced.exit_code:
        raise UsageError(f"nothing was seen: {traced.empty}")
    write_json(json_path, [story.record() for story in traced.stories])
    for line in (line for story in traced.stories for line in story.lines()):
        click.echo(line, err=True)
    if traced.empty:
        click.echo(f"nothing was seen: {traced.empty}", err=True)
    return traced.exit_code


def new(what: str, name: str, op: str, folder: Path) -> tuple[list[Path], str]:
    """Write the files of an op, a subject or a CUDA kernel; they, and the command that runs them.

    Raises UsageError for a name that is no word, an op that is not known, and a file that exists or cannot be written.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name):
        advice = "use up to 64 small letters, digits and _, and begin with a letter"
        raise UsageError(f"{name!r} cannot be a name; {advice}")
    if name in sys.stdlib_module_names or name in packages_distributions():
        raise UsageError(f"{name!r} is the name of an installed module, whose place the file would take; take another")
    made = _WRITERS[what](name, op)
    for file in made:
        if (folder / file).exists():
            raise UsageError(f"{folder / file} exists already; take another name or another --folder")
    for file, text in made.items():
        write(folder / file, text)
    return [folder / file for file in made], _command(what, name, op, folder)


def _command(what: str, name: str, op: str, folder: Path) -> str:
    kernel = shlex.quote(str(folder / f"{name}.{'cu' if what == 'cuda' else 'py'}"))
    if what != "op":
        return f"{program()} run {op} --subject {kernel} --budget 10s"
    contract = shlex.quote(str(folder / f"{name}_contract.py"))
    return f"{program()} run {name} --contract {contract} --subject {kernel} --budget 10s"


def _op(name: str, op: str) -> dict[str, str]:
    del op
    if name in load_contracts():
        raise UsageError(f"op {name!r} exists already; `{program()} new subject` starts a kernel for it")
    return {f"{name}_contract.py": _filled("op_contract", name), f"{name}.py": _filled("op_subject", name)}


def _subject(name: str, op: str) -> dict[str, str]:
    """The plainest built-in kernel of the op: it runs and passes, until its body is replaced."""
    contract_of(op)
    clean = sorted((s for s in subjects_of(op) if not s.planted), key=lambda s: (claims(s), s.name != PLAIN))
    model = next((s for backend in BACKENDS for s in clean if s.backend == backend), None)
    if model is None:
        raise UsageError(f"op {op!r} has no kernel to start from; `{program()} new op` writes one with its contract")
    return {f"{name}.py": _renamed(resolve(model).read_text("utf-8"), name, op)}


def _renamed(source: str, name: str, op: str) -> str:
    """A built-in kernel as a user's: with its name at its head, and its op below what it imports."""
    tree, lines = ast.parse(source), source.splitlines(keepends=True)
    start = tree.body[0].end_lineno
    end = max(node.end_lineno or 0 for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    doc = f'"""{name}, for {op}. Replace the body by your own.\n\n{ast.get_docstring(tree)}\n"""\n'
    return "".join([doc, *lines[start:end], f'\nOP = "{op}"', *lines[end:]])


def _cuda(name: str, op: str) -> dict[str, str]:
    if op != "silu":
        raise UsageError(f"the CUDA template is one for silu; change its op and arguments to make it one for {op}")
    return {f"{name}.cu": _filled("cuda", name)}


def _filled(template: str, name: str) -> str:
    text = (files("kernel_assay.fuzz.cli") / "templates" / f"{template}.txt").read_text("utf-8")
    return Template(text).substitute(name=name)


_WRITERS = {"op": _op, "subject": _subject, "cuda": _cuda}
