"""`run`: search for failures."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.program import program
from kernel_assay.corpus.storage.atomic_files import write_atomic
from kernel_assay.corpus.storage.opening import open_store
from kernel_assay.corpus.storage.place import Place
from kernel_assay.fuzz import api
from kernel_assay.fuzz.campaign.clock import Ended
from kernel_assay.fuzz.cli.options import (
    AtLeast,
    base_option,
    box_options,
    contract_option,
    corpus_option,
    device_option,
    dtype_option,
    json_option,
    subject_option,
)
from kernel_assay.fuzz.cli.output import FOUND, check_files, write_json
from kernel_assay.fuzz.cli.progress import Progress
from kernel_assay.fuzz.settings import ENGINES, MOST_JOBS, MOST_MB, RunSettings, SandboxLimits, seconds_of
from kernel_assay.reports.book import elsewhere
from kernel_assay.reports.json_model import report, to_json
from kernel_assay.reports.plain.run_text import campaign_text
from kernel_assay.reports.plain.terminal import say
from kernel_assay.reports.words import count

INTERRUPTED = 130
"""Exit code of what was ended before its time, without a finding: that nothing was found says nothing then."""
_SHOW_CURSOR = b"\x1b[?25h\n" if os.isatty(2) else b""
"""A live line hides it."""


@click.command("run")
@click.argument("ops", nargs=-1)
@click.option(
    "--reference",
    "references",
    multiple=True,
    metavar="FILE[:NAME]",
    help="A reference of your own, which then is the op: a function or an nn.Module; repeatable.",
)
@click.option("--grad", is_flag=True, help="The gradients of the references, not what they return.")
@subject_option
@click.option(
    "--workload",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Calls of a model run, as `record` writes them: their shapes come first and are drawn more often.",
)
@click.option(
    "--peer",
    "peers",
    multiple=True,
    metavar="NAME",
    help="Which of the built-in implementations runs beside yours; none: nobody.",
)
@click.option("--backend", "backends", multiple=True, metavar="NAME", help="Only built-in implementations of this one.")
@click.option("--as-is", is_flag=True, help="Triton's interpreter without what is mended of it (doctor lists that).")
@click.option("--seeded", "--planted", "planted", is_flag=True, help="Add the seeded bugs, to see that they are found.")
@click.option(
    "--budget",
    metavar="TIME",
    help="How long it may take: 90, 90s, 5m, 8h; a tenth of it or 10 s more may go into its end.  [default: 60s]",
)
@click.option("--cases", type=AtLeast(1), help="Stop after so many cases instead.")
@click.option("--seed", type=AtLeast(0), help="Makes the same cases again.  [default: random]")
@click.option("--resume", is_flag=True, help="Go on with the latest run that was interrupted.")
@click.option("--engine", type=click.Choice(ENGINES), default="conjecture", show_default=True)
@dtype_option
@device_option("cpu", "Where the subjects run: cpu, cuda, cuda:NUMBER or cuda:all.")
@click.option("--jobs", type=AtLeast(1, MOST_JOBS), help="Processes that search.  [default: 1; on GPUs more]")
@click.option(
    "--ray", default="", metavar="ADDRESS", help="Search on a Ray cluster: auto, local, HOST:PORT, ray://HOST:PORT."
)
@click.option("--max-elements", type=AtLeast(1), help="Of the largest tensor of a case.")
@click.option(
    "--case-memory",
    type=AtLeast(1, MOST_MB),
    metavar="MB",
    help="Of all tensors of a case; with it, shapes of language models that fit are tried.",
)
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--strict", is_flag=True, help="Failures that did not show again count, too; for CI.")
@contract_option
@base_option
@box_options
@corpus_option
@json_option
def command(
    *,
    ops: tuple[str, ...],
    references: tuple[str, ...],
    grad: bool,
    subjects: tuple[str, ...],
    launch: tuple[str, ...],
    python: str,
    workload: Path | None,
    peers: tuple[str, ...],
    backends: tuple[str, ...],
    as_is: bool,
    planted: bool,
    budget: str | None,
    cases: int | None,
    seed: int | None,
    resume: bool,
    engine: str,
    dtypes: tuple[str, ...],
    device: str,
    jobs: int | None,
    ray: str,
    max_elements: int | None,
    case_memory: int | None,
    quiet: bool,
    strict: bool,
    base: Path | None,
    limits: SandboxLimits,
    corpus: Place,
    json_path: str | None,
) -> int:
    """Search for failures of OPS (default: all) and say what was found.

    Exit code 1 if a subject failed that is not a seeded bug, or if a seeded bug was not found. Failures that are
    expected, or that the base has too, do not count. One that did not show again when it was run again is told, and
    counts if two runs on one input differed, which proves it, or with --strict. Exit code 130 if the run was stopped
    before its end and had found nothing.
    """
    began = time.monotonic()
    if budget and cases:
        raise UsageError("--budget and --cases exclude one another; name one of them")
    settings = RunSettings(
        ops=ops,
        references=references,
        grad=grad,
        subjects=subjects,
        launch=launch,
        python=python,
        workload=workload,
        backends=backends,
        peers=peers,
        dtypes=dtypes,
        planted=planted,
        as_is=as_is,
        seconds=seconds_of(budget) if budget else None,
        cases=cases,
        seed=seed,
        engine=engine,
        device=device,
        jobs=jobs,
        ray=ray,
        max_elements=max_elements,
        case_memory=case_memory,
        limits=limits,
        strict=strict,
        base=base,
    )
    check_files(json_path)
    if grad and not subjects:
        return _alone(settings, json_path)
    with open_store(corpus) as store, stopping(api.Stop()) as stop:
        with Progress(quiet=quiet) as progress:
            result = api.run(settings, store=store, on_event=progress, stop=stop, resume=resume, began=began)
        code = conclude(result, corpus, json_path)
    return INTERRUPTED if stop.asked and code == 0 and not result.campaign.finished else code


def _alone(settings: RunSettings, json_path: str | None) -> int:
    """Compare the gradients of references with finite differences, as no kernel is held to them."""
    if json_path:
        raise UsageError("--json tells of kernels, and no --subject is one: name one, or leave out --json")
    s = settings
    found = [api.check_gradients(one, cases=s.cases, seconds=s.seconds, seed=s.seed) for one in s.references]
    click.echo("\n\n".join(map(_gradients_text, found)))
    return FOUND if any(one.failed for one in found) else 0


def _gradients_text(c: api.GradientCheck) -> str:
    right = c.cases - c.declined - c.failed
    lines = [f"{c.op} is {c.summary}", f"{count(c.cases, 'case')}, seed {c.seed}: {right} as finite differences say"]
    if c.declined:
        lines[-1] += f", {c.declined} not tried, as the gradient jumps near them or has no value"
    if not c.failed and c.twice < right:
        lines.append(f"second derivatives: right in {c.twice}, and not to be had in the others")
    elif not c.failed:
        lines[-1] += "; so are second derivatives"
    if c.case is not None:
        lines += [f"wrong: {c.wrong}", f"case   {c.case.label}"]
    return "\n".join(lines)


@contextmanager
def stopping(stop: api.Stop) -> Iterator[api.Stop]:
    """End a run cleanly at Ctrl-C, SIGTERM or the end of the terminal; end the process at once at the second."""

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        with suppress(OSError):  # who has listened may have gone
            os.write(2, _SHOW_CURSOR if stop.asked else b"stopping; what was found is kept (again: at once)\n")
        if stop.asked:
            os._exit(INTERRUPTED)  # as safe as kill -9, which loses nothing
        stop.ask()
        if not stop.begun:
            raise Ended

    old = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield stop
    except (Ended, api.CancelledError):
        raise click.Abort from None
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def conclude(result: api.RunResult, corpus: Place, json_path: str | None = None) -> int:
    """Say what was found; the exit code. The summary comes first: whoever reads the rest may have gone.

    Raises what ended the run before its time, and UsageError if nothing was tested.
    """
    book, to_stdout = result.book(str(corpus)), json_path == "-"
    summary = report(book)
    path: Path | str = f"{program()} report {result.campaign.run} --json -{elsewhere(corpus)}"
    full: UsageError | None = None
    if isinstance(corpus, Path):
        path = corpus / "local" / "runs" / result.campaign.run / "summary.json"
        try:
            write_atomic(path, to_json(summary) + "\n")
        except UsageError as error:  # what was found is said all the same
            full = error
    say(campaign_text(book), err=to_stdout)
    write_json(json_path, summary)
    if full is not None:
        raise full
    click.echo(f"summary   {path}", err=to_stdout)
    click.echo(f"page      {program()} report --html report.html{elsewhere(corpus)}", err=to_stdout)
    if result.pending:
        left = f"{len(result.pending):,} more failures are in the run's journal, which nobody has looked into"
        click.echo(f"left      {left}: {program()} run --resume{elsewhere(corpus)}", err=to_stdout)
    for told in result.troubles:
        click.echo(f"warning: {told}", err=True)
    result.verify()
    return FOUND if result.failed else 0
