"""`debug`: a case in a debugger, stopped where it goes wrong."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.process.scratch_folders import Scratch
from kernel_assay.corpus.storage.atomic_files import named_trouble
from kernel_assay.corpus.storage.opening import open_store
from kernel_assay.corpus.storage.place import Place
from kernel_assay.fuzz.checking.selection import UserKernels
from kernel_assay.fuzz.cli.options import (
    contract_option,
    device_option,
    launch_blocking_option,
    old_corpus_option,
    own_option,
    reference_option,
)
from kernel_assay.fuzz.debugging.session import NOWHERE, Session, program_session, session_of
from kernel_assay.fuzz.debugging.target import TARGET, aimed, only_one
from kernel_assay.fuzz.replay.replay import moved
from kernel_assay.fuzz.triage.sanitize import said_of


@click.command("debug")
@click.argument("target", metavar=f"{TARGET}|PROGRAM.py")
@own_option
@device_option("", "Where the kernel runs: cpu (CUDA C++ is emulated, in gdb) or cuda; default: where it failed.")
@click.option("--batch", metavar="COMMANDS", help="Run these at the stop, ; between them, and end: 'bt; info locals'.")
@click.option("--print", "printed", is_flag=True, help="Print the script and the command, and start nothing.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("kassay-debug"), show_default=True, help="Folder of --print."
)
@launch_blocking_option
@contract_option
@reference_option
@old_corpus_option
def command(
    *, target: str, own: UserKernels, device: str, batch: str | None, printed: bool, out: Path, corpus: Place
) -> int:
    """Run a case in a debugger, stopped where it goes wrong: the line, the thread and the block, if the finding knows.

    CUDA C++ runs in cuda-gdb on a GPU, and in gdb where it is emulated; anything else in pdb, stopped in the kernel's
    function. The kernel runs outside of the sandbox, with your rights, in a process of its own.
    """
    commands = [word.strip() for word in (batch or "").split(";") if word.strip()]
    if batch is not None and not commands:
        raise UsageError("--batch has no commands; name some, as --batch 'bt; info locals'")
    if printed:
        with named_trouble(out):
            out.mkdir(exist_ok=True)
        session = _session(target, own, device, corpus, out, commands)
        click.echo(f"{session.script.read_text('utf-8')}\n# {session.script}; start it by\n{session}")
        return 0
    with closing(Scratch("debug-")) as scratch:
        session = _session(target, own, device, corpus, scratch.path, commands)
        code, said = session.start(attended=not commands)
    click.echo(said, nl=False)
    if commands and code == NOWHERE:
        status, message = said_of(said)
        ran = "the kernel did not come to where it was to stop; replay says whether it still fails"
        raise UsageError(ran if status in {"", "ok"} else f"the kernel did not run through ({status}): {message}")
    if commands and code:
        raise UsageError(f"{Path(session.command[0]).name} ended with exit code {code}")
    return 0


def _session(target: str, own: UserKernels, device: str, corpus: Place, folder: Path, commands: list[str]) -> Session:
    if target.endswith(".py") and Path(target).is_file():
        return program_session(target, commands)
    with open_store(corpus) as store:
        item = only_one(moved(aimed(store, target, own), device), target)
    if item.finding and item.finding.before:
        click.echo("warning: it fails after other cases only, and those are not run here", err=True)
    return session_of(item, folder, commands)
