"""`fuzz-kernel`: a search over inputs, launches and orders of threads for a CUDA kernel that is no op."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.program import program
from kernel_assay.fuzz.cli.options import AtLeast, Seconds, json_option
from kernel_assay.fuzz.cli.output import FOUND, check_files, end_at_sigterm, write_json
from kernel_assay.fuzz.settings import LONGEST, seconds_of
from kernel_assay.kernels.programs.fuzz_kernel import Limits, read_witness, repeat, search_kernel
from kernel_assay.kernels.programs.witness import KernelSearch
from kernel_assay.reports.forms import write
from kernel_assay.reports.plain.terminal import say
from kernel_assay.reports.words import count

_BUDGET = "10s"
_MOST_CASES = 1_000_000


@click.command("fuzz-kernel")
@click.argument("kernel", required=False, metavar="FILE.cu", type=click.Path(path_type=Path))
@click.option("--inputs", type=click.Path(path_type=Path), metavar="FILE.py", help="The file with inputs(draw).")
@click.option(
    "--kernel", "entry", default="", metavar="NAME", help="Which kernel, as 'push<int>'.  [default: the only]"
)
@click.option("--budget", metavar="TIME", help=f"How long to search: 30, 30s, 5m.  [default: {_BUDGET}]")
@click.option("--cases", type=AtLeast(1, _MOST_CASES), help="Stop after so many cases instead.")
@click.option("--seed", type=AtLeast(0), default=0, show_default=True, help="Makes the same cases again.")
@click.option(
    "--timeout", type=Seconds(0.1, LONGEST), default=10.0, show_default=True, help="Seconds that a case may take."
)
@click.option("--open", "is_open", is_flag=True, help="Do not close the kernel and inputs(draw) in.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    default=Path("corpus/local/kernels"),
    show_default=True,
    metavar="FOLDER",
    help="Where a finding is kept.",
)
@click.option("--replay", type=click.Path(path_type=Path), metavar="FILE", help="Show a finding that was kept again.")
@json_option
def command(
    *,
    kernel: Path | None,
    inputs: Path | None,
    entry: str,
    budget: str | None,
    cases: int | None,
    seed: int,
    timeout: float,
    is_open: bool,
    keep: Path,
    replay: Path | None,
    json_path: str | None,
) -> int:
    """Search for inputs, launches and orders of threads that a CUDA kernel gets wrong, on the CPU.

    FILE.py has a function inputs(draw) that gives arguments, grid and block, and maybe serial(...), which says what is
    right. Every access to memory is judged. What is found is shrunk to the smallest that still fails, printed and kept.
    Exit code 1 if something was found.
    """
    end_at_sigterm()
    if budget and cases:
        raise UsageError("--budget and --cases exclude one another; name one of them")
    if replay is None and (kernel is None or inputs is None):
        raise UsageError("name a kernel and its inputs, as in fuzz-kernel FILE.cu --inputs FILE.py, or --replay FILE")
    if replay is not None and (kernel or inputs or entry):
        raise UsageError("--replay knows kernel and inputs; leave them away")
    check_files(json_path)
    seconds = LONGEST if cases else seconds_of(budget or _BUDGET)
    limits = Limits(cases or _MOST_CASES, seconds, timeout, seed, closed=not is_open)
    if replay is not None:
        found = repeat(read_witness(replay), limits).model_copy(update={"file": str(replay)})
    else:
        assert kernel is not None
        assert inputs is not None
        found = _kept(search_kernel(kernel, entry, inputs, limits), keep)
    for line in _told(found, again=replay is not None):
        say(line, err=json_path == "-")
    write_json(json_path, found)
    return FOUND if found.finding else 0


def _kept(found: KernelSearch, folder: Path) -> KernelSearch:
    """Write the finding down, if there is one."""
    if found.finding is None:
        return found
    file = folder / f"{found.finding.id}.json"
    write(file, found.finding.model_dump_json(indent=1) + "\n")
    return found.model_copy(update={"file": str(file)})


def _told(found: KernelSearch, *, again: bool) -> list[str]:
    notes = [f"note: {words}" for words in found.notes]
    checked = "every access judged" + ", and compared with serial()" * found.compared
    if found.finding is None:
        tried = "the finding does not show any more" if again else f"nothing found in {count(found.cases, 'case')}"
        return [*notes, f"{tried} in {found.seconds:.1f} s ({checked})"]
    lines = [f"{found.entry}: {found.finding.kind}: {found.finding.message}"]
    lines += [f"  {line}" for line in found.finding.told()]
    shrunk = "shrunk" if found.shrunk else "not shrunk to its end"
    lines += [] if again else [f"{shrunk} in {found.seconds:.1f} s, found with case {found.cases} ({checked})"]
    return [*lines, *notes, f"again: {shlex.join([program(), *found.replay])}"]
