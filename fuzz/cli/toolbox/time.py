"""`time`: how fast kernels are, against baselines and against the machine."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from random import SystemRandom

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.storage.atomic_files import write_atomic
from kernel_assay.corpus.storage.opening import open_store
from kernel_assay.corpus.storage.place import Place
from kernel_assay.fuzz import api
from kernel_assay.fuzz.checking.selection import UserKernels
from kernel_assay.fuzz.cli.options import (
    AtLeast,
    box_options,
    contract_option,
    corpus_option,
    device_option,
    dtype_option,
    json_option,
    own_option,
    reference_option,
)
from kernel_assay.fuzz.cli.output import FOUND, check_files, write_json
from kernel_assay.fuzz.settings import SandboxLimits, seconds_of
from kernel_assay.fuzz.timing import text
from kernel_assay.fuzz.timing.against import FailOn, failed, results_of
from kernel_assay.fuzz.timing.against import told as against_told
from kernel_assay.fuzz.timing.history import histories
from kernel_assay.fuzz.timing.history import told as history_told
from kernel_assay.fuzz.timing.shapes import NAMES
from kernel_assay.reports.plain.terminal import say
from kernel_assay.reports.timing import find_painter, page, write_png

_CLEAR = "\r\x1b[K"


@click.command("time")
@click.argument("target", default="", metavar="[OP|TARGET]")
@own_option
@click.option(
    "--baseline",
    "baselines",
    multiple=True,
    metavar="NAME",
    help="naive, torch, cublas, ggml, reference or builtin:NAME; repeatable.  [default: torch, beside yours]",
)
@click.option(
    "--shapes",
    multiple=True,
    metavar="NAME|FILE",
    help=f"A set ({', '.join(NAMES)}), a file of shapes, or a recorded workload; repeatable.  [default: medium]",
)
@dtype_option
@device_option("cpu", "Where they run: cpu, cuda or cuda:NUMBER.")
@click.option("--warm-l2", is_flag=True, help="Leave caches as they are between calls; else they are emptied.")
@click.option("--limit", default="", metavar="TIME", help="Of a case, at most.  [default: 10s; 60s with --against]")
@click.option(
    "--noise", type=AtLeast(0.0001, 0.5), default=0.005, show_default=True, help="Of each median, at which rounds end."
)
@click.option("--seed", type=AtLeast(0), help="Of the inputs, and of the order within rounds.  [default: random]")
@click.option("--no-roofline", is_flag=True, help="Do not measure what this machine can do.")
@contract_option
@reference_option
@box_options
@corpus_option
@json_option
@click.option("--junit", "junit_path", metavar="FILE", help="Write JUnit XML, for CI.")
@click.option(
    "--against",
    default="",
    metavar="REV|FILE|RUN",
    help="Compare with an earlier version: of a git revision, in another file, or in a kept run of times.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["slower", "unsure", "never"]),
    default="slower",
    show_default=True,
    help="With --against: what gives exit code 1.",
)
@click.option("--history", is_flag=True, help="Time nothing: say since when kept runs are slower or faster.")
@click.option("--html", "html_path", metavar="FILE", help="Write a page with pictures.")
@click.option("--png", "png_path", metavar="FILE", help="Write the pictures.")
@click.option("--quiet", is_flag=True, help="No progress.")
def command(
    *,
    target: str,
    own: UserKernels,
    baselines: tuple[str, ...],
    shapes: tuple[str, ...],
    dtypes: tuple[str, ...],
    device: str,
    warm_l2: bool,
    limit: str,
    noise: float,
    seed: int | None,
    no_roofline: bool,
    limits: SandboxLimits,
    corpus: Place,
    json_path: str | None,
    junit_path: str | None,
    against: str,
    fail_on: FailOn,
    history: bool,
    html_path: str | None,
    png_path: str | None,
    quiet: bool,
) -> int:
    """Say how fast implementations of OP are: yours (--subject) and baselines, or all built-in ones.

    In rounds of shuffled order, until each median is known to 0.5 %. TARGET may also be stored cases, as replay takes
    them. Exit code 1 if a timed output is wrong, a time cannot be true, or a kernel is slower than --against.
    """
    check_files(json_path, junit_path, html_path, png_path)
    if history:
        return _history(corpus, target)
    if png_path:
        find_painter()
    settings = api.TimeSettings(
        target=target,
        own=own,
        baselines=baselines,
        shapes=shapes,
        dtypes=dtypes,
        device=device,
        seed=SystemRandom().getrandbits(16) if seed is None else seed,
        limits=api.TimingLimits(noise=noise, seconds=seconds_of(limit or ("60s" if against else "10s")), warm=warm_l2),
        sandbox=limits,
        roofline=not no_roofline,
        command=shlex.join(sys.argv[1:]),
        against=against,
    )
    live = not quiet and sys.stderr.isatty()
    with open_store(corpus) as store:
        try:
            run = api.time(settings, store=store, on_event=_progress if live else None)
        finally:
            click.echo(_CLEAR if live else "", nl=False, err=True)
        kept = store.timing_path(run.run)
    for part in text.told(run):
        say(f"{part}\n", err=json_path == "-")
    if run.compared:
        say(f"{against_told(run)}\n", err=json_path == "-")
    click.echo(f"kept      {kept}", err=json_path == "-")
    write_json(json_path, text.summary(run))
    if junit_path:
        write_atomic(Path(junit_path), text.as_junit(run, results_of(run, fail_on)))
    if html_path:
        write_atomic(Path(html_path), page(run))
    if png_path:
        write_png(Path(png_path), run)
    if not any(one.ranked for one in run.timed) and not run.failed:
        why = next(one.problem for one in run.timed)
        raise UsageError(f"nothing could be timed: {run.timed[0].subject}: {why}")
    return FOUND if run.failed or failed(run, fail_on) else 0


def _history(corpus: Place, op: str) -> int:
    """Say what kept runs tell. Raises UsageError if there are none."""
    with open_store(corpus) as store:
        found = histories([store.timing(name) for name in store.timings()], op)
    if not found:
        raise UsageError(f"no times{f' of {op}' if op else ''} are kept in {corpus}: time something first")
    for line in history_told(found):
        say(line)
    return 0


def _progress(event: api.RoundsTimed) -> None:
    noise = f", noise {event.noise:.1%}" if event.noise < 1 else ""
    click.echo(f"{_CLEAR}case {event.number + 1} of {event.cases}, round {event.rounds}{noise}", nl=False, err=True)
