"""`compile`: compile CUDA files for GPUs, and say what they need there. A gate that needs no GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.cli.options import contract_option, reference_option
from kernel_assay.fuzz.cli.output import FOUND
from kernel_assay.kernels.backends.cuda_support.device_code import ARCHITECTURES, Compiled, compile_for, compilers
from kernel_assay.kernels.backends.cuda_support.front_matter import read_front_matter
from kernel_assay.kernels.backends.support.edits import CUDA
from kernel_assay.kernels.catalog import resolve, subjects_of
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.reports.plain.terminal import table


@dataclass(frozen=True, slots=True)
class Job:
    """A file for an architecture."""

    name: str
    path: Path
    architecture: str
    launch: str


@click.command("compile")
@click.argument("targets", nargs=-1, metavar="[OP|FILE]...")
@click.option(
    "--arch",
    "architectures",
    multiple=True,
    metavar="NAME",
    help="An architecture, such as sm_90; repeatable.  [default: sm_80, sm_90, sm_100]",
)
@click.option("--launch", multiple=True, metavar="KEY=VALUE", help="As in `run`.")
@contract_option
@reference_option
def command(*, targets: tuple[str, ...], architectures: tuple[str, ...], launch: tuple[str, ...]) -> int:
    """Compile CUDA files for GPUs, without one: all built-in ones, those of OPS, or your own FILES.

    Says what their kernels need there: registers, shared memory, spilled bytes. Exit code 1 if one does not compile, or
    not without a warning.
    """
    known = compilers()
    if not known:
        raise UsageError("nothing compiles for a GPU here: neither nvcc nor NVRTC (the extra [gpu]) is installed")
    text = "\n".join(launch)
    files = [file for target in targets or load_contracts() for file in _files(target)]
    for _, path in files:
        read_front_matter(path, text)
    jobs = [Job(name, path, arch, text) for name, path in files for arch in architectures or ARCHITECTURES]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda job: _compile(job, known[0]), jobs))
    rows, wrong = [], []
    for job, found in zip(jobs, results, strict=True):
        if isinstance(found, str):
            wrong.append(found)
            continue
        wrong += [f"{job.name} for {job.architecture}: {warning}" for warning in found.warnings]
        rows.append([job.name, job.architecture, *_needs(found)])
    if rows:
        click.echo(table(["file", "for", "kernels", "registers", "shared bytes", "spilled bytes"], rows))
    for sentence in wrong:
        click.echo(sentence)
    return FOUND if wrong else 0


def _files(target: str) -> Iterator[tuple[str, Path]]:
    """A file, or those of an op: by what they are called in the table."""
    if Path(target).suffix in CUDA:
        yield target, Path(target)
        return
    contract_of(target)
    for subject in subjects_of(target):
        if subject.backend == "cuda":
            yield subject.key, resolve(subject)


def _compile(job: Job, compiler: str) -> Compiled | str:
    """Compile one; the result, or what is wrong."""
    try:
        return compile_for(read_front_matter(job.path, job.launch), job.architecture, compiler)
    except UsageError as error:
        return str(error)


def _needs(found: Compiled) -> list[str]:
    """The most of each that a kernel of the file needs."""
    most = [max((getattr(n, what) for n in found.needs), default=0) for what in ("registers", "shared", "spilled")]
    return [str(len(found.needs)), *map(str, most)]
